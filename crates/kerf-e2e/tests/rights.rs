//! The rights that the chart grants are those that an operator uses: none is missing, and none is too many.
//!
//! The API server's audit log is the witness. A right that is taken out of the tables is asked for all the same, and refused; one
//! that is put into them is never asked for.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::fs;
use std::path::PathBuf;

use kerf_controllers::{
    Settings,
    settings::{Batching, parse_default_spread},
};
use kerf_stories::{
    Stage, World,
    chapters::{buffers, deletion_costs, disruption::drift, draining, overlays},
    rights::{USER, Used, cluster_rules},
    stories::settings,
};

/// Makes the operator read what pods belong to.
const SPREAD: &str = r#"{"podTopologySpread": {"defaultConstraints": [
    {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}]}}"#;

#[tokio::test]
async fn an_operator_uses_each_of_its_rights_and_asks_for_no_other() {
    let world = async || World::on_shared_control_plane().await;
    draining::evicted_pods_are_told_and_find_another_node(world().await).await;
    draining::a_pod_that_would_outlive_its_node_is_deleted_at_once(world().await).await;
    drift::a_drifted_node_is_replaced_before_it_goes(world().await).await;
    let of_stories = used(&world().await);

    let default_spread = parse_default_spread(SPREAD).unwrap();
    let batching = Batching { by_owner: true, ..Batching::default() };
    let settings = Settings { default_spread, batching, ..settings::overlaying() };
    let mut optional = World::on_control_plane(settings).await;
    overlays::judges_an_overlay(&optional).await;
    deletion_costs::marked_pods(&optional).await;
    optional.stop_operator().await;
    optional.start_operator().await;
    deletion_costs::only_foreign_costs_are_left(&optional).await;
    let of_options = used(&optional);

    let world = World::on_control_plane(settings::buffering()).await;
    buffers::from_room_to_nothing(&world).await;
    let of_buffers = used(&world);

    let misfits = of_stories.and(of_options).and(of_buffers).misfits(cluster_rules());
    assert!(misfits.is_empty(), "{misfits:#?}");
}

fn used(world: &World) -> Used {
    let log: Option<PathBuf> = match world.stage() {
        Stage::Shared(shared) => shared.audit_log(),
        Stage::Real(cluster) => cluster.audit_log(),
        Stage::Testbed { .. } => None,
    };
    Used::by(USER, &fs::read_to_string(log.unwrap()).unwrap())
}
