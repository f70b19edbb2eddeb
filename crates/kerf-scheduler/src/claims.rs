//! Claims of this run, in the order in which they are offered pods.

use kerf_model::pod::HostPort;

use crate::algebra::{SetId, id};
use crate::bits::Bits;
use crate::lanes::Lanes;

/// The claims, emptiest first. Equal ones in the order in which they were opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    pub(crate) claims: Vec<Claim>,
    order: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) template: usize,
    pub(crate) set: SetId,
    /// Rows of the template that it may still become.
    pub(crate) rows: Bits,
    /// Of its pods, without daemons.
    pub(crate) requests: Lanes,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) reservations: Vec<u32>,
    pub(crate) min_values_relaxed: bool,
    pub(crate) pods: Vec<u32>,
}

impl Claims {
    pub(crate) fn len(&self) -> usize {
        self.claims.len()
    }

    /// The claim that is offered pods at this position.
    pub(crate) fn at(&self, position: usize) -> usize {
        self.order[position] as usize
    }

    pub(crate) fn open(&mut self, claim: Claim) -> usize {
        let index = self.claims.len();
        let rank = (claim.pods.len(), id(index));
        self.claims.push(claim);
        let at = self.order.partition_point(|other| self.rank(*other) < rank);
        self.order.insert(at, id(index));
        index
    }

    /// Another pod for the claim: it moves behind the claims that now have fewer.
    pub(crate) fn add_pod(&mut self, claim: usize, pod: u32) {
        let rank = self.rank(id(claim));
        let from = self.order.partition_point(|other| self.rank(*other) < rank);
        let new_rank = (rank.0 + 1, rank.1);
        let to = self.order.partition_point(|other| self.rank(*other) < new_rank);
        self.claims[claim].pods.push(pod);
        self.order[from..to].rotate_left(1);
    }

    fn rank(&self, claim: u32) -> (usize, u32) {
        (self.claims[claim as usize].pods.len(), claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algebra::Algebra;

    fn claim(pods: &[u32]) -> Claim {
        Claim {
            template: 0,
            set: Algebra::EMPTY,
            rows: Bits::default(),
            requests: Lanes::new(),
            ports: Vec::new(),
            reservations: Vec::new(),
            min_values_relaxed: false,
            pods: pods.to_vec(),
        }
    }

    #[test]
    fn emptiest_first_then_oldest() {
        let mut claims = Claims::default();
        let order = |claims: &Claims| (0..claims.len()).map(|at| claims.at(at)).collect::<Vec<_>>();
        for _ in 0..3 {
            claims.open(claim(&[0]));
        }
        assert_eq!(order(&claims), [0, 1, 2]);
        claims.add_pod(0, 1);
        assert_eq!(order(&claims), [1, 2, 0]);
        claims.add_pod(2, 1);
        assert_eq!(order(&claims), [1, 0, 2]);
        claims.open(claim(&[0]));
        assert_eq!(order(&claims), [1, 3, 0, 2]);
        claims.add_pod(1, 1);
        claims.add_pod(1, 2);
        assert_eq!(order(&claims), [3, 0, 2, 1]);
    }
}
