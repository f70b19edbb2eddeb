//! One node: every check, the simulation, the prices, and what comes of it.

use std::fmt::Write;

use kerf_disruption::{
    Blocked, Command,
    controls::Bound,
    explain::{Check, Destination, MethodExplanation, NodeExplanation, Prices, Simulated},
};
use kerf_model::{KnownLabels, Price};
use kerf_provider::CloudDrift;
use serde::Serialize;

use crate::plan::{Claim, CommandReport, Moment, count};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    node: String,
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
    checks: Vec<Answer>,
    methods: Vec<MethodReport>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewDrift {
    #[serde(skip)]
    from: &'static str,
    #[serde(rename = "newDrift")]
    reason: &'static str,
    /// What differs, where the cloud says it.
    #[serde(rename = "newDriftMessage", skip_serializing_if = "Option::is_none")]
    because: Option<String>,
}

impl NewDrift {
    pub(super) fn of_pool(reason: &'static str) -> Self {
        Self { from: "NodePool", reason, because: None }
    }

    pub(super) fn of_class(drift: &CloudDrift) -> Self {
        Self { from: "NodeClass", reason: drift.reason, because: Some(drift.because.clone()) }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    pool: String,
    instance_type: Option<String>,
    zone: Option<String>,
    capacity_type: Option<String>,
    /// Missing where it is not known.
    price_per_hour: Option<Price>,
    pods_to_move: usize,
    rescheduling_cost: f64,
    disruption_cost: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    check: &'static str,
    passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<Refusal>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MethodReport {
    method: String,
    #[serde(skip)]
    title: &'static str,
    checks: Vec<Answer>,
    simulation: Option<SimulationReport>,
    prices: Option<PricesReport>,
    /// One of these two.
    command: Option<CommandReport>,
    refusal: Option<Refusal>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SimulationReport {
    moves: Vec<Move>,
    new_nodes: Vec<Claim>,
}

#[derive(Debug, Serialize)]
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
#[serde(rename_all = "camelCase")]
struct PricesReport {
    node_price_per_hour: Price,
    disruption_cost: f64,
    price_improvement_factor: String,
    savings_threshold: String,
    /// The highest price of a replacement that would be worth it; missing if none is.
    replacement_at_most: Option<Price>,
    #[serde(skip)]
    bound: Bound,
}

impl Report {
    pub(super) fn new(
        found: &NodeExplanation,
        moment: Moment,
        unknown_types: Option<String>,
        new_drift: Option<NewDrift>,
        labels: &KnownLabels,
    ) -> Self {
        let candidate = found.candidate.as_ref();
        Self {
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
            checks: found.checks.iter().map(Answer::new).collect(),
            methods: found.methods.iter().map(|one| MethodReport::new(one, labels)).collect(),
        }
    }
}

impl Answer {
    fn new(check: &Check) -> Self {
        let refusal = check.answer.as_ref().err().map(Refusal::new);
        Self { check: check.question, passed: refusal.is_none(), refusal }
    }
}

impl Refusal {
    pub(super) fn new(why: &Blocked) -> Self {
        Self { reason: why.name(), message: why.to_string() }
    }
}

impl MethodReport {
    fn new(method: &MethodExplanation, labels: &KnownLabels) -> Self {
        let command = |command: &Command| CommandReport::new(command, labels);
        Self {
            method: format!("{:?}", method.method),
            title: method.method.title(),
            checks: method.checks.iter().map(Answer::new).collect(),
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

pub(super) fn render(report: &Report) -> String {
    let mut text = format!("Node {}", report.node);
    if let Some(claim) = &report.node_claim {
        let _ = write!(text, " (NodeClaim {claim})");
    }
    text.push('\n');
    if let Some(facts) = &report.facts {
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
        let _ = writeln!(
            text,
            "  {} of NodePool {}, {} in {}, {}",
            or_unknown(&facts.instance_type),
            facts.pool,
            or_unknown(&facts.capacity_type),
            or_unknown(&facts.zone),
            facts.price_per_hour.map_or("price unknown".to_owned(), |price| price.to_string())
        );
        let _ = writeln!(
            text,
            "  {} would have to move, at a disruption cost of {:.2}",
            count(facts.pods_to_move, "pod"),
            facts.disruption_cost
        );
    }
    if let Some(unknown) = &report.unknown_types {
        let _ = writeln!(text, "  of its NodePool: {unknown}");
    }
    if let Some(NewDrift { from, reason, because }) = &report.new_drift {
        let because = because.as_ref().map(|because| format!(", {because}")).unwrap_or_default();
        let _ = writeln!(text, "  it has drifted from its {from} as it is here: {reason}{because}");
    }
    let _ = writeln!(text, "  utilization {}", report.utilization);
    if let Some(since) = &report.quiet_since {
        let _ = writeln!(text, "  no pod has come or gone since {since}");
    }
    if let Some(moment) = report.moment.shown() {
        let _ = writeln!(text, "  {moment}");
    }
    text.push_str("\nEvery method asks\n");
    answers(&report.checks, &mut text);
    for method in &report.methods {
        let _ = writeln!(text, "\n{} asks", method.title);
        answers(&method.checks, &mut text);
        if let Some(simulation) = &method.simulation {
            text.push_str("  without it\n");
            simulated(simulation, &mut text);
        }
        if let Some(prices) = &method.prices {
            let _ = writeln!(
                text,
                "  it costs {}; with a price improvement factor of {} and {} to save per unit of disruption,\n  {}",
                prices.node_price_per_hour,
                prices.price_improvement_factor,
                prices.savings_threshold,
                bound(prices)
            );
        }
        match (&method.command, &method.refusal) {
            (Some(command), _) => {
                let _ = writeln!(text, "  => {}", command.title());
            }
            (None, Some(refusal)) => {
                let _ = writeln!(text, "  => no ({}): {}", refusal.reason, refusal.message);
            }
            (None, None) => {}
        }
    }
    text
}

/// In as many digits as it has: a rounded bound may be the very price that it excludes.
fn bound(prices: &PricesReport) -> String {
    let in_full = |price: Price| format!("${}/h", price.exact());
    match (prices.replacement_at_most, prices.bound) {
        (None, _) => "no replacement is worth it".to_owned(),
        (Some(_), Bound::Below(price)) => {
            format!("a replacement has to cost less than {}", in_full(price))
        }
        (Some(_), Bound::AtMost(price)) => {
            format!("a replacement may cost at most {}", in_full(price))
        }
    }
}

fn answers(answers: &[Answer], text: &mut String) {
    for answer in answers {
        let _ = match &answer.refusal {
            None => writeln!(text, "  yes  {}", answer.check),
            Some(refusal) => writeln!(text, "  NO   {}: {}", answer.check, refusal.message),
        };
    }
}

fn simulated(simulation: &SimulationReport, text: &mut String) {
    for one in &simulation.moves {
        let _ = match (&one.node, one.new_node, &one.refusal) {
            (Some(node), ..) => writeln!(text, "    {} goes to {node}", one.pod),
            (_, Some(at), _) => writeln!(text, "    {} goes to new node {}", one.pod, at + 1),
            (_, _, Some(refusal)) => {
                writeln!(text, "    {} goes NOWHERE: {}", one.pod, refusal.message)
            }
            (None, None, None) => Ok(()),
        };
    }
    for (at, claim) in simulation.new_nodes.iter().enumerate() {
        let (number, types) = (at + 1, count(claim.instance_types.len(), "type"));
        let _ = write!(text, "    new node {number} of pool {}: one of {types}", claim.pool);
        let _ = match &claim.cheapest {
            Some(it) => writeln!(text, ", from {} ({})", it.price_per_hour, it.instance_type),
            None => writeln!(text),
        };
    }
}
