//! Claims of this run, in the order in which they are offered pods.

use std::hash::{Hash, Hasher};

use kerf_model::{Price, pod::HostPort};
use rustc_hash::FxHasher;

use crate::algebra::{SetId, id};
use crate::attached::Attached;
use crate::bits::Bits;
use crate::lanes::{self, CPU_LANE, Lanes, MEMORY_LANE};

/// The claims, those with the fewest pods first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    pub(crate) all: Vec<Claim>,
    order: Vec<u32>,
    ties: Ties,
}

/// Which of several claims with equally many pods comes first; of those that are equal in this as well, the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ties {
    #[default]
    Oldest,
    FewestCores,
    LeastMemory,
    /// By lot, the same for the same number.
    Drawn(u32),
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
    /// Of a template whose types limit volumes.
    pub(crate) attached: Attached,
    pub(crate) reservations: Vec<u32>,
    pub(crate) min_values_relaxed: bool,
    pub(crate) pods: Vec<u32>,
    /// Pods that it was not opened for must not make it dearer than this.
    pub(crate) ceiling: Option<Price>,
}

impl Claims {
    pub(crate) fn new(ties: Ties) -> Self {
        Self { ties, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The claim that is offered pods at this position.
    pub(crate) fn at(&self, position: usize) -> usize {
        self.order[position] as usize
    }

    pub(crate) fn open(&mut self, claim: Claim) -> usize {
        let index = self.all.len();
        self.all.push(claim);
        let rank = self.rank(id(index));
        let at = self.order.partition_point(|other| self.rank(*other) < rank);
        self.order.insert(at, id(index));
        index
    }

    /// Another pod for the claim: it moves behind the claims that now have fewer.
    pub(crate) fn add_pod(&mut self, claim: usize, pod: u32, requests: &Lanes) {
        let rank = self.rank(id(claim));
        let from = self.order.partition_point(|other| self.rank(*other) < rank);
        self.all[claim].pods.push(pod);
        lanes::add(&mut self.all[claim].requests, requests);
        let rank = self.rank(id(claim));
        let behind = &self.order[from + 1..];
        let to = from + 1 + behind.partition_point(|other| self.rank(*other) < rank);
        self.order[from..to].rotate_left(1);
    }

    fn rank(&self, index: u32) -> (usize, i64, u32) {
        let claim = &self.all[index as usize];
        let tie = match self.ties {
            Ties::Oldest => 0,
            Ties::FewestCores => claim.requests[CPU_LANE],
            Ties::LeastMemory => claim.requests[MEMORY_LANE],
            Ties::Drawn(number) => {
                let mut hasher = FxHasher::default();
                (number, index).hash(&mut hasher);
                hasher.finish().cast_signed()
            }
        };
        (claim.pods.len(), tie, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algebra::Algebra;

    fn claim(pods: &[u32], requests: &Lanes) -> Claim {
        Claim {
            template: 0,
            set: Algebra::EMPTY,
            rows: Bits::default(),
            requests: requests.clone(),
            ports: Vec::new(),
            attached: Attached::default(),
            reservations: Vec::new(),
            min_values_relaxed: false,
            pods: pods.to_vec(),
            ceiling: None,
        }
    }

    fn order(claims: &Claims) -> Vec<usize> {
        (0..claims.len()).map(|at| claims.at(at)).collect()
    }

    #[test]
    fn emptiest_first_then_oldest() {
        let mut claims = Claims::default();
        let nothing = Lanes::new();
        for _ in 0..3 {
            claims.open(claim(&[0], &nothing));
        }
        assert_eq!(order(&claims), [0, 1, 2]);
        claims.add_pod(0, 1, &nothing);
        assert_eq!(order(&claims), [1, 2, 0]);
        claims.add_pod(2, 1, &nothing);
        assert_eq!(order(&claims), [1, 0, 2]);
        claims.open(claim(&[0], &nothing));
        assert_eq!(order(&claims), [1, 3, 0, 2]);
        claims.add_pod(1, 1, &nothing);
        claims.add_pod(1, 2, &nothing);
        assert_eq!(order(&claims), [3, 0, 2, 1]);
    }

    #[test]
    fn among_those_with_equally_many_pods_the_least_asked_for_comes_first() {
        let small: Lanes = [1, 20, 1].into_iter().collect();
        let large: Lanes = [2, 10, 1].into_iter().collect();
        for (ties, opened, filled) in [
            (Ties::Oldest, [0, 1, 2], [2, 0, 1]),
            (Ties::FewestCores, [1, 0, 2], [2, 1, 0]),
            (Ties::LeastMemory, [0, 2, 1], [2, 0, 1]),
        ] {
            let mut claims = Claims::new(ties);
            for requests in [&large, &small, &large] {
                claims.open(claim(&[0], requests));
            }
            assert_eq!(order(&claims), opened, "{ties:?}");
            claims.add_pod(0, 1, &small);
            claims.add_pod(1, 1, &small);
            assert_eq!(order(&claims), filled, "{ties:?}");
        }
    }
}
