//! The nodes, what is on them, and how many pods of which sort: all kept up change by change.

use super::super::fitness::NodeFacts;
use super::demand::{Demand, Lanes, PodTerm, Room, Scope};
use super::domains::{Census, Domains};
use crate::api::meta;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kerf_model::pod::HostPort;
use kerf_model::{Labels, Resources};
use serde::Deserialize;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of a node; stays the same for as long as the node or pods on it are known.
pub(super) type Slot = usize;

/// Each replica set is a sort of its own, and a month of rollouts makes many.
const MOST_SORTS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Floor {
    slots: BTreeMap<Arc<str>, Slot>,
    nodes: Vec<Place>,
    pods: BTreeMap<Arc<str>, Placed>,
    namespaces: BTreeMap<String, Labels>,
    /// Slots of the nodes that exist, by name; made anew when nodes come or go.
    order: Option<Arc<[Slot]>>,
    /// By label; made anew when nodes change.
    domains: RefCell<BTreeMap<String, Arc<Domains>>>,
    tallies: BTreeMap<Sort, Vec<u32>>,
    repelling: BTreeMap<PodTerm, Vec<u32>>,
}

/// A node with what is on it.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// `None`: no such node; pods say they are on it.
    pub(super) facts: Option<NodeFacts>,
    pub(super) allocatable: Room,
    pub(super) used: Room,
    pub(super) assumed: [i64; 2],
    pub(super) ports: Vec<HostPort>,
}

#[derive(Debug)]
struct Placed {
    slot: Slot,
    uid: String,
    demand: Arc<Demand>,
    is_leaving: bool,
}

/// A sort of pods that is counted by node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sort {
    /// All of these must cover the pod.
    pub(super) scopes: Vec<Scope>,
    /// Pods that are being deleted do not count for a spread, but they do for affinity.
    pub(super) staying_only: bool,
}

impl Floor {
    /// Takes a node in; true when something about it could let in a pod that was kept out.
    pub(super) fn put_node(&mut self, name: &Arc<str>, node: &Value, lanes: &mut Lanes) -> bool {
        let amounts = BTreeMap::<String, Quantity>::deserialize(&node["status"]["allocatable"]);
        let amounts = Resources::from_api(&amounts.unwrap_or_default()).unwrap_or_default();
        let allocatable = lanes.room(&amounts);
        let facts = NodeFacts::of(node);
        let slot = self.slot(name);
        let place = &mut self.nodes[slot];
        if place.facts.as_ref() == Some(&facts) && place.allocatable == allocatable {
            return false;
        }
        if place.facts.is_none() {
            self.order = None;
        }
        place.facts = Some(facts);
        place.allocatable = allocatable;
        self.domains.borrow_mut().clear();
        true
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        if let Some(slot) = self.slots.get(name) {
            self.nodes[*slot].facts = None;
            self.order = None;
            self.domains.borrow_mut().clear();
        }
    }

    pub(super) fn put_namespace(&mut self, namespace: &Value) {
        let labels = super::super::fitness::labels(meta::field(namespace, "labels"));
        if self.namespaces.insert(meta::name(namespace).to_owned(), labels.clone()) != Some(labels)
        {
            // Which pods a term covers may have changed; counted again when next asked for.
            self.tallies.clear();
        }
    }

    /// Takes in a pod that is on a node. True: it is on it from now on, or going to leave it.
    pub(super) fn put_pod(
        &mut self,
        key: &Arc<str>,
        uid: &str,
        node: &str,
        demand: &Arc<Demand>,
        is_leaving: bool,
    ) {
        let slot = self.slot(&node.into());
        self.remove_pod(key);
        let place = &mut self.nodes[slot];
        if place.used.len() < demand.room.len() {
            place.used.resize(demand.room.len(), 0);
        }
        place.used.iter_mut().zip(&demand.room).for_each(|(used, more)| *used += more);
        place.assumed.iter_mut().zip(&demand.assumed).for_each(|(sum, more)| *sum += more);
        place.ports.extend(demand.ports.iter().cloned());
        let placed = Placed { slot, uid: uid.to_owned(), demand: demand.clone(), is_leaving };
        self.count(&placed, 1);
        self.pods.insert(key.clone(), placed);
    }

    /// True: the pod was here, and is no more.
    pub(super) fn remove_pod(&mut self, key: &str) -> bool {
        let Some(placed) = self.pods.remove(key) else { return false };
        let place = &mut self.nodes[placed.slot];
        let demand = &placed.demand;
        place.used.iter_mut().zip(&demand.room).for_each(|(used, less)| *used -= less);
        place.assumed.iter_mut().zip(&demand.assumed).for_each(|(sum, less)| *sum -= less);
        for port in &demand.ports {
            if let Some(at) = place.ports.iter().position(|known| known == port) {
                place.ports.swap_remove(at);
            }
        }
        self.count(&placed, -1);
        true
    }

    /// What is known of a pod on a node: its uid, its node's name, its demand, and whether it is leaving.
    pub(super) fn pod(&self, key: &str) -> Option<(&str, &Arc<Demand>, bool)> {
        let placed = self.pods.get(key)?;
        Some((placed.uid.as_str(), &placed.demand, placed.is_leaving))
    }

    /// The pods on a node, and whether they are leaving it.
    pub(super) fn pods_on(
        &self,
        slot: Slot,
    ) -> impl Iterator<Item = (&Arc<str>, &Arc<Demand>, bool)> {
        let there = self.pods.iter().filter(move |(_, placed)| placed.slot == slot);
        there.map(|(key, placed)| (key, &placed.demand, placed.is_leaving))
    }

    pub(super) fn order(&mut self) -> Arc<[Slot]> {
        let Self { order, slots, nodes, .. } = self;
        let order = order.get_or_insert_with(|| {
            slots.values().copied().filter(|slot| nodes[*slot].facts.is_some()).collect()
        });
        order.clone()
    }

    pub(super) fn place(&self, slot: Slot) -> &Place {
        &self.nodes[slot]
    }

    pub(super) fn slot_of(&self, name: &str) -> Option<Slot> {
        self.slots.get(name).copied().filter(|slot| self.nodes[*slot].facts.is_some())
    }

    /// Starts to count pods of a sort, unless they are counted already.
    pub(super) fn prepare(&mut self, sort: &Sort) {
        if self.tallies.contains_key(sort) {
            return;
        }
        let mut counts = vec![0; self.nodes.len()];
        for placed in self.pods.values().filter(|placed| self.is_of(placed, sort)) {
            counts[placed.slot] += 1;
        }
        self.tallies.insert(sort.clone(), counts);
    }

    /// Forgets what is counted when that is too much: each placed pod is held against every sort.
    pub(super) fn trim(&mut self) {
        if self.tallies.len() > MOST_SORTS {
            self.tallies.clear();
        }
    }

    /// How many pods of a prepared sort are on each node, by slot; a slot beyond the end has none.
    pub(super) fn counts(&self, sort: &Sort) -> &[u32] {
        self.tallies.get(sort).map(Vec::as_slice).unwrap_or_default()
    }

    /// The domains that a label makes; kept for as long as no node changes.
    pub(super) fn domains(&self, key: &str) -> Arc<Domains> {
        let mut known = self.domains.borrow_mut();
        if let Some(domains) = known.get(key) {
            return domains.clone();
        }
        let values = self.nodes.iter().map(|place| {
            let labels = &place.facts.as_ref()?.labels;
            labels.get(key).map(String::as_str)
        });
        let domains = Arc::new(Domains::new(values));
        known.insert(key.to_owned(), domains.clone());
        domains
    }

    /// How many pods of a prepared sort are in each domain of these nodes.
    pub(super) fn census(
        &self,
        sort: &Sort,
        key: &str,
        nodes: impl Iterator<Item = Slot>,
    ) -> Census {
        Census::new(self.domains(key), self.counts(sort), nodes)
    }

    /// Terms of pods already placed that keep this one away, with where those pods are.
    pub(super) fn repelled_by(&self, demand: &Demand) -> Vec<(&str, &[u32])> {
        let labels = self.labels_of(&demand.namespace);
        let terms = self.repelling.iter().filter(|(term, counts)| {
            term.scope.covers(&demand.namespace, labels, &demand.labels)
                && counts.iter().any(|count| *count > 0)
        });
        terms.map(|(term, counts)| (term.key.as_str(), counts.as_slice())).collect()
    }

    /// Whether a pod would itself be of the sort that these scopes describe.
    pub(super) fn covers<'a>(
        &self,
        demand: &Demand,
        mut scopes: impl Iterator<Item = &'a Scope>,
    ) -> bool {
        let labels = self.labels_of(&demand.namespace);
        scopes.all(|scope| scope.covers(&demand.namespace, labels, &demand.labels))
    }

    fn labels_of(&self, namespace: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(namespace).unwrap_or(&NONE)
    }

    fn is_of(&self, placed: &Placed, sort: &Sort) -> bool {
        !(sort.staying_only && placed.is_leaving) && self.covers(&placed.demand, sort.scopes.iter())
    }

    fn count(&mut self, placed: &Placed, by: i32) {
        let mut tallies = std::mem::take(&mut self.tallies);
        for (sort, counts) in &mut tallies {
            if self.is_of(placed, sort) {
                add(counts, placed.slot, by);
            }
        }
        self.tallies = tallies;
        for term in &placed.demand.anti_affinity {
            match self.repelling.get_mut(term) {
                Some(counts) => add(counts, placed.slot, by),
                None => add(self.repelling.entry(term.clone()).or_default(), placed.slot, by),
            }
        }
    }

    fn slot(&mut self, name: &Arc<str>) -> Slot {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        self.nodes.push(Place::default());
        self.slots.insert(name.clone(), self.nodes.len() - 1);
        self.nodes.len() - 1
    }
}

fn add(counts: &mut Vec<u32>, slot: Slot, by: i32) {
    if counts.len() <= slot {
        counts.resize(slot + 1, 0);
    }
    counts[slot] = counts[slot].saturating_add_signed(by);
}
