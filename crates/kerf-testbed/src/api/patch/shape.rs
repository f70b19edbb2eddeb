//! How lists and maps merge: by the CRD's schema, or by what is known of the built-in types.

use super::super::resources::Resource;
use kerf_admission::{ListKind, Schema};

/// A place in an object, as far as merging is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// None: the schema says nothing of it.
    Custom(Option<&'a Schema>),
    /// A field of a built-in type, by its name.
    BuiltIn(&'a str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Merging {
    Atomic,
    Set,
    Keyed(Vec<String>),
}

impl<'a> Shape<'a> {
    pub(super) fn root(resource: &'a Resource) -> Self {
        match &resource.custom {
            Some(schema) => Self::Custom(Some(schema.root())),
            None => Self::BuiltIn(""),
        }
    }

    pub(super) fn child(self, key: &'a str) -> Self {
        match self {
            // Metadata merges the same way everywhere.
            Self::Custom(_) if key == "metadata" => Self::BuiltIn(key),
            Self::Custom(schema) => Self::Custom(schema.and_then(|schema| schema.child(key))),
            Self::BuiltIn(_) => Self::BuiltIn(key),
        }
    }

    pub(super) fn item(self) -> Self {
        match self {
            Self::Custom(schema) => Self::Custom(schema.and_then(Schema::item)),
            Self::BuiltIn(_) => Self::BuiltIn(""),
        }
    }

    pub(super) fn list(self) -> Merging {
        match self {
            Self::Custom(schema) => match schema.map(Schema::list) {
                Some(ListKind::Set) => Merging::Set,
                Some(ListKind::Map(keys)) => Merging::Keyed(keys.clone()),
                _ => Merging::Atomic,
            },
            Self::BuiltIn("finalizers") => Merging::Set,
            Self::BuiltIn(field) => match apply_keys(field) {
                [] => Merging::Atomic,
                keys => Merging::Keyed(keys.iter().map(|key| (*key).to_owned()).collect()),
            },
        }
    }

    pub(super) fn is_atomic_map(self) -> bool {
        match self {
            Self::Custom(schema) => schema.is_some_and(Schema::is_atomic_map),
            Self::BuiltIn(field) => {
                matches!(field, "selector" | "nodeSelectorTerms" | "resourceFieldRef" | "fieldRef")
            }
        }
    }
}

/// Keys by which server-side apply matches items of a built-in list.
fn apply_keys(field: &str) -> &'static [&'static str] {
    match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "schedulingGates"
        | "resourceClaims" => &["name"],
        "ports" => &["containerPort", "protocol"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "conditions" | "addresses" => &["type"],
        "ownerReferences" => &["uid"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        "hostAliases" | "podIPs" => &["ip"],
        _ => &[],
    }
}

/// The key by which a strategic merge patch matches items of a built-in list; it has only one, where apply may have two.
pub(super) fn strategic_key(field: &str) -> Option<&'static str> {
    apply_keys(field).first().copied()
}
