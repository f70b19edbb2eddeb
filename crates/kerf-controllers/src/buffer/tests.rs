use super::{status::judged, *};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod, PodTemplateSpec},
};
use kerf_cluster::{
    Kind,
    buffers::{Resolved, Unresolved},
};
use kerf_scheduler::{Refusal, Room};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn buffer(spec: &Value) -> CapacityBuffer {
    object(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "b", "namespace": "ns", "generation": 7}, "spec": spec,
    }))
}

fn of_template() -> CapacityBuffer {
    buffer(&json!({"podTemplateRef": {"name": "shape"}, "replicas": 3}))
}

fn of_web() -> CapacityBuffer {
    buffer(&json!({"scalableRef": {"kind": "Deployment", "name": "web"}, "replicas": 1}))
}

/// Each condition as `Type=Status Reason: message`.
fn conditions(buffer: &CapacityBuffer) -> Vec<String> {
    let conditions = &buffer.status.as_ref().unwrap().conditions;
    let shown = conditions.iter().map(|one| {
        assert_eq!(one.observed_generation, Some(7));
        format!("{}={} {}: {}", one.type_, one.status, one.reason, one.message)
    });
    shown.collect()
}

#[test]
fn the_status_says_how_the_room_stands() {
    let template = PodTemplateSpec::default();
    let now = Timestamp::UNIX_EPOCH;
    let check = |replicas, room: Option<Room>, expected: &[&str]| {
        let resolved = Resolved { template: &template, generation: Some(5), replicas };
        let judged = judged(&of_template(), Ok(resolved), room.as_ref(), now);
        let status = judged.status.as_ref().unwrap();
        assert_eq!(status.pod_template_ref.as_ref().unwrap().name, "shape");
        assert_eq!((status.pod_template_generation, status.replicas), (Some(5), Some(replicas)));
        assert_eq!(
            status.provisioning_strategy.as_deref(),
            Some("buffer.x-k8s.io/active-capacity")
        );
        let ready = "ReadyForProvisioning=True Resolved: Pod template resolved successfully";
        let expected: Vec<_> = [ready].iter().chain(expected).map(ToString::to_string).collect();
        assert_eq!(conditions(&judged), expected);
    };
    let room = |ready, coming, missing| {
        let refusal = (missing > 0).then_some(Refusal::NoPools);
        Some(Room { ready, coming, missing, refusal })
    };
    let within = "LimitedByQuotas=False WithinLimits: No limit of a NodePool keeps room from it";
    check(3, None, &[]);
    check(0, None, &["Provisioning=False BufferEmpty: Buffer has zero desired replicas", within]);
    check(
        3,
        room(3, 0, 0),
        &[
            "Provisioning=True FitsExistingCapacity: All 3 virtual pods fit on existing capacity",
            within,
        ],
    );
    let message =
        "Provisioning=False RequiresNewCapacity: 1/3 virtual pods required new capacity, 1 failed";
    check(3, room(1, 1, 1), &[message, within]);
    // The plan was about another number of pods.
    check(3, room(2, 0, 0), &[]);
}

#[test]
fn a_limit_that_was_hit_is_named_with_its_pool() {
    use kerf_model::{Pool, Resources, Snapshot, snapshot::by_name};
    // No pool is ever so small as one without any room for nodes.
    let offering = kerf_model::Offering { available: true, ..Default::default() };
    let large = Resources::new().with("cpu", "4".parse().unwrap());
    let requirements = kerf_model::Requirements::default();
    let one = kerf_model::InstanceType::new(
        "m",
        requirements,
        vec![offering],
        large,
        kerf_model::Overhead::default(),
    );
    let pool = Pool {
        name: "small".to_owned(),
        limits: Resources::new().with("nodes", "0".parse().unwrap()),
        instance_types: vec![one.into()],
        ..Pool::default()
    };
    let pod = kerf_model::Pod {
        namespace: "ns".to_owned(),
        name: "capacity-buffer-b-1".to_owned(),
        uid: "b-1".to_owned(),
        buffer: Some("b".into()),
        ..Default::default()
    };
    let snapshot = Snapshot {
        pools: by_name([pool.into()]),
        virtual_pods: vec![pod.into()],
        ..Snapshot::default()
    };
    let plan = kerf_scheduler::schedule(&snapshot, &kerf_scheduler::Options::default());
    let room = plan.rooms().remove(&("ns".to_owned(), "b".to_owned())).unwrap();
    let template = PodTemplateSpec::default();
    let resolved = Resolved { template: &template, generation: None, replicas: 1 };
    let judged = judged(&of_template(), Ok(resolved), Some(&room), Timestamp::UNIX_EPOCH);
    let limited = conditions(&judged).pop().unwrap();
    let expected =
        "LimitedByQuotas=True PoolLimitReached: pool small: its limit of nodes is reached";
    assert!(limited.starts_with(expected), "{limited}");
}

#[test]
fn what_cannot_be_resolved_waits_and_keeps_the_time() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let gone = || Err(Unresolved::NoPodTemplate("shape".to_owned()));
    let first = judged(&of_template(), gone(), None, at(1));
    let expected = [
        "ReadyForProvisioning=False PodTemplateNotFound: podtemplates \"shape\" not found",
        "Provisioning=False NotReadyForProvisioning: Buffer is not ReadyForProvisioning",
    ];
    assert_eq!(conditions(&first), expected);
    let again = judged(&first, gone(), None, at(2));
    assert_eq!(again, first, "nothing is written for nothing");
    let template = PodTemplateSpec::default();
    let resolved = Resolved { template: &template, generation: None, replicas: 3 };
    let found = judged(&again, Ok(resolved), None, at(3));
    assert_eq!(found.condition("ReadyForProvisioning").unwrap().last_transition_time.0, at(3));
    assert_eq!(found.condition("Provisioning").unwrap().last_transition_time.0, at(1));
}

/// What each change does to a cluster with a buffer of the Deployment `web`.
#[test]
fn a_plan_is_made_when_a_buffer_may_have_lost_room() {
    fn apply<K: Kind + DeserializeOwned>(cluster: &mut Cluster, value: Value) -> bool {
        let change = cluster.apply::<K>(object(value)).unwrap();
        may_need_room(&change, cluster)
    }
    let pod = |name: &str, node: Option<&str>| json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"nodeName": node, "containers": []}});
    let node = |labels: Value, taints: Value| json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}});
    let deployment = |name: &str, replicas: i32| json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"replicas": replicas, "selector": {}, "template": {}}});
    let mut cluster = Cluster::default();
    assert!(!apply::<Pod>(&mut cluster, pod("off", Some("n"))), "the gate is off");
    cluster.keep_buffers();
    assert!(!apply::<Pod>(&mut cluster, pod("none", Some("n"))), "there is no buffer");
    assert!(may_need_room(&cluster.apply(of_web()).unwrap(), &cluster));
    let mut judged = of_web();
    judged.status = Some(kerf_api::CapacityBufferStatus::default());
    assert!(!may_need_room(&cluster.apply(judged).unwrap(), &cluster), "our own write");
    assert!(!apply::<Pod>(&mut cluster, pod("a", None)));
    assert!(apply::<Pod>(&mut cluster, pod("a", Some("n"))), "it took a place");
    assert!(!apply::<Pod>(&mut cluster, pod("a", Some("n"))));
    assert!(!apply::<Node>(&mut cluster, node(json!({}), json!([]))), "a node gives room");
    let taint = json!([{"key": "k", "effect": "NoSchedule"}]);
    assert!(apply::<Node>(&mut cluster, node(json!({}), taint.clone())));
    assert!(apply::<Node>(&mut cluster, node(json!({"a": "b"}), taint.clone())));
    assert!(!apply::<Node>(&mut cluster, node(json!({"a": "b"}), taint.clone())));
    let gone = cluster.delete::<Node>(&object(node(json!({}), taint))).unwrap();
    assert!(may_need_room(&gone, &cluster));
    assert!(apply::<Deployment>(&mut cluster, deployment("web", 3)));
    assert!(!apply::<Deployment>(&mut cluster, deployment("other", 3)));
    let gone = cluster.delete(&of_web()).unwrap();
    assert!(may_need_room(&gone, &cluster));
}
