//! Tags that an instance gets after its launch. Kerf writes them with the launch; instances that Karpenter launched may lack them.

use std::sync::Arc;

use async_trait::async_trait;
use kerf_api::{NodeClaim, ObjectExt};
use kerf_aws_api::annotations;
use kerf_aws_model::instance::ProviderId;
use kerf_aws_wire::ec2::{CreateTagsRequest, Tag};
use kerf_cluster::{Change, Cluster};
use kerf_provider::{BoxError, ControllerContext, Reconciler};
use kerf_runtime::{Outcome, Queue, Workers};
use kube::ResourceExt;

use super::begins;
use crate::cloud::AwsCloud;

const WRITTEN: [&str; 2] = [annotations::INSTANCE_TAGGED, annotations::CLUSTER_NAME_TAGGED];

/// Writes the tags that are missing, by claim.
pub(crate) struct Tagging {
    pub(crate) cloud: Arc<AwsCloud>,
}

/// Whether the tags of the claim's instance are still to be looked at. Its name is that of its node, which comes last.
fn is_due(claim: &NodeClaim) -> bool {
    let is_written = |key: &&str| claim.annotations().get(*key).is_some_and(|it| it == "true");
    !claim.is_deleting() && !claim.node_name().is_empty() && !WRITTEN.iter().all(is_written)
}

#[async_trait]
impl Reconciler for Tagging {
    fn workers(&self) -> Workers {
        Workers::new("nodeclaim.tagging", 10)
    }

    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        if let Change::NodeClaim(delta) = change
            && begins(delta, is_due)
        {
            queue.add(delta.key.name.clone());
        }
    }

    async fn reconcile(
        &self,
        context: &dyn ControllerContext,
        name: &str,
    ) -> Result<Outcome, BoxError> {
        let claim = context.cluster().claims().named(name).filter(|claim| is_due(claim)).cloned();
        let Some(claim) = claim else { return Ok(Outcome::Done) };
        let Ok(id) = claim.provider_id().parse::<ProviderId>() else { return Ok(Outcome::Done) };
        let Some(instance) = self.cloud.instances().get(&id.instance).await? else {
            return Ok(Outcome::Done);
        };
        let cluster = self.cloud.cluster();
        let missing = instance.missing_tags(&cluster.access.name, name, claim.node_name());
        if !missing.is_empty() {
            let tag = |(key, value)| Tag { key: Some(key), value: Some(value) };
            let request = CreateTagsRequest {
                resources: vec![id.instance],
                tags: missing.into_iter().map(tag).collect(),
                ..CreateTagsRequest::default()
            };
            context.fence().check()?;
            self.cloud.aws().create_tags(&request).await?;
        }
        let mut tagged = NodeClaim::clone(&claim);
        let written = WRITTEN.map(|key| (key.to_owned(), "true".to_owned()));
        tagged.annotations_mut().extend(written);
        context.write_claim(&claim, tagged).await?;
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_due_once_the_node_is_known_and_until_they_are_written() {
        for (node, annotations, expected) in [
            ("", &[][..], false),
            ("n", &[], true),
            ("n", &[(WRITTEN[0], "true")], true),
            ("n", &[(WRITTEN[0], "true"), (WRITTEN[1], "false")], true),
            ("n", &[(WRITTEN[0], "true"), (WRITTEN[1], "true")], false),
        ] {
            let mut claim = NodeClaim::default();
            claim.status.get_or_insert_default().node_name = node.to_owned();
            let written = annotations.iter().map(|(key, it)| ((*key).to_owned(), (*it).to_owned()));
            claim.annotations_mut().extend(written);
            assert_eq!(is_due(&claim), expected, "{node} {annotations:?}");
        }
    }
}
