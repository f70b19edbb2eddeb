//! From pods to classes.

use std::sync::Arc;

use kerf_model::labels::{HOSTNAME, Labels};
use kerf_model::pod::{
    Constraints, NodePolicy, Phase, PodTerm, SpreadConstraint, WhenUnsatisfiable,
};
use kerf_model::{Pod, Selector};

use super::Engine;
use crate::algebra::{PodRequirements, id};
use crate::class::{Base, Class, ClassId, ClassKey, ClassRun, Owned, Spec};
use crate::options::PreferencePolicy;
use crate::refusal::{Refusal, TopologyKind};
use crate::relaxation::Steps;
use crate::topology::{Identity, Namespaces, NodeFilter, Side, TopologyKey};

impl<'s> Engine<'s> {
    pub(super) fn class_of(&mut self, pod: &'s Pod) -> Result<ClassId, Refusal> {
        let key = ClassKey {
            pod_labels: self.topology.pod_labels(&pod.namespace, &pod.labels),
            requests: self.lanes.request(&pod.requests),
            constraints: Arc::clone(&pod.constraints),
            volumes: pod.volumes.iter().map(|volume| volume.claim.clone()).collect(),
            unsettled: pod.phase == Phase::Pending || self.is_on_deleting_node(pod),
        };
        if let Some(known) = self.class_ids.get(&key) {
            return Ok(*known);
        }
        pod.constraints.check_size()?;
        let volume_requirements = self.snapshot.volumes.alternatives(pod)?;
        let volume_requirements =
            volume_requirements.iter().map(|term| self.algebra.pod_requirements(term)).collect();
        let attachments = self.snapshot.volumes.attachments(pod);
        let attachments = attachments
            .into_iter()
            .map(|(driver, claims)| (driver.to_owned(), claims.into_iter().collect()))
            .collect();
        Ok(self.add_class(key, volume_requirements, attachments))
    }

    pub(super) fn is_on_deleting_node(&self, pod: &Pod) -> bool {
        pod.node_name.as_ref().is_some_and(|name| self.deleting_nodes.contains(name.as_str()))
    }

    /// The class with one constraint less, or with so many steps taken where fewer are known not to help.
    pub(super) fn relaxed(&mut self, class: ClassId, until: u32) -> Option<ClassId> {
        let spec = Arc::clone(&self.classes[class.index()].spec);
        let last = spec.base.steps.count();
        if spec.step == last {
            return None;
        }
        let step = until.clamp(spec.step + 1, last);
        let key = (spec.base.class, step);
        if let Some(known) = self.relaxed_ids.get(&key) {
            return Some(*known);
        }
        let relaxed = self.add_step(Arc::clone(&spec.base), step);
        self.relaxed_ids.insert(key, relaxed);
        Some(relaxed)
    }

    fn add_class(
        &mut self,
        key: ClassKey,
        volume_requirements: Vec<PodRequirements>,
        attachments: Vec<(String, Vec<String>)>,
    ) -> ClassId {
        let constraints = Arc::clone(&key.constraints);
        let steps = Steps::new(&constraints, self.options.preferences, self.soft_taints);
        let namespace = self.topology.namespace(key.pod_labels);
        let owned = self.owned_groups(&key, &steps);
        let inverse = constraints
            .anti_affinity
            .required
            .iter()
            .map(|term| {
                let identity = self.inverse_identity(namespace, term);
                self.group(identity)
            })
            .collect();
        let class = ClassId(id(self.classes.len()));
        self.class_ids.insert(key.clone(), class);
        let self_anti_affinity = self.self_anti_affinity_groups(&owned);
        let base = Base {
            class,
            key,
            steps,
            volume_requirements,
            attachments,
            owned,
            self_anti_affinity,
            inverse,
        };
        self.add_step(Arc::new(base), 0)
    }

    fn add_step(&mut self, base: Arc<Base>, step: u32) -> ClassId {
        let constraints = &base.key.constraints;
        let selector = &constraints.node_selector;
        let strict = match constraints.required_terms.get(base.steps.term(step)) {
            Some(term) => &selector.merged(term),
            None => selector,
        };
        let preferred = base.steps.preferred(step).map(|at| &constraints.preferred_terms[at].term);
        let requirements =
            preferred.map(|term| self.algebra.pod_requirements(&strict.merged(term)));
        let strict_requirements = self.algebra.pod_requirements(strict);
        let requirements = requirements.unwrap_or_else(|| strict_requirements.clone());
        let class = ClassId(id(self.classes.len()));
        self.classes.push(Class {
            spec: Arc::new(Spec { base, step, requirements, strict_requirements }),
            barred_nodes: None,
            run: ClassRun::default(),
        });
        class
    }

    fn owned_groups(&mut self, key: &ClassKey, steps: &Steps) -> Vec<Owned> {
        let namespace = self.topology.namespace(key.pod_labels);
        let constraints = &key.constraints;
        let respect = self.options.preferences == PreferencePolicy::Respect;
        let mut identities = Vec::new();
        let filter = self.own_nodes(constraints);
        for (at, spread) in constraints.spread.iter().enumerate() {
            if respect || spread.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule {
                let identity = self.spread_identity(namespace, spread, &filter);
                identities.push((identity, steps.spread(at)));
            }
        }
        for (kind, terms) in [
            (TopologyKind::Affinity, &constraints.affinity),
            (TopologyKind::AntiAffinity, &constraints.anti_affinity),
        ] {
            for term in &terms.required {
                identities.push((self.term_identity(namespace, term, kind, Side::Selected), None));
            }
            for (at, weighted) in terms.preferred.iter().enumerate().filter(|_| respect) {
                let given_up = match kind {
                    TopologyKind::Affinity => steps.affinity(at),
                    _ => steps.anti_affinity(at),
                };
                let identity = self.term_identity(namespace, &weighted.term, kind, Side::Selected);
                identities.push((identity, given_up));
            }
        }
        let owned = identities.into_iter().map(|(identity, given_up)| {
            let group = self.group(identity);
            let selects_self = self.topology.selects(group, key.pod_labels);
            Owned { group, selects_self, given_up }
        });
        owned.collect()
    }

    /// The nodes that the pod may use and the taints that it tolerates, shared by all its spread constraints. As for
    /// the Kubernetes scheduler these are those of all its required terms, whichever is tried at the moment.
    fn own_nodes(&mut self, constraints: &Constraints) -> NodeFilter {
        if constraints.spread.is_empty() {
            return NodeFilter::default();
        }
        let selector = &constraints.node_selector;
        let terms = constraints.required_terms.iter().map(|term| selector.merged(term));
        let mut affinity: Vec<_> = terms.map(|term| self.algebra.pod_requirements(&term)).collect();
        if constraints.required_terms.is_empty() && !selector.is_empty() {
            affinity.push(self.algebra.pod_requirements(selector));
        }
        let tolerations = Some(constraints.tolerations.as_slice().into());
        NodeFilter { affinity: affinity.into(), tolerations }
    }

    fn spread_identity(
        &mut self,
        namespace: &str,
        spread: &SpreadConstraint,
        own: &NodeFilter,
    ) -> Identity {
        let mut filter = NodeFilter::default();
        if spread.node_affinity_policy == NodePolicy::Honor {
            filter.affinity = Arc::clone(&own.affinity);
        }
        if spread.node_taints_policy == NodePolicy::Honor {
            filter.tolerations.clone_from(&own.tolerations);
        }
        Identity {
            side: Side::Selected,
            kind: TopologyKind::Spread,
            topology_key: self.topology_key(&spread.topology_key),
            namespaces: Namespaces::Only([namespace.to_owned()].into()),
            selector: spread.selector.clone(),
            max_skew: spread.max_skew,
            min_domains: spread.min_domains,
            filter,
        }
    }

    pub(super) fn inverse_identity(&mut self, namespace: &str, term: &PodTerm) -> Identity {
        self.term_identity(namespace, term, TopologyKind::AntiAffinity, Side::Inverse)
    }

    fn term_identity(
        &mut self,
        namespace: &str,
        term: &PodTerm,
        kind: TopologyKind,
        side: Side,
    ) -> Identity {
        Identity {
            side,
            kind,
            topology_key: self.topology_key(&term.topology_key),
            namespaces: self.namespaces_of(namespace, term),
            selector: term.selector.clone(),
            max_skew: 0,
            min_domains: None,
            filter: NodeFilter::default(),
        }
    }

    fn topology_key(&mut self, topology_key: &str) -> TopologyKey {
        if topology_key == HOSTNAME {
            TopologyKey::Hostname
        } else {
            TopologyKey::Label(self.algebra.key(topology_key))
        }
    }

    fn namespaces_of(&self, own: &str, term: &PodTerm) -> Namespaces {
        match &term.namespace_selector {
            None if term.namespaces.is_empty() => Namespaces::Only([own.to_owned()].into()),
            None => Namespaces::Only(term.namespaces.iter().cloned().collect()),
            Some(selector) if *selector == Selector::everything() => Namespaces::All,
            Some(selector) => {
                let selected = |entry: &(&String, &Labels)| selector.selects(entry.1);
                let names = self.snapshot.namespaces.iter().filter(selected).map(|(name, _)| name);
                Namespaces::Only(names.chain(&term.namespaces).cloned().collect())
            }
        }
    }
}
