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
