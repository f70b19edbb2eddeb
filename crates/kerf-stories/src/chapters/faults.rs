//! The cloud fails, machines die, volumes and pods hang: the operator gets over it, and nothing is left behind.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Node, Pod},
    storage::v1::VolumeAttachment,
};
use kerf_api::{
    NodeClaim, annotations,
    conditions::{Conditioned, INSTANCE_TERMINATING, READY},
    labels,
};
use kerf_provider::Launched;
use kerf_testbed::{CloudFault, Fault, Matching, Offered, Verb, WatchCut, actors};
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::{all_run, condition, launching::gone, no_node, one_ready_node, with_pool};
use crate::{World, build};

pub async fn a_launch_that_finds_no_capacity_is_planned_anew(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().on_next(2, CloudFault::InsufficientCapacity);
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("the node is ready", one_ready_node).await;
    told(&world, "InsufficientCapacityError").await;
    let why = super::told(&world, "InsufficientCapacityError", &pod).await;
    let why = why.unwrap_or_else(|error| panic!("the pod says nothing: {error}"));
    assert!(why.contains(" nominated for this pod failed to launch: "), "{why}");
}

pub async fn an_offering_that_is_sold_out_is_passed_over(world: World) {
    with_pool(&world, &json!({})).await;
    // What a pod of one CPU would get.
    world.cloud().exhaust(Offered::any().instance_type("c-2x-amd64-linux"));
    world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (_, node) = world.until("the node is ready", one_ready_node).await;
    assert_ne!(node.labels()[labels::INSTANCE_TYPE], "c-2x-amd64-linux");
}

pub async fn a_cloud_that_is_sold_out_is_tried_again(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().exhaust(Offered::any());
    world.create(build::pod("a", &json!({}))).await;
    told(&world, "InsufficientCapacityError").await;
    world.pass(Duration::from_mins(10)).await;
    assert!(world.list::<Node>().await.is_empty());
    world.cloud().restock();
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("the node is ready", one_ready_node).await;
}

pub async fn a_launch_that_is_refused_is_tried_again(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().on_next(3, CloudFault::LaunchRefused);
    world.create(build::pod("a", &json!({}))).await;
    let refused = world.until("the claim says why it is not launched", is_refused).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    assert_eq!(claim.uid(), refused.uid(), "the same claim is launched");
}

/// Whom a claim is for is known only to the operator that created it.
pub async fn pods_of_a_refused_launch_get_no_second_one_from_the_next_operator(mut world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().on_next(12, CloudFault::LaunchRefused);
    world.create(build::pod("a", &json!({}))).await;
    let refused = world.until("the launch is refused", is_refused).await;
    world.kill_operator();
    world.start_operator().await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    assert_eq!(claim.uid(), refused.uid(), "the same claim is launched");
}

/// What is not launched yet has no size, but it will have one.
pub async fn a_refused_launch_counts_under_the_limits(world: World) {
    with_pool(&world, &json!({"limits": {"cpu": "2"}})).await;
    world.cloud().on_next(6, CloudFault::LaunchRefused);
    world.create(build::pod("a", &json!({}))).await;
    let refused = world.until("the launch is refused", is_refused).await;
    let second = world.create(build::pod("b", &json!({}))).await;
    let why = world
        .until("the second pod gets an event", async |world: &World| {
            super::told(world, "FailedScheduling", &second).await
        })
        .await;
    assert!(why.contains("limit"), "{why}");
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    assert_eq!(claim.uid(), refused.uid(), "the only claim is launched");
}

async fn is_refused(world: &World) -> Result<NodeClaim, String> {
    let claim = world.only::<NodeClaim>().await?;
    let launched = claim.condition("Launched").ok_or("no condition")?;
    let told = (launched.reason.as_str(), launched.message.as_str());
    let refused = told == ("LaunchRefused", "injected: the launch was refused");
    if refused { Ok(claim) } else { Err(format!("{told:?}")) }
}

pub async fn a_launch_whose_answer_is_lost_is_not_launched_twice(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().on_next(2, CloudFault::LaunchAnswerLost);
    world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("the node is ready", one_ready_node).await;
}

pub async fn a_slow_launch_is_waited_for(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().on_next(1, CloudFault::LaunchSlow(Duration::from_mins(4)));
    world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("the node is ready", one_ready_node).await;
}

/// Planning waits for launches of seconds, since a node that is about to come may have room. It does not wait for minutes.
pub async fn a_slow_launch_holds_up_no_other_pod(world: World) {
    with_pool(&world, &json!({"disruption": {"consolidateAfter": "Never"}})).await;
    world.cloud().on_next(1, CloudFault::LaunchSlow(Duration::from_mins(4)));
    // Each to its own zone, so that kube-scheduler does not give the first node that comes to the pod that waits longest.
    let zone = |zone: &str| json!({"nodeSelector": {labels::ZONE: zone}});
    let slow = world.create(build::pod("a", &zone("test-zone-a"))).await;
    world.until("its claim is there", async |world: &World| world.only::<NodeClaim>().await).await;
    let began = world.now();
    let other = world.create(build::pod("b", &zone("test-zone-b"))).await;
    world.until("the other pod runs", async |world: &World| super::runs(world, &other).await).await;
    let waited = world.now().duration_since(began);
    assert!(waited < SignedDuration::from_secs(30), "it waited for {waited:#}");
    world.until("both run", async |world: &World| all_run(world, 2).await).await;
    let node_of = async |pod: &Pod| world.get(pod).await.and_then(|pod| pod.spec?.node_name);
    assert_ne!(node_of(&slow).await, node_of(&other).await);
    assert_eq!(world.list::<NodeClaim>().await.len(), 2, "each pod was planned once");
}

/// As Karpenter's are: they do not say for which claim they were launched.
pub async fn an_instance_that_names_no_claim_is_terminated_if_no_claim_names_it(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    world.until("the node is ready", one_ready_node).await;
    let instance = |id: &str, launched_at| Launched {
        provider_id: id.to_owned(),
        launched_at,
        ..Launched::default()
    };
    world.cloud().plant(instance("other://old", Some(world.now())));
    world.cloud().plant(instance("other://of-unknown-age", None));
    world.pass(Duration::from_mins(5)).await;
    let left: Vec<_> = world.cloud().nodeless().into_iter().map(|one| one.provider_id).collect();
    assert_eq!(left, ["other://of-unknown-age"]);
    world.until("the node stays", one_ready_node).await;
}

pub async fn an_instance_that_never_registers_is_replaced_and_terminated(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().on_next(1, CloudFault::NeverRegisters);
    world.create(build::pod("a", &json!({}))).await;
    world
        .until("the instance runs", async |world: &World| {
            if world.cloud().nodeless().is_empty() { Err("no instance".into()) } else { Ok(()) }
        })
        .await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("the node is ready", one_ready_node).await;
    assert!(world.cloud().nodeless().is_empty(), "the first instance is terminated");
}

/// With node repair.
pub async fn a_node_that_never_becomes_ready_is_replaced(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().on_next(1, CloudFault::NeverReady);
    world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("the node is ready", one_ready_node).await;
}

/// With node repair.
pub async fn a_node_that_dies_is_replaced(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let (_, node) = world.until("the node is ready", one_ready_node).await;
    world.kill_node(&node.name_any());
    another_node(&world, &node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
}

pub async fn a_node_whose_instance_is_gone_is_replaced(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.cloud().vanish(claim.status.unwrap_or_default().provider_id);
    world.kill_node(&node.name_any());
    another_node(&world, &node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
}

/// A list may be late or wrong; a kubelet that reports is there.
pub async fn a_node_that_reports_is_kept_although_its_instance_is_not_listed(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.cloud().vanish(claim.status.clone().unwrap_or_default().provider_id);
    world.pass(Duration::from_mins(10)).await;
    let kept = world.get(&claim).await.map(|claim| claim.metadata.deletion_timestamp);
    assert_eq!(kept, Some(None));
}

/// Nobody is there who could end their pods; these would hold a drain for ever.
pub async fn nodes_whose_instances_are_gone_are_let_go_without_a_drain(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(protected_for_ever(3)).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    for claim in world.list::<NodeClaim>().await {
        world.cloud().vanish(claim.status.unwrap_or_default().provider_id);
    }
    let lost = world.list::<Node>().await;
    for node in &lost {
        world.kill_node(&node.name_any());
    }
    for node in lost {
        world.until("the node is gone", gone(&node)).await;
    }
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
}

pub async fn a_node_that_reports_is_drained_although_its_instance_is_gone(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(protected_for_ever(1)).await;
    let pods = world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.cloud().vanish(claim.status.clone().unwrap_or_default().provider_id);
    world.delete(&claim).await;
    world.pass(Duration::from_mins(5)).await;
    assert!(world.get(&node).await.is_some(), "the pod was left behind");
    let free = json!({"metadata": {"annotations": {annotations::DO_NOT_DISRUPT: null}}});
    world.patch(&pods[0], free).await;
    world.until("the node is gone", gone(&node)).await;
    let evicted = super::told(&world, "Evicted", &pods[0]).await;
    assert_eq!(evicted.as_deref(), Ok("Evicted pod: Forceful Termination"));
}

pub async fn a_volume_that_will_not_detach_is_left_behind_at_the_deadline(world: World) {
    with_pool(&world, &json!({"template": {"spec": {"terminationGracePeriod": "5m"}}})).await;
    let (claim, _) = with_volume_that_will_not_detach(&world).await;
    world.delete(&claim).await;
    told(&world, "AwaitingVolumeDetachment").await;
    world.cloud().on_next(1, CloudFault::TerminationSlow(Duration::from_mins(1)));
    let why = world.until("the wait is over", condition(&claim, "VolumesDetached", "False")).await;
    assert_eq!(why, "TerminationGracePeriodElapsed: TerminationGracePeriodElapsed");
    world.until("everything is gone", no_node).await;
}

/// The API server says that the pod is gone, or another. Nobody is told, and the drain finds out what is true.
pub async fn an_eviction_that_comes_too_late_is_passed_over(world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let evictions = Matching::any().verb(Verb::Create).subresource("eviction");
    world.faults().on_next(1, evictions, Fault::Conflict);
    world.delete(&claim).await;
    world.until("the pod is gone", gone(&pod)).await;
    world.until("the node is gone", gone(&node)).await;
    let metrics = world.metrics();
    for answered in ["409", "200"] {
        let line = format!("karpenter_pods_eviction_requests_total{{code=\"{answered}\"}} 1");
        assert!(metrics.lines().any(|it| it == line), "{line} is not in\n{metrics}");
    }
    let events = world.list::<Event>().await;
    let told = events.iter().filter(|it| it.reason.as_deref() == Some("FailedDraining"));
    let told: Vec<_> = told.filter_map(|it| it.message.as_deref()).collect();
    assert_eq!(told, ["Failed to drain node, 1 pods are waiting to be evicted"]);
}

pub async fn a_volume_that_will_not_detach_holds_the_instance(world: World) {
    with_pool(&world, &json!({})).await;
    let (claim, attachment) = with_volume_that_will_not_detach(&world).await;
    let node = world.only::<Node>().await.unwrap_or_else(|error| panic!("{error}"));
    world.delete(&claim).await;
    told(&world, "AwaitingVolumeDetachment").await;
    world.pass(Duration::from_mins(5)).await;
    assert!(world.get(&node).await.is_some(), "the instance waits for its volume");
    let free = json!({"metadata": {"annotations": {actors::NEVER_DETACHES: null}}});
    world.patch(&attachment, free).await;
    world.until("everything is gone", no_node).await;
}

async fn with_volume_that_will_not_detach(world: &World) -> (NodeClaim, VolumeAttachment) {
    world.create(build::volume_class("disks")).await;
    world.create(build::volume_claim("a", "disks")).await;
    let volumes = json!({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]});
    world.create(build::pod("a", &volumes)).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let attachment = world
        .until("the volume is attached", async |world: &World| {
            world.only::<VolumeAttachment>().await
        })
        .await;
    let held = json!({"metadata": {"annotations": {actors::NEVER_DETACHES: "true"}}});
    world.patch(&attachment, held).await;
    (claim, attachment)
}

/// A pod that is still there a minute after its own grace period of 30 seconds is no longer waited for.
pub async fn a_pod_that_will_not_end_is_left_behind(world: World) {
    with_pool(&world, &json!({})).await;
    let mut pod = build::pod("a", &json!({}));
    pod.meta_mut()
        .annotations
        .get_or_insert_default()
        .insert(actors::NEVER_ENDS.to_owned(), "true".to_owned());
    world.create(pod).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&claim).await;
    world.pass(Duration::from_secs(80)).await;
    assert!(world.get(&node).await.is_some(), "the node waits for its pod");
    world.until("everything is gone", no_node).await;
    world
        .until("the pod is collected", async |world: &World| {
            if world.list::<Pod>().await.is_empty() { Ok(()) } else { Err("a pod".into()) }
        })
        .await;
}

pub async fn a_termination_that_fails_is_tried_again(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().on_next(3, CloudFault::TerminationRefused);
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.delete(&pod).await;
    world.delete(&claim).await;
    world.until("everything is gone", no_node).await;
}

pub async fn a_slow_termination_is_waited_for(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().on_next(1, CloudFault::TerminationSlow(Duration::from_mins(10)));
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.delete(&pod).await;
    world.delete(&claim).await;
    world.pass(Duration::from_mins(9)).await;
    let claim = world.get(&claim).await.unwrap_or_else(|| panic!("its instance is still there"));
    // That its instance goes makes it no less ready.
    assert!(claim.is_true(INSTANCE_TERMINATING) && claim.is_true(READY), "{:?}", claim.status);
    world.until("everything is gone", no_node).await;
}

/// With watches as they are in production. Nothing comes over any of the connections any more, and nobody says so.
pub async fn watches_that_hang_leave_the_operator_blind_for_less_than_thirty_seconds(world: World) {
    with_pool(&world, &json!({})).await;
    let hangs = Fault::Watch(WatchCut::Hung(Duration::ZERO));
    world.faults().at_rate(1.0, Matching::any().verb(Verb::Watch), hangs);
    // By then every watch that there was has ended and the next has begun.
    world.pass(Duration::from_secs(16)).await;
    world.faults().clear();
    let begin = world.now();
    world.create(build::pod("a", &json!({}))).await;
    world.until("a claim is created", async |world: &World| world.only::<NodeClaim>().await).await;
    let blind = world.now().duration_since(begin);
    assert!(blind < jiff::SignedDuration::from_secs(30), "the pod was seen after {blind:#}");
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
}

/// Nothing keeps watches in step with each other.
pub async fn a_class_that_is_seen_after_its_claim_is_not_missing(mut world: World) {
    world.kill_operator();
    let classes = Matching::any().verb(Verb::Watch).resource("kwoknodeclasses");
    world.faults().at_rate(1.0, classes, Fault::WatchDelay(Duration::from_mins(1)));
    world.start_operator().await;
    world.create(build::node_class("default", &json!({}))).await;
    let claim = world.create(build::claim("c", &json!({}))).await;
    world.until("the claim is ready", condition(&claim, READY, "True")).await;
}

/// A server that refuses is asked less and less often, and the operator goes on as soon as it no longer does.
pub async fn lists_that_are_refused_are_tried_less_and_less_often(mut world: World) {
    with_pool(&world, &json!({})).await;
    world.kill_operator();
    let lists = Matching::any().verb(Verb::List).resource("pods");
    world.faults().at_rate(1.0, lists, Fault::InternalError);
    let before = world.faults().calls();
    let faults = world.faults().clone();
    let healed = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let calls = faults.calls() - before;
        faults.clear();
        calls
    };
    let (calls, ()) = tokio::join!(healed, world.start_operator());
    // Of each of the other kinds a list and a watch.
    assert!(calls < 60, "{calls} calls in half a minute");
    world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
}

/// 410 Gone: what happened meanwhile is only in a list, and nothing is gained by waiting for it. A server that expires every
/// watch is asked less and less often all the same.
pub async fn after_an_expired_watch_the_list_is_read_again_at_once(mut world: World) {
    world.kill_operator();
    let of_pods = |verb: Verb| Matching::any().verb(verb).resource("pods");
    let lists = world.faults().times(of_pods(Verb::List));
    let watched_for = Duration::from_secs(10);
    world.faults().on_next(1, of_pods(Verb::Watch), Fault::Watch(WatchCut::Expired(watched_for)));
    world.start_operator().await;
    world.pass(Duration::from_mins(1)).await;
    let [first, second] = lists.so_far()[..] else { panic!("{:?}", lists.so_far()) };
    let waited = (second - first).saturating_sub(watched_for);
    assert!(waited < Duration::from_millis(10), "the list was read {waited:?} after the end");

    world.kill_operator();
    let lists = world.faults().times(of_pods(Verb::List));
    let at_once = Fault::Watch(WatchCut::Expired(Duration::ZERO));
    world.faults().at_rate(1.0, of_pods(Verb::Watch), at_once);
    world.start_operator().await;
    world.pass(Duration::from_secs(30)).await;
    assert!((3..10).contains(&lists.so_far().len()), "{:?}", lists.so_far());
}

/// Everything at once, by rate: one call in five fails in some way.
pub async fn a_stormy_day_ends_with_all_pods_running_and_nothing_leaked(world: World) {
    let minute = Duration::from_mins(1);
    with_pool(&world, &json!({})).await;
    let (faults, cloud) = (world.faults(), world.cloud());
    faults.at_rate(0.05, Matching::writes(), Fault::Conflict);
    faults.at_rate(0.05, Matching::any(), Fault::InternalError);
    faults.at_rate(0.03, Matching::writes(), Fault::TimeoutAfter(Duration::from_secs(5)));
    faults.at_rate(0.03, Matching::writes(), Fault::TimeoutBefore(Duration::from_secs(5)));
    for (rate, fault) in [
        (0.10, CloudFault::InsufficientCapacity),
        (0.10, CloudFault::LaunchRefused),
        (0.10, CloudFault::LaunchAnswerLost),
        (0.10, CloudFault::LaunchSlow(minute)),
        (0.10, CloudFault::NeverRegisters),
        (0.20, CloudFault::TerminationRefused),
        (0.20, CloudFault::TerminationSlow(minute)),
        (0.20, CloudFault::ReadRefused),
    ] {
        cloud.at_rate(rate, fault);
    }
    // Each pod has a machine of its own: the ports clash.
    let port = json!({"containers": [{
        "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
        "resources": {"requests": {"cpu": "1"}},
    }]});
    let deployment = world.create(build::deployment("a", 10, &port)).await;
    world.until("all pods run", async |world: &World| all_run(world, 10).await).await;
    world.delete(&deployment).await;
    for claim in world.list::<NodeClaim>().await {
        world.delete(&claim).await;
    }
    world.until("everything is gone", no_node).await;
    world
        .until("no instance is left", async |world: &World| match world.cloud().nodeless() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        })
        .await;
}

/// One pod on each machine, and none of them wants to leave it for any reason.
fn protected_for_ever(replicas: u32) -> Deployment {
    let always = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    let stays = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"].map(always);
    let pod = json!({
        "tolerations": stays,
        "containers": [{
            "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
            "resources": {"requests": {"cpu": "1"}},
        }],
    });
    let mut all = json!(build::deployment("a", replicas, &pod));
    let keep = json!({"metadata": {"annotations": {annotations::DO_NOT_DISRUPT: "true"}}});
    build::merge(&mut all["spec"]["template"], &keep);
    build::object(all)
}

async fn another_node(world: &World, first: &Node) {
    world
        .until("another node is ready and the first is gone", async |world: &World| {
            let (_, node) = one_ready_node(world).await?;
            if node.uid() == first.uid() { Err("still the first".into()) } else { Ok(()) }
        })
        .await;
}

async fn told(world: &World, reason: &str) {
    world
        .until(reason, async |world: &World| {
            let events = world.list::<Event>().await;
            let told = events.iter().any(|event| event.reason.as_deref() == Some(reason));
            if told { Ok(()) } else { Err("no such event".into()) }
        })
        .await;
}
