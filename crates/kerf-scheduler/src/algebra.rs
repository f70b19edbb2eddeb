//! The algebra of requirements, by number: each distinct requirement and each distinct set of them exists once, and how two of
//! them go together is worked out once.
//!
//! The rules themselves are those of `kerf-model`; this is only memory in front of them. A run
//! meets few distinct sets, however many pods and claims it has.

use std::sync::Arc;

use indexmap::IndexSet;
use kerf_model::labels::HOSTNAME;
use kerf_model::{KnownLabels, Requirement, Requirements};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::bits::Bits;

/// A label key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(u32);

/// A value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Value(u32);

/// A requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Rule(u32);

/// A set of requirements, never with one on the hostname: every node has its own, so sets that held it
/// could not be shared. A caller that needs it keeps it beside the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SetId(u32);

type Interned<T> = IndexSet<T, FxBuildHasher>;

#[derive(Clone, Debug)]
pub(crate) struct Algebra {
    labels: KnownLabels,
    keys: Interned<String>,
    well_known: Vec<bool>,
    values: Vec<Interned<String>>,
    rules: Interned<Requirement>,
    rule_keys: Vec<Key>,
    /// Per rule the allowed ones among the first `judged` values of its key.
    allowed: Vec<(Bits, usize)>,
    sets: Interned<Box<[(Key, Rule)]>>,
    meets: FxHashMap<(Rule, Rule), Meet>,
    merges: FxHashMap<(SetId, SetId), Option<SetId>>,
    strict: FxHashMap<(SetId, SetId), bool>,
    pins: FxHashMap<(Key, Value), SetId>,
    listings: FxHashMap<(Key, Bits), SetId>,
}

#[derive(Clone, Copy, Debug)]
struct Meet {
    both: Rule,
    /// They have something in common, or a node without the label serves both.
    compatible: bool,
}

/// What a pod, a daemon or a volume asks of its node: a set of requirements, and the one on the hostname.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodRequirements {
    pub(crate) set: SetId,
    pub(crate) hostname: Option<Arc<Requirement>>,
}

impl PodRequirements {
    /// Whether a node whose name is not known yet can meet the hostname part: a name that no manifest
    /// could have listed.
    pub(crate) fn allows_new_host(&self) -> bool {
        self.hostname.as_ref().is_none_or(|hostname| hostname.has("a name yet to be given"))
    }

    pub(crate) fn allows_host(&self, name: &str) -> bool {
        self.hostname.as_ref().is_none_or(|hostname| hostname.has(name))
    }
}

impl Algebra {
    pub(crate) fn new(labels: &KnownLabels) -> Self {
        let mut algebra = Self {
            labels: labels.clone(),
            keys: Interned::default(),
            well_known: Vec::new(),
            values: Vec::new(),
            rules: Interned::default(),
            rule_keys: Vec::new(),
            allowed: Vec::new(),
            sets: Interned::default(),
            meets: FxHashMap::default(),
            merges: FxHashMap::default(),
            strict: FxHashMap::default(),
            pins: FxHashMap::default(),
            listings: FxHashMap::default(),
        };
        algebra.sets.insert(Box::default());
        algebra
    }

    /// The set that asks for nothing.
    pub(crate) const EMPTY: SetId = SetId(0);

    pub(crate) fn labels(&self) -> &KnownLabels {
        &self.labels
    }

    pub(crate) fn key(&mut self, key: &str) -> Key {
        if let Some(at) = self.keys.get_index_of(key) {
            return Key(id(at));
        }
        self.well_known.push(self.labels.is_well_known(key));
        self.values.push(Interned::default());
        Key(id(self.keys.insert_full(key.to_owned()).0))
    }

    pub(crate) fn key_name(&self, key: Key) -> &str {
        &self.keys[key.0 as usize]
    }

    pub(crate) fn value_count(&self, key: Key) -> usize {
        self.values[key.0 as usize].len()
    }

    pub(crate) fn value(&mut self, key: Key, value: &str) -> Value {
        let values = &mut self.values[key.0 as usize];
        match values.get_index_of(value) {
            Some(at) => Value(id(at)),
            None => Value(id(values.insert_full(value.to_owned()).0)),
        }
    }

    pub(crate) fn value_name(&self, key: Key, value: Value) -> &str {
        &self.values[key.0 as usize][value.0 as usize]
    }

    pub(crate) fn rule(&mut self, requirement: &Requirement) -> Rule {
        if let Some(at) = self.rules.get_index_of(requirement) {
            return Rule(id(at));
        }
        let key = self.key(requirement.key());
        self.rule_keys.push(key);
        self.allowed.push((Bits::default(), 0));
        Rule(id(self.rules.insert_full(requirement.clone()).0))
    }

    pub(crate) fn requirement(&self, rule: Rule) -> &Requirement {
        &self.rules[rule.0 as usize]
    }

    pub(crate) fn key_of(&self, rule: Rule) -> Key {
        self.rule_keys[rule.0 as usize]
    }

    /// Whether the rule allows this value of its key.
    pub(crate) fn allows(&mut self, rule: Rule, value: Value) -> bool {
        let at = rule.0 as usize;
        if value.0 as usize >= self.allowed[at].1 {
            let values = &self.values[self.rule_keys[at].0 as usize];
            let (allowed, judged) = &mut self.allowed[at];
            for index in *judged..values.len() {
                if self.rules[at].has(&values[index]) {
                    allowed.insert(index);
                }
            }
            *judged = values.len();
        }
        self.allowed[at].0.contains(value.0 as usize)
    }

    pub(crate) fn set(&mut self, requirements: &Requirements) -> SetId {
        let mut entries: Vec<_> = requirements
            .iter()
            .filter(|requirement| requirement.key() != HOSTNAME)
            .map(|requirement| (self.key(requirement.key()), self.rule(requirement)))
            .collect();
        entries.sort_unstable();
        self.intern(entries)
    }

    pub(crate) fn pod_requirements(&mut self, requirements: &Requirements) -> PodRequirements {
        PodRequirements {
            set: self.set(requirements),
            hostname: requirements.get(HOSTNAME).cloned().map(Arc::new),
        }
    }

    /// The set that asks for this alone.
    pub(crate) fn only(&mut self, key: Key, rule: Rule) -> SetId {
        self.intern(vec![(key, rule)])
    }

    /// The set that asks for this value of this key.
    pub(crate) fn pin(&mut self, key: Key, value: Value) -> SetId {
        if let Some(known) = self.pins.get(&(key, value)) {
            return *known;
        }
        let pin = self.one_of(key, [value]);
        self.pins.insert((key, value), pin);
        pin
    }

    /// The set that asks for one of these values of this key.
    pub(crate) fn listing(&mut self, key: Key, values: Bits) -> SetId {
        if let Some(known) = self.listings.get(&(key, values.clone())) {
            return *known;
        }
        let listing = self.one_of(key, values.iter().map(Value::from_index).collect::<Vec<_>>());
        self.listings.insert((key, values), listing);
        listing
    }

    fn one_of(&mut self, key: Key, values: impl IntoIterator<Item = Value>) -> SetId {
        let values: Vec<_> =
            values.into_iter().map(|value| self.value_name(key, value).to_owned()).collect();
        let requirement = Requirement::is_in(self.key_name(key), values);
        let rule = self.rule(&requirement);
        self.intern(vec![(key, rule)])
    }

    /// The values that the rule lists; `None` when it lists what is excluded.
    pub(crate) fn listed(&mut self, rule: Rule) -> Option<Vec<Value>> {
        let key = self.rule_keys[rule.0 as usize];
        let listed: Vec<_> = self.requirement(rule).listed()?.to_vec();
        Some(listed.iter().map(|value| self.value(key, value)).collect())
    }

    /// The value, where the rule allows exactly one.
    pub(crate) fn only_value(&mut self, rule: Rule) -> Option<Value> {
        let key = self.rule_keys[rule.0 as usize];
        let only = self.requirement(rule).only_value()?;
        if let Some(known) = self.values[key.0 as usize].get_index_of(only) {
            return Some(Value::from_index(known));
        }
        let only = only.to_owned();
        Some(self.value(key, &only))
    }

    pub(crate) fn entries(&self, set: SetId) -> &[(Key, Rule)] {
        &self.sets[set.0 as usize]
    }

    pub(crate) fn get(&self, set: SetId, key: Key) -> Option<Rule> {
        let entries = self.entries(set);
        entries.binary_search_by_key(&key, |entry| entry.0).ok().map(|at| entries[at].1)
    }

    pub(crate) fn requirements(&self, set: SetId) -> Requirements {
        self.entries(set).iter().map(|(_, rule)| self.requirement(*rule).clone()).collect()
    }

    pub(crate) fn has_min_values(&self, set: SetId) -> bool {
        self.entries(set).iter().any(|(_, rule)| self.requirement(*rule).min_values().is_some())
    }

    /// The set with this requirement in the place of its key's.
    pub(crate) fn replaced(&mut self, set: SetId, requirement: &Requirement) -> SetId {
        let (key, rule) = (self.key(requirement.key()), self.rule(requirement));
        let mut entries = self.entries(set).to_vec();
        match entries.binary_search_by_key(&key, |entry| entry.0) {
            Ok(at) => entries[at].1 = rule,
            Err(at) => entries.insert(at, (key, rule)),
        }
        self.intern(entries)
    }

    /// Both together, if a node that is yet to be launched under `node` can serve `incoming`.
    pub(crate) fn merge(&mut self, node: SetId, incoming: SetId) -> Option<SetId> {
        if incoming == Self::EMPTY || node == incoming {
            return Some(node);
        }
        if let Some(known) = self.merges.get(&(node, incoming)) {
            return *known;
        }
        let merged = self.work_out_merge(node, incoming);
        self.merges.insert((node, incoming), merged);
        merged
    }

    /// The same for a pod's requirements, which may name the host.
    pub(crate) fn merge_pod(&mut self, node: SetId, incoming: &PodRequirements) -> Option<SetId> {
        if incoming.allows_new_host() { self.merge(node, incoming.set) } else { None }
    }

    fn work_out_merge(&mut self, node: SetId, incoming: SetId) -> Option<SetId> {
        let mut entries = self.entries(node).to_vec();
        for (key, rule) in self.entries(incoming).to_vec() {
            match entries.binary_search_by_key(&key, |entry| entry.0) {
                Ok(at) => {
                    let meet = self.meet(entries[at].1, rule);
                    if !meet.compatible {
                        return None;
                    }
                    entries[at].1 = meet.both;
                }
                Err(at) => {
                    let defined = self.well_known[key.0 as usize];
                    let requirement = self.requirement(rule);
                    if requirement.is_impossible() || !(defined || requirement.allows_absence()) {
                        return None;
                    }
                    entries.insert(at, (key, rule));
                }
            }
        }
        Some(self.intern(entries))
    }

    /// Whether everything that `incoming` asks for is settled by `node`, with no key left undefined.
    pub(crate) fn strictly_compatible(&mut self, node: SetId, incoming: SetId) -> bool {
        if let Some(known) = self.strict.get(&(node, incoming)) {
            return *known;
        }
        let compatible = self.entries(incoming).to_vec().into_iter().all(|(key, rule)| match self
            .get(node, key)
        {
            Some(own) => self.meet(own, rule).compatible,
            None => self.requirement(rule).allows_absence(),
        });
        self.strict.insert((node, incoming), compatible);
        compatible
    }

    /// Whether the keys that both name go together; keys of one side alone do not matter.
    pub(crate) fn intersects(&mut self, node: SetId, incoming: SetId) -> bool {
        self.entries(incoming).to_vec().into_iter().all(|(key, rule)| {
            self.get(node, key).is_none_or(|own| self.meet(own, rule).compatible)
        })
    }

    pub(crate) fn rules_meet(&mut self, a: Rule, b: Rule) -> bool {
        self.meet(a, b).compatible
    }

    /// What both admit.
    pub(crate) fn both(&mut self, a: Rule, b: Rule) -> Rule {
        self.meet(a, b).both
    }

    fn meet(&mut self, existing: Rule, incoming: Rule) -> Meet {
        if let Some(known) = self.meets.get(&(existing, incoming)) {
            return *known;
        }
        let (own, other) = (self.requirement(existing), self.requirement(incoming));
        let compatible = own.intersects(other) || (own.allows_absence() && other.allows_absence());
        let both = other.intersection(own);
        let meet = Meet { both: self.rule(&both), compatible };
        self.meets.insert((existing, incoming), meet);
        meet
    }

    fn intern(&mut self, entries: Vec<(Key, Rule)>) -> SetId {
        match self.sets.get_index_of(entries.as_slice()) {
            Some(at) => SetId(id(at)),
            None => SetId(id(self.sets.insert_full(entries.into_boxed_slice()).0)),
        }
    }
}

impl Key {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Value {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn from_index(index: usize) -> Self {
        Self(id(index))
    }
}

/// Ids are positions in tables that live in memory, so they fit.
pub(crate) fn id(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::labels::ZONE;
    use kerf_model::{Operator, Undefined};

    /// Every pair of a small zoo must agree with the rules on strings.
    #[test]
    fn merging_by_number_is_merging_by_rule() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        let labels = KnownLabels::default();
        let mut algebra = Algebra::new(&labels);
        let mut zoo = vec![Requirements::default()];
        for key in [ZONE, "team"] {
            for (operator, values) in [
                (In, vec!["a"]),
                (In, vec!["a", "5"]),
                (NotIn, vec!["a"]),
                (Exists, vec![]),
                (DoesNotExist, vec![]),
                (Gt, vec!["3"]),
                (Lt, vec!["3"]),
            ] {
                let one = Requirements::new([Requirement::new(key, operator, values)]);
                let with_other =
                    one.merged(&Requirements::new([Requirement::is_in("other", ["x"])]));
                zoo.push(one);
                zoo.push(with_other);
            }
        }
        for node in &zoo {
            for incoming in &zoo {
                let (a, b) = (algebra.set(node), algebra.set(incoming));
                let lenient = node.compatible(incoming, Undefined::WellKnown(&labels)).is_ok();
                let merged = algebra.merge(a, b);
                assert_eq!(merged.is_some(), lenient, "{node} + {incoming}");
                if let Some(merged) = merged {
                    assert_eq!(algebra.requirements(merged), node.merged(incoming));
                }
                let strict = node.compatible(incoming, Undefined::Refused).is_ok();
                assert_eq!(algebra.strictly_compatible(a, b), strict, "{node} + {incoming}");
                assert_eq!(algebra.intersects(a, b), node.intersects(incoming).is_ok());
            }
        }
    }

    #[test]
    fn values_that_appear_later_are_judged_too() {
        let mut algebra = Algebra::new(&KnownLabels::default());
        let key = algebra.key(ZONE);
        let rule = algebra.rule(&Requirement::new(ZONE, Operator::NotIn, ["b"]));
        let a = algebra.value(key, "a");
        assert!(algebra.allows(rule, a));
        let (b, c) = (algebra.value(key, "b"), algebra.value(key, "c"));
        assert!(!algebra.allows(rule, b) && algebra.allows(rule, c));
    }

    #[test]
    fn hostnames_stay_beside_the_set() {
        let mut algebra = Algebra::new(&KnownLabels::default());
        let asked =
            algebra.pod_requirements(&Requirements::new([Requirement::is_in(HOSTNAME, ["n"])]));
        assert_eq!(asked.set, Algebra::EMPTY);
        assert!(asked.allows_host("n") && !asked.allows_host("m") && !asked.allows_new_host());
        let asked = algebra.pod_requirements(&Requirements::new([Requirement::new(
            HOSTNAME,
            Operator::NotIn,
            ["n"],
        )]));
        assert!(!asked.allows_host("n") && asked.allows_new_host());
    }
}
