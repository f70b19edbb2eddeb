//! What Karpenter leaves behind: an instance that it has launched a moment ago, and the NodeClaim of it.

use kerf_api::{NodeClaim, NodePool};
use kerf_aws_api::{Ec2NodeClass, annotations, tags};
use kerf_aws_client::Aws as _;
use kerf_aws_wire::ec2;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::world::{World, on_demand_m5};

#[expect(clippy::unnecessary_wraps, reason = "all members of a request are optional")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn tag(key: &str, value: &str) -> ec2::Tag {
    ec2::Tag { key: text(key), value: text(value) }
}

/// Launches an m5.large for a cluster from a launch template that Kerf does not know, and gives its id. Karpenter tags its
/// instances with the name of their NodeClaim only when their Node is known.
pub(crate) async fn launch(world: &World, cluster: &str) -> String {
    let known = world.aws.requests::<ec2::CreateLaunchTemplateRequest>();
    let (_, mut template) = known.last().expect("Kerf has made one for the class").clone();
    let name = format!("karpenter.k8s.aws/{cluster}-13959495156143747618");
    template.launch_template_name = Some(name.clone());
    template.client_token = None;
    world.aws.create_launch_template(&template).await.unwrap();
    let specification = ec2::FleetLaunchTemplateSpecificationRequest {
        launch_template_name: Some(name),
        version: text("$Latest"),
        ..Default::default()
    };
    let override_ = ec2::FleetLaunchTemplateOverridesRequest {
        instance_type: text("m5.large"),
        subnet_id: world.aws.subnets_of("us-west-2a").pop(),
        ..Default::default()
    };
    let of_cluster = tags::cluster(cluster);
    let request = ec2::CreateFleetRequest {
        r#type: text("instant"),
        launch_template_configs: vec![ec2::FleetLaunchTemplateConfigRequest {
            launch_template_specification: Some(specification),
            overrides: vec![override_],
        }],
        tag_specifications: vec![ec2::TagSpecification {
            resource_type: text("instance"),
            tags: vec![
                tag(tags::NODE_POOL, "default"),
                tag(tags::NODE_CLASS, "default"),
                tag(tags::EKS_CLUSTER_NAME, cluster),
                tag(&of_cluster, tags::OWNED),
            ],
        }],
        target_capacity_specification: Some(ec2::TargetCapacitySpecificationRequest {
            default_target_capacity_type: text("on-demand"),
            total_target_capacity: Some(1),
        }),
        ..Default::default()
    };
    world.aws.create_fleet(&request).await.unwrap().instances.remove(0).instance_ids.remove(0)
}

/// The NodeClaim of an instance, as it is between launch and registration.
pub(crate) async fn claim(world: &World, name: &str, instance: &str) {
    let class = world.api::<Ec2NodeClass>().get("default").await.unwrap();
    let pool = world.api::<NodePool>().get("default").await.unwrap();
    let of_class = [annotations::NODE_CLASS_HASH, annotations::NODE_CLASS_HASH_VERSION];
    let of_pool = ["karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version"];
    let stamps = of_class.map(|key| (key, class.annotations().get(key)));
    let stamps = stamps.into_iter().chain(of_pool.map(|key| (key, pool.annotations().get(key))));
    let stamps: serde_json::Map<_, _> =
        stamps.map(|(key, value)| (key.to_owned(), json!(value.expect(key)))).collect();
    world
        .create::<NodeClaim>(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": name, "finalizers": ["karpenter.sh/termination"], "annotations": stamps,
                "ownerReferences": [{
                    "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default",
                    "uid": pool.uid(), "blockOwnerDeletion": true,
                }],
                "labels": {
                    "karpenter.sh/nodepool": "default",
                    "karpenter.k8s.aws/ec2nodeclass": "default",
                    "karpenter.sh/capacity-type": "on-demand",
                    "karpenter.k8s.aws/instance-family": "m5",
                    "node.kubernetes.io/instance-type": "m5.large",
                    "topology.kubernetes.io/region": "us-west-2",
                    "topology.kubernetes.io/zone": "us-west-2a",
                    "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                },
            },
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": on_demand_m5(),
                "resources": {"requests": {"cpu": "1"}},
                "expireAfter": "720h",
            },
        }))
        .await;
    let launched = world.aws.instances();
    let launched = launched.iter().find(|one| one.instance_id.as_deref() == Some(instance));
    let resources =
        json!({"cpu": "2", "memory": "7577Mi", "pods": "29", "ephemeral-storage": "20Gi"});
    let status = json!({"status": {
        "providerID": format!("aws:///us-west-2a/{instance}"),
        "imageID": launched.and_then(|one| one.image_id.clone()),
        "capacity": resources, "allocatable": resources,
        "conditions": [{
            "type": "Launched", "status": "True", "reason": "Launched", "message": "",
            "lastTransitionTime": world.testbed.clock().now().to_string(),
        }],
    }});
    let api = world.api::<NodeClaim>();
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}
