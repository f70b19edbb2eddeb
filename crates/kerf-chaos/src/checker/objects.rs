//! What the checker remembers of objects, read from their JSON.

use serde_json::Value;
use std::collections::BTreeMap;

use super::history::{History, Millis};
use super::quantity::milli;

pub(super) const FINALIZER: &str = "karpenter.sh/termination";
const POOL: &str = "/metadata/labels/karpenter.sh~1nodepool";
const GIVEN_UP: &str = "/metadata/annotations/karpenter.sh~1nodeclaim-termination-timestamp";
const DO_NOT_DISRUPT: &str = "/metadata/annotations/karpenter.sh~1do-not-disrupt";

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

pub(super) fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").find(|condition| condition["type"] == kind)
}

pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Amounts by resource, in thousandths; what is no quantity is left out.
pub(super) fn amounts(object: &Value, pointer: &str) -> BTreeMap<String, i128> {
    let written = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let read = |(name, amount): (&String, &Value)| {
        let amount = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        Some((name.clone(), milli(&amount)?))
    };
    written.filter_map(read).collect()
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition or a field of the object")]
pub(super) struct Claim {
    pub(super) uid: String,
    pub(super) pool: String,
    pub(super) node: String,
    /// The last part of its provider id.
    pub(super) instance: String,
    pub(super) created: Millis,
    /// When it was first seen to be on its way out.
    pub(super) deleting: Option<Millis>,
    /// Why it is being disrupted.
    pub(super) marked: Option<(Millis, String)>,
    /// The last time at which it was marked or deleted.
    pub(super) last_going: Option<Millis>,
    pub(super) capacity: BTreeMap<String, i128>,
    /// When the cloud launched a type for it that it had not asked for.
    pub(super) surprised: Option<Millis>,
    pub(super) is_launched: bool,
    pub(super) is_initialized: bool,
    pub(super) is_rebooting: bool,
    pub(super) is_terminating: bool,
    pub(super) has_finalizer: bool,
    pub(super) had_finalizer: bool,
    pub(super) has_grace_period: bool,
    pub(super) expires: bool,
}

impl Claim {
    pub(super) fn read(object: &Value, now: Millis, before: Option<&Self>) -> Self {
        let has_finalizer = list(object, "/metadata/finalizers").any(|it| it == FINALIZER);
        let deleting =
            is_deleting(object).then(|| before.and_then(|it| it.deleting).unwrap_or(now));
        let marked = condition(object, "DisruptionReason").filter(|it| it["status"] == "True");
        let marked = marked.map(|mark| {
            let since = before.and_then(|it| it.marked.as_ref()).map_or(now, |(at, _)| *at);
            (since, text(mark, "/reason").to_owned())
        });
        let is_going = deleting.is_some() || marked.is_some();
        let was_going = before.is_some_and(|it| it.deleting.is_some() || it.marked.is_some());
        let expiry = text(object, "/spec/expireAfter");
        Self {
            uid: text(object, "/metadata/uid").to_owned(),
            pool: text(object, POOL).to_owned(),
            node: text(object, "/status/nodeName").to_owned(),
            instance: text(object, "/status/providerID")
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned(),
            created: before.map_or(now, |it| it.created),
            last_going: if is_going || was_going {
                Some(now)
            } else {
                before.and_then(|it| it.last_going)
            },
            deleting,
            marked,
            capacity: amounts(object, "/status/capacity"),
            surprised: is_surprise(object)
                .then(|| before.and_then(|it| it.surprised).unwrap_or(now)),
            is_launched: is_true(object, "Launched"),
            // One that is rebooted is a node of its pool all the while.
            is_initialized: is_true(object, "Initialized")
                || condition(object, "Rebooting").is_some(),
            is_rebooting: is_true(object, "Rebooting"),
            is_terminating: is_true(object, "InstanceTerminating"),
            has_finalizer,
            had_finalizer: has_finalizer || before.is_some_and(|it| it.had_finalizer),
            // Repair sets the time by which a node that is unwell has to be gone.
            has_grace_period: !text(object, "/spec/terminationGracePeriod").is_empty()
                || !text(object, GIVEN_UP).is_empty(),
            expires: !matches!(expiry, "" | "Never" | "720h" | "720h0m0s"),
        }
    }

    pub(super) fn is_going(&self) -> bool {
        self.deleting.is_some() || self.marked.is_some()
    }

    /// Whether a limit counts it: it stays, and has stayed since then.
    pub(super) fn stays_since(&self, then: Millis) -> bool {
        !self.is_going() && self.last_going.is_none_or(|last| last < then)
    }
}

/// Whether it has got an instance type that is none of those that it asks for.
fn is_surprise(claim: &Value) -> bool {
    const TYPE: &str = "node.kubernetes.io/instance-type";
    let got = claim["metadata"]["labels"][TYPE].as_str();
    let mut asked = list(claim, "/spec/requirements").filter(|it| it["key"] == TYPE);
    got.is_some_and(|got| {
        asked.any(|asked| {
            asked["operator"] == "In" && list(asked, "/values").all(|value| value != got)
        })
    })
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) claim_uid: String,
    pub(super) is_disrupted: bool,
    pub(super) is_deleting: bool,
    /// Since when it has not been ready; `None`: it is.
    pub(super) unready: Option<Millis>,
}

impl Node {
    pub(super) fn read(object: &Value, now: Millis, before: Option<&Self>) -> Self {
        let keys = ["karpenter.sh/disrupted", "karpenter.sh/rebooting"];
        let is_disrupted = list(object, "/spec/taints").any(|taint| {
            keys.iter().any(|key| taint["key"] == *key) && taint["effect"] == "NoSchedule"
        });
        let unready = !is_true(object, "Ready");
        Self {
            claim_uid: text(object, "/metadata/annotations/karpenter.kwok.sh~1nodeclaim-uid")
                .to_owned(),
            is_disrupted,
            is_deleting: is_deleting(object),
            unready: unready.then(|| before.and_then(|it| it.unready).unwrap_or(now)),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) node: String,
    pub(super) phase: String,
    pub(super) is_deleting: bool,
    /// The plan says that there is always a place for it.
    pub(super) can_run: bool,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) created: Millis,
    /// Since when its annotation has kept the node that it runs on.
    pub(super) protects: Option<Millis>,
    pub(super) never_ends: bool,
}

impl Pod {
    pub(super) fn read(object: &Value, now: Millis, before: Option<&Self>) -> Self {
        let (node, phase) = (text(object, "/spec/nodeName"), text(object, "/status/phase"));
        let is_over = matches!(phase, "Succeeded" | "Failed") || is_deleting(object);
        let protects = !node.is_empty() && !is_over && text(object, DO_NOT_DISRUPT) == "true";
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        Self {
            uid: text(object, "/metadata/uid").to_owned(),
            node: node.to_owned(),
            phase: phase.to_owned(),
            is_deleting: is_deleting(object),
            can_run: text(object, "/metadata/labels/can-run") == "true",
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            created: before.map_or(now, |it| it.created),
            protects: protects.then(|| before.and_then(|it| it.protects).unwrap_or(now)),
            never_ends: !text(object, "/metadata/annotations/testbed.kerf.sh~1never-terminates")
                .is_empty(),
        }
    }
}

/// A budget without a schedule; others are not judged.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Budget {
    nodes: String,
    /// `None`: for all.
    reasons: Option<Vec<String>>,
}

impl Budget {
    fn read(budget: &Value) -> Option<Self> {
        let reasons = budget.get("reasons").and_then(Value::as_array);
        Some(Self {
            nodes: budget["nodes"].as_str()?.to_owned(),
            reasons: reasons
                .map(|all| all.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect()),
        })
        .filter(|_| budget.get("schedule").is_none_or(Value::is_null))
    }

    /// How many of so many nodes may go for this reason; `None`: it does not count for it.
    fn allows(&self, total: usize, reason: &str) -> Option<usize> {
        let counts =
            self.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(|it| it == reason));
        let nodes = match self.nodes.strip_suffix('%') {
            Some(percent) => (total * percent.parse::<usize>().ok()?).div_ceil(100),
            None => self.nodes.parse().ok()?,
        };
        counts.then_some(nodes)
    }
}

/// How many nodes of a pool may go for a reason.
pub(super) fn allowed(budgets: &[Budget], total: usize, reason: &str) -> usize {
    budgets.iter().filter_map(|it| it.allows(total, reason)).min().unwrap_or(usize::MAX)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub(super) limits: History<BTreeMap<String, i128>>,
    /// The budgets, and the nodes that a percentage is of.
    pub(super) budgets: History<(Vec<Budget>, usize)>,
}

pub(super) fn budgets(pool: &Value) -> Vec<Budget> {
    list(pool, "/spec/disruption/budgets").filter_map(Budget::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_strictest_budget_that_counts_for_the_reason_decides() {
        let pool = json!({"spec": {"disruption": {"budgets": [
            {"nodes": "50%"},
            {"nodes": "1", "reasons": ["Drifted"]},
            {"nodes": "0", "schedule": "@daily", "duration": "1h"},
        ]}}});
        let budgets = budgets(&pool);
        for (total, reason, nodes) in
            [(5, "Empty", 3), (5, "Drifted", 1), (0, "Empty", 0), (1, "Empty", 1)]
        {
            assert_eq!(allowed(&budgets, total, reason), nodes, "{total} {reason}");
        }
        assert_eq!(allowed(&[], 5, "Empty"), usize::MAX);
    }

    #[test]
    fn a_claim_that_was_going_when_another_came_does_not_count_beside_it() {
        let marked = json!({"status": {"conditions": [
            {"type": "DisruptionReason", "status": "True", "reason": "Empty"},
        ]}});
        let first = Claim::read(&json!({}), 0, None);
        let marked = Claim::read(&marked, 10, Some(&first));
        let unmarked = Claim::read(&json!({}), 20, Some(&marked));
        assert!(first.stays_since(0) && !marked.stays_since(0) && !unmarked.stays_since(15));
        assert!(unmarked.stays_since(21));
    }
}
