//! From a planned claim to the NodeClaim object.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kerf_api::{
    NodeClaim, NodeClaimSpec, NodePool, ResourceRequirements, annotations,
    hash::NODE_POOL,
    labels::{self, LabelRules},
};
use kerf_model::{KnownLabels, Offering, Requirement, Requirements};
use kerf_scheduler::PlannedClaim;
use kube::{Resource, ResourceExt, api::ObjectMeta};

/// Requirements that only steer the simulation; a NodeClaim never carries them.
const ONLY_FOR_PLANNING: [&str; 3] = [labels::HOSTNAME, labels::REGISTERED, labels::INITIALIZED];

/// In which order providers take capacity types.
const PREFERENCE: [&str; 3] =
    [labels::CAPACITY_TYPE_RESERVED, labels::CAPACITY_TYPE_SPOT, labels::CAPACITY_TYPE_ON_DEMAND];

/// The object to create under this name, with its [requirements], for a planned claim of this pool.
pub(super) fn build(
    name: &str,
    pool: &NodePool,
    planned: &PlannedClaim,
    requirements: &Requirements,
    rules: &LabelRules,
) -> NodeClaim {
    let template = &pool.spec.template.spec;
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        generate_name: Some(format!("{}-", pool.name_any())),
        labels: Some(claim_labels(name, planned, requirements, rules)),
        annotations: Some(claim_annotations(pool, planned)),
        owner_references: pool.controller_owner_ref(&()).map(|owner| {
            let block_owner_deletion = Some(true);
            vec![OwnerReference { controller: None, block_owner_deletion, ..owner }]
        }),
        ..ObjectMeta::default()
    };
    let spec = NodeClaimSpec {
        taints: template.taints.clone(),
        startup_taints: template.startup_taints.clone(),
        requirements: requirements.iter().flat_map(Requirement::expressions).collect(),
        resources: ResourceRequirements { requests: planned.requests.to_api() },
        node_class_ref: template.node_class_ref.clone(),
        termination_grace_period: template.termination_grace_period.clone(),
        expire_after: template.expire_after.clone(),
    };
    NodeClaim { metadata, spec, status: None }
}

/// What the plan asks for, narrowed to the instance types that are left and to what can be bought of them. A plan that
/// names none leaves the choice to the provider.
pub(super) fn requirements(planned: &PlannedClaim, known: &KnownLabels) -> Requirements {
    let mut requirements = planned.requirements.clone();
    for key in ONLY_FOR_PLANNING {
        requirements.remove(key);
    }
    if planned.instance_types.is_empty() {
        return requirements;
    }
    let names = planned.instance_types.iter().map(|instance_type| instance_type.name());
    requirements.add(Requirement::is_in(labels::INSTANCE_TYPE, names));
    let offered: BTreeSet<&str> = planned
        .instance_types
        .iter()
        .flat_map(|instance_type| instance_type.launchable_offerings())
        .filter(|offering| offering.serves(&requirements, known))
        .filter_map(|offering| offering.capacity_type())
        .collect();
    let planned_one = only_capacity_type(planned, &requirements, known);
    let offered = planned_one.map_or(offered, |one| BTreeSet::from([one]));
    if !offered.is_empty() {
        requirements.add(Requirement::is_in(labels::CAPACITY_TYPE, offered));
    }
    requirements
}

/// The capacity type that the plan counts on, if overlays made it the cheapest. Of several, providers take the first in their
/// order and not the cheapest: with a discount on on-demand they would buy spot all the same, or find none.
fn only_capacity_type<'a>(
    planned: &'a PlannedClaim,
    requirements: &Requirements,
    known: &KnownLabels,
) -> Option<&'a str> {
    let types = &planned.instance_types;
    let wish = requirements.get(labels::CAPACITY_TYPE).and_then(Requirement::min_values);
    if wish.is_some() || !types.iter().any(|one| one.is_price_overlaid()) {
        return None;
    }
    let offered = || {
        let all = types.iter().flat_map(|instance_type| instance_type.launchable_offerings());
        all.filter(|offering| offering.serves(requirements, known))
    };
    let place = |offering: &Offering| {
        let at = PREFERENCE.iter().position(|one| offering.capacity_type() == Some(*one));
        at.unwrap_or(PREFERENCE.len())
    };
    let preferred = offered().min_by_key(|offering| place(offering))?;
    // Among equals the provider may have its way.
    let cheapest = offered().min_by_key(|offering| (offering.price, place(offering)))?;
    let differs = cheapest.capacity_type() != preferred.capacity_type();
    cheapest.capacity_type().filter(|_| differs)
}

/// The labels of the pool, and one value for each label of the user's own that the plan leaves open: nodes must
/// carry a value for pods to match, and no provider knows these labels. Of several values the name of the claim decides, so
/// that the nodes of a pool get a mix. What a node without the label would meet as well makes no label.
fn claim_labels(
    name: &str,
    planned: &PlannedClaim,
    requirements: &Requirements,
    rules: &LabelRules,
) -> BTreeMap<String, String> {
    let mut claim_labels = planned.pool.labels.clone();
    claim_labels.insert(labels::NODE_POOL.into(), planned.pool.name.clone());
    for requirement in requirements.iter() {
        let key = requirement.key();
        if rules.is_well_known(key)
            || rules.check(key).is_err()
            || claim_labels.contains_key(key)
            || requirement.allows_absence()
        {
            continue;
        }
        if let Some(value) = requirement.value_for(name) {
            claim_labels.insert(key.to_owned(), value);
        }
    }
    claim_labels
}

fn claim_annotations(pool: &NodePool, planned: &PlannedClaim) -> BTreeMap<String, String> {
    let mut all = pool.spec.template.metadata.annotations.clone().unwrap_or_default();
    NODE_POOL.write(&mut all, pool.hash());
    let relaxed = planned.min_values_relaxed.to_string();
    all.insert(annotations::MIN_VALUES_RELAXED.into(), relaxed);
    let types = &planned.instance_types;
    if types.iter().any(|one| one.is_price_overlaid()) {
        all.insert(annotations::PRICE_OVERLAY_APPLIED.into(), "true".into());
    }
    if types.iter().any(|one| one.is_capacity_overlaid()) {
        all.insert(annotations::CAPACITY_OVERLAY_APPLIED.into(), "true".into());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use kerf_model::{InstanceType, Offering, Pool, Price};
    use serde_json::json;

    fn pool() -> NodePool {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "default", "uid": "u"},
            "spec": {"template": {
                "metadata": {"annotations": {"a": "b"}},
                "spec": {
                    "requirements": [], "expireAfter": "48h", "terminationGracePeriod": "5m",
                    "nodeClassRef": {"group": "cloud.example", "kind": "ExampleNodeClass", "name": "x"},
                    "startupTaints": [{"key": "cni", "effect": "NoExecute"}],
                },
            }},
        }))
        .unwrap()
    }

    fn built_from(name: &str, planned: &PlannedClaim, rules: &LabelRules) -> NodeClaim {
        let requirements = requirements(planned, &KnownLabels::default());
        build(name, &pool(), planned, &requirements, rules)
    }

    fn planned() -> PlannedClaim {
        let offering = |capacity_type: &str, available| Offering {
            requirements: Requirements::new([
                Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]),
                Requirement::is_in(labels::ZONE, ["a"]),
            ]),
            available,
            ..Offering::default()
        };
        let instance_type = |name: &str| {
            let offerings = vec![offering("spot", false), offering("on-demand", true)];
            let overhead = kerf_model::Overhead::default();
            let nothing = kerf_model::Resources::new();
            Arc::new(InstanceType::new(name, Requirements::default(), offerings, nothing, overhead))
        };
        PlannedClaim {
            pool: Arc::new(Pool {
                name: "default".into(),
                labels: [("team".to_owned(), "x".to_owned())].into(),
                ..Pool::default()
            }),
            pods: Vec::new(),
            virtual_pods: Vec::new(),
            instance_types: vec![instance_type("small"), instance_type("large")],
            requirements: Requirements::new([
                Requirement::is_in(labels::HOSTNAME, ["h"]),
                Requirement::is_in(labels::INITIALIZED, ["true"]),
                Requirement::is_in("tier", ["gold", "silver"]),
                Requirement::is_in(labels::ZONE, ["a", "b"]),
            ]),
            requests: kerf_model::Resources::new(),
            price: Price::ZERO,
            min_values_relaxed: false,
        }
    }

    fn built() -> NodeClaim {
        let rules = LabelRules::default();
        built_from("default-x", &planned(), &rules)
    }

    #[test]
    fn requirements_are_narrowed_to_what_can_be_bought_and_freed_of_what_only_planning_needs() {
        let text: Vec<_> = built()
            .spec
            .requirements
            .iter()
            .map(|one| format!("{} {} {}", one.key, one.operator.as_str(), one.values.join(",")))
            .collect();
        assert_eq!(
            text,
            [
                "karpenter.sh/capacity-type In on-demand",
                "node.kubernetes.io/instance-type In large,small",
                "tier In gold,silver",
                "topology.kubernetes.io/zone In a,b",
            ]
        );
    }

    #[test]
    fn a_plan_without_instance_types_leaves_the_choice_to_the_provider() {
        let planned = PlannedClaim { instance_types: Vec::new(), ..planned() };
        let rules = LabelRules::default();
        let claim = built_from("default-x", &planned, &rules);
        let keys: Vec<_> = claim.spec.requirements.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["tier", "topology.kubernetes.io/zone"]);
    }

    #[test]
    fn labels_hold_one_value_for_each_label_of_the_users_own() {
        let claim = built();
        assert_eq!(claim.labels()["team"], "x");
        assert!(["gold", "silver"].contains(&claim.labels()["tier"].as_str()));
        assert_eq!(claim.labels()[labels::NODE_POOL], "default");
        assert!(!claim.labels().contains_key(labels::ZONE), "the provider chooses the zone");
    }

    #[test]
    fn of_several_values_the_name_of_the_claim_decides() {
        let tier = |name: &str| {
            let claim = built_from(name, &planned(), &LabelRules::default());
            claim.labels()["tier"].clone()
        };
        let suffixes = ["b4xqz", "7kd2m", "wl95t", "nnc8r", "v6hjs", "qp2zx", "d8fgk", "2rtbm"];
        let tiers: Vec<_> = suffixes.iter().map(|end| tier(&format!("default-{end}"))).collect();
        let gold = tiers.iter().filter(|tier| *tier == "gold").count();
        assert!((2..=6).contains(&gold), "{tiers:?}");
        assert_eq!(tier("default-b4xqz"), tiers[0], "the same name, the same value");
    }

    #[test]
    fn what_a_missing_label_meets_makes_no_label() {
        use kerf_model::Operator;
        for (what, requirement, expected) in [
            ("excluded", vec![Requirement::new("team2", Operator::NotIn, ["a"])], false),
            ("not to be there", vec![Requirement::does_not_exist("team2")], false),
            (
                "excluded, and defined by the pool",
                vec![
                    Requirement::exists("team2"),
                    Requirement::new("team2", Operator::NotIn, ["a"]),
                ],
                true,
            ),
            ("wanted", vec![Requirement::is_in("team2", ["a"])], true),
            ("bounded", vec![Requirement::new("team2", Operator::Gt, ["4"])], true),
        ] {
            let planned =
                PlannedClaim { requirements: Requirements::new(requirement), ..planned() };
            let rules = LabelRules::default();
            let claim = built_from("x", &planned, &rules);
            assert_eq!(claim.labels().contains_key("team2"), expected, "{what}");
        }
    }

    /// Providers take spot before on-demand, whatever it costs.
    #[test]
    fn a_discount_that_makes_another_capacity_type_the_cheapest_is_bought() {
        let check = |spot: &str, on_demand: &str, base: Option<&str>, expected: &[&str]| {
            let price = |text: &str| text.parse::<Price>().unwrap();
            let offering = |terms: &str, now: &str, base: Option<&str>| Offering {
                requirements: Requirements::new([
                    Requirement::is_in(labels::CAPACITY_TYPE, [terms]),
                    Requirement::is_in(labels::ZONE, ["a"]),
                ]),
                price: price(now),
                base_price: base.map(price),
                available: true,
                ..Offering::default()
            };
            let offerings =
                vec![offering("spot", spot, None), offering("on-demand", on_demand, base)];
            let (all, capacity) = (Requirements::default(), kerf_model::Resources::new());
            let overhead = kerf_model::Overhead::default();
            let one = InstanceType::new("m", all, offerings, capacity, overhead);
            let planned = PlannedClaim { instance_types: vec![Arc::new(one)], ..planned() };
            let claim = built_from("x", &planned, &LabelRules::default());
            let of_type =
                |one: &&kerf_api::NodeSelectorRequirement| one.key == labels::CAPACITY_TYPE;
            let found = claim.spec.requirements.iter().find(of_type).unwrap();
            assert_eq!(found.values, expected, "{spot} {on_demand} {base:?}");
            let written = claim.annotations().get(annotations::PRICE_OVERLAY_APPLIED);
            assert_eq!(written.map(String::as_str), base.map(|_| "true"));
            assert!(!claim.annotations().contains_key(annotations::CAPACITY_OVERLAY_APPLIED));
        };
        check("2", "1", None, &["on-demand", "spot"]);
        check("2", "1", Some("4"), &["on-demand"]);
        check("2", "3", Some("4"), &["on-demand", "spot"]);
        check("2", "2", Some("4"), &["on-demand", "spot"]);
    }

    #[test]
    fn the_rest_comes_from_the_pool() {
        let claim = built();
        assert_eq!(claim.metadata.generate_name.as_deref(), Some("default-"));
        assert_eq!(claim.owner_references()[0].uid, "u");
        assert_eq!(claim.annotations()["a"], "b");
        assert_eq!(claim.annotations()[annotations::NODE_POOL_HASH], pool().hash());
        assert_eq!(claim.spec.expire_after.as_str(), "48h");
        assert_eq!(claim.spec.startup_taints.unwrap()[0].key, "cni");
    }
}
