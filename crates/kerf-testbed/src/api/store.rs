//! Objects, their versions, and the log that watches read.
//!
//! One counter numbers all writes, as etcd's revision does. Each table keeps its objects in key order and a
//! log of its changes; a watch is a cursor into that log, so a change is stored once however many watch it.

use super::meta;
use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

/// An object as stored: without `apiVersion` and `kind`, which its table knows.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    pub(crate) revision: u64,
    json: OnceLock<Bytes>,
}

impl Object {
    /// An object that is shown but not stored.
    pub(crate) fn detached(value: Value, revision: u64) -> Self {
        Self { value, revision, json: OnceLock::new() }
    }

    /// The object's JSON, serialised once for all readers.
    pub(crate) fn json(&self) -> &Bytes {
        self.json.get_or_init(|| serde_json::to_vec(&self.value).unwrap_or_default().into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    pub(crate) key: Arc<str>,
    pub(crate) object: Arc<Object>,
    /// What was there before: decides what the change is to a watch that selects.
    pub(crate) before: Option<Arc<Object>>,
}

/// History kept for watches that reconnect. A real API server keeps some minutes of it.
const HISTORY: usize = 2_000;

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    log: VecDeque<Change>,
    /// Sequence number of the first entry of `log`.
    first: u64,
    /// Changes up to and including this revision are forgotten.
    compacted: u64,
    cursors: BTreeMap<u64, u64>,
    wakers: Vec<Waker>,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    revision: u64,
    tables: Vec<Table>,
    next_cursor: u64,
}

pub(crate) type TableId = usize;

impl Store {
    pub(crate) fn add_table(&mut self) -> TableId {
        self.tables.push(Table::default());
        self.tables.len() - 1
    }

    /// How many there are. None is ever taken away.
    pub(crate) fn tables(&self) -> usize {
        self.tables.len()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, table: TableId, key: &str) -> Option<&Arc<Object>> {
        self.tables[table].objects.get(key)
    }

    pub(crate) fn len(&self, table: TableId) -> usize {
        self.tables[table].objects.len()
    }

    /// All objects whose key starts with `prefix`, in key order.
    pub(crate) fn range<'a>(
        &'a self,
        table: TableId,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.tables[table]
            .objects
            .range::<str, _>(from)
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// The table as it was at `revision`; `None` when its history does not reach back so far.
    pub(crate) fn at(
        &self,
        table: TableId,
        revision: u64,
    ) -> Option<BTreeMap<Arc<str>, Arc<Object>>> {
        let table = &self.tables[table];
        if revision < table.compacted {
            return None;
        }
        let mut objects = table.objects.clone();
        for change in table.log.iter().rev().take_while(|change| change.object.revision > revision)
        {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Some(objects)
    }

    pub(crate) fn put(&mut self, table: TableId, key: &str, value: Value) -> Arc<Object> {
        let object = self.stamp(value);
        let table = &mut self.tables[table];
        let key: Arc<str> = match table.objects.get_key_value(key) {
            Some((key, _)) => key.clone(),
            None => key.into(),
        };
        let before = table.objects.insert(key.clone(), object.clone());
        let kind = if before.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        table.append(Change { kind, key, object: object.clone(), before });
        object
    }

    /// Removes an object and returns its last state, which carries the revision of its removal.
    pub(crate) fn remove(&mut self, table: TableId, key: &str) -> Option<Arc<Object>> {
        let (key, before) = self.tables[table].objects.remove_entry(key)?;
        let object = self.stamp(before.value.clone());
        let change =
            Change { kind: ChangeKind::Deleted, key, object: object.clone(), before: Some(before) };
        self.tables[table].append(change);
        Some(object)
    }

    fn stamp(&mut self, mut value: Value) -> Arc<Object> {
        self.revision += 1;
        meta::set(&mut value, "resourceVersion", self.revision.to_string());
        Arc::new(Object::detached(value, self.revision))
    }

    /// Forgets all history: watches that start from before now get 410 Gone.
    pub(crate) fn compact(&mut self) {
        for table in &mut self.tables {
            table.forget(table.log.len());
            table.compacted = self.revision;
        }
    }

    /// A cursor just after `revision`; `None` when that history is gone.
    pub(crate) fn open_cursor(&mut self, table: TableId, revision: u64) -> Option<Cursor> {
        let id = self.next_cursor;
        let table_ref = &mut self.tables[table];
        if revision < table_ref.compacted {
            return None;
        }
        let seen = table_ref.log.partition_point(|change| change.object.revision <= revision);
        table_ref.cursors.insert(id, table_ref.first + seen as u64);
        self.next_cursor += 1;
        Some(Cursor { table, id })
    }

    pub(crate) fn close_cursor(&mut self, cursor: Cursor) {
        self.tables[cursor.table].cursors.remove(&cursor.id);
    }

    /// The next change a cursor has not seen. None: `waker` is called when there is one.
    pub(crate) fn next_change(&mut self, cursor: Cursor, waker: &Waker) -> Option<&Change> {
        let table = &mut self.tables[cursor.table];
        let position = table.cursors.get_mut(&cursor.id)?;
        let index = usize::try_from(*position - table.first).unwrap_or(usize::MAX);
        if index < table.log.len() {
            *position += 1;
        } else if !table.wakers.iter().any(|w| w.will_wake(waker)) {
            table.wakers.push(waker.clone());
        }
        table.log.get(index)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    table: TableId,
    id: u64,
}

impl Table {
    fn append(&mut self, change: Change) {
        self.log.push_back(change);
        if self.log.len() > 2 * HISTORY {
            self.forget(self.log.len() - HISTORY);
        }
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// Drops the `count` oldest changes, but none that an open watch has still to read.
    fn forget(&mut self, count: usize) {
        let unread = self.cursors.values().min().map_or(u64::MAX, |position| position - self.first);
        for _ in 0..count.min(usize::try_from(unread).unwrap_or(usize::MAX)) {
            if let Some(change) = self.log.pop_front() {
                self.compacted = change.object.revision;
                self.first += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ChangeKind::{Added, Deleted, Modified};
    use serde_json::json;

    fn mk(name: &str) -> Value {
        json!({ "metadata": { "name": name } })
    }

    fn drain(store: &mut Store, cursor: Cursor) -> Vec<(ChangeKind, u64)> {
        let mut seen = Vec::new();
        while let Some(change) = store.next_change(cursor, Waker::noop()) {
            seen.push((change.kind, change.object.revision));
        }
        seen
    }

    #[test]
    fn cursors_see_each_change_once() {
        let mut store = Store::default();
        let table = store.add_table();
        store.put(table, "a", mk("a"));
        let cursor = store.open_cursor(table, 1).unwrap();
        store.put(table, "a", mk("a"));
        store.put(table, "b", mk("b"));
        store.remove(table, "a");
        assert_eq!(drain(&mut store, cursor), [(Modified, 2), (Added, 3), (Deleted, 4)]);
        assert_eq!(drain(&mut store, cursor), []);
    }

    #[test]
    fn a_past_revision_can_be_read_until_it_is_compacted() {
        let mut store = Store::default();
        let table = store.add_table();
        store.put(table, "a", mk("a"));
        store.put(table, "b", mk("b"));
        store.remove(table, "a");
        let keys = |store: &Store, revision| {
            store
                .at(table, revision)
                .map(|objects| objects.keys().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(keys(&store, 1).unwrap(), ["a"]);
        assert_eq!(keys(&store, 2).unwrap(), ["a", "b"]);
        assert_eq!(keys(&store, 3).unwrap(), ["b"]);
        store.compact();
        assert_eq!(keys(&store, 2), None);
        assert!(store.open_cursor(table, 2).is_none());
        assert!(store.open_cursor(table, 3).is_some());
    }

    #[test]
    fn history_is_bounded_but_waits_for_open_watches() {
        let mut store = Store::default();
        let table = store.add_table();
        let slow = store.open_cursor(table, 0).unwrap();
        for _ in 0..5 * HISTORY {
            store.put(table, "a", mk("a"));
        }
        assert_eq!(store.tables[table].log.len(), 5 * HISTORY);
        assert_eq!(drain(&mut store, slow).len(), 5 * HISTORY);
        store.close_cursor(slow);
        store.put(table, "a", mk("a"));
        assert_eq!(store.tables[table].log.len(), HISTORY);
    }
}
