//! What plans say about the room of buffers, until it stands in their status.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kerf_api::CapacityBuffer;
use kerf_cluster::{Key, buffers::MOST_VIRTUAL_PODS};
use kerf_model::Pod;
use kerf_runtime::{
    Queue,
    events::{Notice, Severity},
};
use kerf_scheduler::{Plan, Room};

use crate::context::Context;

/// How the room of each buffer stands by the last plan. An operator that has just begun knows nothing, and leaves what the status
/// says.
pub(crate) struct Rooms {
    by_buffer: Mutex<BTreeMap<Key, Room>>,
    /// Of the controller that writes it down.
    queue: Queue<String>,
}

impl Rooms {
    pub(crate) fn new(queue: Queue<String>) -> Self {
        Self { by_buffer: Mutex::default(), queue }
    }

    pub(super) fn of(&self, buffer: &Key) -> Option<Room> {
        self.rooms().get(buffer).cloned()
    }

    pub(super) fn forget(&self, buffer: &Key) {
        self.rooms().remove(buffer);
    }

    fn put(&self, new: BTreeMap<Key, Room>) {
        let mut rooms = self.rooms();
        for (buffer, room) in &new {
            if rooms.get(buffer) != Some(room) {
                self.queue.add(buffer.to_string());
            }
        }
        *rooms = new;
    }

    fn rooms(&self) -> MutexGuard<'_, BTreeMap<Key, Room>> {
        self.by_buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rooms").field(&*self.rooms()).finish()
    }
}

/// Takes in a plan. `promised` are virtual pods that a claim on its way has room for, which the plan leaves out. Returns whether a
/// buffer has to be looked at again: what gives it room comes without an event.
pub(crate) fn take_in(context: &Context, plan: &Plan, promised: &[Arc<Pod>]) -> bool {
    let buffers: BTreeMap<Key, (Arc<CapacityBuffer>, usize)> = {
        let cluster = context.index.read();
        if !cluster.has_buffers() {
            return false;
        }
        let known = context.known_labels();
        let resolved = cluster.buffers().iter().filter_map(|(key, buffer)| {
            let resolved = cluster.resolve_readable(buffer, &known).ok()?;
            let wanted = usize::try_from(resolved.replicas).ok()?;
            Some((key.clone(), (Arc::clone(buffer), wanted)))
        });
        resolved.collect()
    };
    let mut rooms = rooms(plan, promised);
    rooms.retain(|key, _| buffers.contains_key(key));
    for (key, (buffer, wanted)) in &buffers {
        let room = rooms.entry(key.clone()).or_default();
        // Beyond what a plan has at most.
        room.missing += wanted.saturating_sub(room.ready + room.coming + room.missing);
        if room.missing > 0 {
            tell_missing(context, buffer, room, *wanted);
        }
    }
    let waits = rooms.values().any(|room| room.coming + room.missing > 0);
    context.rooms.put(rooms);
    waits
}

fn rooms(plan: &Plan, promised: &[Arc<Pod>]) -> BTreeMap<Key, Room> {
    let planned = plan.rooms().into_iter();
    let mut rooms: BTreeMap<Key, Room> =
        planned.map(|((namespace, name), room)| (Key::namespaced(namespace, name), room)).collect();
    for pod in promised {
        let buffer = pod.buffer.as_deref().unwrap_or_default();
        rooms.entry(Key::namespaced(&pod.namespace, buffer)).or_default().coming += 1;
    }
    rooms
}

/// There is no pod to tell: what is said stands on the buffer.
fn tell_missing(context: &Context, buffer: &CapacityBuffer, room: &Room, wanted: usize) {
    let why = match &room.refusal {
        // It gets its answer from the next plan.
        Some(refusal) if refusal.is_deferral() => return,
        Some(refusal) => refusal.to_string(),
        None => format!("a plan has no more than {MOST_VIRTUAL_PODS} virtual pods"),
    };
    let missing = room.missing;
    let message = format!("No room for {missing} of {wanted} virtual pods: {why}");
    let notice = Notice::about(buffer, Severity::Warning, "BufferUnschedulable", message);
    context.recorder.record(notice.repeat_after(Duration::from_mins(5)));
}
