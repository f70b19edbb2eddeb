//! The CapacityBuffers of a snapshot.

use serde_json::{Value, json};

use super::{
    super::{BufferEntry, default_namespace},
    Set, kept_metadata, pod_spec,
};
use crate::ledger::text;

/// A buffer as the simulated cluster can have it. There the pods of a workload belong to a `ReplicaSet`, whatever made them. `None`: it
/// is for a workload without pods, and nothing says what they would look like.
pub(super) fn entry(buffer: &Value, sets: &[Set]) -> Option<BufferEntry> {
    let (name, namespace) =
        (text(buffer, "/metadata/name"), text(buffer, "/metadata/namespace").to_owned());
    let namespace = if namespace.is_empty() { default_namespace() } else { namespace };
    let mut spec = buffer["spec"].as_object()?.clone();
    if let Some(reference) = spec.get_mut("scalableRef") {
        let set = set_of(reference, &namespace, sets)?;
        let set = text(&set.object, "/metadata/name");
        *reference = json!({"apiGroup": "apps", "kind": "ReplicaSet", "name": set});
    }
    Some(BufferEntry { name: name.to_owned(), namespace, pod: None, spec })
}

/// The set of the workload, the largest if it has several: during a rollout a Deployment has two.
fn set_of<'a>(reference: &Value, namespace: &str, sets: &'a [Set]) -> Option<&'a Set> {
    let name = text(reference, "/name");
    let workload = format!("{namespace}/{name}");
    let is_named = |set: &&Set| {
        text(&set.object, "/metadata/namespace") == namespace
            && text(&set.object, "/metadata/name") == name
    };
    let is_of = |set: &&Set| set.scales && (set.workload == workload || is_named(set));
    // The first of equals.
    sets.iter().filter(is_of).rev().max_by_key(|set| set.pods.len())
}

/// Without what ties its pods to the cluster that it comes from.
pub(super) fn pod_template(object: &Value) -> Value {
    let template = &object["template"];
    json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": kept_metadata(object),
        "template": {"metadata": kept_metadata(template), "spec": pod_spec(&template["spec"])},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, workload: &str, pods: usize, scales: bool) -> Set {
        let object = json!({
            "kind": "ReplicaSet", "metadata": {"name": name, "namespace": "shop"},
        });
        Set { object, pods: vec![json!({}); pods], workload: workload.to_owned(), scales }
    }

    #[test]
    fn a_buffer_of_a_workload_is_one_of_the_set_that_stands_for_it() {
        let sets = [
            set("web-1", "shop/web", 2, true),
            set("web-2", "shop/web", 5, true),
            set("web-3", "shop/web", 5, true),
            set("db", "shop/db", 3, true),
            set("batch", "shop/batch", 1, false),
        ];
        for (kind, name, expected) in [
            ("Deployment", "web", Some("web-2")),
            ("ReplicaSet", "web-1", Some("web-1")),
            ("StatefulSet", "db", Some("db")),
            ("Deployment", "batch", None),
            ("Deployment", "gone", None),
        ] {
            let buffer = json!({
                "metadata": {"name": "room", "namespace": "shop"},
                "spec": {"scalableRef": {"kind": kind, "name": name}, "percentage": 20},
            });
            let entry = entry(&buffer, &sets);
            let found = entry.as_ref().map(|entry| text(&entry.spec["scalableRef"], "/name"));
            assert_eq!(found, expected, "{kind} {name}");
            if let Some(entry) = &entry {
                assert_eq!(entry.spec["scalableRef"]["kind"], "ReplicaSet");
                assert_eq!(
                    (entry.namespace.as_str(), &entry.spec["percentage"]),
                    ("shop", &json!(20))
                );
            }
        }
    }

    #[test]
    fn a_buffer_of_a_template_keeps_it_without_volumes() {
        let buffer = json!({
            "metadata": {"name": "room", "namespace": "shop"},
            "spec": {"podTemplateRef": {"name": "shape"}, "replicas": 2},
        });
        assert_eq!(json!(entry(&buffer, &[]).unwrap().spec), buffer["spec"]);
        let written = pod_template(&json!({
            "metadata": {"name": "shape", "namespace": "shop", "uid": "7"},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "c"}], "volumes": [{"name": "v"}], "nodeName": "n"},
            },
        }));
        assert_eq!(written["metadata"], json!({"name": "shape", "namespace": "shop"}));
        assert_eq!(written["template"]["metadata"]["labels"]["app"], "x");
        assert_eq!(
            written["template"]["spec"],
            json!({"containers": [{"name": "c", "image": "example.com/app:1"}]})
        );
    }
}
