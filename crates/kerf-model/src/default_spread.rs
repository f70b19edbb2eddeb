//! Default spread constraints of a cluster, for pods that have none.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use crate::labels::{KnownLabels, Labels};
use crate::pod::{NodePolicy, Pod, SpreadConstraint, WhenUnsatisfiable};
use crate::selector::{LabelTest, Selector};

/// A spread constraint without a selector: that comes from what the pod belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultConstraint {
    pub topology_key: String,
    pub max_skew: u32,
    pub when_unsatisfiable: WhenUnsatisfiable,
    pub min_domains: Option<u32>,
    pub node_affinity_policy: NodePolicy,
    pub node_taints_policy: NodePolicy,
}

/// What pods belong to.
#[derive(Clone, Debug, Default)]
pub struct Workloads {
    /// Selectors of services by namespace, in the order of the services' names.
    pub services: BTreeMap<String, Vec<Option<Labels>>>,
    /// By the uid of the controller.
    pub controllers: BTreeMap<String, ControllerSelector>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerSelector {
    /// A replication controller's labels take the place of what services say.
    ReplicationController(Labels),
    /// A replica set or stateful set selects in addition.
    Set(Selector),
}

impl DefaultConstraint {
    /// What a default may not have, such as a selector, is not looked at.
    pub fn from_api(constraint: &TopologySpreadConstraint, labels: &KnownLabels) -> Self {
        let read = SpreadConstraint::from_api(constraint, &Labels::new(), labels);
        Self {
            topology_key: read.topology_key,
            max_skew: read.max_skew,
            when_unsatisfiable: read.when_unsatisfiable,
            min_domains: read.min_domains,
            node_affinity_policy: read.node_affinity_policy,
            node_taints_policy: read.node_taints_policy,
        }
    }
}

/// Gives the pod the cluster's constraints, all or none: one of its own keeps them all away, and a pod
/// that belongs to nothing would be spread over everything, so it is left alone.
pub fn add_default_spread(pod: &mut Pod, defaults: &[DefaultConstraint], workloads: &Workloads) {
    if defaults.is_empty() || !pod.constraints.spread.is_empty() {
        return;
    }
    let Some(selector) = deduced_selector(pod, workloads) else { return };
    let constraints = Arc::make_mut(&mut pod.constraints);
    constraints.spread = defaults
        .iter()
        .map(|default| SpreadConstraint {
            topology_key: default.topology_key.clone(),
            max_skew: default.max_skew,
            when_unsatisfiable: default.when_unsatisfiable,
            selector: selector.clone(),
            min_domains: default.min_domains,
            node_affinity_policy: default.node_affinity_policy,
            node_taints_policy: default.node_taints_policy,
        })
        .collect();
}

/// Services that select the pod, then its controller, as the Kubernetes scheduler deduces it.
fn deduced_selector(pod: &Pod, workloads: &Workloads) -> Option<Selector> {
    let mut labels = Labels::new();
    let services = workloads.services.get(&pod.namespace).into_iter().flatten();
    for selector in services.flatten() {
        if selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value)) {
            labels.extend(selector.clone());
        }
    }
    let controller = pod
        .owners
        .iter()
        .find(|owner| owner.controller)
        .and_then(|owner| workloads.controllers.get(&owner.uid));
    let mut tests = Vec::new();
    match controller {
        Some(ControllerSelector::ReplicationController(own)) => labels.extend(own.clone()),
        Some(ControllerSelector::Set(Selector::All(own))) => tests.extend(own.iter().cloned()),
        Some(ControllerSelector::Set(Selector::Nothing)) | None => {}
    }
    tests.extend(labels.iter().map(|(key, value)| LabelTest::equals(key, value)));
    (!tests.is_empty()).then(|| Selector::everything().and(tests))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::labels_of as labels;
    use crate::pod::{Constraints, Owner};

    fn default() -> DefaultConstraint {
        DefaultConstraint {
            topology_key: "zone".to_owned(),
            max_skew: 3,
            when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway,
            min_domains: Some(2),
            node_affinity_policy: NodePolicy::Honor,
            node_taints_policy: NodePolicy::Honor,
        }
    }

    fn pod(text: &str, controller: Option<&str>) -> Pod {
        let owner = |uid: &str| Owner {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
            controller: true,
        };
        Pod {
            namespace: "default".to_owned(),
            labels: labels(text),
            owners: controller.map(owner).into_iter().collect(),
            ..Pod::default()
        }
    }

    fn workloads(
        services: &[Option<&str>],
        controllers: &[(&str, ControllerSelector)],
    ) -> Workloads {
        let services = services.iter().map(|selector| selector.map(labels)).collect();
        Workloads {
            services: [("default".to_owned(), services)].into(),
            controllers: controllers
                .iter()
                .map(|(uid, selector)| ((*uid).to_owned(), selector.clone()))
                .collect(),
        }
    }

    fn selector_of(pod: &Pod, workloads: &Workloads) -> Option<Selector> {
        let spread = spread(pod, workloads);
        spread.constraints.spread.first().map(|constraint| constraint.selector.clone())
    }

    fn spread(pod: &Pod, workloads: &Workloads) -> Pod {
        let mut spread = pod.clone();
        add_default_spread(&mut spread, &[default()], workloads);
        spread
    }

    #[test]
    fn selectors_come_from_services_and_controllers() {
        use ControllerSelector::{ReplicationController, Set};
        let own = pod("app=web,tier=x", None);
        let owned = pod("app=web,tier=x", Some("rs"));
        let selector = |text: &str| Some(Selector::from_labels(&labels(text)));
        let set = |text: &str| [("rs", Set(Selector::from_labels(&labels(text))))];
        for (pod, workloads, expect) in [
            (&own, workloads(&[], &[]), None),
            (&own, workloads(&[None], &[]), None),
            (&own, workloads(&[Some("")], &[]), None),
            (&own, workloads(&[Some("app=web")], &[]), selector("app=web")),
            (&own, workloads(&[Some("app=other")], &[]), None),
            (&own, workloads(&[Some("app=web"), Some("tier=x")], &[]), selector("app=web,tier=x")),
            (&own, workloads(&[], &set("app=web")), None),
            (&owned, workloads(&[], &set("app=web")), selector("app=web")),
            (&owned, workloads(&[Some("tier=x")], &set("app=web")), selector("app=web,tier=x")),
            (&owned, workloads(&[], &[]), None),
            (&owned, workloads(&[], &[("rs", Set(Selector::Nothing))]), None),
            (
                &owned,
                workloads(&[Some("app=web")], &[("rs", ReplicationController(labels("app=rc")))]),
                selector("app=rc"),
            ),
        ] {
            assert_eq!(selector_of(pod, &workloads), expect, "{workloads:?}");
        }
    }

    #[test]
    fn other_namespaces_do_not_count() {
        let mut elsewhere = workloads(&[Some("app=web")], &[]);
        let services = elsewhere.services.remove("default").unwrap();
        elsewhere.services.insert("other".to_owned(), services);
        assert_eq!(selector_of(&pod("app=web", None), &elsewhere), None);
    }

    #[test]
    fn every_field_is_carried_over_and_the_original_stays() {
        let original = pod("app=web", None);
        let spread = spread(&original, &workloads(&[Some("app=web")], &[]));
        assert!(original.constraints.spread.is_empty());
        let constraint = &spread.constraints.spread[0];
        assert_eq!((constraint.max_skew, constraint.min_domains), (3, Some(2)));
        assert_eq!(constraint.when_unsatisfiable, WhenUnsatisfiable::ScheduleAnyway);
        assert_eq!(constraint.node_taints_policy, NodePolicy::Honor);
    }

    #[test]
    fn own_constraints_keep_the_defaults_away() {
        let services = workloads(&[Some("app=web")], &[]);
        let given = spread(&pod("app=web", None), &services);
        let own = SpreadConstraint { max_skew: 9, ..given.constraints.spread[0].clone() };
        let constraints = Arc::new(Constraints { spread: vec![own], ..Constraints::default() });
        let kept = spread(&Pod { constraints, ..pod("app=web", None) }, &services);
        assert_eq!(kept.constraints.spread[0].max_skew, 9);
        assert_eq!(kept.constraints.spread.len(), 1);
    }
}
