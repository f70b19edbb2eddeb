//! How many nodes a pool has, and who may create the next one.
//!
//! Several controllers create claims, each from its own decision, and the watch tells of a new claim only after a while.
//! So nobody creates a claim without a reservation: a name that counts as a node of its pool from the moment it is given
//! out until the claim of that name is in the index, where it counts by itself. Both live under one lock, so that
//! `limits.nodes` holds at every instant, whoever asks and however late the watch is.
//!
//! The name is chosen here and not by the API server, because a creation may lose its answer: only by its name can one find
//! out later what became of it. A process that starts anew lists all claims before it creates any.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use jiff::Timestamp;
use kerf_api::{
    NodeClaim, NodePool, ObjectExt,
    conditions::{Conditioned, DISRUPTION_REASON, INSTANCE_TERMINATING},
};
use kerf_model::{NodeCount, Quantity};
use kube_core::ResourceExt;

use crate::Cluster;

/// Names of claims to come, and their pools.
#[derive(Debug, Default)]
pub(crate) struct ReservedNames {
    pool_of: BTreeMap<String, String>,
    given_out: u64,
}

/// `limits.nodes`; `None` is no limit. What is not a quantity allows nothing: the API server lets none through.
pub fn node_limit(pool: &NodePool) -> Option<u64> {
    let limit = pool.spec.limits.get("nodes")?;
    let nodes = limit.0.parse::<Quantity>().map_or(0, Quantity::whole_units);
    Some(u64::try_from(nodes).unwrap_or(0))
}

impl Cluster {
    pub fn node_count(&self, pool: &str) -> NodeCount {
        let mut count = NodeCount::default();
        for claim in self.claims_in(pool) {
            match self.stage_of(claim) {
                ClaimStage::Active => count.active += 1,
                ClaimStage::Replacing => count.replacing += 1,
                ClaimStage::Leaving => count.leaving += 1,
            }
        }
        let reserved = self.reserved_names.pool_of.values().filter(|of| *of == pool);
        count.reserved = reserved.count() as u64;
        count
    }

    pub fn claims_in(&self, pool: &str) -> impl Iterator<Item = &Arc<NodeClaim>> {
        let in_pool = move |claim: &&Arc<NodeClaim>| claim.node_pool() == Some(pool);
        self.claims.values().filter(in_pool)
    }

    pub fn stage_of(&self, claim: &NodeClaim) -> ClaimStage {
        let marked = claim.metadata.name.as_deref().is_some_and(|n| self.is_marked_for_deletion(n));
        let deleted = claim.is_deleting();
        if marked || deleted || claim.is_true(INSTANCE_TERMINATING) {
            ClaimStage::Leaving
        } else if claim.is_true(DISRUPTION_REASON) {
            ClaimStage::Replacing
        } else {
            ClaimStage::Active
        }
    }

    /// Names for up to `want` new claims of the pool, as many as its `limits.nodes` has room for. Each counts as a node
    /// until its claim is here or it is [released](Self::release).
    pub fn reserve(&mut self, pool: &NodePool, want: u64, now: Timestamp) -> Vec<String> {
        let pool_name = pool.name_any();
        let granted = want.min(self.node_count(&pool_name).headroom(node_limit(pool)));
        (0..granted)
            .map(|_| {
                let name = self.new_name(pool, now);
                self.reserved_names.pool_of.insert(name.clone(), pool_name.clone());
                name
            })
            .collect()
    }

    /// Gives a reservation back: there is no claim of that name and there will be none.
    pub fn release(&mut self, claim: &str) {
        self.reserved_names.pool_of.remove(claim);
    }

    /// Whether a claim of that name is to come and not here yet.
    pub fn is_reserved(&self, claim: &str) -> bool {
        self.reserved_names.pool_of.contains_key(claim)
    }

    /// As the API server makes names of `generateName`, but from what happens here, so that a run can be repeated.
    fn new_name(&mut self, pool: &NodePool, now: Timestamp) -> String {
        let pool_name = pool.name_any();
        let base: String = pool_name.chars().take(LONGEST_BASE).collect();
        loop {
            self.reserved_names.given_out += 1;
            let mut hasher = DefaultHasher::new();
            (pool.uid(), now, self.reserved_names.given_out).hash(&mut hasher);
            let name = format!("{base}-{}", suffix(hasher.finish()));
            if self.claims.named(&name).is_none() && !self.is_reserved(&name) {
                return name;
            }
        }
    }
}

/// Where in its life a claim is, as far as its pool's number of nodes goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStage {
    Active,
    Replacing,
    Leaving,
}

/// A label holds 63 characters, and claims name their nodes' labels.
const LONGEST_BASE: usize = 57;

/// Without vowels and what looks like them, so that no words come out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

fn suffix(mut number: u64) -> String {
    let mut suffix = String::new();
    for _ in 0..5 {
        suffix.push(ALPHABET[(number % 27) as usize].into());
        number /= 27;
    }
    suffix
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool(limit: &Value) -> NodePool {
        let class = json!({"group": "g", "kind": "k", "name": "n"});
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p", "uid": "u"},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}, "limits": limit},
        }))
        .unwrap()
    }

    fn claim(name: &str, version: u32, deleted: Option<&str>) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": name, "labels": {"karpenter.sh/nodepool": "p"},
                "resourceVersion": version.to_string(), "deletionTimestamp": deleted,
            },
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
        }))
        .unwrap()
    }

    fn reserve(cluster: &mut Cluster, limit: &Value, want: u64) -> Vec<String> {
        cluster.reserve(&pool(limit), want, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn gives_out_what_the_limit_leaves() {
        for (limit, want, granted) in [
            (json!({}), 1000, 1000),
            (json!({"cpu": "1"}), 3, 3),
            (json!({"nodes": "5"}), 3, 3),
            (json!({"nodes": "5"}), 9, 5),
            (json!({"nodes": "2.9"}), 9, 2),
            (json!({"nodes": "0"}), 1, 0),
            (json!({"nodes": "-1"}), 1, 0),
        ] {
            let names = reserve(&mut Cluster::default(), &limit, want);
            assert_eq!(names.len(), granted, "{limit}");
            let different: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(different.len(), granted);
        }
    }

    #[test]
    fn everything_that_is_there_or_to_come_takes_room() {
        let limit = json!({"nodes": "5"});
        let mut cluster = Cluster::default();
        cluster.apply(claim("a", 1, None));
        cluster.apply(claim("b", 2, Some("2026-01-01T00:00:00Z")));
        let mut replaced = claim("c", 3, None);
        replaced.condition_set(Timestamp::UNIX_EPOCH).set_true(DISRUPTION_REASON);
        cluster.apply(replaced);
        let names = reserve(&mut cluster, &limit, 1);
        let count = NodeCount { active: 1, replacing: 1, leaving: 1, reserved: 1 };
        assert_eq!(cluster.node_count("p"), count);
        assert_eq!(cluster.node_count("q"), NodeCount::default());
        assert_eq!(reserve(&mut cluster, &limit, 9).len(), 1);
        cluster.release(&names[0]);
        assert_eq!(reserve(&mut cluster, &limit, 9).len(), 1);
        cluster.mark_for_deletion("a");
        assert_eq!(cluster.node_count("p").leaving, 2);
        assert_eq!(reserve(&mut cluster, &limit, 9).len(), 0, "a mark frees nothing");
    }

    #[test]
    fn a_reservation_ends_when_its_claim_is_here() {
        let limit = json!({"nodes": "1"});
        let mut cluster = Cluster::default();
        let name = reserve(&mut cluster, &limit, 1).remove(0);
        cluster.anticipate(claim(&name, 7, None));
        assert!(!cluster.is_reserved(&name));
        assert_eq!(reserve(&mut cluster, &limit, 1).len(), 0);
        cluster.delete(&claim(&name, 9, None));
        assert_eq!(reserve(&mut cluster, &limit, 1).len(), 1);
    }

    /// The claims watch lists anew; what was created in between comes with the list, and until it does it must count.
    #[test]
    fn a_reservation_outlasts_an_answer_that_the_index_does_not_take() {
        let limit = json!({"nodes": "2"});
        let mut cluster = Cluster::default();
        let name = reserve(&mut cluster, &limit, 1).remove(0);
        cluster.apply(claim("a", 9, None));
        assert!(cluster.anticipate(claim(&name, 7, None)).is_none());
        assert!(cluster.is_reserved(&name));
        assert_eq!(reserve(&mut cluster, &limit, 1).len(), 0);
        cluster.apply(claim(&name, 7, None));
        assert!(!cluster.is_reserved(&name));
        assert_eq!(cluster.node_count("p").total(), 2);
    }

    #[test]
    fn names_are_as_kubernetes_makes_them() {
        let name = reserve(&mut Cluster::default(), &json!({}), 1).remove(0);
        let (base, suffix) = name.split_once('-').unwrap();
        assert_eq!((base, suffix.len()), ("p", 5));
        let mut long = pool(&json!({}));
        long.metadata.name = Some("x".repeat(63));
        let name = Cluster::default().reserve(&long, 1, Timestamp::UNIX_EPOCH).remove(0);
        assert_eq!(name.len(), 63);
    }
}
