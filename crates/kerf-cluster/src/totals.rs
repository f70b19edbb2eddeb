//! The resources of a pool's nodes, summed up.

use kerf_model::{Quantity, Resources};

use crate::{Cluster, state_node::UnreadableStateNode};

/// Resources that a pool's status always names, also when it has none of them.
const ALWAYS_NAMED: [&str; 5] = ["cpu", "memory", "pods", "ephemeral-storage", "nodes"];

impl Cluster {
    /// The capacity of the pool's machines, each also counting as one of `nodes`. Those that are being deleted do not count.
    pub fn pool_resources(&self, pool: &str) -> Result<Resources, UnreadableStateNode> {
        let zeros = ALWAYS_NAMED.into_iter().map(|name| (name, Quantity::ZERO));
        let mut total: Resources = zeros.collect();
        let (amounts, machines) = self.pool_total(pool)?;
        total.add(&amounts);
        let nodes = i64::try_from(machines).unwrap_or(i64::MAX);
        total.add(&Resources::new().with("nodes", Quantity::from_units(nodes)));
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use kerf_api::NodeClaim;
    use kube_core::ResourceExt;
    use serde_json::json;

    #[test]
    fn counts_what_a_pool_has_and_what_is_on_its_way() {
        let claim = |name: &str, deleted: Option<&str>| -> NodeClaim {
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}, "deletionTimestamp": deleted},
                "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": {"providerID": name, "capacity": {"cpu": "4"}},
            }))
            .unwrap()
        };
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {
                "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}},
            "spec": {"providerID": "b"}, "status": {"capacity": {"cpu": "3", "memory": "1Gi"}},
        }))
        .unwrap();
        let mut cluster = Cluster::default();
        let text = |cluster: &Cluster| cluster.pool_resources("p").unwrap().to_string();
        assert_eq!(cluster.pool_resources("p").unwrap().amount("nodes"), Quantity::ZERO);
        assert!(
            cluster.pool_resources("p").unwrap().get("ephemeral-storage").is_some(),
            "{}",
            text(&cluster)
        );
        cluster.apply(claim("a", None));
        cluster.apply(claim("b", None));
        cluster.apply(node);
        cluster.apply(claim("c", Some("2026-01-01T00:00:00Z")));
        let mut of_another = claim("d", None);
        of_another.labels_mut().insert("karpenter.sh/nodepool".into(), "q".into());
        cluster.apply(of_another);
        let total = cluster.pool_resources("p").unwrap();
        assert_eq!(total.amount("nodes"), Quantity::from_units(2));
        assert_eq!(total.amount("cpu"), Quantity::from_units(7));
        let total = cluster.pool_resources("q").unwrap();
        assert_eq!(total.amount("nodes"), Quantity::from_units(1));
        assert_eq!(total.amount("cpu"), Quantity::from_units(4));
    }
}
