//! Which pods are still to come: those that their ReplicaSets, StatefulSets and Jobs have not created yet.

use std::{collections::BTreeMap, time::Duration};

use kerf_cluster::{
    Cluster,
    owners::{Progress, Short},
};
use tokio::time::Instant;

use super::{batcher::Contents, closing::Outlook};

/// An owner that has created no pod for so many quiet times is not waited for: a quota or a webhook may refuse its pods for ever.
const PATIENCE: u32 = 5;

/// Owners whose pods are still to come, and since when each has not come further.
#[derive(Debug, Default)]
pub(super) struct ToCome(BTreeMap<Box<str>, (u32, Instant)>);

impl ToCome {
    /// Only workloads that are in the batch are waited for, and those that have no pod at all yet. Pods of others may find room
    /// on nodes that are there, as the ones before them did.
    pub(super) fn look(
        &mut self,
        cluster: &Cluster,
        batch: &Contents,
        now: Instant,
        idle: Duration,
    ) -> Outlook {
        let Contents { owners, elsewhere } = batch;
        if !cluster.keeps_owners() || owners.is_empty() {
            return Outlook::Unknown;
        }
        let before = std::mem::take(&mut self.0);
        let (mut pods, mut workloads) = (0_u32, 0);
        for Short { uid, missing, is_new } in cluster.short_owners() {
            let known = before.get(uid).filter(|(then, _)| *then == missing);
            let since = known.map_or(now, |(_, since)| *since);
            self.0.insert(uid.into(), (missing, since));
            let is_in_it = is_new || owners.iter().any(|owner| *owner.uid == *uid);
            if is_in_it && now < since + idle * PATIENCE {
                pods = pods.saturating_add(missing);
                workloads += 1;
            }
        }
        if workloads > 0 {
            return Outlook::Coming { pods, workloads };
        }
        let is_unclear = |owner| cluster.progress_of(owner) == Progress::Unclear;
        if *elsewhere || owners.iter().any(is_unclear) {
            return Outlook::Unknown;
        }
        Outlook::Complete { workloads: u32::try_from(owners.len()).unwrap_or(u32::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
    use kerf_cluster::owners::{Owner, PodOwner};
    use serde_json::json;

    const IDLE: Duration = Duration::from_secs(1);

    fn set(name: &str, replicas: u32) -> Owner<ReplicaSet> {
        let set = json!({
            "metadata": {"namespace": "d", "name": name, "uid": name},
            "spec": {"replicas": replicas, "selector": {}},
        });
        Owner::of(&serde_json::from_value(set).unwrap())
    }

    fn pod(name: &str, owner: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "d", "name": name, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true},
            ]},
            "spec": {"containers": []}, "status": {"phase": "Pending"},
        }))
        .unwrap()
    }

    /// A cluster with these owners, each with how many pods it wants and has.
    fn cluster(owners: &[(&str, u32, u32)]) -> Cluster {
        let mut cluster = Cluster::default();
        cluster.keep_owners();
        for (name, wanted, there) in owners {
            cluster.apply(set(name, *wanted));
            (0..*there).for_each(|at| drop(cluster.apply(pod(&format!("{name}-{at}"), name))));
        }
        cluster
    }

    fn batch(owners: &[&str], elsewhere: bool) -> Contents {
        let owners = owners.iter().filter_map(|owner| PodOwner::of(&pod("p", owner).into()));
        Contents { owners: owners.collect(), elsewhere }
    }

    #[test]
    fn what_is_to_come_follows_from_the_owners_in_the_batch() {
        let coming = |pods, workloads| Outlook::Coming { pods, workloads };
        for (owners, contents, expected) in [
            (&[("a", 3, 1)][..], batch(&["a"], false), coming(2, 1)),
            (&[("a", 3, 1)], batch(&["a"], true), coming(2, 1)),
            (&[("a", 3, 3)], batch(&["a"], false), Outlook::Complete { workloads: 1 }),
            (&[("a", 3, 3)], batch(&["a"], true), Outlook::Unknown),
            (&[("a", 3, 4)], batch(&["a"], false), Outlook::Unknown),
            (&[], batch(&["a"], false), Outlook::Unknown),
            (&[("a", 3, 1)], batch(&[], true), Outlook::Unknown),
            // Of another workload some are there and did not need a node.
            (&[("a", 3, 3), ("b", 9, 5)], batch(&["a"], false), Outlook::Complete { workloads: 1 }),
            // None of it is there.
            (&[("a", 3, 3), ("b", 9, 0)], batch(&["a"], false), coming(9, 1)),
            (&[("a", 3, 2), ("b", 9, 8)], batch(&["a", "b"], false), coming(2, 2)),
        ] {
            let now = Instant::now();
            let outlook = ToCome::default().look(&cluster(owners), &contents, now, IDLE);
            assert_eq!(outlook, expected, "{owners:?} {contents:?}");
        }
    }

    #[test]
    fn an_owner_that_comes_no_further_is_given_up_until_it_does() {
        let (mut to_come, start) = (ToCome::default(), Instant::now());
        let contents = batch(&["a"], false);
        let mut at = |ms: u64, there: u32| {
            let now = start + Duration::from_millis(ms);
            to_come.look(&cluster(&[("a", 10, there)]), &contents, now, IDLE)
        };
        let coming = |pods| Outlook::Coming { pods, workloads: 1 };
        let complete = Outlook::Complete { workloads: 1 };
        assert_eq!([at(0, 1), at(4999, 1), at(5000, 1)], [coming(9), coming(9), complete]);
        // In the next batch it is not waited for again.
        assert_eq!(at(60_000, 1), complete);
        assert_eq!([at(61_000, 2), at(66_000, 2)], [coming(8), complete]);
    }

    #[test]
    fn owners_are_no_matter_where_they_are_not_kept() {
        let (mut cluster, now) = (Cluster::default(), Instant::now());
        cluster.apply(pod("p", "a"));
        let outlook = ToCome::default().look(&cluster, &batch(&["a"], false), now, IDLE);
        assert_eq!(outlook, Outlook::Unknown);
    }
}
