//! The gate for buffers is on, and no API server serves them: the definition is another autoscaler's business, or comes later.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_model::InstanceType;
use kerf_provider::{CloudProvider, NodeClassKind};
use kerf_provider_kwok::KwokProvider;
use kerf_stories::{
    World, chapters,
    clouds::{Cloud, Kwok},
    stories::settings::buffering,
};
use serde_json::Value;

#[derive(Debug)]
struct WithoutBuffers;

impl Cloud for WithoutBuffers {
    fn connect(&self, kwok: Arc<KwokProvider>) -> Arc<dyn CloudProvider> {
        Kwok.connect(kwok)
    }

    fn node_class(&self) -> NodeClassKind {
        Kwok.node_class()
    }

    fn instance_types(&self) -> Vec<InstanceType> {
        Kwok.instance_types()
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        let mut crds = Kwok.crds();
        crds.retain(|crd| crd.spec.names.kind != "CapacityBuffer");
        crds
    }

    fn translate(&self, _object: &mut Value) {}
}

#[tokio::test(start_paused = true)]
async fn an_operator_starts_and_works_where_buffers_are_not_served() {
    let world = World::with_cloud(Arc::new(WithoutBuffers), 7, buffering()).await;
    chapters::life_of_a_node::from_pending_pod_to_nothing(&world).await;
}
