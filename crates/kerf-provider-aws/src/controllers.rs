//! The provider's own controllers and periodic tasks.

mod collection;
mod node_class;
mod refresh;

use std::sync::Arc;

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
}
