//! Filling one machine.
//!
//! This is where the time goes, so what is looked at again and again lies side by side: `L` amounts for each sort, padded with
//! resources that nothing asks for.

use super::{Problem, Sort};

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

/// Pods of a sort that may be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<const L: usize> {
    pub(super) asks: [f64; L],
    weight: f64,
    pub(super) sort: usize,
    pub(super) left: u32,
    /// Groups say how many of it may be on a machine.
    limited: bool,
}

/// Buffers that would otherwise be allocated for each machine.
#[derive(Debug)]
pub(super) struct Filler<const L: usize> {
    /// What may be taken in the realm that is looked at.
    pub(super) waiting: Vec<Waiting<L>>,
    /// Of those, what fits what is left of the machine.
    fitting: Vec<Waiting<L>>,
    pub(super) room: [f64; L],
    /// By sort, and which sorts have any.
    taken: Vec<u32>,
    pub(super) kinds: Vec<usize>,
    in_group: Vec<u32>,
    /// Looks at sorts so far.
    pub(super) work: u64,
}

/// Of what would fit, so much is taken at once before the scarcity of resources is looked at again.
const PART: u32 = 2;

impl<const L: usize> Filler<L> {
    pub(super) fn new(problem: &Problem) -> Self {
        Self {
            waiting: Vec::new(),
            fitting: Vec::new(),
            room: [0.0; L],
            taken: vec![0; problem.sorts.len()],
            kinds: Vec::new(),
            in_group: vec![0; problem.groups],
            work: 0,
        }
    }

    /// Turns to the pods that are left of these sorts.
    pub(super) fn look_at(&mut self, problem: &Problem, stock: &Stock, sorts: &[usize]) {
        self.waiting.clear();
        for sort in sorts.iter().filter(|sort| stock.left[**sort] > 0) {
            let known = &problem.sorts[*sort];
            self.waiting.push(Waiting {
                asks: padded(&known.requests),
                weight: stock.weights[*sort],
                sort: *sort,
                left: stock.left[*sort],
                limited: !known.limits.is_empty(),
            });
        }
    }

    /// Fills a machine with what is worth most for the room that it takes. What is scarce on the machine becomes dearer while
    /// it fills up, so that pods of other shapes take the rest.
    pub(super) fn fill(&mut self, problem: &Problem, taste: Taste, room: [f64; L]) {
        self.room = room;
        for sort in self.kinds.drain(..) {
            self.taken[sort] = 0;
        }
        self.in_group.fill(0);
        self.fitting.clear();
        self.fitting.extend(self.waiting.iter().filter(|one| fits(&one.asks, &room)));
        loop {
            let best = match taste {
                Taste::Alike => self.best(problem, largest),
                Taste::Mixed => self.best(problem, sum),
            };
            let Some(at) = best else { break };
            self.take(problem, at);
        }
    }

    pub(super) fn count(&self, sort: usize) -> u32 {
        self.taken[sort]
    }

    fn take(&mut self, problem: &Problem, at: usize) {
        let Waiting { asks, sort, left, .. } = self.fitting[at];
        let known = &problem.sorts[sort];
        let most = left.min(most_by_groups(known, &self.in_group));
        let most = most.min(most_by_room(&asks, &self.room));
        let count = most.div_ceil(PART);
        self.fitting[at].left -= count;
        for (room, asks) in self.room.iter_mut().zip(asks) {
            *room -= asks * f64::from(count);
        }
        if self.taken[sort] == 0 {
            self.kinds.push(sort);
        }
        self.taken[sort] += count;
        for group in &known.counts_in {
            self.in_group[*group] += count;
        }
    }

    /// The one that is worth most for what it takes of the room that is left. What fits no longer never fits again, and is
    /// forgotten.
    fn best(
        &mut self,
        problem: &Problem,
        share: impl Fn(&[f64; L], &[f64; L]) -> f64,
    ) -> Option<usize> {
        self.work += self.fitting.len() as u64 + 1;
        let room = self.room;
        let per_room = room.map(|has| if has > 0.0 { 1.0 / has } else { 0.0 });
        let mut kept = 0;
        let mut best = None;
        let (mut highest, mut by) = (0.0, 1.0);
        for at in 0..self.fitting.len() {
            let one = self.fitting[at];
            if one.left == 0 || !fits(&one.asks, &room) {
                continue;
            }
            if one.limited && most_by_groups(&problem.sorts[one.sort], &self.in_group) == 0 {
                continue;
            }
            let share = share(&one.asks, &per_room).max(NOTHING);
            // Two fractions are compared without dividing.
            if best.is_none() || one.weight * by > highest * share {
                (highest, by) = (one.weight, share);
                best = Some(kept);
            }
            self.fitting[kept] = one;
            kept += 1;
        }
        self.fitting.truncate(kept);
        best
    }
}

/// The share of a pod that asks for nothing.
const NOTHING: f64 = 1e-100;

pub(super) fn padded<const L: usize>(amounts: &[f64]) -> [f64; L] {
    std::array::from_fn(|lane| amounts.get(lane).copied().unwrap_or(0.0))
}

#[expect(
    clippy::needless_bitwise_bool,
    reason = "leaving early would keep it from being one comparison of all"
)]
pub(super) fn fits<const L: usize>(asks: &[f64; L], room: &[f64; L]) -> bool {
    asks.iter().zip(room).fold(true, |fits, (asks, has)| fits & (asks <= has))
}

fn largest<const L: usize>(asks: &[f64; L], per_room: &[f64; L]) -> f64 {
    let parts = asks.iter().zip(per_room).map(|(asks, per)| asks * per);
    parts.fold(0.0, |most, part| if part > most { part } else { most })
}

fn sum<const L: usize>(asks: &[f64; L], per_room: &[f64; L]) -> f64 {
    asks.iter().zip(per_room).map(|(asks, per)| asks * per).sum()
}

fn most_by_room<const L: usize>(asks: &[f64; L], room: &[f64; L]) -> u32 {
    let asked = asks.iter().zip(room).filter(|(asks, _)| **asks > 0.0);
    let most = asked.map(|(asks, has)| (has / asks).floor()).fold(f64::INFINITY, f64::min);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate, which is what is wanted"
    )]
    let most = most.max(1.0) as u32;
    most
}

fn most_by_groups(sort: &Sort, in_group: &[u32]) -> u32 {
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
