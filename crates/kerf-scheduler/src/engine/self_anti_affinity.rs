//! Required anti-affinity of pods to their like: pods of a run that keep apart from each other, over domains that new nodes
//! choose from.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Engine;
use crate::algebra::{Key, Value};
use crate::class::{Base, ClassId, Owned};
use crate::refusal::{Refusal, TopologyKind};
use crate::topology::{GroupId, TopologyKey};

/// By group the classes whose pods it keeps apart, with how many pods there are of each.
pub(crate) type SelfAntiAffinity = FxHashMap<GroupId, FxHashMap<ClassId, u32>>;

impl Engine<'_> {
    /// Required anti-affinity of a pod to its like, over anything but hosts: of those there are always more.
    pub(super) fn self_anti_affinity_groups(&self, owned: &[Owned]) -> Vec<GroupId> {
        let keeps_apart = |owned: &&Owned| {
            let identity = &self.topology.groups[owned.group.index()].identity;
            owned.selects_self
                && owned.given_up.is_none()
                && identity.kind == TopologyKind::AntiAffinity
                && matches!(identity.topology_key, TopologyKey::Label(_))
        };
        owned.iter().filter(keeps_apart).map(|owned| owned.group).collect()
    }

    pub(super) fn add_self_anti_affinity<'a>(
        &self,
        to: &mut SelfAntiAffinity,
        classes: impl Iterator<Item = &'a Result<ClassId, Refusal>>,
    ) {
        for class in classes.filter_map(|class| class.as_ref().ok()) {
            for group in &self.classes[class.index()].spec.base.self_anti_affinity {
                *to.entry(*group).or_default().entry(*class).or_default() += 1;
            }
        }
    }

    /// The pods that keep apart in this run: the snapshot's own pods, and those that were left behind.
    pub(super) fn begin_self_anti_affinity(&mut self, left_behind: &[Result<ClassId, Refusal>]) {
        self.wanted.clear();
        self.self_anti_affinity = Arc::clone(&self.pending.real.self_anti_affinity);
        let mut classes = left_behind.iter().filter_map(|class| class.as_ref().ok());
        if classes.any(|class| !self.classes[class.index()].spec.base.self_anti_affinity.is_empty())
        {
            let mut all = SelfAntiAffinity::clone(&self.self_anti_affinity);
            self.add_self_anti_affinity(&mut all, left_behind.iter());
            self.self_anti_affinity = Arc::new(all);
        }
    }

    /// From now on the virtual pods keep apart: every other pod has its place.
    pub(super) fn begin_self_anti_affinity_of_buffers(&mut self) {
        self.wanted.clear();
        self.self_anti_affinity = Arc::clone(&self.pending.of_buffers.self_anti_affinity);
    }

    /// By domain how many pods of the run could go there, if the group keeps any two of them apart. A pod that can go
    /// anywhere takes what is wanted least, and leaves the rest to pods that cannot.
    pub(crate) fn wanted_domains(&mut self, group: GroupId, key: Key) -> Option<Arc<[u32]>> {
        if let Some(known) = self.wanted.get(&group) {
            return Some(Arc::clone(known));
        }
        let all = Arc::clone(&self.self_anti_affinity);
        let classes = all.get(&group)?;
        if classes.values().sum::<u32>() < 2 {
            return None;
        }
        let mut wanted = vec![0; self.algebra.value_count(key)];
        for (class, pods) in classes {
            let spec = Arc::clone(&self.classes[class.index()].spec);
            for (at, wanted) in wanted.iter_mut().enumerate() {
                let value = Value::from_index(at);
                let rule = self.algebra.get(spec.strict_requirements.set, key);
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
        base.volume_requirements.is_empty()
            || base.volume_requirements.iter().any(|alternative| {
                let rule = self.algebra.get(alternative.set, key);
                rule.is_none_or(|rule| self.algebra.allows(rule, value))
            })
    }
}
