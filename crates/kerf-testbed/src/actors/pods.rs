//! What several actors ask about a pod, and how a workload makes one.

use super::desk::Kind;
use crate::api::{Object, Seen, meta};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) fn phase(pod: &Value) -> &str {
    meta::text(pod, &["status", "phase"])
}

pub(super) fn is_finished(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Counts towards the replicas of its workload.
pub(super) fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !meta::is_deleting(pod)
}

pub(super) fn node_name(pod: &Value) -> &str {
    meta::text(pod, &["spec", "nodeName"])
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = meta::at(object, &["status", "conditions"]).as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
}

pub(super) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
}

/// Since when a pod has been ready for `least` seconds; `None` when it is not ready at all.
pub(super) fn available_from(pod: &Value, least: i64) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready["status"] == "True")?;
    let since = meta::parse_time(&ready["lastTransitionTime"])?;
    Some(since + jiff::SignedDuration::from_secs(least))
}

/// Puts a condition into a status. The transition time moves only with the condition's status.
pub(super) fn set_condition(status: &mut Value, mut condition: Value, now: &str) {
    let list = meta::map_mut(status).entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    let found = list.iter_mut().find(|known| known["type"] == condition["type"]);
    let since = match &found {
        Some(known) if known["status"] == condition["status"] => {
            known["lastTransitionTime"].clone()
        }
        _ => now.into(),
    };
    condition["lastTransitionTime"] = since;
    match found {
        Some(known) => {
            // What the condition says besides is left alone: probe and heartbeat times, for instance.
            for (key, value) in meta::map_mut(&mut condition).iter() {
                meta::map_mut(known).insert(key.clone(), value.clone());
            }
        }
        None => list.push(condition),
    }
}

/// The owner that controls an object: kind, name, uid.
pub(super) fn controller(object: &Value) -> Option<(&str, &str, &str)> {
    let owners = meta::field(object, "ownerReferences").as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some((meta::text(owner, &["kind"]), meta::text(owner, &["name"]), meta::text(owner, &["uid"])))
}

pub(super) fn owner_reference(kind: Kind, owner: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version(), "kind": kind.name, "name": meta::name(owner), "uid": meta::uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// A pod as a workload's template describes it, without a name.
pub(super) fn from_template(kind: Kind, owner: &Value, template: &Value) -> Value {
    let mut metadata = Map::new();
    for key in ["labels", "annotations", "finalizers"] {
        meta::carry(&mut metadata, &template["metadata"], key);
    }
    metadata.insert("namespace".into(), meta::namespace(owner).into());
    metadata.insert("ownerReferences".into(), json!([owner_reference(kind, owner)]));
    json!({ "metadata": metadata, "spec": template["spec"] })
}

/// `name-`, cut so that the suffix fits.
pub(super) fn generate_name(owner: &Value) -> String {
    format!("{}-", meta::name(owner))
}

/// A short name for a template: equal templates have equal names.
pub(super) fn template_hash(template: &Value) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = crate::log::digest(&serde_json::to_vec(template).unwrap_or_default());
    let digits = (digest ^ (digest >> 32)) & 0xffff_ffff;
    digits.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % 27])).collect()
}

/// Objects by the uid of the owner that controls them.
#[derive(Debug, Default)]
pub(super) struct Children {
    by_owner: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Object>>>,
    owners: BTreeMap<Arc<str>, Arc<str>>,
}

impl Children {
    /// Takes a change in; returns the kinds and keys of the owners whose children changed.
    pub(super) fn see(&mut self, seen: &Seen) -> BTreeSet<(String, String)> {
        let mut touched = BTreeSet::new();
        let value = &seen.object.value;
        let mut touch = |value: &Value| {
            if let Some((kind, name, _)) = controller(value) {
                touched.insert((kind.to_owned(), format!("{}/{name}", meta::namespace(value))));
            }
        };
        touch(value);
        let owner = controller(value).map(|(_, _, uid)| uid);
        let known = self.owners.get(&seen.key).cloned();
        if let Some(known) = known.filter(|known| seen.gone || owner != Some(&**known)) {
            if let Some(before) = &seen.before {
                touch(&before.value);
            }
            self.owners.remove(&seen.key);
            if let Some(children) = self.by_owner.get_mut(&known) {
                children.remove(&seen.key);
                if children.is_empty() {
                    self.by_owner.remove(&known);
                }
            }
        }
        if let (Some(owner), false) = (owner, seen.gone) {
            let owner: Arc<str> = match self.by_owner.get_key_value(owner) {
                Some((owner, _)) => owner.clone(),
                None => owner.into(),
            };
            let children = self.by_owner.entry(owner.clone()).or_default();
            children.insert(seen.key.clone(), seen.object.clone());
            self.owners.insert(seen.key.clone(), owner);
        }
        touched
    }

    /// The children of an owner, by name.
    pub(super) fn of(&self, owner: &Value) -> Vec<Arc<Object>> {
        let children = self.by_owner.get(meta::uid(owner));
        children.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }
}
