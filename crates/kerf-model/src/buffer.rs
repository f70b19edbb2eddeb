//! Buffers: how many pods room is kept for, and what these pods look like.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodCondition, PodSpec, PodStatus, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kerf_api::CapacityBuffer;

use crate::{
    pod::{requests, with_limits_as_requests},
    resources::{Resources, ResourcesError},
};

/// On every virtual pod.
pub const FAKE_POD: &str = "karpenter.sh/capacity-buffer-fake-pod";
/// The buffer of a virtual pod.
pub const BUFFER_NAME: &str = "karpenter.sh/capacity-buffer-name";
pub const BUFFER_NAMESPACE: &str = "karpenter.sh/capacity-buffer-namespace";

/// What a buffer asks for, and what it refers to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    pub replicas: Option<i32>,
    pub percentage: Option<i32>,
    pub limits: Option<&'a Resources>,
    /// Replicas of the workload; none for a PodTemplate.
    pub workload_replicas: Option<i32>,
}

/// For how many pods with these requests a buffer keeps room.
///
/// The larger of replicas and percentage counts, and limits bound it. Limits alone decide where neither is given. Limits on
/// resources that the pods do not request bound nothing.
pub fn desired_replicas(wish: &Wish<'_>, requests: &Resources) -> i32 {
    let of_workload = wish.percentage.zip(wish.workload_replicas.filter(|replicas| *replicas > 0));
    let share = of_workload.map(|(percentage, replicas)| share(replicas, percentage));
    let desired = wish.replicas.max(share);
    let allowed = wish.limits.and_then(|limits| allowed(limits, requests));
    match (desired, allowed) {
        (Some(desired), Some(allowed)) => desired.min(allowed).max(0),
        (desired, allowed) => desired.or(allowed).unwrap_or(0).max(0),
    }
}

/// Rounded up, so that any percentage of any replicas is one pod at least.
fn share(replicas: i32, percentage: i32) -> i32 {
    let hundredths = i64::from(replicas) * i64::from(percentage.max(0));
    i32::try_from((hundredths + 99) / 100).unwrap_or(i32::MAX)
}

/// How many pods the limits allow; `None` if they limit nothing that a pod requests.
fn allowed(limits: &Resources, requests: &Resources) -> Option<i32> {
    let of_one = |(name, limit): (&str, crate::Quantity)| {
        let request = requests.get(name)?.millis();
        (request > 0).then(|| limit.millis().max(0) / request)
    };
    let fewest = limits.iter().filter_map(of_one).min()?;
    Some(i32::try_from(fewest).unwrap_or(i32::MAX))
}

/// What one pod of this template requests. Limits stand in for missing requests, as they do in pods.
pub fn template_requests(template: &PodTemplateSpec) -> Result<Resources, ResourcesError> {
    let mut spec = template.spec.clone().unwrap_or_default();
    with_limits_as_requests(&mut spec);
    requests(&spec, None)
}

/// The pods that stand for the room of a buffer.
pub fn virtual_pods(
    buffer: &CapacityBuffer,
    template: &PodTemplateSpec,
    replicas: i32,
) -> impl Iterator<Item = Pod> {
    let name = buffer.metadata.name.clone().unwrap_or_default();
    let namespace = buffer.metadata.namespace.clone().unwrap_or_default();
    let uid = uid_of(buffer);
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    let mut spec = template.spec.clone().unwrap_or_default();
    with_limits_as_requests(&mut spec);
    unbound(&mut spec);
    let annotations = BTreeMap::from([
        (FAKE_POD.to_owned(), "true".to_owned()),
        (BUFFER_NAME.to_owned(), name.clone()),
        (BUFFER_NAMESPACE.to_owned(), namespace.clone()),
    ]);
    (1..=replicas).map(move |number| Pod {
        metadata: ObjectMeta {
            name: Some(pod_name(&name, number)),
            namespace: Some(namespace.clone()),
            uid: Some(pod_uid(&uid, number)),
            labels: labels.clone(),
            annotations: Some(annotations.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(spec.clone()),
        status: Some(PodStatus {
            conditions: Some(vec![PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "False".to_owned(),
                reason: Some("Unschedulable".to_owned()),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        }),
    })
}

/// The same as decisions see them. `first` is the first of them, as it was read: the others differ from it in nothing but name and
/// uid, and to read each of ten thousand would take longer than to plan them.
pub fn like(
    first: crate::Pod,
    buffer: &CapacityBuffer,
    replicas: i32,
) -> impl Iterator<Item = Arc<crate::Pod>> {
    let name: Arc<str> = buffer.metadata.name.as_deref().unwrap_or_default().into();
    let uid = uid_of(buffer);
    (1..=replicas).map(move |number| {
        Arc::new(crate::Pod {
            name: pod_name(&name, number),
            uid: pod_uid(&uid, number),
            buffer: Some(Arc::clone(&name)),
            ..first.clone()
        })
    })
}

/// A buffer from a file has none of its own.
fn uid_of(buffer: &CapacityBuffer) -> String {
    let ObjectMeta { uid, namespace, name, .. } = &buffer.metadata;
    let key = || [namespace, name].map(|part| part.as_deref().unwrap_or_default()).join("/");
    uid.clone().unwrap_or_else(key)
}

fn pod_name(buffer: &str, number: i32) -> String {
    format!("capacity-buffer-{buffer}-{number}")
}

fn pod_uid(buffer: &str, number: i32) -> String {
    format!("{buffer}-{number}")
}

/// No node, and no disks: those of a pod that does not exist do not exist either.
fn unbound(spec: &mut PodSpec) {
    spec.node_name = None;
    // Behind every real pod, whatever class the template names.
    spec.priority = Some(i32::MIN);
    spec.priority_class_name = None;
    let mut disks = Vec::new();
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(|volume| {
            let is_disk = volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
            if is_disk {
                disks.push(volume.name.clone());
            }
            !is_disk
        });
    }
    let mounts = |container: &mut Container| {
        let mounts = container.volume_mounts.iter_mut();
        mounts.for_each(|mounts| mounts.retain(|mount| !disks.contains(&mount.name)));
    };
    spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(mounts);
}

#[cfg(test)]
mod tests;
