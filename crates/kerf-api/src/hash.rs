//! The hash of a NodePool's template. A NodeClaim with another hash has drifted.
//!
//! Clusters that come from Karpenter carry such hashes in annotations. They have to come out the
//! same here, or every node would count as drifted on the day of the move.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Taint, jiff::Timestamp};

use crate::{
    NodeClaim, annotations,
    conditions::{Conditioned, DRIFTED},
    duration::DurationOrNever,
    hashstructure::{Struct, bytes, duration, int64, list, map, nanoseconds, text},
    nodepool::{NodeClaimTemplate, NodeClaimTemplateSpec, NodePool, TemplateMetadata},
    requirement::NodeClassReference,
};

/// Value of [`crate::annotations::NODE_POOL_HASH_VERSION`] for hashes computed in this way.
pub const HASH_VERSION: &str = "v3";

/// The hash of a NodePool on itself and on its claims.
pub const NODE_POOL: HashAnnotations = HashAnnotations {
    hash: annotations::NODE_POOL_HASH,
    version: annotations::NODE_POOL_HASH_VERSION,
    current: HASH_VERSION,
};

/// Where a hash stands on objects, beside the version of the way in which it was computed. Only hashes of one version can be
/// compared.
#[derive(Clone, Copy, Debug)]
pub struct HashAnnotations {
    pub hash: &'static str,
    pub version: &'static str,
    /// The version of the hashes that are written now.
    pub current: &'static str,
}

impl HashAnnotations {
    pub fn is_current(&self, annotations: &BTreeMap<String, String>) -> bool {
        annotations.get(self.version).is_some_and(|version| version == self.current)
    }

    pub fn write(&self, annotations: &mut BTreeMap<String, String>, hash: String) {
        annotations.insert(self.version.to_owned(), self.current.to_owned());
        annotations.insert(self.hash.to_owned(), hash);
    }

    /// The claim with the present version, and with the present hash of what it is compared with unless it has drifted: then
    /// it stays drifted. `None` if its hash is of the present version. So an upgrade does not make a fleet drift.
    pub fn restamped(&self, claim: &NodeClaim, hash: &str) -> Option<NodeClaim> {
        let annotations = claim.metadata.annotations.as_ref();
        if annotations.is_some_and(|annotations| self.is_current(annotations)) {
            return None;
        }
        let mut stamped = claim.clone();
        let annotations = stamped.metadata.annotations.get_or_insert_default();
        annotations.insert(self.version.to_owned(), self.current.to_owned());
        if claim.condition(DRIFTED).is_none() {
            annotations.insert(self.hash.to_owned(), hash.to_owned());
        }
        Some(stamped)
    }
}

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
        .hash()
}

fn metadata(meta: &TemplateMetadata) -> u64 {
    Struct::named("ObjectMeta")
        .field("Labels", meta.labels.as_ref().map(map))
        .field("Annotations", meta.annotations.as_ref().map(map))
        .hash()
}

fn spec(spec: &NodeClaimTemplateSpec) -> u64 {
    Struct::named("NodeClaimTemplateSpec")
        .field("Taints", spec.taints.as_deref().map(taints))
        .field("StartupTaints", spec.startup_taints.as_deref().map(taints))
        .field("NodeClassRef", Some(node_class(&spec.node_class_ref)))
        .field("TerminationGracePeriod", spec.termination_grace_period.as_ref().map(duration))
        .field("ExpireAfter", duration_or_never(&spec.expire_after))
        .hash()
}

fn taints(taints: &[Taint]) -> u64 {
    list(taints.iter().map(taint))
}

fn taint(taint: &Taint) -> u64 {
    Struct::named("Taint")
        .field("Key", text(&taint.key))
        .field("Value", taint.value.as_deref().and_then(text))
        .field("Effect", text(&taint.effect))
        .field("TimeAdded", taint.time_added.as_ref().map(|added| time(added.0)))
        .hash()
}

fn node_class(reference: &NodeClassReference) -> u64 {
    Struct::named("NodeClassReference")
        .field("Kind", text(&reference.kind))
        .field("Name", text(&reference.name))
        .field("Group", text(&reference.group))
        .hash()
}

/// Here a length of nothing is behind a pointer and counts; `Never` is the missing pointer.
fn duration_or_never(duration: &DurationOrNever) -> Option<u64> {
    match duration {
        DurationOrNever::Never => None,
        DurationOrNever::After(length) => {
            let length = int64(nanoseconds(length));
            Some(Struct::named("NillableDuration").field("Duration", Some(length)).hash())
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
    let binary = [&VERSION[..], &seconds, &nanoseconds, &MINUTES_EAST_OF_UTC].concat();
    Struct::named("Time").field("Time", Some(bytes(&binary))).hash()
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
    fn claims_of_another_version_get_the_new_hash_unless_they_have_drifted() {
        let claim = |version: &str| {
            let mut claim = NodeClaim::default();
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(NODE_POOL.version.to_owned(), version.to_owned());
            annotations.insert(NODE_POOL.hash.to_owned(), "old".to_owned());
            claim
        };
        let written = |claim: NodeClaim| {
            let mut annotations = claim.metadata.annotations.unwrap();
            let of = |name| annotations.remove(name).unwrap();
            [NODE_POOL.version, NODE_POOL.hash].map(of)
        };
        assert_eq!(NODE_POOL.restamped(&claim(HASH_VERSION), "new"), None);
        let moved = NODE_POOL.restamped(&claim("v2"), "new").unwrap();
        assert_eq!(written(moved), [HASH_VERSION, "new"]);
        let mut drifted = claim("v2");
        drifted.condition_set(Timestamp::UNIX_EPOCH).set_true(DRIFTED);
        let moved = NODE_POOL.restamped(&drifted, "new").unwrap();
        assert_eq!(written(moved), [HASH_VERSION, "old"]);
        let unstamped = NODE_POOL.restamped(&NodeClaim::default(), "new").unwrap();
        assert_eq!(written(unstamped), [HASH_VERSION, "new"]);
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
