//! Every story on the testbed, in virtual time.

use kerf_controllers::Settings;
use kerf_scenarios::World;
use kerf_testbed::{Fault, Faults, Matching, Verb};

macro_rules! stories {
    ($chapter:ident: $($story:ident),+ $(,)?) => {
        mod $chapter {
            $(#[tokio::test(start_paused = true)]
            async fn $story() {
                kerf_scenarios::scenarios::$chapter::$story(super::world().await).await;
            })+
        }
    };
}

async fn world() -> World {
    World::on_testbed(7, Settings::default()).await
}

stories! { life_of_a_node:
    a_pending_pod_gets_a_node,
    pods_that_fit_together_share_one_node,
    a_deleted_claim_takes_its_node_along,
    a_deleted_node_takes_its_claim_along,
    a_drain_waits_for_a_disruption_budget,
    a_pod_that_fits_nowhere_is_told_why,
    a_node_class_that_does_not_exist_makes_its_pool_unready,
    an_operator_that_was_killed_finds_everything_again,
    a_restart_does_not_move_the_last_pod_event,
    an_expired_claim_is_replaced,
    a_claim_whose_node_never_comes_is_given_up_after_fifteen_minutes,
    a_grace_period_bounds_the_drain,
}

stories! { static_capacity:
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
    a_dynamic_pool_has_no_more_nodes_than_its_limit,
    metrics_tell_what_is_wanted_and_what_is_there,
}

mod static_capacity_over_time {
    use kerf_scenarios::scenarios::static_capacity::over_time;

    #[tokio::test(start_paused = true)]
    async fn expired_nodes_are_replaced() {
        over_time::expired_nodes_are_replaced(super::world().await).await;
    }

    #[tokio::test(start_paused = true)]
    async fn scaling_drift_and_expiry_at_once() {
        over_time::scaling_drift_and_expiry_at_once(super::world().await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_gate_off_a_static_pool_is_left_alone() {
    let mut settings = Settings::default();
    settings.gates.static_capacity = false;
    let world = World::on_testbed(7, settings).await;
    kerf_scenarios::scenarios::static_capacity::with_the_gate_off_a_pool_is_left_alone(world).await;
}

stories! { churn_controls:
    without_a_control_the_move_is_made,
    empty_nodes_are_exempt,
    drifted_nodes_are_not_held_back,
    expired_nodes_are_not_held_back,
    a_node_at_rest_takes_pods_and_a_busy_one_does_not,
    a_replacement_that_costs_more_than_promised_goes_back,
}

macro_rules! controls {
    ($($name:ident: $control:ident),+ $(,)?) => {
        mod a_pool_forbids_until_it_changes_its_mind {
            use kerf_scenarios::scenarios::churn_controls as chapter;

            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                let world = super::world().await;
                chapter::a_pool_forbids_until_it_changes_its_mind(world, chapter::$control).await;
            })+
        }

        mod an_operator_forbids_until_the_pool_objects {
            use kerf_scenarios::{World, scenarios::churn_controls as chapter};

            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                let world = World::on_testbed(7, chapter::$control.strict_operator()).await;
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

stories! { provisioning:
    pods_go_where_their_selectors_say,
    a_zone_that_nobody_offers_is_named_and_keeps_nobody_waiting,
    the_heaviest_pool_goes_first_unless_a_pod_names_another,
    a_tainted_pool_takes_only_pods_that_tolerate_it,
    labels_and_annotations_of_the_pool_reach_the_node,
    daemons_are_counted_when_a_machine_is_chosen,
    init_containers_count_when_they_need_more,
    pods_spread_over_zones,
    pods_that_repel_each_other_get_machines_of_their_own,
    a_preference_that_cannot_be_met_is_dropped,
    min_values_that_cannot_be_met_launch_nothing,
    a_pool_that_is_being_deleted_launches_nothing,
    a_pod_that_comes_before_its_pool_gets_a_node_all_the_same,
    the_pods_of_a_node_that_goes_move_to_one_other,
    a_volume_that_is_not_there_is_named_and_keeps_nobody_waiting,
    a_pod_follows_its_volume_into_its_zone,
    a_deployment_that_grows_uses_the_room_there_is_first,
}

stories! { limits:
    the_number_of_nodes_is_never_exceeded,
    pods_that_come_one_after_the_other_do_not_exceed_it_either,
    a_limit_of_cpu_counts_whole_machines,
    there_is_room_again_when_a_node_goes,
}

stories! { launching:
    a_claim_that_nothing_can_meet_is_given_up_with_a_reason,
    a_claim_whose_class_is_missing_is_given_up_with_a_reason,
    a_claim_of_another_provider_is_left_alone,
    a_start_up_taint_holds_a_node_back_until_somebody_removes_it,
    conditions_tell_how_far_a_claim_has_come,
    a_registered_node_makes_its_pool_healthy,
    two_nodes_that_never_come_make_their_pool_unhealthy,
}

stories! { draining:
    a_protected_pod_holds_the_drain_until_its_annotation_goes,
    critical_pods_wait_until_the_others_are_gone,
    pods_that_tolerate_the_taint_stay_to_the_end,
    two_budgets_on_one_pod_are_told_apart_from_one,
    evicted_pods_are_told_and_find_another_node,
    a_pod_that_would_outlive_its_node_is_deleted_at_once,
    a_pod_that_never_ends_does_not_hold_its_node_for_ever,
    an_instance_waits_until_its_volumes_are_detached,
    a_node_without_a_claim_is_drained_and_let_go,
    a_claim_without_an_instance_goes_at_once,
}

stories! { conditions:
    a_changed_template_drifts_its_nodes_until_it_is_changed_back,
    requirements_that_a_node_does_not_meet_drift_it,
    a_quiet_node_becomes_consolidatable_unless_its_pool_says_never,
    pods_that_come_and_go_restart_the_wait,
    a_claim_expires_when_its_time_has_come,
    the_arrival_of_a_pod_is_noted_on_its_claim,
    a_claim_whose_instance_vanished_is_collected,
    a_node_that_is_smaller_than_promised_is_reported,
}

stories! { pools:
    a_pool_counts_what_it_has,
    the_hash_of_a_pool_follows_what_its_nodes_are_made_of,
    a_pool_whose_class_goes_launches_nothing_more,
    a_pool_that_contradicts_itself_says_so_and_keeps_nobody_waiting,
    a_pool_that_no_machine_can_meet_says_so_and_keeps_nobody_waiting,
    metrics_tell_how_things_stand,
}

mod repair {
    use kerf_controllers::{Settings, settings::FeatureGates};
    use kerf_scenarios::{World, scenarios::repair};

    async fn world() -> World {
        let gates = FeatureGates { node_repair: true, ..FeatureGates::default() };
        World::on_testbed(7, Settings { gates, ..Settings::default() }).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_unwell_node_is_replaced_after_ten_minutes() {
        repair::an_unwell_node_is_replaced_after_ten_minutes(world().await).await;
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_unwell_nodes_are_left_alone() {
        repair::too_many_unwell_nodes_are_left_alone(world().await).await;
    }
}

/// The API refuses the Nodes that this provider would launch.
#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_launched_is_given_up_after_five_minutes() {
    let faults = Faults::seeded(7);
    let launches = Matching::any().verb(Verb::Create).resource("nodes");
    faults.at_rate(1.0, launches, Fault::InternalError);
    let world = World::with_mortal_operator(7, Settings::default(), &faults);
    kerf_scenarios::scenarios::launching::a_claim_that_cannot_be_launched_is_given_up_after_five_minutes(world).await;
}
