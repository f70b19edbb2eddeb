//! The stories of a failing world on the testbed, in virtual time.

use kerf_controllers::{Settings, settings::FeatureGates};
use kerf_stories::World;

macro_rules! stories {
    ($settings:expr; $($story:ident),+ $(,)?) => {
        $(#[tokio::test(start_paused = true)]
        async fn $story() {
            let world = World::on_testbed(7, $settings).await;
            kerf_stories::chapters::faults::$story(world).await;
        })+
    };
}

stories! { Settings::default();
    a_launch_that_finds_no_capacity_is_planned_anew,
    an_offering_that_is_sold_out_is_passed_over,
    a_cloud_that_is_sold_out_is_tried_again,
    a_launch_that_is_refused_is_tried_again,
    pods_of_a_refused_launch_get_no_second_one_from_the_next_operator,
    a_refused_launch_counts_under_the_limits,
    a_launch_whose_answer_is_lost_is_not_launched_twice,
    a_slow_launch_is_waited_for,
    a_slow_launch_holds_up_no_other_pod,
    an_instance_that_names_no_claim_is_terminated_if_no_claim_names_it,
    an_instance_that_never_registers_is_replaced_and_terminated,
    a_node_whose_instance_is_gone_is_replaced,
    a_node_that_reports_is_kept_although_its_instance_is_not_listed,
    nodes_whose_instances_are_gone_are_let_go_without_a_drain,
    a_node_that_reports_is_drained_although_its_instance_is_gone,
    a_volume_that_will_not_detach_is_left_behind_at_the_deadline,
    an_eviction_that_comes_too_late_is_passed_over,
    a_volume_that_will_not_detach_holds_the_instance,
    a_pod_that_will_not_end_is_left_behind,
    a_termination_that_fails_is_tried_again,
    a_slow_termination_is_waited_for,
    a_stormy_day_ends_with_all_pods_running_and_nothing_leaked,
}

stories! { Settings::default();
    lists_that_are_refused_are_tried_less_and_less_often,
    after_an_expired_watch_the_list_is_read_again_at_once,
    a_class_that_is_seen_after_its_claim_is_not_missing,
}

#[tokio::test(start_paused = true)]
async fn watches_that_hang_leave_the_operator_blind_for_less_than_thirty_seconds() {
    let world = World::with_short_watches(7, Settings::default()).await;
    kerf_stories::chapters::faults::watches_that_hang_leave_the_operator_blind_for_less_than_thirty_seconds(
        world,
    )
    .await;
}

stories! { with_repair();
    a_node_that_never_becomes_ready_is_replaced,
    a_node_that_dies_is_replaced,
}

fn with_repair() -> Settings {
    let gates = FeatureGates { node_repair: true, ..FeatureGates::default() };
    Settings { gates, ..Settings::default() }
}
