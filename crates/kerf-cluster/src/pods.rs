//! What may be done with a pod: give it a node, move it, wait for it, or leave it alone.
//!
//! Every predicate is a fact about one pod at one time. What follows from it is decided elsewhere.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kerf_api::{conditions::Status, taints};
use kerf_model::{Effect, Taint, Toleration, pod::Phase};

use crate::{
    Pod,
    do_not_disrupt::Protection,
    pod::{Condition, Reason},
};

/// A terminating pod that is still there this long after its time is stuck: nothing on the node will end it.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// Why no node is launched for a pod, whatever it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotProvisionable<'a> {
    #[error("it has node {node}")]
    Scheduled { node: &'a str },
    #[error("a DaemonSet owns it, and its node follows from that")]
    Daemon,
    #[error("a kubelet runs it from a file")]
    StaticPod,
    #[error("it preempts other pods and gets their place on node {node}")]
    Preempting { node: &'a str },
    #[error("it has scheduling gates, and kube-scheduler waits until they are removed")]
    Gated,
    #[error("it has ended")]
    Ended,
    #[error("kube-scheduler has not found it unschedulable")]
    NotUnschedulable,
}

impl NotProvisionable<'_> {
    /// How it is called in output that programs read.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Scheduled { .. } => "Scheduled",
            Self::Daemon => "Daemon",
            Self::StaticPod => "StaticPod",
            Self::Preempting { .. } => "Preempting",
            Self::Gated => "SchedulingGated",
            Self::Ended => "Ended",
            Self::NotUnschedulable => "NotUnschedulable",
        }
    }
}

/// Whether kube-scheduler gave up on the pod and a new node could help.
pub fn is_provisionable(pod: &Pod) -> bool {
    check_provisionable(pod).is_ok()
}

/// The same with the reason.
pub fn check_provisionable(pod: &Pod) -> Result<(), NotProvisionable<'_>> {
    let verdict = |reason: Reason| pod.scheduled().is_some_and(|it| it.reason == reason);
    if let Some(node) = node_name(pod) {
        return Err(NotProvisionable::Scheduled { node });
    }
    if is_owned_by_daemon_set(pod) {
        return Err(NotProvisionable::Daemon);
    }
    if is_owned_by_node(pod) {
        return Err(NotProvisionable::StaticPod);
    }
    // A pod that is preempting others gets their place soon.
    if let Some(node) = pod.nominated_node() {
        return Err(NotProvisionable::Preempting { node });
    }
    if verdict(Reason::Unschedulable) {
        return Ok(());
    }
    let gates = pod.spec().scheduling_gates.as_ref();
    Err(if is_terminal(pod) {
        NotProvisionable::Ended
    } else if gates.is_some_and(|gates| !gates.is_empty()) || verdict(Reason::SchedulingGated) {
        NotProvisionable::Gated
    } else {
        NotProvisionable::NotUnschedulable
    })
}

pub fn is_scheduled(pod: &Pod) -> bool {
    node_name(pod).is_some()
}

pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.node_name()
}

/// Whether the pod has run to its end.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.phase(), Some(Phase::Failed | Phase::Succeeded))
}

pub fn is_terminating(pod: &Pod) -> bool {
    pod.deletion().is_some()
}

pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_terminating(pod)
}

pub fn is_owned_by_daemon_set(pod: &Pod) -> bool {
    daemon_set_of(pod).is_some()
}

/// The same of a pod that is not in the index yet.
pub(crate) fn is_of_daemon_set(metadata: &ObjectMeta) -> bool {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    find_owner(owners, DAEMON_SET).is_some()
}

/// The uid of the DaemonSet that made the pod.
pub(crate) fn daemon_set_of(pod: &Pod) -> Option<&str> {
    owner(pod, DAEMON_SET).map(|owner| owner.uid.as_str())
}

/// A static pod: the kubelet runs it from a file, and its object is a mirror.
pub fn is_owned_by_node(pod: &Pod) -> bool {
    owner(pod, ("v1", "Node")).is_some()
}

/// Whether the pod needs a place elsewhere when its node goes. A StatefulSet makes its next pod only when the
/// terminating one is gone, so that one already counts.
pub fn is_reschedulable(pod: &Pod) -> bool {
    let next_one_is_due = owner(pod, ("apps/v1", "StatefulSet")).is_some() && is_terminating(pod);
    (is_active(pod) || next_one_is_due) && !is_owned_by_daemon_set(pod) && !is_owned_by_node(pod)
}

/// Whether the eviction API may be called for the pod.
pub fn is_evictable(pod: &Pod, now: Timestamp) -> bool {
    is_evictable_but_for_annotation(pod) && !Protection::of(pod, now).is_active()
}

pub(crate) fn is_evictable_but_for_annotation(pod: &Pod) -> bool {
    is_active(pod) && !tolerates_disruption(pod) && !is_owned_by_node(pod)
}

pub(crate) fn is_unready(pod: &Pod) -> bool {
    pod.ready().is_some_and(|ready| ready.status == Status::False)
}

/// Whether a drain waits for the pod.
pub fn is_waiting_for_eviction(pod: &Pod, now: Timestamp) -> bool {
    !is_terminal(pod) && is_drainable(pod, now)
}

pub(crate) fn is_drainable(pod: &Pod, now: Timestamp) -> bool {
    !tolerates_disruption(pod) && !is_stuck_terminating(pod, now) && !is_owned_by_node(pod)
}

fn is_stuck_terminating(pod: &Pod, now: Timestamp) -> bool {
    pod.deletion().is_some_and(|deletion| now.duration_since(deletion.at) > STUCK_AFTER)
}

/// Whether the pod is meant to stay on a node that is being removed.
fn tolerates_disruption(pod: &Pod) -> bool {
    let disrupted = Taint::new(taints::DISRUPTED, "", Effect::NoSchedule);
    let mut tolerations = pod.spec().tolerations.iter().flatten().map(Toleration::from);
    tolerations.any(|toleration| toleration.tolerates(&disrupted))
}

/// When the pod last came, ended, or began to leave.
pub fn last_event(pod: &Pod) -> Option<Timestamp> {
    let bound = turned(pod.scheduled(), Status::True)
        // Pods bound by their author have no such condition; they are on their node from the start.
        .or(pod.created());
    let ended = is_terminal(pod).then(|| ended(pod)).flatten();
    // `deletionTimestamp` is when the grace period ends, not when it began.
    let leaving = pod.deletion().and_then(|deletion| {
        deletion.at.checked_sub(SignedDuration::from_secs(deletion.grace_seconds)).ok()
    });
    [bound, ended, leaving].into_iter().flatten().max()
}

/// When the last container ended. A pod that the kubelet has evicted may have none that tells; it is no longer ready since.
fn ended(pod: &Pod) -> Option<Timestamp> {
    pod.ended().max(turned(pod.ready(), Status::False))
}

/// When a condition became what it is.
fn turned(condition: Option<Condition>, status: Status) -> Option<Timestamp> {
    condition.filter(|it| it.status == status)?.since
}

type Kind = (&'static str, &'static str);

const DAEMON_SET: Kind = ("apps/v1", "DaemonSet");

fn owner(pod: &Pod, kind: Kind) -> Option<&OwnerReference> {
    find_owner(pod.owners(), kind)
}

fn find_owner(owners: &[OwnerReference], (api_version, kind): Kind) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.api_version == api_version && owner.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1 as core;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    #[test]
    fn the_time_of_an_event_is_read_off_the_pod() {
        let created = json!({"creationTimestamp": "2026-01-01T00:00:00Z"});
        let condition = |kind: &str, status: &str, minute: u8| {
            let time = format!("2026-01-01T00:{minute:02}:00Z");
            json!({"type": kind, "status": status, "lastTransitionTime": time})
        };
        let bound = condition("PodScheduled", "True", 1);
        let ended = json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:05:00Z"}}}]);
        let leaving = json!({
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-01T00:10:30Z", "deletionGracePeriodSeconds": 30,
        });
        let cases = [
            (json!({"metadata": created}), 0),
            (json!({"metadata": created, "status": {"conditions": [bound]}}), 1),
            (
                json!({"metadata": created, "status": {
                    "phase": "Succeeded", "conditions": [bound], "containerStatuses": ended,
                }}),
                5,
            ),
            // It ran and was not ready for a while, which is nothing.
            (
                json!({"metadata": created, "status": {
                    "phase": "Running", "conditions": [bound, condition("Ready", "False", 6)],
                }}),
                1,
            ),
            // Evicted by the kubelet.
            (
                json!({"metadata": created, "status": {
                    "phase": "Failed", "conditions": [bound, condition("Ready", "False", 6)],
                }}),
                6,
            ),
            (json!({"metadata": leaving, "status": {"conditions": [bound]}}), 10),
        ];
        for (value, minute) in cases {
            assert_eq!(last_event(&pod(&value)), Some(at(minute)), "{value}");
        }
    }

    fn at(minute: u8) -> Timestamp {
        format!("2026-01-01T00:{minute:02}:00Z").parse().unwrap()
    }

    /// An ordinary running pod with `changes` merged in.
    fn pod(changes: &Value) -> Pod {
        let mut value = json!({
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running"},
        });
        merge(&mut value, changes);
        serde_json::from_value::<core::Pod>(value).unwrap().into()
    }

    fn merge(into: &mut Value, changes: &Value) {
        match (into, changes) {
            (Value::Object(into), Value::Object(changes)) => {
                for (field, change) in changes {
                    merge(into.entry(field).or_insert(Value::Null), change);
                }
            }
            (into, change) => *into = change.clone(),
        }
    }

    fn owned_by(api_version: &str, kind: &str) -> Value {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u"});
        json!({"metadata": {"ownerReferences": [owner]}})
    }

    fn unschedulable(changes: &Value) -> Pod {
        let mut value = json!({
            "spec": {"nodeName": null},
            "status": {"phase": "Pending", "conditions":
                [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        });
        merge(&mut value, changes);
        pod(&value)
    }

    #[test]
    fn provisionable_pods_are_those_that_kube_scheduler_gave_up_on() {
        let condition = |kind: &str, reason: &str| json!({"status": {"conditions": [{"type": kind, "status": "False", "reason": reason}]}});
        let cases = [
            (json!({}), ""),
            (json!({"spec": {"nodeName": ""}}), ""),
            (json!({"spec": {"nodeName": "n"}}), "Scheduled"),
            (json!({"status": {"nominatedNodeName": "n"}}), "Preempting"),
            (condition("PodScheduled", "SchedulingGated"), "SchedulingGated"),
            (condition("Ready", "Unschedulable"), "NotUnschedulable"),
            (json!({"status": {"phase": "Failed", "conditions": []}}), "Ended"),
            (owned_by("apps/v1", "DaemonSet"), "Daemon"),
            (owned_by("v1", "Node"), "StaticPod"),
            (owned_by("apps/v1", "ReplicaSet"), ""),
            (owned_by("example.com/v1", "DaemonSet"), ""),
        ];
        for (changes, expected) in cases {
            let pod = unschedulable(&changes);
            let reason = check_provisionable(&pod).map_err(|why| why.name()).err();
            assert_eq!(reason.unwrap_or_default(), expected, "{changes}");
            assert_eq!(is_provisionable(&pod), expected.is_empty(), "{changes}");
        }
    }

    #[test]
    fn reschedulable_pods_are_those_that_will_want_another_node() {
        let deleted = json!({"metadata": {"deletionTimestamp": NOW}});
        let mut terminating_stateful = owned_by("apps/v1", "StatefulSet");
        merge(&mut terminating_stateful, &deleted);
        let cases = [
            (json!({}), true),
            (json!({"status": {"phase": "Succeeded"}}), false),
            (deleted, false),
            (terminating_stateful, true),
            (owned_by("apps/v1", "DaemonSet"), false),
            (owned_by("v1", "Node"), false),
        ];
        for (changes, expected) in cases {
            assert_eq!(is_reschedulable(&pod(&changes)), expected, "{changes}");
        }
    }

    #[test]
    fn a_drain_evicts_and_waits_for_the_right_pods() {
        let toleration = |t: Value| json!({"spec": {"tolerations": [t]}});
        let exists = json!({"key": "karpenter.sh/disrupted", "operator": "Exists"});
        // changes, evictable, waited for
        let cases = [
            (json!({}), true, true),
            (json!({"status": {"phase": "Failed"}}), false, false),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:59:00Z"}}), false, true),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:58:59Z"}}), false, false),
            (
                json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}),
                false,
                true,
            ),
            (toleration(exists), false, false),
            (
                toleration(
                    json!({"key": "karpenter.sh/disrupted", "operator": "Equal", "effect": "NoSchedule"}),
                ),
                false,
                false,
            ),
            (
                toleration(
                    json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}),
                ),
                true,
                true,
            ),
            (toleration(json!({"operator": "Exists"})), false, false),
            (toleration(json!({"operator": "Exists", "effect": "NoExecute"})), true, true),
            (owned_by("v1", "Node"), false, false),
            (owned_by("apps/v1", "DaemonSet"), true, true),
        ];
        for (changes, evictable, waited_for) in cases {
            let pod = pod(&changes);
            assert_eq!(is_evictable(&pod, now()), evictable, "evictable: {changes}");
            assert_eq!(is_waiting_for_eviction(&pod, now()), waited_for, "waited for: {changes}");
        }
    }
}
