use super::*;
use k8s_openapi::serde_json::{Value, from_value, json};

fn spec(value: Value) -> k8s::PodSpec {
    let mut value = value;
    let object = value.as_object_mut().unwrap();
    object.entry("containers").or_insert_with(|| json!([]));
    from_value(value).unwrap()
}

fn container(name: &str, cpu: &str) -> Value {
    json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
}

fn sidecar(name: &str, cpu: &str) -> Value {
    json!({"name": name, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
}

fn check_cpu(value: Value, status: Option<Value>, cpu: &str) {
    let text = value.to_string();
    let status = status.map(|status| from_value(status).unwrap());
    let requests = requests(&spec(value), status.as_ref()).unwrap();
    assert_eq!(requests.amount("cpu"), cpu.parse().unwrap(), "{text}");
    assert_eq!(requests.amount("pods"), "1".parse().unwrap());
}

#[test]
fn requests_count_init_containers_and_sidecars() {
    check_cpu(json!({}), None, "0");
    check_cpu(json!({"containers": [container("a", "1"), container("b", "2")]}), None, "3");
    check_cpu(
        json!({"containers": [container("a", "1")], "initContainers": [container("i", "2")]}),
        None,
        "2",
    );
    check_cpu(
        json!({"containers": [container("a", "2")], "initContainers": [container("i", "1")]}),
        None,
        "2",
    );
    // An init container before the sidecar starts alone.
    check_cpu(
        json!({"containers": [container("a", "1")], "initContainers": [container("i", "4"), sidecar("s", "1")]}),
        None,
        "4",
    );
    // After the sidecar it starts beside it.
    check_cpu(
        json!({"containers": [container("a", "1")], "initContainers": [sidecar("s", "1"), container("i", "4")]}),
        None,
        "5",
    );
    check_cpu(
        json!({"containers": [container("a", "3")], "initContainers": [sidecar("s", "1"), container("i", "2")]}),
        None,
        "4",
    );
    check_cpu(
        json!({"containers": [container("a", "1")], "initContainers": [sidecar("s", "1"), sidecar("t", "2"), container("i", "2")]}),
        None,
        "5",
    );
}

#[test]
fn requests_of_the_whole_pod_and_overhead() {
    check_cpu(
        json!({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "5"}}, "overhead": {"cpu": "250m"}}),
        None,
        "5250m",
    );
    check_cpu(
        json!({"containers": [container("a", "7")], "resources": {"requests": {"cpu": "5"}}}),
        None,
        "5",
    );
    let other = requests(
        &spec(json!({"containers": [], "resources": {"requests": {"example.com/gpu": "1", "hugepages-2Mi": "2Mi"}}})),
        None,
    )
    .unwrap();
    assert_eq!(other.to_string(), "hugepages-2Mi 2Mi, pods 1");
}

#[test]
fn requests_follow_a_resize() {
    let status = |requests: &str, allocated: Option<&str>, infeasible: bool| {
        let condition =
            json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible"});
        Some(json!({
            "conditions": if infeasible { json!([condition]) } else { json!([]) },
            "containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": requests}},
                "allocatedResources": allocated.map(|cpu| json!({"cpu": cpu})),
            }],
        }))
    };
    let pod = || json!({"containers": [container("a", "2")]});
    check_cpu(pod(), status("1", None, false), "2");
    check_cpu(pod(), status("3", None, false), "3");
    check_cpu(pod(), status("1", Some("4"), false), "4");
    check_cpu(pod(), status("1", None, true), "1");
    check_cpu(pod(), status("1", Some("1500m"), true), "1500m");
    check_cpu(
        pod(),
        Some(
            json!({"containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0}]}),
        ),
        "2",
    );
}

#[test]
fn limits_fill_missing_requests_of_templates() {
    let mut template = spec(json!({"containers": [
        {"name": "a", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}},
        {"name": "b"},
    ]}));
    with_limits_as_requests(&mut template);
    let requests = requests(&template, None).unwrap();
    assert_eq!(requests.to_string(), "cpu 1, memory 1Gi, pods 1");
}

#[test]
fn an_unreadable_pod_is_named() {
    let pod: k8s::Pod = from_value(json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"containers": [container("a", "lots")]},
    }))
    .unwrap();
    let error = Pod::from_api(&pod, &KnownLabels::default()).unwrap_err();
    assert!(error.to_string().starts_with("reading pod default/web: resource cpu"), "{error}");
    let pod: k8s::Pod = from_value(json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"containers": [], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "Near"}]}]}}}},
    }))
    .unwrap();
    let error = Pod::from_api(&pod, &KnownLabels::default()).unwrap_err();
    assert!(error.to_string().contains("default/web: \"Near\" is not an operator"), "{error}");
}

#[test]
fn reads_every_constraint() {
    let pod: k8s::Pod = from_value(json!({
        "metadata": {
            "namespace": "default", "name": "web", "uid": "u", "labels": {"app": "web", "rev": "7"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "x", "controller": true}],
        },
        "spec": {
            "nodeName": "",
            "nodeSelector": {"beta.kubernetes.io/arch": "amd64"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
                    ]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchExpressions": [{"key": "size", "operator": "In", "values": ["s"]}]}},
                        {"weight": 9, "preference": {"matchExpressions": [{"key": "size", "operator": "In", "values": ["l"]}]}},
                    ],
                },
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}, "namespaces": ["b", "a", "b"]},
                ]},
            },
            "topologySpreadConstraints": [{
                "topologyKey": "failure-domain.beta.kubernetes.io/zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["rev", "missing"], "nodeTaintsPolicy": "Honor",
            }],
            "containers": [{"name": "a", "ports": [
                {"containerPort": 80, "hostPort": 80},
                {"containerPort": 81},
                {"containerPort": 53, "hostPort": 53, "hostIP": "10.0.0.1", "protocol": "UDP"},
            ]}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}},
                {"name": "scratch", "ephemeral": {}},
                {"name": "tmp", "emptyDir": {}},
            ],
        },
        "status": {"phase": "Running"},
    }))
    .unwrap();
    let pod = Pod::from_api(&pod, &KnownLabels::default()).unwrap();
    assert_eq!(
        (pod.key().as_str(), pod.node_name.as_ref(), pod.phase),
        ("default/web", None, Phase::Running)
    );
    assert!(pod.is_daemon() && !pod.is_terminal() && !pod.claims_devices);
    let constraints = &pod.constraints;
    assert_eq!(
        constraints.strict_requirements().to_string(),
        "kubernetes.io/arch In [amd64], zone In [a]"
    );
    let heaviest = heaviest(&constraints.preferred_terms).unwrap();
    assert_eq!(constraints.preferred_terms[heaviest].term.to_string(), "size In [l]");
    let spread = &constraints.spread[0];
    assert_eq!(spread.topology_key, "topology.kubernetes.io/zone");
    assert_eq!(
        (spread.max_skew, spread.when_unsatisfiable),
        (2, WhenUnsatisfiable::ScheduleAnyway)
    );
    assert_eq!(
        (spread.node_affinity_policy, spread.node_taints_policy),
        (NodePolicy::Honor, NodePolicy::Honor)
    );
    assert!(spread.selector.selects(&pod.labels));
    assert!(!spread.selector.selects(&[("app".to_owned(), "web".to_owned())].into()));
    assert_eq!(constraints.anti_affinity.required[0].namespaces, ["a", "b"]);
    let ports: Vec<_> = constraints
        .host_ports
        .iter()
        .map(|port| (port.port, port.ip.as_str(), port.protocol.as_str()))
        .collect();
    assert_eq!(ports, [(80, "0.0.0.0", "TCP"), (53, "10.0.0.1", "UDP")]);
    let claims: Vec<_> = pod.volumes.iter().map(|volume| volume.claim.as_str()).collect();
    assert_eq!(claims, ["disk", "web-scratch"]);
}

#[test]
fn host_ports_conflict_by_address() {
    let port = |ip: &str, port, protocol: &str| HostPort {
        ip: ip.to_owned(),
        port,
        protocol: protocol.to_owned(),
    };
    for (a, b, conflict) in [
        (port("0.0.0.0", 80, "TCP"), port("10.0.0.1", 80, "TCP"), true),
        (port("10.0.0.1", 80, "TCP"), port("10.0.0.1", 80, "TCP"), true),
        (port("10.0.0.1", 80, "TCP"), port("10.0.0.2", 80, "TCP"), false),
        (port("10.0.0.1", 80, "TCP"), port("::", 80, "TCP"), true),
        (port("10.0.0.1", 80, "TCP"), port("10.0.0.1", 80, "UDP"), false),
        (port("0.0.0.0", 80, "TCP"), port("0.0.0.0", 81, "TCP"), false),
    ] {
        assert_eq!(a.conflicts_with(&b), conflict, "{a:?} {b:?}");
        assert_eq!(b.conflicts_with(&a), conflict, "{b:?} {a:?}");
    }
}

#[test]
fn pods_that_are_read_together_share_equal_constraints() {
    let labels = KnownLabels::default();
    let mut reader = PodReader::new(&labels);
    let mut read = |name: &str, zone: &str| {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [], "nodeSelector": {"zone": zone}}});
        reader.read(&from_value(pod).unwrap()).unwrap()
    };
    let (a, b, c) = (read("a", "x"), read("b", "x"), read("c", "y"));
    assert!(Arc::ptr_eq(&a.constraints, &b.constraints));
    assert!(!Arc::ptr_eq(&a.constraints, &c.constraints));
    assert_eq!((a.name.as_str(), b.name.as_str()), ("a", "b"));
}
