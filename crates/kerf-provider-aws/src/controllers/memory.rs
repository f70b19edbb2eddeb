//! How much memory nodes really have, written on their class: estimates hold only until the first node of a type is there.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeExt, labels};
use kerf_aws_api::annotations;
use kerf_aws_model::{images::Images, instance_types::DiscoveredMemory};
use kerf_cluster::{Change, Cluster};
use kerf_model::{Resources, resources::MEMORY};
use kerf_provider::{BoxError, ControllerContext, Reconciler};
use kerf_runtime::{Outcome, Queue, Workers};
use kube::ResourceExt;

use super::begins;
use crate::cloud::AwsCloud;

/// Looks at each node when it has registered.
pub(crate) struct Memory {
    pub(crate) cloud: Arc<AwsCloud>,
}

fn is_registered(node: &Node) -> bool {
    node.labels().get(labels::REGISTERED).is_some_and(|it| it == "true")
}

#[async_trait]
impl Reconciler for Memory {
    /// One: what two nodes say is written on one class.
    fn workers(&self) -> Workers {
        Workers::new("aws.discoveredmemory", 1)
    }

    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        if let Change::Node(delta) = change
            && begins(delta, is_registered)
        {
            queue.add(delta.key.name.clone());
        }
    }

    async fn reconcile(
        &self,
        context: &dyn ControllerContext,
        name: &str,
    ) -> Result<Outcome, BoxError> {
        let found = {
            let cluster = context.cluster();
            let node = cluster.nodes().named(name).cloned();
            node.and_then(|node| {
                let claim = cluster.claim_of(node.provider_id()).ok()?.clone();
                let class = cluster.node_class(&claim.spec.node_class_ref)?.clone();
                Some((node, claim, class))
            })
        };
        let Some((node, claim, class)) = found else { return Ok(Outcome::Done) };
        let of_class = self.cloud.offers().of(&class)?;
        let type_name = node.labels().get(labels::INSTANCE_TYPE).map_or("", String::as_str);
        let amis = of_class.class.status.as_ref().map(|status| status.amis.as_slice());
        let images = Images::new(amis.unwrap_or_default(), self.cloud.labels());
        let image = of_class.instance_type(type_name).and_then(|one| images.of(one));
        let of_claim = claim.status.as_ref().map(|status| status.image_id.as_str());
        // What a node with another image has says nothing of the next one.
        if image.is_none() || image != of_claim {
            return Ok(Outcome::Done);
        }
        let facts = self.cloud.offers().note(|market, _| market.facts(type_name));
        let (Some(facts), Some(bytes)) = (facts, memory_of(&node)) else {
            return Ok(Outcome::Done);
        };
        let mut memory = DiscoveredMemory::of(&of_class.class);
        if memory.observe(&facts, bytes) {
            let mut changed = class.object().clone();
            let text = memory.write(&of_class.class);
            changed.annotations_mut().insert(annotations::DISCOVERED_MEMORY.to_owned(), text);
            context.write_node_class(&class, changed).await?;
            // Its types are others now.
            self.cloud.offers().change(|_, _| {});
        }
        Ok(Outcome::Done)
    }
}

/// In bytes.
fn memory_of(node: &Node) -> Option<u64> {
    let capacity = node.status.as_ref()?.capacity.as_ref()?;
    let memory = Resources::from_api(capacity).ok()?.amount(MEMORY);
    u64::try_from(memory.whole_units()).ok().filter(|bytes| *bytes > 0)
}
