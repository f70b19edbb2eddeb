//! A cluster that was made for an older Karpenter, and an operator with the feature gate `NodeOverlay`.

use std::sync::Arc;

use kerf_stories::{
    World,
    chapters::overlays::{WithoutDefinition, an_operator_works_where_there_is_no_definition},
    stories::settings,
};

#[tokio::test(start_paused = true)]
async fn the_definition_may_be_missing() {
    let cloud = Arc::new(WithoutDefinition);
    let world = World::with_cloud(cloud, 7, settings::overlaying()).await;
    an_operator_works_where_there_is_no_definition(world).await;
}
