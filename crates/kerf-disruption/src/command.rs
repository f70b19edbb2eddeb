//! A disruption command: nodes to remove, and their replacements.

use std::{collections::BTreeSet, sync::Arc};

use kerf_api::DisruptionReason;
use kerf_model::{
    InstanceType, Node, Pod, Pool, Price, Snapshot, disruption::Cost, repair::RepairAction,
};
use kerf_scheduler::{Placement, PlannedClaim};

use crate::{balanced::Score, repair::Remedy, simulation::Outcome, terminate_first::GoesFirst};

/// One step of disruption, complete: it is carried out as a whole or not at all.
#[derive(Clone, Debug)]
pub struct Command {
    pub method: Method,
    /// Never empty.
    pub candidates: Vec<Candidate>,
    pub replacements: Vec<Replacement>,
    /// Where the pods go that fit on existing nodes and claims.
    pub placements: Vec<Placement>,
    /// What it saves when each replacement is bought as cheaply as it can be. `None`: what will be launched is unknown.
    pub savings: Option<Price>,
    /// What the controls were promised; `None` where they have no say.
    pub promise: Option<Promise>,
    /// The nodes go first, and what takes their place comes after. `None`: what comes, comes first.
    pub goes_first: Option<GoesFirst>,
    /// How it looks to the pools that weigh moves, by name.
    pub scores: Vec<Score>,
    /// What is wrong with the node, where it is repaired.
    pub remedy: Option<Remedy>,
}

/// The ways to choose, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    Repair,
    Emptiness,
    StaticDrift,
    Drift,
    MultiNode,
    SingleNode,
    ManyToMany,
}

/// What a command does, as metrics and events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    Delete,
    Replace,
    TerminateFirst,
    Reboot,
}

/// A node that passed the checks, with what the choice among such nodes depends on.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Default))]
pub struct Candidate {
    /// Its place in the snapshot's nodes.
    pub index: usize,
    pub node: Arc<Node>,
    pub pool: String,
    pub provider_id: String,
    /// `None`: the pool's catalogue no longer has it.
    pub instance_type: Option<Arc<InstanceType>>,
    pub zone: Option<String>,
    pub capacity_type: Option<String>,
    /// Zero if unknown.
    pub price: Price,
    /// Places in the node's pods of those that have to find a new home.
    pub pods: Vec<usize>,
    /// The same without those that no amount of waiting makes evictable: no room is planned for them.
    pub moving: Vec<usize>,
    /// How many virtual pods of buffers have their place on it.
    pub virtual_pods: usize,
    /// One for the node and what each such pod costs, as far as it is not negative.
    pub rescheduling_cost: Cost,
    /// The pods' costs, scaled down as the node nears its end. What the savings threshold is about.
    pub disruption_cost: Cost,
}

#[derive(Clone, Debug)]
pub enum Replacement {
    Planned(PlannedClaim),
    /// One more of what the static pool always has: its template, no pods in mind.
    OfTemplate(Arc<Pool>),
}

/// The highest price at which the move is still worth it, by every control.
///
/// When the replacement has launched its real price is known; above this the command is undone before a pod is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    pub at_most: Price,
}

impl Method {
    pub const ALL: [Self; 7] = [
        Self::Repair,
        Self::Emptiness,
        Self::StaticDrift,
        Self::Drift,
        Self::MultiNode,
        Self::SingleNode,
        Self::ManyToMany,
    ];

    pub fn reason(self) -> DisruptionReason {
        self.row().reason
    }

    /// The reasons for which budgets are asked, each once: those of the methods that are asked. A budget may name others, and
    /// holds nothing back for them.
    pub fn reasons(snapshot: &Snapshot) -> BTreeSet<DisruptionReason> {
        let asked = Self::ALL.into_iter();
        let asked = asked.filter(|method| *method != Self::Repair || snapshot.repair.is_some());
        asked.map(Self::reason).collect()
    }

    /// As records that outlive an operator name it.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The method of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// As it is called where it is explained.
    pub fn title(self) -> &'static str {
        self.row().title
    }

    /// As the label `consolidation_type` of metrics has it.
    pub fn consolidation_type(self) -> &'static str {
        self.row().consolidation_type
    }

    /// The reason of the event about a node that it leaves alone.
    pub fn event(self) -> &'static str {
        self.row().event
    }

    /// Whether the choice is looked at again after a while, before anything happens.
    pub fn is_validated(self) -> bool {
        self.row().second_look.is_some()
    }

    /// Drift need not wait for pods that block eviction when the pool bounds how long they may.
    pub fn is_eventual(self) -> bool {
        self.row().eventual
    }
}

impl Decision {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Replace => "replace",
            Self::TerminateFirst => "terminate-first",
            Self::Reboot => "reboot",
        }
    }
}

impl Command {
    /// The nodes go and nothing comes in their place.
    pub(crate) fn removal(method: Method, candidates: Vec<Candidate>) -> Self {
        Self {
            method,
            savings: Some(candidates.iter().map(|candidate| candidate.price).sum()),
            candidates,
            replacements: Vec::new(),
            placements: Vec::new(),
            promise: None,
            goes_first: None,
            scores: Vec::new(),
            remedy: None,
        }
    }

    /// The node goes, and what its pods need comes, whatever it costs.
    pub(crate) fn replacing(method: Method, candidate: Candidate, outcome: Outcome) -> Self {
        let new: Price = outcome.claims.iter().map(|claim| claim.price).sum();
        Self {
            savings: Some(candidate.price - new),
            placements: outcome.placements,
            replacements: outcome.claims.into_iter().map(Replacement::Planned).collect(),
            ..Self::removal(method, vec![candidate])
        }
    }

    /// The node goes, and what comes in its place is launched when it has gone: by its static pool, or for its pods.
    pub(crate) fn terminating_first(
        method: Method,
        candidate: Candidate,
        goes_first: GoesFirst,
        placements: Vec<Placement>,
    ) -> Self {
        Self {
            savings: None,
            goes_first: Some(goes_first),
            placements,
            ..Self::removal(method, vec![candidate])
        }
    }

    /// The machine of the node is restarted in place: nothing goes, and nothing comes.
    pub(crate) fn reboot(method: Method, candidate: Candidate) -> Self {
        Self { savings: Some(Price::ZERO), ..Self::removal(method, vec![candidate]) }
    }

    /// How many pods would have to move.
    pub fn evictions(&self) -> usize {
        self.candidates.iter().map(|candidate| candidate.pods.len()).sum()
    }

    pub fn reason(&self) -> DisruptionReason {
        self.method.reason()
    }

    pub fn decision(&self) -> Decision {
        let action = self.remedy.as_ref().map(|remedy| remedy.action);
        if action == Some(RepairAction::Reboot) {
            return Decision::Reboot;
        }
        match (&self.goes_first, self.replacements.is_empty()) {
            (Some(_), _) => Decision::TerminateFirst,
            (None, true) => Decision::Delete,
            (None, false) => Decision::Replace,
        }
    }
}

impl Candidate {
    pub fn reschedulable_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().map(|place| &self.node.pods[*place])
    }

    /// Nothing on it that is worth a plan.
    pub fn is_empty(&self) -> bool {
        !self.has_pods_to_move() && self.virtual_pods == 0
    }

    /// Whether a pod on it is worth a plan. Room that is kept for others costs nothing to move.
    pub(crate) fn has_pods_to_move(&self) -> bool {
        self.rescheduling_cost > Cost::ONE
    }
}
