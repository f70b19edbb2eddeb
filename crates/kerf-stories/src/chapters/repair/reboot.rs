//! Nodes whose machine is restarted in place.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{
    NodeClaim, NodePool, Reboots,
    annotations::{DO_NOT_DISRUPT, REBOOT_PRE_BOOT_ID, REBOOTS},
    conditions::{
        Conditioned, INITIALIZED, REBOOT_FAILED, REBOOT_ISSUED, REBOOT_REQUESTED, REBOOT_SUCCEEDED,
        REBOOT_WITHDRAWN, REBOOTING,
    },
    labels, taints,
};
use kerf_testbed::CloudFault;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{DECISIONS, is_kept, kill, three_nodes, three_nodes_of_pool, turns, turns_true, veto};
use crate::{
    Stage, World, build,
    chapters::{
        all_run, counted, disruption::nothing_is_marked, launching::gone, one_ready_node, told,
        with_pool,
    },
};

const ASKS_FOR_IT: &str = "KWOKRebootRequired";
const ENDED: &str = "karpenter_nodes_reboots_total";
const REBOOT: &[&str] = &["decision=\"reboot\"", "reason=\"unhealthy\""];
const REPLACE: &[&str] = &["decision=\"replace\"", "reason=\"unhealthy\""];

/// Nothing is launched for the pods that wait meanwhile.
pub async fn a_node_that_asks_for_it_is_rebooted_and_stays(world: World) {
    let nodes = three_nodes(&world).await;
    turns_true(&world, &nodes[0], ASKS_FOR_IT).await;
    let claim = is_rebooted(&world, &nodes[0], 1).await;
    turns(&world, &nodes[0], ASKS_FOR_IT, "False").await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    world.until("nothing is marked", async |world: &World| nothing_is_marked(world).await).await;
    world.until("it is initialised", initialized(&nodes[0])).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 3, "nothing was launched");
    assert!(world.get(&claim).await.is_some() && is_kept(&world, &nodes[0]).await);
    assert_eq!(counted(&world, DECISIONS, REBOOT), 1);
    assert_eq!(counted(&world, ENDED, &["result=\"succeeded\""]), 1);
    assert_eq!(counted(&world, ENDED, &[]), 1);
}

/// Its kubelet falls silent, and comes back after two minutes with another boot ID.
pub async fn a_machine_goes_down_and_comes_back(world: World) {
    let nodes = three_nodes(&world).await;
    world.cloud().on_next(1, CloudFault::RebootUndone);
    turns_true(&world, &nodes[0], ASKS_FOR_IT).await;
    world.until("the cloud has accepted", reboot_is(&nodes[0], "True", REBOOT_ISSUED)).await;
    let node = shown(&world, &nodes[0]).await;
    assert_eq!(node.labels().get(labels::INITIALIZED), None);
    assert!(is_fenced(&node));
    kill(&world, &nodes[..1]);
    world.pass(Duration::from_mins(2)).await;
    assert!(!claim_of(&world, &nodes[0]).await.is_true(INITIALIZED));
    // The machine is back, and its kubelet is not ready yet.
    boots(&world, &nodes[0], "second").await;
    let claim = claim_of(&world, &nodes[0]).await;
    world
        .until("another boot is seen", async |w: &World| told(w, "RebootObserved", &claim).await)
        .await;
    world
        .until("pods may come", async |world: &World| {
            if is_fenced(&shown(world, &nodes[0]).await) {
                Err("it is fenced".to_owned())
            } else {
                Ok(())
            }
        })
        .await;
    assert!(claim_of(&world, &nodes[0]).await.is_true(REBOOTING), "it is not ready");
    turns(&world, &nodes[0], ASKS_FOR_IT, "False").await;
    revive(&world, &nodes[0]);
    world.until("it is back", reboot_is(&nodes[0], "False", REBOOT_SUCCEEDED)).await;
    world.until("it is initialised", initialized(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 3);
    assert_eq!(counted(&world, ENDED, &["result=\"succeeded\""]), 1);
}

/// Nothing resets the condition. What is known of the first is not lost with the operator.
pub async fn reboots_that_do_not_help_are_followed_by_a_replacement(world: World) {
    let mut world = world;
    let nodes = three_nodes(&world).await;
    turns_true(&world, &nodes[0], ASKS_FOR_IT).await;
    is_rebooted(&world, &nodes[0], 1).await;
    world.stop_operator().await;
    world.start_operator().await;
    is_rebooted(&world, &nodes[0], 2).await;
    assert_eq!(counted(&world, DECISIONS, REPLACE), 0);
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    assert_eq!(counted(&world, DECISIONS, REPLACE), 1);
    assert_eq!(counted(&world, DECISIONS, REBOOT), 1, "the second operator saw one of two");
}

/// What takes its place comes first, and the budgets hold.
pub async fn a_reboot_that_fails_is_followed_by_a_replacement_that_comes_first(world: World) {
    let none = json!([{"nodes": "1"}]);
    let nodes = three_nodes_of_pool(&world, &json!({"disruption": {"budgets": none}})).await;
    world.cloud().on_next(1, CloudFault::RebootRejected);
    turns_true(&world, &nodes[0], ASKS_FOR_IT).await;
    world.until("the reboot fails", reboot_is(&nodes[0], "False", REBOOT_FAILED)).await;
    let claim = claim_of(&world, &nodes[0]).await;
    let message = told(&world, "RebootFailed", &claim).await;
    let rejected =
        "reboot rejected by the cloud provider: injected: the machine cannot be restarted";
    assert_eq!(message.as_deref(), Ok(rejected));
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    assert_eq!(counted(&world, DECISIONS, REBOOT), 1);
    assert_eq!(counted(&world, DECISIONS, REPLACE), 1);
    assert_eq!(counted(&world, ENDED, &["result=\"provider_error\""]), 1);
    assert!(is_kept(&world, &nodes[1]).await && is_kept(&world, &nodes[2]).await);
    world.until("nothing is marked", async |world: &World| nothing_is_marked(world).await).await;
}

pub async fn a_cloud_is_asked_again_until_it_has_heard(world: World) {
    let nodes = three_nodes(&world).await;
    world.cloud().on_next(3, CloudFault::RebootFailed);
    world.cloud().on_call(4, CloudFault::RebootAnswerLost);
    turns_true(&world, &nodes[0], ASKS_FOR_IT).await;
    is_rebooted(&world, &nodes[0], 1).await;
    turns(&world, &nodes[0], ASKS_FOR_IT, "False").await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    assert!(is_kept(&world, &nodes[0]).await);
}

pub async fn a_cloud_that_never_hears_is_given_up_after_five_minutes(world: World) {
    let mut world = world;
    let nodes = three_nodes(&world).await;
    world.cloud().at_rate(1.0, CloudFault::RebootFailed);
    turns_true(&world, &nodes[0], ASKS_FOR_IT).await;
    world
        .until("the cloud is asked", async |world: &World| {
            let asked =
                claim_of(world, &nodes[0]).await.annotations().contains_key(REBOOT_PRE_BOOT_ID);
            if asked { Ok(()) } else { Err("it is not".to_owned()) }
        })
        .await;
    world.pass(Duration::from_mins(4)).await;
    // The time does not begin anew with the next operator.
    world.stop_operator().await;
    world.start_operator().await;
    world.pass(Duration::from_secs(50)).await;
    assert!(claim_of(&world, &nodes[0]).await.is_true(REBOOTING), "given up too early");
    let begin = world.now();
    world.until("it is given up", reboot_is(&nodes[0], "False", REBOOT_FAILED)).await;
    assert!(world.now().duration_since(begin).as_secs() <= 30, "given up too late");
    let claim = claim_of(&world, &nodes[0]).await;
    let message = told(&world, "RebootFailed", &claim).await;
    assert_eq!(message.as_deref(), Ok("reboot was not issued within the issuance timeout"));
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
}

/// A budget of none keeps it then: it is a matter of repair as any other.
pub async fn a_node_that_does_not_come_back_is_replaced_under_the_budget(world: World) {
    let paced = |nodes: &str| json!({"disruption": {"budgets": [{"nodes": nodes}]}});
    let nodes = three_nodes_of_pool(&world, &paced("1")).await;
    world.cloud().on_next(1, CloudFault::RebootUndone);
    turns_true(&world, &nodes[0], ASKS_FOR_IT).await;
    world.until("the cloud has accepted", reboot_is(&nodes[0], "True", REBOOT_ISSUED)).await;
    kill(&world, &nodes[..1]);
    let pool = world.list::<NodePool>().await.remove(0);
    world.patch(&pool, json!({"spec": paced("0")})).await;
    world.pass(Duration::from_mins(19)).await;
    assert!(claim_of(&world, &nodes[0]).await.is_true(REBOOTING), "given up too early");
    world.until("it is given up", reboot_is(&nodes[0], "False", REBOOT_FAILED)).await;
    // Pods wait for it no longer.
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    world.pass(Duration::from_mins(30)).await;
    assert!(is_kept(&world, &nodes[0]).await, "past the budget");
    world.patch(&pool, json!({"spec": paced("1")})).await;
    world.until("its node is gone", gone(&nodes[0])).await;
    assert_eq!(counted(&world, ENDED, &["result=\"recovery_timeout\""]), 1);
}

/// A pod that may not be evicted holds the drain.
pub async fn a_veto_calls_a_reboot_off(world: World) {
    let nodes = three_nodes(&world).await;
    let held = protected_pod_on(&world, &nodes[0]).await;
    turns_true(&world, &nodes[0], ASKS_FOR_IT).await;
    world.until("it is drained", reboot_is(&nodes[0], "True", REBOOT_REQUESTED)).await;
    veto(&world, &nodes[0], Some("true")).await;
    world.until("it is called off", reboot_is(&nodes[0], "False", REBOOT_WITHDRAWN)).await;
    world.until("nothing is marked", async |world: &World| nothing_is_marked(world).await).await;
    world.pass(Duration::from_mins(30)).await;
    let claim = claim_of(&world, &nodes[0]).await;
    assert!(!claim.annotations().contains_key(REBOOTS), "the cloud was asked");
    assert!(world.get(&held).await.is_some() && is_kept(&world, &nodes[0]).await);
    // It counts as if it had never been.
    veto(&world, &nodes[0], None).await;
    is_rebooted(&world, &nodes[0], 1).await;
}

/// Once the policy's minute is over; nothing is deleted by force.
pub async fn pods_that_may_not_be_evicted_ride_through_a_reboot(world: World) {
    let nodes = three_nodes(&world).await;
    let held = protected_pod_on(&world, &nodes[0]).await;
    turns_true(&world, &nodes[0], ASKS_FOR_IT).await;
    world.until("it is drained", reboot_is(&nodes[0], "True", REBOOT_REQUESTED)).await;
    world.pass(Duration::from_secs(50)).await;
    world.until("it waits", reboot_is(&nodes[0], "True", REBOOT_REQUESTED)).await;
    is_rebooted(&world, &nodes[0], 1).await;
    let pod = world.get(&held).await.unwrap_or_else(|| panic!("it was deleted"));
    assert_eq!((pod.uid(), pod.metadata.deletion_timestamp), (held.uid(), None));
}

/// For the tests that kill the operator on the way.
pub async fn from_broken_to_rebooted(world: &World) {
    with_pool(world, &json!({})).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (_, node) = world.until("the node is ready", one_ready_node).await;
    turns_true(world, &node, ASKS_FOR_IT).await;
    is_rebooted(world, &node, 1).await;
    turns(world, &node, ASKS_FOR_IT, "False").await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("the node is ready", one_ready_node).await;
    world.until("it is initialised", initialized(&node)).await;
    world.until("nothing is marked", async |world: &World| nothing_is_marked(world).await).await;
    world
        .until("the claim is tidy", async |world: &World| {
            let left = claim_of(world, &node).await.annotations().contains_key(REBOOT_PRE_BOOT_ID);
            if left { Err("the boot before is still noted".to_owned()) } else { Ok(()) }
        })
        .await;
    let claim = claim_of(world, &node).await;
    assert_eq!(Reboots::read(&claim).asked.len(), 1, "asked for once");
    // KWOK names a boot by the reboot, and that by the boot before it.
    assert_eq!(boot_of(&shown(world, &node).await).matches("kwok-").count(), 1);
}

/// Waits until the node has been rebooted so many times, and is back.
async fn is_rebooted(world: &World, node: &Node, times: usize) -> NodeClaim {
    world
        .until("the node is rebooted", async |world: &World| {
            let claim = claim_of(world, node).await;
            let boots = boot_of(&shown(world, node).await).matches("kwok-").count();
            let over = claim.condition(REBOOTING).filter(|it| it.reason == REBOOT_SUCCEEDED);
            if boots == times && over.is_some() {
                Ok(claim)
            } else {
                Err(format!("{boots} of {times}, {:?}", claim.condition(REBOOTING)))
            }
        })
        .await
}

fn reboot_is<'a>(
    node: &'a Node,
    status: &'a str,
    reason: &'a str,
) -> impl AsyncFnMut(&World) -> Result<(), String> {
    async move |world: &World| {
        let claim = claim_of(world, node).await;
        let found = claim.condition(REBOOTING);
        if found.is_some_and(|it| it.status == status && it.reason == reason) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    }
}

fn initialized(node: &Node) -> impl AsyncFnMut(&World) -> Result<(), String> {
    async move |world: &World| {
        let labelled = shown(world, node).await.labels().contains_key(labels::INITIALIZED);
        let claim = claim_of(world, node).await;
        if labelled && claim.is_true(INITIALIZED) {
            Ok(())
        } else {
            Err(format!("{:?}", claim.status))
        }
    }
}

async fn claim_of(world: &World, node: &Node) -> NodeClaim {
    let claims = world.list::<NodeClaim>().await;
    let name = node.name_any();
    let of_node = |claim: &NodeClaim| claim.status.as_ref().is_some_and(|it| it.node_name == name);
    claims.into_iter().find(of_node).unwrap_or_else(|| panic!("{name} has no claim"))
}

async fn shown(world: &World, node: &Node) -> Node {
    world.get(node).await.unwrap_or_else(|| panic!("{} is gone", node.name_any()))
}

fn boot_of(node: &Node) -> String {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.boot_id.clone()).unwrap_or_default()
}

fn is_fenced(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taints::same(taint, &taints::rebooting()))
}

async fn boots(world: &World, node: &Node, boot_id: &str) {
    let node = shown(world, node).await;
    world.patch_status(&node, json!({"status": {"nodeInfo": {"bootID": boot_id}}})).await;
}

fn revive(world: &World, node: &Node) {
    let Stage::Testbed { actors, .. } = world.stage() else {
        panic!("only machines of the testbed come back")
    };
    actors.revive_node(&node.name_any());
}

async fn protected_pod_on(world: &World, node: &Node) -> Pod {
    let name = node.name_any();
    let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|it| it.node_name.as_ref()) == Some(&name);
    let pod = world.list::<Pod>().await.into_iter().find(on_node);
    let pod = pod.unwrap_or_else(|| panic!("{name} has no pod"));
    let keep: Value = json!({"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}}});
    world.patch(&pod, keep).await
}
