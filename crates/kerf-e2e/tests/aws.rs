//! `kerf run --provider=aws` as a process: a real control plane, and the stand-in for AWS on loopback.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, INITIALIZED},
};
use kerf_aws_model::catalogue::Catalogue;
use kerf_aws_wire::ec2;
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
use tokio_util::task::AbortOnDropHandle;

const OBJECTS: &str = r"
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
      - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
  disruption: {consolidateAfter: Never}
";

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: "1", memory: 1Gi}}}]
"#;

/// A port of the host is there once on each node.
const TWENTY_APART: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 20
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: c
        image: i
        ports: [{containerPort: 80, hostPort: 80}]
        resources: {requests: {cpu: "1", memory: 1Gi}}
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

/// A cluster whose nodes are instances of the stand-in.
struct World {
    cluster: ControlPlane,
    aws: FakeAws,
    operator: Operator,
    _kubelets: AbortOnDropHandle<()>,
    /// It answers the operator's calls.
    _server: Server,
}

impl World {
    async fn start(boot: Duration, variables: &[(&str, &str)]) -> Self {
        let cluster = start(Profile::WithoutTaintEviction).await;
        let aws = account(&cluster).await;
        let server = Server::start(aws.clone(), 0).await.unwrap();
        let settings = KubeletSettings { boot, ..KubeletSettings::default() };
        let kubelets = Kubelets::new(aws.clone(), cluster.client(), settings).run();
        let kubelets = AbortOnDropHandle::new(tokio::spawn(kubelets));
        let crds = kerf_api::crd::crds(&[kerf_aws_api::additions()]);
        install_crds(&cluster, &kerf_api::crds_yaml(crds).unwrap()).await;
        let url = server.url();
        let always = [
            ("CLOUD_PROVIDER", "aws"),
            ("CLUSTER_NAME", "test"),
            ("AWS_ENDPOINT_URL", &url),
            ("AWS_REGION", "us-west-2"),
            ("AWS_ACCESS_KEY_ID", "fake"),
            ("AWS_SECRET_ACCESS_KEY", "fake"),
        ];
        let operator = Operator::start_with(&cluster, &[&always[..], variables].concat());
        operator.message("connected to AWS");
        eventually("ready", async || operator.ready()).await;
        apply(&cluster, OBJECTS).await;
        Self { cluster, aws, operator, _kubelets: kubelets, _server: server }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all(self.cluster.client())
    }

    /// The nodes of pods that run and stay.
    async fn running(&self) -> Vec<String> {
        let runs = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            pod.metadata.deletion_timestamp.is_none() && phase == Some("Running")
        };
        let pods = self.api::<Pod>().list(&ListParams::default()).await.unwrap();
        let running = pods.items.into_iter().filter(runs);
        running.filter_map(|pod| pod.spec?.node_name).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_pod_gets_an_instance_that_joins_and_goes_again() {
    let world = World::start(Duration::from_secs(1), &[]).await;
    apply(&world.cluster, POD).await;

    let pods: Api<Pod> = Api::namespaced(world.cluster.client(), "default");
    let node = eventually("bound", async || {
        let pod = pods.get("web").await.unwrap();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        node.ok_or(world.operator.so_far().pop())
    })
    .await;
    let claims: Api<NodeClaim> = world.api();
    let claim = eventually("initialized", async || {
        let claim = claims.list(&ListParams::default()).await.unwrap().items.remove(0);
        if claim.is_true(INITIALIZED) { Ok(claim) } else { Err(claim) }
    })
    .await;
    let node = world.api::<Node>().get(&node).await.unwrap();
    let instances = world.aws.alive();
    assert_eq!(instances.len(), 1, "{instances:?}");
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap();
    assert!(provider_id.ends_with(&instances[0]), "{provider_id}");
    assert_eq!(claim.status.as_ref().unwrap().provider_id, provider_id);
    assert_eq!(node.labels()["karpenter.k8s.aws/ec2nodeclass"], "default");

    pods.delete("web", &DeleteParams::default().grace_period(0)).await.unwrap();
    claims.delete(&claim.name_any(), &DeleteParams::default()).await.unwrap();
    eventually("gone", async || {
        let claims = claims.list(&ListParams::default()).await.unwrap().items.len();
        let left = (world.aws.alive().len(), claims);
        if left == (0, 0) { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_interrupted_nodes_are_drained_and_replaced_before_ec2_takes_them() {
    let queue = [("INTERRUPTION_QUEUE", "test")];
    let world = World::start(Duration::from_secs(10), &queue).await;
    apply(&world.cluster, TWENTY_APART).await;
    let before = eventually("running on twenty nodes", async || {
        let nodes: BTreeSet<_> = world.running().await.into_iter().collect();
        if nodes.len() == 20 { Ok(nodes) } else { Err(nodes.len()) }
    })
    .await;
    let interrupted = world.aws.alive();
    assert_eq!(interrupted.len(), 20);

    let begin = Instant::now();
    for id in &interrupted {
        world.aws.interrupt_spot(id);
    }
    eventually("running on other nodes", async || {
        let nodes = world.running().await;
        let stay = nodes.iter().filter(|node| before.contains(*node)).count();
        if (nodes.len(), stay) == (20, 0) { Ok(()) } else { Err((nodes.len(), stay)) }
    })
    .await;
    println!("20 nodes that boot in 10 s were replaced in {:.1?}", begin.elapsed());
    let ends = eventually("terminated", async || {
        let mut instances = world.aws.instances();
        instances.retain(|one| one.instance_id.as_ref().is_some_and(|id| interrupted.contains(id)));
        let end = |one: ec2::Instance| one.state_reason.and_then(|reason| reason.code);
        let ends: Vec<_> = instances.into_iter().filter_map(end).collect();
        if ends.len() == 20 { Ok(ends) } else { Err(ends) }
    })
    .await;
    let by_kerf = ends.iter().filter(|end| *end == "Client.UserInitiatedShutdown").count();
    assert_eq!(by_kerf, 20, "EC2 took instances that were not drained yet: {ends:?}");
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
