//! CapacityBuffers: their status, and what the provisioner finds out about their room.
//!
//! The pods that stand for the room are made where a snapshot is made (`kerf-cluster/src/buffers.rs`), from what the index holds, so
//! that no plan waits for a status. The status is written here and nowhere else, in one request: what a plan says of a buffer is
//! kept in memory and comes with it.

mod rooms;
mod status;

use kerf_api::{CapacityBuffer, ObjectExt};
use kerf_cluster::{Change, Cluster, Delta, Key};
use kerf_runtime::{Lock, Outcome, Queue, Workers, patch};
use kube::Api;

use crate::{
    context::Context,
    controller::Reconciler,
    error::{Result, Tried},
};

pub(crate) use rooms::{Rooms, take_in};

pub(crate) struct Buffers;

impl Reconciler for Buffers {
    const WORKERS: Workers = Workers::new("capacitybuffer", 10);

    /// A buffer is looked at when it changes, and when what it refers to does. Its key is `namespace/name`.
    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>) {
        if let Change::CapacityBuffer(delta) = change {
            queue.add(delta.key.to_string());
        }
        cluster.buffers_that_refer_to(change).iter().for_each(|key| queue.add(key.to_string()));
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let (namespace, name) = name.split_once('/').unwrap_or_default();
        let key = Key::namespaced(namespace, name);
        let (buffer, changed) = {
            let cluster = context.index.read();
            let buffer = cluster.buffers().get(&key).filter(|buffer| !buffer.is_deleting());
            let Some(buffer) = buffer else {
                context.rooms.forget(&key);
                return Ok(Outcome::Done);
            };
            let resolved = cluster.resolve_readable(buffer, &context.known_labels());
            let room = context.rooms.of(&key);
            (buffer.clone(), status::judged(buffer, resolved, room.as_ref(), context.now()))
        };
        let api: Api<CapacityBuffer> = Api::namespaced(context.client.clone(), namespace);
        let written = patch::patch_both(&api, &*buffer, &changed, Lock::Optimistic).await;
        written.tried(|| format!("updating the status of CapacityBuffer {key}"))?;
        Ok(Outcome::Done)
    }
}

/// Whether a buffer may have less room after the change, or want more. What gives it room is found when it is looked at again.
pub(crate) fn may_need_room(change: &Change, cluster: &Cluster) -> bool {
    if !cluster.keeps_buffers() {
        return false;
    }
    match change {
        Change::CapacityBuffer(delta) => is_other_wish(delta),
        Change::PodTemplate(_)
        | Change::Deployment(_)
        | Change::ReplicaSet(_)
        | Change::StatefulSet(_) => !cluster.buffers_that_refer_to(change).is_empty(),
        _ if !cluster.has_buffers() => false,
        Change::Pod(Delta { before, after: Some(after), .. }) => {
            let comes_to = after.node_name();
            let was_on = before.as_ref().and_then(|before| before.node_name());
            comes_to.is_some() && comes_to != was_on
        }
        Change::Node(Delta { before, after, .. }) => match (before, after) {
            (Some(before), Some(after)) => {
                before.spec != after.spec || before.metadata.labels != after.metadata.labels
            }
            (_, after) => after.is_none(),
        },
        Change::NodeClaim(delta) => delta.after.is_none(),
        _ => false,
    }
}

/// Its status is written by this operator, and says nothing new to it.
fn is_other_wish(delta: &Delta<CapacityBuffer>) -> bool {
    match (&delta.before, &delta.after) {
        (Some(before), Some(after)) => before.spec != after.spec,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
