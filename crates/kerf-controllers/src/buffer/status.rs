//! The status of a buffer: what it was resolved to, and its conditions.

use jiff::Timestamp;
use kerf_api::{
    CapacityBuffer, PodTemplateReference,
    capacity_buffer::{LIMITED_BY_QUOTAS, PROVISIONING, READY_FOR_PROVISIONING},
    conditions::Status,
};
use kerf_cluster::buffers::{Resolved, Unresolved};
use kerf_scheduler::Room;

/// The buffer with the status that it is to have.
pub(super) fn judged(
    buffer: &CapacityBuffer,
    resolved: Result<Resolved<'_>, Unresolved>,
    room: Option<&Room>,
    now: Timestamp,
) -> CapacityBuffer {
    let mut judged = buffer.clone();
    let resolved = match resolved {
        Ok(resolved) => resolved,
        Err(why) => {
            let (reason, message) = (why.reason(), why.to_string());
            let not_ready = (Status::False, reason, message.as_str());
            judged.set_condition(READY_FOR_PROVISIONING, not_ready, now);
            let message = "Buffer is not ReadyForProvisioning";
            let waits = (Status::False, "NotReadyForProvisioning", message);
            judged.set_condition(PROVISIONING, waits, now);
            return judged;
        }
    };
    let reference = buffer.spec.pod_template_ref.as_ref();
    let status = judged.status.get_or_insert_default();
    status.pod_template_ref =
        reference.map(|reference| PodTemplateReference { name: reference.name.clone() });
    status.pod_template_generation = resolved.generation;
    status.replicas = Some(resolved.replicas);
    status.provisioning_strategy = Some(buffer.spec.provisioning_strategy.clone());
    let ready = (Status::True, "Resolved", "Pod template resolved successfully");
    judged.set_condition(READY_FOR_PROVISIONING, ready, now);

    let wanted = usize::try_from(resolved.replicas).unwrap_or_default();
    if wanted == 0 {
        let empty = (Status::False, "BufferEmpty", "Buffer has zero desired replicas");
        judged.set_condition(PROVISIONING, empty, now);
        set_limited(&mut judged, None, now);
        return judged;
    }
    // What is known may be about another number of pods; a plan with the new one is about to be made.
    let Some(room) = room.filter(|room| room.ready + room.coming + room.missing == wanted) else {
        return judged;
    };
    let Room { coming, missing, .. } = room;
    let (status, reason, message) = if coming + missing > 0 {
        let message =
            format!("{coming}/{wanted} virtual pods required new capacity, {missing} failed");
        (Status::False, "RequiresNewCapacity", message)
    } else {
        let message = format!("All {wanted} virtual pods fit on existing capacity");
        (Status::True, "FitsExistingCapacity", message)
    };
    judged.set_condition(PROVISIONING, (status, reason, &message), now);
    set_limited(&mut judged, Some(room), now);
    judged
}

/// Karpenter has the condition and never writes it: there a limit looks like a launch that takes its time.
fn set_limited(buffer: &mut CapacityBuffer, room: Option<&Room>, now: Timestamp) {
    let limit = room.and_then(|room| room.refusal.as_ref()?.limit());
    let message = limit.map(ToString::to_string);
    let limited = match &message {
        Some(message) => (Status::True, "PoolLimitReached", message.as_str()),
        None => (Status::False, "WithinLimits", "No limit of a NodePool keeps room from it"),
    };
    buffer.set_condition(LIMITED_BY_QUOTAS, limited, now);
}
