//! Where a pod can go for the sake of its volumes, and what that means for them.

use super::super::desk::{CLAIMS, Desk, Refusal, VOLUMES};
use super::super::fitness::{NodeFacts, NodeRules};
use super::super::volume_binding::{
    SELECTED_NODE, claims_of, class_of, is_for, is_made_on_demand, reserve, waits_for_pod, would_do,
};
use crate::api::{Object, meta};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

const ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";
const NOT_BOUND: &str = "pod has unbound immediate PersistentVolumeClaims";

#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// Where the volumes are that it has already.
    bound: Vec<NodeRules>,
    open: Vec<Open>,
}

/// A claim that gets its volume where the pod goes.
#[derive(Debug)]
struct Open {
    claim: Arc<Object>,
    /// Volumes that nobody has, and where each is.
    free: Vec<(Arc<Object>, NodeRules)>,
    /// Where one would be made.
    on_demand: Option<NodeRules>,
}

impl Volumes {
    /// What a pod's volumes ask for, or why it can go nowhere.
    pub(super) fn of(pod: &Value, desk: &Desk) -> Result<Self, String> {
        let mut volumes = Self::default();
        for key in claims_of(pod) {
            let name = key.rsplit('/').next().unwrap_or_default();
            let Some(claim) = desk.get(CLAIMS, &key) else {
                return Err(format!("persistentvolumeclaim \"{name}\" not found"));
            };
            if meta::is_deleting(&claim.value) {
                return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
            }
            let named = meta::text(&claim.value, &["spec", "volumeName"]);
            if let Some(volume) = desk.get(VOLUMES, named) {
                volumes.bound.push(place_of(&volume.value));
                continue;
            }
            let class = class_of(&claim.value, desk);
            if !waits_for_pod(class.as_ref()) {
                return Err(NOT_BOUND.to_owned());
            }
            let all = desk.list(VOLUMES, "").into_iter();
            let free = all.filter(|volume| {
                let value = &volume.value;
                is_for(value, &claim.value) || would_do(value, &claim.value)
            });
            let free = free.map(|volume| (volume.clone(), place_of(&volume.value))).collect();
            let class = class.filter(|class| is_made_on_demand(class));
            let on_demand = class.map(|class| NodeRules::of_topologies(&class.value));
            volumes.open.push(Open { claim, free, on_demand });
        }
        Ok(volumes)
    }

    pub(super) fn judge(&self, node: &NodeFacts) -> Option<&'static str> {
        if !self.bound.iter().all(|place| place.allow(node)) {
            return Some(ELSEWHERE);
        }
        self.plan(node).is_none().then_some(NONE_TO_BIND)
    }

    /// For each open claim the volume it gets on this node; none where one is made.
    fn plan(&self, node: &NodeFacts) -> Option<Vec<Option<&Arc<Object>>>> {
        let mut taken = BTreeSet::new();
        let choose = |open| {
            let Open { free, on_demand, .. }: &Open = open;
            let found = free.iter().find(|(volume, place)| {
                place.allow(node) && !taken.contains(meta::name(&volume.value))
            });
            if let Some((volume, _)) = found {
                taken.insert(meta::name(&volume.value));
                return Some(Some(volume));
            }
            on_demand.as_ref().filter(|place| place.allow(node)).map(|_| None)
        };
        self.open.iter().map(choose).collect()
    }

    /// Has the open claims bound for this node.
    pub(super) fn settle(&self, node: &NodeFacts, desk: &Desk) -> Result<(), Refusal> {
        let plan = self.plan(node).unwrap_or_default();
        for (open, volume) in self.open.iter().zip(plan) {
            if let Some(volume) = volume {
                reserve(&open.claim.value, volume, desk)?;
                continue;
            }
            let mut claim = open.claim.value.clone();
            let annotations = meta::object_mut(&mut claim["metadata"], "annotations");
            annotations.insert(SELECTED_NODE.into(), node.name.clone().into());
            desk.update(CLAIMS, &claim)?;
        }
        Ok(())
    }
}

fn place_of(volume: &Value) -> NodeRules {
    NodeRules::of_selector(meta::at(volume, &["spec", "nodeAffinity", "required"]))
}
