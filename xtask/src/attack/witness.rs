//! Watches the cluster all the while and notes what must never be.
//!
//! Each rule looks at one kind only: the order of changes within a kind is the API server's, between kinds it is anybody's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use futures::TryStreamExt;
use http::Request;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::api::{self, Api, CLAIMS, NODES, PODS, is_true, text};
use super::churn::{BUDGET, CPU_LIMIT, GUARDED, GUARDED_AT_LEAST};
use super::report::Report;

const CLAIM_UID: &str = "/metadata/annotations/karpenter.kwok.sh~1nodeclaim-uid";

/// Objects of a kind by their UID.
type Objects = BTreeMap<String, Value>;

pub(super) struct Witness {
    seen: Arc<Mutex<Seen>>,
    watches: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    changes: u64,
    most_nodes: usize,
    most_cpu: f64,
    most_disrupted: usize,
    least_ready: Option<usize>,
    two_instances: Vec<String>,
    over_limit: Vec<String>,
    over_budget: Vec<String>,
    under_guard: Vec<String>,
    /// Claims that a user deleted: no budget of ours allows or forbids that.
    by_users: BTreeSet<String>,
}

impl Witness {
    pub(super) fn start(api: &Api) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let watch = |path: &'static str, judge: fn(&mut Seen, &Objects)| {
            let (api, seen) = (api.clone(), Arc::clone(&seen));
            tokio::spawn(async move {
                loop {
                    // A watch ends after some minutes; the next one begins with a new list.
                    let _ = follow(&api, path, |objects| {
                        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                        seen.changes += 1;
                        judge(&mut seen, objects);
                    })
                    .await;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            })
        };
        let watches = vec![
            watch(NODES, Seen::judge_nodes),
            watch(CLAIMS, Seen::judge_claims),
            watch(PODS, Seen::judge_pods),
        ];
        Self { seen, watches }
    }

    /// A user is about to delete this claim, or its node.
    pub(super) fn leave_to_the_user(&self, claim: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.by_users.insert(claim.to_owned());
    }

    pub(super) fn tell(self, report: &mut Report) {
        for watch in &self.watches {
            watch.abort();
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        report.figure("changes that were seen", seen.changes as f64, "");
        report.figure("most nodes at once", seen.most_nodes as f64, "");
        report.figure("most CPUs at once", seen.most_cpu, "");
        report.figure("most nodes disrupted at once", seen.most_disrupted as f64, "");
        report.figure("fewest guarded pods", seen.least_ready.unwrap_or_default() as f64, "");
        report.never("two instances for a claim", &seen.two_instances);
        report.never("limit of the pool exceeded", &seen.over_limit);
        report.never("disruption budget exceeded", &seen.over_budget);
        report.never("PodDisruptionBudget violated", &seen.under_guard);
    }
}

impl Seen {
    fn judge_nodes(&mut self, nodes: &Objects) {
        self.most_nodes = self.most_nodes.max(nodes.len());
        let mut by_claim = BTreeMap::<&str, Vec<&str>>::new();
        for node in nodes.values() {
            by_claim.entry(text(node, CLAIM_UID)).or_default().push(api::name(node));
        }
        for (claim, nodes) in by_claim {
            if nodes.len() > 1 {
                note(&mut self.two_instances, format!("{claim}: {}", nodes.join(", ")));
            }
        }
    }

    fn judge_claims(&mut self, claims: &Objects) {
        let disrupted: Vec<_> = claims
            .values()
            .filter(|claim| is_disrupted(claim) && !self.by_users.contains(api::name(claim)))
            .map(api::name)
            .collect();
        self.most_disrupted = self.most_disrupted.max(disrupted.len());
        if disrupted.len() > BUDGET {
            note(&mut self.over_budget, disrupted.join(", "));
        }
        // Of the limit, what is on its way out counts no longer, nor what is being replaced, as in Karpenter: the replacement
        // comes first, and has the room of what it replaces.
        let goes = |claim: &Value| api::is_deleting(claim) || is_true(claim, "DisruptionReason");
        let staying = claims.values().filter(|claim| !goes(claim));
        let cpus = staying.map(|claim| amount(text(claim, "/status/capacity/cpu")));
        let cpus: Vec<_> = cpus.filter(|cpu| *cpu > 0.0).collect();
        let cpu: f64 = cpus.iter().sum();
        self.most_cpu = self.most_cpu.max(cpu);
        if cpu > CPU_LIMIT {
            note(&mut self.over_limit, format!("{cpu} CPUs of {} claims", cpus.len()));
        }
    }

    fn judge_pods(&mut self, pods: &Objects) {
        let ready = pods.values().filter(|pod| {
            text(pod, "/metadata/labels/app") == GUARDED
                && is_true(pod, "Ready")
                && !api::is_deleting(pod)
        });
        let ready = ready.count();
        // From when on all of them have been there.
        match &mut self.least_ready {
            Some(least) => *least = ready.min(*least),
            None if ready > GUARDED_AT_LEAST => self.least_ready = Some(ready),
            None => return,
        }
        if ready < GUARDED_AT_LEAST {
            note(&mut self.under_guard, format!("{ready} guarded pods are ready"));
        }
    }
}

/// The same thing may be seen in many states one after the other.
fn note(notes: &mut Vec<String>, what: String) {
    if !notes.contains(&what) {
        notes.push(what);
    }
}

/// A node counts against a budget until its instance is told to end: by then its pods are gone. The Node that outlives that by
/// a moment is no node of its pool any more, as in Karpenter.
fn is_disrupted(claim: &Value) -> bool {
    (is_true(claim, "DisruptionReason") || api::is_deleting(claim))
        && !is_true(claim, "InstanceTerminating")
}

/// `2` or `1930m`.
fn amount(quantity: &str) -> f64 {
    match quantity.strip_suffix('m') {
        Some(milli) => milli.parse::<f64>().unwrap_or_default() / 1000.0,
        None => quantity.parse().unwrap_or_default(),
    }
}

/// Shows the objects at `path` after every change, until the watch ends.
async fn follow(api: &Api, path: &str, mut show: impl FnMut(&Objects)) -> Result<()> {
    let list = api.get(path).await?;
    let version = text(&list, "/metadata/resourceVersion").to_owned();
    let uid = |object: &Value| text(object, "/metadata/uid").to_owned();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let mut objects: Objects = items.into_iter().map(|item| (uid(&item), item)).collect();
    show(&objects);
    let path = format!("{path}?watch=1&resourceVersion={version}&timeoutSeconds=240");
    let changes =
        api.client().request_events::<Value>(Request::get(path).body(Vec::new())?).await?;
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.try_next().await? {
        match change {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                objects.insert(uid(&object), object);
            }
            WatchEvent::Deleted(object) => drop(objects.remove(&uid(&object))),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => bail!("{status:?}"),
        }
        show(&objects);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(cpu: &str, deleted: bool) -> Value {
        let mut claim = json!({"metadata": {}, "status": {"capacity": {"cpu": cpu}}});
        if deleted {
            claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        claim
    }

    fn disrupted(name: &str, conditions: &[&str]) -> Value {
        let conditions: Vec<_> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        json!({"metadata": {"name": name}, "status": {"conditions": conditions}})
    }

    fn node(name: &str, claim: &str) -> Value {
        json!({"metadata": {"name": name, "annotations": {"karpenter.kwok.sh/nodeclaim-uid": claim}}})
    }

    fn pod(ready: bool) -> Value {
        let status = if ready { "True" } else { "False" };
        json!({
            "metadata": {"labels": {"app": GUARDED}},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        })
    }

    fn objects(all: &[Value]) -> Objects {
        all.iter().enumerate().map(|(index, one)| (index.to_string(), one.clone())).collect()
    }

    #[test]
    fn notes_what_must_never_be() {
        let mut seen = Seen::default();
        seen.judge_nodes(&objects(&[node("a", "1"), node("b", "2")]));
        assert!(seen.two_instances.is_empty());
        seen.judge_nodes(&objects(&[node("a", "1"), node("b", "1")]));
        assert_eq!(seen.two_instances, ["1: a, b"]);
        let reason = ["DisruptionReason"].as_slice();
        let ends = ["DisruptionReason", "InstanceTerminating"].as_slice();
        let three = |last| {
            objects(
                &[("a", reason), ("b", reason), ("c", last)].map(|(name, is)| disrupted(name, is)),
            )
        };
        seen.judge_claims(&three(&[]));
        seen.judge_claims(&three(ends));
        assert_eq!((seen.most_disrupted, seen.over_budget.len()), (2, 0));
        seen.judge_claims(&three(reason));
        seen.judge_claims(&three(reason));
        assert_eq!(seen.over_budget, ["a, b, c"]);
        seen.by_users.insert("b".to_owned());
        seen.judge_claims(&objects(&["a", "b", "d"].map(|name| disrupted(name, reason))));
        assert_eq!((seen.over_budget.len(), seen.most_disrupted), (1, 3));
        seen.judge_claims(&objects(&[claim("30", false), claim("1500m", false), claim("9", true)]));
        assert_eq!((seen.most_cpu, seen.over_limit.len()), (31.5, 0));
        let mut replaced = claim("4", false);
        replaced["status"]["conditions"] = disrupted("a", reason)["status"]["conditions"].clone();
        seen.judge_claims(&objects(&[claim("30", false), replaced]));
        assert_eq!(seen.over_limit.len(), 0);
        seen.judge_claims(&objects(&[claim("30", false), claim("4", false)]));
        assert_eq!(seen.over_limit, ["34 CPUs of 2 claims"]);
    }

    #[test]
    fn a_budget_counts_from_when_all_its_pods_have_been_there() {
        let mut seen = Seen::default();
        let all = |ready: usize| objects(&(0..6).map(|one| pod(one < ready)).collect::<Vec<_>>());
        for ready in [1, 4, 6, 5] {
            seen.judge_pods(&all(ready));
        }
        assert_eq!((seen.least_ready, seen.under_guard.len()), (Some(5), 0));
        seen.judge_pods(&all(4));
        assert_eq!(seen.under_guard, ["4 guarded pods are ready"]);
    }
}
