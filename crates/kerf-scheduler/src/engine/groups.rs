//! Making groups, and counting pods in them.

use std::sync::Arc;

use kerf_model::Taint;
use kerf_model::taint::first_hard_untolerated;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Engine, Place};
use crate::algebra::{Key, Value, id};
use crate::bits::Bits;
use crate::class::ClassId;
use crate::refusal::TopologyKind;
use crate::topology::{GroupId, Identity, NodeFilter, PodLabelsId, Side, TopologyKey};

impl Engine<'_> {
    /// The group of this constraint, with its domains and with everything counted that is already there.
    pub(super) fn group(&mut self, identity: Identity) -> GroupId {
        if let Some(known) = self.topology.find(&identity) {
            return known;
        }
        let (side, topology_key, filter) =
            (identity.side, identity.topology_key, identity.filter.clone());
        let group = self.topology.insert(identity);
        if let TopologyKey::Label(key) = topology_key {
            self.register_launchable_domains(group, key, &filter);
        }
        if side == Side::Selected {
            self.count_bound(group, topology_key, &filter);
            for at in 0..self.leaving.len() {
                self.leave_group(group, self.leaving[at]);
            }
        }
        for at in 0..self.placed.len() {
            let (class, place) = self.placed[at];
            let spec = Arc::clone(&self.classes[class.index()].spec);
            let counts = match side {
                Side::Selected => self.topology.selects(group, spec.base.key.pod_labels),
                Side::Inverse => spec.base.inverse.contains(&group),
            };
            if counts {
                self.record_in(group, place);
            }
        }
        group
    }

    /// Domains that some pool could launch a node in.
    fn register_launchable_domains(&mut self, group: GroupId, key: Key, filter: &NodeFilter) {
        let launchable = match self.launchable.get(&key) {
            Some(known) if filter.tolerations.is_none() => Arc::clone(known),
            _ => self.launchable_domains(key, filter),
        };
        for value in launchable.iter() {
            self.topology.groups[group.index()].enter(value.index(), 1);
        }
    }

    fn launchable_domains(&mut self, key: Key, filter: &NodeFilter) -> Arc<[Value]> {
        let snapshot = self.snapshot;
        let name = self.algebra.key_name(key).to_owned();
        let mut launchable = Vec::new();
        for pool in snapshot.launching_pools().filter(|pool| !pool.instance_types.is_empty()) {
            if !tolerated(&pool.taints, filter) {
                continue;
            }
            let own = pool.template_requirements();
            let own = own.get(&name);
            let mut listed: FxHashSet<String> =
                own.and_then(|own| own.listed()).into_iter().flatten().cloned().collect();
            for instance_type in &pool.instance_types {
                let both = match (own, instance_type.requirements().get(&name)) {
                    (Some(own), Some(theirs)) => own.intersection(theirs),
                    (None, Some(theirs)) => theirs.clone(),
                    (_, None) => continue,
                };
                listed.extend(both.listed().into_iter().flatten().cloned());
            }
            // Values get their numbers in the order of their names, whatever the order in the hash set.
            let mut listed: Vec<_> = listed.into_iter().collect();
            listed.sort_unstable();
            launchable.extend(listed.iter().map(|value| self.algebra.value(key, value)));
        }
        let launchable: Arc<[Value]> = launchable.into();
        if filter.tolerations.is_none() {
            self.launchable.insert(key, Arc::clone(&launchable));
        }
        launchable
    }

    fn count_bound(&mut self, group: GroupId, topology_key: TopologyKey, filter: &NodeFilter) {
        if *filter == NodeFilter::default() {
            return self.count_bound_everywhere(group, topology_key);
        }
        let mut participants = Bits::default();
        for node in 0..self.existing.nodes.len() {
            if self.existing.nodes[node].node.exists && self.node_takes_part(node, filter) {
                participants.insert(node);
                if let Some(domain) = self.node_domain(node, topology_key) {
                    self.topology.groups[group.index()].enter(domain, 1);
                }
            }
        }
        for (node, pods) in self.topology.bound_to(group) {
            if participants.contains(node as usize)
                && let Some(domain) = self.node_domain(node as usize, topology_key)
            {
                self.topology.groups[group.index()].add(domain, pods);
            }
        }
        self.topology.groups[group.index()].participants = Some(participants);
    }

    /// Without a filter only nodes with pods that count need a look.
    fn count_bound_everywhere(&mut self, group: GroupId, topology_key: TopologyKey) {
        if let TopologyKey::Label(key) = topology_key {
            let column = Arc::clone(self.existing.column(key, &mut self.algebra));
            for (value, nodes) in &column.in_use {
                self.topology.groups[group.index()].enter(value.index(), *nodes);
            }
        }
        for (node, pods) in self.topology.bound_to(group) {
            if let Some(domain) = self.node_domain(node as usize, topology_key) {
                self.topology.groups[group.index()].add(domain, pods);
            }
        }
    }

    /// Bound pods that keep others away: by node the inverse groups that they count in.
    pub(super) fn count_bound_inverse(
        &mut self,
        moving: &FxHashSet<&str>,
    ) -> FxHashMap<u32, Vec<GroupId>> {
        let mut inverse: FxHashMap<u32, Vec<GroupId>> = FxHashMap::default();
        for at in 0..self.existing.nodes.len() {
            let node = self.existing.nodes[at].node;
            for pod in node.pods.iter().filter(|pod| !moving.contains(pod.uid.as_str())) {
                for term in &pod.constraints.anti_affinity.required {
                    let identity = self.inverse_identity(&pod.namespace, term);
                    let topology_key = identity.topology_key;
                    let group = self.group(identity);
                    if let Some(domain) = self.node_domain(at, topology_key) {
                        self.topology.groups[group.index()].enter(domain, 1);
                        self.topology.groups[group.index()].add(domain, 1);
                    }
                    inverse.entry(id(at)).or_default().push(group);
                }
            }
        }
        inverse
    }

    /// The node and its pods count no longer.
    pub(super) fn leave_topology(&mut self, node: usize) {
        let bound = Arc::clone(&self.bound);
        for group in bound.inverse.get(&id(node)).into_iter().flatten() {
            let topology_key = self.topology.groups[group.index()].identity.topology_key;
            if let Some(domain) = self.node_domain(node, topology_key) {
                self.topology.unrecord(*group, domain, 1);
                self.topology.leave(*group, domain);
            }
        }
        for pod_labels in &bound.pod_labels[node] {
            for at in 0..self.topology.selecting(*pod_labels).len() {
                let group = self.topology.selecting(*pod_labels)[at];
                if self.topology.groups[group.index()].identity.side == Side::Selected
                    && let Some(domain) = self.counting_domain(group, node)
                {
                    self.topology.unrecord(group, domain, 1);
                }
            }
        }
        for at in 0..self.topology.groups.len() {
            let group = GroupId::from_index(at);
            if self.topology.groups[at].identity.side == Side::Selected {
                self.leave_domain(group, node);
            }
        }
    }

    /// The same for a group that is made when the node has already gone.
    fn leave_group(&mut self, group: GroupId, node: usize) {
        let bound = Arc::clone(&self.bound);
        let selected = |pod_labels: &&PodLabelsId| self.topology.selects(group, **pod_labels);
        let pods = bound.pod_labels[node].iter().filter(selected).count();
        if pods > 0
            && let Some(domain) = self.counting_domain(group, node)
        {
            self.topology.unrecord(group, domain, id(pods));
        }
        self.leave_domain(group, node);
    }

    fn leave_domain(&mut self, group: GroupId, node: usize) {
        if let Some(domain) = self.counting_domain(group, node) {
            let others = self.topology.groups[group.index()].sources(domain);
            // Most domains are known from far more nodes than can go at once.
            if others as usize <= self.leaving.len() {
                self.topology.leave(group, domain);
            }
        }
    }

    /// The domain in which pods that are bound to the node count.
    fn counting_domain(&mut self, group: GroupId, node: usize) -> Option<usize> {
        let group = &self.topology.groups[group.index()];
        let takes_part = match &group.participants {
            Some(participants) => participants.contains(node),
            None => self.existing.nodes[node].node.exists,
        };
        let topology_key = group.identity.topology_key;
        takes_part.then(|| self.node_domain(node, topology_key))?
    }

    /// A pod of the class went there: it counts from now on.
    pub(super) fn record(&mut self, class: ClassId, place: Place) {
        let spec = Arc::clone(&self.classes[class.index()].spec);
        for at in 0..self.topology.selecting(spec.base.key.pod_labels).len() {
            let group = self.topology.selecting(spec.base.key.pod_labels)[at];
            if self.topology.groups[group.index()].identity.side == Side::Selected {
                self.record_in(group, place);
            }
        }
        for group in &spec.base.inverse {
            self.record_in(*group, place);
        }
        self.placed.push((class, place));
    }

    fn record_in(&mut self, group: GroupId, place: Place) {
        let identity = &self.topology.groups[group.index()].identity;
        let (kind, topology_key) = (identity.kind, identity.topology_key);
        let has_filter = identity.filter != NodeFilter::default();
        if has_filter {
            let filter = identity.filter.clone();
            let takes_part = match place {
                Place::Node(node) => self.node_takes_part(node, &filter),
                Place::Claim(claim) => self.claim_takes_part(claim, &filter),
            };
            if !takes_part {
                return;
            }
        }
        match place {
            Place::Node(node) => {
                if let Some(domain) = self.node_domain(node, topology_key) {
                    self.topology.record(group, domain);
                }
            }
            Place::Claim(claim) => match topology_key {
                TopologyKey::Hostname => {
                    let host = self.host_of_claim(claim);
                    self.topology.record(group, host);
                }
                TopologyKey::Label(key) => {
                    for value in self.claim_domains(group, claim, key, kind) {
                        self.topology.record(group, value.index());
                    }
                }
            },
        }
    }

    /// The domains in which a pod on this claim counts. Where it keeps others away it counts wherever the
    /// claim may end up; elsewhere only where it will certainly be.
    fn claim_domains(
        &mut self,
        group: GroupId,
        claim: usize,
        key: Key,
        kind: TopologyKind,
    ) -> Vec<Value> {
        let rule = self.algebra.get(self.claims.all[claim].set, key);
        if kind != TopologyKind::AntiAffinity {
            return rule.and_then(|rule| self.algebra.only_value(rule)).into_iter().collect();
        }
        if let Some(listed) = rule.and_then(|rule| self.algebra.listed(rule)) {
            return listed;
        }
        let registered = self.topology.groups[group.index()].values().map(|(value, _)| value);
        registered
            .filter(|value| rule.is_none_or(|rule| self.algebra.allows(rule, *value)))
            .collect()
    }

    fn node_domain(&mut self, node: usize, topology_key: TopologyKey) -> Option<usize> {
        match topology_key {
            TopologyKey::Hostname => Some(node),
            TopologyKey::Label(key) => {
                self.existing.value(node, key, &mut self.algebra).map(Value::index)
            }
        }
    }

    fn node_takes_part(&mut self, node: usize, filter: &NodeFilter) -> bool {
        let taints: &[Taint] = &self.existing.nodes[node].node.taints;
        tolerated(taints, filter)
            && (filter.affinity.is_empty()
                || filter.affinity.iter().any(|term| self.node_meets(node, term)))
    }

    /// A claim that leaves open what the filter asks for does not take part.
    fn claim_takes_part(&mut self, claim: usize, filter: &NodeFilter) -> bool {
        let claim = &self.claims.all[claim];
        let set = claim.set;
        tolerated(&self.templates[claim.template].pool.taints, filter)
            && (filter.affinity.is_empty()
                || filter.affinity.iter().any(|term| {
                    term.allows_new_host() && self.algebra.strictly_compatible(set, term.set)
                }))
    }
}

/// Taints that only ask to be avoided keep no node out of a spread.
fn tolerated(taints: &[Taint], filter: &NodeFilter) -> bool {
    let untolerated = |tolerations: &Arc<[_]>| first_hard_untolerated(taints, tolerations);
    filter.tolerations.as_ref().and_then(untolerated).is_none()
}
