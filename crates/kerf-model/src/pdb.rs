//! PodDisruptionBudgets: which pods may not be evicted, now or ever.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::policy::v1::PodDisruptionBudget, apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{
    Labels, Selector,
    disruption::{Obstacle, PodDisruption},
};

/// The budgets of the cluster by namespace, as an eviction meets them.
#[derive(Clone, Debug, Default)]
pub struct PdbLimits(BTreeMap<String, Vec<Pdb>>);

#[derive(Clone, Debug)]
pub struct Pdb {
    pub namespace: String,
    pub name: String,
    pub selector: Selector,
    pub disruptions_allowed: i32,
    /// No number of healthy pods will ever allow an eviction.
    pub never_allows: bool,
    /// Pods that are not ready may always be evicted.
    pub spares_unhealthy: bool,
}

/// A pod, as budgets see it.
#[derive(Clone, Copy, Debug)]
pub struct Evicted<'a> {
    pub namespace: &'a str,
    pub labels: &'a Labels,
    pub disruption: &'a PodDisruption,
}

impl PdbLimits {
    /// Why an eviction would be refused now.
    pub fn blocks(&self, pod: Evicted<'_>, now: Timestamp) -> Option<Obstacle> {
        self.blocked(pod, now, |budget| budget.disruptions_allowed == 0)
    }

    /// Whether an eviction would be refused at any time: such a pod need not be planned for.
    pub fn is_blocked_for_good(&self, pod: Evicted<'_>, now: Timestamp) -> bool {
        self.blocked(pod, now, |budget| budget.never_allows).is_some()
    }

    fn blocked(
        &self,
        pod: Evicted<'_>,
        now: Timestamp,
        refuses: fn(&Pdb) -> bool,
    ) -> Option<Obstacle> {
        let budgets = self.0.get(pod.namespace)?;
        if !pod.disruption.evictable || pod.disruption.do_not_disrupt.holds(now) {
            return None;
        }
        let mut selecting = budgets.iter().filter(|budget| budget.selector.selects(pod.labels));
        let first = selecting.next()?;
        let mut several = selecting.map(Pdb::key).peekable();
        if several.peek().is_some() {
            let keys = std::iter::once(first.key()).chain(several);
            return Some(Obstacle::SeveralBudgets(keys.collect()));
        }
        let spared = first.spares_unhealthy && pod.disruption.unready;
        (!spared && refuses(first)).then(|| Obstacle::Budget(first.key()))
    }
}

impl FromIterator<Pdb> for PdbLimits {
    fn from_iter<T: IntoIterator<Item = Pdb>>(budgets: T) -> Self {
        let mut by_namespace: BTreeMap<String, Vec<Pdb>> = BTreeMap::new();
        for budget in budgets {
            by_namespace.entry(budget.namespace.clone()).or_default().push(budget);
        }
        Self(by_namespace)
    }
}

impl Pdb {
    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl From<&PodDisruptionBudget> for Pdb {
    fn from(budget: &PodDisruptionBudget) -> Self {
        let (metadata, spec) = (&budget.metadata, budget.spec.as_ref());
        let is = |value: Option<&IntOrString>, number: Option<i32>, percent: &str| match value {
            Some(IntOrString::Int(value)) => Some(*value) == number,
            Some(IntOrString::String(value)) => value == percent,
            None => false,
        };
        let max_unavailable = spec.and_then(|spec| spec.max_unavailable.as_ref());
        let min_available = spec.and_then(|spec| spec.min_available.as_ref());
        let policy = spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
        let allowed = budget.status.as_ref().and_then(|status| status.disruptions_allowed);
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            // One that cannot be read selects nothing, as in the API server's own check.
            selector: Selector::from_api(spec.and_then(|spec| spec.selector.as_ref())),
            disruptions_allowed: allowed.unwrap_or(0),
            never_allows: is(max_unavailable, Some(0), "0%") || is(min_available, None, "100%"),
            spares_unhealthy: policy == Some("AlwaysAllow"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disruption::DoNotDisrupt;
    use serde_json::{Value, json};

    fn budget(name: &str, spec: Value, allowed: i32) -> Pdb {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "a"}});
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns"},
            "spec": spec,
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
        .unwrap();
        Pdb::from(&budget)
    }

    /// A pod that may be evicted, as far as it is concerned.
    fn willing() -> PodDisruption {
        PodDisruption { active: true, evictable: true, ..PodDisruption::default() }
    }

    fn blocks(
        budgets: &[Pdb],
        namespace: &str,
        app: &str,
        pod: &PodDisruption,
    ) -> Option<Obstacle> {
        let limits: PdbLimits = budgets.iter().cloned().collect();
        let labels = [("app".to_owned(), app.to_owned())].into();
        limits
            .blocks(Evicted { namespace, labels: &labels, disruption: pod }, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_budget_blocks_what_it_selects_when_it_allows_nothing() {
        let by = || Some(Obstacle::Budget("ns/b".to_owned()));
        let one = || json!({"maxUnavailable": 1});
        let spares = json!({"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"});
        let unready = PodDisruption { unready: true, ..willing() };
        let unwilling = PodDisruption { evictable: false, ..willing() };
        let protected = PodDisruption { do_not_disrupt: DoNotDisrupt::Always, ..willing() };
        for (budget, namespace, app, pod, expected) in [
            (budget("b", one(), 0), "ns", "a", willing(), by()),
            (budget("b", one(), 1), "ns", "a", willing(), None),
            (budget("b", one(), 0), "ns", "b", willing(), None),
            (budget("b", one(), 0), "other", "a", willing(), None),
            (budget("b", one(), 0), "ns", "a", unready.clone(), by()),
            (budget("b", spares.clone(), 0), "ns", "a", unready, None),
            (budget("b", spares, 0), "ns", "a", willing(), by()),
            (budget("b", one(), 0), "ns", "a", unwilling, None),
            (budget("b", one(), 0), "ns", "a", protected, None),
        ] {
            let got = blocks(std::slice::from_ref(&budget), namespace, app, &pod);
            assert_eq!(got, expected, "{budget:?} {namespace} {app} {pod:?}");
        }
    }

    #[test]
    fn two_budgets_block_whatever_they_allow() {
        let five = |name| budget(name, json!({"maxUnavailable": 5}), 5);
        let keys = vec!["ns/b".to_owned(), "ns/c".to_owned()];
        assert_eq!(
            blocks(&[five("b"), five("c")], "ns", "a", &willing()),
            Some(Obstacle::SeveralBudgets(keys))
        );
    }

    #[test]
    fn some_budgets_can_never_allow_anything() {
        for (spec, expected) in [
            (json!({"maxUnavailable": 0}), true),
            (json!({"maxUnavailable": "0%"}), true),
            (json!({"minAvailable": "100%"}), true),
            (json!({"maxUnavailable": 1}), false),
            (json!({"minAvailable": 100}), false),
            (json!({"minAvailable": "99%"}), false),
        ] {
            assert_eq!(budget("b", spec.clone(), 0).never_allows, expected, "{spec}");
        }
    }

    #[test]
    fn a_budget_without_a_selector_selects_nothing_and_an_empty_one_everything() {
        for (selector, selects) in [(json!(null), false), (json!({}), true)] {
            let budget: PodDisruptionBudget = serde_json::from_value(
                json!({"metadata": {"name": "b", "namespace": "ns"}, "spec": {"selector": selector}}),
            )
            .unwrap();
            let blocked = blocks(&[Pdb::from(&budget)], "ns", "a", &willing()).is_some();
            assert_eq!(blocked, selects, "{selector}");
        }
    }
}
