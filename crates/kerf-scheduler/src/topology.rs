//! Topology groups: where the pods that a constraint counts already are. Constraints that are equal share one.

use std::collections::BTreeSet;
use std::sync::Arc;

use kerf_model::labels::Labels;
use kerf_model::selector::LabelTest;
use kerf_model::{Selector, Toleration};
use rustc_hash::FxHashMap;

use crate::algebra::{Key, PodRequirements, Value, id};
use crate::bits::Bits;
use crate::refusal::TopologyKind;

/// All groups of a run, and which pods they select.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology<'s> {
    pub(crate) groups: Vec<TopologyGroup>,
    ids: FxHashMap<Arc<Identity>, GroupId>,
    pod_labels: Vec<PodLabels<'s>>,
    pod_labels_ids: FxHashMap<(&'s str, &'s Labels), PodLabelsId>,
    /// Groups and labels of pods by one label that the selector asks for, so that neither has to be held against
    /// all of the other.
    groups_by_label: FxHashMap<(String, String), Vec<GroupId>>,
    unlabelled_groups: Vec<GroupId>,
    pod_labels_by_label: FxHashMap<(&'s str, &'s str), Vec<PodLabelsId>>,
    /// What a run has changed, where it is to be taken back.
    journal: Option<Vec<Entry>>,
}

/// A domain of a group before a change.
#[derive(Clone, Copy, Debug)]
struct Entry {
    group: GroupId,
    domain: u32,
    count: u32,
    sources: u32,
    registered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupId(u32);

/// The namespace and labels of a pod. Selectors treat pods alike that share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodLabelsId(u32);

#[derive(Clone, Debug)]
struct PodLabels<'s> {
    namespace: &'s str,
    labels: &'s Labels,
    /// Groups that select these pods.
    selected_by: Vec<GroupId>,
    /// Nodes with how many such pods are bound to them.
    bound: Vec<(u32, u32)>,
}

/// One constraint, as often as it occurs. Two pods share a group only if nothing at all differs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) side: Side,
    pub(crate) kind: TopologyKind,
    pub(crate) topology_key: TopologyKey,
    pub(crate) namespaces: Namespaces,
    pub(crate) selector: Selector,
    pub(crate) max_skew: u32,
    pub(crate) min_domains: Option<u32>,
    pub(crate) filter: NodeFilter,
}

/// Which pods are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// Pods that the selector selects; the constraint holds for the pods that have it.
    Selected,
    /// Pods that have a required anti-affinity; it holds for the pods that the selector selects. Karpenter calls these inverse
    /// topology groups.
    Inverse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TopologyKey {
    /// Every node is a domain of its own.
    Hostname,
    Label(Key),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Namespaces {
    All,
    Only(BTreeSet<String>),
}

/// Which nodes take part in a spread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeFilter {
    /// Any of these must be met; empty for no condition.
    pub(crate) affinity: Arc<[PodRequirements]>,
    pub(crate) tolerations: Option<Arc<[Toleration]>>,
}

#[derive(Clone, Debug)]
pub(crate) struct TopologyGroup {
    pub(crate) identity: Arc<Identity>,
    /// By host or by value of the key.
    counts: Vec<u32>,
    total: u32,
    /// Domains that are known, with or without pods.
    registered: Bits,
    /// By value of the key, how many pools and nodes make it known.
    sources: Vec<u32>,
    /// Nodes that take part; `None` for all that exist.
    pub(crate) participants: Option<Bits>,
    /// The selected labels of pods among those that were known when the group was made.
    first_pod_labels: Vec<PodLabelsId>,
}

impl TopologyGroup {
    pub(crate) fn count(&self, domain: usize) -> u32 {
        self.counts.get(domain).copied().unwrap_or(0)
    }

    /// Pods that count, in all domains.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn add(&mut self, domain: usize, pods: u32) {
        if self.counts.len() <= domain {
            self.counts.resize(domain + 1, 0);
        }
        self.counts[domain] += pods;
        self.total += pods;
        self.registered.insert(domain);
    }

    /// Makes the domain known on behalf of so many pools or nodes.
    pub(crate) fn enter(&mut self, domain: usize, sources: u32) {
        if let TopologyKey::Label(_) = self.identity.topology_key {
            if self.sources.len() <= domain {
                self.sources.resize(domain + 1, 0);
            }
            self.sources[domain] += sources;
        }
        self.registered.insert(domain);
    }

    /// How many make the domain known; hosts only make themselves known.
    pub(crate) fn sources(&self, domain: usize) -> u32 {
        self.sources.get(domain).copied().unwrap_or(0)
    }

    /// Takes back one [`Self::enter`].
    fn leave(&mut self, domain: usize) {
        let left = match self.sources.get_mut(domain) {
            Some(sources) => {
                *sources = sources.saturating_sub(1);
                *sources
            }
            None => 0,
        };
        if left == 0 {
            self.registered.remove(domain);
        }
    }

    pub(crate) fn domains(&self) -> impl Iterator<Item = (usize, u32)> {
        self.registered.iter().map(|domain| (domain, self.count(domain)))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = (Value, u32)> {
        self.domains().map(|(domain, count)| (Value::from_index(domain), count))
    }

    fn selects(&self, namespace: &str, labels: &Labels) -> bool {
        let in_namespace = match &self.identity.namespaces {
            Namespaces::All => true,
            Namespaces::Only(names) => names.contains(namespace),
        };
        in_namespace && self.identity.selector.selects(labels)
    }
}

impl<'s> Topology<'s> {
    pub(crate) fn pod_labels(&mut self, namespace: &'s str, labels: &'s Labels) -> PodLabelsId {
        if let Some(known) = self.pod_labels_ids.get(&(namespace, labels)) {
            return *known;
        }
        let pod_labels = PodLabelsId(id(self.pod_labels.len()));
        let labelled = labels
            .iter()
            .filter_map(|(key, value)| self.groups_by_label.get(&(key.clone(), value.clone())))
            .flatten();
        let mut selected_by: Vec<_> = labelled
            .chain(&self.unlabelled_groups)
            .copied()
            .filter(|group| self.groups[group.index()].selects(namespace, labels))
            .collect();
        selected_by.sort_unstable_by_key(|group| group.0);
        selected_by.dedup();
        for (key, value) in labels {
            self.pod_labels_by_label.entry((key, value)).or_default().push(pod_labels);
        }
        self.pod_labels.push(PodLabels { namespace, labels, selected_by, bound: Vec::new() });
        self.pod_labels_ids.insert((namespace, labels), pod_labels);
        pod_labels
    }

    pub(crate) fn namespace(&self, pod_labels: PodLabelsId) -> &'s str {
        self.pod_labels[pod_labels.index()].namespace
    }

    /// A pod with these labels is bound to this node.
    pub(crate) fn bind(&mut self, pod_labels: PodLabelsId, node: usize) {
        let bound = &mut self.pod_labels[pod_labels.index()].bound;
        match bound.last_mut() {
            Some((last, pods)) if *last == id(node) => *pods += 1,
            _ => bound.push((id(node), 1)),
        }
    }

    pub(crate) fn selecting(&self, pod_labels: PodLabelsId) -> &[GroupId] {
        &self.pod_labels[pod_labels.index()].selected_by
    }

    pub(crate) fn selects(&self, group: GroupId, pod_labels: PodLabelsId) -> bool {
        self.selecting(pod_labels).contains(&group)
    }

    pub(crate) fn find(&self, identity: &Identity) -> Option<GroupId> {
        self.ids.get(identity).copied()
    }

    /// Adds a group without domains or counts.
    pub(crate) fn insert(&mut self, identity: Identity) -> GroupId {
        let group = GroupId(id(self.groups.len()));
        let identity = Arc::new(identity);
        self.ids.insert(Arc::clone(&identity), group);
        let label = asked_label(&identity.selector);
        let candidates = match &label {
            Some((key, value)) => self
                .pod_labels_by_label
                .get(&(key.as_str(), value.as_str()))
                .cloned()
                .unwrap_or_default(),
            None => (0..self.pod_labels.len()).map(|at| PodLabelsId(id(at))).collect(),
        };
        self.groups.push(TopologyGroup {
            identity,
            counts: Vec::new(),
            total: 0,
            registered: Bits::default(),
            sources: Vec::new(),
            participants: None,
            first_pod_labels: Vec::new(),
        });
        match label {
            Some(label) => self.groups_by_label.entry(label).or_default().push(group),
            None => self.unlabelled_groups.push(group),
        }
        for candidate in candidates {
            let pod_labels = &mut self.pod_labels[candidate.index()];
            let group_entry = &mut self.groups[group.index()];
            if group_entry.selects(pod_labels.namespace, pod_labels.labels) {
                pod_labels.selected_by.push(group);
                group_entry.first_pod_labels.push(candidate);
            }
        }
        group
    }

    /// From here on changes are written down.
    pub(crate) fn keep_journal(&mut self) {
        self.journal.get_or_insert_default();
    }

    /// A pod counts in this domain from now on.
    pub(crate) fn record(&mut self, group: GroupId, domain: usize) {
        self.note(group, domain);
        self.groups[group.index()].add(domain, 1);
    }

    /// So many pods of this domain count no longer.
    pub(crate) fn unrecord(&mut self, group: GroupId, domain: usize, pods: u32) {
        self.note(group, domain);
        let group = &mut self.groups[group.index()];
        let pods = pods.min(group.count(domain));
        if pods > 0 {
            group.counts[domain] -= pods;
            group.total -= pods;
        }
    }

    /// One node less makes the domain known.
    pub(crate) fn leave(&mut self, group: GroupId, domain: usize) {
        self.note(group, domain);
        self.groups[group.index()].leave(domain);
    }

    fn note(&mut self, group: GroupId, domain: usize) {
        if let Some(journal) = &mut self.journal {
            let before = &self.groups[group.index()];
            journal.push(Entry {
                group,
                domain: id(domain),
                count: before.count(domain),
                sources: before.sources(domain),
                registered: before.registered.contains(domain),
            });
        }
    }

    /// Forgets the run.
    pub(crate) fn restore(&mut self) {
        for entry in self.journal.iter_mut().flat_map(|journal| journal.drain(..).rev()) {
            let (group, domain) = (&mut self.groups[entry.group.index()], entry.domain as usize);
            group.total = group.total + entry.count - group.count(domain);
            if let Some(count) = group.counts.get_mut(domain) {
                *count = entry.count;
            }
            if let Some(sources) = group.sources.get_mut(domain) {
                *sources = entry.sources;
            }
            if entry.registered {
                group.registered.insert(domain);
            } else {
                group.registered.remove(domain);
            }
        }
    }

    /// Nodes with the bound pods that the group selects. Bound pods are known before any group is.
    pub(crate) fn bound_to(&self, group: GroupId) -> Vec<(u32, u32)> {
        let pod_labels = &self.groups[group.index()].first_pod_labels;
        pod_labels.iter().flat_map(|at| self.pod_labels[at.index()].bound.iter().copied()).collect()
    }
}

/// A label that everything selected has to carry, if the selector asks for one.
fn asked_label(selector: &Selector) -> Option<(String, String)> {
    let Selector::All(tests) = selector else { return None };
    tests.iter().find_map(|test| match test {
        LabelTest::In(key, values) if values.len() == 1 => {
            values.first().map(|value| (key.clone(), value.clone()))
        }
        _ => None,
    })
}

impl GroupId {
    pub(crate) fn from_index(index: usize) -> Self {
        Self(id(index))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl PodLabelsId {
    fn index(self) -> usize {
        self.0 as usize
    }
}
