//! The objects of one kind, as the last watch event left them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use kerf_api::Unreadable;

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

/// An object that is younger than the list that should have told of it: it is known from a write of ours, or from a history
/// that was put back.
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
///
/// Versions can go back, when etcd is restored from a backup. A list says at which revision it was made. One that is older
/// than what was seen before is the beginning of another history, and what it says holds against anything that is known.
#[derive(Debug)]
pub struct Objects<K> {
    by_key: BTreeMap<Key, (u64, Arc<K>)>,
    /// Those that could be read in part or not at all.
    unreadable: BTreeMap<Key, Unreadable>,
    /// Those that are there and are not kept here.
    passed_over: BTreeSet<Key>,
    /// The highest resource version that the watch has brought.
    watched_to: u64,
    list: Option<List>,
    listed: bool,
}

/// A list that is under way.
#[derive(Debug)]
struct List {
    revision: u64,
    /// It is older than what was seen before it.
    goes_back: bool,
    unseen: BTreeSet<Key>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            passed_over: BTreeSet::new(),
            watched_to: 0,
            list: None,
            listed: false,
        }
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

    /// Whether a whole list has been seen at least once in this history.
    pub fn listed(&self) -> bool {
        self.listed
    }

    /// Another history has begun: what is here may be of the one before, until the next list has ended.
    pub(crate) fn distrust(&mut self) {
        self.listed = false;
    }

    /// Begins a list that was made at this revision.
    pub fn begin_list(&mut self, revision: u64) {
        // A list that broke off has already taken the revision back, and not yet the objects.
        let broke_off = self.list.as_ref().is_some_and(|list| list.goes_back);
        let goes_back = revision < self.watched_to || broke_off;
        self.watched_to = revision;
        self.list =
            Some(List { revision, goes_back, unseen: self.by_key.keys().cloned().collect() });
    }

    /// Ends a list; returns the objects that were not in it. Those that are younger than the list stay, in doubt: the list may
    /// be older than a write of ours, or they may have gone before it was made.
    pub fn end_list(&mut self) -> (Vec<Delta<K>>, Vec<Doubtful>) {
        self.listed = true;
        let (mut gone, mut doubtful) = (Vec::new(), Vec::new());
        let Some(list) = self.list.take() else { return (gone, doubtful) };
        for key in list.unseen {
            match self.by_key.get_mut(&key) {
                Some((version, _)) if *version > list.revision => {
                    if list.goes_back {
                        // Its version is one of the other history: whatever comes now is newer.
                        *version = list.revision;
                    }
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

    /// The server was asked for an object in doubt, and this is it. `None`: something newer has come meanwhile.
    pub fn confirm(&mut self, doubtful: Doubtful, version: u64, object: K) -> Option<Delta<K>> {
        let (stored, _) = self.by_key.get_mut(&doubtful.key)?;
        if *stored != doubtful.version {
            return None;
        }
        *stored = 0;
        self.put(doubtful.key, version, object)
    }

    /// Takes an object from the watch or from a list. `None`: what is here is newer.
    pub fn apply(&mut self, key: Key, version: u64, object: K) -> Option<Delta<K>> {
        self.watched_to = self.watched_to.max(version);
        if let Some(list) = &mut self.list {
            list.unseen.remove(&key);
            // The list is the truth about everything that is not younger than itself.
            if let Some((stored, _)) = self.by_key.get_mut(&key)
                && (list.goes_back || *stored <= list.revision)
            {
                *stored = version.min(*stored);
            }
        }
        self.put(key, version, object)
    }

    /// Notes that the watch has come this far, with an object that is not kept here; says whether that is new.
    pub fn pass_over(&mut self, key: Key, version: u64) -> bool {
        self.watched_to = self.watched_to.max(version);
        self.passed_over.insert(key)
    }

    /// Which part of the object could not be read, if any.
    pub fn unreadable(&self, key: &Key) -> Option<&Unreadable> {
        self.unreadable.get(key)
    }

    /// All that could not be read as a whole.
    pub fn all_unreadable(&self) -> &BTreeMap<Key, Unreadable> {
        &self.unreadable
    }

    /// Notes how much of the object could be read. True: that is new.
    pub(crate) fn mark(&mut self, key: &Key, unreadable: Option<Unreadable>) -> bool {
        if self.unreadable.get(key) == unreadable.as_ref() {
            return false;
        }
        match unreadable {
            Some(unreadable) => self.unreadable.insert(key.clone(), unreadable),
            None => self.unreadable.remove(key),
        };
        true
    }

    /// The object exists, and nothing of it could be read: what was known of it stays.
    pub(crate) fn keep(&mut self, key: &Key) -> Option<Delta<K>> {
        if let Some(list) = &mut self.list {
            list.unseen.remove(key);
        }
        let known = self.get(key)?;
        let (before, after) = (Some(Arc::clone(known)), Some(Arc::clone(known)));
        Some(Delta { key: key.clone(), before, after })
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
        if let Some(list) = &mut self.list {
            list.unseen.remove(&key);
        }
        self.unreadable.remove(&key);
        self.passed_over.remove(&key);
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
        objects.begin_list(2);
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
        objects.begin_list(1);
        objects.apply(key("a"), 1, 1);
        objects.anticipate(key("b"), 2, 2);
        objects.begin_list(1);
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

    #[test]
    fn after_a_restore_the_new_list_is_believed() {
        let mut objects = Objects::default();
        objects.begin_list(900);
        for (name, version) in [("kept", 500), ("changed", 800), ("created", 850)] {
            objects.apply(key(name), version, version);
        }
        objects.end_list();
        objects.apply(key("changed"), 950, 950);
        objects.anticipate(key("written"), 960, 960);
        // The backup was made at 700, when `changed` was at 600 and the others had yet to come.
        objects.begin_list(705);
        objects.apply(key("kept"), 500, 500);
        objects.apply(key("changed"), 600, 600);
        let (gone, doubtful) = objects.end_list();
        assert_eq!(get(&objects, "changed"), Some(600));
        assert_eq!(gone.len(), 0, "the server is asked for what is younger than the list");
        let in_doubt: Vec<_> = doubtful.iter().map(|one| one.key.name.as_str()).collect();
        assert_eq!(in_doubt, ["created", "written"]);
        assert!(objects.apply(key("created"), 706, 706).is_some(), "it was created again");
        assert!(objects.refute(doubtful[0].clone()).is_none(), "and is another now");
        assert!(objects.refute(doubtful[1].clone()).is_some());
        assert!(objects.anticipate(key("kept"), 710, 710).is_some(), "writes are taken in again");
        assert_eq!(get(&objects, "kept"), Some(710));
    }

    #[test]
    fn a_list_that_broke_off_does_not_make_the_next_one_doubtful() {
        let mut objects = Objects::default();
        objects.begin_list(900);
        objects.apply(key("a"), 900, 900);
        objects.end_list();
        objects.begin_list(705);
        // Its second page never came.
        objects.begin_list(706);
        objects.apply(key("a"), 600, 600);
        objects.end_list();
        assert_eq!(get(&objects, "a"), Some(600));
    }

    /// By the time of the next list the restored history may have gone past the revision where the watch broke off.
    #[test]
    fn a_restore_that_was_overtaken_is_believed_as_well() {
        let mut objects = Objects::default();
        objects.begin_list(900);
        objects.apply(key("a"), 900, 900);
        objects.end_list();
        objects.begin_list(1000);
        objects.apply(key("a"), 500, 500);
        objects.end_list();
        assert_eq!(get(&objects, "a"), Some(500));
    }

    #[test]
    fn a_list_does_not_undo_a_write_that_is_younger() {
        let mut objects = Objects::default();
        objects.begin_list(10);
        objects.apply(key("a"), 5, 5);
        objects.anticipate(key("a"), 12, 12);
        objects.end_list();
        objects.begin_list(11);
        objects.apply(key("a"), 5, 5);
        objects.end_list();
        assert_eq!(get(&objects, "a"), Some(12));
    }

    #[test]
    fn what_is_asked_for_in_doubt_holds() {
        let mut objects = Objects::default();
        objects.anticipate(key("a"), 20, 20);
        objects.begin_list(10);
        let (_, doubtful) = objects.end_list();
        assert!(objects.confirm(doubtful[0].clone(), 11, 11).is_some());
        assert_eq!(get(&objects, "a"), Some(11));
        assert!(objects.confirm(doubtful[0].clone(), 11, 11).is_none(), "it is no longer in doubt");
    }
}
