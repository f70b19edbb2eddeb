//! When a pod last came to a node or left it: `consolidateAfter` counts from there.
//!
//! The time is read off the pods, not off the moment their events arrive. So an operator that starts anew and sees every
//! pod for the first time does not set the clocks of all nodes back, and events that come late count from when they happened.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kerf_api::{NodeClaim, NodeExt};
use kerf_cluster::{Change, Cluster, Delta, Pod, pods};
use kerf_runtime::{Clock, Lock, Outcome, Queue, Workers};
use kube::ResourceExt;

use crate::{context::Context, controller::Reconciler, error::Result};

/// A rollout is a burst of events; one write in this time is enough. Shorter than the 15 s after which a disruption is
/// validated again, so that no event slips through that.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct PodEvents {
    pub(crate) clock: Clock,
    /// Pods that vanished without a grace period leave no object behind that could tell the time.
    vanished: Mutex<BTreeMap<String, Timestamp>>,
}

impl PodEvents {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, vanished: Mutex::default() }
    }
}

impl Reconciler for PodEvents {
    const WORKERS: Workers = Workers::new("nodeclaim.podevents", 10).up_to(1000);

    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>) {
        if let Change::NodeClaim(Delta { key, after: None, .. }) = change {
            self.vanished.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.name);
        }
        let Change::Pod(delta) = change else { return };
        let Some(pod) = delta.either().filter(|pod| !pods::is_owned_by_daemon_set(pod)) else {
            return;
        };
        let Some(claim) = claim_of(cluster, pod) else { return };
        if delta.after.is_none() && pods::is_active(pod) {
            let mut vanished = self.vanished.lock().unwrap_or_else(PoisonError::into_inner);
            vanished.insert(claim.clone(), self.clock.now());
        }
        queue.add(claim);
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let vanished =
            self.vanished.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        let Some(claim) = context.managed_claim(name) else { return Ok(Outcome::Done) };
        let seen = {
            let cluster = context.index.read();
            // Its name is noted on the claim only after the Node takes pods.
            let node = cluster.node_of(claim.provider_id()).ok();
            let node = node.and_then(|node| node.metadata.name.as_deref()).unwrap_or_default();
            let on_node = cluster.pods_on(node).filter(|pod| !pods::is_owned_by_daemon_set(pod));
            on_node.filter_map(|pod| pods::last_event(pod)).chain(vanished).max()
        };
        let stored = claim.last_pod_event();
        let time = match next(stored, seen, context.now()) {
            Next::Nothing => return Ok(Outcome::Done),
            Next::Later(rest) => return Ok(Outcome::After(rest)),
            Next::Write(time) => time,
        };
        let mut changed = NodeClaim::clone(&claim);
        changed.status.get_or_insert_default().last_pod_event_time = Some(Time(time));
        let what = || format!("noting the last pod event of NodeClaim {name}");
        context.write_claim(&claim, changed, Lock::None, what).await?;
        Ok(Outcome::Done)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    Later(Duration),
    Write(Timestamp),
}

/// What to do with an event seen at one time when the claim says another.
fn next(stored: Option<Timestamp>, seen: Option<Timestamp>, now: Timestamp) -> Next {
    // The API keeps whole seconds.
    let Some(seen) = seen.map(|seen| Timestamp::from_second(seen.as_second()).unwrap_or(seen))
    else {
        return Next::Nothing;
    };
    let Some(stored) = stored else { return Next::Write(seen) };
    if seen <= stored {
        return Next::Nothing;
    }
    let passed = Duration::try_from(now.duration_since(stored)).unwrap_or_default();
    match AT_MOST_EVERY.checked_sub(passed) {
        Some(rest) if !rest.is_zero() => Next::Later(rest),
        _ => Next::Write(seen),
    }
}

fn claim_of(cluster: &Cluster, pod: &Pod) -> Option<String> {
    let node = cluster.nodes().named(pods::node_name(pod)?)?;
    cluster.claim_of(node.provider_id()).ok().map(|claim| claim.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T{time}Z").parse().unwrap()
    }

    #[test]
    fn a_pod_is_noted_on_the_claim_behind_its_node() {
        let mut cluster = Cluster::default();
        let node = |name: &str, provider_id: Option<&str>| -> Node {
            let spec = json!({"providerID": provider_id});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
        };
        let claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": "ours"},
        }))
        .unwrap();
        cluster.apply(claim);
        cluster.apply(node("ours", Some("ours")));
        cluster.apply(node("others", Some("others")));
        cluster.apply(node("nobodys", None));
        for (node, expected) in [
            (Some("ours"), Some("c")),
            (Some("others"), None),
            (Some("nobodys"), None),
            (Some("gone"), None),
            (None, None),
        ] {
            let pod: Pod =
                serde_json::from_value(json!({"spec": {"nodeName": node, "containers": []}}))
                    .unwrap();
            assert_eq!(claim_of(&cluster, &pod).as_deref(), expected, "{node:?}");
        }
    }

    #[test]
    fn the_stored_time_only_moves_forward_and_not_too_often() {
        let cases = [
            (None, None, Next::Nothing),
            (None, Some("00:00:00"), Next::Write(at("00:00:00"))),
            // A restart sees every pod again, and nothing is news.
            (Some("00:00:30"), Some("00:00:20"), Next::Nothing),
            (Some("00:00:30"), Some("00:00:30"), Next::Nothing),
            (Some("00:00:30"), Some("00:00:40"), Next::Write(at("00:00:40"))),
            (Some("00:00:50"), Some("00:00:57"), Next::Write(at("00:00:57"))),
            (Some("00:00:55"), Some("00:00:57"), Next::Later(Duration::from_secs(5))),
        ];
        let now = at("00:01:00");
        for (stored, seen, expected) in cases {
            assert_eq!(next(stored.map(at), seen.map(at), now), expected, "{stored:?} {seen:?}");
        }
    }
}
