//! Ending pods: through the eviction API, which respects disruption budgets, or by force when time is up.

use kerf_api::NodeExt;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{self as core, Node},
    policy::v1::Eviction,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, DeleteOptions, ObjectMeta};
use kerf_api::conditions::{Conditioned, DISRUPTION_REASON, REBOOT_REQUESTED, REBOOTING};
use kerf_cluster::{Key, Pod, pods};
use kerf_runtime::{
    Outcome, Queue, Workers,
    events::{Notice, Severity},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
    core::Status,
};
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    error::{Result, Tried},
};

const WORKERS: Workers = Workers::new("eviction-queue", 100)
    .up_to(5000)
    .backoff(Duration::from_millis(100), Duration::from_secs(10))
    .bucket(100, 1000);

/// A pod, not its name: one of the same name that comes after it is another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodId {
    namespace: String,
    name: String,
    uid: String,
}

impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Until when a pod is asked to go, and what comes then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The node goes. A pod that would still be there then is deleted by force, if there is such a time.
    End(Option<Timestamp>),
    /// The machine is restarted. A pod that is still there then stays, and is asked no more.
    Reboot(Timestamp),
}

impl Limit {
    /// When pods are deleted by force.
    pub(super) fn force(self) -> Option<Timestamp> {
        match self {
            Self::End(deadline) => deadline,
            Self::Reboot(_) => None,
        }
    }

    /// The stricter of both: a node that goes does not come back from a reboot.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::End(one), Self::End(other)) => {
                Self::End([one, other].into_iter().flatten().min())
            }
            (Self::Reboot(one), Self::Reboot(other)) => Self::Reboot(one.min(other)),
            (end @ Self::End(_), Self::Reboot(_)) | (Self::Reboot(_), end @ Self::End(_)) => end,
        }
    }
}

/// The pods to evict. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evictions {
    queue: Queue<PodId>,
    /// When each must be gone at the latest, if at all.
    limits: Arc<Mutex<BTreeMap<PodId, Limit>>>,
}

impl Evictions {
    /// Adds a pod. A deadline that was given before is never loosened.
    pub(crate) fn add(&self, pod: &Pod, limit: Limit) {
        let id = PodId {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().to_owned(),
        };
        let mut limits = self.lock();
        let Some(known) = limits.get_mut(&id) else {
            limits.insert(id.clone(), limit);
            drop(limits);
            self.queue.add(id);
            return;
        };
        let stricter = known.and(limit);
        if stricter != *known {
            *known = stricter;
            drop(limits);
            self.queue.add(id);
        }
    }

    pub(crate) async fn run(self, context: Arc<Context>, stop: CancellationToken) {
        let (evictions, context) = (&self, &context);
        evictions
            .queue
            .run(
                context.settings.cpu.scaled(WORKERS),
                &context.metrics.work,
                stop,
                |id| async move {
                    let outcome = evictions.end(context, &id).await?;
                    if outcome == Outcome::Done {
                        evictions.lock().remove(&id);
                    }
                    Ok::<_, crate::error::Error>(outcome)
                },
            )
            .await;
    }

    async fn end(&self, context: &Context, id: &PodId) -> Result<Outcome> {
        let limit = self.lock().get(id).copied().unwrap_or(Limit::End(None));
        let deadline = limit.force();
        let key = Key::namespaced(&id.namespace, &id.name);
        let found = context.index.read().pods().get(&key).cloned();
        let Some(pod) = found.filter(|pod| pod.uid() == id.uid) else {
            return Ok(Outcome::Done);
        };
        let now = context.now();
        if needs_force(&pod, deadline, now) {
            return force(context, id, &pod, deadline.unwrap_or(now)).await;
        }
        if !pods::is_active(&pod) {
            return Ok(Outcome::Done);
        }
        if let Limit::Reboot(until) = limit
            && (now >= until || !is_wanted_for_a_reboot(context, &pod))
        {
            return Ok(Outcome::Done);
        }
        if !pods::is_evictable(&pod, now) {
            return Ok(Outcome::Backoff);
        }
        evict(context, id, &pod).await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PodId, Limit>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the drain before a reboot still goes on: it may have been called off.
fn is_wanted_for_a_reboot(context: &Context, pod: &Pod) -> bool {
    let claim = node_of(context, pod)
        .and_then(|node| context.index.read().claim_of(node.provider_id()).cloned().ok());
    let condition = claim.as_ref().and_then(|claim| claim.condition(REBOOTING));
    condition.is_some_and(|it| it.status == "True" && it.reason == REBOOT_REQUESTED)
}

async fn evict(context: &Context, id: &PodId, pod: &Pod) -> Result<Outcome> {
    let api: Api<core::Pod> = Api::namespaced(context.client.clone(), &id.namespace);
    let (params, eviction) = (PostParams::default(), eviction(id));
    let answer: kube::Result<Status> =
        api.create_subresource("eviction", &id.name, &params, &eviction).await;
    context.metrics.eviction_answered(match &answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        // No answer at all.
        Err(_) => 0,
    });
    let blocked = match answer {
        Ok(_) => {
            let reason = reason(context, pod);
            context.metrics.pod_drained(&reason);
            let message = format!("Evicted pod: {reason}");
            let notice = Notice::of(pod.object_ref(), Severity::Normal, "Evicted", message);
            context.recorder.record(notice);
            return Ok(Outcome::Done);
        }
        // Gone, or another pod by the same name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            return Ok(Outcome::Done);
        }
        Err(kube::Error::Api(status)) if status.code == 429 => "evicting pod violates a PDB",
        // The API server's answer to two budgets is an internal error that only its text tells from others.
        Err(kube::Error::Api(status))
            if status.message.contains("more than one PodDisruptionBudget") =>
        {
            "eviction does not support multiple PDBs"
        }
        Err(error) => return Err(error).tried(|| format!("evicting pod {id}")),
    };
    if let Some(node) = node_of(context, pod) {
        let message = format!("Failed to drain node, {blocked} (Pod={id})");
        let notice = Notice::about(&*node, Severity::Warning, "FailedDraining", message);
        // Apart from the drain's own count of pods, which would otherwise drown what holds them.
        context.recorder.record(notice.same_if(vec![node.name_any(), id.to_string()]));
    }
    Ok(Outcome::Backoff)
}

/// Deletes a pod past its budget and its annotation, with what is left of its grace period.
async fn force(context: &Context, id: &PodId, pod: &Pod, deadline: Timestamp) -> Result<Outcome> {
    let grace = seconds_left(deadline, context.now());
    let wanted = pod.spec().termination_grace_period_seconds;
    let message = format!(
        "Deleting the pod to accommodate the terminationTime {deadline} of the node. The pod was granted {grace} seconds of grace-period of its {} terminationGracePeriodSeconds. This bypasses the PDB of the pod and the do-not-disrupt annotation.",
        wanted.unwrap_or_default()
    );
    let notice = Notice::of(pod.object_ref(), Severity::Normal, "Disrupted", message);
    context.recorder.record(notice);
    let api: Api<core::Pod> = Api::namespaced(context.client.clone(), &id.namespace);
    match api.delete(&id.name, &only_this(id).grace_period(grace)).await {
        Ok(_) => {
            context.metrics.pod_drained(&reason(context, pod));
            Ok(Outcome::Done)
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Outcome::Done),
        Err(error) => Err(error).tried(|| format!("deleting pod {id}")),
    }
}

/// What a pod is given of its grace period. Never nothing: that would take the object away while
/// its containers still run.
fn seconds_left(deadline: Timestamp, now: Timestamp) -> u32 {
    let left = deadline.duration_since(now).as_secs().max(1);
    u32::try_from(left).unwrap_or(u32::MAX)
}

/// Whether the pod must be deleted now, because its own grace period would end after the node's time is up.
pub(super) fn needs_force(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    let Some(deadline) = deadline else { return false };
    if let Some(deletion) = pod.deletion() {
        return deletion.at > deadline;
    }
    let grace = pod.spec().termination_grace_period_seconds;
    grace.is_some_and(|grace| {
        let latest = deadline.checked_sub(SignedDuration::from_secs(grace));
        now > latest.unwrap_or(Timestamp::MIN)
    })
}

/// Why the pod goes, for its owner.
fn reason(context: &Context, pod: &Pod) -> String {
    let Some(node) = node_of(context, pod) else { return String::new() };
    let claim = context.index.read().claim_of(node.provider_id()).cloned();
    let Ok(claim) = claim else { return String::new() };
    match claim.condition(DISRUPTION_REASON) {
        Some(reason) if reason.status == "True" => reason.reason.clone(),
        _ => "Forceful Termination".into(),
    }
}

fn node_of(context: &Context, pod: &Pod) -> Option<Arc<Node>> {
    let name = pods::node_name(pod)?;
    context.index.read().nodes().named(name).cloned()
}

/// `Api::evict` writes the options under a name that the API server does not know. It leaves them out, and evicts whichever pod has
/// the name.
fn eviction(id: &PodId) -> Eviction {
    let uid = Some(id.uid.clone());
    let preconditions = Some(meta::Preconditions { uid, resource_version: None });
    Eviction {
        metadata: ObjectMeta {
            name: Some(id.name.clone()),
            namespace: Some(id.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions { preconditions, ..DeleteOptions::default() }),
    }
}

fn only_this(id: &PodId) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: Some(id.uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_eviction_is_of_one_pod_and_not_of_a_name() {
        let id = PodId { namespace: "n".into(), name: "a".into(), uid: "u".into() };
        let expected = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "a", "namespace": "n"},
            "deleteOptions": {"preconditions": {"uid": "u"}},
        });
        assert_eq!(serde_json::to_value(eviction(&id)).unwrap(), expected);
    }

    #[test]
    fn force_is_used_when_the_grace_period_no_longer_fits() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let in_seconds = |s: i64| now + SignedDuration::from_secs(s);
        let cases = [
            // deadline, grace, deleted in, forced
            (None, Some(30), None, false),
            (Some(60), Some(30), None, false),
            (Some(30), Some(30), None, false),
            (Some(29), Some(30), None, true),
            (Some(29), None, None, false),
            (Some(60), Some(30), Some(60), false),
            (Some(60), Some(30), Some(61), true),
        ];
        for (deadline, grace, deleted, forced) in cases {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"deletionTimestamp": deleted.map(|s| in_seconds(s).to_string())},
                "spec": {"containers": [], "terminationGracePeriodSeconds": grace},
            }))
            .unwrap();
            let deadline = deadline.map(in_seconds);
            assert_eq!(
                needs_force(&pod, deadline, now),
                forced,
                "{deadline:?} {grace:?} {deleted:?}"
            );
        }
    }

    #[test]
    fn a_pod_that_is_deleted_has_what_is_left_and_at_least_a_second() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (left, granted) in [
            (SignedDuration::from_millis(90_500), 90),
            (SignedDuration::from_millis(999), 1),
            (SignedDuration::ZERO, 1),
            (SignedDuration::from_mins(-1), 1),
            (SignedDuration::from_secs(i64::from(u32::MAX) + 1), u32::MAX),
        ] {
            assert_eq!(seconds_left(now + left, now), granted, "{left}");
        }
    }

    #[test]
    fn a_deadline_is_never_loosened() {
        let evictions = Evictions::default();
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}})).unwrap();
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        for (deadline, expected) in
            [(None, None), (at(20), at(20)), (at(30), at(20)), (None, at(20)), (at(10), at(10))]
        {
            evictions.add(&pod, Limit::End(deadline));
            let stored: Vec<_> = evictions.lock().values().copied().collect();
            assert_eq!(stored, [Limit::End(expected)]);
        }
    }

    #[test]
    fn a_node_that_goes_is_not_drained_as_one_that_comes_back() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (end, reboot) =
            (|second| Limit::End(Some(at(second))), |second| Limit::Reboot(at(second)));
        for (known, new, expected) in [
            (reboot(20), reboot(30), reboot(20)),
            (reboot(20), reboot(10), reboot(10)),
            (reboot(20), end(30), end(30)),
            (reboot(20), Limit::End(None), Limit::End(None)),
            (end(30), reboot(20), end(30)),
            (Limit::End(None), reboot(20), Limit::End(None)),
        ] {
            assert_eq!(known.and(new), expected, "{known:?} {new:?}");
        }
        assert_eq!((end(30).force(), reboot(20).force()), (Some(at(30)), None));
    }
}
