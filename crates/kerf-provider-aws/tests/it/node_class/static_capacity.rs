//! The example of Karpenter's proposal for static capacity.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodePool, conditions::Conditioned};
use kerf_aws_model::catalogue::{Catalogue, Document};
use kerf_fake_aws::{KubeletSettings, Kubelets};
use kerf_testbed::actors::Actors;
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;

use super::stage::Stage;

/// As printed, with two changes: the version of the API is today's, and the class has a name that Kubernetes takes. It refuses
/// capital letters in names.
const EXAMPLE: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: static-prod-nodepool
spec:
  replicas: 12 # Maintains 12 nodes
  template:
    metadata:
      labels:
        nodepool-type: static
    spec:
      nodeClassRef:
        group: karpenter.k8s.aws
        kind: EC2NodeClass
        name: my-ec2-node-class
      expireAfter: 720h
      taints:
        - key: example.com/special-taint
          effect: NoSchedule
      requirements:
        - key: topology.kubernetes.io/zone
          operator: In
          values: ["zone-2a"]
        - key: karpenter.k8s.aws/instance-type
          operator: In
          values: ["m5.2xlarge"]
  disruption:
    budgets:
      - nodes: 10%
      # On Weekdays during business hours, don't do any deprovisioning.
      - schedule: "0 9 * * mon-fri"
        duration: 8h
        nodes: "0"
  limits:
    # Constrain the size of static Nodepool
    nodes: 20 # Karpenter will not scale up nodes or create replacements if limits are breaching
"#;

/// A region whose zones are called as in the example.
fn catalogue() -> Arc<Catalogue> {
    let document = json!({
        "source": "the example", "retrieved": "2026-11-16",
        "zones": {"zone-2": {"zones": "abc", "offered": {"m5": "abc"}}},
    });
    let mut catalogue = Catalogue::built_in().unwrap();
    catalogue.lay_over(Document::read(&document.to_string()).unwrap());
    Arc::new(catalogue)
}

#[tokio::test(start_paused = true)]
async fn the_example_of_the_proposal_keeps_twelve_nodes_of_its_type_in_its_zone() {
    let mut stage = Stage::in_region("zone-2", catalogue());
    let kubelets =
        Kubelets::new(stage.aws.clone(), stage.testbed.client(), KubeletSettings::default());
    let kubelets = tokio::spawn(kubelets.run());
    let _actors = stage.testbed.start_actors(Actors::default());
    stage.start();
    stage.create("my-ec2-node-class", &json!({})).await;
    let pool: NodePool = serde_saphyr::from_str(EXAMPLE).unwrap();
    let pools: Api<NodePool> = Api::all(stage.testbed.client());
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let claims: Api<NodeClaim> = Api::all(stage.testbed.client());
    let initialized = async || {
        let all = claims.list(&ListParams::default()).await.unwrap();
        all.iter().filter(|claim| claim.is_true("Initialized")).count() == 12
    };
    stage.testbed.advance_until("12 nodes", Duration::from_mins(30), initialized).await.unwrap();
    let nodes: Api<Node> = Api::all(stage.testbed.client());
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    assert_eq!((nodes.items.len(), stage.aws.alive().len()), (12, 12));
    for node in nodes {
        let label = |key: &str| node.labels().get(key).cloned().unwrap_or_default();
        assert_eq!(label("node.kubernetes.io/instance-type"), "m5.2xlarge");
        assert_eq!(label("topology.kubernetes.io/zone"), "zone-2a");
        assert_eq!(label("nodepool-type"), "static");
        let taints = node.spec.unwrap().taints.unwrap_or_default();
        assert!(taints.iter().any(|taint| taint.key == "example.com/special-taint"), "{taints:?}");
    }
    let pool = pools.get("static-prod-nodepool").await.unwrap();
    assert_eq!(pool.status.unwrap().nodes, 12);
    kubelets.abort();
}
