//! What a pod asks of the place it is put.

use super::super::fitness::{NodeRules, labels};
use crate::api::meta;
use k8s_openapi::api::core::v1 as core;
use kerf_model::pod::HostPort;
use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use kerf_model::selector::LabelTest;
use kerf_model::{Labels, Resources, Selector, Toleration};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub(super) namespace: String,
    pub(super) labels: Labels,
    pub(super) room: Room,
    /// CPU and memory with the amounts that scoring assumes for pods that ask for nothing.
    pub(super) assumed: [i64; 2],
    pub(super) nodes: NodeRules,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) ports: Vec<HostPort>,
    pub(super) spread: Vec<Spread>,
    pub(super) soft_spread: Vec<Spread>,
    /// The soft constraints are the scheduler's own and not the pod's.
    pub(super) spreads_by_default: bool,
    pub(super) affinity: Vec<PodTerm>,
    pub(super) anti_affinity: Vec<PodTerm>,
    /// Negative weights repel.
    pub(super) preferred: Vec<(i64, PodTerm)>,
}

/// Amounts by lane.
pub(super) type Room = Vec<i64>;

/// Names of the lanes: a fixed beginning, then whatever resources turn up.
#[derive(Debug)]
pub(super) struct Lanes(Vec<String>);

pub(super) const CPU_LANE: usize = 0;
pub(super) const MEMORY_LANE: usize = 1;
pub(super) const PODS_LANE: usize = 2;

impl Default for Lanes {
    fn default() -> Self {
        Self([CPU, MEMORY, PODS, EPHEMERAL_STORAGE].map(str::to_owned).into())
    }
}

impl Lanes {
    pub(super) fn room(&mut self, resources: &Resources) -> Room {
        let mut room = vec![0; self.0.len()];
        for (name, amount) in resources.iter() {
            let lane = self.0.iter().position(|known| known == name).unwrap_or_else(|| {
                self.0.push(name.to_owned());
                self.0.len() - 1
            });
            room.resize(room.len().max(lane + 1), 0);
            room[lane] = if lane == CPU_LANE { amount.millis() } else { amount.units() };
        }
        room
    }

    pub(super) fn name(&self, lane: usize) -> &str {
        &self.0[lane]
    }
}

/// A constraint on how pods are spread over domains.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    pub(super) key: String,
    pub(super) max_skew: i64,
    pub(super) min_domains: usize,
    pub(super) scope: Scope,
    pub(super) honors_affinity: bool,
    pub(super) honors_taints: bool,
}

/// A domain in which certain pods must be, or must not be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodTerm {
    pub(super) key: String,
    pub(super) scope: Scope,
}

/// Which pods are meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    namespaces: BTreeSet<String>,
    namespace_selector: Option<Selector>,
    pub(super) selector: Selector,
}

impl Scope {
    pub(super) fn covers(&self, namespace: &str, of_namespace: &Labels, labels: &Labels) -> bool {
        let there = self.namespaces.contains(namespace)
            || self.namespace_selector.as_ref().is_some_and(|s| s.selects(of_namespace));
        there && self.selector.selects(labels)
    }
}

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// For pods that ask for none: 100m and 200MB.
const ASSUMED: [i64; 2] = [100, 200 * 1024 * 1024];

impl Demand {
    /// `None`: the pod cannot be read; validation should not have let it in.
    pub(super) fn of(pod: &Value, lanes: &mut Lanes) -> Option<Self> {
        let spec = core::PodSpec::deserialize(&pod["spec"]).ok()?;
        let resources = kerf_model::pod::requests(&spec, None).ok()?;
        let room = lanes.room(&resources);
        let namespace = meta::namespace(pod).to_owned();
        let labels = labels(meta::field(pod, "labels"));
        let or = |lane: usize| if room[lane] == 0 { ASSUMED[lane] } else { room[lane] };
        let (mut spread, mut soft_spread) = (Vec::new(), Vec::new());
        for constraint in spec.topology_spread_constraints.iter().flatten() {
            let soft = constraint.when_unsatisfiable == "ScheduleAnyway";
            let into = if soft { &mut soft_spread } else { &mut spread };
            into.push(Spread::of(constraint, &namespace, &labels));
        }
        let affinity = spec.affinity.as_ref();
        let together = affinity.and_then(|affinity| affinity.pod_affinity.clone());
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.clone());
        let (together, apart) = (together.unwrap_or_default(), apart.unwrap_or_default());
        let terms = |list: Option<Vec<core::PodAffinityTerm>>| -> Vec<PodTerm> {
            list.iter().flatten().map(|term| PodTerm::of(term, &namespace)).collect()
        };
        let mut preferred = Vec::new();
        for (sign, list) in [
            (1, together.preferred_during_scheduling_ignored_during_execution),
            (-1, apart.preferred_during_scheduling_ignored_during_execution),
        ] {
            preferred.extend(list.iter().flatten().map(|weighted| {
                let term = PodTerm::of(&weighted.pod_affinity_term, &namespace);
                (sign * i64::from(weighted.weight), term)
            }));
        }
        Some(Self {
            assumed: [or(CPU_LANE), or(MEMORY_LANE)],
            room,
            nodes: NodeRules::of(&spec),
            tolerations: spec.tolerations.iter().flatten().map(Toleration::from).collect(),
            ports: host_ports(&spec),
            spread,
            soft_spread,
            spreads_by_default: false,
            affinity: terms(together.required_during_scheduling_ignored_during_execution),
            anti_affinity: terms(apart.required_during_scheduling_ignored_during_execution),
            preferred,
            namespace,
            labels,
        })
    }

    /// Spreads a pod that says nothing about it over hosts and zones, as kube-scheduler does with the pods of a service or
    /// of a set.
    pub(super) fn spread_by_default(&mut self, selector: &Selector) {
        if !self.spread.is_empty() || !self.soft_spread.is_empty() {
            return;
        }
        self.spreads_by_default = true;
        self.soft_spread = [(HOSTNAME, 3), (ZONE, 5)]
            .map(|(key, max_skew)| Spread {
                key: key.to_owned(),
                max_skew,
                min_domains: 1,
                scope: Scope {
                    namespaces: [self.namespace.clone()].into(),
                    namespace_selector: None,
                    selector: selector.clone(),
                },
                honors_affinity: true,
                honors_taints: false,
            })
            .into();
    }

    /// Whether other pods decide where this one may go.
    pub(super) fn minds_neighbours(&self) -> bool {
        !(self.spread.is_empty() && self.affinity.is_empty() && self.anti_affinity.is_empty())
    }
}

impl Spread {
    fn of(constraint: &core::TopologySpreadConstraint, namespace: &str, labels: &Labels) -> Self {
        let own = constraint.match_label_keys.iter().flatten();
        let own = own.filter_map(|key| Some(LabelTest::equals(key, labels.get(key)?)));
        Self {
            key: constraint.topology_key.clone(),
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint.min_domains.and_then(|n| n.try_into().ok()).unwrap_or(1),
            scope: Scope {
                namespaces: [namespace.to_owned()].into(),
                namespace_selector: None,
                selector: Selector::from_api(constraint.label_selector.as_ref()).and(own),
            },
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}

impl PodTerm {
    fn of(term: &core::PodAffinityTerm, namespace: &str) -> Self {
        let mut namespaces: BTreeSet<_> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        let namespace_selector =
            term.namespace_selector.as_ref().map(|selector| Selector::from_api(Some(selector)));
        let selector = Selector::from_api(term.label_selector.as_ref());
        Self {
            key: term.topology_key.clone(),
            scope: Scope { namespaces, namespace_selector, selector },
        }
    }
}

fn host_ports(spec: &core::PodSpec) -> Vec<HostPort> {
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(HostPort {
                ip: port.host_ip.clone().unwrap_or_default(),
                port: port.host_port.filter(|number| *number != 0)?,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            })
        })
        .collect()
}
