//! What the definition of CapacityBuffers fills in and refuses.

use kerf_admission::{CustomSchema, Definitions};
use kerf_api::capacity_buffer::{ACTIVE_CAPACITY, definition};
use serde_json::{Value, json};

fn buffer(spec: &Value) -> Value {
    json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "b", "namespace": "n"}, "spec": spec,
    })
}

#[test]
fn buffers_refer_to_one_thing_and_say_how_much_of_it() {
    let definitions = Definitions::of(&[definition()]);
    let check = |spec: Value, expected: &[&str]| {
        let object = buffer(&spec);
        let found: Vec<_> = definitions.faults(&object).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{object} {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    };
    let template = json!({"name": "t"});
    let scalable = json!({"kind": "Deployment", "name": "d"});
    check(json!({"podTemplateRef": template, "replicas": 3}), &[]);
    check(json!({"podTemplateRef": template, "replicas": 0}), &[]);
    check(json!({"podTemplateRef": template, "limits": {"cpu": "4"}}), &[]);
    check(json!({"scalableRef": scalable}), &[]);
    check(json!({"scalableRef": scalable, "percentage": 250}), &[]);
    check(json!({"scalableRef": scalable, "provisioningStrategy": "another"}), &[]);
    let one = "You must define either PodTemplateRef or ScalableRef, but not both";
    let how_much = "If podTemplateRef is set, replicas or limits must also be set";
    check(json!({"replicas": 1}), &[one]);
    check(json!({"podTemplateRef": template, "scalableRef": scalable, "replicas": 1}), &[one]);
    check(json!({"podTemplateRef": template}), &[how_much]);
    check(json!({"podTemplateRef": template, "percentage": 10}), &[how_much]);
    check(json!({"podTemplateRef": {"name": ""}, "replicas": 1}), &["spec.podTemplateRef.name"]);
    check(json!({"podTemplateRef": template, "replicas": -1}), &["spec.replicas"]);
    check(json!({"scalableRef": scalable, "percentage": -1}), &["spec.percentage"]);
    check(json!({"scalableRef": {"kind": "Deployment"}}), &["spec.scalableRef.name"]);
    check(json!({"scalableRef": {"name": "d"}}), &["spec.scalableRef.kind"]);
    check(json!({"scalableRef": scalable, "limits": {"cpu": "much"}}), &["spec.limits"]);
}

#[test]
fn the_strategy_has_a_default() {
    let version = serde_json::to_value(&definition().spec.versions[0]).unwrap();
    let mut object = buffer(&json!({"scalableRef": {"kind": "Deployment", "name": "d"}}));
    CustomSchema::shared(&version).unwrap().fill_defaults(&mut object);
    assert_eq!(object["spec"]["provisioningStrategy"], ACTIVE_CAPACITY);
}

#[test]
fn the_definition_has_the_names_and_columns_that_others_know() {
    let spec = definition().spec;
    assert_eq!((spec.group.as_str(), spec.scope.as_str()), ("autoscaling.x-k8s.io", "Namespaced"));
    assert_eq!(spec.names.short_names.as_deref(), Some(&["cb".to_owned()][..]));
    assert_eq!(spec.names.categories.as_deref(), Some(&["autoscaling".to_owned()][..]));
    let [version] = spec.versions.as_slice() else { panic!("one version") };
    assert_eq!(version.name, "v1beta1");
    let columns = version.additional_printer_columns.iter().flatten();
    let columns: Vec<_> =
        columns.map(|column| (column.name.as_str(), column.json_path.as_str())).collect();
    assert_eq!(
        columns,
        [
            ("Strategy", ".spec.provisioningStrategy"),
            ("PodTemplate", ".status.podTemplateRef.name"),
            ("Replicas", ".status.replicas"),
            ("ConditionsType", ".status.conditions[*].type"),
            ("ConditionsStatus", ".status.conditions[*].status"),
            ("ConditionsReason", ".status.conditions[*].reason"),
            ("Age", ".metadata.creationTimestamp"),
        ]
    );
}
