//! Instances that do not become nodes: their claims say why, before they are given up.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use kerf_api::{
    NodeClaim, NodeExt, ObjectExt,
    conditions::{Conditioned, LAUNCHED, REGISTERED},
};
use kerf_aws_api::Ec2NodeClass;
use kerf_aws_client::AwsError;
use kerf_aws_model::{
    instance::ProviderId,
    joining::{Facts, NotJoined},
};
use kerf_aws_wire::ec2::{
    DescribeInstanceStatusRequest, DescribeInstancesRequest, GetConsoleOutputRequest, Instance,
    InstanceStatus,
};
use kerf_cluster::{Change, Cluster};
use kerf_provider::{BoxError, ControllerContext, Reconciler};
use kerf_runtime::{
    Outcome, Queue, Workers,
    events::{Notice, Severity},
};
use tracing::warn;

use super::begins;
use crate::cloud::AwsCloud;

/// Most nodes have joined by then. They have fifteen minutes.
const FIRST_LOOK: Duration = Duration::from_mins(3);
const LOOK_AGAIN: Duration = Duration::from_mins(4);

/// Looks after claims between launch and registration.
pub(crate) struct Joining {
    pub(crate) cloud: Arc<AwsCloud>,
}

fn is_awaited(claim: &NodeClaim) -> bool {
    !claim.is_deleting() && claim.is_true(LAUNCHED) && !claim.is_true(REGISTERED)
}

#[async_trait]
impl Reconciler for Joining {
    fn workers(&self) -> Workers {
        Workers::new("aws.joining", 2)
    }

    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        if let Change::NodeClaim(delta) = change
            && begins(delta, is_awaited)
        {
            queue.add_after(delta.key.name.clone(), FIRST_LOOK);
        }
    }

    async fn reconcile(
        &self,
        context: &dyn ControllerContext,
        name: &str,
    ) -> Result<Outcome, BoxError> {
        let claim = context.cluster().claims().named(name).filter(|it| is_awaited(it)).cloned();
        let Some(claim) = claim else { return Ok(Outcome::Done) };
        let launched = claim.condition(LAUNCHED).map(|it| it.last_transition_time.0);
        let passed = launched.map(|launched| context.clock().since(launched));
        let passed = passed.and_then(|passed| Duration::try_from(passed).ok()).unwrap_or_default();
        if let Some(rest) = FIRST_LOOK.checked_sub(passed).filter(|rest| !rest.is_zero()) {
            return Ok(Outcome::After(rest));
        }
        let verdict = self.look(context, &claim).await?;
        let minutes = passed.as_secs() / 60;
        let message = format!("No node after {minutes} minutes. {verdict}");
        warn!(claim = name, "{message}");
        context.recorder().record(Notice::about(
            &*claim,
            Severity::Warning,
            "NodeNotJoined",
            message,
        ));
        Ok(Outcome::After(LOOK_AGAIN))
    }
}

impl Joining {
    async fn look(
        &self,
        context: &dyn ControllerContext,
        claim: &NodeClaim,
    ) -> Result<NotJoined, BoxError> {
        let id = claim.provider_id().parse::<ProviderId>()?.instance;
        let instance = self.instance(&id).await?;
        let (status, console) = (self.status(&id).await?, self.console(&id).await);
        let dns_name = instance.as_ref().and_then(|instance| instance.private_dns_name.clone());
        let (namesake, class) = {
            let cluster = context.cluster();
            let node = dns_name.and_then(|name| cluster.nodes().named(&name));
            let class = cluster.node_class(&claim.spec.node_class_ref);
            let class = class.and_then(|class| Ec2NodeClass::read(class).ok());
            (node.map(|node| node.provider_id().to_owned()), class)
        };
        let endpoint = self.cloud.cluster().access.endpoint.clone();
        let facts = Facts {
            instance: instance.as_ref(),
            status: status.as_ref(),
            console: console.as_deref(),
            namesake: namesake.as_deref(),
            class: class.as_ref(),
            endpoint: &endpoint,
        };
        Ok(facts.verdict())
    }

    /// Also one that was terminated, which says why.
    async fn instance(&self, id: &str) -> Result<Option<Instance>, AwsError> {
        let request = DescribeInstancesRequest {
            instance_ids: vec![id.to_owned()],
            ..DescribeInstancesRequest::default()
        };
        match self.cloud.aws().describe_instances(&request).await {
            Ok(found) => Ok(found.reservations.into_iter().flat_map(|one| one.instances).next()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Of instances that run; EC2 gives no others.
    async fn status(&self, id: &str) -> Result<Option<InstanceStatus>, AwsError> {
        let request = DescribeInstanceStatusRequest {
            instance_ids: vec![id.to_owned()],
            ..DescribeInstanceStatusRequest::default()
        };
        match self.cloud.aws().describe_instance_status(&request).await {
            Ok(found) => Ok(found.instance_statuses.into_iter().next()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Karpenter's policy does not allow it, so that it is a help where it can be read, and no more.
    async fn console(&self, id: &str) -> Option<String> {
        let request = GetConsoleOutputRequest {
            instance_id: Some(id.to_owned()),
            ..GetConsoleOutputRequest::default()
        };
        let output = self.cloud.aws().get_console_output(&request).await.ok()?.output?;
        let bytes = BASE64_STANDARD.decode(output).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}
