use super::*;
use crate::{Kind, snapshot::Inputs};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet, StatefulSet},
    core::v1::PodTemplate,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn add<K: Kind + DeserializeOwned>(cluster: &mut Cluster, value: Value) -> Change {
    cluster.apply::<K>(object(value)).unwrap()
}

fn template(cpu: &str) -> Value {
    let container = json!({
        "name": "c", "image": "i", "env": [{"name": "SECRET", "value": "s"}],
        "resources": {"requests": {"cpu": cpu}},
    });
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}})
}

fn buffer(name: &str, spec: &Value) -> CapacityBuffer {
    object(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid")}, "spec": spec,
    }))
}

/// A PodTemplate and one workload of each kind, ten replicas where it says so.
fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.keep_buffers();
    let named = |name: &str| json!({"name": name, "namespace": "ns", "generation": 3});
    add::<PodTemplate>(
        &mut cluster,
        json!({"metadata": named("shape"), "template": template("500m")}),
    );
    let spec = |replicas: Value| json!({"replicas": replicas, "selector": {}, "serviceName": "", "template": template("1")});
    add::<Deployment>(&mut cluster, json!({"metadata": named("web"), "spec": spec(json!(10))}));
    add::<StatefulSet>(&mut cluster, json!({"metadata": named("db"), "spec": spec(json!(4))}));
    add::<ReplicaSet>(&mut cluster, json!({"metadata": named("set"), "spec": spec(Value::Null)}));
    cluster
}

#[test]
fn buffers_are_resolved_or_say_why_not() {
    let cluster = cluster();
    let scalable = |kind: &str, name: &str| json!({"kind": kind, "name": name});
    let check = |spec: Value, expected: Result<i32, (&str, &str)>| {
        let got = cluster.resolve(&buffer("b", &spec));
        let got = got.map(|resolved| resolved.replicas);
        let got = got.map_err(|why| (why.reason(), why.to_string()));
        assert_eq!(got, expected.map_err(|(reason, text)| (reason, text.to_owned())), "{spec}");
    };
    check(json!({"podTemplateRef": {"name": "shape"}, "replicas": 3}), Ok(3));
    check(json!({"podTemplateRef": {"name": "shape"}, "limits": {"cpu": "3"}}), Ok(6));
    check(json!({"scalableRef": scalable("Deployment", "web"), "percentage": 25}), Ok(3));
    check(json!({"scalableRef": scalable("StatefulSet", "db"), "percentage": 50}), Ok(2));
    // Replicas that are not set are one.
    check(json!({"scalableRef": scalable("ReplicaSet", "set"), "percentage": 300}), Ok(3));
    check(
        json!({"scalableRef": scalable("Deployment", "web"), "percentage": 50, "limits": {"cpu": "2"}}),
        Ok(2),
    );
    check(json!({"scalableRef": scalable("Deployment", "web")}), Ok(0));
    check(
        json!({"replicas": 1}),
        Err(("ResolutionFailed", "Neither podTemplateRef nor scalableRef is set")),
    );
    check(
        json!({"podTemplateRef": {"name": "gone"}, "replicas": 1}),
        Err(("PodTemplateNotFound", "podtemplates \"gone\" not found")),
    );
    check(
        json!({"scalableRef": scalable("StatefulSet", "web"), "replicas": 1}),
        Err(("ScalableRefNotFound", "statefulsets.apps \"web\" not found")),
    );
    check(
        json!({"scalableRef": scalable("DaemonSet", "web"), "replicas": 1}),
        Err(("ResolutionFailed", "unsupported kind \"DaemonSet\"")),
    );
    check(
        json!({"scalableRef": {"apiGroup": "batch", "kind": "Job", "name": "j"}, "replicas": 1}),
        Err(("ResolutionFailed", "unsupported scalableRef API group \"batch\"")),
    );
    let absurd = json!({"podTemplateRef": {"name": "shape"}, "limits": {"cpu": "1e1.5"}});
    let why = cluster.resolve(&buffer("b", &absurd)).unwrap_err();
    assert_eq!(why.reason(), "ResolutionFailed");
    assert!(why.to_string().starts_with("spec.limits cannot be read: "), "{why}");
}

#[test]
fn a_snapshot_has_the_virtual_pods_apart_from_the_others() {
    let mut cluster = cluster();
    let spec = json!({"scalableRef": {"kind": "Deployment", "name": "web"}, "replicas": 3});
    cluster.apply(buffer("b", &spec));
    cluster.apply(buffer("broken", &json!({"podTemplateRef": {"name": "gone"}, "replicas": 3})));
    let take = |cluster: &Cluster, promised: &[&str]| {
        let promised_to_buffers = promised.iter().map(|uid| (*uid).to_owned()).collect();
        let inputs = Inputs { promised_to_buffers, ..Inputs::at(Timestamp::UNIX_EPOCH) };
        cluster.snapshot(inputs).unwrap().snapshot
    };
    let snapshot = take(&cluster, &["b-uid-2"]);
    assert!(snapshot.pods.is_empty());
    let names: Vec<_> = snapshot.virtual_pods.iter().map(|pod| pod.key()).collect();
    assert_eq!(names, ["ns/capacity-buffer-b-1", "ns/capacity-buffer-b-3"]);
    let pod = &snapshot.virtual_pods[1];
    assert_eq!((pod.uid.as_str(), pod.buffer.as_deref()), ("b-uid-3", Some("b")));
    assert_eq!(pod.labels["app"], "web");
    assert_eq!(pod.requests.amount("cpu").to_string(), "1");
    // The gate is off: a file or a list may have brought them all the same.
    cluster.keeps_buffers = false;
    assert!(take(&cluster, &[]).virtual_pods.is_empty());
}

#[test]
fn a_number_that_was_mistyped_does_not_take_all_memory() {
    let mut cluster = cluster();
    let spec = json!({"podTemplateRef": {"name": "shape"}, "replicas": i32::MAX});
    cluster.apply(buffer("a", &spec));
    cluster.apply(buffer("b", &spec));
    let snapshot = cluster.snapshot(Inputs::at(Timestamp::UNIX_EPOCH)).unwrap().snapshot;
    assert_eq!(snapshot.virtual_pods.len(), MOST_VIRTUAL_PODS);
}

#[test]
fn what_a_buffer_refers_to_concerns_it() {
    let mut cluster = cluster();
    let of = |reference: Value| json!({"scalableRef": reference, "replicas": 1});
    cluster.apply(buffer("a", &of(json!({"kind": "Deployment", "name": "web"}))));
    cluster.apply(buffer("b", &of(json!({"kind": "StatefulSet", "name": "web"}))));
    cluster.apply(buffer("c", &json!({"podTemplateRef": {"name": "web"}, "replicas": 1})));
    let mut concerned = |namespace: &str, kind: &str| {
        let metadata = json!({"name": "web", "namespace": namespace});
        let spec = json!({"selector": {}, "serviceName": "", "template": template("1")});
        let object = json!({"metadata": metadata, "spec": spec});
        let change = match kind {
            "Deployment" => add::<Deployment>(&mut cluster, object),
            "StatefulSet" => add::<StatefulSet>(&mut cluster, object),
            "ReplicaSet" => add::<ReplicaSet>(&mut cluster, object),
            _ => add::<PodTemplate>(&mut cluster, object),
        };
        let keys = cluster.buffers_that_refer_to(&change);
        keys.into_iter().map(|key| key.name).collect::<Vec<_>>()
    };
    assert_eq!(concerned("ns", "Deployment"), ["a"]);
    assert_eq!(concerned("ns", "StatefulSet"), ["b"]);
    assert_eq!(concerned("ns", "PodTemplate"), ["c"]);
    assert_eq!(concerned("ns", "ReplicaSet"), [""; 0]);
    assert_eq!(concerned("other", "Deployment"), [""; 0]);
}

#[test]
fn buffers_are_waited_for_only_where_they_count() {
    let mut cluster = Cluster::default();
    assert!(cluster.buffers_listed());
    cluster.keep_buffers();
    assert!(!cluster.buffers_listed());
    cluster.begin_list::<CapacityBuffer>(0);
    cluster.end_list::<CapacityBuffer>();
    assert!(!cluster.buffers_listed(), "what they refer to counts as well");
}
