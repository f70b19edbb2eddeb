//! Facts about pods as the API server shows them. Stories do not look at them through the operator's eyes.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

pub(crate) fn is_scheduled(pod: &Pod) -> bool {
    node_name(pod).is_some()
}

pub(crate) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

pub(crate) fn is_daemon(pod: &Pod) -> bool {
    pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet")
}
