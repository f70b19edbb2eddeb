//! One node as a value: the verdict, the facts, every check, the simulation, the prices.

use std::time::Duration;

use jiff::Timestamp;
use kerf_disruption::{
    Command,
    controls::Bound,
    explain::{
        Check, Destination, MethodExplanation, NodeExplanation, Prices, RepairExplanation,
        Simulated,
    },
};
use kerf_model::{KnownLabels, Price, repair::RepairMatch};
use kerf_provider::CloudDrift;
use serde::Serialize;

use super::verdict::{Refusal, Verdict};
use crate::{
    output::Answer,
    plan::{Claim, CommandReport, Moment},
};

pub(super) mod text;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) verdict: Verdict,
    pub(crate) node: String,
    node_claim: Option<String>,
    #[serde(flatten)]
    moment: Moment,
    /// Why nothing is known about the machines of its NodePool, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_types: Option<String>,
    /// Why it has drifted from its NodePool or NodeClass as it is here, if no operator has said so yet.
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    new_drift: Option<NewDrift>,
    /// Missing where its NodePool is not known.
    facts: Option<Facts>,
    utilization: String,
    quiet_since: Option<String>,
    /// What the repair policies say of its conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<RepairReport>,
    checks: Vec<CheckReport>,
    methods: Vec<MethodReport>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewDrift {
    #[serde(skip)]
    from: &'static str,
    #[serde(rename = "newDrift")]
    reason: &'static str,
    /// What differs, where the cloud says it.
    #[serde(rename = "newDriftMessage", skip_serializing_if = "Option::is_none")]
    because: Option<String>,
}

impl NewDrift {
    pub(crate) fn of_pool(reason: &'static str) -> Self {
        Self { from: "NodePool", reason, because: None }
    }

    pub(crate) fn of_class(drift: &CloudDrift) -> Self {
        Self { from: "NodeClass", reason: drift.reason, because: Some(drift.because.clone()) }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Facts {
    pool: String,
    instance_type: Option<String>,
    zone: Option<String>,
    capacity_type: Option<String>,
    /// Missing where it is not known.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    price_per_hour: Option<Price>,
    pods_to_move: usize,
    rescheduling_cost: f64,
    disruption_cost: f64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct CheckReport {
    /// What holds if the check passes.
    fact: &'static str,
    holds: bool,
    /// What holds instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<Refusal>,
    /// Repair does not ask for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    but_for_repair: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RepairReport {
    matches: Vec<MatchReport>,
    /// What would be done now; missing while every condition is tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<RemedyReport>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MatchReport {
    condition: String,
    status: String,
    reason: String,
    since: String,
    /// The policy in words.
    policy: String,
    is_fallback: bool,
    priority: u8,
    /// From when on something is done.
    due: String,
    /// Whether that time has come.
    is_due: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    drain_seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RemedyReport {
    action: &'static str,
    condition: String,
    /// Why the node is replaced where the policy asks for a reboot.
    #[serde(skip_serializing_if = "Option::is_none")]
    instead: Option<String>,
    /// How long the drain may take at most; missing where the NodeClaim alone says.
    #[serde(skip_serializing_if = "Option::is_none")]
    drain_seconds: Option<u64>,
}

impl RepairReport {
    fn new(found: &RepairExplanation, now: Timestamp) -> Self {
        let seconds = |drain: Option<Duration>| drain.map(|drain| drain.as_secs());
        let matched = |(one, due): &(RepairMatch, Timestamp)| MatchReport {
            condition: one.condition.clone(),
            status: one.status.clone(),
            reason: one.reason.clone(),
            since: one.since.to_string(),
            policy: one.policy.to_string(),
            is_fallback: one.is_fallback,
            priority: one.policy.priority,
            due: due.to_string(),
            is_due: *due <= now,
            drain_seconds: seconds(one.policy.termination_grace_period),
        };
        Self {
            matches: found.matches.iter().map(matched).collect(),
            remedy: found.remedy.as_ref().map(|remedy| RemedyReport {
                action: remedy.action.as_str(),
                condition: remedy.condition.clone(),
                instead: remedy.instead.map(|why| why.to_string()),
                drain_seconds: seconds(remedy.drain),
            }),
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct MethodReport {
    method: String,
    #[serde(skip)]
    title: &'static str,
    checks: Vec<CheckReport>,
    simulation: Option<SimulationReport>,
    prices: Option<PricesReport>,
    /// One of these two.
    command: Option<CommandReport>,
    refusal: Option<Refusal>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct SimulationReport {
    moves: Vec<Move>,
    new_nodes: Vec<Claim>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Move {
    pod: String,
    /// A node that is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// The place in `newNodes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_node: Option<usize>,
    /// Why it goes nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<Refusal>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct PricesReport {
    #[cfg_attr(test, schemars(with = "String"))]
    node_price_per_hour: Price,
    disruption_cost: f64,
    price_improvement_factor: String,
    savings_threshold: String,
    /// The highest price of a replacement that would be worth it; missing if none is.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    replacement_at_most: Option<Price>,
    #[serde(skip)]
    bound: Bound,
}

impl Answer for Report {
    const KIND: &'static str = "NodeExplanation";
}

impl Report {
    pub(crate) fn new(
        found: &NodeExplanation,
        moment: Moment,
        unknown_types: Option<String>,
        new_drift: Option<NewDrift>,
        labels: &KnownLabels,
    ) -> Self {
        let candidate = found.candidate.as_ref();
        let now = moment.judged_at;
        Self {
            verdict: Verdict::of_node(&found.node.name, found.verdict.as_ref()),
            node: found.node.name.clone(),
            node_claim: found.node.claim.clone(),
            moment,
            unknown_types,
            new_drift,
            facts: candidate.map(|candidate| Facts {
                pool: candidate.pool.clone(),
                instance_type: candidate.instance_type.as_ref().map(|it| it.name().to_owned()),
                zone: candidate.zone.clone(),
                capacity_type: candidate.capacity_type.clone(),
                price_per_hour: Some(candidate.price).filter(|price| *price > Price::ZERO),
                pods_to_move: candidate.pods.len(),
                rescheduling_cost: candidate.rescheduling_cost.as_f64(),
                disruption_cost: candidate.disruption_cost.as_f64(),
            }),
            utilization: found.utilization.to_string(),
            quiet_since: found.quiet_since.map(|since| since.to_string()),
            repair: found.repair.as_ref().map(|it| RepairReport::new(it, now)),
            checks: found.checks.iter().map(CheckReport::new).collect(),
            methods: found.methods.iter().map(|one| MethodReport::new(one, labels)).collect(),
        }
    }
}

impl CheckReport {
    fn new(check: &Check) -> Self {
        let refusal = check.outcome.as_ref().err().map(Refusal::new);
        let but_for_repair = check.but_for_repair;
        Self { fact: check.fact, holds: refusal.is_none(), refusal, but_for_repair }
    }
}

impl MethodReport {
    fn new(method: &MethodExplanation, labels: &KnownLabels) -> Self {
        let command = |command: &Command| CommandReport::new(command, labels);
        Self {
            method: format!("{:?}", method.method),
            title: method.method.title(),
            checks: method.checks.iter().map(CheckReport::new).collect(),
            simulation: method.simulation.as_ref().map(|it| SimulationReport::new(it, labels)),
            prices: method.prices.as_ref().map(PricesReport::new),
            command: method.verdict.as_ref().ok().map(command),
            refusal: method.verdict.as_ref().err().map(Refusal::new),
        }
    }
}

impl SimulationReport {
    fn new(simulated: &Simulated, labels: &KnownLabels) -> Self {
        let moves = simulated.moves.iter().map(|(pod, destination)| {
            let mut one = Move { pod: pod.clone(), node: None, new_node: None, refusal: None };
            match destination {
                Destination::Node(node) => one.node = Some(node.clone()),
                Destination::New(at) => one.new_node = Some(*at),
                Destination::Nowhere(why) => {
                    one.refusal = Some(Refusal { reason: why.name(), message: why.to_string() });
                }
            }
            one
        });
        let new_nodes = simulated.new_nodes.iter().map(|claim| Claim::new(claim, labels));
        Self { moves: moves.collect(), new_nodes: new_nodes.collect() }
    }
}

impl PricesReport {
    fn new(prices: &Prices) -> Self {
        let at_most = prices.bound.highest();
        Self {
            node_price_per_hour: prices.node,
            disruption_cost: prices.disruption_cost.as_f64(),
            price_improvement_factor: prices.controls.price_improvement_factor.to_string(),
            savings_threshold: prices.controls.savings_threshold.to_string(),
            replacement_at_most: (at_most >= Price::ZERO).then_some(at_most),
            bound: prices.bound,
        }
    }
}
