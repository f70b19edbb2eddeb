//! Metrics and events for changed conditions and deleted objects, as in operatorpkg's status controllers, for every kind at
//! once. The index knows what an object was before each change, so nothing has to be remembered here.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{CapacityBuffer, NodeClaim, NodePool, conditions::Conditioned, labels};
use kerf_cluster::{Change, Delta};
use kerf_runtime::{
    Clock, Metrics, Registrar,
    events::{Notice, Recorder, Severity},
};
use kube::{Resource, ResourceExt};
use prometheus_client::metrics::{counter::Counter, family::Family, histogram::Histogram};

/// Sees every change. It reports changes only while this operator leads, because other replicas see them too.
#[derive(Clone, Debug)]
pub(crate) struct Transitions {
    leading: Arc<AtomicBool>,
    clock: Clock,
    recorder: Recorder,
    class_labels: Arc<[String]>,
    claims: Measured,
    pools: Measured,
    nodes: Measured,
    buffers: Measured,
    /// The same for claims and pools together, under names that are older.
    any: Measured,
}

/// What is measured of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    seconds: Family<Labels, Histogram>,
    total: Family<Labels, Counter>,
    termination: Family<Labels, Histogram>,
}

pub(crate) type Labels = Vec<(String, String)>;

/// A condition of any kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    pub(crate) since: Option<Timestamp>,
}

impl Transitions {
    pub(crate) fn register(
        metrics: &Metrics,
        clock: Clock,
        recorder: Recorder,
        class_labels: Vec<String>,
    ) -> Self {
        let [claims, pools, nodes, buffers, any] = measured(metrics);
        Self {
            leading: Arc::default(),
            clock,
            recorder,
            class_labels: class_labels.into(),
            claims,
            pools,
            nodes,
            buffers,
            any,
        }
    }

    /// From now on this operator leads.
    pub(crate) fn lead(&self) {
        self.leading.store(true, Ordering::Release);
    }

    pub(crate) fn notice(&self, change: &Change) {
        if !self.leading.load(Ordering::Acquire) {
            return;
        }
        match change {
            Change::NodeClaim(delta) => self.changed(&self.claims, Some(&self.any), delta),
            Change::NodePool(delta) => self.changed(&self.pools, Some(&self.any), delta),
            Change::CapacityBuffer(delta) => self.changed(&self.buffers, None, delta),
            Change::Node(delta) if self.is_ours(delta) => {
                self.changed(&self.nodes, None, delta);
            }
            _ => {}
        }
    }

    fn is_ours(&self, delta: &Delta<Node>) -> bool {
        let labels = delta.either().map(|node| node.labels());
        labels.is_some_and(|labels| self.class_labels.iter().any(|key| labels.contains_key(key)))
    }

    fn changed<K: Observed>(&self, kind: &Measured, any: Option<&Measured>, delta: &Delta<K>) {
        let (before, after) = (delta.before.as_deref(), delta.after.as_deref());
        if let Some(after) = after {
            self.compared(kind, any, before, after);
        }
        let Some(before) = before else { return };
        let kept = after.map(ResourceExt::finalizers).unwrap_or_default();
        for gone in before.finalizers().iter().filter(|finalizer| !kept.contains(finalizer)) {
            let message = format!("Finalized {gone}");
            let notice = Notice::about(before, Severity::Normal, "Finalized", message);
            self.recorder.record(notice.same_if(Vec::new()));
        }
        let deleted = before.meta().deletion_timestamp.as_ref();
        if let (None, Some(deleted)) = (after, deleted) {
            let took = self.clock.now().duration_since(deleted.0).as_secs_f64().max(0.0);
            let own = K::labels_of(before, &self.class_labels);
            kind.termination.get_or_create(&own).observe(took);
            if let Some(any) = any {
                any.termination.get_or_create(&of_any::<K>()).observe(took);
            }
        }
    }

    fn compared<K: Observed>(
        &self,
        kind: &Measured,
        any: Option<&Measured>,
        before: Option<&K>,
        after: &K,
    ) {
        let was = before.map(K::said).unwrap_or_default();
        let was: BTreeMap<&str, Said<'_>> = was.into_iter().map(|said| (said.kind, said)).collect();
        for now in K::said(after) {
            let seen = was.get(now.kind);
            let old = seen.map_or("Unknown", |seen| seen.status);
            if old == now.status {
                continue;
            }
            let own = K::labels_of(after, &self.class_labels);
            let named = |status: &str| {
                [("type", now.kind), ("status", status)]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .to_vec()
            };
            let mut counted = named(now.status);
            counted.push(("reason".into(), now.reason.into()));
            let with = |mut labels: Labels, more: &Labels| {
                labels.extend(more.iter().cloned());
                labels
            };
            kind.total.get_or_create(&with(counted.clone(), &own)).inc();
            if let Some(any) = any {
                any.total.get_or_create(&with(counted, &of_any::<K>())).inc();
            }
            let Some(seen) = seen else { continue };
            if let (Some(then), Some(since)) = (seen.since, now.since) {
                let lasted = since.duration_since(then).as_secs_f64().max(0.0);
                kind.seconds.get_or_create(&with(named(old), &own)).observe(lasted);
                if let Some(any) = any {
                    any.seconds.get_or_create(&with(named(old), &of_any::<K>())).observe(lasted);
                }
            }
            let notice =
                Notice::about(after, Severity::Normal, now.kind.to_owned(), transition(&now, old));
            self.recorder.record(notice.same_if(Vec::new()));
        }
    }
}

fn transition(now: &Said<'_>, old: &str) -> String {
    let Said { kind, status, reason, message, .. } = now;
    let mut text = format!(
        "Status condition transitioned, Type: {kind}, Status: {old} -> {status}, Reason: {reason}"
    );
    if !message.is_empty() {
        text.push_str(", Message: ");
        text.push_str(message);
    }
    text
}

/// The prefix of its metrics, the labels of all of them, and the buckets.
type Kind = (&'static str, &'static [&'static str], fn() -> Histogram);

/// What is measured of claims, pools, nodes, buffers, and claims and pools together.
pub(crate) fn measured(metrics: &Metrics) -> [Measured; 5] {
    let kinds: [Kind; 5] = [
        ("operator_nodeclaim", &[OF_POOL], || Histogram::new(doubling())),
        ("operator_nodepool", &[], || Histogram::new(doubling())),
        ("operator_node", &[OF_POOL, "karpenter_sh_initialized"], || Histogram::new(doubling())),
        ("operator_capacitybuffer", &[], || Histogram::new(doubling())),
        ("operator", &["group", "kind"], || Histogram::new(DEFAULT_BUCKETS)),
    ];
    kinds.map(|(prefix, labels, histogram)| {
        let kind = Measured::new(histogram);
        metrics.register(|registry| {
            kind.register(&mut registry.sub_registry_with_prefix(prefix), labels);
        });
        kind
    })
}

const OF_POOL: &str = "karpenter_sh_nodepool";

impl Measured {
    fn new(histogram: fn() -> Histogram) -> Self {
        Self {
            seconds: Family::new_with_constructor(histogram),
            total: Family::default(),
            termination: Family::new_with_constructor(histogram),
        }
    }

    /// `own` are the labels of all series of the kind.
    fn register(&self, registry: &mut Registrar<'_>, own: &[&str]) {
        registry.register_with_labels(
            "status_condition_transition_seconds",
            "Time that a condition had a status before it got another",
            &[&["type", "status"], own].concat(),
            self.seconds.clone(),
        );
        registry.register_with_labels(
            "status_condition_transitions",
            "Changes of conditions",
            &[&["type", "status", "reason"], own].concat(),
            self.total.clone(),
        );
        registry.register_with_labels(
            "termination_duration_seconds",
            "Time from the deletion of an object until it was gone",
            own,
            self.termination.clone(),
        );
    }
}

/// A kind whose conditions are looked after.
pub(crate) trait Observed: Resource<DynamicType = ()> {
    fn said(object: &Self) -> Vec<Said<'_>>;

    /// The labels of an object that its metrics carry.
    fn labels_of(object: &Self, class_labels: &[String]) -> Labels;
}

impl Observed for NodeClaim {
    fn said(claim: &Self) -> Vec<Said<'_>> {
        claim.conditions().iter().map(Said::from).collect()
    }

    fn labels_of(claim: &Self, class_labels: &[String]) -> Labels {
        let keys = class_labels.iter().map(String::as_str).chain([labels::NODE_POOL]);
        picked(claim, keys)
    }
}

impl Observed for NodePool {
    fn said(pool: &Self) -> Vec<Said<'_>> {
        pool.conditions().iter().map(Said::from).collect()
    }

    fn labels_of(_: &Self, _: &[String]) -> Labels {
        Labels::new()
    }
}

impl Observed for CapacityBuffer {
    fn said(buffer: &Self) -> Vec<Said<'_>> {
        let status = buffer.status.iter();
        status.flat_map(|status| &status.conditions).map(Said::from).collect()
    }

    fn labels_of(_: &Self, _: &[String]) -> Labels {
        Labels::new()
    }
}

impl Observed for Node {
    fn said(node: &Self) -> Vec<Said<'_>> {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().map(Said::from).collect()
    }

    fn labels_of(node: &Self, class_labels: &[String]) -> Labels {
        let keys = class_labels.iter().map(String::as_str);
        picked(node, keys.chain([labels::NODE_POOL, labels::INITIALIZED]))
    }
}

fn picked<'a, K: Resource>(object: &K, keys: impl Iterator<Item = &'a str>) -> Labels {
    let value = |key: &str| object.labels().get(key).cloned().unwrap_or_default();
    keys.map(|key| (key.replace(['/', '.', '-'], "_"), value(key))).collect()
}

pub(crate) fn of_any<K: Resource<DynamicType = ()>>() -> Labels {
    vec![("group".into(), K::group(&()).into_owned()), ("kind".into(), K::kind(&()).into_owned())]
}

impl<'a> From<&'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> for Said<'a> {
    fn from(it: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> Self {
        Self {
            kind: &it.type_,
            status: &it.status,
            reason: &it.reason,
            message: &it.message,
            since: Some(it.last_transition_time.0),
        }
    }
}

impl<'a> From<&'a k8s_openapi::api::core::v1::NodeCondition> for Said<'a> {
    fn from(it: &'a k8s_openapi::api::core::v1::NodeCondition) -> Self {
        Self {
            kind: &it.type_,
            status: &it.status,
            reason: it.reason.as_deref().unwrap_or_default(),
            message: it.message.as_deref().unwrap_or_default(),
            since: it.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

/// Half a second, one, two … seconds, to over two hours.
fn doubling() -> impl Iterator<Item = f64> {
    (0..15).map(|power| 0.5 * f64::from(1_u32 << power))
}

const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_cluster::Key;
    use serde_json::{Value, json};

    #[test]
    fn a_transition_says_what_became_what_and_why() {
        let said =
            |message| Said { kind: "Ready", status: "False", reason: "R", message, since: None };
        assert_eq!(
            transition(&said(""), "True"),
            "Status condition transitioned, Type: Ready, Status: True -> False, Reason: R"
        );
        assert!(transition(&said("why"), "True").ends_with(", Reason: R, Message: why"));
    }

    fn claim(conditions: &Value, deleted: bool) -> Arc<NodeClaim> {
        let class = json!({"group": "g", "kind": "k", "name": "n"});
        Arc::new(
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {
                    "name": "c", "labels": {labels::NODE_POOL: "p", "g/k": "n"}, "finalizers": ["f"],
                    "deletionTimestamp": deleted.then_some("2026-01-01T00:00:10Z"),
                },
                "spec": {"nodeClassRef": class, "requirements": []},
                "status": {"conditions": conditions},
            }))
            .unwrap(),
        )
    }

    fn condition(status: &str, second: u32) -> Value {
        json!([{
            "type": "Ready", "status": status, "reason": "R", "message": "",
            "lastTransitionTime": format!("2026-01-01T00:00:{second:02}Z"),
        }])
    }

    #[tokio::test(start_paused = true)]
    async fn conditions_are_counted_when_their_status_changes_and_objects_when_they_are_gone() {
        let metrics = Metrics::default();
        let clock = Clock::starting_at("2026-01-01T00:00:30Z".parse().unwrap());
        let client = kube::Client::try_from(kube::Config::new("http://nowhere".parse().unwrap()));
        let (recorder, _) = Recorder::new(
            client.unwrap(),
            clock.clone(),
            "karpenter",
            tokio_util::sync::CancellationToken::new(),
        );
        let transitions = Transitions::register(&metrics, clock, recorder, vec!["g/k".to_owned()]);
        let steps = [
            Some(claim(&json!([]), false)),
            Some(claim(&condition("Unknown", 1), false)),
            Some(claim(&condition("True", 5), false)),
            Some(claim(&condition("True", 5), true)),
            None,
        ];
        let play = || {
            for step in steps.windows(2) {
                transitions.notice(&Change::NodeClaim(Delta {
                    key: Key::cluster("c"),
                    before: step[0].clone(),
                    after: step[1].clone(),
                }));
            }
        };
        play();
        assert!(!metrics.text().contains("_total{"), "told without leading");
        transitions.lead();
        play();
        let text = metrics.text();
        let own = "g_k=\"n\",karpenter_sh_nodepool=\"p\"";
        let any = "group=\"karpenter.sh\",kind=\"NodeClaim\"";
        let changed = "type=\"Ready\",status=\"True\",reason=\"R\"";
        for line in [
            format!("operator_nodeclaim_status_condition_transitions_total{{{changed},{own}}} 1"),
            format!("operator_status_condition_transitions_total{{{changed},{any}}} 1"),
            format!(
                "operator_nodeclaim_status_condition_transition_seconds_sum{{type=\"Ready\",status=\"Unknown\",{own}}} 4.0"
            ),
            format!(
                "operator_status_condition_transition_seconds_sum{{type=\"Ready\",status=\"Unknown\",{any}}} 4.0"
            ),
            format!("operator_nodeclaim_termination_duration_seconds_sum{{{own}}} 20.0"),
            format!("operator_termination_duration_seconds_sum{{{any}}} 20.0"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
