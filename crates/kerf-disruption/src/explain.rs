//! Why a node is left alone, or what disruption would do with it: every check with its outcome, and the simulation.
//!
//! The same checks, simulation and prices as in a [`pass`](crate::pass()), only that nothing ends at the first refusal.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use jiff::Timestamp;
use kerf_api::{Budget, ConsolidationPolicy, DisruptionReason};
use kerf_model::{
    Node, Price, Snapshot,
    churn::{ChurnControls, Fraction},
    disruption::Cost,
    repair::RepairMatch,
};
use kerf_scheduler::{Plan, PlannedClaim, Refusal, Stop};

use crate::{
    blocked::Blocked,
    budgets::{self, Allowance, BudgetError},
    candidates::{self, NODE_CHECKS, describe, pool_of},
    command::{Candidate, Command, Method},
    consolidation::Consolidation,
    controls::{self, Bound},
    drift::Ways,
    methods::Alone,
    pass::{afford, graceful},
    repair::{self, Remedy},
    setback::{self, PoolRest, Rests},
    settings::Settings,
    simulation::Simulation,
};

/// Explains the nodes and pools of one snapshot.
#[derive(Debug)]
pub struct Explainer<'e> {
    pub(crate) snapshot: &'e Snapshot,
    pub(crate) settings: &'e Settings,
    pub(crate) consolidation: Consolidation<'e>,
    pub(crate) drift: Ways<'e>,
    /// Pools whose drifted nodes are not replaced for a while.
    pub(crate) rests: Rests,
    /// Most clusters have nothing to repair.
    repair: OnceLock<Simulation<'e>>,
    allowances: BTreeMap<DisruptionReason, BTreeMap<String, Allowance>>,
}

#[derive(Clone, Debug)]
pub struct NodeExplanation {
    pub node: Arc<Node>,
    /// `None`: it is not known enough about to be one.
    pub candidate: Option<Candidate>,
    pub utilization: Fraction,
    /// Since when no pod has come or gone.
    pub quiet_since: Option<Timestamp>,
    /// `None`: no policy is about it.
    pub repair: Option<RepairExplanation>,
    /// Of the node, whatever the method.
    pub checks: Vec<Check>,
    /// One for each method that has something to say about single nodes.
    pub methods: Vec<MethodExplanation>,
    /// What the first method that wants it would do, or what stands against the last.
    pub verdict: Result<Command, Blocked>,
}

/// One check: what holds if it passes, and what holds instead if it does not.
#[derive(Clone, Debug)]
pub struct Check {
    pub fact: &'static str,
    pub outcome: Result<(), Blocked>,
    /// Repair does not ask for it.
    pub but_for_repair: bool,
}

/// What the repair policies say of a node.
#[derive(Clone, Debug)]
pub struct RepairExplanation {
    /// Each with the time from which on something is done.
    pub matches: Vec<(RepairMatch, Timestamp)>,
    /// What would be done now.
    pub remedy: Option<Remedy>,
}

#[derive(Clone, Debug)]
pub struct MethodExplanation {
    pub method: Method,
    pub checks: Vec<Check>,
    /// What would happen without the node, whether or not the checks let it go. `None` where no pod has to move.
    pub simulation: Option<Simulated>,
    /// What the price of a replacement has to be. Of consolidation only.
    pub prices: Option<Prices>,
    /// What the method would do with the node if it were alone in the cluster's queue, or the first thing against it.
    pub verdict: Result<Command, Blocked>,
}

/// The world without the node.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Pods of the node and where they would go.
    pub moves: Vec<(String, Destination)>,
    pub new_nodes: Vec<PlannedClaim>,
}

#[derive(Clone, Debug)]
pub enum Destination {
    Node(String),
    /// The place in the new nodes.
    New(usize),
    Nowhere(Refusal),
}

/// What the controls ask of a move, in their own numbers.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    pub node: Price,
    pub disruption_cost: Cost,
    pub controls: ChurnControls,
    /// What a replacement may cost. None is worth it where the highest price within it is below zero.
    pub bound: Bound,
}

#[derive(Clone, Debug)]
pub struct PoolExplanation {
    pub pool: String,
    pub policy: ConsolidationPolicy,
    pub consolidate_after: String,
    pub replicas: Option<u64>,
    pub controls: ChurnControls,
    pub allowances: Vec<(DisruptionReason, Allowance)>,
    pub budgets: Vec<BudgetExplanation>,
    /// Its drifted nodes are not replaced for a while.
    pub drift_rests: Option<PoolRest>,
    /// By name.
    pub nodes: Vec<NodeVerdict>,
}

#[derive(Clone, Debug)]
pub struct BudgetExplanation {
    pub budget: Budget,
    pub is_active: Result<bool, BudgetError>,
}

/// One node in a line.
#[derive(Clone, Debug)]
pub struct NodeVerdict {
    pub node: String,
    /// `None`: it is not known what it is.
    pub price: Option<Price>,
    pub pods: usize,
    /// What the first method that wants it would do, or what stands against the last.
    pub verdict: Result<Command, Blocked>,
}

impl Check {
    fn of(fact: &'static str, outcome: Result<(), Blocked>) -> Self {
        Self { fact, outcome, but_for_repair: false }
    }
}

impl<'e> Explainer<'e> {
    /// `snapshot` is as [`seated`](crate::seated) returns it.
    pub fn new(snapshot: &'e Snapshot, settings: &'e Settings) -> Self {
        let of_reason = |reason| (reason, budgets::allowances(snapshot, reason));
        Self {
            snapshot,
            settings,
            repair: OnceLock::new(),
            consolidation: Consolidation::new(snapshot, settings, &graceful(snapshot), Vec::new()),
            drift: Ways::new(snapshot, settings),
            rests: setback::rests(snapshot, DisruptionReason::Drifted),
            allowances: Method::reasons(snapshot).into_iter().map(of_reason).collect(),
        }
    }

    /// `None`: there is no such node. A claim whose node has yet to appear goes by its own name.
    pub fn node(&self, name: &str) -> Option<NodeExplanation> {
        let index = self.index_of(name)?;
        let node = &self.snapshot.nodes[index];
        let checks = NODE_CHECKS.iter().map(|asked| Check {
            fact: asked.fact,
            outcome: (asked.check)(self.snapshot, node),
            but_for_repair: asked.but_for_repair && self.snapshot.repair.is_some(),
        });
        let candidate = self.described(index);
        let methods = candidate.iter().flat_map(|candidate| {
            self.methods(candidate).map(|(method, alone)| self.method(candidate, method, alone))
        });
        Some(NodeExplanation {
            node: Arc::clone(node),
            utilization: controls::utilization_of(node),
            quiet_since: node.disruption.quiet_since(),
            repair: self.unhealthy(node),
            checks: checks.collect(),
            methods: methods.collect(),
            verdict: self.line(index).verdict,
            candidate,
        })
    }

    /// The node in a line, by its own name or that of its claim.
    pub fn node_line(&self, name: &str) -> Option<NodeVerdict> {
        Some(self.line(self.index_of(name)?))
    }

    /// A world without a node that is broken.
    pub(crate) fn repair(&self) -> &Simulation<'e> {
        self.repair.get_or_init(|| Simulation::of_repair(self.snapshot, self.settings))
    }

    fn unhealthy(&self, node: &Node) -> Option<RepairExplanation> {
        let (matches, not_before) = (&node.disruption.repair, repair::not_before(node));
        let matches: Vec<_> =
            matches.iter().map(|one| (one.clone(), one.eligible_at(not_before))).collect();
        (!matches.is_empty()).then(|| RepairExplanation {
            matches,
            remedy: repair::due(node, self.snapshot.now).ok(),
        })
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        let nodes = &mut self.snapshot.nodes.iter();
        nodes.position(|node| node.name == name || node.claim.as_deref() == Some(name))
    }

    /// `None`: there is no such pool.
    pub fn pool(&self, name: &str) -> Option<PoolExplanation> {
        let pool = self.snapshot.pools.get(name)?;
        let of_pool = |index: &usize| self.snapshot.nodes[*index].pool.as_deref() == Some(name);
        let indices = (0..self.snapshot.nodes.len()).filter(of_pool);
        let mut nodes: Vec<_> = indices.map(|index| self.line(index)).collect();
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        let of_reason = |(reason, pools): (&DisruptionReason, &BTreeMap<String, Allowance>)| {
            Some((*reason, *pools.get(name)?))
        };
        let rules = &pool.disruption;
        Some(PoolExplanation {
            pool: name.to_owned(),
            policy: rules.policy,
            consolidate_after: rules.consolidate_after.as_str().to_owned(),
            replicas: pool.static_pool.map(|it| it.replicas),
            controls: rules.controls,
            allowances: self.allowances.iter().filter_map(of_reason).collect(),
            budgets: rules
                .budgets
                .iter()
                .map(|budget| BudgetExplanation {
                    budget: budget.clone(),
                    is_active: budgets::is_active(budget, self.snapshot.now),
                })
                .collect(),
            drift_rests: self.rests.get(name).cloned(),
            nodes,
        })
    }

    fn described(&self, index: usize) -> Option<Candidate> {
        let pool = pool_of(self.snapshot, &self.snapshot.nodes[index]).ok()?;
        Some(describe(self.snapshot, index, pool))
    }

    fn line(&self, index: usize) -> NodeVerdict {
        let node = &self.snapshot.nodes[index];
        let candidate = match pool_of(self.snapshot, node) {
            Ok(pool) => describe(self.snapshot, index, pool),
            Err(unknown) => return self.unknown(node, unknown),
        };
        let mut verdict = Err(Blocked::StaticPool);
        for (method, alone) in self.methods(&candidate) {
            verdict = match (self.verdict(&candidate, method, alone), verdict) {
                (Ok(command), _) => Ok(command),
                // What stands against removing an empty node was said before.
                (Err(Blocked::Empty), before) => before,
                (why, _) => why,
            };
            if verdict.is_ok() {
                break;
            }
        }
        NodeVerdict {
            node: candidate.node.name.clone(),
            price: Some(candidate.price).filter(|price| *price > Price::ZERO),
            pods: candidate.pods.len(),
            verdict,
        }
    }

    /// A node of which too little is known for it to be a candidate.
    fn unknown(&self, node: &Node, unknown: Blocked) -> NodeVerdict {
        let first = NODE_CHECKS.iter().find_map(|asked| (asked.check)(self.snapshot, node).err());
        NodeVerdict {
            node: node.name.clone(),
            price: None,
            pods: node.pods.iter().filter(|pod| pod.disruption.reschedulable).count(),
            verdict: Err(first.unwrap_or(unknown)),
        }
    }

    /// Those that decide about a node by itself, in the order in which they are asked.
    fn methods(
        &self,
        candidate: &Candidate,
    ) -> impl Iterator<Item = (Method, &'static Alone)> + use<'e> {
        let is_static = self.snapshot.pools[&candidate.pool].is_static();
        let (snapshot, settings) = (self.snapshot, self.settings);
        let asked = !is_static || settings.static_capacity;
        let about = move |method: &Method| {
            asked && method.is_on(snapshot, settings) && method.row().pools.have(is_static)
        };
        let alone = |method: Method| Some((method, method.row().alone.as_ref()?));
        Method::ALL.into_iter().filter(about).filter_map(alone)
    }

    fn method(&self, candidate: &Candidate, method: Method, alone: &Alone) -> MethodExplanation {
        let mut answers = Vec::new();
        // Repair has an answer of its own to pods that block.
        if method != Method::Repair {
            let outcome = candidates::check_pods(self.snapshot, &candidate.node, method);
            answers.push(Check::of("its pods may be evicted", outcome));
        }
        answers.extend(
            method
                .row()
                .checks
                .iter()
                .map(|(fact, check)| Check::of(fact, check(self.snapshot, candidate))),
        );
        answers.push(Check::of(
            "the budgets of its NodePool leave room",
            afford(&self.allowances[&method.reason()], candidate, method),
        ));
        let simulation = (alone.simulation)(self, candidate);
        let plan = simulation.map(|simulation| simulation.plan(&[candidate], &Stop::default()));
        MethodExplanation {
            method,
            checks: answers,
            simulation: simulation.zip(plan).map(|(it, plan)| simulated(candidate, it, plan)),
            prices: (alone.weighs_prices && !candidate.is_empty()).then(|| Prices {
                node: candidate.price,
                disruption_cost: candidate.disruption_cost,
                controls: self.snapshot.pools[&candidate.pool].disruption.controls,
                bound: self.consolidation.bound(candidate),
            }),
            verdict: self.verdict(candidate, method, alone),
        }
    }

    fn verdict(
        &self,
        candidate: &Candidate,
        method: Method,
        alone: &Alone,
    ) -> Result<Command, Blocked> {
        candidates::candidate(self.snapshot, candidate.index, method)?;
        candidates::check(self.snapshot, candidate, method)?;
        afford(&self.allowances[&method.reason()], candidate, method)?;
        (alone.verdict)(self, candidate)
    }
}

fn simulated(candidate: &Candidate, simulation: &Simulation<'_>, plan: Plan) -> Simulated {
    let mut destinations: BTreeMap<String, Destination> = BTreeMap::new();
    for placement in &plan.placements {
        for pod in &placement.pods {
            destinations.insert(pod.key(), Destination::Node(placement.node.name.clone()));
        }
    }
    for (at, claim) in plan.claims.iter().enumerate() {
        for pod in &claim.pods {
            destinations.insert(pod.key(), Destination::New(at));
        }
    }
    // A pod that would go to a node that is not initialised is among the failures as well, and that is what counts.
    for failure in plan.failures {
        destinations.insert(failure.pod.key(), Destination::Nowhere(failure.refusal));
    }
    let own = simulation.moving(candidate).iter().map(|place| candidate.node.pods[*place].key());
    Simulated {
        moves: own.filter_map(|pod| destinations.remove_entry(&pod)).collect(),
        new_nodes: plan.claims,
    }
}
