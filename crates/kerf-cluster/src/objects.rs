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

    /// Before and after.
    pub(crate) fn both(&self) -> [Option<&K>; 2] {
        [self.before.as_deref(), self.after.as_deref()]
    }
}

/// An object that is only known from a write of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubtful {
    pub key: Key,
    version: u64,
}

/// All objects of one kind, in the order of their keys.
///
/// A watch begins with a list, and may begin anew when the server has forgotten where it was. Objects that
/// vanished in between produce no event, so `begin_list` and `end_list` bracket a list, and what was not in it goes.
///
/// What the operator itself writes is known before the watch tells it, and [`Objects::anticipate`] puts it here, so that
/// the next decision does not rest on a world without it. Resource versions, which Kubernetes guarantees to be
/// comparable numbers within a kind, keep the two sources apart: the older never overwrites the newer, and a write that
/// the watch has already gone past is not taken in, because the object may since have been deleted.
#[derive(Debug)]
pub struct Objects<K> {
    by_key: BTreeMap<Key, (u64, Arc<K>)>,
    /// The highest resource version that the watch has brought.
    watched_to: u64,
    /// Not seen yet in the list that is under way.
    unseen: BTreeSet<Key>,
    listed: bool,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), watched_to: 0, unseen: BTreeSet::new(), listed: false }
    }
}

impl<K> Objects<K> {
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.by_key.get(key).map(|(_, object)| object)
    }

    /// A cluster-scoped object.
    pub fn named(&self, name: &str) -> Option<&Arc<K>> {
        self.get(&Key::cluster(name))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<K>)> {
        self.by_key.iter().map(|(key, (_, object))| (key, object))
    }

    pub fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.by_key.values().map(|(_, object)| object)
    }

    pub(crate) fn arrivals(&self) -> impl Iterator<Item = Delta<K>> {
        self.iter().map(|(key, object)| Delta {
            key: key.clone(),
            before: None,
            after: Some(Arc::clone(object)),
        })
    }

    /// Whether a whole list has been seen at least once.
    pub fn listed(&self) -> bool {
        self.listed
    }

    pub fn begin_list(&mut self) {
        self.unseen = self.by_key.keys().cloned().collect();
    }

    /// Ends a list; returns the objects that were not in it. Writes of ours that are younger than anything in the list stay,
    /// in doubt: the list may be older than they are, or they may have gone before it was made.
    pub fn end_list(&mut self) -> (Vec<Delta<K>>, Vec<Doubtful>) {
        self.listed = true;
        let (mut gone, mut doubtful) = (Vec::new(), Vec::new());
        for key in std::mem::take(&mut self.unseen) {
            match self.by_key.get(&key) {
                Some((version, _)) if *version > self.watched_to => {
                    doubtful.push(Doubtful { key, version: *version });
                }
                _ => gone.extend(self.remove(key)),
            }
        }
        (gone, doubtful)
    }

    /// The object turned out not to exist. `None`: something newer has come meanwhile.
    pub fn refute(&mut self, doubtful: Doubtful) -> Option<Delta<K>> {
        let (version, _) = self.by_key.get(&doubtful.key)?;
        if *version == doubtful.version { self.remove(doubtful.key) } else { None }
    }

    /// Takes an object from the watch. `None`: what is here is newer.
    pub fn apply(&mut self, key: Key, version: u64, object: K) -> Option<Delta<K>> {
        self.watched_to = self.watched_to.max(version);
        self.unseen.remove(&key);
        self.put(key, version, object)
    }

    /// Notes that the watch has come this far, with an object that is not kept here.
    pub fn pass_over(&mut self, version: u64) {
        self.watched_to = self.watched_to.max(version);
    }

    /// Takes what the server answered to a write of ours. `None`: the watch knows it already, or something newer.
    pub fn anticipate(&mut self, key: Key, version: u64, object: K) -> Option<Delta<K>> {
        if version <= self.watched_to { None } else { self.put(key, version, object) }
    }

    pub fn delete(&mut self, key: Key, version: u64) -> Option<Delta<K>> {
        self.watched_to = self.watched_to.max(version);
        self.remove(key)
    }

    fn put(&mut self, key: Key, version: u64, object: K) -> Option<Delta<K>> {
        if self.by_key.get(&key).is_some_and(|(stored, _)| version < *stored) {
            return None;
        }
        let after = Arc::new(object);
        let before = self.by_key.insert(key.clone(), (version, Arc::clone(&after)));
        Some(Delta { key, before: before.map(|(_, object)| object), after: Some(after) })
    }

    fn remove(&mut self, key: Key) -> Option<Delta<K>> {
        self.unseen.remove(&key);
        let (_, before) = self.by_key.remove(&key)?;
        Some(Delta { key, before: Some(before), after: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::cluster(name)
    }

    fn get(objects: &Objects<u64>, name: &str) -> Option<u64> {
        objects.named(name).map(|object| **object)
    }

    #[test]
    fn what_a_new_list_does_not_hold_is_gone() {
        let mut objects = Objects::default();
        for name in ["a", "b", "c"] {
            objects.apply(key(name), 1, 1);
        }
        objects.begin_list();
        objects.apply(key("b"), 2, 2);
        let (gone, doubtful) = objects.end_list();
        let gone: Vec<_> = gone.into_iter().map(|delta| delta.key.name).collect();
        assert_eq!((gone, doubtful), (vec!["a".into(), "c".into()], Vec::new()));
        assert_eq!(get(&objects, "b"), Some(2));
        assert_eq!(get(&objects, "a"), None);
    }

    #[test]
    fn a_new_list_keeps_what_we_wrote_after_it() {
        let mut objects = Objects::default();
        objects.apply(key("a"), 1, 1);
        objects.begin_list();
        objects.apply(key("a"), 1, 1);
        objects.anticipate(key("b"), 2, 2);
        objects.begin_list();
        objects.apply(key("a"), 1, 1);
        let (gone, doubtful) = objects.end_list();
        assert!(gone.is_empty());
        assert_eq!(get(&objects, "b"), Some(2));
        let [in_doubt] = doubtful.as_slice() else { panic!("{doubtful:?}") };
        objects.apply(key("b"), 3, 3);
        assert!(objects.refute(in_doubt.clone()).is_none(), "the watch has brought it");
        let mut objects = Objects::default();
        objects.anticipate(key("b"), 2, 2);
        assert!(objects.refute(in_doubt.clone()).is_some());
        assert_eq!(get(&objects, "b"), None);
    }

    #[test]
    fn deleting_what_is_not_there_changes_nothing() {
        let mut objects = Objects::<u8>::default();
        assert!(objects.delete(Key::namespaced("ns", "a"), 1).is_none());
    }

    #[test]
    fn the_older_never_overwrites_the_newer() {
        let mut objects = Objects::default();
        objects.apply(key("a"), 5, 5);
        assert!(objects.anticipate(key("a"), 7, 7).is_some());
        assert!(objects.apply(key("a"), 6, 6).is_none(), "the watch lags behind our own write");
        assert_eq!(get(&objects, "a"), Some(7));
        assert!(objects.apply(key("a"), 7, 7).is_some());
    }

    #[test]
    fn a_write_that_the_watch_has_passed_does_not_bring_back_the_dead() {
        let mut objects = Objects::default();
        objects.apply(key("a"), 5, 5);
        objects.delete(key("a"), 9);
        assert!(objects.anticipate(key("a"), 7, 7).is_none());
        assert_eq!(get(&objects, "a"), None);
        assert!(objects.anticipate(key("a"), 10, 10).is_some(), "a new object of the same name");
    }
}
