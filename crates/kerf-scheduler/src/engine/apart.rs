//! Pods of a run that must keep apart from each other, over domains that new nodes choose from.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Engine;
use crate::algebra::{Key, Value};
use crate::class::{Base, ClassId, Owned};
use crate::refusal::{Refusal, TopologyKind};
use crate::topology::{GroupId, Place};

/// By group the classes whose pods it keeps apart, with how many pods there are of each.
pub(crate) type Contenders = FxHashMap<GroupId, FxHashMap<ClassId, u32>>;

impl Engine<'_> {
    /// Required anti-affinity of a pod to its like, over anything but hosts: of those there are always more.
    pub(super) fn apart_groups(&self, owned: &[Owned]) -> Vec<GroupId> {
        let keeps_apart = |owned: &&Owned| {
            let identity = &self.topology.groups[owned.group.index()].identity;
            owned.selects_self
                && owned.given_up.is_none()
                && identity.kind == TopologyKind::AntiAffinity
                && matches!(identity.place, Place::Label(_))
        };
        owned.iter().filter(keeps_apart).map(|owned| owned.group).collect()
    }

    pub(super) fn add_contenders<'a>(
        &self,
        to: &mut Contenders,
        classes: impl Iterator<Item = &'a Result<ClassId, Refusal>>,
    ) {
        for class in classes.filter_map(|class| class.as_ref().ok()) {
            for group in &self.classes[class.index()].spec.base.apart {
                *to.entry(*group).or_default().entry(*class).or_default() += 1;
            }
        }
    }

    /// Who keeps apart in this run: the snapshot's own pods, and those that were left behind.
    pub(super) fn meet_contenders(&mut self, left_behind: &[Result<ClassId, Refusal>]) {
        self.wanted.clear();
        self.contenders = Arc::clone(&self.pending.contenders);
        let mut classes = left_behind.iter().filter_map(|class| class.as_ref().ok());
        if classes.any(|class| !self.classes[class.index()].spec.base.apart.is_empty()) {
            let mut contenders = Contenders::clone(&self.contenders);
            self.add_contenders(&mut contenders, left_behind.iter());
            self.contenders = Arc::new(contenders);
        }
    }

    /// By domain how many pods of the run could go there, if the group keeps any two of them apart. Who can go anywhere
    /// takes what is wanted least, and leaves the rest to pods that cannot.
    pub(crate) fn wanted_domains(&mut self, group: GroupId, key: Key) -> Option<Arc<[u32]>> {
        if let Some(known) = self.wanted.get(&group) {
            return Some(Arc::clone(known));
        }
        let contenders = Arc::clone(&self.contenders);
        let contenders = contenders.get(&group)?;
        if contenders.values().sum::<u32>() < 2 {
            return None;
        }
        let mut wanted = vec![0; self.algebra.value_count(key)];
        for (class, pods) in contenders {
            let spec = Arc::clone(&self.classes[class.index()].spec);
            for (at, wanted) in wanted.iter_mut().enumerate() {
                let value = Value::from_index(at);
                let rule = self.algebra.get(spec.strict.set, key);
                let allowed = rule.is_none_or(|rule| self.algebra.allows(rule, value));
                if allowed && self.volumes_allow(&spec.base, key, value) {
                    *wanted += pods;
                }
            }
        }
        let wanted: Arc<[u32]> = wanted.into();
        self.wanted.insert(group, Arc::clone(&wanted));
        Some(wanted)
    }

    fn volumes_allow(&mut self, base: &Base, key: Key, value: Value) -> bool {
        base.alternatives.is_empty()
            || base.alternatives.iter().any(|alternative| {
                let rule = self.algebra.get(alternative.set, key);
                rule.is_none_or(|rule| self.algebra.allows(rule, value))
            })
    }
}
