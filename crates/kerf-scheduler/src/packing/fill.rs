//! Filling one machine.

use super::{Packed, Problem};

/// What is left of each sort, and what a pod of it is worth at the moment.
#[derive(Clone, Debug)]
pub(super) struct Stock {
    pub(super) left: Vec<u32>,
    pub(super) weights: Vec<f64>,
    pub(super) taste: Taste,
}

/// How much of a machine a pod is said to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taste {
    /// The largest part that it takes of any resource. Pods of the machine's own shape come first, and those of other shapes
    /// are left for machines that suit them.
    Alike,
    /// All parts added up. Pods of opposite shapes are put together.
    Mixed,
}

/// Buffers that would otherwise be allocated for each machine.
#[derive(Debug, Default)]
pub(super) struct Filler {
    room: Vec<f64>,
    fitting: Vec<usize>,
    taken: Vec<u32>,
    in_group: Vec<u32>,
    /// Looks at sorts so far.
    pub(super) work: u64,
}

/// Of what would fit, so much is taken at once before the scarcity of resources is looked at again.
const PART: u32 = 4;

impl Filler {
    /// Fills the offer with what is worth most for the room that it takes. What is scarce on the machine becomes dearer while
    /// it fills up, so that pods of other shapes take the rest.
    pub(super) fn fill(
        &mut self,
        problem: &Problem,
        stock: &Stock,
        realm: usize,
        offer: usize,
    ) -> Packed {
        self.room.clone_from(&problem.offer(realm, offer).room);
        self.taken.clear();
        self.taken.resize(problem.sorts.len(), 0);
        self.in_group.clear();
        self.in_group.resize(problem.groups, 0);
        self.fitting.clear();
        let here = |at: &usize| stock.left[*at] > 0 && problem.sorts[*at].realms.contains(&realm);
        self.fitting.extend((0..problem.sorts.len()).filter(here));
        while let Some((sort, most)) = self.best(problem, stock) {
            let count = most.div_ceil(PART);
            self.taken[sort] += count;
            for (room, asks) in self.room.iter_mut().zip(&problem.sorts[sort].requests) {
                *room -= asks * f64::from(count);
            }
            for group in &problem.sorts[sort].counts_in {
                self.in_group[*group] += count;
            }
        }
        let taken = self.taken.iter().enumerate().filter(|(_, count)| **count > 0);
        Packed { realm, offer, pods: taken.map(|(sort, count)| (sort, *count)).collect() }
    }

    /// The sort that is worth most for what it takes of the room that is left, and how many of it fit. What fits no longer
    /// never fits again, and is forgotten.
    fn best(&mut self, problem: &Problem, stock: &Stock) -> Option<(usize, u32)> {
        let (room, taken, in_group) = (&self.room, &self.taken, &self.in_group);
        self.work += self.fitting.len() as u64 + 1;
        let mut best: Option<(usize, u32, f64)> = None;
        self.fitting.retain(|sort| {
            let wanted = &problem.sorts[*sort];
            let left = stock.left[*sort] - taken[*sort];
            let most = left.min(most_by_groups(wanted, in_group)).min(most_by_room(wanted, room));
            if most == 0 {
                return false;
            }
            let score = stock.weights[*sort] / stock.taste.share(&wanted.requests, room);
            if best.is_none_or(|(_, _, highest)| score > highest) {
                best = Some((*sort, most, score));
            }
            true
        });
        best.map(|(sort, most, _)| (sort, most))
    }
}

fn most_by_room(sort: &super::Sort, room: &[f64]) -> u32 {
    let asked = sort.requests.iter().zip(room).filter(|(asks, _)| **asks > 0.0);
    let most = asked.map(|(asks, has)| (has / asks).floor()).fold(f64::INFINITY, f64::min);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate, which is what is wanted"
    )]
    let most = most.max(0.0) as u32;
    most
}

fn most_by_groups(sort: &super::Sort, in_group: &[u32]) -> u32 {
    let most = sort.limits.iter().map(|(group, most)| {
        let here = in_group[*group];
        match (here > *most, sort.counts_in.contains(group)) {
            (true, _) => 0,
            (false, true) => most + 1 - here,
            (false, false) => u32::MAX,
        }
    });
    most.min().unwrap_or(u32::MAX)
}

impl Taste {
    /// Of what is left.
    fn share(self, requests: &[f64], room: &[f64]) -> f64 {
        let asked = requests.iter().zip(room).filter(|(asks, _)| **asks > 0.0);
        let parts = asked.map(|(asks, has)| asks / has);
        let share = match self {
            Self::Alike => parts.fold(0.0, f64::max),
            Self::Mixed => parts.sum(),
        };
        share.max(f64::MIN_POSITIVE)
    }
}
