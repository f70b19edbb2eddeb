//! PodDisruptionBudgets: which pods may not be evicted, now or ever.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube_core::{ResourceExt, Selector, SelectorExt};

use crate::{Cluster, Key, pods};

/// The budgets of the cluster, as an eviction meets them.
#[derive(Clone, Debug, Default)]
pub struct PdbLimits(Vec<Pdb>);

#[derive(Clone, Debug)]
struct Pdb {
    key: Key,
    selector: Option<Selector>,
    disruptions_allowed: i32,
    /// No number of healthy pods will ever allow an eviction.
    never_allows: bool,
    /// Pods that are not ready may always be evicted.
    spares_unhealthy: bool,
}

/// Why the eviction API would refuse a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockedByPdb {
    By(Key),
    /// Kubernetes evicts no pod that several budgets select.
    BySeveral(Vec<Key>),
}

impl Cluster {
    pub fn pdb_limits(&self) -> PdbLimits {
        PdbLimits(self.pdbs.iter().map(|(key, budget)| Pdb::new(key, budget)).collect())
    }
}

impl PdbLimits {
    /// Whether an eviction would be refused now.
    pub fn blocks(&self, pod: &Pod, now: Timestamp) -> Option<BlockedByPdb> {
        self.blocked(pod, now, |budget| budget.disruptions_allowed == 0)
    }

    /// Whether an eviction would be refused at any time: such a pod need not be planned for.
    pub fn is_blocked_for_good(&self, pod: &Pod, now: Timestamp) -> bool {
        self.blocked(pod, now, |budget| budget.never_allows).is_some()
    }

    fn blocked(
        &self,
        pod: &Pod,
        now: Timestamp,
        refuses: fn(&Pdb) -> bool,
    ) -> Option<BlockedByPdb> {
        if !pods::is_evictable(pod, now) {
            return None;
        }
        let namespace = pod.namespace().unwrap_or_default();
        let matching: Vec<&Pdb> =
            self.0.iter().filter(|budget| budget.selects(&namespace, pod)).collect();
        match matching.as_slice() {
            [] => None,
            [only] if only.spares_unhealthy && is_unready(pod) => None,
            [only] => refuses(only).then(|| BlockedByPdb::By(only.key.clone())),
            several => {
                Some(BlockedByPdb::BySeveral(several.iter().map(|it| it.key.clone()).collect()))
            }
        }
    }
}

impl Pdb {
    fn new(key: &Key, budget: &Arc<PodDisruptionBudget>) -> Self {
        let spec = budget.spec.clone().unwrap_or_default();
        let is = |value: Option<&IntOrString>, number: Option<i32>, percent: &str| match value {
            Some(IntOrString::Int(value)) => Some(*value) == number,
            Some(IntOrString::String(value)) => value == percent,
            None => false,
        };
        Self {
            key: key.clone(),
            selector: spec.selector.as_ref().and_then(selector),
            disruptions_allowed: budget
                .status
                .as_ref()
                .and_then(|it| it.disruptions_allowed)
                .unwrap_or(0),
            never_allows: is(spec.max_unavailable.as_ref(), Some(0), "0%")
                || is(spec.min_available.as_ref(), None, "100%"),
            spares_unhealthy: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
        }
    }

    fn selects(&self, namespace: &str, pod: &Pod) -> bool {
        self.key.namespace == namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(pod.labels()))
    }
}

/// A selector that cannot be read selects nothing, as in the API server's own check.
fn selector(selector: &LabelSelector) -> Option<Selector> {
    Selector::try_from(selector.clone()).ok()
}

pub(crate) fn is_unready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "False")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn budget(name: &str, spec: Value, allowed: i32) -> PodDisruptionBudget {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "a"}});
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns"}, "spec": spec,
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
        .unwrap()
    }

    fn pod(label: &str, namespace: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": namespace, "labels": {"app": label}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_budget_blocks_the_pods_it_selects() {
        let one = || json!({"maxUnavailable": 1});
        let spares = json!({"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"});
        let by = || Some(BlockedByPdb::By(Key::namespaced("ns", "b")));
        let now = Timestamp::UNIX_EPOCH;
        let cases = vec![
            (budget("b", one(), 0), pod("a", "ns", "True"), by()),
            (budget("b", one(), 1), pod("a", "ns", "True"), None),
            (budget("b", one(), 0), pod("b", "ns", "True"), None),
            (budget("b", one(), 0), pod("a", "other", "True"), None),
            (budget("b", one(), 0), pod("a", "ns", "False"), by()),
            (budget("b", spares.clone(), 0), pod("a", "ns", "False"), None),
            (budget("b", spares, 0), pod("a", "ns", "True"), by()),
        ];
        for (budget, pod, expected) in cases {
            let mut cluster = Cluster::default();
            cluster.apply(budget.clone());
            assert_eq!(cluster.pdb_limits().blocks(&pod, now), expected, "{budget:?}");
        }
    }

    #[test]
    fn two_budgets_block_whatever_they_allow() {
        let mut cluster = Cluster::default();
        cluster.apply(budget("b", json!({"maxUnavailable": 5}), 5));
        cluster.apply(budget("c", json!({"maxUnavailable": 5}), 5));
        let blocked = cluster.pdb_limits().blocks(&pod("a", "ns", "True"), Timestamp::UNIX_EPOCH);
        let keys = ["b", "c"].map(|name| Key::namespaced("ns", name)).to_vec();
        assert_eq!(blocked, Some(BlockedByPdb::BySeveral(keys)));
    }

    #[test]
    fn some_budgets_can_never_allow_anything() {
        let cases = [
            (json!({"maxUnavailable": 0}), true),
            (json!({"maxUnavailable": "0%"}), true),
            (json!({"minAvailable": "100%"}), true),
            (json!({"maxUnavailable": 1}), false),
            (json!({"minAvailable": 100}), false),
            (json!({"minAvailable": "99%"}), false),
        ];
        for (spec, expected) in cases {
            let mut cluster = Cluster::default();
            cluster.apply(budget("b", spec.clone(), 0));
            let pod = pod("a", "ns", "True");
            let blocked = cluster.pdb_limits().is_blocked_for_good(&pod, Timestamp::UNIX_EPOCH);
            assert_eq!(blocked, expected, "{spec}");
        }
    }
}
