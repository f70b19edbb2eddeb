//! The one list of the stories, by chapter and by what each needs. Both stages play it.
//!
//! - `shared`: uses only what it creates. On a real control plane it shares a cluster and an operator with others.
//! - `alone`: stops the operator, changes its prices or has settings of its own: a cluster to itself. So do stories of
//!   consolidation, which waits while anybody's pods are pending, and among many stories somebody's always are.
//! - `virtual_time`: takes hours or faults; only the testbed can play it.
//!
//! In brackets: what its operator is started with, one of [`settings`].

/// Hands the list to the macro `$play`, which makes a test of each story.
#[macro_export]
macro_rules! stories {
    ($play:ident) => {
        $play! {
            life_of_a_node at life_of_a_node {
                shared(defaults):
                    a_pending_pod_gets_a_node,
                    pods_that_fit_together_share_one_node,
                    a_deleted_claim_takes_its_node_along,
                    a_deleted_node_takes_its_claim_along,
                    a_drain_waits_for_a_disruption_budget,
                    a_pod_that_fits_nowhere_is_told_why,
                    a_node_class_that_does_not_exist_makes_its_pool_unready;
                alone(defaults):
                    an_operator_that_was_killed_finds_everything_again;
                virtual_time(defaults):
                    a_restart_does_not_move_the_last_pod_event,
                    an_expired_claim_is_replaced,
                    a_claim_whose_node_never_comes_is_given_up_after_fifteen_minutes,
                    a_grace_period_bounds_the_drain;
            }
            static_capacity at static_capacity {
                shared(defaults):
                    a_pool_grows_and_shrinks_to_its_replicas,
                    kubectl_scales_a_pool,
                    a_pool_has_no_more_nodes_than_its_limit,
                    nodes_deleted_by_hand_come_back,
                    a_pool_that_is_not_ready_shrinks_and_does_not_grow,
                    a_deleted_pool_takes_its_nodes_along,
                    a_disruption_budget_holds_up_a_scale_down,
                    pods_go_to_static_nodes_first,
                    pods_wait_for_static_nodes_that_are_on_their_way,
                    a_drifted_pool_without_headroom_says_so,
                    drifted_nodes_are_replaced_before_they_go,
                    drift_waits_for_its_budget,
                    a_dynamic_pool_has_no_more_nodes_than_its_limit,
                    metrics_tell_what_is_wanted_and_what_is_there;
                virtual_time(defaults):
                    a_limit_below_what_is_there_is_no_error;
                alone(no_static_capacity):
                    with_the_gate_off_a_pool_is_left_alone;
            }
            static_capacity_failing at static_capacity::failing {
                shared(defaults):
                    a_pool_whose_launches_fail_goes_on_when_they_can_succeed;
                virtual_time(defaults):
                    launches_that_are_refused_are_tried_again,
                    claims_that_cannot_be_created_or_deleted_are_tried_again,
                    a_node_that_never_comes_is_replaced,
                    a_command_that_cannot_be_taken_up_again_keeps_no_other_waiting;
                virtual_time(repairing):
                    a_node_that_dies_is_replaced_where_the_limit_leaves_room;
                virtual_time(repairing_terminate_first):
                    a_node_that_dies_at_the_limit_goes_first;
                virtual_time(repairing_by_force):
                    a_node_that_dies_is_replaced;
            }
            terminate_first_static at static_capacity::terminate_first {
                alone(terminating_first):
                    a_pool_at_its_limit_drifts_through,
                    a_drain_without_an_end_is_not_begun,
                    a_pool_whose_reservations_are_full_drifts_through,
                    a_free_slot_is_used_before_a_node_goes;
                virtual_time(terminating_first):
                    capacity_is_one_short_for_as_long_as_a_machine_takes,
                    a_pool_that_is_not_refilled_gives_up_no_other_node,
                    a_drain_that_would_never_end_is_ended;
            }
            static_capacity_over_time at static_capacity::over_time {
                shared(defaults):
                    scaling_drift_and_expiry_at_once;
                virtual_time(defaults):
                    expired_nodes_are_replaced;
            }
            churn_controls at churn_controls {
                shared(defaults):
                    empty_nodes_are_exempt,
                    drifted_nodes_are_not_held_back,
                    expired_nodes_are_not_held_back;
                alone(defaults):
                    without_a_control_the_move_is_made,
                    a_node_at_rest_takes_pods_and_a_busy_one_does_not,
                    a_replacement_that_costs_more_than_promised_goes_back;
                virtual_time(defaults):
                    a_replacement_goes_back_whatever_time_that_takes;
            }
            utilization at churn_controls::utilization {
                alone(defaults):
                    a_pool_forbids_until_it_changes_its_mind;
                alone(strict_utilization):
                    an_operator_forbids_until_the_pool_objects;
            }
            price_factor at churn_controls::price_factor {
                alone(defaults):
                    a_pool_forbids_until_it_changes_its_mind;
                alone(strict_price_factor):
                    an_operator_forbids_until_the_pool_objects;
            }
            savings at churn_controls::savings {
                alone(defaults):
                    a_pool_forbids_until_it_changes_its_mind;
                alone(strict_savings):
                    an_operator_forbids_until_the_pool_objects;
            }
            grace_period at churn_controls::grace_period {
                alone(defaults):
                    a_pool_forbids_until_it_changes_its_mind;
                alone(strict_grace_period):
                    an_operator_forbids_until_the_pool_objects;
            }
            writes at writes {
                virtual_time(defaults):
                    claims_come_and_go_without_conflicts_among_the_controllers,
                    a_launch_that_cannot_be_noted_is_not_asked_for_again,
                    a_launch_does_not_ask_the_api_server_for_its_node_class;
            }
            provisioning at provisioning {
                shared(defaults):
                    pods_go_where_their_selectors_say,
                    a_zone_that_nobody_offers_is_named_and_keeps_nobody_waiting,
                    the_heaviest_pool_goes_first_unless_a_pod_names_another,
                    a_tainted_pool_takes_only_pods_that_tolerate_it,
                    labels_and_annotations_of_the_pool_reach_the_node,
                    a_label_that_is_only_excluded_is_not_made_up,
                    daemons_are_counted_when_a_machine_is_chosen,
                    init_containers_count_when_they_need_more,
                    pods_spread_over_zones,
                    pods_that_repel_each_other_get_machines_of_their_own,
                    a_preference_that_cannot_be_met_is_dropped,
                    min_values_that_cannot_be_met_launch_nothing,
                    min_values_count_the_zones_that_a_pod_leaves_open,
                    a_pool_that_is_being_deleted_launches_nothing,
                    a_pod_that_comes_before_its_pool_gets_a_node_all_the_same,
                    the_pods_of_a_node_that_goes_move_to_one_other,
                    a_volume_that_is_not_there_is_named_and_keeps_nobody_waiting,
                    a_pod_follows_its_volume_into_its_zone,
                    a_pod_follows_the_volume_of_a_driver_into_its_zone,
                    a_pod_whose_claim_comes_late_is_told_and_then_runs,
                    a_pod_that_names_its_node_is_told_and_keeps_nobody_waiting,
                    a_pod_for_nodes_of_no_pool_is_left_alone,
                    a_deployment_that_grows_uses_the_room_there_is_first;
                alone(batching_by_owner):
                    the_pods_of_a_rollout_get_their_node_together;
                virtual_time(batching_by_owner):
                    a_rollout_that_is_complete_does_not_wait_for_quiet;
                virtual_time(defaults):
                    a_label_with_several_values_is_mixed_over_nodes,
                    instance_types_that_come_are_planned_with_at_once,
                    replicas_that_keep_apart_get_their_zones_at_once;
            }
            limits at limits {
                shared(defaults):
                    the_number_of_nodes_is_never_exceeded,
                    pods_that_come_one_after_the_other_do_not_exceed_it_either,
                    a_limit_of_cpu_counts_whole_machines,
                    there_is_room_again_when_a_node_goes;
                virtual_time(defaults):
                    a_replacement_leaves_the_room_to_a_claim_that_is_to_come,
                    a_claim_for_a_pod_leaves_the_room_to_a_replacement_that_is_to_come;
            }
            hostile_pods at hostile_pods {
                shared(defaults):
                    an_absurd_request_keeps_no_other_pod_waiting,
                    a_limit_beyond_all_bounds_limits_nothing,
                    too_many_constraints_are_refused_with_a_reason;
            }
            reasons at reasons {
                alone(defaults):
                    a_pod_is_told_that_there_is_no_pool_or_only_static_ones,
                    a_pod_is_told_that_instance_types_are_unknown;
            }
            overlays at overlays {
                alone(overlaying):
                    a_discount_decides_which_machine_is_bought,
                    a_discount_on_demand_is_not_spent_on_spot,
                    of_two_that_contradict_each_other_one_names_the_other,
                    an_overlay_that_is_wrong_says_so,
                    a_resource_that_an_overlay_adds_gets_its_pod_a_node;
                virtual_time(overlaying):
                    nodes_follow_overlays_that_come_and_go;
            }
            reserved at reserved {
                alone(defaults):
                    one_pod_gets_the_only_place_and_the_others_get_bought_machines,
                    pods_that_want_the_only_place_get_it_one_after_the_other;
                virtual_time(defaults):
                    a_place_is_promised_once_even_before_its_machine_is_there;
            }
            terminate_first at reserved::terminate_first {
                alone(terminating_first):
                    a_node_in_the_only_slot_goes_first;
                virtual_time(terminating_first):
                    a_slot_that_another_consumer_takes_costs_one_node;
            }
            launching at launching {
                shared(defaults):
                    a_claim_that_nothing_can_meet_is_given_up_with_a_reason,
                    a_claim_whose_class_is_missing_is_given_up_with_a_reason,
                    a_claim_whose_class_is_not_ready_is_given_up,
                    what_belongs_to_another_provider_is_left_alone,
                    a_node_without_its_taint_is_registered_and_reported,
                    a_claim_takes_all_its_nodes_along,
                    the_label_of_the_class_comes_back,
                    a_start_up_taint_holds_a_node_back_until_somebody_removes_it,
                    conditions_tell_how_far_a_claim_has_come,
                    a_registered_node_makes_its_pool_healthy;
                alone(defaults):
                    a_start_up_taint_that_was_removed_before_registration_stays_away;
                virtual_time(defaults):
                    an_instance_with_two_nodes_is_not_registered,
                    a_claim_without_a_pool_is_given_up_like_any_other,
                    a_cloud_that_limits_calls_is_left_alone_as_long_as_it_says,
                    a_launch_that_is_not_allowed_is_told_and_tried_again_after_a_minute,
                    an_operator_is_not_ready_before_its_provider_has_started,
                    two_nodes_that_never_come_make_their_pool_unhealthy;
            }
            draining at draining {
                shared(defaults):
                    a_protected_pod_holds_the_drain_until_its_annotation_goes,
                    critical_pods_wait_until_the_others_are_gone,
                    pods_that_tolerate_the_taint_stay_to_the_end,
                    two_budgets_on_one_pod_are_told_apart_from_one,
                    evicted_pods_are_told_and_find_another_node,
                    a_pod_that_would_outlive_its_node_is_deleted_at_once,
                    an_instance_waits_until_its_volumes_are_detached,
                    a_node_without_a_claim_is_drained_and_let_go,
                    a_claim_without_an_instance_goes_at_once;
                virtual_time(defaults):
                    an_empty_node_is_watched_for_five_seconds,
                    a_pod_of_the_same_name_on_another_node_stays,
                    a_pod_that_came_back_by_its_name_is_not_evicted,
                    a_node_with_two_claims_is_drained_and_let_go,
                    a_pod_that_leaves_too_slowly_is_hurried,
                    a_pod_that_never_ends_does_not_hold_its_node_for_ever;
            }
            conditions at conditions {
                shared(defaults):
                    a_changed_template_drifts_its_nodes_until_it_is_changed_back,
                    requirements_that_a_node_does_not_meet_drift_it,
                    a_quiet_node_becomes_consolidatable_unless_its_pool_says_never,
                    a_claim_expires_when_its_time_has_come,
                    the_arrival_of_a_pod_is_noted_on_its_claim;
                virtual_time(defaults):
                    the_arrival_of_a_pod_is_noted_before_its_claim_names_the_node,
                    what_the_cloud_calls_drift_is_drift,
                    a_type_that_is_no_longer_sold_is_drift_after_an_hour,
                    a_claim_does_not_drift_before_it_is_launched,
                    an_operator_that_hashes_otherwise_drifts_nothing,
                    pods_that_come_and_go_restart_the_wait,
                    a_pod_that_ends_restarts_the_wait,
                    a_claim_whose_instance_vanished_is_collected,
                    a_node_that_is_smaller_than_promised_is_reported;
            }
            pools at pools {
                shared(defaults):
                    a_pool_counts_what_it_has,
                    the_hash_of_a_pool_follows_what_its_nodes_are_made_of,
                    a_pool_whose_class_goes_launches_nothing_more,
                    a_pool_that_contradicts_itself_says_so_and_keeps_nobody_waiting,
                    a_pool_that_no_machine_can_meet_says_so_and_keeps_nobody_waiting,
                    metrics_tell_how_things_stand;
            }
            metrics at metrics {
                virtual_time(defaults):
                    every_metric_has_its_name_its_type_and_its_labels,
                    calls_of_the_cloud_that_fail_are_counted_by_pool,
                    no_gauge_of_pods_or_nodes_has_more_series_than_karpenters;
            }
            side_by_side at side_by_side {
                shared(defaults):
                    the_marks_of_another_operator_are_left_alone,
                    a_claim_in_flight_of_another_operator_is_no_place_for_pods;
                alone(defaults):
                    a_claim_with_the_instance_of_another_costs_nobody_an_instance;
            }
            repair at repair {
                virtual_time(repairing):
                    an_unwell_node_is_replaced_after_ten_minutes,
                    a_fault_that_kwok_plays_is_repaired_after_half_a_minute,
                    an_unwell_node_of_another_provider_is_left_alone,
                    neither_pods_nor_annotations_hold_a_repair_back,
                    a_veto_keeps_an_unwell_node,
                    a_veto_ends_a_repair_that_is_under_way,
                    a_budget_of_none_keeps_unwell_nodes,
                    too_many_unwell_nodes_are_left_alone,
                    a_wave_of_broken_nodes_is_replaced_under_the_budget,
                    a_fault_that_comes_and_goes_is_tolerated,
                    a_repair_that_cannot_be_launched_is_tried_less_and_less_often;
            }
            reboot at repair::reboot {
                alone(repairing):
                    a_node_that_asks_for_it_is_rebooted_and_stays;
                virtual_time(repairing):
                    a_machine_goes_down_and_comes_back,
                    reboots_that_do_not_help_are_followed_by_a_replacement,
                    a_reboot_that_fails_is_followed_by_a_replacement_that_comes_first,
                    a_cloud_is_asked_again_until_it_has_heard,
                    a_cloud_that_never_hears_is_given_up_after_five_minutes,
                    a_node_that_does_not_come_back_is_replaced_under_the_budget,
                    a_veto_calls_a_reboot_off,
                    pods_that_may_not_be_evicted_ride_through_a_reboot;
            }
            legacy_repair at repair::legacy {
                virtual_time(repairing_by_force):
                    an_unwell_node_is_replaced_after_ten_minutes,
                    a_fault_that_kwok_plays_is_repaired_after_half_a_minute,
                    an_unwell_node_whose_drain_hangs_is_replaced,
                    nothing_holds_a_repair_back,
                    too_many_unwell_nodes_are_left_alone;
            }
            emptiness at disruption::emptiness {
                shared(defaults):
                    an_empty_node_is_removed,
                    a_node_with_nothing_but_daemons_is_removed,
                    a_daemon_that_asks_for_it_keeps_its_node,
                    a_node_that_asks_for_it_is_left_alone,
                    a_pod_that_is_never_bound_does_not_keep_a_node,
                    a_budget_of_none_keeps_empty_nodes,
                    a_budget_bounds_how_many_nodes_go_at_once;
                virtual_time(defaults):
                    an_empty_node_is_kept_for_as_long_as_its_pool_says,
                    a_pod_that_comes_before_the_second_look_keeps_its_node,
                    a_budget_holds_while_its_window_is_open;
            }
            drift at disruption::drift {
                shared(defaults):
                    a_drifted_node_is_replaced_before_it_goes,
                    a_drifted_node_waits_for_its_budget,
                    a_drifted_pool_at_its_limit_says_so,
                    a_protected_pod_holds_drift,
                    a_protected_pod_does_not_hold_drift_where_drains_are_bounded;
                alone(defaults):
                    an_operator_that_was_killed_goes_on_with_its_command;
                virtual_time(defaults):
                    a_replacement_that_cannot_be_launched_is_tried_again,
                    a_replacement_that_never_registers_is_given_up,
                    a_pool_over_its_limit_keeps_no_other_waiting;
            }
            consolidation at disruption::consolidation {
                shared(defaults):
                    a_spot_node_stays_where_spot_may_not_replace_spot,
                    a_pool_that_asks_for_a_wide_choice_keeps_it,
                    a_pool_that_only_removes_empty_nodes_says_so;
                alone(defaults):
                    a_node_whose_pods_fit_elsewhere_is_removed,
                    a_node_that_is_too_large_is_replaced_by_a_smaller_one,
                    a_pod_that_asks_for_it_keeps_its_node,
                    a_disruption_budget_keeps_its_node,
                    a_balanced_pool_is_consolidated_where_it_pays;
                virtual_time(spot_to_spot):
                    a_spot_node_needs_fifteen_cheaper_types_to_be_replaced,
                    a_spot_node_with_fifteen_cheaper_types_is_replaced;
                virtual_time(defaults):
                    several_nodes_are_replaced_by_one,
                    a_pod_that_comes_before_the_second_look_stops_a_replacement,
                    a_replacement_that_turns_out_too_dear_is_undone;
            }
            many_to_many at disruption::many_to_many {
                virtual_time(many_to_many):
                    a_node_is_replaced_by_two_that_cost_less,
                    two_that_become_too_dear_before_the_second_look_are_not_bought;
            }
            unreadable at unreadable {
                alone(defaults):
                    a_pod_that_cannot_be_read_keeps_its_node_and_no_other,
                    a_node_that_cannot_be_read_is_left_alone,
                    a_claim_that_cannot_be_read_keeps_its_instance,
                    a_claim_with_an_amount_that_is_no_quantity_keeps_its_instance,
                    a_pool_that_cannot_be_read_launches_nothing_and_keeps_its_nodes;
            }
            buffers at buffers {
                alone(buffering):
                    a_scale_up_into_a_buffer_needs_no_new_node_and_the_room_is_refilled,
                    a_buffer_has_room_before_any_pod_comes_and_gives_it_back,
                    what_a_buffer_refers_to_may_come_later,
                    a_limit_that_keeps_room_from_a_buffer_is_named;
                virtual_time(buffering):
                    the_nodes_of_a_buffer_become_fewer_and_smaller_and_stay,
                    an_expired_node_of_a_buffer_is_replaced;
                virtual_time(defaults):
                    with_the_gate_off_a_buffer_is_left_alone;
            }
            deletion_costs at deletion_costs {
                alone(costing):
                    a_workload_that_shrinks_empties_a_node_and_nothing_is_evicted,
                    a_cost_of_somebody_else_stays_and_its_replica_set_is_left_alone;
                alone(defaults):
                    with_the_gate_off_costs_of_kerf_go_and_others_stay;
                virtual_time(costing):
                    an_order_that_stays_is_not_written_again,
                    pods_of_a_node_that_leaves_go_first;
            }
            setbacks at disruption::setbacks {
                virtual_time(defaults):
                    a_replacement_that_cannot_be_launched_is_tried_less_and_less_often,
                    a_pool_whose_nodes_cannot_be_replaced_rests,
                    a_cloud_that_sells_dear_is_not_asked_again_and_again;
            }
        }
    };
}

/// The settings of operators that are not started with the defaults.
pub mod settings {
    use kerf_controllers::{
        Settings,
        settings::{Batching, FeatureGates, RepairSettings},
    };

    use crate::chapters::churn_controls;

    pub fn defaults() -> Settings {
        Settings::default()
    }

    pub fn no_static_capacity() -> Settings {
        gated(FeatureGates { static_capacity: false, ..FeatureGates::default() })
    }

    pub fn repairing() -> Settings {
        gated(FeatureGates { node_repair: true, ..FeatureGates::default() })
    }

    pub fn repairing_terminate_first() -> Settings {
        let gates = FeatureGates::default();
        gated(FeatureGates { node_repair: true, terminate_first_repair: true, ..gates })
    }

    pub fn repairing_by_force() -> Settings {
        let repair = RepairSettings { legacy: true, ..RepairSettings::default() };
        Settings { repair, ..repairing() }
    }

    pub fn buffering() -> Settings {
        gated(FeatureGates { capacity_buffer: true, ..FeatureGates::default() })
    }

    /// `ReplicaSets` that shrink are told what to remove first.
    pub fn costing() -> Settings {
        gated(FeatureGates { pod_deletion_cost_management: true, ..FeatureGates::default() })
    }

    pub fn terminating_first() -> Settings {
        gated(FeatureGates { terminate_first_drift: true, ..FeatureGates::default() })
    }

    pub fn spot_to_spot() -> Settings {
        gated(FeatureGates { spot_to_spot_consolidation: true, ..FeatureGates::default() })
    }

    pub fn many_to_many() -> Settings {
        Settings { many_to_many: true, ..Settings::default() }
    }

    pub fn batching_by_owner() -> Settings {
        let batching = Batching { by_owner: true, ..Batching::default() };
        Settings { batching, ..Settings::default() }
    }

    pub fn overlaying() -> Settings {
        gated(FeatureGates { node_overlay: true, ..FeatureGates::default() })
    }

    fn gated(gates: FeatureGates) -> Settings {
        Settings { gates, ..Settings::default() }
    }

    pub fn strict_utilization() -> Settings {
        churn_controls::UTILIZATION.strict_operator()
    }

    pub fn strict_price_factor() -> Settings {
        churn_controls::PRICE_FACTOR.strict_operator()
    }

    pub fn strict_savings() -> Settings {
        churn_controls::SAVINGS.strict_operator()
    }

    pub fn strict_grace_period() -> Settings {
        churn_controls::GRACE_PERIOD.strict_operator()
    }
}
