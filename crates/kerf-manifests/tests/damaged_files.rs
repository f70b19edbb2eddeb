//! Files that somebody edited by hand, cut short or produced with another tool.

use jiff::Timestamp;
use kerf_api::labels::LabelRules;
use kerf_cluster::snapshot::Inputs;
use kerf_manifests::Loader;
use proptest::prelude::*;
use serde_json::{Value, json};

/// One of each kind, with the fields that are read.
fn objects() -> Vec<Value> {
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}],
        "topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    }});
    let selector = json!({"matchLabels": {"app": "a"}});
    let class = json!({"group": "cloud.example", "kind": "ExampleNodeClass", "name": "n"});
    let wants = json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"], "minValues": 1}]);
    let of = |version: &str, kind: &str, spec: &Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "n", "uid": "u"}, "spec": spec});
    let set = json!({"replicas": 2, "selector": selector, "template": template});
    let pool = json!({"nodeClassRef": class, "requirements": wants});
    let pool = json!({"limits": {"cpu": "10"}, "template": {"spec": pool}});
    vec![
        of("v1", "Pod", &template["spec"]),
        of("v1", "Node", &json!({"taints": [{"key": "k", "effect": "NoSchedule"}]})),
        of("v1", "Service", &json!({"selector": {"app": "a"}})),
        of("v1", "PersistentVolumeClaim", &json!({"storageClassName": "s", "volumeName": "v"})),
        of("apps/v1", "Deployment", &set),
        of("apps/v1", "StatefulSet", &set),
        of("karpenter.sh/v1", "NodePool", &pool),
        json!({"apiVersion": "v1", "kind": "List", "items": [of("v1", "Namespace", &json!({}))]}),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..100).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([{"key": 7}, null])),
    ]
}

/// Everything in the value that could be replaced.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                places(field, &format!("{at}/{}", name.replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn damaged_objects_are_read_or_refused(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), anything()), 1..4),
    ) {
        let mut objects = objects();
        for (object, place, instead) in damage {
            let object = object.index(objects.len());
            let mut found = Vec::new();
            places(&objects[object], "", &mut found);
            let place: &String = place.get(&found);
            *objects[object].pointer_mut(place).expect("it was found") = instead;
        }
        let mut loader = Loader::default();
        for object in objects {
            if let Err(error) = loader.add(object) {
                prop_assert!(!error.to_string().is_empty());
            }
        }
        let loaded = loader.finish(&LabelRules::default(), Timestamp::UNIX_EPOCH);
        // Amounts that are no amounts are told of, here and not before.
        let _ = loaded.seen_with(Inputs::at(Timestamp::UNIX_EPOCH)).snapshot();
    }
}
