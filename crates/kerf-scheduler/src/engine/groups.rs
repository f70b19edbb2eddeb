//! Making groups, and counting pods in them.

use std::sync::Arc;

use kerf_model::Taint;
use kerf_model::taint::first_hard_untolerated;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Engine, Spot};
use crate::algebra::{Key, Value, id};
use crate::bits::Bits;
use crate::class::ClassId;
use crate::refusal::TopologyKind;
use crate::topology::{AudienceId, GroupId, Identity, NodeFilter, Place, Side};

impl Engine<'_> {
    /// The group of this constraint, with its domains and with everything counted that is already there.
    pub(super) fn group(&mut self, identity: Identity) -> GroupId {
        if let Some(known) = self.topology.find(&identity) {
            return known;
        }
        let (side, place, filter) = (identity.side, identity.place, identity.filter.clone());
        let group = self.topology.insert(identity);
        if let Place::Label(key) = place {
            self.register_launchable_domains(group, key, &filter);
        }
        if side == Side::Selected {
            self.count_bound(group, place, &filter);
            for at in 0..self.leaving.len() {
                self.leave_group(group, self.leaving[at]);
            }
        }
        for at in 0..self.placed.len() {
            let (class, spot) = self.placed[at];
            let spec = Arc::clone(&self.classes[class.index()].spec);
            let counts = match side {
                Side::Selected => self.topology.selects(group, spec.base.key.audience),
                Side::Carriers => spec.base.carried.contains(&group),
            };
            if counts {
                self.record_in(group, spot);
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
        for pool in snapshot.pools.iter().filter(|pool| !pool.instance_types.is_empty()) {
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

    fn count_bound(&mut self, group: GroupId, place: Place, filter: &NodeFilter) {
        if *filter == NodeFilter::default() {
            return self.count_bound_everywhere(group, place);
        }
        let mut participants = Bits::default();
        for node in 0..self.existing.nodes.len() {
            if self.existing.nodes[node].node.exists && self.node_takes_part(node, filter) {
                participants.insert(node);
                if let Some(domain) = self.node_domain(node, place) {
                    self.topology.groups[group.index()].enter(domain, 1);
                }
            }
        }
        for (node, pods) in self.topology.bound_to(group) {
            if participants.contains(node as usize)
                && let Some(domain) = self.node_domain(node as usize, place)
            {
                self.topology.groups[group.index()].add(domain, pods);
            }
        }
        self.topology.groups[group.index()].participants = Some(participants);
    }

    /// Without a filter only nodes with pods that count need a look.
    fn count_bound_everywhere(&mut self, group: GroupId, place: Place) {
        if let Place::Label(key) = place {
            let column = Arc::clone(self.existing.column(key, &mut self.algebra));
            for (value, nodes) in &column.in_use {
                self.topology.groups[group.index()].enter(value.index(), *nodes);
            }
        }
        for (node, pods) in self.topology.bound_to(group) {
            if let Some(domain) = self.node_domain(node as usize, place) {
                self.topology.groups[group.index()].add(domain, pods);
            }
        }
    }

    /// Bound pods that keep others away: by node the groups that they count in.
    pub(super) fn count_bound_carriers(
        &mut self,
        moving: &FxHashSet<&str>,
    ) -> FxHashMap<u32, Vec<GroupId>> {
        let mut carried: FxHashMap<u32, Vec<GroupId>> = FxHashMap::default();
        for at in 0..self.existing.nodes.len() {
            let node = self.existing.nodes[at].node;
            for pod in node.pods.iter().filter(|pod| !moving.contains(pod.uid.as_str())) {
                for term in &pod.constraints.anti_affinity.required {
                    let identity = self.carrier_identity(&pod.namespace, term);
                    let place = identity.place;
                    let group = self.group(identity);
                    if let Some(domain) = self.node_domain(at, place) {
                        self.topology.groups[group.index()].enter(domain, 1);
                        self.topology.groups[group.index()].add(domain, 1);
                    }
                    carried.entry(id(at)).or_default().push(group);
                }
            }
        }
        carried
    }

    /// The node and its pods count no longer.
    pub(super) fn leave_topology(&mut self, node: usize) {
        let bound = Arc::clone(&self.bound);
        for group in bound.carried.get(&id(node)).into_iter().flatten() {
            let place = self.topology.groups[group.index()].identity.place;
            if let Some(domain) = self.node_domain(node, place) {
                self.topology.unrecord(*group, domain, 1);
                self.topology.leave(*group, domain);
            }
        }
        for audience in &bound.audiences[node] {
            for at in 0..self.topology.selecting(*audience).len() {
                let group = self.topology.selecting(*audience)[at];
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
        let selected = |audience: &&AudienceId| self.topology.selects(group, **audience);
        let pods = bound.audiences[node].iter().filter(selected).count();
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
        let place = group.identity.place;
        takes_part.then(|| self.node_domain(node, place))?
    }

    /// A pod of the class went there: it counts from now on.
    pub(super) fn record(&mut self, class: ClassId, spot: Spot) {
        let spec = Arc::clone(&self.classes[class.index()].spec);
        for at in 0..self.topology.selecting(spec.base.key.audience).len() {
            let group = self.topology.selecting(spec.base.key.audience)[at];
            if self.topology.groups[group.index()].identity.side == Side::Selected {
                self.record_in(group, spot);
            }
        }
        for group in &spec.base.carried {
            self.record_in(*group, spot);
        }
        self.placed.push((class, spot));
    }

    fn record_in(&mut self, group: GroupId, spot: Spot) {
        let identity = &self.topology.groups[group.index()].identity;
        let (kind, place) = (identity.kind, identity.place);
        let has_filter = identity.filter != NodeFilter::default();
        if has_filter {
            let filter = identity.filter.clone();
            let takes_part = match spot {
                Spot::Node(node) => self.node_takes_part(node, &filter),
                Spot::Claim(claim) => self.claim_takes_part(claim, &filter),
            };
            if !takes_part {
                return;
            }
        }
        match spot {
            Spot::Node(node) => {
                if let Some(domain) = self.node_domain(node, place) {
                    self.topology.record(group, domain);
                }
            }
            Spot::Claim(claim) => match place {
                Place::Host => {
                    let host = self.host_of_claim(claim);
                    self.topology.record(group, host);
                }
                Place::Label(key) => {
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

    fn node_domain(&mut self, node: usize, place: Place) -> Option<usize> {
        match place {
            Place::Host => Some(node),
            Place::Label(key) => {
                self.existing.value(node, key, &mut self.algebra).map(Value::index)
            }
        }
    }

    fn node_takes_part(&mut self, node: usize, filter: &NodeFilter) -> bool {
        let taints: &[Taint] = &self.existing.nodes[node].node.taints;
        tolerated(taints, filter)
            && (filter.affinity.is_empty()
                || filter.affinity.iter().any(|wish| self.node_meets(node, wish)))
    }

    /// A claim that leaves open what the filter asks for does not take part.
    fn claim_takes_part(&mut self, claim: usize, filter: &NodeFilter) -> bool {
        let claim = &self.claims.all[claim];
        let set = claim.set;
        tolerated(&self.templates[claim.template].pool.taints, filter)
            && (filter.affinity.is_empty()
                || filter.affinity.iter().any(|wish| {
                    wish.allows_new_host() && self.algebra.strictly_compatible(set, wish.set)
                }))
    }
}

/// Taints that only ask to be avoided keep no node out of a spread.
fn tolerated(taints: &[Taint], filter: &NodeFilter) -> bool {
    let untolerated = |tolerations: &Arc<[_]>| first_hard_untolerated(taints, tolerations);
    filter.tolerations.as_ref().and_then(untolerated).is_none()
}
