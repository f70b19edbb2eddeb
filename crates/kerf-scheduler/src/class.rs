//! Pods that cannot be told apart by any rule are one class, and are judged once.

use std::sync::Arc;

use kerf_model::pod::{Constraints, HostPort, WhenUnsatisfiable, heaviest};
use kerf_model::taint::Toleration;

use crate::algebra::Wish;
use crate::bits::Bits;
use crate::lanes::Lanes;
use crate::options::PreferencePolicy;
use crate::topology::{AudienceId, GroupId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClassId(pub(crate) u32);

impl ClassId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Everything about a pod that placing it depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClassKey {
    pub(crate) audience: AudienceId,
    pub(crate) requests: Lanes,
    pub(crate) constraints: Arc<Constraints>,
    /// Claims of its volumes, in its namespace.
    pub(crate) volumes: Vec<String>,
    /// May go to nodes that are settling.
    pub(crate) unsettled: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) spec: Arc<Spec>,
    pub(crate) relaxed: Relaxed,
    /// Nodes that refuse it in every run, for what they are and for what they had to begin with.
    pub(crate) barred_nodes: Option<Bits>,
    pub(crate) run: ClassRun,
}

/// What a class has learnt in one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassRun {
    pub(crate) number: u64,
    /// Candidates that have refused for good: within a run nodes and claims only fill up and narrow.
    pub(crate) dead_nodes: Bits,
    pub(crate) dead_claims: Bits,
    pub(crate) dead_templates: Bits,
    /// The state of the run in which nothing would take it, with the last class that was tried.
    pub(crate) failed: Option<(usize, ClassId)>,
}

/// The class with one wish less.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Relaxed {
    NotAskedYet,
    To(ClassId),
    NothingLeft,
}

/// The part of a class that does not change.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) key: ClassKey,
    /// With the heaviest preference.
    pub(crate) wish: Wish,
    /// Without it: preferences do not narrow where pods are counted.
    pub(crate) strict: Wish,
    /// From volumes; none for no constraint.
    pub(crate) alternatives: Vec<Wish>,
    /// Claims by driver, for the limits of nodes.
    pub(crate) attachments: Vec<(String, Vec<String>)>,
    /// Constraints that it carries, and whether they select the pod itself.
    pub(crate) owned: Vec<(GroupId, bool)>,
    /// Groups in which it counts as a carrier.
    pub(crate) carried: Vec<GroupId>,
}

impl Spec {
    pub(crate) fn ports(&self) -> &[HostPort] {
        &self.key.constraints.host_ports
    }

    pub(crate) fn tolerations(&self) -> &[Toleration] {
        &self.key.constraints.tolerations
    }
}

/// Gives up exactly one wish, in the order in which they hurt least; nothing left gives `None`.
pub(crate) fn relaxed(
    constraints: &Constraints,
    policy: PreferencePolicy,
    tolerate_soft_taints: bool,
) -> Option<Constraints> {
    let mut relaxed = constraints.clone();
    if relaxed.required_terms.len() > 1 {
        relaxed.required_terms.remove(0);
        return Some(relaxed);
    }
    // Ignored preferences are not in the way, so dropping them would only repeat the attempt.
    if policy == PreferencePolicy::Respect {
        if let Some(at) = heaviest(&relaxed.affinity.preferred) {
            relaxed.affinity.preferred.remove(at);
            return Some(relaxed);
        }
        if let Some(at) = heaviest(&relaxed.anti_affinity.preferred) {
            relaxed.anti_affinity.preferred.remove(at);
            return Some(relaxed);
        }
        if let Some(at) = heaviest(&relaxed.preferred_terms) {
            relaxed.preferred_terms.remove(at);
            return Some(relaxed);
        }
        let soft = |when| when == WhenUnsatisfiable::ScheduleAnyway;
        if let Some(at) = relaxed.spread.iter().position(|spread| soft(spread.when_unsatisfiable)) {
            relaxed.spread.swap_remove(at);
            return Some(relaxed);
        }
    }
    let soft_toleration = Toleration::prefer_no_schedule();
    if tolerate_soft_taints && !relaxed.tolerations.contains(&soft_toleration) {
        relaxed.tolerations.push(soft_toleration);
        return Some(relaxed);
    }
    None
}
