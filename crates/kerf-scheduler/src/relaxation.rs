//! What a pod gives up when nothing takes it, and in which order.

use kerf_model::Toleration;
use kerf_model::pod::{Constraints, Weighted, WhenUnsatisfiable};

use crate::options::PreferencePolicy;

/// The steps in which a pod's preferences are given up, in the order in which they hurt least: required terms of the node
/// affinity but the last, preferred pods, preferred distance from pods, preferred nodes, soft spreads, and distance
/// from nodes that only ask to be avoided. Of preferences the heaviest goes first, because what is left must hold
/// together.
///
/// How far a pod has come is one number, so that nothing has to be copied to take a step.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    terms: u32,
    /// Positions in the constraints' lists, in the order in which they go.
    affinity: Vec<u32>,
    anti_affinity: Vec<u32>,
    preferred: Vec<u32>,
    spread: Vec<u32>,
    soft_taints: bool,
}

impl Steps {
    pub(crate) fn new(
        constraints: &Constraints,
        policy: PreferencePolicy,
        soft_taints: bool,
    ) -> Self {
        let tolerates = constraints.tolerations.contains(&Toleration::prefer_no_schedule());
        let soft_taints = soft_taints && !tolerates;
        let terms = position(constraints.required_terms.len().saturating_sub(1));
        match policy {
            // Ignored preferences are not in the way, so dropping them would only repeat the attempt.
            PreferencePolicy::Ignore => Self { terms, soft_taints, ..Self::default() },
            PreferencePolicy::Respect => Self {
                terms,
                affinity: heaviest_first(&constraints.affinity.preferred),
                anti_affinity: heaviest_first(&constraints.anti_affinity.preferred),
                preferred: heaviest_first(&constraints.preferred_terms),
                spread: soft_spreads(constraints),
                soft_taints,
            },
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.after_spread() + u32::from(self.soft_taints)
    }

    /// The position of the required term that counts after so many steps.
    pub(crate) fn term(&self, step: u32) -> usize {
        step.min(self.terms) as usize
    }

    /// The position of the heaviest preferred term that is left after so many steps.
    pub(crate) fn preferred(&self, step: u32) -> Option<usize> {
        let gone = step.saturating_sub(self.after_anti_affinity());
        self.preferred.get(gone as usize).map(|at| *at as usize)
    }

    /// The step after which the preferred term at this position of the pod affinity is gone.
    pub(crate) fn affinity(&self, at: usize) -> Option<u32> {
        gone_after(&self.affinity, at, self.terms)
    }

    pub(crate) fn anti_affinity(&self, at: usize) -> Option<u32> {
        gone_after(&self.anti_affinity, at, self.after_affinity())
    }

    /// The same for a spread constraint; none for those that are required.
    pub(crate) fn spread(&self, at: usize) -> Option<u32> {
        gone_after(&self.spread, at, self.after_preferred())
    }

    pub(crate) fn tolerates_soft_taints(&self, step: u32) -> bool {
        self.soft_taints && step == self.count()
    }

    fn after_affinity(&self) -> u32 {
        self.terms + position(self.affinity.len())
    }

    fn after_anti_affinity(&self) -> u32 {
        self.after_affinity() + position(self.anti_affinity.len())
    }

    fn after_preferred(&self) -> u32 {
        self.after_anti_affinity() + position(self.preferred.len())
    }

    fn after_spread(&self) -> u32 {
        self.after_preferred() + position(self.spread.len())
    }
}

fn heaviest_first<T>(terms: &[Weighted<T>]) -> Vec<u32> {
    let mut order: Vec<_> = (0..position(terms.len())).collect();
    order.sort_by_key(|at| std::cmp::Reverse(terms[*at as usize].weight));
    order
}

/// Upstream puts the last constraint in the place of the one that goes, so the next to go is often the last.
fn soft_spreads(constraints: &Constraints) -> Vec<u32> {
    let soft = |at: &u32| {
        let when = constraints.spread[*at as usize].when_unsatisfiable;
        when == WhenUnsatisfiable::ScheduleAnyway
    };
    let mut left: Vec<_> = (0..position(constraints.spread.len())).collect();
    let mut order = Vec::new();
    while let Some(at) = left.iter().position(soft) {
        order.push(left.swap_remove(at));
    }
    order
}

fn gone_after(order: &[u32], at: usize, before: u32) -> Option<u32> {
    let turn = order.iter().position(|other| *other as usize == at)?;
    Some(before + position(turn) + 1)
}

fn position(at: usize) -> u32 {
    crate::algebra::id(at)
}
