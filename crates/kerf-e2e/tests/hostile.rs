//! `kerf run` as a process on a real API server that somebody wishes ill: connections that hang, objects that no type of ours
//! can hold, custom resources that are deleted under it.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{NodeClaim, NodePool};
use kerf_control_plane::{ControlPlane, Profile};
use kerf_e2e::{apply, eventually, install, operator::Operator, start};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::ApiResource,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The operator may be blind for this long.
const BLIND: Duration = Duration::from_secs(30);

const USER: &str = "operator";

// The proxy has to go on while the test waits for a line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_hang_leave_it_blind_for_less_than_thirty_seconds() {
    let cluster = with_crds().await;
    let proxy = Proxy::to(&cluster).await;
    let mut operator = Operator::start_alone(&cluster, USER, Some(&proxy.url()));
    // A request of its start that hangs is waited for as long as any request: that is another matter.
    eventually("it is ready", async || operator.ready()).await;
    // Every connection that there is goes silent, and nobody says so. New ones are served.
    proxy.hang();
    let begin = Instant::now();
    apply(&cluster, POOL).await;
    let pools: Api<NodePool> = Api::all(cluster.client());
    eventually("the pool is seen", async || {
        let pool = pools.get("default").await.map_err(|error| error.to_string())?;
        let seen = pool.status.is_some_and(|status| !status.conditions.is_empty());
        seen.then_some(()).ok_or_else(|| "it has no conditions".to_owned())
    })
    .await;
    let blind = begin.elapsed();
    assert!(blind < BLIND, "the pool was seen after {blind:?}");

    // Now nothing gets through at all: it says so, and ends when it is asked to.
    proxy.refuse_new_ones();
    proxy.hang();
    let begin = Instant::now();
    eventually("it is not ready", async || operator.unready("index")).await;
    let noticed = begin.elapsed();
    assert!(noticed < BLIND + Duration::from_secs(5), "it was ready for {noticed:?}");
    let begin = Instant::now();
    operator.signal("TERM");
    operator.exit_code();
    let ended = begin.elapsed();
    assert!(ended < Duration::from_secs(10), "it took {ended:?} to end");
    eprintln!("blind for {blind:?}, unready after {noticed:?}, ended after {ended:?}");
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_named_once_and_keep_it_from_nothing() {
    let cluster = with_crds().await;
    apply(&cluster, POOL).await;
    apply(&cluster, SECRETIVE_POD).await;
    let never = "9999-12-31T23:59:59Z";
    spoil::<Pod>(&cluster, "default", "secretive", json!({"startTime": never})).await;
    let condition = |time: &str| {
        json!({"type": "Spoilt", "status": "True", "lastTransitionTime": time,
                                        "lastHeartbeatTime": "2026-01-01T00:00:00Z"})
    };
    apply(&cluster, "{apiVersion: v1, kind: Node, metadata: {name: foreign}}").await;
    spoil::<Node>(&cluster, "", "foreign", json!({"conditions": [condition(never)]})).await;
    let mut of_pool = condition("2026-01-01T00:00:00+99:99");
    of_pool["reason"] = json!("Spoilt");
    of_pool["message"] = json!("");
    of_pool.as_object_mut().unwrap().remove("lastHeartbeatTime");
    spoil::<NodePool>(&cluster, "", "default", json!({"conditions": [of_pool]})).await;

    let mut operator = Operator::start_alone(&cluster, USER, None);
    operator.message("starting controllers");
    eventually("it is ready", async || operator.ready()).await;
    let mut named: Vec<(String, String)> = operator
        .so_far()
        .iter()
        .filter(|line| line["field"].is_string())
        .map(|line| (line["kind"].as_str().unwrap().into(), line["field"].as_str().unwrap().into()))
        .collect();
    named.sort();
    let of = |kind: &str, field: &str| (kind.to_owned(), field.to_owned());
    assert_eq!(
        named,
        [
            of("Node", "status.conditions[0].lastTransitionTime"),
            of("NodePool", "status.conditions[0].lastTransitionTime"),
            of("Pod", "status.startTime"),
        ]
    );
    operator.signal("TERM");
    assert_eq!(operator.exit_code(), Some(0));
    let log = operator.so_far().iter().map(Value::to_string).collect::<String>();
    assert!(!log.contains("hunter2"), "a secret is in the log: {log}");
}

#[tokio::test]
async fn custom_resources_that_go_make_it_unready_and_take_no_node_along() {
    let cluster = with_crds().await;
    apply(&cluster, POOL).await;
    let operator = Operator::start_alone(&cluster, USER, None);
    operator.message("starting controllers");
    apply(&cluster, CLAIM).await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = eventually("the claim has a node", async || {
        let nodes = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        nodes.items.first().cloned().ok_or_else(|| "no node".to_owned())
    })
    .await;
    for crd in ["nodeclaims.karpenter.sh", "nodepools.karpenter.sh"] {
        let deleted = cluster.kubectl(&["delete", "crd", crd, "--wait=false"]).await.unwrap();
        assert!(deleted.status.success(), "{}", String::from_utf8_lossy(&deleted.stderr));
    }
    let claims: Api<NodeClaim> = Api::all(cluster.client());
    eventually("the API server deletes the claim", async || {
        let claim = claims.get("by-hand").await.map_err(|error| error.to_string())?;
        claim.metadata.deletion_timestamp.map(drop).ok_or_else(|| "it stays".to_owned())
    })
    .await;
    eventually("it is not ready", async || operator.unready("crd")).await;
    operator.line(|line| {
        line["message"].as_str().is_some_and(|message| message.starts_with("nothing is terminated"))
    });
    // Longer than it takes to delete a node whose claim is deleted, which happens at once.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let node = nodes.get(&node.name_any()).await.unwrap();
    assert_eq!(node.metadata.deletion_timestamp, None, "the node goes");
}

const POOL: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: []
---
{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}, spec: {}}
";

const CLAIM: &str = "
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: by-hand}
spec:
  nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
  requirements: []
";

const SECRETIVE_POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: secretive, namespace: default}
spec:
  automountServiceAccountToken: false
  containers: [{name: main, image: main, env: [{name: PASSWORD, value: hunter2}]}]
";

async fn with_crds() -> ControlPlane {
    let cluster = start(Profile::ApiOnly).await;
    install(&cluster, &kerf_api::crds_yaml(kerf_provider_kwok::crds()).unwrap()).await;
    cluster
}

/// Writes a status that our types cannot hold.
async fn spoil<K: kube::Resource<DynamicType = ()>>(
    cluster: &ControlPlane,
    namespace: &str,
    name: &str,
    status: Value,
) {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = if namespace.is_empty() {
        Api::all_with(cluster.client(), &resource)
    } else {
        Api::namespaced_with(cluster.client(), namespace, &resource)
    };
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Stands between an operator and its API server, and can let connections hang.
struct Proxy {
    port: u16,
    /// Connections are numbered; those below this number hang.
    hung_below: Arc<AtomicUsize>,
    count: Arc<AtomicUsize>,
}

impl Proxy {
    async fn to(cluster: &ControlPlane) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = cluster.config().cluster_url.authority().unwrap().to_string();
        let (hung_below, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let proxy = Self { port, hung_below: hung_below.clone(), count: count.clone() };
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (target, hung_below) = (target.clone(), hung_below.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(target).await.unwrap();
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    let hangs = move || number < hung_below.load(Ordering::SeqCst);
                    tokio::join!(
                        pass(from_client, to_server, hangs.clone()),
                        pass(from_server, to_client, hangs)
                    );
                });
            }
        });
        proxy
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Nothing comes through the connections that there are any more.
    fn hang(&self) {
        self.hung_below.fetch_max(self.count.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    fn refuse_new_ones(&self) {
        self.hung_below.store(usize::MAX, Ordering::SeqCst);
    }
}

async fn pass(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    hangs: impl Fn() -> bool,
) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let Ok(read) = from.read(&mut bytes).await else { return };
        if hangs() {
            return std::future::pending().await;
        }
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
