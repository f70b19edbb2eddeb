//! The API for those who live in the same process: reads without copies, and watches without JSON.

use super::resources::Resource;
use super::store::{ChangeKind, Cursor, Object};
use super::{Api, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A change as a watch tells of it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) resource: Arc<Resource>,
    pub(crate) key: Arc<str>,
    /// The object now, or the last that was known of it.
    pub(crate) object: Arc<Object>,
    pub(crate) before: Option<Arc<Object>>,
    pub(crate) gone: bool,
}

impl Seen {
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.resource.is(group, plural)
    }
}

/// A watch on several resources, in the order in which things happened.
#[derive(Debug)]
pub(crate) struct Feed {
    api: Api,
    wanted: Wanted,
    /// By table: resources of several versions share one.
    cursors: BTreeMap<usize, (Arc<Resource>, Cursor)>,
    /// How many tables there were when it looked for new ones. A feed is asked very often, and tables are made rarely.
    tables: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    These(&'static [(&'static str, &'static str)]),
    /// All that is served, custom resources that are defined later included. Events have no part in anything.
    Everything,
}

impl Wanted {
    fn includes(self, resource: &Resource) -> bool {
        match self {
            Self::These(list) => list.iter().any(|(group, plural)| resource.is(group, plural)),
            Self::Everything => resource.plural != "events",
        }
    }
}

impl Feed {
    pub(crate) fn new(api: Api, wanted: Wanted) -> Self {
        Self { api, wanted, cursors: BTreeMap::new(), tables: 0 }
    }

    /// All changes since the last time; what is there at the first time counts as added. Ready when there are any.
    pub(crate) fn poll_changes(&mut self, context: &Context<'_>) -> Poll<Vec<Seen>> {
        let api = self.api.clone();
        let mut state = api.state();
        let mut changes = Vec::new();
        self.open_missing(&mut state, &mut changes);
        for (resource, cursor) in self.cursors.values() {
            while let Some(change) = state.store.next_change(*cursor, context.waker()) {
                changes.push(Seen {
                    resource: resource.clone(),
                    key: change.key.clone(),
                    object: change.object.clone(),
                    before: change.before.clone(),
                    gone: change.kind == ChangeKind::Deleted,
                });
            }
        }
        changes.sort_by_key(|seen| seen.object.revision);
        if changes.is_empty() { Poll::Pending } else { Poll::Ready(changes) }
    }

    fn open_missing(&mut self, state: &mut State, changes: &mut Vec<Seen>) {
        let tables = state.store.tables();
        if std::mem::replace(&mut self.tables, tables) == tables {
            return;
        }
        let wanted = state.resources.iter().filter(|resource| {
            self.wanted.includes(resource) && !self.cursors.contains_key(&resource.table)
        });
        let missing: Vec<_> = wanted.cloned().collect();
        let now = state.store.revision();
        for resource in missing {
            let Some(cursor) = state.store.open_cursor(resource.table, now) else { continue };
            changes.extend(state.store.range(resource.table, "").map(|(key, object)| Seen {
                resource: resource.clone(),
                key: key.clone(),
                object: object.clone(),
                before: None,
                gone: false,
            }));
            self.cursors.insert(resource.table, (resource, cursor));
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut state = self.api.state();
        self.cursors.values().for_each(|(_, cursor)| state.store.close_cursor(*cursor));
    }
}

impl Api {
    /// An object as it is now.
    pub(crate) fn read(&self, group: &str, plural: &str, key: &str) -> Option<Arc<Object>> {
        let state = self.state();
        let resource = state.resources.find(group, "v1", plural)?;
        state.store.get(resource.table, key).cloned()
    }

    /// All objects of a resource whose key starts with `prefix`.
    pub(crate) fn read_all(&self, group: &str, plural: &str, prefix: &str) -> Vec<Arc<Object>> {
        let state = self.state();
        let Some(resource) = state.resources.find(group, "v1", plural) else { return Vec::new() };
        state.store.range(resource.table, prefix).map(|(_, object)| object.clone()).collect()
    }

    /// What lives in a namespace.
    pub(crate) fn inhabitants(&self, namespace: &str) -> Vec<(Arc<Resource>, Arc<Object>)> {
        let state = self.state();
        let prefix = format!("{namespace}/");
        let mut found = Vec::new();
        let resources = state.resources.iter();
        for resource in resources.filter(|r| r.namespaced && r.group != super::event::GROUP) {
            let objects = state.store.range(resource.table, &prefix);
            found.extend(objects.map(|(_, object)| (resource.clone(), object.clone())));
        }
        found
    }
}
