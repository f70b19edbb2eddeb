//! The stories of `kerf-scenarios` that need no virtual time, on a real control plane.
//!
//! Those that only use what they create share one cluster, in which each has a namespace and names of its own; those that
//! stop the operator have a cluster to themselves.

use kerf_controllers::Settings;
use kerf_scenarios::World;

macro_rules! stories {
    ($chapter:ident in $world:ident: $($story:ident),+ $(,)?) => {
        mod $chapter {
            $(#[tokio::test]
            async fn $story() {
                kerf_scenarios::scenarios::$chapter::$story(super::$world().await).await;
            })+
        }
    };
}

async fn shared() -> World {
    World::on_shared_control_plane().await
}

#[tokio::test]
async fn an_operator_that_was_killed_finds_everything_again() {
    let world = World::on_control_plane(Settings::default()).await;
    kerf_scenarios::scenarios::life_of_a_node::an_operator_that_was_killed_finds_everything_again(
        world,
    )
    .await;
}

stories! { life_of_a_node in shared:
    a_pending_pod_gets_a_node,
    pods_that_fit_together_share_one_node,
    a_deleted_claim_takes_its_node_along,
    a_deleted_node_takes_its_claim_along,
    a_drain_waits_for_a_disruption_budget,
    a_pod_that_fits_nowhere_is_told_why,
    limits_are_never_exceeded,
    a_node_class_that_does_not_exist_makes_its_pool_unready,
}

stories! { static_capacity in shared:
    a_pool_grows_and_shrinks_to_its_replicas,
    kubectl_scales_a_pool,
    a_pool_has_no_more_nodes_than_its_limit,
    nodes_deleted_by_hand_come_back,
    a_deleted_pool_takes_its_nodes_along,
    a_disruption_budget_holds_up_a_scale_down,
    a_pool_whose_launches_fail_goes_on_when_they_can_succeed,
    pods_go_to_static_nodes_first,
    pods_wait_for_static_nodes_that_are_on_their_way,
    a_drifted_pool_without_headroom_says_so,
    drifted_nodes_are_replaced_before_they_go,
    drift_waits_for_its_budget,
    metrics_tell_what_is_wanted_and_what_is_there,
}

#[tokio::test]
async fn with_the_gate_off_a_static_pool_is_left_alone() {
    let mut settings = Settings::default();
    settings.gates.static_capacity = false;
    let world = World::on_control_plane(settings).await;
    kerf_scenarios::scenarios::static_capacity::with_the_gate_off_a_pool_is_left_alone(world).await;
}

stories! { churn_controls in shared:
    without_a_control_the_move_is_made,
    empty_nodes_are_exempt,
    drifted_nodes_are_not_held_back,
    expired_nodes_are_not_held_back,
    a_node_at_rest_takes_pods_and_a_busy_one_does_not,
}

macro_rules! controls {
    ($($name:ident: $control:ident),+ $(,)?) => {
        mod a_pool_forbids_until_it_changes_its_mind {
            use kerf_scenarios::scenarios::churn_controls as chapter;

            $(#[tokio::test]
            async fn $name() {
                let world = super::shared().await;
                chapter::a_pool_forbids_until_it_changes_its_mind(world, chapter::$control).await;
            })+
        }

        mod an_operator_forbids_until_the_pool_objects {
            use kerf_scenarios::{World, scenarios::churn_controls as chapter};

            $(#[tokio::test]
            async fn $name() {
                let world = World::on_control_plane(chapter::$control.strict_operator()).await;
                chapter::an_operator_forbids_until_the_pool_objects(world, chapter::$control).await;
            })+
        }
    };
}

controls! {
    utilization: UTILIZATION,
    price_factor: PRICE_FACTOR,
    savings: SAVINGS,
    grace_period: GRACE_PERIOD,
}
