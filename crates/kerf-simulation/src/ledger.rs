//! What happened, measured: nodes and what they cost, pods and what they went through, decisions and their reasons.
//!
//! The ledger sees every write to the API server in order. Whatever lasts (money, node-hours, waiting) is summed up over
//! the time between two changes, in whole units, so that the same run gives the same figures to the last digit.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kerf_api::{DisruptionReason, conditions, labels};
use kerf_model::{
    Price, Quantity, Resources,
    resources::{CPU, MEMORY},
};
use kerf_testbed::Observation;
use serde_json::Value;

use crate::market::{Market, Place};

mod pods;

use pods::{PodChange, Pods};

/// What the ledger has to see.
pub(crate) const OBSERVED: &[(&str, &str)] =
    &[("", "pods"), ("", "events"), ("karpenter.sh", "nodeclaims")];

/// A node that is gone before this has cost more than it brought.
const SHORT_LIFE_MS: i64 = 30 * 60 * 1000;
/// A node that consolidation takes away again before this is part of a cascade.
const CASCADE_MS: i64 = 10 * 60 * 1000;

/// A change of an object, by whoever saw it: the testbed, or a watch of a real cluster.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The resource's name in the plural.
    pub resource: &'a str,
    /// `namespace/name`, `name`, or anything else that stands for one object.
    pub key: &'a str,
    /// The object now, or the last that was known of it.
    pub object: &'a Value,
    pub is_gone: bool,
}

impl<'a> From<&'a Observation> for Change<'a> {
    fn from(seen: &'a Observation) -> Self {
        Self {
            resource: seen.resource(),
            key: seen.key(),
            object: seen.object(),
            is_gone: seen.is_gone(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Ledger {
    policy: String,
    opened: Timestamp,
    counted_until: Timestamp,
    /// By claim.
    nodes: BTreeMap<String, Node>,
    /// By node, its claim.
    claims: BTreeMap<String, String>,
    pods: Pods,
    totals: Totals,
    decisions: Vec<Decision>,
}

/// A machine, from its launch until it is gone.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub pool: String,
    pub price: Price,
    pub launched: Timestamp,
    pub state: State,
    pub allocatable: Resources,
    /// What the pods on it ask for together.
    pub requested: Resources,
    pub pods: usize,
    /// Why it is to go.
    pub reason: Option<String>,
    /// Whether it is counted as part of a cascade.
    cascades: bool,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Starting,
    Ready,
    Leaving,
}

/// Sums over the whole time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub launched: u64,
    pub terminated: u64,
    pub short_lived: u64,
    /// Nodes that consolidation decided to take away within ten minutes after their launch.
    pub reconsolidated: u64,
    pub evictions: u64,
    /// Pods that were restarted again within an hour after a restart.
    pub restarted_often: u64,
    pub pods_started: u64,
    pub peak_nodes: usize,
    pub peak_price: Price,
    /// Nodes that went, by the reason.
    pub removals: BTreeMap<String, u64>,
    /// Price times milliseconds.
    cost: i128,
    node_ms: i128,
    pending_ms: i128,
    /// Thousandths of a CPU times milliseconds.
    cpu_requested: i128,
    cpu_allocatable: i128,
}

/// Something that was decided, or changed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub at: Timestamp,
    pub kind: DecisionKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    Launch,
    Remove,
    Refuse,
    /// By the scenario, not by the operator.
    Change,
}

impl Ledger {
    pub(crate) fn open(now: Timestamp, policy: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            opened: now,
            counted_until: now,
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            pods: Pods::default(),
            totals: Totals::default(),
            decisions: Vec::new(),
        }
    }

    pub fn policy(&self) -> &str {
        &self.policy
    }

    pub fn opened(&self) -> Timestamp {
        self.opened
    }

    pub fn now(&self) -> Timestamp {
        self.counted_until
    }

    /// The nodes that there are, by the names of their claims.
    pub fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    pub fn running_pods(&self) -> usize {
        self.pods.running()
    }

    /// How long pods waited from their creation until they ran: milliseconds, and how many pods it was.
    pub fn waits(&self) -> &BTreeMap<i64, u64> {
        self.pods.waits()
    }

    pub fn pending_pods(&self) -> usize {
        self.pods.pending()
    }

    pub fn price_per_hour(&self) -> Price {
        self.nodes.values().map(|node| node.price).sum()
    }

    /// Takes note of a cluster that stood before the run began: none of it was launched or started by the run.
    pub(crate) fn take_over<'a>(
        &mut self,
        cluster: impl IntoIterator<Item = Change<'a>>,
        market: &Market,
    ) {
        self.take_in(self.opened, cluster, market);
        let Totals { peak_nodes, peak_price, .. } = self.totals;
        self.totals = Totals { peak_nodes, peak_price, ..Totals::default() };
        self.decisions.clear();
    }

    /// Takes note of changes that were written at this time.
    pub(crate) fn take_in<'a>(
        &mut self,
        now: Timestamp,
        changes: impl IntoIterator<Item = Change<'a>>,
        market: &Market,
    ) {
        self.pass(now);
        for change in changes {
            match change.resource {
                "nodeclaims" if change.is_gone => self.claim_is_gone(change.key),
                "nodeclaims" => self.see_claim(change.key, change.object, market),
                "pods" => self.see_pod(change),
                _ => self.see_event(change),
            }
        }
        let (nodes, price) = (self.nodes.len(), self.price_per_hour());
        self.totals.peak_nodes = self.totals.peak_nodes.max(nodes);
        self.totals.peak_price = self.totals.peak_price.max(price);
    }

    /// Counts what has lasted until now.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        let lasted = i128::from(now.as_millisecond() - self.counted_until.as_millisecond());
        if lasted <= 0 {
            return;
        }
        self.counted_until = now;
        let totals = &mut self.totals;
        let millis = |amount: Quantity| i128::from(amount.millis());
        for node in self.nodes.values() {
            totals.cost += i128::from(node.price.ten_billionths()) * lasted;
            totals.node_ms += lasted;
            totals.cpu_requested += millis(node.requested.amount(CPU)) * lasted;
            totals.cpu_allocatable += millis(node.allocatable.amount(CPU)) * lasted;
        }
        totals.pending_ms += i128::try_from(self.pods.pending()).unwrap_or_default() * lasted;
    }

    pub(crate) fn reprice(&mut self, now: Timestamp, market: &Market) {
        self.pass(now);
        for node in self.nodes.values_mut() {
            node.price = market.price_in(&node.pool, &node.place);
        }
        self.totals.peak_price = self.totals.peak_price.max(self.price_per_hour());
    }

    pub(crate) fn tell_of_change(&mut self, at: Timestamp, text: String) {
        self.tell(at, DecisionKind::Change, text);
    }

    fn tell(&mut self, at: Timestamp, kind: DecisionKind, text: String) {
        self.decisions.push(Decision { at, kind, text });
    }

    fn see_claim(&mut self, key: &str, claim: &Value, market: &Market) {
        if !self.nodes.contains_key(key) {
            if text(claim, "/status/providerID").is_empty() {
                return;
            }
            self.launch(key, claim, market);
        }
        let Some(node) = self.nodes.get_mut(key) else { return };
        let name = text(claim, "/status/nodeName");
        if !name.is_empty() && node.name != name {
            name.clone_into(&mut node.name);
            self.claims.insert(name.to_owned(), key.to_owned());
            // Daemons are bound before the claim knows its node.
            let (requested, pods) = self.pods.on(name);
            (node.requested, node.pods) = (requested, pods);
        }
        if node.state == State::Starting && condition(claim, conditions::INITIALIZED).is_some() {
            node.state = State::Ready;
        }
        let leaves = !text(claim, "/metadata/deletionTimestamp").is_empty();
        if leaves {
            node.state = State::Leaving;
        }
        let known = node.reason.as_deref();
        let deleted = leaves.then(|| known.unwrap_or("deleted"));
        let reason = condition(claim, conditions::DISRUPTION_REASON).or(deleted);
        if reason != known {
            let reason = reason.map(str::to_owned);
            self.fate_changes(key, reason);
        }
    }

    /// A node is to go for a reason, or is not to go after all.
    fn fate_changes(&mut self, key: &str, reason: Option<String>) {
        let Some(node) = self.nodes.get_mut(key) else { return };
        let age = self.counted_until.as_millisecond() - node.launched.as_millisecond();
        let underutilized = reason.as_deref() == Some(DisruptionReason::Underutilized.as_str());
        let before = std::mem::replace(&mut node.cascades, underutilized && age <= CASCADE_MS);
        let counted = &mut self.totals.reconsolidated;
        *counted = counted.saturating_sub(before.into()) + u64::from(node.cascades);
        let (kind, told) = match &reason {
            Some(reason) => {
                let (price, pods) = (dollars(node.price), node.pods);
                let pods = format!("{pods} pod{}", if pods == 1 { "" } else { "s" });
                let what = format!("{}, {price} per hour, {pods}", node.place.instance_type);
                (DecisionKind::Remove, format!("{key} ({what}) goes: {reason}"))
            }
            None => (DecisionKind::Refuse, format!("{key} stays after all")),
        };
        node.reason = reason;
        self.tell(self.counted_until, kind, told);
    }

    fn launch(&mut self, key: &str, claim: &Value, market: &Market) {
        let place = Place::of(claim);
        let created = text(claim, "/metadata/creationTimestamp").parse().ok();
        let pool = claim["metadata"]["labels"][labels::NODE_POOL].as_str().unwrap_or_default();
        let mut allocatable = Resources::new();
        for resource in [CPU, MEMORY] {
            let amount = claim.pointer("/status/allocatable").and_then(|all| all.get(resource));
            if let Some(Ok(amount)) = amount.and_then(Value::as_str).map(str::parse) {
                allocatable.set(resource, amount);
            }
        }
        let price = market.price_in(pool, &place);
        let told = format!(
            "{key}: {} {} in {} for {} per hour",
            place.instance_type,
            place.capacity_type,
            place.zone,
            dollars(price)
        );
        self.tell(self.counted_until, DecisionKind::Launch, told);
        self.totals.launched += 1;
        let node = Node {
            name: String::new(),
            pool: pool.to_owned(),
            price,
            launched: created.unwrap_or(self.counted_until),
            state: State::Starting,
            allocatable,
            requested: Resources::new(),
            pods: 0,
            reason: None,
            cascades: false,
            place,
        };
        self.nodes.insert(key.to_owned(), node);
    }

    fn claim_is_gone(&mut self, key: &str) {
        // Claims without an instance cost nothing and were never there.
        let Some(node) = self.nodes.remove(key) else { return };
        self.claims.remove(&node.name);
        let lived = self.counted_until.as_millisecond() - node.launched.as_millisecond();
        self.totals.terminated += 1;
        self.totals.short_lived += u64::from(lived < SHORT_LIFE_MS);
        let reason = node.reason.unwrap_or_else(|| "deleted".to_owned());
        *self.totals.removals.entry(reason).or_default() += 1;
    }

    fn see_pod(&mut self, change: Change<'_>) {
        let PodChange { nodes, started, evicted, restarted_often } =
            self.pods.see(change.key, change.object, change.is_gone, self.counted_until);
        self.totals.pods_started += u64::from(started);
        self.totals.evictions += u64::from(evicted);
        self.totals.restarted_often += u64::from(restarted_often);
        for name in nodes {
            if let Some(node) = self.claims.get(&name).and_then(|key| self.nodes.get_mut(key)) {
                (node.requested, node.pods) = self.pods.on(&name);
            }
        }
    }

    fn see_event(&mut self, change: Change<'_>) {
        let event = change.object;
        if change.is_gone || text(event, "/source/component") != "karpenter" {
            return;
        }
        let (reason, about) = (text(event, "/reason"), text(event, "/involvedObject/name"));
        // What concerns a machine is said of its claim and of its node; once is enough.
        if REFUSALS.contains(&reason) && text(event, "/involvedObject/kind") != "Node" {
            let message = text(event, "/message");
            self.tell(self.counted_until, DecisionKind::Refuse, format!("{about}: {message}"));
        }
    }
}

/// Events of the operator that say why something was not done. `DisruptionBlocked` is not among them: most of what it says
/// (a node that has just started, a pod that is about to come) is over a minute later.
const REFUSALS: [&str; 2] = ["Unconsolidatable", "FailedScheduling"];

impl Node {
    pub fn instance_type(&self) -> &str {
        &self.place.instance_type
    }

    pub fn capacity_type(&self) -> &str {
        &self.place.capacity_type
    }

    pub fn zone(&self) -> &str {
        &self.place.zone
    }

    /// The share of a resource that pods ask for.
    pub fn fill(&self, resource: &str) -> f64 {
        let (requested, all) = (self.requested.amount(resource), self.allocatable.amount(resource));
        if all.as_f64() > 0.0 { requested.as_f64() / all.as_f64() } else { 0.0 }
    }
}

impl Totals {
    /// Dollars.
    pub fn cost(&self) -> f64 {
        (self.cost / 3_600_000) as f64 / 1e10
    }

    pub fn node_hours(&self) -> f64 {
        self.node_ms as f64 / 3_600_000.0
    }

    /// How long pods waited, all together.
    pub fn pending_seconds(&self) -> f64 {
        self.pending_ms as f64 / 1000.0
    }

    /// The share of the CPUs paid for that pods asked for, over the whole time.
    pub fn cpu_fill(&self) -> f64 {
        if self.cpu_allocatable == 0 {
            return 0.0;
        }
        self.cpu_requested as f64 / self.cpu_allocatable as f64
    }
}

/// A price in a text: four decimals tell two instance types apart, ten tell nothing more.
pub fn dollars(price: Price) -> String {
    format!("${:.4}", price.as_f64())
}

pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The reason of a condition that is true.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|one| one["type"] == kind && one["status"] == "True")?;
    found["reason"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use kerf_testbed::Random;
    use serde_json::json;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    /// What the ledger says after a claim, launched at 0, was seen like this at these minutes and was gone after that.
    fn ledger(seen: &[(i64, Option<&str>)]) -> Ledger {
        let yaml = "length: 1h\npools: [{name: p}]\nworkloads: []\n";
        let scenario = Scenario::from_yaml(yaml, "x.yaml").unwrap();
        let market = Market::open(&scenario, Random::seeded(1)).unwrap();
        let mut ledger = Ledger::open(at(0), "test");
        for (minute, reason) in seen {
            ledger.pass(at(*minute));
            let condition = reason.map(
                |reason| json!({"type": "DisruptionReason", "status": "True", "reason": reason}),
            );
            let conditions: Vec<_> = condition.into_iter().collect();
            let claim = json!({
                "metadata": {"creationTimestamp": at(0).to_string()},
                "status": {"providerID": "i", "conditions": conditions},
            });
            ledger.see_claim("c", &claim, &market);
        }
        ledger.claim_is_gone("c");
        ledger
    }

    #[test]
    fn a_node_goes_for_the_last_reason_that_was_given() {
        let (worth_less, empty) = (Some("Underutilized"), Some("Empty"));
        for (seen, reason, reconsolidated) in [
            (&[(0, None)][..], "deleted", 0),
            (&[(0, None), (5, worth_less), (6, worth_less)], "Underutilized", 1),
            (&[(0, None), (11, worth_less)], "Underutilized", 0),
            (&[(0, None), (5, worth_less), (6, None), (30, empty)], "Empty", 0),
            (&[(0, None), (5, worth_less), (6, None), (7, worth_less)], "Underutilized", 1),
        ] {
            let ledger = ledger(seen);
            let removals = BTreeMap::from([(reason.to_owned(), 1)]);
            assert_eq!(ledger.totals().removals, removals, "{seen:?}");
            assert_eq!(ledger.totals().reconsolidated, reconsolidated, "{seen:?}");
        }
        let ledger = ledger(&[(0, None), (5, worth_less), (6, None)]);
        assert_eq!(ledger.decisions().last().unwrap().text, "c stays after all");
    }
}
