//! Classes of pods: an equivalence class is judged once, because every rule treats its pods alike.

use std::sync::Arc;

use kerf_model::pod::{Constraints, HostPort};
use kerf_model::taint::{Taint, first_hard_untolerated, first_untolerated};

use crate::algebra::PodRequirements;
use crate::attached::Attached;
use crate::bits::Bits;
use crate::lanes::Lanes;
use crate::relaxation::Steps;
use crate::topology::{GroupId, PodLabelsId};

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
    pub(crate) pod_labels: PodLabelsId,
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

/// The part of a class that does not change: a pod's constraints without those that the first so many steps give up.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) base: Arc<Base>,
    /// How many steps were taken, of those that the base has.
    pub(crate) step: u32,
    /// With the heaviest preference.
    pub(crate) requirements: PodRequirements,
    /// Without it: preferences do not narrow where pods are counted.
    pub(crate) strict_requirements: PodRequirements,
}

/// What a class shares with all classes that it relaxes to. A pod may have a hundred preferences to give up one by one, so
/// whatever grows with their number is here, once.
#[derive(Debug)]
pub(crate) struct Base {
    /// The class before the first step.
    pub(crate) class: ClassId,
    pub(crate) key: ClassKey,
    pub(crate) steps: Steps,
    /// Where its volumes can be reached: one of these must be met. None for no constraint.
    pub(crate) volume_requirements: Vec<PodRequirements>,
    /// Claims by driver, for the limits of nodes and instance types.
    pub(crate) attachments: Vec<(String, Vec<String>)>,
    /// Constraints that it carries.
    pub(crate) owned: Vec<Owned>,
    /// Those of its constraints that keep it apart from its like, over domains that a new node chooses from.
    pub(crate) self_anti_affinity: Vec<GroupId>,
    /// The inverse groups of its required anti-affinity.
    pub(crate) inverse: Vec<GroupId>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned {
    pub(crate) group: GroupId,
    /// Whether it selects the pod itself.
    pub(crate) selects_self: bool,
    /// The step that gives it up; none for what is required.
    pub(crate) given_up: Option<u32>,
}

impl Owned {
    pub(crate) fn is_left(&self, step: u32) -> bool {
        self.given_up.is_none_or(|given_up| step < given_up)
    }
}

impl Spec {
    pub(crate) fn ports(&self) -> &[HostPort] {
        &self.base.key.constraints.host_ports
    }

    pub(crate) fn attach_to(&self, attached: &mut Attached) {
        for (driver, claims) in &self.base.attachments {
            attached.add(driver, claims.iter().cloned());
        }
    }

    /// The first taint that is in the way. Those that only ask to be avoided are, until that is given up.
    pub(crate) fn first_untolerated<'a>(&self, taints: &'a [Taint]) -> Option<&'a Taint> {
        let tolerations = &self.base.key.constraints.tolerations;
        if self.base.steps.tolerates_soft_taints(self.step) {
            return first_hard_untolerated(taints, tolerations);
        }
        first_untolerated(taints, tolerations)
    }
}
