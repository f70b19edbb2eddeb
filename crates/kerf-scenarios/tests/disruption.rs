//! The stories of disruption on the testbed, in virtual time.

use kerf_controllers::{
    Settings,
    settings::{Fraction, SavingsThreshold},
};
use kerf_scenarios::World;

macro_rules! stories {
    ($chapter:ident: $($story:ident),+ $(,)?) => {
        mod $chapter {
            $(#[tokio::test(start_paused = true)]
            async fn $story() {
                kerf_scenarios::scenarios::disruption::$chapter::$story(super::world().await).await;
            })+
        }
    };
}

async fn world() -> World {
    World::on_testbed(7, Settings::default()).await
}

stories! { emptiness:
    an_empty_node_is_removed,
    an_empty_node_is_kept_for_as_long_as_its_pool_says,
    a_pod_that_comes_before_the_second_look_keeps_its_node,
    a_node_that_asks_for_it_is_left_alone,
    a_budget_of_none_keeps_empty_nodes,
    a_budget_bounds_how_many_nodes_go_at_once,
    a_budget_holds_while_its_window_is_open,
}

stories! { drift:
    a_drifted_node_is_replaced_before_it_goes,
    a_drifted_node_waits_for_its_budget,
    a_replacement_that_cannot_be_launched_is_tried_again,
    a_replacement_that_never_registers_is_given_up,
    an_operator_that_was_killed_goes_on_with_its_command,
}

stories! { consolidation:
    a_node_whose_pods_fit_elsewhere_is_removed,
    a_node_that_is_too_large_is_replaced_by_a_smaller_one,
    several_nodes_are_replaced_by_one,
    a_pod_that_asks_for_it_keeps_its_node,
    a_disruption_budget_keeps_its_node,
    a_pool_that_only_removes_empty_nodes_says_so,
    a_balanced_pool_is_consolidated_where_it_pays,
    a_pod_that_comes_before_the_second_look_stops_a_replacement,
    a_replacement_that_turns_out_too_dear_is_undone,
}

#[test]
fn every_consolidation_saves_what_it_promised() {
    let mut commands = 0;
    for seed in 1..=4 {
        let played = kerf_testbed::Testbed::in_virtual_time(async {
            let world = World::on_testbed(seed, parity()).await;
            let story =
                kerf_scenarios::scenarios::disruption::savings::every_consolidation_saves_what_it_promised;
            story(world, seed).await
        });
        commands += played.expect("a runtime can be made");
    }
    assert!(commands >= 8, "hardly anything was consolidated: {commands}");
}

/// As Karpenter decides.
fn parity() -> Settings {
    let mut settings = Settings::default();
    settings.churn.utilization_threshold = Fraction::ONE;
    settings.churn.savings_threshold = SavingsThreshold::OFF;
    settings
}
