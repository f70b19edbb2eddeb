//! The operator with the IAM policy that `kerf aws policy` prints, and no other right.

use std::{collections::BTreeSet, time::Duration};

use jiff::SignedDuration;
use kerf_api::{NodeClaim, NodePool};
use kerf_aws_api::Ec2NodeClass;
use kerf_aws_model::permissions::Installation;
use kerf_fake_aws::{Depth, Market, PlacementGroup, PoolSelector, Reservation, Strategy};
use kerf_runtime::Metrics;
use serde_json::{Value, json};

use super::karpenter;
use super::world::{World, is_in, names, options, play};
use crate::account::{REGION, unstarted};

fn policy() -> Value {
    let installation = Installation {
        partition: "aws",
        region: REGION,
        account: "123456789012",
        cluster: "test",
        queue: Some("test"),
        node_role: "KarpenterNodeRole-test",
        zonal_shift: true,
    };
    installation.policy()
}

/// By statement and action.
fn rights(policy: &Value) -> BTreeSet<(String, String)> {
    let statements = policy["Statement"].as_array().unwrap().iter();
    statements
        .flat_map(|statement| {
            let actions = statement["Action"].as_array().unwrap().iter();
            actions.map(|action| (text(&statement["Sid"]), text(action)))
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Calls that were refused for want of a right. Those that Kerf can do without are not in the policy.
fn refused(world: &World) -> Vec<String> {
    let codes = ["UnauthorizedOperation", "AccessDenied", "AccessDeniedException"];
    let calls = world.aws.calls().into_iter();
    let refused =
        calls.filter(|(_, count)| codes.iter().any(|code| count.refused.contains_key(*code)));
    refused.map(|(name, _)| name.to_owned()).collect()
}

async fn capacity_types(world: &World) -> Vec<String> {
    let claims = world.claims().await;
    let of = |claim: NodeClaim| {
        claim.metadata.labels.unwrap().get("karpenter.sh/capacity-type").cloned()
    };
    let mut all: Vec<_> = claims.into_iter().filter_map(of).collect();
    all.sort_unstable();
    all
}

/// Everything that Kerf does in an account.
async fn life(world: &mut World) {
    let any = "us-west-2a";
    world.aws.add_reservation(Reservation {
        end: Some(world.testbed.clock().now() + SignedDuration::from_hours(24)),
        ..Reservation::new("cr-00000000000000001", "m5.large", any, 1)
    });
    world.aws.add_placement_group(PlacementGroup {
        id: "pg-1".to_owned(),
        name: "near".to_owned(),
        strategy: Strategy::Spread,
        tags: [].into(),
    });
    let flags = [("interruption-queue", "test"), ("enable-zonal-shift", "true")];
    let limited = world.aws.limited_to(policy());
    let provider = || unstarted(&world.testbed, &limited, &Metrics::default(), &flags);
    let (first, second) = (provider(), provider());
    world.start_with(first);
    world
        .change_class(json!({
            "capacityReservationSelectorTerms": [{"id": "cr-00000000000000001"}],
            "placementGroupSelector": {"name": "near"},
        }))
        .await;

    // One of each kind: reserved is cheapest, then comes spot, and on demand what is left.
    world.pods_apart(2).await;
    world.aws.set_pools(PoolSelector::all().on(Market::Spot), Depth::DRY);
    world.scale(3).await;
    assert_eq!(capacity_types(world).await, ["on-demand", "reserved", "spot"]);

    // Karpenter has launched one that Kerf finds when it starts again.
    world.kill_operator();
    let instance = karpenter::launch(world, "test").await;
    karpenter::claim(world, "default-k4rp7", &instance).await;
    world.start_with(second);
    world
        .until("the instance of Karpenter is tagged", async |world| {
            world.aws.count("CreateTags") > 0
        })
        .await;

    let is_spot = |one: &kerf_aws_wire::ec2::Instance| one.instance_lifecycle.is_some();
    let spot = world.aws.instances().into_iter().find(is_spot).and_then(|one| one.instance_id);
    let spot = spot.unwrap();
    world.aws.interrupt_spot(&spot);
    world
        .until("the spot instance has ended", async |world| !world.aws.alive().contains(&spot))
        .await;
    world.until("all pods run", async |world| world.running().await.len() == 3).await;

    let before = names(&world.claims().await);
    world.change_class(json!({"tags": {"team": "a"}})).await;
    let drifted = async |world: &World| {
        let now = names(&world.claims().await);
        now.iter().all(|name| !before.contains(name)) && world.running().await.len() == 3
    };
    world.until("all nodes have drifted", drifted).await;
    // Profiles and templates without a use are looked for every half hour.
    world.pass(Duration::from_mins(31)).await;

    world.delete::<NodePool>("default").await;
    for claim in names(&world.claims().await) {
        world.delete::<NodeClaim>(&claim).await;
    }
    world.until("the instances have ended", async |world| world.aws.alive().is_empty()).await;
    world.delete::<Ec2NodeClass>("default").await;
    world
        .until("the class is gone", async |world| world.list::<Ec2NodeClass>().await.is_empty())
        .await;
    assert_eq!((world.aws.instance_profile_count(), world.aws.launch_template_count()), (0, 0));
}

/// A right is needed if a policy without it would have refused one of the calls.
#[test]
fn a_whole_life_needs_every_right_of_the_policy_and_no_other() {
    play(async {
        let requirements = json!([
            is_in("karpenter.k8s.aws/instance-family", &["m5"]),
            is_in("karpenter.sh/capacity-type", &["reserved", "spot", "on-demand"]),
            is_in("kubernetes.io/arch", &["amd64"]),
        ]);
        let mut world = World::without_operator(options(), requirements).await;
        life(&mut world).await;
        assert_eq!(refused(&world), [""; 0]);
        assert_eq!(world.aws.needed_rights(), rights(&policy()));
    });
}
