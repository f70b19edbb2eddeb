//! What is said of instances: their tags, why they do not join, and zones that are left alone.

use std::{collections::BTreeSet, time::Duration};

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::world::{World, names, on_demand_m5, options, play};

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

/// As Karpenter leaves a claim: its instance is tagged after its node is known.
#[test]
fn a_claim_of_karpenter_gets_what_is_missing() {
    play(async {
        let world = World::new(options(), on_demand_m5()).await;
        world.pods_apart(1).await;
        let claims = world.claims().await;
        let [name] = &*names(&claims) else { panic!("one claim") };
        let patch = json!({"metadata": {"annotations": {
            "karpenter.k8s.aws/tagged": null,
            "compatibility.karpenter.k8s.aws/cluster-name-tagged": null,
        }}});
        let api = world.api::<kerf_api::NodeClaim>();
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        world
            .until("the claim says that its instance is tagged", async |world| {
                let claims = world.claims().await;
                let annotations = claims[0].metadata.annotations.clone().unwrap();
                annotations.contains_key("karpenter.k8s.aws/tagged")
            })
            .await;
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
        let options = kerf_provider_aws::Options { zonal_shift: true, ..options() };
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
