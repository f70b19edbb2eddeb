//! What the definition of NodeOverlays refuses.

use kerf_admission::Definitions;
use serde_json::{Value, json};

#[test]
fn overlays_say_what_they_are_about_and_change_a_price_in_one_way() {
    let definitions = Definitions::of(&kerf_api::crds_without_provider());
    let check = |spec: Value, expected: &[&str]| {
        let object = json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
            "metadata": {"name": "o"}, "spec": spec,
        });
        let found: Vec<_> = definitions.faults(&object).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{object} {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    };
    let with = |more: Value| {
        let mut spec = json!({"requirements": []});
        json_patch::merge(&mut spec, &more);
        spec
    };
    let about = |key: &str, operator: &str, values: Value| json!({"requirements": [{"key": key, "operator": operator, "values": values}]});
    check(with(json!({})), &[]);
    check(json!({}), &["spec.requirements"]);
    check(with(json!({"price": "0.25", "weight": 10_000})), &[]);
    check(with(json!({"weight": 0})), &["spec.weight"]);
    check(with(json!({"weight": 10_001})), &["spec.weight"]);
    for price in ["-1", "1.", ".5", "a", "1e3", ""] {
        check(with(json!({"price": price})), &["spec.price"]);
    }
    for change in ["+1", "-1.5", "+.5", "-30%", "-100%", "+250%", "-12.5%"] {
        check(with(json!({"priceAdjustment": change})), &[]);
    }
    for change in ["1", "30%", "-101%", "-100.5%", "+1%%", "+", "%"] {
        check(with(json!({"priceAdjustment": change})), &["spec.priceAdjustment"]);
    }
    check(
        with(json!({"price": "1", "priceAdjustment": "+1"})),
        &["cannot set both 'price' and 'priceAdjustment'"],
    );
    check(with(json!({"capacity": {"example.com/gpu": 2}})), &[]);
    check(with(json!({"capacity": {"example.com/gpu": "many"}})), &["spec.capacity"]);
    for name in ["cpu", "memory", "ephemeral-storage", "pods"] {
        check(with(json!({"capacity": {name: "1"}})), &["invalid resource restricted"]);
    }
    check(about("karpenter.sh/nodepool", "In", json!(["a"])), &[]);
    check(about("karpenter.sh/capacity-type", "NotIn", json!(["spot"])), &[]);
    check(about("karpenter.k8s.aws/instance-family", "Exists", json!([])), &[]);
    let domain = "label domain \"karpenter.sh\" is restricted";
    check(about("karpenter.sh/registered", "Exists", json!([])), &[domain]);
    check(
        about("kubernetes.io/hostname", "Exists", json!([])),
        &["label \"kubernetes.io/hostname\" is restricted"],
    );
    check(
        about("a", "NotIn", json!([])),
        &["requirements with operator 'NotIn' must have a value defined"],
    );
    check(
        about("a", "In", json!([])),
        &["requirements with operator 'In' must have a value defined"],
    );
    check(
        about("a", "Gte", json!(["-1"])),
        &["operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value"],
    );
    check(about("a", "Near", json!(["1"])), &["spec.requirements[0].operator"]);
    check(
        json!({"requirements": [{"key": "a", "operator": "Exists", "minValues": 2}]}),
        &["unknown field \"spec.requirements[0].minValues\""],
    );
}
