//! The hash of a NodePool's template, by which NodeClaims find out that they are out of date.
//!
//! Clusters that come from Karpenter carry such hashes in annotations. They have to come out the
//! same here, or every node would count as drifted on the day of the move. So this follows, quirks
//! included, the Go library that computes them there (hashstructure, format 2, slices as sets, zero
//! values left out), for the types of the template.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Taint, jiff::Timestamp};

use crate::{
    duration::{DurationOrNever, GoDuration},
    nodepool::{NodeClaimTemplate, NodeClaimTemplateSpec, NodePool, TemplateMetadata},
    requirement::NodeClassReference,
};

/// Value of [`crate::annotations::NODE_POOL_HASH_VERSION`] for hashes computed in this way.
pub const HASH_VERSION: &str = "v3";

impl NodePool {
    /// The hash as it stands in [`crate::annotations::NODE_POOL_HASH`].
    ///
    /// Requirements are not part of it: nodes are compared with them one by one. Nor is anything
    /// outside of the template.
    pub fn hash(&self) -> String {
        template(&self.spec.template).to_string()
    }
}

fn template(template: &NodeClaimTemplate) -> u64 {
    let meta = &template.metadata;
    let has_meta = meta.labels.is_some() || meta.annotations.is_some();
    Struct::named("NodeClaimTemplate")
        .field("ObjectMeta", has_meta.then(|| metadata(meta)))
        .field("Spec", Some(spec(&template.spec)))
        .hash
}

fn metadata(meta: &TemplateMetadata) -> u64 {
    Struct::named("ObjectMeta")
        .field("Labels", meta.labels.as_ref().map(map))
        .field("Annotations", meta.annotations.as_ref().map(map))
        .hash
}

fn spec(spec: &NodeClaimTemplateSpec) -> u64 {
    Struct::named("NodeClaimTemplateSpec")
        .field("Taints", spec.taints.as_deref().map(taints))
        .field("StartupTaints", spec.startup_taints.as_deref().map(taints))
        .field("NodeClassRef", Some(node_class(&spec.node_class_ref)))
        .field("TerminationGracePeriod", spec.termination_grace_period.as_ref().map(duration))
        .field("ExpireAfter", duration_or_never(&spec.expire_after))
        .hash
}

/// Elements are combined without regard to their order, so that two equal ones cancel each other
/// out.
fn taints(taints: &[Taint]) -> u64 {
    taints.iter().map(taint).fold(0, |hash, taint| hash ^ taint)
}

fn taint(taint: &Taint) -> u64 {
    Struct::named("Taint")
        .field("Key", text(&taint.key))
        .field("Value", taint.value.as_deref().and_then(text))
        .field("Effect", text(&taint.effect))
        .field("TimeAdded", taint.time_added.as_ref().map(|added| time(added.0)))
        .hash
}

fn node_class(reference: &NodeClassReference) -> u64 {
    Struct::named("NodeClassReference")
        .field("Kind", text(&reference.kind))
        .field("Name", text(&reference.name))
        .field("Group", text(&reference.group))
        .hash
}

/// A length of nothing is a zero value and left out.
fn duration(duration: &GoDuration) -> u64 {
    let length = Some(nanoseconds(duration)).filter(|length| *length != 0);
    Struct::named("Duration").field("Duration", length.map(integer)).hash
}

/// Here a length of nothing is behind a pointer and counts; `Never` is the missing pointer.
fn duration_or_never(duration: &DurationOrNever) -> Option<u64> {
    match duration {
        DurationOrNever::Never => None,
        DurationOrNever::After(length) => {
            let length = integer(nanoseconds(length));
            Some(Struct::named("NillableDuration").field("Duration", Some(length)).hash)
        }
    }
}

/// Go's binary form of a time that was read in a process whose local zone is UTC, as it is in a
/// container.
fn time(time: Timestamp) -> u64 {
    const SECONDS_FROM_YEAR_1_TO_1970: i64 = 62_135_596_800;
    const VERSION: [u8; 1] = [1];
    const MINUTES_EAST_OF_UTC: [u8; 2] = [0, 0];
    let seconds = (time.as_second() + SECONDS_FROM_YEAR_1_TO_1970).to_be_bytes();
    let nanoseconds = time.subsec_nanosecond().to_be_bytes();
    let bytes = [&VERSION[..], &seconds, &nanoseconds, &MINUTES_EAST_OF_UTC].concat();
    Struct::named("Time").field("Time", Some(fnv1(&bytes))).hash
}

fn map(map: &BTreeMap<String, String>) -> u64 {
    let entries =
        map.iter().map(|(key, value)| ordered(fnv1(key.as_bytes()), fnv1(value.as_bytes())));
    finished(entries.fold(0, |hash, entry| hash ^ entry))
}

fn text(text: &str) -> Option<u64> {
    (!text.is_empty()).then(|| fnv1(text.as_bytes()))
}

fn integer(value: i64) -> u64 {
    fnv1(&value.to_le_bytes())
}

fn nanoseconds(duration: &GoDuration) -> i64 {
    i64::try_from(duration.as_duration().as_nanos()).unwrap_or(i64::MAX)
}

/// The hash of a Go struct: its name, then its fields in the order of their declaration, those with
/// zero values left out.
struct Struct {
    hash: u64,
}

impl Struct {
    fn named(name: &str) -> Self {
        Self { hash: fnv1(name.as_bytes()) }
    }

    fn field(self, name: &str, value: Option<u64>) -> Self {
        match value {
            None => self,
            Some(value) => {
                Self { hash: finished(self.hash ^ ordered(fnv1(name.as_bytes()), value)) }
            }
        }
    }
}

fn ordered(first: u64, second: u64) -> u64 {
    fnv1(&[first.to_le_bytes(), second.to_le_bytes()].concat())
}

fn finished(hash: u64) -> u64 {
    fnv1(&hash.to_le_bytes())
}

/// FNV-1, which multiplies before it mixes in a byte; the better known FNV-1a does it afterwards.
fn fnv1(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte)
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::{Value, json};

    use super::*;

    fn hash(metadata: &Value, spec: &Value) -> String {
        let mut template = json!({
            "metadata": metadata,
            "spec": {
                "requirements": [],
                "expireAfter": "720h",
                "nodeClassRef": { "kind": "ExampleNodeClass", "name": "default", "group": "cloud.example" },
            },
        });
        for (field, value) in spec.as_object().unwrap() {
            template["spec"][field] = value.clone();
        }
        let template = serde_json::from_value(template).unwrap();
        let mut pool = NodePool::default();
        pool.spec.template = template;
        pool.hash()
    }

    #[test]
    fn depends_on_meaning_and_not_on_writing() {
        let same = |one: Value, other: Value| {
            assert_eq!(hash(&json!({}), &one), hash(&json!({}), &other), "{one} {other}");
        };
        let (a, b) = (
            json!({ "key": "a", "effect": "NoSchedule" }),
            json!({ "key": "b", "effect": "NoSchedule" }),
        );
        same(json!({ "taints": [a, b] }), json!({ "taints": [b, a] }));
        same(json!({ "expireAfter": "1h" }), json!({ "expireAfter": "60m" }));
        same(
            json!({ "terminationGracePeriod": "90s" }),
            json!({ "terminationGracePeriod": "1m30s" }),
        );
        let requirement = json!([{ "key": "team", "operator": "Exists" }]);
        same(json!({}), json!({ "requirements": requirement }));
    }

    #[test]
    fn depends_on_every_field_that_nodes_are_made_of() {
        let taint = json!([{ "key": "a", "effect": "NoSchedule" }]);
        let class = |kind: &str, name: &str, group: &str| json!({ "nodeClassRef": { "kind": kind, "name": name, "group": group } });
        let none = json!({});
        let changed = [
            (json!({ "labels": { "a": "b" } }), none.clone()),
            (json!({ "annotations": { "a": "b" } }), none.clone()),
            (none.clone(), json!({ "taints": taint })),
            (none.clone(), json!({ "startupTaints": taint })),
            (none.clone(), json!({ "terminationGracePeriod": "1h" })),
            (none.clone(), json!({ "expireAfter": "1h" })),
            (none.clone(), class("ExampleNodeClass", "other", "cloud.example")),
            (none.clone(), class("Other", "default", "cloud.example")),
            (none.clone(), class("ExampleNodeClass", "default", "example.com")),
        ];
        let mut hashes = std::collections::BTreeSet::from([hash(&none, &none)]);
        for (metadata, spec) in changed {
            assert!(hashes.insert(hash(&metadata, &spec)), "{metadata} {spec}");
        }
    }

    #[test]
    fn does_not_depend_on_anything_outside_of_the_template() {
        let mut pool = NodePool::default();
        let before = pool.hash();
        pool.spec.weight = Some(1);
        pool.spec.replicas = Some(1);
        pool.spec.disruption.consolidate_after = DurationOrNever::Never;
        pool.spec.limits.insert("cpu".to_owned(), Quantity::default());
        assert_eq!(pool.hash(), before);
    }
}
