//! NodeOverlays: prices and resources that only the user knows of.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::Node,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kerf_api::{
    NodeClaim, NodeOverlay, annotations,
    conditions::{READY, VALIDATION_SUCCEEDED},
    labels,
};
use kerf_model::InstanceType;
use kerf_provider::{CloudProvider, NodeClassKind};
use kerf_provider_kwok::KwokProvider;
use kube::{CustomResourceExt, ResourceExt};
use serde_json::{Value, json};

use super::{
    all_run, condition, launching::gone, node_of, one_ready_node, unschedulable, with_pool,
};
use crate::{
    World, build,
    clouds::{Cloud, Kwok},
};

/// Machines with eight times as much memory as the others have for the same CPUs, which a pod of half a gigabyte never gets.
const DEAR_FAMILY: &str = "m";
const DEVICE: &str = "example.com/device";

pub async fn a_discount_decides_which_machine_is_bought(world: World) {
    let overlay =
        world.create(overlay("discount", &on_family(json!({"priceAdjustment": "-70%"})))).await;
    world.until("the overlay is ready", condition(&overlay, READY, "True")).await;
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let node = node_of(&world, &pod).await;
    assert_eq!(family(&node), DEAR_FAMILY);
    let claim = world.only::<NodeClaim>().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(applied(&claim), [true, false]);
}

/// The claim allows both, and providers take spot first.
pub async fn a_discount_on_demand_is_not_spent_on_spot(world: World) {
    let about = json!([{"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}]);
    let spec = json!({"requirements": about, "priceAdjustment": "-60%"});
    let overlay = world.create(overlay("discount", &spec)).await;
    world.until("the overlay is ready", condition(&overlay, READY, "True")).await;
    let is_in =
        |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let both = json!([
        is_in(labels::OS, &["linux"]),
        is_in(labels::ARCH, &["amd64"]),
        is_in(labels::CAPACITY_TYPE, &["on-demand", "spot"]),
    ]);
    with_pool(&world, &json!({"template": {"spec": {"requirements": both}}})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let node = node_of(&world, &pod).await;
    assert_eq!(node.labels()[labels::CAPACITY_TYPE], "on-demand");
    let claim = world.only::<NodeClaim>().await.unwrap_or_else(|error| panic!("{error}"));
    let wish = claim.spec.requirements.iter().find(|one| one.key == labels::CAPACITY_TYPE);
    assert_eq!(wish.map(|wish| wish.values.clone()), Some(vec!["on-demand".to_owned()]));
}

/// Nothing remembers prices: not when an overlay comes, and not when it goes.
pub async fn nodes_follow_overlays_that_come_and_go(world: World) {
    let disruption = json!({
        "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}],
        "consolidationUtilizationThreshold": 1, "consolidationPriceImprovementFactor": 1,
        "consolidationSavingsThreshold": 0, "consolidationGracePeriod": "Never",
    });
    with_pool(&world, &json!({"disruption": disruption})).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let (first, node) = world.until("there is a node", one_ready_node).await;
    assert_ne!(family(&node), DEAR_FAMILY);
    assert_eq!(applied(&first), [false, false]);
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(world.only::<NodeClaim>().await.map(|claim| claim.name_any()), Ok(first.name_any()));

    let discount = on_family(json!({"priceAdjustment": "-80%"}));
    let discount = world.create(overlay("discount", &discount)).await;
    world.until("the node is replaced", gone(&first)).await;
    let (second, node) = world.until("there is a node", one_ready_node).await;
    assert_eq!(family(&node), DEAR_FAMILY);
    assert_eq!(applied(&second), [true, false]);

    world.delete(&discount).await;
    world.until("the node is replaced again", gone(&second)).await;
    let (third, node) = world.until("there is a node", one_ready_node).await;
    assert_ne!(family(&node), DEAR_FAMILY);
    assert_eq!(applied(&third), [false, false]);
}

pub async fn of_two_that_contradict_each_other_one_names_the_other(world: World) {
    with_pool(&world, &json!({})).await;
    let change = |price: &str, weight: u32| on_family(json!({"price": price, "weight": weight}));
    let last = world.create(overlay("b", &change("0.01", 5))).await;
    world.until("it is ready", condition(&last, READY, "True")).await;
    let first = world.create(overlay("a", &change("0.02", 5))).await;
    let said = condition(&first, VALIDATION_SUCCEEDED, "False");
    let said = world.until("it is left out", said).await;
    assert!(
        said.starts_with("Conflict: conflict with another overlay: b has the same weight and sets the price of m-"),
        "{said}"
    );
    assert!(said.ends_with(" in NodePool default"), "{said}");
    world.until("it says so", condition(&first, READY, "False")).await;
    assert!(condition(&last, READY, "True")(&world).await.is_ok(), "the other one counts");
    world.delete(&last).await;
    world.until("nothing stands against it", condition(&first, READY, "True")).await;
}

pub async fn an_overlay_that_is_wrong_says_so(world: World) {
    judges_an_overlay(&world).await;
}

/// It watches overlays, and writes what it thinks of them.
pub async fn judges_an_overlay(world: &World) {
    let about = json!([{"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["gold"]}]);
    let wrong = overlay("wrong", &json!({"requirements": about, "price": "1"}));
    let wrong = world.create(wrong).await;
    let said = world.until("it is refused", condition(&wrong, VALIDATION_SUCCEEDED, "False")).await;
    assert!(
        said.starts_with("RuntimeValidation: invalid value: no valid values found in [gold]"),
        "{said}"
    );
}

pub async fn a_resource_that_an_overlay_adds_gets_its_pod_a_node(world: World) {
    with_pool(&world, &json!({})).await;
    let requests = json!({"requests": {"cpu": "1", DEVICE: "1"}, "limits": {DEVICE: "1"}});
    let container = json!({"name": "main", "image": "main", "resources": requests});
    let pod = world.create(build::pod("a", &json!({"containers": [container]}))).await;
    world.until("the pod waits", unschedulable(&pod)).await;
    assert!(world.list::<NodeClaim>().await.is_empty());
    world.create(overlay("device", &on_family(json!({"capacity": {DEVICE: "2"}})))).await;
    let node = node_of(&world, &pod).await;
    assert_eq!(family(&node), DEAR_FAMILY);
    let claim = world.only::<NodeClaim>().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(applied(&claim), [false, true]);
}

/// Other than in the list of stories: its API server has no such definition.
pub async fn an_operator_works_where_there_is_no_definition(world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let node = node_of(&world, &pod).await;
    assert_ne!(family(&node), DEAR_FAMILY);
}

/// KWOK in a cluster that does not know NodeOverlays.
#[derive(Clone, Copy, Debug)]
pub struct WithoutDefinition;

impl Cloud for WithoutDefinition {
    fn connect(&self, kwok: Arc<KwokProvider>) -> Arc<dyn CloudProvider> {
        Kwok.connect(kwok)
    }

    fn node_class(&self) -> NodeClassKind {
        Kwok.node_class()
    }

    fn instance_types(&self) -> Vec<InstanceType> {
        Kwok.instance_types()
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        let all = Kwok.crds().into_iter();
        all.filter(|crd| crd.name_any() != NodeOverlay::crd_name()).collect()
    }

    fn translate(&self, _object: &mut Value) {}
}

fn overlay(name: &str, spec: &Value) -> NodeOverlay {
    build::object(json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
        "metadata": {"name": name}, "spec": spec,
    }))
}

/// Something about the dear machines.
fn on_family(mut spec: Value) -> Value {
    let key = "karpenter.kwok.sh/instance-family";
    spec["requirements"] = json!([{"key": key, "operator": "In", "values": [DEAR_FAMILY]}]);
    spec
}

fn family(node: &Node) -> &str {
    let name = node.labels().get(labels::INSTANCE_TYPE).map(String::as_str).unwrap_or_default();
    name.split('-').next().unwrap_or_default()
}

/// Whether overlays changed a price, and whether they changed the capacity.
fn applied(claim: &NodeClaim) -> [bool; 2] {
    [annotations::PRICE_OVERLAY_APPLIED, annotations::CAPACITY_OVERLAY_APPLIED]
        .map(|key| claim.annotations().get(key).is_some_and(|value| value == "true"))
}
