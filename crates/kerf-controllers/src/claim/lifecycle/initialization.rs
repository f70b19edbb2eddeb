//! From a registered Node to an initialized one.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity as ApiQuantity};
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, INITIALIZED, REBOOTING, REGISTERED},
    labels, taints,
};
use kerf_model::Quantity;
use kerf_runtime::Lock;
use kube::ResourceExt;
use tracing::info;

use super::is_settled;
use crate::{context::Context, error::Result};

/// Why a node does not count as initialised yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Waiting {
    #[error("Node not registered with cluster")]
    NodeNotFound,
    #[error("Node status is NotReady")]
    NodeNotReady,
    #[error("StartupTaint {0:?} still exists")]
    StartupTaintsExist(String),
    #[error("KnownEphemeralTaint {0:?} still exists")]
    KnownEphemeralTaintsExist(String),
    #[error("Resource {0:?} was requested but not registered")]
    ResourceNotRegistered(String),
}

impl Waiting {
    fn reason(&self) -> &'static str {
        match self {
            Self::NodeNotFound => "NodeNotFound",
            Self::NodeNotReady => "NodeNotReady",
            Self::StartupTaintsExist(_) => "StartupTaintsExist",
            Self::KnownEphemeralTaintsExist(_) => "KnownEphemeralTaintsExist",
            Self::ResourceNotRegistered(_) => "ResourceNotRegistered",
        }
    }
}

pub(super) async fn initialize(context: &Context, claim: &mut NodeClaim) -> Result<()> {
    if is_settled(claim, INITIALIZED, context.now()) || !claim.is_true(REGISTERED) {
        return Ok(());
    }
    // The node may still be the one before its reboot.
    if claim.is_true(REBOOTING) {
        return Ok(());
    }
    let node = context.index.read().node_of(claim.provider_id()).cloned().ok();
    let checked = node.as_deref().ok_or(Waiting::NodeNotFound).and_then(|node| {
        check(node, claim)?;
        Ok(node)
    });
    match checked {
        Err(waiting) => {
            claim.condition_set(context.now()).set_unknown_because(
                INITIALIZED,
                waiting.reason(),
                &waiting.to_string(),
            );
        }
        Ok(node) => {
            let mut initialized = node.clone();
            initialized.labels_mut().insert(labels::INITIALIZED.into(), "true".into());
            let what = || format!("labelling Node {} as initialised", node.name_any());
            context.write(node, initialized, Lock::None, what).await?;
            info!(claim = claim.name_any(), node = node.name_any(), "initialized nodeclaim");
            claim.condition_set(context.now()).set_true(INITIALIZED);
        }
    }
    Ok(())
}

fn check(node: &Node, claim: &NodeClaim) -> Result<(), Waiting> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    if !conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True") {
        return Err(Waiting::NodeNotReady);
    }
    let on_node = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    for startup in claim.spec.startup_taints.iter().flatten() {
        if on_node.iter().any(|taint| taints::same(taint, startup)) {
            return Err(Waiting::StartupTaintsExist(taints::display(startup)));
        }
    }
    if let Some(taint) = on_node.iter().find(|taint| taints::is_ephemeral(taint)) {
        return Err(Waiting::KnownEphemeralTaintsExist(taints::display(taint)));
    }
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let missing = claim.spec.resources.requests.keys().find(|resource| {
        is_positive(Some(&claim.spec.resources.requests), resource)
            && !is_positive(allocatable, resource)
    });
    // Devices show up on the node only when their driver runs there.
    missing.map_or(Ok(()), |resource| Err(Waiting::ResourceNotRegistered(resource.clone())))
}

fn is_positive(resources: Option<&BTreeMap<String, ApiQuantity>>, resource: &str) -> bool {
    let quantity = resources.and_then(|resources| resources.get(resource));
    quantity
        .and_then(|quantity| quantity.0.parse::<Quantity>().ok())
        .is_some_and(|quantity| quantity > Quantity::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn checks_come_in_order_and_say_what_is_missing() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "2", "gpu": "0"}});
        let not_ready = json!({"conditions": [{"type": "Ready", "status": "False"}], "allocatable": {"cpu": "2"}});
        let cni = json!({"key": "cni", "value": "x", "effect": "NoExecute"});
        let starting = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let held_back = json!({"key": "readiness.k8s.io/agent", "effect": "NoSchedule"});
        let other = json!({"key": "other", "effect": "NoSchedule"});
        let cases = [
            (&not_ready, vec![&cni], json!({}), Err(Waiting::NodeNotReady)),
            (
                &ready,
                vec![&starting, &cni],
                json!({}),
                Err(Waiting::StartupTaintsExist("cni:NoExecute".into())),
            ),
            (
                &ready,
                vec![&starting],
                json!({}),
                Err(Waiting::KnownEphemeralTaintsExist(
                    "node.kubernetes.io/not-ready:NoSchedule".into(),
                )),
            ),
            (
                &ready,
                vec![&other, &held_back],
                json!({}),
                Err(Waiting::KnownEphemeralTaintsExist("readiness.k8s.io/agent:NoSchedule".into())),
            ),
            (
                &ready,
                vec![&other],
                json!({"gpu": "1"}),
                Err(Waiting::ResourceNotRegistered("gpu".into())),
            ),
            (
                &ready,
                vec![],
                json!({"fpga": "1"}),
                Err(Waiting::ResourceNotRegistered("fpga".into())),
            ),
            (&ready, vec![], json!({"fpga": "0", "cpu": "1"}), Ok(())),
            (&ready, vec![&other], json!({}), Ok(())),
        ];
        for (status, node_taints, requests, expected) in cases {
            let node: Node =
                serde_json::from_value(json!({"spec": {"taints": node_taints}, "status": status}))
                    .unwrap();
            let mut claim = NodeClaim::default();
            claim.spec.startup_taints = Some(
                serde_json::from_value(json!([{"key": "cni", "effect": "NoExecute"}])).unwrap(),
            );
            claim.spec.resources.requests = serde_json::from_value(requests).unwrap();
            assert_eq!(check(&node, &claim), expected);
        }
    }
}
