//! Objects whose owners are gone, and namespaces on their way out.

use super::Actor;
use super::desk::{Deletion, Desk, NAMESPACES};
use crate::api::{Object, Resource, Seen, Wanted, meta};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

type Uid = Arc<str>;

#[derive(Debug, Default)]
pub(super) struct Garbage {
    known: BTreeMap<Uid, (Arc<Resource>, Arc<Object>)>,
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
    /// To be looked at: whether their owners still exist.
    suspects: BTreeSet<Uid>,
    /// Being deleted, with a finalizer of ours.
    leaving: BTreeSet<Uid>,
    namespaces: BTreeSet<Arc<str>>,
}

impl Garbage {
    fn see_object(&mut self, seen: &Seen) {
        let value = &seen.object.value;
        let uid: Uid = meta::uid(value).into();
        if let Some((_, before)) = self.known.get(&uid).cloned() {
            for owner in owners(&before.value) {
                if let Some(dependents) = self.dependents.get_mut(owner) {
                    dependents.remove(&uid);
                    if dependents.is_empty() {
                        self.dependents.remove(owner);
                    }
                }
                // The owner may have waited for this one.
                if seen.gone
                    && self.known.get(owner).is_some_and(|(_, o)| meta::is_deleting(&o.value))
                {
                    self.leaving.insert(owner.into());
                }
            }
        }
        if seen.gone {
            self.known.remove(&uid);
            self.leaving.remove(&uid);
            self.suspects.remove(&uid);
            self.suspects.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            return;
        }
        for owner in owners(value) {
            self.dependents.entry(owner.into()).or_default().insert(uid.clone());
            self.suspects.insert(uid.clone());
        }
        if meta::is_deleting(value)
            && meta::finalizers(value).iter().any(|f| *f == FOREGROUND || *f == ORPHAN)
        {
            self.leaving.insert(uid.clone());
        }
        self.known.insert(uid, (seen.resource.clone(), seen.object.clone()));
    }

    /// Deletes an object all of whose owners are gone; of several, those that are gone are forgotten.
    fn check_owners(&self, uid: &Uid, desk: &Desk) {
        let Some((resource, object)) = self.known.get(uid) else { return };
        let value = &object.value;
        if meta::is_deleting(value) {
            return;
        }
        let all: Vec<_> = owners(value).collect();
        let solid = all.iter().filter(|owner| self.known.contains_key(**owner)).count();
        // What the API server refuses here is refused because someone else was first.
        if all.is_empty() || solid == all.len() {
            return;
        }
        if solid == 0 {
            let how = if meta::finalizers(value).contains(&FOREGROUND) {
                Deletion::Foreground
            } else {
                Deletion::Background
            };
            let _ = desk.delete_any(resource, value, how);
        } else {
            let _ =
                Self::drop_owners(resource, value, desk, |owner| !self.known.contains_key(owner));
        }
    }

    fn drop_owners(
        resource: &Resource,
        value: &Value,
        desk: &Desk,
        unwanted: impl Fn(&str) -> bool,
    ) -> Result<(), super::Refusal> {
        let mut value = value.clone();
        let list = meta::field(&value, "ownerReferences").as_array().cloned().unwrap_or_default();
        let kept: Vec<_> =
            list.into_iter().filter(|owner| !unwanted(meta::text(owner, &["uid"]))).collect();
        meta::set(&mut value, "ownerReferences", kept);
        desk.update_any(resource, &value)
    }

    /// Brings a deletion with a finalizer of ours one step further.
    fn advance(&self, uid: &Uid, desk: &Desk) {
        let Some((resource, object)) = self.known.get(uid) else { return };
        let value = &object.value;
        let finalizers = meta::finalizers(value);
        let dependents = self.dependents.get(uid).into_iter().flatten();
        let dependents: Vec<_> = dependents.filter_map(|uid| self.known.get(uid)).collect();
        if finalizers.contains(&ORPHAN) {
            for (kind, dependent) in dependents {
                let _ = Self::drop_owners(kind, &dependent.value, desk, |owner| owner == &**uid);
            }
            let _ = drop_finalizer(resource, value, ORPHAN, desk);
            return;
        }
        if !finalizers.contains(&FOREGROUND) {
            return;
        }
        let mut blocked = false;
        for (kind, dependent) in dependents {
            blocked |= blocks(&dependent.value, uid);
            let others = owners(&dependent.value).filter(|owner| *owner != &**uid);
            let is_shared = others.into_iter().any(|owner| self.known.contains_key(owner));
            if !meta::is_deleting(&dependent.value) && !is_shared {
                let _ = desk.delete_any(kind, &dependent.value, Deletion::Foreground);
            }
        }
        if !blocked {
            let _ = drop_finalizer(resource, value, FOREGROUND, desk);
        }
    }

    /// Empties a namespace, and lets it go when it is empty. False: it has still to be watched.
    fn empty_namespace(name: &str, desk: &Desk) -> bool {
        let Some(namespace) = desk.get(NAMESPACES, name) else { return true };
        let inhabitants = desk.api.inhabitants(name);
        if inhabitants.is_empty() {
            let mut value = namespace.value.clone();
            meta::map_mut(&mut value).insert("spec".into(), json!({ "finalizers": [] }));
            return desk.finalize(&value).is_ok();
        }
        for (resource, object) in inhabitants {
            if !meta::is_deleting(&object.value) {
                let _ = desk.delete_any(&resource, &object.value, Deletion::Background);
            }
        }
        false
    }
}

impl Actor for Garbage {
    fn watches(&self) -> Wanted {
        Wanted::Everything
    }

    fn see(&mut self, seen: &Seen, _: &Desk) {
        self.see_object(seen);
        if seen.is("", "namespaces") {
            if !seen.gone && meta::is_deleting(&seen.object.value) {
                self.namespaces.insert(seen.key.clone());
            } else {
                self.namespaces.remove(&seen.key);
            }
        }
    }

    fn act(&mut self, desk: &Desk) -> Option<Timestamp> {
        for uid in std::mem::take(&mut self.leaving) {
            self.advance(&uid, desk);
        }
        for uid in std::mem::take(&mut self.suspects) {
            self.check_owners(&uid, desk);
        }
        let mut namespaces = std::mem::take(&mut self.namespaces);
        namespaces.retain(|name| !Self::empty_namespace(name, desk));
        self.namespaces = namespaces;
        None
    }
}

fn owners(value: &Value) -> impl Iterator<Item = &str> {
    let list = meta::field(value, "ownerReferences").as_array().into_iter().flatten();
    list.map(|owner| meta::text(owner, &["uid"]))
}

fn blocks(dependent: &Value, owner: &str) -> bool {
    let list = meta::field(dependent, "ownerReferences").as_array().into_iter().flatten();
    let mut list = list.filter(|reference| meta::text(reference, &["uid"]) == owner);
    list.any(|reference| reference["blockOwnerDeletion"] == true)
}

fn drop_finalizer(
    resource: &Resource,
    value: &Value,
    finalizer: &str,
    desk: &Desk,
) -> Result<(), super::Refusal> {
    let mut value = value.clone();
    let left: Vec<String> = meta::finalizers(&value)
        .iter()
        .filter(|f| **f != finalizer)
        .map(|f| (*f).to_owned())
        .collect();
    meta::set(&mut value, "finalizers", left);
    desk.update_any(resource, &value)
}
