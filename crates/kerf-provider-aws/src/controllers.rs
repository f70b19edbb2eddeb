//! The provider's own controllers and periodic tasks.

mod affected;
mod collection;
pub(crate) mod interruption;
mod joining;
mod memory;
mod node_class;
mod refresh;
mod reservations;
mod tagging;
mod trouble;
mod zonal_shift;

use std::sync::Arc;

use kerf_cluster::Delta;
use kerf_provider::Registry;

use crate::cloud::AwsCloud;

/// They run while this process leads.
pub(crate) fn register(cloud: &Arc<AwsCloud>, registry: &mut Registry) {
    let offers = Arc::clone(cloud.offers());
    registry.add_lasting("aws.offerings", move |_, stop| async move {
        offers.follow_time(stop).await;
    });
    refresh::register(cloud, registry);
    node_class::register(cloud, registry);
    collection::register(cloud, registry);
    interruption::register(cloud, registry);
    reservations::register(cloud, registry);
    registry.add(tagging::Tagging { cloud: Arc::clone(cloud) });
    registry.add(memory::Memory { cloud: Arc::clone(cloud) });
    registry.add(joining::Joining { cloud: Arc::clone(cloud) });
    zonal_shift::register(cloud, registry);
}

/// Whether something holds of an object from this change on.
fn begins<K>(delta: &Delta<K>, holds: impl Fn(&K) -> bool) -> bool {
    let held = delta.before.as_deref().is_some_and(&holds);
    !held && delta.after.as_deref().is_some_and(&holds)
}
