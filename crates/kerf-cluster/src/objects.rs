//! The objects of one kind, as the last watch event left them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// Namespace and name; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: String::new(), name: name.into() }
    }

    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// An object before and after a change; both are never absent.
#[derive(Debug)]
pub struct Delta<K> {
    pub key: Key,
    pub before: Option<Arc<K>>,
    pub after: Option<Arc<K>>,
}

impl<K> Delta<K> {
    /// The object as it is now, or as it was last if it is gone.
    pub fn either(&self) -> Option<&Arc<K>> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// All objects of one kind, in the order of their keys.
///
/// A watch begins with a list, and may begin anew when the server has forgotten where it was. Objects that
/// vanished in between produce no event, so `begin_list` and `end_list` bracket a list, and what was not in it goes.
#[derive(Debug)]
pub struct Objects<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Not seen yet in the list that is under way.
    unseen: BTreeSet<Key>,
    listed: bool,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), unseen: BTreeSet::new(), listed: false }
    }
}

impl<K> Objects<K> {
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// A cluster-scoped object.
    pub fn named(&self, name: &str) -> Option<&Arc<K>> {
        self.objects.get(&Key::cluster(name))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<K>)> {
        self.objects.iter()
    }

    pub fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// Whether a whole list has been seen at least once.
    pub fn listed(&self) -> bool {
        self.listed
    }

    pub fn begin_list(&mut self) {
        self.unseen = self.objects.keys().cloned().collect();
    }

    /// Ends a list; returns the objects that were not in it.
    pub fn end_list(&mut self) -> Vec<Delta<K>> {
        self.listed = true;
        let gone = std::mem::take(&mut self.unseen);
        gone.into_iter().filter_map(|key| self.delete(key)).collect()
    }

    pub fn apply(&mut self, key: Key, object: K) -> Delta<K> {
        self.unseen.remove(&key);
        let after = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&after));
        Delta { key, before, after: Some(after) }
    }

    pub fn delete(&mut self, key: Key) -> Option<Delta<K>> {
        self.unseen.remove(&key);
        let before = self.objects.remove(&key)?;
        Some(Delta { key, before: Some(before), after: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_list_does_not_hold_is_gone() {
        let mut objects = Objects::default();
        for name in ["a", "b", "c"] {
            objects.apply(Key::cluster(name), 1);
        }
        objects.begin_list();
        objects.apply(Key::cluster("b"), 2);
        let gone: Vec<_> = objects.end_list().into_iter().map(|delta| delta.key.name).collect();
        assert_eq!(gone, ["a", "c"]);
        assert_eq!(objects.named("b").map(|b| **b), Some(2));
        assert!(objects.named("a").is_none());
    }

    #[test]
    fn deleting_what_is_not_there_changes_nothing() {
        let mut objects = Objects::<u8>::default();
        assert!(objects.delete(Key::namespaced("ns", "a")).is_none());
    }
}
