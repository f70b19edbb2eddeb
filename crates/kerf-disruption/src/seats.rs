//! Where the room of buffers is.
//!
//! A virtual pod is bound to no node, so each look works out anew where there is room. Those that have a place on a node take part
//! in every what-if: behind the real pods, as in any plan, and none may lose its place without another. Those that have none are
//! left out. They are the provisioner's business, and must not make a command larger or stand in its way.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use kerf_model::Snapshot;

use crate::settings::Settings;

/// The snapshot with those virtual pods only that have their place on an initialised node, and with the number of them by node.
pub fn seated<'s>(snapshot: &'s Snapshot, settings: &Settings) -> Cow<'s, Snapshot> {
    if snapshot.virtual_pods.is_empty() {
        return Cow::Borrowed(snapshot);
    }
    let mut seated = snapshot.clone();
    loop {
        let plan = kerf_scheduler::schedule(&seated, &settings.scheduling);
        let mut seats = BTreeMap::new();
        let mut kept = BTreeSet::new();
        // A node that is starting may never be ready, and nothing is moved onto it.
        for placement in plan.buffers.placements.iter().filter(|one| one.node.initialized) {
            seats.insert(placement.node.name.clone(), placement.pods.len());
            kept.extend(placement.pods.iter().map(|pod| pod.uid.clone()));
        }
        let before = seated.virtual_pods.len();
        seated.virtual_pods.retain(|pod| kept.contains(&pod.uid));
        seated.seats = seats;
        // Those that were left out may have been what others spread over, so that these find a place no more.
        if seated.virtual_pods.len() == before || seated.virtual_pods.is_empty() {
            return Cow::Owned(seated);
        }
    }
}
