//! The stories of the operator with the provider of AWS, on the stand-in for AWS. On the testbed, in virtual time.

/// Leaves out the stories that say nothing about AWS, each for a reason. All others become tests.
macro_rules! leaving_out {
    ($d:tt $($chapter:ident $story:ident $why:literal)*) => {
        const LEFT_OUT: &[(&str, &str, &str)] =
            &[$((stringify!($chapter), stringify!($story), $why)),*];

        macro_rules! story {
            $(($chapter $story $d settings:ident) => {};)*
            ($d chapter:ident $d story:ident $d settings:ident) => {
                #[tokio::test(start_paused = true)]
                async fn $d story() {
                    let settings = kerf_stories::stories::settings::$d settings();
                    let cloud = std::sync::Arc::new(kerf_stories_aws::AwsStage::instant());
                    let world = kerf_stories::World::with_cloud(cloud, 7, settings);
                    chapter::$d story(world.await).await;
                }
            };
        }
    };
}

leaving_out! { $
    churn_controls a_replacement_goes_back_whatever_time_that_takes
        "changes the catalogue of KWOK's provider; AWS's follows the account"
    churn_controls a_replacement_that_costs_more_than_promised_goes_back
        "changes the catalogue of KWOK's provider; AWS's follows the account"
    conditions a_type_that_is_no_longer_sold_is_drift_after_an_hour
        "changes the catalogue of KWOK's provider; AWS's follows the account"
    conditions a_claim_whose_instance_vanished_is_collected
        "deletes KWOK's Node, which is the instance; on AWS the instance lives on"
    consolidation a_replacement_that_turns_out_too_dear_is_undone
        "changes the catalogue of KWOK's provider; AWS's follows the account"
    many_to_many a_node_is_replaced_by_two_that_cost_less
        "names instance types of KWOK's catalogue"
    many_to_many two_that_become_too_dear_before_the_second_look_are_not_bought
        "names instance types of KWOK's catalogue"
    overlays a_discount_decides_which_machine_is_bought
        "selects by a label of KWOK's instance types"
    overlays of_two_that_contradict_each_other_one_names_the_other
        "selects by a label of KWOK's instance types"
    overlays a_resource_that_an_overlay_adds_gets_its_pod_a_node
        "selects by a label of KWOK's instance types"
    overlays nodes_follow_overlays_that_come_and_go
        "selects by a label of KWOK's instance types"
    provisioning instance_types_that_come_are_planned_with_at_once
        "changes the catalogue of KWOK's provider; AWS's follows the account"
    launching a_claim_whose_class_is_not_ready_is_given_up
        "writes the status of a class by hand; on AWS a controller writes it"
    metrics every_metric_has_its_name_its_type_and_its_labels
        "has the list of KWOK's labels"
    pools metrics_tell_how_things_stand
        "reads the price from a label that KWOK's nodes alone have"
    legacy_repair a_fault_that_kwok_plays_is_repaired_after_half_a_minute
        "sets a condition that KWOK's nodes alone have"
    repair a_fault_that_kwok_plays_is_repaired_after_half_a_minute
        "sets a condition that KWOK's nodes alone have"
    reboot a_node_that_asks_for_it_is_rebooted_and_stays
        "AWS has no policy that asks for a reboot"
    reboot a_machine_goes_down_and_comes_back
        "AWS has no policy that asks for a reboot"
    reboot reboots_that_do_not_help_are_followed_by_a_replacement
        "AWS has no policy that asks for a reboot"
    reboot a_reboot_that_fails_is_followed_by_a_replacement_that_comes_first
        "AWS has no policy that asks for a reboot"
    reboot a_cloud_is_asked_again_until_it_has_heard
        "AWS has no policy that asks for a reboot"
    reboot a_cloud_that_never_hears_is_given_up_after_five_minutes
        "AWS has no policy that asks for a reboot"
    reboot a_node_that_does_not_come_back_is_replaced_under_the_budget
        "AWS has no policy that asks for a reboot"
    reboot a_veto_calls_a_reboot_off
        "AWS has no policy that asks for a reboot"
    reboot pods_that_may_not_be_evicted_ride_through_a_reboot
        "AWS has no policy that asks for a reboot"
    repair a_veto_keeps_an_unwell_node
        "sets a condition that KWOK's nodes alone have"
    repair a_veto_ends_a_repair_that_is_under_way
        "sets a condition that KWOK's nodes alone have"
    repair a_budget_of_none_keeps_unwell_nodes
        "sets a condition that KWOK's nodes alone have"
    repair a_wave_of_broken_nodes_is_replaced_under_the_budget
        "sets a condition that KWOK's nodes alone have"
    repair a_fault_that_comes_and_goes_is_tolerated
        "sets a condition that KWOK's nodes alone have"
    repair a_repair_that_cannot_be_launched_is_tried_less_and_less_often
        "sets a condition that KWOK's nodes alone have"
    reserved one_pod_gets_the_only_place_and_the_others_get_bought_machines
        "reserves in KWOK's catalogue; an account reserves in EC2"
    reserved pods_that_want_the_only_place_get_it_one_after_the_other
        "reserves in KWOK's catalogue; an account reserves in EC2"
    reserved a_place_is_promised_once_even_before_its_machine_is_there
        "reserves in KWOK's catalogue; an account reserves in EC2"
    terminate_first a_node_in_the_only_slot_goes_first
        "reserves in KWOK's catalogue; an account reserves in EC2"
    terminate_first a_slot_that_another_consumer_takes_costs_one_node
        "reserves in KWOK's catalogue; an account reserves in EC2"
    terminate_first_static a_pool_whose_reservations_are_full_drifts_through
        "reserves in KWOK's catalogue; an account reserves in EC2"
    terminate_first_static a_free_slot_is_used_before_a_node_goes
        "reserves in KWOK's catalogue; an account reserves in EC2"
}

macro_rules! play {
    ($($chapter:ident at $($path:ident)::+ {
        $($stage:ident($settings:ident): $($story:ident),+;)+
    })+) => {
        const STORIES: &[(&str, &str)] =
            &[$($($((stringify!($chapter), stringify!($story)),)+)+)+];

        $(mod $chapter {
            #[allow(unused_imports, reason = "all stories of a chapter may be left out")]
            use kerf_stories::chapters::$($path)::+ as chapter;

            play! { @ $chapter $($settings: $($story),+;)+ }
        })+
    };
    (@ $chapter:ident $($settings:ident: $($story:ident),+;)+) => {
        $(play! { @@ $chapter $settings $($story),+ })+
    };
    (@@ $chapter:ident $settings:ident $($story:ident),+) => {
        $(story! { $chapter $story $settings })+
    };
}

kerf_stories::stories! { play }

#[test]
fn what_is_left_out_is_a_story() {
    for (chapter, story, why) in LEFT_OUT {
        assert!(STORIES.contains(&(chapter, story)), "{chapter}::{story}: {why}");
    }
}
