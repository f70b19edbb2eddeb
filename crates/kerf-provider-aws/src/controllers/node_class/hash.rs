//! The marks of a class that come before all else: the finalizer, and the hash that claims are compared with.

use std::sync::Arc;

use kerf_api::{NodeClaim, NodeClass, hash::HashAnnotations};
use kerf_aws_api::{Ec2NodeClass, TERMINATION_FINALIZER, hash::NODE_CLASS};
use kerf_provider::{BoxError, ControllerContext};
use kube::ResourceExt;

use super::{NodeClasses, is_ours};

impl NodeClasses {
    /// Nothing is made in the account before the finalizer is written: it would be left behind.
    pub(super) async fn mark(
        &self,
        context: &dyn ControllerContext,
        class: &NodeClass,
        read: &Ec2NodeClass,
    ) -> Result<(), BoxError> {
        let cluster = self.cloud.cluster();
        let hash = read.spec.hash(cluster.access.ca_bundle.as_deref());
        // Before the class gets its new hash: were it the other way round and cut short, hashes of two kinds would be compared.
        if !NODE_CLASS.is_current(read.annotations()) {
            restamp(context, &NODE_CLASS, &class.reference.name, &hash).await?;
        }
        let mut changed = class.object().clone();
        let metadata = &mut changed.metadata;
        let finalizers = metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == TERMINATION_FINALIZER) {
            finalizers.push(TERMINATION_FINALIZER.to_owned());
        }
        NODE_CLASS.write(metadata.annotations.get_or_insert_default(), hash);
        if changed.metadata == class.object().metadata {
            return Ok(());
        }
        context.write_node_class(class, changed).await
    }
}

/// Moves claims to the present way of hashing, so that an upgrade does not make a fleet drift.
async fn restamp(
    context: &dyn ControllerContext,
    annotations: &HashAnnotations,
    class: &str,
    hash: &str,
) -> Result<(), BoxError> {
    let claims: Vec<Arc<NodeClaim>> = {
        let cluster = context.cluster();
        let claims = cluster.claims().values();
        let of_class = |claim: &&Arc<NodeClaim>| {
            let reference = &claim.spec.node_class_ref;
            is_ours(reference) && reference.name == class
        };
        claims.filter(of_class).cloned().collect()
    };
    for claim in claims {
        if let Some(stamped) = annotations.restamped(&claim, hash) {
            context.write_claim(&claim, stamped).await?;
        }
    }
    Ok(())
}
