//! Which pods of a node are evicted next.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kerf_cluster::{Pod, pods};
use kerf_runtime::events::{Notice, Severity};
use kube::ResourceExt;

use super::eviction::{Evictions, Limit, needs_force};
use crate::context::Context;

/// Pods leave in this order, one tier after the other, so that what others depend on goes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Workload,
    Daemon,
    CriticalWorkload,
    CriticalDaemon,
}

/// Asks for the eviction of the pods whose turn it is; returns how many pods the drain waits for.
pub(crate) fn drain(context: &Context, evictions: &Evictions, node: &Node, limit: Limit) -> usize {
    let now = context.now();
    let waiting: Vec<Arc<Pod>> = {
        let cluster = context.index.read();
        let on_node = cluster.pods_on(node.metadata.name.as_deref().unwrap_or_default());
        on_node.filter(|pod| pods::is_waiting_for_eviction(pod, now)).cloned().collect()
    };
    for pod in next(&waiting, limit.force(), now) {
        evictions.add(pod, limit);
    }
    if !waiting.is_empty() {
        let message =
            format!("Failed to drain node, {} pods are waiting to be evicted", waiting.len());
        let notice = Notice::about(node, Severity::Warning, "FailedDraining", message);
        let told_once = notice.same_if(vec![node.name_any()]).repeat_after(Duration::from_mins(2));
        context.recorder.record(told_once);
    }
    waiting.len()
}

/// The pods to evict now: all that would otherwise outlive the deadline, and the first tier that is not empty.
fn next(waiting: &[Arc<Pod>], deadline: Option<Timestamp>, now: Timestamp) -> Vec<&Arc<Pod>> {
    let (mut now_or_never, in_turn): (Vec<_>, Vec<_>) =
        waiting.iter().partition(|pod| needs_force(pod, deadline, now));
    let mut tiers: BTreeMap<Tier, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in in_turn {
        tiers.entry(tier(pod)).or_default().push(pod);
    }
    now_or_never.extend(tiers.into_values().next().unwrap_or_default());
    now_or_never
}

fn tier(pod: &Pod) -> Tier {
    let class = pod.spec().priority_class_name.as_deref();
    let critical = matches!(class, Some("system-cluster-critical" | "system-node-critical"));
    match (critical, pods::is_owned_by_daemon_set(pod)) {
        (false, false) => Tier::Workload,
        (false, true) => Tier::Daemon,
        (true, false) => Tier::CriticalWorkload,
        (true, true) => Tier::CriticalDaemon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, critical: bool, daemon: bool, grace: i64) -> Arc<Pod> {
        with_deletion(name, critical, daemon, grace, None)
    }

    fn with_deletion(
        name: &str,
        critical: bool,
        daemon: bool,
        grace: i64,
        deleted: Option<&str>,
    ) -> Arc<Pod> {
        let owners = daemon.then(
            || json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]),
        );
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "ownerReferences": owners, "deletionTimestamp": deleted},
                "spec": {
                    "containers": [], "terminationGracePeriodSeconds": grace,
                    "priorityClassName": critical.then_some("system-node-critical"),
                },
            }))
            .unwrap(),
        )
    }

    fn names(pods: Vec<&Arc<Pod>>) -> Vec<String> {
        pods.into_iter().map(|pod| pod.name().to_owned()).collect()
    }

    #[test]
    fn tiers_go_one_after_the_other() {
        let mut waiting = vec![
            pod("critical-daemon", true, true, 30),
            pod("critical", true, false, 30),
            pod("daemon", false, true, 30),
            pod("a", false, false, 30),
            pod("b", false, false, 30),
        ];
        let now = Timestamp::UNIX_EPOCH;
        for expected in [vec!["a", "b"], vec!["daemon"], vec!["critical"], vec!["critical-daemon"]]
        {
            let next = names(next(&waiting, None, now));
            assert_eq!(next, expected);
            waiting.retain(|pod| !next.iter().any(|name| name == pod.name()));
        }
        assert!(next(&waiting, None, now).is_empty());
    }

    #[test]
    fn a_tier_waits_until_the_one_before_it_is_gone_and_not_only_going() {
        let going = with_deletion("going", false, false, 30, Some("1970-01-01T00:00:30Z"));
        let waiting = [pod("critical", true, false, 30), going];
        assert_eq!(names(next(&waiting, None, Timestamp::UNIX_EPOCH)), ["going"]);
    }

    #[test]
    fn pods_that_would_outlive_the_deadline_do_not_wait_for_their_tier() {
        let waiting = [
            pod("slow", true, false, 600),
            pod("quick", true, false, 30),
            pod("a", false, false, 30),
        ];
        let now = Timestamp::UNIX_EPOCH;
        let deadline = Some(now + jiff::SignedDuration::from_mins(5));
        assert_eq!(names(next(&waiting, deadline, now)), ["slow", "a"]);
    }
}
