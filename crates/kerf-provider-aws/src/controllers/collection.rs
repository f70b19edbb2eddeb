//! Instance profiles and launch templates that no class, claim or launch needs any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kerf_aws_api::{Ec2NodeClass, annotations, tags};
use kerf_aws_client::all_pages;
use kerf_aws_model::{
    class_status::templates_request,
    instance_profile::{self, WantedProfile},
    launch_template,
};
use kerf_aws_wire::iam::ListInstanceProfilesRequest;
use kerf_provider::{BoxError, ControllerContext, Registry};

use super::node_class::{delete_profile, is_ours};
use crate::cloud::AwsCloud;

const EVERY: Duration = Duration::from_mins(30);

pub(super) fn register(cloud: &Arc<AwsCloud>, registry: &mut Registry) {
    let collection = Arc::new(Collection::new(Arc::clone(cloud)));
    registry.add_periodic("aws.collection", EVERY, move |context| {
        let collection = Arc::clone(&collection);
        async move { collection.pass(&*context).await }
    });
}

/// Collects what is unused in the account of a cloud.
struct Collection {
    cloud: Arc<AwsCloud>,
    since: Timestamp,
    /// When each profile was last seen in use.
    used: Mutex<BTreeMap<String, Timestamp>>,
}

impl Collection {
    fn new(cloud: Arc<AwsCloud>) -> Self {
        let since = cloud.clock().now();
        Self { cloud, since, used: Mutex::default() }
    }

    /// Both are tried, whatever comes of the other.
    async fn pass(&self, context: &dyn ControllerContext) -> Result<(), BoxError> {
        let profiles = self.profiles(context).await;
        self.templates(context).await?;
        profiles
    }

    /// IAM has no endpoint in an isolated VPC.
    async fn profiles(&self, context: &dyn ControllerContext) -> Result<(), BoxError> {
        if self.cloud.options().isolated_vpc {
            return Ok(());
        }
        let (cluster, aws) = (self.cloud.cluster(), self.cloud.aws());
        let path = instance_profile::cluster_path(&cluster.access.name, &cluster.region);
        let request = ListInstanceProfilesRequest { path_prefix: Some(path), ..Default::default() };
        let listed = all_pages(aws, request).await?;
        // Read after the list: a profile that was made in between is not in it.
        let in_use = profiles_in_use(context, &cluster.access.name, &cluster.region);
        let now = context.clock().now();
        let used = {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.extend(in_use.iter().map(|name| (name.clone(), now)));
            used.clone()
        };
        for profile in listed {
            let name = profile.instance_profile_name.as_deref().unwrap_or_default();
            let last_used = used.get(name).copied().unwrap_or(self.since);
            if instance_profile::may_collect(&profile, &in_use, last_used, now).is_ok() {
                delete_profile(aws, context.fence(), &profile).await?;
            }
        }
        Ok(())
    }

    async fn templates(&self, context: &dyn ControllerContext) -> Result<(), BoxError> {
        let (cluster, aws) = (self.cloud.cluster(), self.cloud.aws());
        let name = &cluster.access.name;
        let request = templates_request(&[(tags::EKS_CLUSTER_NAME, name)]);
        let mut listed = all_pages(aws, request).await?;
        listed.sort_by_key(|template| template.create_time);
        let (now, mut left) = (context.clock().now(), listed.len());
        let none = BTreeSet::new();
        for template in listed {
            let known = template.launch_template_name.as_deref().unwrap_or_default();
            let last_used = self.cloud.templates().last_used(known).unwrap_or(self.since);
            let may = launch_template::may_collect(&template, name, &none, last_used, left, now);
            if may.is_ok() {
                self.cloud.templates().delete(aws, context.fence(), &template).await?;
                left -= 1;
            }
        }
        Ok(())
    }
}

/// Names in the status of classes, those that classes want, and those that claims were launched with. A class that cannot be
/// read has its profile in its status.
fn profiles_in_use(
    context: &dyn ControllerContext,
    cluster_name: &str,
    region: &str,
) -> BTreeSet<String> {
    let cluster = context.cluster();
    let classes = cluster.node_classes().values().filter(|class| is_ours(&class.reference));
    let mut in_use = BTreeSet::new();
    for class in classes {
        let named = class.object().data.pointer("/status/instanceProfile");
        in_use.extend(named.and_then(|name| name.as_str()).map(str::to_owned));
        if let Ok(class) = Ec2NodeClass::read(class) {
            let wanted = WantedProfile::of(&class, cluster_name, region);
            in_use.extend(wanted.map(|wanted| wanted.name));
        }
    }
    let claims = cluster.claims().values();
    let annotated = claims.filter_map(|claim| {
        claim.metadata.annotations.as_ref()?.get(annotations::INSTANCE_PROFILE).cloned()
    });
    in_use.extend(annotated);
    in_use
}
