//! What keeps nodes from being moved about for little: four controls, each on two levels.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Pod},
};
use kerf_api::{NodeClaim, NodePool, annotations, labels, taints};
use kerf_controllers::{
    Settings,
    settings::{ChurnControls, OutOfRange},
};
use kerf_testbed::{Fault, Matching, Verb};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{all_run, is_counted, is_unschedulable, one_ready_node, with_pool};
use crate::{World, build};

/// One of the controls, with a value that forbids what the stories are about.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    /// Its field in a pool.
    field: &'static str,
    /// The value that forbids, and one that does not.
    strict: &'static str,
    lenient: &'static str,
    /// Makes the value that forbids the operator's default.
    default: fn(&mut ChurnControls, &str) -> Result<(), OutOfRange>,
    /// What a node is told while it is left alone.
    says: &'static str,
    /// Its name among the reasons.
    reason: &'static str,
}

pub const UTILIZATION: Control = Control {
    field: "consolidationUtilizationThreshold",
    strict: "0.05",
    lenient: "0.5",
    default: |churn, value| value.parse().map(|value| churn.utilization_threshold = value),
    says: "is above the threshold 0.05",
    reason: "utilization",
};

pub const PRICE_FACTOR: Control = Control {
    field: "consolidationPriceImprovementFactor",
    strict: "0.1",
    lenient: "0.9",
    default: |churn, value| value.parse().map(|value| churn.price_improvement_factor = value),
    says: "which is not less than 0.1 of",
    reason: "price_factor",
};

pub const SAVINGS: Control = Control {
    field: "consolidationSavingsThreshold",
    strict: "1",
    lenient: "0.01",
    default: |churn, value| value.parse().map(|value| churn.savings_threshold = value),
    says: "is required for a disruption cost of 1.00",
    reason: "savings_threshold",
};

pub const GRACE_PERIOD: Control = Control {
    field: "consolidationGracePeriod",
    strict: "\"1h\"",
    lenient: "\"Never\"",
    default: |churn, value| value.parse().map(|value| churn.grace_period = value),
    says: "the grace period lasts until",
    reason: "grace_period",
};

impl Control {
    /// An operator whose default for this control forbids.
    pub fn strict_operator(self) -> Settings {
        let mut churn = ChurnControls::default();
        let set = (self.default)(&mut churn, self.strict.trim_matches('"'));
        assert_eq!(set, Ok(()), "{self:?}");
        Settings { churn, ..Settings::default() }
    }

    /// The field of a pool with this value.
    fn set(self, value: &str) -> Value {
        let value: Value =
            serde_json::from_str(value).unwrap_or_else(|error| panic!("{value}: {error}"));
        json!({"spec": {"disruption": {self.field: value}}})
    }
}

/// The stories that each control has, in a chapter of its own.
macro_rules! chapters {
    ($($control:ident: $value:ident),+ $(,)?) => {
        $(pub mod $control {
            use crate::World;

            pub async fn a_pool_forbids_until_it_changes_its_mind(world: World) {
                super::a_pool_forbids_until_it_changes_its_mind(world, super::$value).await;
            }

            pub async fn an_operator_forbids_until_the_pool_objects(world: World) {
                super::an_operator_forbids_until_the_pool_objects(world, super::$value).await;
            }
        })+
    };
}

chapters! {
    utilization: UTILIZATION,
    price_factor: PRICE_FACTOR,
    savings: SAVINGS,
    grace_period: GRACE_PERIOD,
}

/// A pool forbids; when it no longer does, the move is made at once, by the same operator.
async fn a_pool_forbids_until_it_changes_its_mind(world: World, control: Control) {
    let disruption = &control.set(control.strict)["spec"]["disruption"];
    let (pool, old) = a_node_for_seven_with_one_pod(&world, disruption).await;
    is_told(&world, &old, control).await;
    world.patch(&pool, control.set(control.lenient)).await;
    is_replaced_by_something_smaller(&world, &old).await;
}

/// The operator forbids where the pool says nothing; what the pool says counts more.
async fn an_operator_forbids_until_the_pool_objects(world: World, control: Control) {
    let (pool, old) = a_node_for_seven_with_one_pod(&world, &json!({})).await;
    is_told(&world, &old, control).await;
    world.patch(&pool, control.set(control.lenient)).await;
    is_replaced_by_something_smaller(&world, &old).await;
}

/// Nothing forbids: the move is made without anybody asking for it.
pub async fn without_a_control_the_move_is_made(world: World) {
    let (_, old) = a_node_for_seven_with_one_pod(&world, &json!({})).await;
    is_replaced_by_something_smaller(&world, &old).await;
}

/// With everything forbidden that can be, a node without pods goes all the same.
pub async fn empty_nodes_are_exempt(world: World) {
    with_pool(&world, &everything_forbidden(&json!({}))).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let begin = world.now();
    world.delete(&pod).await;
    is_gone(&world, &claim).await;
    assert!(world.now().duration_since(begin) < SignedDuration::from_hours(1), "not exempt");
}

/// With everything forbidden that can be, a node that its pool no longer wants is replaced.
pub async fn drifted_nodes_are_not_held_back(world: World) {
    let pool = with_pool(&world, &everything_forbidden(&json!({}))).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let begin = world.now();
    let newer = json!({"spec": {"template": {"metadata": {"labels": {"version": "two"}}}}});
    world.patch(&pool, newer).await;
    is_gone(&world, &claim).await;
    assert!(world.now().duration_since(begin) < SignedDuration::from_hours(1), "held back");
    world.until("the pod runs again", async |world: &World| all_run(world, 1).await).await;
}

/// With everything forbidden that can be, a node whose time has come goes.
pub async fn expired_nodes_are_not_held_back(world: World) {
    let changes = json!({"template": {"spec": {"expireAfter": "30s"}}});
    with_pool(&world, &everything_forbidden(&changes)).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    // It may be too late for its node to be ready.
    let claim = world.until("there is a claim", World::only::<NodeClaim>).await;
    let begin = world.now();
    is_gone(&world, &claim).await;
    assert!(world.now().duration_since(begin) < SignedDuration::from_hours(1), "held back");
}

/// A node where a pod has just come takes no pods from others; when it has come to rest it does.
pub async fn a_node_at_rest_takes_pods_and_a_busy_one_does_not(world: World) {
    const GRACE: SignedDuration = SignedDuration::from_secs(20);
    let rest = json!({"consolidationGracePeriod": "20s", "consolidationUtilizationThreshold": 1.0});
    with_pool(&world, &json!({"disruption": open(&rest)})).await;
    world.create(small("a", "400m")).await;
    let (old, _) = world.until("the first node is ready", one_ready_node).await;
    world
        .until("the first node has come to rest", async |world: &World| {
            let event = last_pod_event(world, &old).await?;
            if world.now() > event + GRACE { Ok(()) } else { Err("not yet".into()) }
        })
        .await;
    // Too large for the first node; the second has room for both.
    world.create(small("b", "2500m")).await;
    // When it was bound, and not when the claim last saw a pod come: the first pod may be there already.
    let came = world
        .until("the second pod runs", async |world: &World| {
            let pods = all_run(world, 2).await?;
            let second =
                pods.iter().find(|pod| pod.labels().get("app").is_some_and(|it| it == "b"));
            second.and_then(bound_at).ok_or_else(|| "it is not bound".to_owned())
        })
        .await;
    let went = world
        .until("the first node is asked to go", async |world: &World| {
            let claim = world.get(&old).await;
            let asked = claim.map(|claim| claim.metadata.deletion_timestamp.map(|time| time.0));
            match asked {
                Some(Some(asked)) => Ok(asked),
                // It may have gone between two looks.
                None => Ok(world.now()),
                Some(None) => Err("it stays".into()),
            }
        })
        .await;
    assert!(
        went >= came + GRACE,
        "pods were moved to a busy node: {went} is not {GRACE:?} after {came}"
    );
    world.until("both pods run", async |world: &World| all_run(world, 2).await).await;
    world.until("on the second node alone", one_ready_node).await;
}

/// What was bought turns out to cost more than the move is worth: it goes back, and nobody has been moved.
pub async fn a_replacement_that_costs_more_than_promised_goes_back(world: World) {
    let (old, pod) = a_node_to_be_replaced(&world).await;
    repriced_too_late(&world, &old, &pod).await;
}

/// The same with an API server that takes a minute for whatever is written about nodes: the pod is not planned for
/// a third node while the old one still counts as going.
pub async fn a_replacement_goes_back_whatever_time_that_takes(world: World) {
    let (old, pod) = a_node_to_be_replaced(&world).await;
    let slow = Matching::writes().verb(Verb::Patch).resource("nodes");
    world.faults().from_call(1, slow, Fault::Delay(Duration::from_mins(1)));
    repriced_too_late(&world, &old, &pod).await;
}

async fn a_node_to_be_replaced(world: &World) -> (NodeClaim, Pod) {
    let (_, old) = a_node_for_seven_with_one_pod(world, &json!({})).await;
    let pod = world.only::<Pod>().await.unwrap_or_else(|error| panic!("{error}"));
    world
        .until("the node is to be replaced", async |world: &World| {
            let told = messages(world, &old.name_any(), "ConsolidationCandidate").await;
            if told.is_empty() { Err("no event says so".to_owned()) } else { Ok(()) }
        })
        .await;
    (old, pod)
}

async fn repriced_too_late(world: &World, old: &NodeClaim, pod: &Pod) {
    // While the decision waits for its second look everything but the node's own type becomes ten times as dear.
    world.reprice(|name, price| if name.starts_with("c-8x") { price } else { price.times(10, 1) });
    let message = world
        .until("an event says what was lost", async |world: &World| {
            let messages = messages(world, &old.name_any(), "Unconsolidatable").await;
            let lost = messages.iter().find(|it| it.contains("and may cost at most"));
            lost.cloned().ok_or_else(|| format!("{messages:?}"))
        })
        .await;
    assert!(message.starts_with("The replacement costs $0.54"), "{message}");
    world
        .until("the node is as it was", async |world: &World| {
            let (claim, node) = one_ready_node(world).await?;
            assert_eq!(claim.uid(), old.uid(), "the old node went");
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let marked = taints.iter().any(|taint| taint.key == taints::DISRUPTED);
            if marked { Err("it is still marked".into()) } else { Ok(()) }
        })
        .await;
    let still = world.only::<Pod>().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(still.uid(), pod.uid(), "the pod was moved");
    let reason = "reason=\"promised_savings_lost\"";
    is_counted(world, "karpenter_consolidation_blocked_total", &[reason]).await;
}

/// Nodes may be consolidated at once, with `disruption` merged in.
fn open(disruption: &Value) -> Value {
    let mut open = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    build::merge(&mut open, disruption);
    open
}

fn everything_forbidden(changes: &Value) -> Value {
    let mut changes = changes.clone();
    let disruption = &mut changes["disruption"];
    *disruption = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    disruption[UTILIZATION.field] = json!(0);
    disruption[PRICE_FACTOR.field] = json!(0);
    disruption[SAVINGS.field] = json!(1000);
    disruption[GRACE_PERIOD.field] = json!("1h");
    changes
}

fn small(name: &str, cpu: &str) -> Deployment {
    let requests = json!({"cpu": cpu, "memory": "128Mi"});
    let containers =
        json!([{"name": "main", "image": "main", "resources": {"requests": requests}}]);
    build::deployment(name, 1, &json!({"containers": containers}))
}

/// A node that was bought for seven pods of which one is left, in a pool whose nodes may be consolidated at once.
async fn a_node_for_seven_with_one_pod(world: &World, disruption: &Value) -> (NodePool, NodeClaim) {
    let deployment = world.create(build::deployment("a", 7, &json!({}))).await;
    // With a pool there from the start a batch could close between two pods, and they would get two nodes.
    world
        .until("kube-scheduler gives up on the pods", async |world: &World| {
            let pods = world.list::<Pod>().await;
            let waiting = pods.iter().filter(|pod| is_unschedulable(pod)).count();
            if waiting == 7 { Ok(()) } else { Err(format!("{waiting} wait")) }
        })
        .await;
    // The node is left alone until it has come to what the story is about: a look in between would find something else,
    // and say it once for a quarter of an hour.
    let alone = |value: Value| json!({"annotations": {annotations::DO_NOT_DISRUPT: value}});
    let template = json!({"metadata": alone(json!("true"))});
    let changes = json!({"disruption": open(disruption), "template": template});
    let pool = with_pool(world, &changes).await;
    world.until("the pods run", async |world: &World| all_run(world, 7).await).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.patch(&deployment, json!({"spec": {"replicas": 1}})).await;
    world.until("one pod is left", async |world: &World| all_run(world, 1).await).await;
    world.patch(&node, json!({"metadata": alone(Value::Null)})).await;
    (pool, claim)
}

/// The node stays, says why, and the reason is counted.
async fn is_told(world: &World, claim: &NodeClaim, control: Control) {
    let about = claim.name_any();
    world
        .until("an event says why the node stays", async |world: &World| {
            let messages = messages(world, &about, "Unconsolidatable").await;
            let found = messages.iter().any(|message| message.contains(control.says));
            if found { Ok(()) } else { Err(format!("{messages:?}")) }
        })
        .await;
    let claim = world.get(claim).await.unwrap_or_else(|| panic!("the node went"));
    assert_eq!(claim.metadata.deletion_timestamp, None, "the node goes");
    let pool = &claim.labels()[labels::NODE_POOL];
    let (of_pool, reason) =
        (format!("nodepool=\"{pool}\""), format!("reason=\"{}\"", control.reason));
    is_counted(world, "karpenter_consolidation_blocked_total", &[&of_pool, &reason]).await;
    if control.reason == SAVINGS.reason {
        let own = "karpenter_consolidation_threshold_blocked_total";
        is_counted(world, own, &[&of_pool]).await;
    }
}

/// What has been said about an object, of one kind.
async fn messages(world: &World, about: &str, reason: &str) -> Vec<String> {
    let told = world.list::<Event>().await.into_iter().filter(|event| {
        event.reason.as_deref() == Some(reason)
            && event.involved_object.name.as_deref() == Some(about)
    });
    told.filter_map(|event| event.message).collect()
}

async fn is_replaced_by_something_smaller(world: &World, old: &NodeClaim) {
    let (new, _) = world
        .until("a smaller node has taken its place", async |world: &World| {
            let (claim, node) = one_ready_node(world).await?;
            if claim.uid() == old.uid() {
                Err("still the old one".into())
            } else {
                Ok((claim, node))
            }
        })
        .await;
    assert_eq!(old.labels()[labels::INSTANCE_TYPE], "c-8x-amd64-linux");
    assert_eq!(new.labels()[labels::INSTANCE_TYPE], "c-2x-amd64-linux");
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
}

async fn is_gone(world: &World, claim: &NodeClaim) {
    world
        .until("the node is gone", async |world: &World| match world.get(claim).await {
            None => Ok(()),
            Some(claim) => Err(format!("{:?}", claim.metadata.deletion_timestamp)),
        })
        .await;
}

async fn last_pod_event(world: &World, claim: &NodeClaim) -> Result<Timestamp, String> {
    let claim = world.get(claim).await.ok_or("the claim is gone")?;
    let time = claim.status.and_then(|status| status.last_pod_event_time);
    time.map(|time| time.0).ok_or_else(|| "no pod event is written".to_owned())
}

/// When kube-scheduler found a node for the pod.
fn bound_at(pod: &Pod) -> Option<Timestamp> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let bound = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "True")?;
    bound.last_transition_time.as_ref().map(|time| time.0)
}
