//! Instances and claims: tags, adoption, what has lost the other, why nodes do not join, and zones that are left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kerf_api::conditions::Conditioned as _;
use kerf_aws_api::annotations;
use kerf_aws_wire::ec2;
use kerf_provider_aws::Options;
use serde_json::json;

use super::karpenter;
use super::world::{World, names, on_demand_m5, options, play};

#[test]
fn an_instance_has_its_tags_from_the_start_and_its_claim_says_so() {
    play(async {
        let world = World::new(options(), on_demand_m5()).await;
        world.pods_apart(2).await;
        world.pass(Duration::from_mins(1)).await;
        for claim in world.claims().await {
            let annotations = claim.metadata.annotations.unwrap();
            for key in
                ["karpenter.k8s.aws/tagged", "compatibility.karpenter.k8s.aws/cluster-name-tagged"]
            {
                assert_eq!(annotations.get(key).map(String::as_str), Some("true"), "{key}");
            }
        }
        assert_eq!(world.aws.count("CreateTags"), 0);
    });
}

/// Kerf takes over between launch and registration. Nothing is launched, and the tags are written that Karpenter would have
/// written.
#[test]
fn an_instance_that_karpenter_launched_is_adopted() {
    play(async {
        let mut world = World::new(options(), on_demand_m5()).await;
        world.change_class(json!({})).await;
        world.kill_operator();
        let instance = karpenter::launch(&world, "test").await;
        karpenter::claim(&world, "default-k4rp7", &instance).await;
        world.aws.forget_requests();
        world.start_operator();
        world.pods_apart(1).await;
        world
            .until("the claim says that its instance is tagged", async |world| {
                let claims = world.claims().await;
                let annotations = claims[0].metadata.annotations.clone().unwrap();
                [annotations::INSTANCE_TAGGED, annotations::CLUSTER_NAME_TAGGED]
                    .iter()
                    .all(|key| annotations.get(*key).map(String::as_str) == Some("true"))
            })
            .await;
        world.pass(Duration::from_hours(1)).await;
        assert_eq!(world.aws.alive(), std::slice::from_ref(&instance));
        let claims = world.claims().await;
        assert_eq!(names(&claims), ["default-k4rp7"]);
        assert_eq!(claims[0].provider_id(), format!("aws:///us-west-2a/{instance}"));
        assert!(claims[0].is_true("Initialized") && claims[0].condition("Drifted").is_none());

        let requests = world.aws.requests::<ec2::CreateTagsRequest>();
        let [(_, request)] = &*requests else { panic!("{requests:?}") };
        assert_eq!(request.resources, [instance]);
        let written: BTreeMap<_, _> = request
            .tags
            .iter()
            .map(|tag| (tag.key.as_deref().unwrap(), tag.value.as_deref().unwrap()))
            .collect();
        let node = claims[0].node_name();
        let expected = [("Name", node), ("karpenter.sh/nodeclaim", "default-k4rp7")];
        assert_eq!(written, BTreeMap::from(expected), "the name of the cluster is there already");
    });
}

#[test]
fn an_instance_without_a_claim_is_terminated_and_those_of_other_clusters_stay() {
    play(async {
        let world = World::new(options(), on_demand_m5()).await;
        world.pods_apart(1).await;
        let own = world.aws.alive();
        let orphan = karpenter::launch(&world, "test").await;
        let other = karpenter::launch(&world, "other").await;
        let took = world
            .until("the orphan has ended", async |world| !world.aws.alive().contains(&orphan))
            .await;
        // Every two minutes, but not while Karpenter might still write down that it is its claim's.
        assert!(took > Duration::from_secs(30) && took < Duration::from_mins(5), "{took:?}");
        world.pass(Duration::from_mins(30)).await;
        let alive: BTreeSet<_> = world.aws.alive().into_iter().collect();
        assert_eq!(alive, own.into_iter().chain([other]).collect());
        assert_eq!(world.claims().await.len(), 1);
    });
}

/// Without a queue nothing tells of it.
#[test]
fn a_claim_whose_instance_is_gone_ends_and_its_pod_gets_another() {
    play(async {
        let options = Options { interruption_queue: None, ..options() };
        let world = World::new(options, on_demand_m5()).await;
        world.pods_apart(1).await;
        let (before, node) = (names(&world.claims().await), world.running().await);
        let [id] = &*world.aws.alive() else { panic!("one instance") };
        world.aws.fail_instance(id);
        let took = world
            .until("the pod runs elsewhere", async |world| {
                let nodes = world.running().await;
                nodes.len() == 1 && nodes != node
            })
            .await;
        assert!(took < Duration::from_mins(6), "{took:?}");
        world.until("the old claim is gone", async |world| world.claims().await.len() == 1).await;
        assert_ne!(names(&world.claims().await), before);
        assert_eq!(world.aws.alive().len(), 1);
        assert_eq!(world.events("InstanceTerminating").await, []);
    });
}

#[test]
fn a_claim_whose_node_never_joins_says_why() {
    for (may_read_console, expected) in [
        (
            true,
            "No node after 3 minutes. The instance runs, and its console says: the node does not start",
        ),
        (
            false,
            "No node after 3 minutes. The instance runs and passes its status checks, but no kubelet",
        ),
    ] {
        play(async {
            let world = World::new(options(), on_demand_m5()).await;
            if !may_read_console {
                world.aws.deny("ec2:GetConsoleOutput");
            }
            // Nothing in it starts a kubelet of this cluster.
            world.change_class(json!({"amiFamily": "Custom", "userData": "#!/bin/sh"})).await;
            world
                .create::<kerf_api::NodeClaim>(json!({
                    "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                    "metadata": {"name": "lost"},
                    "spec": {
                        "nodeClassRef": {
                            "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default",
                        },
                        "requirements": on_demand_m5(),
                    },
                }))
                .await;
            let took = world
                .until("the claim says why it has no node", async |world| {
                    !world.events("NodeNotJoined").await.is_empty()
                })
                .await;
            assert!(took < Duration::from_mins(4), "{took:?}");
            let events = world.events("NodeNotJoined").await;
            let [(kind, message)] = &*events else { panic!("{events:?}") };
            assert_eq!(kind, "NodeClaim");
            assert!(message.starts_with(expected), "{message}");
        });
    }
}

#[test]
fn nothing_is_launched_in_a_zone_that_traffic_is_shifted_away_from() {
    play(async {
        let options = Options { zonal_shift: true, ..options() };
        let world = World::new(options, on_demand_m5()).await;
        world.change_class(json!({})).await;
        world.aws.shift_zone("usw2-az1", true);
        world.pass(Duration::from_secs(35)).await;
        let events = world.events("ZonalShiftActive").await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].1.contains("zone usw2-az1"), "{events:?}");
        world.pods_apart(6).await;
        let zones: BTreeSet<_> = world
            .nodes()
            .await
            .into_iter()
            .filter_map(|node| node.metadata.labels?.get("topology.k8s.aws/zone-id").cloned())
            .collect();
        assert!(!zones.is_empty() && !zones.contains("usw2-az1"), "{zones:?}");
        world.aws.shift_zone("usw2-az1", false);
        world.pass(Duration::from_secs(35)).await;
        assert_eq!(world.events("ZonalShiftCleared").await.len(), 1);
    });
}
