//! Claims and nodes carry the name of their NodeClass as a label; those from before that rule get it here.

use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, labels};
use kerf_cluster::{Change, Cluster};
use kerf_runtime::{Lock, Outcome, Queue, Workers};
use kube::ResourceExt;

use crate::{
    claim::instance,
    context::Context,
    controller::{Reconciler, add_claim_of},
    error::Result,
};

pub(crate) struct Hydration;

impl Reconciler for Hydration {
    const WORKERS: Workers = Workers::new("nodeclaim.hydration", 1000).up_to(5000);

    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>) {
        match change {
            Change::NodeClaim(delta) => queue.add(delta.key.name.clone()),
            Change::Node(delta) => add_claim_of(delta, cluster, queue),
            _ => {}
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let Some(claim) = context.managed_claim(name) else { return Ok(Outcome::Done) };
        let (key, value) = node_class_label(&claim);
        if claim.labels().get(&key) != Some(&value) {
            let mut changed = NodeClaim::clone(&claim);
            changed.labels_mut().insert(key.clone(), value.clone());
            let what = || format!("labelling NodeClaim {name}");
            context.write_claim(&claim, changed, Lock::None, what).await?;
        }
        let provider_id = claim.provider_id();
        let Ok(node) = context.index.read().node_of(provider_id).cloned() else {
            return Ok(Outcome::Done);
        };
        let is_own = !instance::is_owned_by_another(&node, &claim);
        if is_own && node.labels().get(&key) != Some(&value) {
            let mut changed = Node::clone(&node);
            changed.labels_mut().insert(key, value);
            let what = || format!("labelling Node {}", node.name_any());
            context.write(&*node, changed, Lock::None, what).await?;
        }
        Ok(Outcome::Done)
    }
}

fn node_class_label(claim: &NodeClaim) -> (String, String) {
    let class = &claim.spec.node_class_ref;
    (labels::node_class(&class.group, &class.kind), class.name.clone())
}
