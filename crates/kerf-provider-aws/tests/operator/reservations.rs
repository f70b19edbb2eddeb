//! Reservations that end.

use std::time::Duration;

use jiff::SignedDuration;
use kerf_fake_aws::{Reservation, ReservationKind};
use serde_json::{Value, json};

use crate::world::{World, is_in, options, play};

const ID: &str = "cr-00000000000000001";

fn reserved() -> Value {
    json!([
        is_in("node.kubernetes.io/instance-type", &["m5.large"]),
        is_in("karpenter.sh/capacity-type", &["reserved"]),
        is_in("kubernetes.io/arch", &["amd64"]),
    ])
}

/// A class that selects a reservation of this kind which ends in `end`.
async fn select(world: &World, kind: ReservationKind, end: SignedDuration) {
    let mut reservation = Reservation::new(ID, "m5.large", "us-west-2a", 2);
    reservation.kind = kind;
    reservation.end = Some(world.testbed.clock().now() + end);
    world.aws.add_reservation(reservation);
    world.change_class(json!({"capacityReservationSelectorTerms": [{"id": ID}]})).await;
}

fn label(claim: &kerf_api::NodeClaim, key: &str) -> Option<String> {
    claim.metadata.labels.as_ref()?.get(key).cloned()
}

#[test]
fn a_claim_counts_as_on_demand_when_its_reservation_has_ended() {
    play(async {
        let world = World::new(options(), reserved()).await;
        select(&world, ReservationKind::Default, SignedDuration::from_mins(30)).await;
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
