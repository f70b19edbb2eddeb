//! Reservations that end.

use std::time::Duration;

use jiff::SignedDuration;
use kerf_fake_aws::{Reservation, ReservationKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::world::{World, is_in, options, play};

const ID: &str = "cr-00000000000000001";

fn reserved(instance_type: &str) -> Value {
    json!([
        is_in("node.kubernetes.io/instance-type", &[instance_type]),
        is_in("karpenter.sh/capacity-type", &["reserved"]),
        is_in("kubernetes.io/arch", &["amd64"]),
    ])
}

/// The class selects it, and it ends in `end`.
async fn select(world: &World, reservation: Reservation, end: SignedDuration) {
    let end = Some(world.testbed.clock().now() + end);
    world.aws.add_reservation(Reservation { end, ..reservation });
    world.change_class(json!({"capacityReservationSelectorTerms": [{"id": ID}]})).await;
}

fn label(claim: &kerf_api::NodeClaim, key: &str) -> Option<String> {
    claim.metadata.labels.as_ref()?.get(key).cloned()
}

#[test]
fn a_claim_counts_as_on_demand_when_its_reservation_has_ended() {
    play(async {
        let world = World::new(options(), reserved("m5.large")).await;
        let reservation = Reservation::new(ID, "m5.large", "us-west-2a", 2);
        select(&world, reservation, SignedDuration::from_mins(30)).await;
        world.pods_apart(1).await;
        let claims = world.claims().await;
        assert_eq!(label(&claims[0], "karpenter.sh/capacity-type").as_deref(), Some("reserved"));
        world.pass(Duration::from_mins(33)).await;
        let claims = world.claims().await;
        assert_eq!(label(&claims[0], "karpenter.sh/capacity-type").as_deref(), Some("on-demand"));
        assert_eq!(label(&claims[0], "karpenter.k8s.aws/capacity-reservation-id"), None);
        let node = &world.nodes().await[0];
        let labels = node.metadata.labels.as_ref().unwrap();
        assert_eq!(labels["karpenter.sh/capacity-type"], "on-demand");
        assert!(!labels.contains_key("karpenter.k8s.aws/capacity-reservation-id"));
        assert_eq!(world.aws.alive().len(), 1, "it runs on");
    });
}

/// EC2 takes the instances of a block 30 minutes before its end.
#[test]
fn a_capacity_block_is_left_forty_minutes_before_its_end() {
    play(async {
        let world = World::new(options(), reserved("p5.4xlarge")).await;
        let block = Reservation {
            kind: ReservationKind::CapacityBlock,
            ..Reservation::new(ID, "p5.4xlarge", "us-west-2a", 2)
        };
        let begin = Instant::now();
        select(&world, block, SignedDuration::from_hours(2)).await;
        world.pods_apart(1).await;
        let claims = world.claims().await;
        let kind = label(&claims[0], "karpenter.k8s.aws/capacity-reservation-type");
        assert_eq!(kind.as_deref(), Some("capacity-block"));
        world.pass(Duration::from_mins(79).saturating_sub(begin.elapsed())).await;
        assert_eq!(world.events("CapacityBlockExpiring").await, []);
        assert!(world.claims().await[0].metadata.deletion_timestamp.is_none());
        let deleted = async |world: &World| {
            let claims = world.claims().await;
            claims.iter().all(|claim| claim.metadata.deletion_timestamp.is_some())
        };
        world.until("the claim is deleted", deleted).await;
        let after = begin.elapsed();
        // The state of the block and the claims are looked at once a minute.
        let due = Duration::from_mins(80);
        assert!(after > due && after < due + Duration::from_mins(2), "{after:?}");
        world.until("the instance has ended", async |world| world.aws.alive().is_empty()).await;
        assert!(begin.elapsed() < Duration::from_mins(90), "before EC2 takes it");
        let events = world.events("CapacityBlockExpiring").await;
        let kinds: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["NodeClaim", "Node"], "{events:?}");
        assert!(world.metrics().contains("reason=\"capacity_block_expiring\""));
        world.pass(Duration::from_mins(20)).await;
        assert_eq!(world.aws.alive(), [""; 0], "nothing is launched into a block that expires");
    });
}
