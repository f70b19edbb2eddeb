//! A plan as it is shown. The field names are what scripts rely on; docs/plan.md lists them.

use std::{collections::BTreeMap, sync::Arc};

use kerf_cluster::{
    Cluster,
    validation::{InvalidPod, PodProblem},
};
use kerf_disruption::Replacement;
use kerf_model::{KnownLabels, Pod, Price, Snapshot};
use kerf_scheduler::{Plan, PlannedClaim, PodFailure, PoolRefusal, Refusal};
use serde::Serialize;

use super::table::count;
use crate::output::Answer;

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(super) summary: Summary,
    /// Nodes to launch.
    pub(super) claims: Vec<Claim>,
    /// Pods that go to what is there.
    pub(super) placements: Vec<Placement>,
    pub(super) unschedulable: Vec<Unschedulable>,
    /// Room that is kept for pods to come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) buffers: Vec<Buffer>,
    /// Pools that launch nothing at all.
    pub(super) idle_pools: Vec<IdlePool>,
    pub(super) notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// To place.
    pub(super) pods: usize,
    pub(super) on_new_claims: usize,
    pub(super) on_existing: usize,
    pub(super) unschedulable: usize,
    pub(super) new_claims: usize,
    /// Of all new claims, each bought as cheaply as it can be.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(super) price_per_hour: Price,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Claim {
    pub(crate) pool: String,
    pub(crate) pods: Vec<String>,
    /// Virtual pods of buffers that it has room for beside its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) virtual_pods: Option<usize>,
    pub(crate) cheapest: Option<Cheapest>,
    /// Any of these will do; the cheapest first.
    pub(crate) instance_types: Vec<String>,
    /// Of the pods and of the daemons that come with the node.
    pub(crate) requests: BTreeMap<String, String>,
    pub(crate) min_values_relaxed: bool,
}

/// The cheapest way to buy a claim.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cheapest {
    pub(crate) instance_type: String,
    pub(crate) zone: Option<String>,
    pub(crate) capacity_type: Option<String>,
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) price_per_hour: Price,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Placement {
    /// `None` for a claim whose node has yet to appear.
    pub(super) node: Option<String>,
    pub(super) claim: Option<String>,
    pub(super) pods: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Unschedulable {
    pub(super) pod: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Where `reason` is `Pools`: what each of them has against the pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) pools: Vec<Refused>,
}

/// How the room of a buffer stands, in virtual pods.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Buffer {
    /// Namespace and name.
    #[serde(rename = "buffer")]
    pub(super) key: String,
    /// On nodes that are there.
    pub(super) ready: usize,
    /// On nodes that start or are to be launched.
    pub(super) coming: usize,
    /// Without room.
    pub(super) missing: usize,
    /// By node where there is room.
    pub(super) nodes: BTreeMap<String, usize>,
    /// Why there is no room, or why it is not known what for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refused {
    pub(crate) pool: String,
    pub(crate) constraint: &'static str,
    pub(crate) message: String,
    /// The requirements and amounts that it was found with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct IdlePool {
    pub(super) pool: String,
    pub(super) reason: String,
}

impl Answer for Report {
    const KIND: &'static str = "Plan";
}

impl Report {
    pub(super) fn new(snapshot: &Snapshot, plan: &Plan) -> Self {
        let on_new_claims = plan.claims.iter().map(|claim| claim.pods.len()).sum();
        let on_existing = plan.placements.iter().map(|placement| placement.pods.len()).sum();
        let unusable = plan.unusable_pools.iter().map(|PoolRefusal { pool, reason }| IdlePool {
            pool: pool.clone(),
            reason: reason.to_string(),
        });
        let idle = snapshot.pools.iter().filter_map(|(pool, view)| {
            Some(IdlePool { pool: pool.clone(), reason: view.idle.as_ref()?.to_string() })
        });
        let placements = plan.placements.iter().filter(|placement| !placement.pods.is_empty());
        Self {
            summary: Summary {
                pods: snapshot.pods.len(),
                on_new_claims,
                on_existing,
                unschedulable: plan.failures.len(),
                new_claims: plan.claims.len(),
                price_per_hour: plan.price(),
            },
            claims: plan.claims.iter().map(|claim| Claim::new(claim, &snapshot.labels)).collect(),
            placements: placements
                .map(|placement| Placement {
                    node: placement.node.exists.then(|| placement.node.name.clone()),
                    claim: placement.node.claim.clone(),
                    pods: keys(&placement.pods),
                })
                .collect(),
            unschedulable: plan.failures.iter().map(Unschedulable::new).collect(),
            buffers: Vec::new(),
            idle_pools: unusable.chain(idle).collect(),
            notes: Vec::new(),
        }
    }

    /// Leaves out what has no pod of this namespace. The summary stays that of the whole plan.
    pub(super) fn keep_namespace(&mut self, namespace: &str) {
        let of_namespace = |pod: &String| pod.split('/').next() == Some(namespace);
        let some = |pods: &[String]| pods.iter().any(of_namespace);
        self.claims.retain(|claim| some(&claim.pods));
        self.placements.retain(|placement| some(&placement.pods));
        self.unschedulable.retain(|one| of_namespace(&one.pod));
        self.buffers.retain(|one| of_namespace(&one.key));
        let pods = count(self.summary.pods, "pod");
        self.notes.push(format!(
            "the plan is for {pods} of all namespaces; only what concerns namespace {namespace} is shown"
        ));
    }

    /// How the plan leaves the buffers.
    pub(super) fn add_buffers(&mut self, cluster: &Cluster, snapshot: &Snapshot, plan: &Plan) {
        if !cluster.keeps_buffers() {
            return;
        }
        let mut rooms = plan.rooms();
        for (key, buffer) in cluster.buffers().iter() {
            let room = rooms.remove(&(key.namespace.clone(), key.name.clone())).unwrap_or_default();
            let unresolved = cluster.resolve_readable(buffer, &snapshot.labels).err();
            let message = unresolved.map(|why| why.to_string());
            let is_of_buffer = |pod: &&Arc<Pod>| {
                pod.namespace == key.namespace && pod.buffer.as_deref() == Some(key.name.as_str())
            };
            let nodes = plan.buffers.placements.iter().filter_map(|placement| {
                let pods = placement.pods.iter().filter(is_of_buffer).count();
                (pods > 0).then(|| (placement.node.name.clone(), pods))
            });
            self.buffers.push(Buffer {
                key: key.to_string(),
                ready: room.ready,
                coming: room.coming,
                missing: room.missing,
                nodes: nodes.collect(),
                message: message.or_else(|| room.refusal.map(|refusal| refusal.to_string())),
            });
        }
    }

    /// Pods that the plan was made without.
    pub(super) fn add_invalid(&mut self, pods: &[InvalidPod]) {
        self.summary.pods += pods.len();
        self.summary.unschedulable += pods.len();
        self.unschedulable.extend(pods.iter().map(Unschedulable::invalid));
    }
}

impl Claim {
    pub(crate) fn of(replacement: &Replacement, known: &KnownLabels) -> Self {
        match replacement {
            Replacement::Planned(claim) => Self::new(claim, known),
            Replacement::OfTemplate(pool) => Self {
                pool: pool.name.clone(),
                pods: Vec::new(),
                virtual_pods: None,
                cheapest: None,
                instance_types: Vec::new(),
                requests: BTreeMap::new(),
                min_values_relaxed: false,
            },
        }
    }

    pub(crate) fn new(claim: &PlannedClaim, known: &KnownLabels) -> Self {
        let cheapest = claim.instance_types.first().and_then(|instance_type| {
            let offering = instance_type.cheapest(&claim.requirements, known)?;
            Some(Cheapest {
                instance_type: instance_type.name().to_owned(),
                zone: offering.zone().map(str::to_owned),
                capacity_type: offering.capacity_type().map(str::to_owned),
                price_per_hour: offering.price,
            })
        });
        let types = claim.instance_types.iter();
        let requests = claim.requests.iter();
        Self {
            pool: claim.pool.name.clone(),
            pods: keys(&claim.pods),
            virtual_pods: Some(claim.virtual_pods.len()).filter(|pods| *pods > 0),
            cheapest,
            instance_types: types.map(|instance_type| instance_type.name().to_owned()).collect(),
            requests: requests
                .map(|(name, amount)| (name.to_owned(), amount.to_string()))
                .collect(),
            min_values_relaxed: claim.min_values_relaxed,
        }
    }
}

impl Claim {
    /// What it may become, in a line.
    pub(crate) fn offer(&self) -> String {
        let types = count(self.instance_types.len(), "type");
        let cheapest = self.cheapest.as_ref().map(|it| {
            let place = [&it.capacity_type, &it.zone].map(|part| part.as_deref());
            let place: Vec<_> = place.into_iter().flatten().collect();
            format!(", from {} ({}, {})", it.price_per_hour, it.instance_type, place.join(" in "))
        });
        format!("NodePool {}: one of {types}{}", self.pool, cheapest.unwrap_or_default())
    }
}

impl Unschedulable {
    fn new(failure: &PodFailure) -> Self {
        let pools = match &failure.refusal {
            Refusal::Pools(pools) => pools.iter().map(Refused::new).collect(),
            _ => Vec::new(),
        };
        Self {
            pod: failure.pod.key(),
            reason: failure.refusal.name(),
            message: failure.refusal.to_string(),
            pools,
        }
    }

    /// Named after the first of its problems.
    fn invalid(pod: &InvalidPod) -> Self {
        Self {
            pod: pod.pod.to_string(),
            reason: pod.problems.first().map_or("Invalid", PodProblem::name),
            message: pod.to_string(),
            pools: Vec::new(),
        }
    }
}

impl Refused {
    pub(crate) fn new(refusal: &PoolRefusal) -> Self {
        Self {
            pool: refusal.pool.clone(),
            constraint: refusal.reason.name(),
            message: refusal.reason.to_string(),
            details: refusal.reason.details(),
        }
    }
}

fn keys(pods: &[Arc<Pod>]) -> Vec<String> {
    let mut keys: Vec<_> = pods.iter().map(|pod| pod.key()).collect();
    keys.sort();
    keys
}
