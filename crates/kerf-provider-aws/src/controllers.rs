//! The provider's own controllers and periodic tasks.

mod affected;
mod collection;
mod interruption;
mod node_class;
mod refresh;
mod trouble;

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
    interruption::register(cloud, registry);
}
