//! The end of a class: nothing that was made for it stays in the account.

use std::time::Duration;

use kerf_api::NodeClass;
use kerf_aws_api::{Ec2NodeClass, TERMINATION_FINALIZER, tags};
use kerf_aws_client::all_pages;
use kerf_aws_model::{class_status::templates_request, instance_profile};
use kerf_aws_wire::iam::ListInstanceProfilesRequest;
use kerf_provider::{BoxError, ControllerContext};
use kerf_runtime::{
    Fence, Outcome,
    events::{Notice, Severity},
};
use tracing::info;

use super::{NodeClasses, is_ours, profile};

/// The last claim that goes comes first.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

impl NodeClasses {
    pub(super) async fn terminate(
        &self,
        context: &dyn ControllerContext,
        class: &NodeClass,
    ) -> Result<Outcome, BoxError> {
        let object = class.object();
        let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == TERMINATION_FINALIZER) {
            return Ok(Outcome::Done);
        }
        let name = &class.reference.name;
        let claims = claims_of(context, name);
        if !claims.is_empty() {
            wait_for(context, class, &claims);
            return Ok(Outcome::After(LOOK_AGAIN));
        }
        if let Err(error) = self.clean_up(context.fence(), class).await {
            tell(context, class, Severity::Warning, "CleanUpFailed", error.to_string());
            return Err(error);
        }
        let mut changed = object.clone();
        if let Some(finalizers) = &mut changed.metadata.finalizers {
            finalizers.retain(|finalizer| finalizer != TERMINATION_FINALIZER);
        }
        context.write_node_class(class, changed).await?;
        self.forget(name);
        Ok(Outcome::Done)
    }

    async fn clean_up(&self, fence: &Fence, class: &NodeClass) -> Result<(), BoxError> {
        self.delete_profiles(fence, class).await?;
        self.delete_templates(fence, &class.reference.name).await
    }

    /// Those that Kerf or Karpenter made for the class. IAM has no endpoint in an isolated VPC.
    async fn delete_profiles(&self, fence: &Fence, class: &NodeClass) -> Result<(), BoxError> {
        if self.cloud.options().isolated_vpc {
            return Ok(());
        }
        let (aws, cluster) = (self.cloud.aws(), self.cloud.cluster());
        let uid = class.object().metadata.uid.clone().unwrap_or_default();
        let path = instance_profile::class_path(&cluster.access.name, &cluster.region, &uid);
        let request = ListInstanceProfilesRequest { path_prefix: Some(path), ..Default::default() };
        for found in all_pages(aws, request).await? {
            profile::delete(aws, fence, &found).await?;
        }
        let name = &class.reference.name;
        let legacy = instance_profile::legacy_name(&cluster.access.name, &cluster.region, name);
        if let Some(found) = profile::get(aws, &legacy).await?
            && instance_profile::is_of_class(&found, &cluster.access.name, name)
        {
            profile::delete(aws, fence, &found).await?;
        }
        Ok(())
    }

    async fn delete_templates(&self, fence: &Fence, class: &str) -> Result<(), BoxError> {
        let (aws, cluster) = (self.cloud.aws(), self.cloud.cluster());
        let request = templates_request(&[
            (tags::EKS_CLUSTER_NAME, &cluster.access.name),
            (tags::NODE_CLASS, class),
        ]);
        for template in all_pages(aws, request).await? {
            self.cloud.templates().delete(aws, fence, &template).await?;
        }
        Ok(())
    }
}

fn claims_of(context: &dyn ControllerContext, class: &str) -> Vec<String> {
    let cluster = context.cluster();
    let claims = cluster.claims().values().filter(|claim| {
        let reference = &claim.spec.node_class_ref;
        is_ours(reference) && reference.name == class
    });
    claims.filter_map(|claim| claim.metadata.name.clone()).collect()
}

fn wait_for(context: &dyn ControllerContext, class: &NodeClass, claims: &[String]) {
    const NAMED: usize = 5;
    let mut names = claims[..claims.len().min(NAMED)].join(", ");
    if let Some(more) = claims.len().checked_sub(NAMED).filter(|more| *more > 0) {
        names = format!("{names} and {more} more");
    }
    info!(class = class.reference.name, claims = names, "deletion waits for NodeClaims");
    let message = format!("Waiting on NodeClaim termination for {names}");
    tell(context, class, Severity::Normal, "WaitingOnNodeClaimTermination", message);
}

fn tell(
    context: &dyn ControllerContext,
    class: &NodeClass,
    severity: Severity,
    reason: &'static str,
    message: String,
) {
    let metadata = class.object().metadata.clone();
    let about = Ec2NodeClass { metadata, ..Default::default() };
    context.recorder().record(Notice::about(&about, severity, reason, message));
}
