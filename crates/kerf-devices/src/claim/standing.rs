//! What is allocated for a claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1 as api;

use super::{ClaimDefect, ClaimId, MalformedClaim, RequestName};
use crate::amount::Amount;
use crate::capacity::Amounts;
use crate::device::DeviceId;
use crate::reach::NodeSelector;

/// What a claim has, until it is deallocated. Every pod that names the claim uses the same devices, so all of them run where these
/// can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub devices: Vec<AllocatedDevice>,
    /// The nodes that can use the devices; none stands for all.
    pub nodes: Option<NodeSelector>,
    /// The uids of the pods that use it. None if something else than pods does.
    pub pods: Option<BTreeSet<Arc<str>>>,
}

/// A device that a request of a claim got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedDevice {
    pub request: RequestName,
    pub device: DeviceId,
    /// It is only watched: others can have it.
    pub admin_access: bool,
    /// What it got of the capacity of a device that several requests may have. None: the whole device.
    pub share: Option<Amounts>,
}

impl Standing {
    /// What the status of a claim says. None: nothing is allocated yet.
    pub fn read(claim: &api::ResourceClaim) -> Result<Option<Self>, MalformedClaim> {
        let Some(status) = &claim.status else { return Ok(None) };
        let Some(allocation) = &status.allocation else { return Ok(None) };
        let malformed = |defect| {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            let id = ClaimId { namespace: namespace.into(), name: name.into() };
            MalformedClaim { object: format!("the claim {id}"), defect }
        };
        let results = allocation.devices.iter().flat_map(|one| one.results.iter().flatten());
        let devices = results.map(AllocatedDevice::read).collect::<Result<_, _>>();
        let nodes = allocation.node_selector.as_ref().map(NodeSelector::try_from).transpose();
        let consumers = status.reserved_for.iter().flatten().map(|consumer| {
            let is_pod = consumer.resource == "pods"
                && consumer.api_group.as_deref().unwrap_or_default().is_empty();
            is_pod.then(|| consumer.uid.as_str().into())
        });
        Ok(Some(Self {
            devices: devices.map_err(malformed)?,
            nodes: nodes.map_err(|one| malformed(one.into()))?,
            pods: consumers.collect(),
        }))
    }

    /// Whether a pod on this node could use the devices.
    pub fn can_be_used_on(&self, node: &str, labels: &BTreeMap<String, String>) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.matches(node, labels))
    }

    /// Whether its devices become free when these pods are gone: some pods use it, and nothing else does.
    pub fn ends_with(&self, pods: &BTreeSet<Arc<str>>) -> bool {
        self.pods.as_ref().is_some_and(|users| !users.is_empty() && users.is_subset(pods))
    }
}

impl AllocatedDevice {
    fn read(result: &api::DeviceRequestAllocationResult) -> Result<Self, ClaimDefect> {
        let (request, alternative) = match result.request.split_once('/') {
            Some((request, alternative)) => (request, Some(alternative.into())),
            None => (result.request.as_str(), None),
        };
        let mut consumed = Amounts::new();
        for (name, amount) in result.consumed_capacity.iter().flatten() {
            let amount = Amount::parse(&amount.0).map_err(|source| ClaimDefect::Consumed {
                device: result.device.clone(),
                source,
            })?;
            consumed.insert(name.as_str().into(), amount);
        }
        let is_shared = result.share_id.is_some() || result.consumed_capacity.is_some();
        Ok(Self {
            request: RequestName { request: request.into(), alternative },
            device: DeviceId {
                driver: result.driver.as_str().into(),
                pool: result.pool.as_str().into(),
                device: result.device.as_str().into(),
            },
            admin_access: result.admin_access == Some(true),
            share: is_shared.then_some(consumed),
        })
    }
}
