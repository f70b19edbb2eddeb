//! `kerf run --provider=aws` as a process: a real control plane, and the stand-in for AWS on loopback.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{fs, process::Command, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, INITIALIZED},
};
use kerf_aws_model::catalogue::Catalogue;
use kerf_control_plane::{ControlPlane, Profile};
use kerf_e2e::{
    apply, eventually, install_crds,
    operator::{Operator, kerf},
    start,
};
use kerf_fake_aws::{FakeAws, KubeletSettings, Kubelets, Server, Settings};
use kerf_runtime::Clock;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};

const OBJECTS: &str = r#"
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: KarpenterNodeRole-test
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: test}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: test}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m]}
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
  disruption: {consolidateAfter: Never}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: "1", memory: 1Gi}}}]
"#;

/// An account whose cluster is this one.
async fn account(cluster: &ControlPlane) -> FakeAws {
    let version = cluster.client().apiserver_version().await.unwrap();
    let settings = Settings {
        kubernetes_version: format!("{}.{}", version.major, version.minor),
        endpoint: cluster.api_server(),
        ca_bundle: BASE64_STANDARD.encode(fs::read(cluster.dir().join("pki/ca.crt")).unwrap()),
        ..Settings::instant()
    };
    let catalogue = Arc::new(Catalogue::built_in().unwrap());
    FakeAws::new(settings, catalogue, Clock::system())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_pod_gets_an_instance_that_joins_and_goes_again() {
    let cluster = start(Profile::WithoutTaintEviction).await;
    let aws = account(&cluster).await;
    let server = Server::start(aws.clone(), 0).await.unwrap();
    let boot = KubeletSettings { boot: Duration::from_secs(1), ..KubeletSettings::default() };
    let kubelets = tokio::spawn(Kubelets::new(aws.clone(), cluster.client(), boot).run());
    install_crds(
        &cluster,
        &kerf_api::crds_yaml(kerf_api::crd::crds(&[kerf_aws_api::additions()])).unwrap(),
    )
    .await;

    let operator = Operator::start_with(
        &cluster,
        &[
            ("CLOUD_PROVIDER", "aws"),
            ("CLUSTER_NAME", "test"),
            ("AWS_ENDPOINT_URL", &server.url()),
            ("AWS_REGION", "us-west-2"),
            ("AWS_ACCESS_KEY_ID", "fake"),
            ("AWS_SECRET_ACCESS_KEY", "fake"),
        ],
    );
    operator.message("connected to AWS");
    eventually("ready", async || operator.ready()).await;
    apply(&cluster, OBJECTS).await;

    let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    let node = eventually("bound", async || {
        let pod = pods.get("web").await.unwrap();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        node.ok_or(operator.so_far().pop())
    })
    .await;
    let claims: Api<NodeClaim> = Api::all(cluster.client());
    let claim = eventually("initialized", async || {
        let claim = claims.list(&ListParams::default()).await.unwrap().items.remove(0);
        if claim.is_true(INITIALIZED) { Ok(claim) } else { Err(claim) }
    })
    .await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = nodes.get(&node).await.unwrap();
    let instances = aws.alive();
    assert_eq!(instances.len(), 1, "{instances:?}");
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap();
    assert!(provider_id.ends_with(&instances[0]), "{provider_id}");
    assert_eq!(claim.status.as_ref().unwrap().provider_id, provider_id);
    assert_eq!(node.labels()["karpenter.k8s.aws/ec2nodeclass"], "default");

    pods.delete("web", &DeleteParams::default().grace_period(0)).await.unwrap();
    claims.delete(&claim.name_any(), &DeleteParams::default()).await.unwrap();
    eventually("gone", async || {
        let claims = claims.list(&ListParams::default()).await.unwrap().items.len();
        let left = (aws.alive().len(), claims);
        if left == (0, 0) { Ok(()) } else { Err(left) }
    })
    .await;
    kubelets.abort();
}

/// No cluster is needed for this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_of_the_account_is_what_plans_are_made_with() {
    let catalogue = Arc::new(Catalogue::built_in().unwrap());
    let aws = FakeAws::new(Settings::instant(), catalogue, Clock::system());
    let server = Server::start(aws, 0).await.unwrap();
    let run = async |arguments: &[&str]| {
        let mut kerf = Command::new(kerf());
        kerf.args(arguments).env("AWS_ENDPOINT_URL", server.url()).env("AWS_REGION", "us-west-2");
        kerf.env("AWS_ACCESS_KEY_ID", "fake").env("AWS_SECRET_ACCESS_KEY", "fake");
        let output = tokio::task::spawn_blocking(move || kerf.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let written = run(&["aws", "catalogue"]).await;
    assert!(written.contains("\"source\": \"the account's own answers in us-west-2\""));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalogue.json");
    fs::write(&path, written).unwrap();
    let objects = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/aws/plan.yaml");
    let catalogue = format!("--aws-catalogue={}", path.display());
    let plan = run(&["plan", "--provider=aws", &catalogue, "-f", objects]).await;
    assert!(plan.contains("us-west-2a"), "{plan}");
    assert!(!plan.contains("stand in for them"), "prices are the account's: {plan}");
}
