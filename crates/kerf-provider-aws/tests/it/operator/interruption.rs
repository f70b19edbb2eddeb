//! Messages of the interruption queue, and status checks.

use std::{collections::BTreeSet, time::Duration};

use kerf_api::NodeClaim;
use kerf_fake_aws::Impairment;
use kerf_testbed::{Fault, Matching, Verb};
use serde_json::json;

use super::world::{World, is_in, on_demand_m5, options, play};

/// Type and zone.
fn offering(claim: &NodeClaim) -> (String, String) {
    let labels = claim.metadata.labels.clone().unwrap_or_default();
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    (label("node.kubernetes.io/instance-type"), label("topology.kubernetes.io/zone"))
}

#[test]
fn twenty_interrupted_nodes_are_replaced_before_ec2_takes_them() {
    play(async {
        let spot = json!([
            is_in("karpenter.k8s.aws/instance-family", &["c5", "m5", "r5", "c6i", "m6i", "r6i"]),
            is_in("karpenter.sh/capacity-type", &["spot", "on-demand"]),
            is_in("kubernetes.io/arch", &["amd64"]),
        ]);
        let world = World::new(options(), spot).await;
        world.pods_apart(20).await;
        let interrupted: BTreeSet<String> = world.running().await.into_iter().collect();
        let offerings: BTreeSet<_> = world.claims().await.iter().map(offering).collect();
        let capacity_types: BTreeSet<_> = world
            .claims()
            .await
            .iter()
            .map(|claim| {
                claim.metadata.labels.clone().unwrap()["karpenter.sh/capacity-type"].clone()
            })
            .collect();
        assert_eq!(capacity_types, BTreeSet::from(["spot".to_owned()]));
        let ids = world.aws.alive();
        assert_eq!((interrupted.len(), ids.len()), (20, 20));

        for id in &ids {
            world.aws.interrupt_spot(id);
        }
        let took = world
            .until("all pods run on other nodes", async |world| {
                let nodes = world.running().await;
                nodes.len() == 20 && nodes.iter().all(|node| !interrupted.contains(node))
            })
            .await;
        assert!(took < Duration::from_secs(90), "EC2 takes them after two minutes: {took:?}");

        let claims = world.claims().await;
        let stays = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
        let again: Vec<_> = stays.map(offering).filter(|it| offerings.contains(it)).collect();
        assert_eq!(again, [], "what is being interrupted is not launched again at once");
        for (kind, reason) in [
            ("NodeClaim", "SpotInterrupted"),
            ("Node", "SpotInterrupted"),
            ("NodeClaim", "TerminatingOnInterruption"),
            ("Node", "TerminatingOnInterruption"),
        ] {
            let about = world.events(reason).await.into_iter().filter(|(of, _)| of == kind).count();
            assert_eq!(about, 20, "{reason} on {kind}");
        }
        let count = |line: &str| world.metric(line);
        let received =
            "karpenter_interruption_received_messages_total{message_type=\"spot_interrupted\"}";
        assert_eq!(count(received).as_deref(), Some("20"));
        let disrupted = world.metrics();
        assert!(disrupted.contains("reason=\"spot_interrupted\""), "{disrupted}");
        world.pass(Duration::from_mins(6)).await;
        assert!(ids.iter().all(|id| !world.aws.alive().contains(id)));
    });
}

#[test]
fn a_message_stays_until_it_was_acted_on() {
    play(async {
        let world = World::new(options(), on_demand_m5()).await;
        world.pods_apart(1).await;
        let [id] = &*world.aws.alive() else { panic!("one instance") };
        let deletions = || Matching::any().verb(Verb::Delete).resource("nodeclaims");
        world.faults.on_next(2, deletions(), Fault::InternalError);
        let before = world.metric("karpenter_interruption_deleted_messages_total ");
        world.aws.schedule_change(std::slice::from_ref(id));
        world.pass(Duration::from_secs(5)).await;
        assert_eq!(world.metric("karpenter_interruption_deleted_messages_total "), before);
        let took = world
            .until("the claim is deleted", async |world| {
                let claims = world.claims().await;
                claims.iter().any(|claim| claim.metadata.deletion_timestamp.is_some())
            })
            .await;
        assert!(took < Duration::from_mins(1), "the message is hidden for 20 s: {took:?}");
        assert_eq!(world.events("InstanceUnhealthy").await.len(), 2, "on claim and Node");
        world.pass(Duration::from_secs(30)).await;
        let line =
            "karpenter_interruption_received_messages_total{message_type=\"scheduled_change\"}";
        assert_eq!(world.metric(line).as_deref(), Some("3"));
    });
}

#[test]
fn what_calls_for_nothing_is_deleted_and_counted() {
    play(async {
        let world = World::new(options(), on_demand_m5()).await;
        world.pods_apart(1).await;
        let [id] = &*world.aws.alive() else { panic!("one instance") };
        world.pass(Duration::from_mins(1)).await;
        let deleted = |world: &World| {
            let line = "karpenter_interruption_deleted_messages_total ";
            world.metric(line).and_then(|value| value.parse::<u32>().ok()).unwrap_or_default()
        };
        let before = deleted(&world);
        world.aws.send_message("this is no event");
        world
            .aws
            .send_message("{\"version\": \"0\", \"source\": \"aws.s3\", \"detail-type\": \"x\"}");
        world.aws.schedule_change(&["i-0123456789abcdef0".to_owned()]);
        world.aws.recommend_rebalance(id);
        world.pass(Duration::from_secs(5)).await;
        assert_eq!(deleted(&world) - before, 4);
        for (kind, expected) in [
            ("malformed", Some("1")),
            ("scheduled_change", Some("1")),
            ("rebalance_recommendation", Some("1")),
            ("spot_interrupted", None),
        ] {
            let line = format!(
                "karpenter_interruption_received_messages_total{{message_type=\"{kind}\"}}"
            );
            assert_eq!(world.metric(&line).as_deref(), expected, "{kind}");
        }
        let events = world.events("SpotRebalanceRecommendation").await;
        assert_eq!(events.len(), 2, "{events:?}");
        let claims = world.claims().await;
        assert!(claims.iter().all(|claim| claim.metadata.deletion_timestamp.is_none()));
    });
}

#[test]
fn an_instance_that_somebody_ends_is_replaced() {
    play(async {
        let world = World::new(options(), on_demand_m5()).await;
        world.pods_apart(1).await;
        let before = world.running().await;
        let [id] = &*world.aws.alive() else { panic!("one instance") };
        world.aws.fail_instance(id);
        let took = world
            .until("the pod runs elsewhere", async |world| {
                let nodes = world.running().await;
                nodes.len() == 1 && nodes != before
            })
            .await;
        assert!(took < Duration::from_mins(2), "{took:?}");
        assert_eq!(world.events("InstanceTerminating").await.len(), 2);
        let line = "reason=\"instance_terminated\"";
        assert!(world.metrics().contains(line));
    });
}

#[test]
fn a_queue_that_is_missing_or_denied_is_asked_for_seldom_and_heard_again() {
    play(async {
        let missing = kerf_provider_aws::Options {
            interruption_queue: Some("missing".to_owned()),
            ..options()
        };
        let world = World::new(missing, on_demand_m5()).await;
        world.pass(Duration::from_hours(1)).await;
        let asked = world.aws.count("GetQueueUrl");
        assert!((10..=20).contains(&asked), "asked {asked} times in an hour");

        let world = World::new(options(), on_demand_m5()).await;
        world.aws.deny("sqs:ReceiveMessage");
        world.pods_apart(1).await;
        world.pass(Duration::from_mins(30)).await;
        let [id] = &*world.aws.alive() else { panic!("one instance") };
        world.aws.allow("sqs:ReceiveMessage");
        world.aws.schedule_change(std::slice::from_ref(id));
        let took = world
            .until("the message is acted on", async |world| {
                !world.events("TerminatingOnInterruption").await.is_empty()
            })
            .await;
        assert!(took <= Duration::from_mins(5), "{took:?}");
    });
}

#[test]
fn a_node_whose_status_check_fails_is_replaced_without_a_drain() {
    play(async {
        let world = World::new(options(), on_demand_m5()).await;
        world.pods_apart(1).await;
        let before = world.running().await;
        let [id] = &*world.aws.alive() else { panic!("one instance") };
        world.aws.impair(id, Some(Impairment::System));
        world.pass(Duration::from_secs(115)).await;
        let picture = format!("{}{:?}", world.testbed.dump(), world.claims().await);
        assert_eq!(world.running().await, before, "it may pass again:\n{picture}");
        let took = world
            .until("the pod runs elsewhere", async |world| {
                let nodes = world.running().await;
                nodes.len() == 1 && nodes != before
            })
            .await;
        assert!(took < Duration::from_mins(3), "{took:?}");
        assert!(world.metrics().contains("reason=\"system_status\""));
        let line =
            "karpenter_interruption_instance_status_unhealthy_total{category=\"SystemStatus\"}";
        assert_eq!(world.metric(line).as_deref(), Some("1"));
        let events = world.events("InstanceUnhealthy").await;
        assert_eq!(events.len(), 2, "{events:?}");
    });
}

#[test]
fn without_the_right_to_look_at_status_checks_all_else_goes_on() {
    play(async {
        let world = World::new(options(), on_demand_m5()).await;
        world.aws.deny("ec2:DescribeInstanceStatus");
        world.pods_apart(1).await;
        world.pass(Duration::from_hours(1)).await;
        let asked = world.aws.count("DescribeInstanceStatus");
        assert!(asked <= 20, "asked {asked} times in an hour");
        assert_eq!(world.running().await.len(), 1);
    });
}

/// Pods are well there still, so that they are moved and not lost.
#[test]
fn a_node_that_aws_will_stop_is_drained_and_replaced() {
    play(async {
        let world = World::new(options(), on_demand_m5()).await;
        world.pods_apart(1).await;
        let before = world.running().await;
        let [id] = &*world.aws.alive() else { panic!("one instance") };
        world.aws.schedule_event(id, "system-reboot", "[Completed] the host was rebooted");
        world.pass(Duration::from_mins(3)).await;
        assert_eq!(world.running().await, before, "what is over calls for nothing");
        world.aws.schedule_event(id, "instance-retirement", "the host fails");
        let took = world
            .until("the pod runs elsewhere", async |world| {
                let nodes = world.running().await;
                nodes.len() == 1 && nodes != before
            })
            .await;
        assert!(took < Duration::from_mins(3), "{took:?}");
        assert!(!world.events("Evicted").await.is_empty(), "it was drained");
        let events = world.events("InstanceUnhealthy").await;
        let message = "AWS will reboot, stop or retire the instance";
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events.iter().all(|(_, said)| said == message), "{events:?}");
        assert!(world.metrics().contains("reason=\"event_status\""));
        let line =
            "karpenter_interruption_instance_status_unhealthy_total{category=\"EventStatus\"}";
        assert_eq!(world.metric(line).as_deref(), Some("1"));
    });
}
