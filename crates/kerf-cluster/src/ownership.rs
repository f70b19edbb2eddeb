//! Which NodePools, NodeClaims and Nodes are this operator's.
//!
//! Several operators can share a cluster, each with NodeClasses of its own kinds, and NodePools and NodeClaims are the same
//! kinds for all of them. What belongs to another operator is not taken into the index at all, so that no controller can
//! touch it, count it or plan with it. The Nodes of another operator are nodes like any other: kube-scheduler places pods on
//! them once they are ready, and so do plans.

use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodeClassReference, NodePool, labels};
use kube_core::ResourceExt;

/// The kinds of NodeClass that an operator understands. By default all of them: a saved cluster has no operator.
#[derive(Clone, Debug, Default)]
pub struct Ownership(Option<Vec<ClassKind>>);

#[derive(Clone, Debug)]
struct ClassKind {
    group: String,
    kind: String,
    label: String,
}

impl Ownership {
    /// What refers to a NodeClass of one of these groups and kinds.
    pub fn of_kinds<'a>(kinds: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let kinds = kinds.into_iter().map(|(group, kind)| ClassKind {
            group: group.to_owned(),
            kind: kind.to_owned(),
            label: labels::node_class(group, kind),
        });
        Self(Some(kinds.collect()))
    }

    pub fn includes(&self, class: &NodeClassReference) -> bool {
        let own = |kind: &ClassKind| kind.group == class.group && kind.kind == class.kind;
        self.0.as_ref().is_none_or(|kinds| kinds.iter().any(own))
    }

    /// Whether another operator launched the node: it has a NodePool, and its NodeClass is of no kind that is ours.
    pub fn is_of_another(&self, node: &Node) -> bool {
        let Some(kinds) = &self.0 else { return false };
        let labels = node.labels();
        labels.contains_key(labels::NODE_POOL)
            && !kinds.iter().any(|kind| labels.contains_key(&kind.label))
    }

    /// The NodeClass of the pool, where it is of another operator's kind.
    pub(crate) fn of_pool<'a>(&self, pool: &'a NodePool) -> Option<&'a NodeClassReference> {
        Some(&pool.spec.template.spec.node_class_ref).filter(|class| !self.includes(class))
    }

    /// The NodeClass of the claim, where it is of another operator's kind.
    pub(crate) fn of_claim<'a>(&self, claim: &'a NodeClaim) -> Option<&'a NodeClassReference> {
        Some(&claim.spec.node_class_ref).filter(|class| !self.includes(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cluster;
    use jiff::Timestamp;
    use serde_json::json;

    const CLASS: (&str, &str) = ("cloud.example", "ExampleNodeClass");

    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        cluster.keep_only(Ownership::of_kinds([CLASS]));
        cluster
    }

    fn claim(name: &str, kind: &str) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}},
            "spec": {"requirements": [], "nodeClassRef": {"group": CLASS.0, "kind": kind, "name": "n"}},
            "status": {"providerID": name, "capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
        }))
        .unwrap()
    }

    fn node(name: &str, class_label: &str, deleted: bool) -> Node {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": {"karpenter.sh/nodepool": "p", class_label: "n"},
                "deletionTimestamp": deleted,
            },
            "spec": {"providerID": name, "taints": [{"key": "start", "effect": "NoSchedule"}]},
            "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}},
        }))
        .unwrap()
    }

    #[test]
    fn claims_and_pools_of_another_operator_are_not_taken_in() {
        let mut cluster = cluster();
        assert!(cluster.apply(claim("ours", CLASS.1)).is_some());
        assert!(cluster.apply(claim("theirs", "Other")).is_none());
        let mut pool = NodePool::default();
        pool.spec.template.spec.node_class_ref.kind = "Other".into();
        assert!(cluster.apply(pool).is_none());
        assert_eq!(cluster.claims().values().count(), 1);
        assert_eq!(cluster.state_nodes().count(), 1, "a claim in flight of another is no machine");
        assert_eq!(cluster.node_count("p").active, 1);
        assert_eq!(cluster.pool_resources("p").unwrap().amount("nodes").units(), 1);
    }

    #[test]
    fn what_is_of_another_operator_is_named_once() {
        let mut cluster = cluster();
        let name = |cluster: &mut Cluster, claim| {
            let taken = cluster.take_in(kerf_api::Decoded::Whole(claim));
            taken.foreign.map(|foreign| foreign.class.kind)
        };
        assert_eq!(name(&mut cluster, claim("ours", CLASS.1)), None);
        assert_eq!(name(&mut cluster, claim("theirs", "Other")).as_deref(), Some("Other"));
        assert_eq!(name(&mut cluster, claim("theirs", "Other")), None);
        assert_eq!(name(&mut cluster, claim("also", "Other")).as_deref(), Some("Other"));
        cluster.delete(&claim("theirs", "Other"));
        assert_eq!(name(&mut cluster, claim("theirs", "Other")).as_deref(), Some("Other"));
    }

    #[test]
    fn by_default_everything_is_ours() {
        let mut cluster = Cluster::default();
        assert!(cluster.apply(claim("theirs", "Other")).is_some());
        assert!(!Ownership::default().is_of_another(&node("n", "x/other", false)));
    }

    /// A place for pods like any node that no operator launched: its taints count, its pool has nothing of it.
    #[test]
    fn a_node_of_another_operator_is_a_node_like_any_other() {
        let mut cluster = cluster();
        cluster.apply(claim("theirs", "Other"));
        cluster.apply(node("theirs", "cloud.example/other", false));
        let inputs = crate::snapshot::Inputs::at(Timestamp::UNIX_EPOCH);
        let taken = cluster.snapshot(inputs).unwrap();
        let [node] = &taken.snapshot.nodes[..] else { panic!("{:?}", taken.snapshot.nodes) };
        assert_eq!((&node.claim, &node.pool), (&None, &None));
        assert!(node.exists && node.initialized && !node.deleting);
        assert_eq!(node.taints.len(), 1);
        assert_eq!(cluster.pool_resources("p").unwrap().amount("nodes").units(), 0);
    }

    /// The other operator launches for the pods of its own nodes. Ours get a place before they are evicted.
    #[test]
    fn pods_on_leaving_nodes_of_another_operator_are_not_ours_to_place() {
        for (label, pods) in [("cloud.example/other", 0), ("cloud.example/examplenodeclass", 1)] {
            let mut cluster = cluster();
            cluster.apply(node("n", label, true));
            let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({
                "metadata": {"namespace": "d", "name": "a"},
                "spec": {"containers": [], "nodeName": "n"}, "status": {"phase": "Running"},
            }))
            .unwrap();
            cluster.apply(pod);
            assert_eq!(cluster.pods_to_place(Timestamp::UNIX_EPOCH).len(), pods, "{label}");
        }
    }
}
