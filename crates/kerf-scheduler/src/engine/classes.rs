//! From pods to classes.

use std::sync::Arc;

use kerf_model::labels::{HOSTNAME, Labels};
use kerf_model::pod::{
    Constraints, NodePolicy, Phase, PodTerm, SpreadConstraint, WhenUnsatisfiable,
};
use kerf_model::volume::VolumeError;
use kerf_model::{Pod, Selector};

use super::Engine;
use crate::algebra::id;
use crate::class::{self, Class, ClassId, ClassKey, ClassRun, Relaxed, Spec};
use crate::options::PreferencePolicy;
use crate::refusal::TopologyKind;
use crate::topology::{GroupId, Identity, Namespaces, NodeFilter, Place, Side};

impl<'s> Engine<'s> {
    pub(super) fn class_of(&mut self, pod: &'s Pod) -> Result<ClassId, VolumeError> {
        let key = ClassKey {
            audience: self.topology.audience(&pod.namespace, &pod.labels),
            requests: self.lanes.request(&pod.requests),
            constraints: Arc::clone(&pod.constraints),
            volumes: pod.volumes.iter().map(|volume| volume.claim.clone()).collect(),
            unsettled: pod.phase == Phase::Pending || self.is_on_deleting_node(pod),
        };
        if let Some(known) = self.class_ids.get(&key) {
            return Ok(*known);
        }
        let alternatives = self.snapshot.volumes.alternatives(pod)?;
        let alternatives = alternatives.iter().map(|term| self.algebra.wish(term)).collect();
        let attachments = self.snapshot.volumes.attachments(pod);
        let attachments = attachments
            .into_iter()
            .map(|(driver, claims)| (driver.to_owned(), claims.into_iter().collect()))
            .collect();
        Ok(self.add_class(key, alternatives, attachments))
    }

    pub(super) fn is_on_deleting_node(&self, pod: &Pod) -> bool {
        pod.node_name.as_ref().is_some_and(|name| self.doomed.contains(name.as_str()))
    }

    /// The class with one wish less.
    pub(super) fn relaxed(&mut self, class: ClassId) -> Option<ClassId> {
        match self.classes[class.index()].relaxed {
            Relaxed::To(known) => return Some(known),
            Relaxed::NothingLeft => return None,
            Relaxed::NotAskedYet => {}
        }
        let spec = Arc::clone(&self.classes[class.index()].spec);
        let constraints =
            class::relaxed(&spec.key.constraints, self.options.preferences, self.soft_taints);
        let relaxed = constraints.map(|constraints| {
            let key = ClassKey { constraints: Arc::new(constraints), ..spec.key.clone() };
            match self.class_ids.get(&key) {
                Some(known) => *known,
                None => self.add_class(key, spec.alternatives.clone(), spec.attachments.clone()),
            }
        });
        self.classes[class.index()].relaxed = relaxed.map_or(Relaxed::NothingLeft, Relaxed::To);
        relaxed
    }

    fn add_class(
        &mut self,
        key: ClassKey,
        alternatives: Vec<crate::algebra::Wish>,
        attachments: Vec<(String, Vec<String>)>,
    ) -> ClassId {
        let constraints = Arc::clone(&key.constraints);
        let strict = self.algebra.wish(&constraints.strict_requirements());
        let wish = match self.options.preferences {
            PreferencePolicy::Respect => self.algebra.wish(&constraints.preferred_requirements()),
            PreferencePolicy::Ignore => strict.clone(),
        };
        let namespace = self.topology.namespace(key.audience);
        let owned = self.owned_groups(namespace, &constraints);
        let owned = owned
            .into_iter()
            .map(|group| (group, self.topology.selects(group, key.audience)))
            .collect();
        let carried = constraints
            .anti_affinity
            .required
            .iter()
            .map(|term| {
                let identity = self.carrier_identity(namespace, term);
                self.group(identity)
            })
            .collect();
        let class = ClassId(id(self.classes.len()));
        self.class_ids.insert(key.clone(), class);
        let spec = Spec { key, wish, strict, alternatives, attachments, owned, carried };
        self.classes.push(Class {
            spec: Arc::new(spec),
            relaxed: Relaxed::NotAskedYet,
            barred_nodes: None,
            run: ClassRun::default(),
        });
        class
    }

    fn owned_groups(&mut self, namespace: &str, constraints: &Constraints) -> Vec<GroupId> {
        let respect = self.options.preferences == PreferencePolicy::Respect;
        let mut identities = Vec::new();
        for spread in &constraints.spread {
            if respect || spread.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule {
                identities.push(self.spread_identity(namespace, spread, constraints));
            }
        }
        for (kind, terms) in [
            (TopologyKind::Affinity, &constraints.affinity),
            (TopologyKind::AntiAffinity, &constraints.anti_affinity),
        ] {
            let preferred =
                terms.preferred.iter().filter(|_| respect).map(|weighted| &weighted.term);
            for term in terms.required.iter().chain(preferred) {
                identities.push(self.term_identity(namespace, term, kind, Side::Selected));
            }
        }
        identities.into_iter().map(|identity| self.group(identity)).collect()
    }

    fn spread_identity(
        &mut self,
        namespace: &str,
        spread: &SpreadConstraint,
        constraints: &Constraints,
    ) -> Identity {
        let selector = &constraints.node_selector;
        let mut affinity = Vec::new();
        if spread.node_affinity_policy == NodePolicy::Honor {
            for term in &constraints.required_terms {
                affinity.push(self.algebra.wish(&selector.merged(term)));
            }
            if constraints.required_terms.is_empty() && !selector.is_empty() {
                affinity.push(self.algebra.wish(selector));
            }
        }
        let honor_taints = spread.node_taints_policy == NodePolicy::Honor;
        Identity {
            side: Side::Selected,
            kind: TopologyKind::Spread,
            place: self.place_of(&spread.topology_key),
            namespaces: Namespaces::Only([namespace.to_owned()].into()),
            selector: spread.selector.clone(),
            max_skew: spread.max_skew,
            min_domains: spread.min_domains,
            filter: NodeFilter {
                affinity,
                tolerations: honor_taints.then(|| constraints.tolerations.clone()),
            },
        }
    }

    pub(super) fn carrier_identity(&mut self, namespace: &str, term: &PodTerm) -> Identity {
        self.term_identity(namespace, term, TopologyKind::AntiAffinity, Side::Carriers)
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
            place: self.place_of(&term.topology_key),
            namespaces: self.namespaces_of(namespace, term),
            selector: term.selector.clone(),
            max_skew: 0,
            min_domains: None,
            filter: NodeFilter::default(),
        }
    }

    fn place_of(&mut self, topology_key: &str) -> Place {
        if topology_key == HOSTNAME {
            Place::Host
        } else {
            Place::Label(self.algebra.key(topology_key))
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
