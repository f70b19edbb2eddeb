//! Files that somebody edited by hand, cut short or produced with another tool.

#[path = "../../kerf-cluster/tests/support/damage.rs"]
mod damage;

use jiff::Timestamp;
use kerf_api::labels::LabelRules;
use kerf_cluster::snapshot::Inputs;
use kerf_manifests::Loader;
use proptest::prelude::*;
use serde_json::{Value, json};

use damage::{damage, damages, in_time, is_a_sentence};

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

proptest! {
    #[test]
    fn damaged_objects_are_read_or_refused(damages in damages()) {
        let mut objects = objects();
        damage(&mut objects, damages);
        let mut loader = Loader::default();
        for object in objects {
            if let Err(error) = in_time(|| loader.add(object)) {
                let said = error.to_string();
                prop_assert!(is_a_sentence(&said), "{}", said);
            }
        }
        let loaded = loader.finish(&LabelRules::default(), Timestamp::UNIX_EPOCH);
        // Amounts that are no amounts are told of, here and not before.
        let _ = in_time(|| loaded.seen_with(Inputs::at(Timestamp::UNIX_EPOCH)).snapshot());
    }
}
