//! Room under a pool's limits for claims to come.
//!
//! Several controllers create claims, each from its own decision, and the watch reports a new claim only after a while. So no
//! claim is created without a reservation. Its name counts as a node of the pool until the claim is in the index, where it
//! counts by itself. Its amount, as much as the largest machine has that the claim may become, counts until the claim has its
//! instance. Both live under one lock with everything else that counts, so that `limits` hold at every instant, whichever
//! controller asks and however late the watch is.
//!
//! The name is chosen here and not by the API server, because a creation may lose its answer: only its name tells
//! later whether the claim exists. A process that starts anew lists all claims before it creates any.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use jiff::Timestamp;
use kerf_api::{NodeClaim, NodePool, ObjectExt};
use kerf_model::{KnownLabels, Pool, Quantity, Requirements, Resources, resources::NODES};
use kube_core::ResourceExt;

use crate::{
    Cluster, Delta, node_counts::node_limit, state_node::UnreadableStateNode, view::Unreadable,
};

/// Reservations by the name of the claim: of claims to come, and of those that are here without an instance.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    by_claim: BTreeMap<String, Reservation>,
    given_out: u64,
}

#[derive(Debug)]
struct Reservation {
    pool: String,
    amount: Resources,
}

/// A claim that is to be created.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub pool: &'a NodePool,
    /// The pool as it was planned with: its instance types tell how large a claim may become.
    pub planned_from: &'a Pool,
    pub requirements: &'a Requirements,
    /// Claims that go as soon as it has come. Their resources are free for it, as they are in its plan.
    pub replaces: &'a [String],
    pub labels: &'a KnownLabels,
}

/// Why a pool may not have one more claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    #[error(
        "NodePool {pool} has as many nodes as its limits.nodes allows; raise the limit, or wait until a node is gone"
    )]
    Nodes { pool: String },
    /// Not even a replacement comes that is smaller than what it replaces: it comes first.
    #[error(
        "NodePool {pool} has {used} of resource {resource} and its limit is {limit}; raise the limit, or wait until a node is gone"
    )]
    Over { pool: String, resource: String, used: Quantity, limit: Quantity },
    #[error(transparent)]
    Taken(Box<Taken>),
}

/// Others have taken the room, and some of them are still to come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "NodePool {pool} has {kept} of resource {resource}, nodes that are being launched may take {coming}, one more node up to {wanted}, and its limit is {limit}; raise the limit, or wait until a node is gone"
)]
pub struct Taken {
    pub pool: String,
    pub resource: String,
    /// Without what is replaced.
    pub kept: Quantity,
    pub coming: Quantity,
    pub wanted: Quantity,
    pub limit: Quantity,
}

#[derive(Debug, thiserror::Error)]
pub enum NotReserved {
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl From<UnreadableStateNode> for NotReserved {
    fn from(source: UnreadableStateNode) -> Self {
        Self::Unreadable(source.into())
    }
}

impl Cluster {
    /// A name for a new claim of the pool, if its limits have room for it. It takes up that room until it is
    /// [released](Self::release) or, here as a claim, counts by itself.
    pub fn reserve(&mut self, wanted: Wanted<'_>, now: Timestamp) -> Result<String, NotReserved> {
        let amount = wanted.planned_from.largest_for(wanted.requirements);
        self.check_resources(wanted, &amount)?;
        let pool = wanted.pool.name_any();
        if self.node_count(&pool).headroom(node_limit(wanted.pool)) == 0 {
            return Err(NoRoom::Nodes { pool }.into());
        }
        let name = self.new_name(wanted.pool, now);
        self.reservations.by_claim.insert(name.clone(), Reservation { pool, amount });
        Ok(name)
    }

    /// The plan kept the limits as it saw them. The pool may have got less since, or more nodes from another plan.
    fn check_resources(&self, wanted: Wanted<'_>, amount: &Resources) -> Result<(), NotReserved> {
        let pool = wanted.pool.name_any();
        let limits = Resources::from_api(&wanted.pool.spec.limits);
        let mut limits =
            limits.map_err(|source| Unreadable::Limits { pool: pool.clone(), source })?;
        // How many nodes there may be is a matter of names.
        limits.remove(NODES);
        if limits.is_empty() {
            return Ok(());
        }
        let used = self.pool_resources(&pool)?;
        let mut kept = used.clone();
        for claim in wanted.replaces {
            kept = kept.minus(&self.share_of(claim, &pool)?);
        }
        let mut coming = Resources::new();
        let planned_from = |of: &str| (of == pool).then_some(wanted.planned_from);
        for (_, amount) in self.launching(planned_from, wanted.labels).filter(|(of, _)| *of == pool)
        {
            coming.add(&amount);
        }
        for (resource, limit) in limits.iter() {
            let of = |amounts: &Resources| amounts.amount(resource);
            let (pool, resource) = (pool.clone(), resource.to_owned());
            if of(&used) > limit {
                return Err(NoRoom::Over { pool, used: of(&used), resource, limit }.into());
            }
            let (kept, coming, wanted) = (of(&kept), of(&coming), of(amount));
            if kept + coming + wanted > limit {
                let taken = Taken { pool, resource, kept, coming, wanted, limit };
                return Err(NoRoom::Taken(Box::new(taken)).into());
            }
        }
        Ok(())
    }

    /// Claims without an instance, here or to come: the pool of each, and what it may come to take of the limits.
    pub(crate) fn launching<'a, 'pool>(
        &'a self,
        pool: impl Fn(&str) -> Option<&'pool Pool>,
        known: &KnownLabels,
    ) -> impl Iterator<Item = (&'a str, Cow<'a, Resources>)> {
        let reserved = self.reservations.by_claim.values();
        let reserved = reserved.map(|it| (it.pool.as_str(), Cow::Borrowed(&it.amount)));
        let without = move |claim: &&Arc<NodeClaim>| {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            claim.is_unlaunched() && !self.reservations.by_claim.contains_key(name)
        };
        // Created by users, or by an operator before this one.
        let others = self.claims.values().filter(without).filter_map(move |claim| {
            let name = claim.node_pool()?;
            let pool = pool(name)?;
            let requirements = known.requirements(&claim.spec.requirements);
            Some((name, Cow::Owned(pool.largest_for(&requirements))))
        });
        reserved.chain(others)
    }

    /// Gives a reservation back: there is no claim of that name and there will be none.
    pub fn release(&mut self, claim: &str) {
        self.reservations.by_claim.remove(claim);
    }

    /// A claim that has its instance, or that goes, needs no reservation any more.
    pub(crate) fn settle(&mut self, delta: &Delta<NodeClaim>) {
        if !delta.after.as_ref().is_some_and(|claim| claim.is_unlaunched()) {
            self.release(&delta.key.name);
        }
    }

    /// Whether a claim of that name is to come and not here yet.
    pub fn is_reserved(&self, claim: &str) -> bool {
        self.reservations.by_claim.contains_key(claim) && self.claims.named(claim).is_none()
    }

    /// Names of claims of the pool that are to come and not here yet.
    pub(crate) fn reserved_names(&self, pool: &str) -> impl Iterator<Item = &str> {
        let of_pool = self.reservations.by_claim.iter().filter(move |(_, it)| it.pool == pool);
        of_pool.map(|(name, _)| name.as_str()).filter(|name| self.claims.named(name).is_none())
    }

    /// As the API server makes names of `generateName`, but from what happens here, so that a run can be repeated.
    fn new_name(&mut self, pool: &NodePool, now: Timestamp) -> String {
        let pool_name = pool.name_any();
        let base: String = pool_name.chars().take(LONGEST_BASE).collect();
        loop {
            self.reservations.given_out += 1;
            let mut hasher = DefaultHasher::new();
            (pool.uid(), now, self.reservations.given_out).hash(&mut hasher);
            let name = format!("{base}-{}", suffix(hasher.finish()));
            if self.claims.named(&name).is_none() && !self.reservations.by_claim.contains_key(&name)
            {
                return name;
            }
        }
    }
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
    use crate::snapshot::Inputs;
    use kerf_api::conditions::{Conditioned, DISRUPTION_REASON};
    use kerf_model::{InstanceType, NodeCount, Overhead, Requirement, labels::INSTANCE_TYPE};
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

    /// A claim of a pool with these limits that may become any of these types.
    fn reserve(
        cluster: &mut Cluster,
        limits: &Value,
        types: &[&str],
        replaces: &[&str],
    ) -> Result<String, String> {
        let allowed = Requirement::is_in(INSTANCE_TYPE, types.iter().copied());
        let replaces: Vec<_> = replaces.iter().map(ToString::to_string).collect();
        let wanted = Wanted {
            pool: &pool(limits),
            planned_from: &catalogue(),
            requirements: &Requirements::new([allowed]),
            replaces: &replaces,
            labels: &KnownLabels::default(),
        };
        cluster.reserve(wanted, Timestamp::UNIX_EPOCH).map_err(|error| error.to_string())
    }

    /// Types of two and of four CPUs.
    fn catalogue() -> Pool {
        let of_cpus = |cpus: i64| {
            let capacity = Resources::new().with("cpu", Quantity::from_units(cpus));
            let (labels, overhead) = (Requirements::default(), Overhead::default());
            Arc::new(InstanceType::new(
                format!("of-{cpus}"),
                labels,
                Vec::new(),
                capacity,
                overhead,
            ))
        };
        Pool { name: "p".into(), instance_types: [2, 4].map(of_cpus).into(), ..Pool::default() }
    }

    fn names(cluster: &mut Cluster, limit: &Value, want: usize) -> Vec<String> {
        (0..want).map_while(|_| reserve(cluster, limit, &["of-2"], &[]).ok()).collect()
    }

    #[test]
    fn gives_out_what_the_limit_leaves() {
        for (limit, want, granted) in [
            (json!({}), 1000, 1000),
            (json!({"cpu": "6"}), 3, 3),
            (json!({"cpu": "6"}), 9, 3),
            (json!({"cpu": "7.9", "memory": "0"}), 9, 3),
            (json!({"nodes": "5"}), 3, 3),
            (json!({"nodes": "5"}), 9, 5),
            (json!({"nodes": "5", "cpu": "4"}), 9, 2),
            (json!({"nodes": "2.9"}), 9, 2),
            (json!({"nodes": "0"}), 1, 0),
            (json!({"nodes": "-1"}), 1, 0),
        ] {
            let names = names(&mut Cluster::default(), &limit, want);
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
        let reserved = names(&mut cluster, &limit, 1);
        let count = NodeCount { active: 1, replacing: 1, leaving: 1, reserved: 1 };
        assert_eq!(cluster.node_count("p"), count);
        assert_eq!(cluster.node_count("q"), NodeCount::default());
        assert_eq!(names(&mut cluster, &limit, 9).len(), 1);
        cluster.release(&reserved[0]);
        assert_eq!(names(&mut cluster, &limit, 9).len(), 1);
        cluster.mark_for_deletion("a");
        assert_eq!(cluster.node_count("p").leaving, 2);
        assert_eq!(names(&mut cluster, &limit, 9).len(), 0, "a mark frees nothing");
    }

    /// The claim is launched as a machine of two CPUs.
    fn launched(name: &str, version: u32) -> NodeClaim {
        let mut launched = claim(name, version, None);
        let status = launched.status.get_or_insert_default();
        status.provider_id = name.to_owned();
        status.capacity = Resources::new().with("cpu", Quantity::from_units(2)).to_api();
        launched
    }

    /// How much of a limit of six CPUs a claim takes at each step of its life: as many more of two CPUs have room.
    #[test]
    fn an_amount_counts_until_the_instance_does() {
        let six = json!({"cpu": "6"});
        let left = |cluster: &mut Cluster| {
            let names = names(cluster, &six, 9);
            for name in &names {
                cluster.release(name);
            }
            2 * names.len()
        };
        let mut cluster = Cluster::default();
        assert_eq!(left(&mut cluster), 6);
        let name = reserve(&mut cluster, &six, &["of-2", "of-4"], &[]).unwrap();
        assert_eq!(left(&mut cluster), 2, "it may become the larger one");
        cluster.anticipate(claim(&name, 1, None));
        assert_eq!((left(&mut cluster), cluster.is_reserved(&name)), (2, false));
        cluster.apply(launched(&name, 2));
        assert_eq!(left(&mut cluster), 4, "it became the smaller one");
        cluster.apply(claim(&name, 3, Some("2026-01-01T00:00:00Z")));
        assert_eq!(left(&mut cluster), 6);
        cluster.apply(claim("of-a-user", 4, None));
        assert_eq!(left(&mut cluster), 2, "it may become any type there is");
        cluster.delete(&claim("of-a-user", 5, None));
        let given_up = reserve(&mut cluster, &six, &["of-4"], &[]).unwrap();
        cluster.apply(claim(&given_up, 6, None));
        cluster.delete(&claim(&given_up, 7, None));
        assert_eq!(left(&mut cluster), 6, "it never got an instance");
    }

    #[test]
    fn what_a_claim_replaces_makes_room_for_it_and_for_no_other() {
        let check = |limit: &str, types: &[&str], replaces: &[&str], expected: Result<(), &str>| {
            let mut cluster = Cluster::default();
            cluster.apply(launched("a", 1));
            cluster.apply(launched("b", 2));
            cluster.apply(launched("leaving", 3));
            cluster.mark_for_deletion("leaving");
            reserve(&mut cluster, &json!({}), &["of-2"], &[]).unwrap();
            let reserved = reserve(&mut cluster, &json!({"cpu": limit}), types, replaces);
            assert_eq!(reserved.map(drop), expected.map_err(str::to_owned), "{limit} {replaces:?}");
        };
        let end = "and its limit is 6; raise the limit, or wait until a node is gone";
        let full = format!(
            "NodePool p has 4 of resource cpu, nodes that are being launched may take 2, one more node up to 2, {end}"
        );
        check("8", &["of-2"], &[], Ok(()));
        check("6", &["of-2"], &[], Err(&full));
        check("6", &["of-2"], &["a"], Ok(()));
        let larger = format!(
            "NodePool p has 2 of resource cpu, nodes that are being launched may take 2, one more node up to 4, {end}"
        );
        check("6", &["of-4"], &["a"], Err(&larger));
        check("6", &["of-4"], &["a", "b"], Ok(()));
        check("6", &["of-2"], &["leaving", "gone"], Err(&full));
        let over = "NodePool p has 4 of resource cpu and its limit is 3; raise the limit, or wait until a node is gone";
        check("3", &["of-2"], &["a", "b"], Err(over));
    }

    #[test]
    fn a_snapshot_counts_what_is_to_come() {
        let mut cluster = Cluster::default();
        cluster.apply(pool(&json!({"cpu": "6"})));
        reserve(&mut cluster, &json!({}), &["of-2", "of-4"], &[]).unwrap();
        let inputs = Inputs {
            instance_types: [("p".to_owned(), Ok(catalogue().instance_types))].into(),
            ..Inputs::at(Timestamp::UNIX_EPOCH)
        };
        let taken = cluster.snapshot(inputs).unwrap();
        let launching = &taken.snapshot.pools["p"].launching;
        assert_eq!(launching.amount("cpu"), Quantity::from_units(4));
        assert_eq!(launching.amount("nodes"), Quantity::from_units(1));
    }

    #[test]
    fn a_name_is_reserved_until_its_claim_is_here() {
        let limit = json!({"nodes": "1"});
        let mut cluster = Cluster::default();
        let name = names(&mut cluster, &limit, 1).remove(0);
        cluster.anticipate(claim(&name, 7, None));
        assert!(!cluster.is_reserved(&name));
        assert_eq!(names(&mut cluster, &limit, 1).len(), 0);
        cluster.delete(&claim(&name, 9, None));
        assert_eq!(names(&mut cluster, &limit, 1).len(), 1);
    }

    /// The claims watch lists anew; what was created in between comes with the list, and until it does it must count.
    #[test]
    fn a_reservation_outlasts_an_answer_that_the_index_does_not_take() {
        let limit = json!({"nodes": "2"});
        let mut cluster = Cluster::default();
        let name = names(&mut cluster, &limit, 1).remove(0);
        cluster.apply(claim("a", 9, None));
        assert!(cluster.anticipate(claim(&name, 7, None)).is_none());
        assert!(cluster.is_reserved(&name));
        assert_eq!(names(&mut cluster, &limit, 1).len(), 0);
        cluster.apply(claim(&name, 7, None));
        assert!(!cluster.is_reserved(&name));
        assert_eq!(cluster.node_count("p").total(), 2);
    }

    #[test]
    fn names_are_as_kubernetes_makes_them() {
        let name = names(&mut Cluster::default(), &json!({}), 1).remove(0);
        let (base, suffix) = name.split_once('-').unwrap();
        assert_eq!((base, suffix.len()), ("p", 5));
        let mut long = pool(&json!({}));
        long.metadata.name = Some("x".repeat(63));
        assert_eq!(Cluster::default().new_name(&long, Timestamp::UNIX_EPOCH).len(), 63);
    }
}
