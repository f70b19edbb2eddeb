//! The lines of a record. `docs/shadow.md` has the format.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first line of each file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The version of the format.
    pub kerf_record: u32,
    /// The times of all entries count from here.
    pub start: Timestamp,
    /// By this a cluster is told from others. It is part of a UID, and says nothing else.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
}

/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;

/// Something that was seen, by the milliseconds since the start of the file. On a line it is a list of two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry(pub u64, pub What);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// From here on everything is listed that there is. A file begins with it, so that older files can be deleted.
    BaseBegins,
    BaseEnds,
    /// Pods of one owner that are alike.
    Workload(Workload),
    /// A pod that is new or has changed.
    Pod(Pod),
    PodGone(String),
    /// A NodePool, NodeClaim, Node, DaemonSet, PodDisruptionBudget or Namespace that is new or has changed.
    Object(Value),
    ObjectGone(ObjectKey),
    /// Nothing else has happened up to here.
    Alive,
    /// For so many milliseconds before this, changes were not seen when they happened: nobody watched, or the API server was out
    /// of reach. What came of them is in the entries after this one.
    Blind(u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    pub id: u32,
    pub namespace: String,
    /// The kind of the owner; `Pod` for a pod without one.
    pub kind: String,
    /// The name of the owner.
    pub name: String,
    /// Labels, annotations and the spec of one of its pods, as far as decisions use them.
    pub pod: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// A part of its UID. Names of pods are not recorded.
    pub id: String,
    /// The workload.
    pub of: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    pub phase: Phase,
    /// Whether it is being deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
    /// Since when it has the condition `DisruptionTarget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey {
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub(crate) fn of(object: &Value) -> Self {
        let text = |path| text(object, path).to_owned();
        Self {
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    }
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub(crate) fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_is_short_and_reads_back() {
        let pod = |node: &str, phase, leaves, evicted: Option<&str>| {
            What::Pod(Pod {
                id: "9f".into(),
                of: 3,
                node: node.into(),
                phase,
                leaves,
                evicted: evicted.map(|time| time.parse().unwrap()),
            })
        };
        let key = |kind: &str, namespace: &str, name: &str| ObjectKey {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        for (what, expected) in [
            (What::Alive, r#"[7,"alive"]"#),
            (What::BaseBegins, r#"[7,"baseBegins"]"#),
            (
                pod("", Phase::Pending, false, None),
                r#"[7,{"pod":{"id":"9f","of":3,"phase":"Pending"}}]"#,
            ),
            (
                pod("n", Phase::Running, true, Some("2026-01-01T00:00:00Z")),
                r#"[7,{"pod":{"id":"9f","of":3,"node":"n","phase":"Running","leaves":true,"evicted":"2026-01-01T00:00:00Z"}}]"#,
            ),
            (What::PodGone("9f".into()), r#"[7,{"podGone":"9f"}]"#),
            (What::Object(json!({"kind": "Node"})), r#"[7,{"object":{"kind":"Node"}}]"#),
            (
                What::ObjectGone(key("Node", "", "n")),
                r#"[7,{"objectGone":{"kind":"Node","name":"n"}}]"#,
            ),
        ] {
            let entry = Entry(7, what);
            let line = serde_json::to_string(&entry).unwrap();
            assert_eq!(line, expected);
            assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry);
        }
    }
}
