//! Objects of ours in a file, as an API server would judge them before it stores them.

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use kerf_admission::{Definitions, Fault};
use serde_json::Value;

use crate::providers;

/// The kinds that Kerf ships.
static SHIPPED: LazyLock<Definitions> = LazyLock::new(|| Definitions::of(&providers::crds()));

/// Something that an API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// In the file, counted from 0.
    pub(super) document: usize,
    /// From the root of the document.
    pub(super) field: String,
    object: String,
    fault: Fault,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.fault)
    }
}

/// What was found in one file.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// In objects as one writes them. `kubectl apply` would refuse them.
    pub(super) refused: Vec<Refused>,
    /// In objects that have been through an API server, by kind and fault, with the first of them and their number. That
    /// server knew them by another definition, maybe a newer one, and they exist.
    stored: BTreeMap<(String, String), (String, usize)>,
}

impl Findings {
    pub(super) fn look_at(&mut self, document: usize, value: &Value) {
        match value.get("items") {
            Some(Value::Array(items)) if is_list(value) => {
                for (index, item) in items.iter().enumerate() {
                    self.judge(document, &format!("items[{index}]."), item);
                }
            }
            _ => self.judge(document, "", value),
        }
    }

    fn judge(&mut self, document: usize, within: &str, object: &Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        for fault in SHIPPED.faults(object) {
            if has_been_stored(object) {
                let key = (kind.to_owned(), fault.to_string());
                let found = self.stored.entry(key).or_insert_with(|| (name.to_owned(), 0));
                found.1 += 1;
            } else {
                let (field, object) =
                    (format!("{within}{}", fault.field()), format!("{kind} {name}"));
                self.refused.push(Refused { document, field, object, fault });
            }
        }
    }

    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.stored.iter().map(|((kind, fault), (first, count))| match count - 1 {
            0 => format!("{kind} {first}: {fault}"),
            more => format!("{kind} {first} and {more} more: {fault}"),
        })
    }
}

fn is_list(value: &Value) -> bool {
    value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
}

/// Whether an API server has written on it.
fn has_been_stored(object: &Value) -> bool {
    let metadata = object.get("metadata");
    let has = |field: &str| metadata.and_then(|it| it.get(field)).is_some_and(|it| !it.is_null());
    ["uid", "resourceVersion", "creationTimestamp", "managedFields"].into_iter().any(has)
}
