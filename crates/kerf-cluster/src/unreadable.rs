//! What follows from an object that cannot be read as a whole.
//!
//! It is treated as the safest thing that it can be: a machine that it belongs to is not disrupted and takes no more pods, and
//! what it says is not acted on.

use kerf_api::Unreadable;
use kube_core::ResourceExt;

use crate::{Cluster, Key, pods, state_node::StateNode};

impl Cluster {
    /// What of a machine cannot be read: its node, its claim, or a pod that is on it.
    pub fn unreadable_part(&self, machine: StateNode<'_>) -> Option<&Unreadable> {
        let of_node = || {
            let name = machine.node?.metadata.name.as_deref()?;
            self.nodes.unreadable(&Key::cluster(name)).or_else(|| self.unreadable_pod_on(name))
        };
        let of_claim = || self.claims.unreadable(&Key::cluster(machine.claim?.name_any()));
        // Asked of every machine in every pass, and nearly always there is none at all.
        if self.nodes.all_unreadable().is_empty()
            && self.claims.all_unreadable().is_empty()
            && self.pods.all_unreadable().is_empty()
        {
            return None;
        }
        of_node().or_else(of_claim)
    }

    /// Whether so much of the claim and of its nodes can be read that something may be done about it.
    pub fn is_readable(&self, claim: &str) -> bool {
        if self.claims.unreadable(&Key::cluster(claim)).is_some() {
            return false;
        }
        if self.nodes.all_unreadable().is_empty() {
            return true;
        }
        let provider_id = self.claims.named(claim).map_or("", |claim| claim.provider_id());
        let mut nodes = self.nodes_of(provider_id);
        !nodes.any(|node| self.nodes.unreadable(&Key::cluster(node.name_any())).is_some())
    }

    fn unreadable_pod_on(&self, node: &str) -> Option<&Unreadable> {
        let on_node = self.pods_by_node.get(node).into_iter().flatten();
        on_node
            .filter(|key| self.pods.get(key).is_some_and(|pod| !pods::is_terminal(pod)))
            .find_map(|key| self.pods.unreadable(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Kind};
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kerf_api::{NodeClaim, decode::decode};
    use kerf_model::KnownLabels;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    const NEVER: &str = "9999-12-31T23:59:59Z";

    fn add<K: Kind + DeserializeOwned>(cluster: &mut Cluster, object: Value) -> Option<Change> {
        cluster.take_in::<K>(decode("Kind", object)).change
    }

    fn node(version: u8, time: &str) -> Value {
        json!({
            "metadata": {"name": "n", "resourceVersion": version.to_string(), "labels": {
                "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}},
            "spec": {"providerID": "i"},
            "status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"},
                       "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]},
        })
    }

    fn claim(time: &str) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": "i", "lastPodEventTime": time},
        })
    }

    fn pod(phase: &str, time: &str) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": phase, "startTime": time},
        })
    }

    /// What cannot be read of the only machine, and the CPUs that it has for pods.
    fn seen(cluster: &Cluster) -> (Option<String>, String) {
        let machine = cluster.state_nodes().next().unwrap();
        let why = cluster.unreadable_part(machine).map(ToString::to_string);
        let known = KnownLabels::default();
        let views = cluster.node_views(&known, &mut cluster.pod_reader(&known)).unwrap();
        let field = why.map(|why| why.split("field ").nth(1).unwrap_or_default().to_owned());
        let field = field.map(|it| it.split(' ').next().unwrap_or_default().to_owned());
        (field, views[0].allocatable.amount("cpu").to_string())
    }

    #[test]
    fn a_machine_of_which_a_part_cannot_be_read_is_full_and_left_alone() {
        let now = "2026-01-01T00:00:00Z";
        let whole = || (None, "4".to_owned());
        for (objects, field) in [
            ([node(1, now), claim(now), pod("Running", now)], None),
            (
                [node(1, NEVER), claim(now), pod("Running", now)],
                Some("status.conditions[0].lastTransitionTime"),
            ),
            ([node(1, now), claim(NEVER), pod("Running", now)], Some("status.lastPodEventTime")),
            ([node(1, now), claim(now), pod("Running", NEVER)], Some("status.startTime")),
            ([node(1, now), claim(now), pod("Succeeded", NEVER)], None),
        ] {
            let mut cluster = Cluster::default();
            let [node, claim, pod] = objects;
            add::<Node>(&mut cluster, node);
            add::<NodeClaim>(&mut cluster, claim);
            add::<Pod>(&mut cluster, pod);
            let expected = field.map_or_else(whole, |it| (Some(it.to_owned()), "0".to_owned()));
            assert_eq!(seen(&cluster), expected);
            let of_claim = field == Some("status.lastPodEventTime");
            let of_node = field.is_some_and(|field| field.contains("conditions"));
            assert_eq!(cluster.is_readable("c"), !of_claim && !of_node, "{field:?}");
        }
    }

    #[test]
    fn what_is_mended_is_read_again_and_what_is_gone_is_forgotten() {
        let mut cluster = Cluster::default();
        let report = |cluster: &mut Cluster, object| {
            cluster.take_in::<Node>(decode("Node", object)).unreadable.is_some()
        };
        let count =
            |cluster: &Cluster| cluster.unreadable().iter().map(|(_, them)| them).sum::<usize>();
        assert!(report(&mut cluster, node(1, NEVER)));
        assert!(!report(&mut cluster, node(2, NEVER)), "it is reported once");
        assert_eq!(count(&cluster), 1);
        assert!(!report(&mut cluster, node(3, "2026-01-01T00:00:00Z")));
        assert_eq!((count(&cluster), seen(&cluster).0), (0, None));
        assert!(report(&mut cluster, node(4, NEVER)));
        let Some(last) = cluster.nodes().named("n").cloned() else { panic!("it is there") };
        cluster.delete(&*last);
        assert_eq!(count(&cluster), 0);
    }

    #[test]
    fn a_pod_that_cannot_be_read_is_not_evicted() {
        let mut cluster = Cluster::default();
        add::<Pod>(&mut cluster, pod("Running", NEVER));
        let now = Timestamp::UNIX_EPOCH;
        let pod = cluster.pods().values().next().unwrap();
        assert!(!pods::is_evictable(pod, now) && pods::is_waiting_for_eviction(pod, now));
    }

    #[test]
    fn of_what_cannot_be_read_at_all_the_last_that_was_known_stays() {
        let mut cluster = Cluster::default();
        cluster.begin_list::<NodeClaim>(1);
        add::<NodeClaim>(&mut cluster, claim("2026-01-01T00:00:00Z"));
        cluster.end_list::<NodeClaim>();
        let mut nothing = claim("2026-01-01T00:00:00Z");
        nothing["spec"] = json!("nothing");
        cluster.begin_list::<NodeClaim>(2);
        add::<NodeClaim>(&mut cluster, nothing);
        let (gone, _) = cluster.end_list::<NodeClaim>();
        assert_eq!((gone.len(), cluster.is_readable("c")), (0, false));
        assert!(cluster.claims().named("c").is_some());
    }
}
