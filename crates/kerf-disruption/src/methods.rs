//! The table of disruption methods. A method is one row here, one variant of [`Method`], and one file with its own rules.

use kerf_api::DisruptionReason;
use kerf_model::{Snapshot, repair::RepairAction};

use crate::{
    blocked::Blocked,
    candidates::{self, CandidateCheck},
    command::{Candidate, Command, Method},
    consolidation::{self, Consolidation},
    drift, emptiness,
    explain::Explainer,
    many_to_many, multi_node,
    pass::Look,
    repair, setback,
    settings::Settings,
    simulation::Simulation,
    single_node, static_capacity,
    validation::{self, Invalid, Validated},
};

/// What there is to know about a method.
pub(crate) struct Row {
    /// In records that outlive an operator.
    pub(crate) name: &'static str,
    /// Where it is explained. Multi-node and single-node consolidation ask the same of a node.
    pub(crate) title: &'static str,
    pub(crate) reason: DisruptionReason,
    /// The label `consolidation_type` of metrics.
    pub(crate) consolidation_type: &'static str,
    /// The reason of the event about a node that it leaves alone.
    pub(crate) event: &'static str,
    /// Whether it need not wait for pods that block eviction where the pool bounds how long they may.
    pub(crate) eventual: bool,
    /// The nodes of which pools it is about.
    pub(crate) pools: Pools,
    /// What it asks of its candidates, each with the fact that it states where it passes.
    pub(crate) checks: &'static [(&'static str, CandidateCheck)],
    /// Looks at the whole cluster.
    pub(crate) look: for<'p> fn(&mut Look<'p>, &mut Shared<'p>),
    /// What a next pass does not look at again, after a command of the method failed.
    pub(crate) remembers: Remembers,
    /// Looks at a command again before anything happens. Without one it is acted on at once.
    pub(crate) second_look: Option<SecondLook>,
    /// What it does with a node by itself. A method that takes several has nothing to say about one.
    pub(crate) alone: Option<Alone>,
}

pub(crate) type SecondLook = fn(&Command, &Snapshot, &Settings) -> Result<Validated, Invalid>;

/// How a method is asked about one node.
pub(crate) struct Alone {
    pub(crate) verdict: for<'e> fn(&Explainer<'e>, &Candidate) -> Result<Command, Blocked>,
    /// The world without the node, where its pods have to move.
    pub(crate) simulation:
        for<'a, 'e> fn(&'a Explainer<'e>, &Candidate) -> Option<&'a Simulation<'e>>,
    /// Whether a replacement has to be worth its price.
    pub(crate) weighs_prices: bool,
}

/// The pools that a method is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pools {
    All,
    Static,
    Dynamic,
}

impl Pools {
    pub(crate) fn have(self, is_static: bool) -> bool {
        match self {
            Self::All => true,
            Self::Static => is_static,
            Self::Dynamic => !is_static,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remembers {
    /// It looks at everything each time.
    Nothing,
    /// The search as a whole.
    Search(&'static str),
    Nodes,
}

/// What the methods of one pass share, made by the first that needs it.
pub(crate) struct Shared<'p> {
    /// The candidates of the methods that wait for every pod.
    pub(crate) graceful: Vec<Candidate>,
    pub(crate) consolidation: Option<Consolidation<'p>>,
}

impl<'p> Shared<'p> {
    fn consolidation(&mut self, look: &mut Look<'p>) -> &Consolidation<'p> {
        let Self { graceful, consolidation } = self;
        consolidation.get_or_insert_with(|| {
            let eligible = consolidation::eligible(look, graceful);
            Consolidation::new(look.snapshot, look.settings, graceful, eligible)
        })
    }
}

impl Method {
    /// Whether it is asked at all.
    pub(crate) fn is_on(self, snapshot: &Snapshot, settings: &Settings) -> bool {
        match self {
            Self::Repair => snapshot.repair.is_some(),
            Self::ManyToMany => settings.many_to_many,
            _ => settings.static_capacity || self.row().pools != Pools::Static,
        }
    }

    pub(crate) fn row(self) -> &'static Row {
        match self {
            Self::Repair => &REPAIR,
            Self::Emptiness => &EMPTINESS,
            Self::StaticDrift => &STATIC_DRIFT,
            Self::Drift => &DRIFT,
            Self::MultiNode => &MULTI_NODE,
            Self::SingleNode => &SINGLE_NODE,
            Self::ManyToMany => &MANY_TO_MANY,
        }
    }
}

const REPAIR: Row = Row {
    name: "repair",
    title: "Repair",
    reason: DisruptionReason::Unhealthy,
    consolidation_type: "",
    event: BLOCKED,
    eventual: true,
    pools: Pools::All,
    checks: &candidates::REPAIR,
    look: |look, _| repair::look(look),
    remembers: Remembers::Nodes,
    second_look: None,
    alone: Some(Alone {
        verdict: |explainer, candidate| {
            repair::command(
                explainer.snapshot,
                explainer.settings,
                || explainer.repair(),
                candidate,
            )
        },
        simulation: |explainer, candidate| {
            let action = repair::due(&candidate.node, explainer.snapshot.now).map(|it| it.action);
            let reboots = action == Ok(RepairAction::Reboot);
            let moves = !reboots && !repair::needs_no_room(explainer.snapshot, candidate);
            moves.then(|| explainer.repair())
        },
        weighs_prices: false,
    }),
};

const EMPTINESS: Row = Row {
    name: "emptiness",
    title: "Emptiness",
    reason: DisruptionReason::Empty,
    consolidation_type: "empty",
    event: UNCONSOLIDATABLE,
    eventual: false,
    pools: Pools::Dynamic,
    checks: &candidates::EMPTINESS,
    look: |look, shared| emptiness::look(look, &shared.graceful),
    remembers: Remembers::Nothing,
    second_look: Some(|command, snapshot, _| validation::still_empty(command, snapshot)),
    alone: Some(Alone {
        verdict: |_, candidate| Ok(Command::removal(Method::Emptiness, vec![candidate.clone()])),
        simulation: |_, _| None,
        weighs_prices: false,
    }),
};

const STATIC_DRIFT: Row = Row {
    name: "static-drift",
    title: "Drift of static NodePools",
    reason: DisruptionReason::Drifted,
    consolidation_type: "",
    event: BLOCKED,
    eventual: true,
    pools: Pools::Static,
    checks: &candidates::STATIC_DRIFT,
    look: |look, _| static_capacity::look(look),
    remembers: Remembers::Nothing,
    second_look: None,
    alone: Some(Alone {
        verdict: |explainer, candidate| {
            setback::awake(&explainer.rests, &candidate.pool)?;
            let first = explainer.drift.may_terminate_first();
            static_capacity::verdict(explainer.snapshot, first, candidate)
        },
        simulation: |_, _| None,
        weighs_prices: false,
    }),
};

const DRIFT: Row = Row {
    name: "drift",
    title: "Drift",
    reason: DisruptionReason::Drifted,
    consolidation_type: "",
    event: BLOCKED,
    eventual: true,
    pools: Pools::Dynamic,
    checks: &candidates::DRIFT,
    look: |look, _| drift::look(look),
    remembers: Remembers::Nodes,
    second_look: None,
    alone: Some(Alone {
        verdict: |explainer, candidate| {
            drift::replace(explainer.snapshot, &explainer.drift, &explainer.rests, candidate)
        },
        simulation: |explainer, _| Some(&explainer.drift.beside),
        weighs_prices: false,
    }),
};

const MULTI_NODE: Row = Row {
    name: "multi-node",
    consolidation_type: "multi",
    look: |look, shared| {
        let consolidation = shared.consolidation(look);
        multi_node::look(look, consolidation);
    },
    remembers: Remembers::Search(multi_node::SEARCH),
    alone: None,
    ..SINGLE_NODE
};

const SINGLE_NODE: Row = Row {
    name: "single-node",
    title: "Consolidation",
    reason: DisruptionReason::Underutilized,
    consolidation_type: "single",
    event: UNCONSOLIDATABLE,
    eventual: false,
    pools: Pools::Dynamic,
    checks: &candidates::CONSOLIDATION,
    look: |look, shared| {
        let consolidation = shared.consolidation(look);
        single_node::look(look, consolidation);
    },
    remembers: Remembers::Nodes,
    second_look: Some(validation::still_underutilized),
    alone: Some(Alone {
        verdict: |explainer, candidate| {
            explainer.consolidation.weigh(candidate, Method::SingleNode)
        },
        simulation: |explainer, candidate| {
            (!candidate.is_empty()).then(|| explainer.consolidation.simulation())
        },
        weighs_prices: true,
    }),
};

const MANY_TO_MANY: Row = Row {
    name: "many-to-many",
    title: "Many-to-many consolidation",
    consolidation_type: "many",
    look: |look, shared| {
        let consolidation = shared.consolidation(look);
        many_to_many::look(look, consolidation);
    },
    remembers: Remembers::Search(many_to_many::SEARCH),
    second_look: Some(many_to_many::still_worth_it),
    alone: Some(Alone {
        verdict: |explainer, candidate| many_to_many::alone(&explainer.consolidation, candidate),
        // Where the pods would go on what is there is said under the method before it.
        simulation: |_, _| None,
        weighs_prices: true,
    }),
    ..SINGLE_NODE
};

const BLOCKED: &str = "DisruptionBlocked";
const UNCONSOLIDATABLE: &str = "Unconsolidatable";
