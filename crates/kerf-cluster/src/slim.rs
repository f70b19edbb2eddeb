//! Which fields of an object the index keeps. A pod as the API server sends it is mostly environment, probes, mounts and the
//! managed fields; decisions read none of that, and there are tens of thousands of pods.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::{
        Container, ContainerPort, ContainerState, ContainerStateTerminated, ContainerStatus, Node,
        NodeSystemInfo, Pod, PodCondition, PodSpec, PodStatus, PodTemplate, PodTemplateSpec,
        ReplicationController, Volume,
    },
};
use kerf_api::annotations::{
    DELETION_COST_MANAGED, DISRUPTION_COST, DO_NOT_DISRUPT, POD_DELETION_COST,
};

use crate::pods;

/// Annotations that Kerf reads.
const ANNOTATIONS: [&str; 4] =
    [DELETION_COST_MANAGED, DISRUPTION_COST, DO_NOT_DISRUPT, POD_DELETION_COST];

/// Conditions that Kerf reads.
const CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "PodResizePending"];

pub(crate) fn pod(mut pod: Pod) -> Pod {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, _| ANNOTATIONS.contains(&key.as_str()));
    }
    pod.spec = pod.spec.take().map(spec);
    if let Some(spec) = pod.spec.as_mut().filter(|_| pods::is_of_daemon_set(&pod.metadata)) {
        // Its controller has pinned it to a node, each pod to another one. Nobody else places it.
        spec.affinity.iter_mut().for_each(|affinity| affinity.node_affinity = None);
    }
    let kept = pod.spec.as_ref();
    pod.status = pod.status.take().map(|it| status(it, kept));
    pod
}

pub(crate) fn daemon_set(set: &mut DaemonSet) {
    set.spec.iter_mut().for_each(|of_set| template(&mut of_set.template));
    set.metadata.annotations = None;
}

pub(crate) fn node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        status.images = None;
        // By it a reboot is seen.
        status.node_info = status
            .node_info
            .take()
            .map(|info| NodeSystemInfo { boot_id: info.boot_id, ..NodeSystemInfo::default() });
        status.addresses = None;
        // Told every few minutes; without it such a message is no change.
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
    }
}

// Of what pods belong to, selectors are read, and the templates of what a buffer may refer to.

pub(crate) fn replication_controller(set: &mut ReplicationController) {
    set.spec.iter_mut().for_each(|spec| spec.template = None);
}

pub(crate) fn replica_set(set: &mut ReplicaSet) {
    set.spec.iter_mut().filter_map(|spec| spec.template.as_mut()).for_each(template);
    set.metadata.annotations = None;
    set.status = None;
}

pub(crate) fn stateful_set(set: &mut StatefulSet) {
    set.spec.iter_mut().for_each(|spec| {
        template(&mut spec.template);
        spec.volume_claim_templates = None;
    });
    set.metadata.annotations = None;
    set.status = None;
}

pub(crate) fn deployment(deployment: &mut Deployment) {
    deployment.spec.iter_mut().for_each(|spec| template(&mut spec.template));
    deployment.metadata.annotations = None;
    deployment.status = None;
}

pub(crate) fn pod_template(of: &mut PodTemplate) {
    of.template.iter_mut().for_each(template);
    of.metadata.annotations = None;
}

fn template(template: &mut PodTemplateSpec) {
    template.spec = template.spec.take().map(spec);
    template.metadata.iter_mut().for_each(|metadata| metadata.annotations = None);
}

fn spec(full: PodSpec) -> PodSpec {
    PodSpec {
        affinity: full.affinity,
        containers: containers(full.containers),
        init_containers: full.init_containers.map(containers),
        node_name: full.node_name,
        node_selector: full.node_selector,
        overhead: full.overhead,
        priority: full.priority,
        priority_class_name: full.priority_class_name,
        resource_claims: full.resource_claims,
        resources: full.resources,
        scheduling_gates: full.scheduling_gates,
        termination_grace_period_seconds: full.termination_grace_period_seconds,
        tolerations: full.tolerations,
        topology_spread_constraints: full.topology_spread_constraints,
        volumes: full.volumes.map(volumes).filter(|volumes| !volumes.is_empty()),
        ..PodSpec::default()
    }
}

fn containers(full: Vec<Container>) -> Vec<Container> {
    let slim = full.into_iter().map(|container| Container {
        name: container.name,
        ports: container.ports.map(host_ports).filter(|ports| !ports.is_empty()),
        resources: container.resources,
        restart_policy: container.restart_policy,
        ..Container::default()
    });
    slim.collect()
}

fn host_ports(mut ports: Vec<ContainerPort>) -> Vec<ContainerPort> {
    ports.retain(|port| port.host_port.is_some());
    ports
}

/// Disks; the rest is on every node.
fn volumes(mut volumes: Vec<Volume>) -> Vec<Volume> {
    volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
    volumes.shrink_to_fit();
    volumes
}

fn status(full: PodStatus, spec: Option<&PodSpec>) -> PodStatus {
    let containers = spec.map(|spec| spec.containers.as_slice());
    let init_containers = spec.and_then(|spec| spec.init_containers.as_deref());
    let has_ended = matches!(full.phase.as_deref(), Some("Succeeded" | "Failed"));
    PodStatus {
        conditions: full.conditions.map(conditions),
        container_statuses: if has_ended {
            ends(full.container_statuses)
        } else {
            statuses(full.container_statuses, containers)
        },
        init_container_statuses: statuses(full.init_container_statuses, init_containers),
        nominated_node_name: full.nominated_node_name,
        phase: full.phase,
        start_time: full.start_time,
        ..PodStatus::default()
    }
}

fn conditions(mut conditions: Vec<PodCondition>) -> Vec<PodCondition> {
    conditions.retain(|condition| CONDITIONS.contains(&condition.type_.as_str()));
    for condition in &mut conditions {
        condition.message = None;
        condition.last_probe_time = None;
    }
    conditions.shrink_to_fit();
    conditions
}

/// Of a pod that has ended, only when.
fn ends(full: Option<Vec<ContainerStatus>>) -> Option<Vec<ContainerStatus>> {
    let ends = full?.into_iter().filter_map(|status| {
        let terminated = status.state?.terminated?;
        let terminated =
            ContainerStateTerminated { finished_at: terminated.finished_at, ..Default::default() };
        let state = ContainerState { terminated: Some(terminated), ..Default::default() };
        Some(ContainerStatus { state: Some(state), name: status.name, ..Default::default() })
    });
    Some(ends.collect()).filter(|ends: &Vec<_>| !ends.is_empty())
}

/// Only of containers that were given something else than they ask for: they are being resized.
fn statuses(
    full: Option<Vec<ContainerStatus>>,
    containers: Option<&[Container]>,
) -> Option<Vec<ContainerStatus>> {
    let asks = |name: &str| {
        let container = containers?.iter().find(|container| container.name == name)?;
        container.resources.as_ref()?.requests.as_ref()
    };
    let resized = full?.into_iter().filter(|status| {
        let uses = status.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let given = status.allocated_resources.as_ref();
        let asked = asks(&status.name);
        status.resources.is_some() && (uses != asked || given.is_some_and(|it| Some(it) != asked))
    });
    let slim: Vec<_> = resized
        .map(|status| ContainerStatus {
            allocated_resources: status.allocated_resources,
            name: status.name,
            resources: status.resources,
            ..ContainerStatus::default()
        })
        .collect();
    (!slim.is_empty()).then_some(slim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::{KnownLabels, pod::PodParts};
    use serde_json::{Value, json};

    fn read(changes: &Value) -> Pod {
        let mut value: Value = serde_json::from_str(include_str!("../examples/pod.json")).unwrap();
        for (pointer, change) in changes.as_object().unwrap() {
            *value.pointer_mut(pointer).unwrap() = change.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn decisions_see_the_same_in_what_is_kept() {
        let cases = [
            json!({}),
            json!({"/spec/nodeName": null, "/status": {"conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"},
            ]}}),
            json!({"/metadata/annotations": {DO_NOT_DISRUPT: "2h", POD_DELETION_COST: "7"}}),
            json!({"/metadata/annotations": {DISRUPTION_COST: "8", POD_DELETION_COST: "7"}}),
            json!({"/metadata/annotations": {DELETION_COST_MANAGED: "7", POD_DELETION_COST: "7"}}),
            json!({"/spec/containers/0/ports": [
                {"containerPort": 1}, {"containerPort": 2, "hostPort": 2},
            ]}),
            json!({"/status/containerStatuses/0/resources": {"requests": {"cpu": "3"}}}),
            json!({"/status/containerStatuses/0/allocatedResources": {"cpu": "5"}}),
            json!({"/metadata/ownerReferences": []}),
            json!({"/status/phase": "Succeeded"}),
        ];
        for case in cases {
            let full = read(&case);
            let known = KnownLabels::default();
            let view = |pod: PodParts<'_>| kerf_model::Pod::from_parts(pod, &known).unwrap();
            let kept = crate::Pod::from(full.clone());
            assert_eq!(
                format!("{:?}", view(PodParts::from(&full))),
                format!("{:?}", view(kept.parts())),
                "{case}"
            );
            let slim = super::pod(full);
            assert_eq!(slim, super::pod(slim.clone()), "{case}");
        }
    }

    #[test]
    fn daemons_of_all_nodes_have_one_spec() {
        let daemon = |node: &str| {
            let pinned = json!({"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [node]},
            ]});
            let owner =
                json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"});
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": node, "ownerReferences": [owner]},
                "spec": {"containers": [], "nodeName": node, "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pinned]},
                }}},
            }))
            .unwrap();
            crate::Pod::from(pod)
        };
        assert_eq!(daemon("a").spec(), daemon("b").spec());
        assert_eq!(daemon("a").node_name(), Some("a"));
    }

    #[test]
    fn what_no_decision_reads_is_gone() {
        let kept = format!("{:?}", crate::Pod::from(read(&json!({}))));
        for gone in [
            "internal.example.com",
            "registry",
            "/healthz",
            "10.244",
            "Burstable",
            "kube-api-access",
        ] {
            let pod = include_str!("../examples/pod.json");
            assert!(pod.contains(gone), "{gone} is in no pod");
            assert!(!kept.contains(gone), "{gone} is in {kept}");
        }
    }
}
