//! Amounts that are no quantities.
//!
//! The API server reads those of built-in objects itself. Those of custom resources it compares with a pattern, which lets
//! through amounts that cannot be parsed, such as `1e1.5`. They are left out, and the object is treated like any other that cannot be
//! read as a whole: one claim must not keep all the others from being planned for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kerf_api::{NodeClaim, NodePool, Unreadable};
use kerf_model::Quantity;
use kube_core::ResourceExt;

type Amounts = BTreeMap<String, ApiQuantity>;

pub(crate) fn claim(claim: &mut NodeClaim) -> Option<Unreadable> {
    let name = claim.name_any();
    let status = claim.status.as_mut()?;
    let fields = [
        ("status.capacity", &mut status.capacity),
        ("status.allocatable", &mut status.allocatable),
    ];
    leave_out("NodeClaim", &name, fields)
}

pub(crate) fn pool(pool: &mut NodePool) -> Option<Unreadable> {
    let name = pool.name_any();
    leave_out("NodePool", &name, [("spec.limits", &mut pool.spec.limits)])
}

/// Leaves out every amount that is no quantity; returns the first.
fn leave_out<const FIELDS: usize>(
    kind: &str,
    name: &str,
    fields: [(&str, &mut Amounts); FIELDS],
) -> Option<Unreadable> {
    let mut first = None;
    for (field, amounts) in fields {
        amounts.retain(|resource, amount| {
            let Err(error) = amount.0.parse::<Quantity>() else { return true };
            first.get_or_insert_with(|| {
                Unreadable::new(kind, ("", name), format!("{field}.{resource}"), &error)
            });
            false
        });
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Kind};
    use jiff::Timestamp;
    use kerf_api::decode::decode;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn nodeclaim(name: &str, capacity: &Value, allocatable: &Value) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": name, "capacity": capacity, "allocatable": allocatable},
        })
    }

    fn nodepool(limits: &Value) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {"limits": limits, "template": {"spec": {
                "requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}},
        })
    }

    /// The field that is reported when the object comes.
    fn reported<K: Kind + DeserializeOwned>(cluster: &mut Cluster, object: Value) -> String {
        let unreadable = cluster.take_in::<K>(decode("Kind", object)).unreadable;
        unreadable.map(|it| it.field).unwrap_or_default()
    }

    #[test]
    fn a_claim_with_an_amount_that_is_no_quantity_is_full_and_stops_no_other() {
        let four = json!({"cpu": "4", "memory": "8Gi"});
        let spoilt = json!({"cpu": "1e1.5", "memory": "8Gi"});
        for (capacity, allocatable, field, cpus) in [
            (&four, &four, "", "4"),
            (&spoilt, &four, "status.capacity.cpu", "0"),
            (&four, &spoilt, "status.allocatable.cpu", "0"),
            (&spoilt, &spoilt, "status.capacity.cpu", "0"),
        ] {
            let mut cluster = Cluster::default();
            let object = nodeclaim("a", capacity, allocatable);
            assert_eq!(reported::<NodeClaim>(&mut cluster, object.clone()), field);
            assert_eq!(reported::<NodeClaim>(&mut cluster, object), "", "it is reported once");
            assert_eq!(reported::<NodeClaim>(&mut cluster, nodeclaim("b", &four, &four)), "");
            assert_eq!(cluster.is_readable("a"), field.is_empty());
            let taken = cluster.snapshot(crate::snapshot::Inputs::at(Timestamp::UNIX_EPOCH));
            let taken = taken.unwrap_or_else(|error| panic!("{field}: {error}"));
            let nodes = taken.snapshot.nodes.iter();
            let seen: Vec<_> =
                nodes.map(|node| node.allocatable.amount("cpu").to_string()).collect();
            assert_eq!(seen, [cpus, "4"], "{field}");
            let counted = cluster.pool_resources("p").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(counted.amount("nodes").units(), 2, "{field}");
        }
    }

    #[test]
    fn the_answer_to_a_write_of_ours_stops_nobody_either() {
        let mut cluster = Cluster::default();
        let spoilt = json!({"cpu": "1e1.5"});
        let claim = decode::<NodeClaim>("NodeClaim", {
            let mut claim = nodeclaim("a", &spoilt, &spoilt);
            claim["metadata"]["resourceVersion"] = json!("2");
            claim
        });
        cluster.anticipate(claim.object().unwrap());
        assert!(cluster.pool_resources("p").is_ok());
    }

    #[test]
    fn a_pool_with_a_limit_that_is_no_quantity_is_named() {
        for (limits, field) in [
            (json!({"cpu": "10"}), ""),
            (json!({"cpu": "1e99999999999"}), ""),
            (json!({"cpu": "1e1.5"}), "spec.limits.cpu"),
            (json!({"cpu": "10", "example.com/gpu": "1e.5"}), "spec.limits.example.com/gpu"),
        ] {
            let mut cluster = Cluster::default();
            assert_eq!(reported::<NodePool>(&mut cluster, nodepool(&limits)), field, "{limits}");
        }
    }
}
