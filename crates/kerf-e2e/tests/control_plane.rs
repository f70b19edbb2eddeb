//! The control plane itself: what every other test here stands on.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kerf_control_plane::detached::{self, DetachedError};
use kerf_control_plane::{ADMINS, Binaries, ControlPlane, Profile, Program};
use kerf_e2e::{apply, eventually, shared_api_server, start};
use kube::api::{EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

const NODE: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: bench, annotations: {kwok.x-k8s.io/node: fake}}
status: {capacity: {cpu: "4", memory: 8Gi, pods: "10"}}
"#;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: saw}
spec:
  replicas: 2
  selector: {matchLabels: {app: saw}}
  template:
    metadata: {labels: {app: saw}}
    spec:
      containers:
      - {name: saw, image: saw, resources: {requests: {cpu: 500m}}}
";

const BUDGET: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: saw}
spec: {minAvailable: 2, selector: {matchLabels: {app: saw}}}
";

#[tokio::test]
async fn a_fresh_cluster_is_empty() {
    let cluster = start(Profile::Full).await;
    let client = cluster.client();
    assert!(list::<Node>(&client).await.is_empty());
    assert!(list::<Pod>(&client).await.is_empty());
    let mut namespaces: Vec<_> =
        list::<Namespace>(&client).await.into_iter().filter_map(|it| it.metadata.name).collect();
    namespaces.sort();
    assert_eq!(namespaces, ["default", "kube-node-lease", "kube-public", "kube-system"]);

    let version = cluster.kubectl(&["version", "-o", "json"]).await.unwrap();
    let version: serde_json::Value = serde_json::from_slice(&version.stdout).unwrap();
    assert_eq!(version["clientVersion"]["gitVersion"], version["serverVersion"]["gitVersion"]);
}

#[tokio::test]
async fn the_audit_log_tells_who_wrote_what() {
    let cluster = start(Profile::ApiOnly.audited()).await;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sawmill"}});
    let kubeconfig = cluster.kubeconfig_of("carpenter", ADMINS, None).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments = [&kubeconfig, "create", "-f", "-"];
    let created = cluster.kubectl_with_input(&arguments, namespace.to_string()).await.unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let log = fs::read_to_string(cluster.audit_log().unwrap()).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let by_carpenter = lines.filter(|line| line["user"]["username"] == "carpenter");
    let writes: Vec<_> = by_carpenter.filter(|line| line["verb"] == "create").collect();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!(writes[0]["objectRef"]["name"], "sawmill");
    assert_eq!(writes[0]["responseStatus"]["code"], 201);
}

#[tokio::test]
async fn pods_run_on_a_kwok_node_and_are_evicted_within_their_budget() {
    let cluster = start(Profile::Full).await;
    let client = cluster.client();
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let budgets = Api::<PodDisruptionBudget>::default_namespaced(client.clone());

    apply(&cluster, DEPLOYMENT).await;
    eventually("unschedulable", async || {
        let pods = list::<Pod>(&client).await;
        let refused = pods.iter().filter(|pod| condition(pod, "PodScheduled") == Some("False"));
        if refused.count() == 2 { Ok(()) } else { Err(pods) }
    })
    .await;

    apply(&cluster, NODE).await;
    let running = eventually("running", async || {
        let pods = list::<Pod>(&client).await;
        let ready = pods.iter().filter(|pod| condition(pod, "Ready") == Some("True"));
        if ready.count() == 2 { Ok(pods) } else { Err(pods) }
    })
    .await;
    for pod in &running {
        assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some("bench"));
        assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    }

    apply(&cluster, BUDGET).await;
    budget_allows(&budgets, 0).await;
    let victim = running[0].metadata.name.as_deref().unwrap();
    let refused = pods.evict(victim, &EvictParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 429), "{refused}");

    let relaxed = Patch::Merge(json!({"spec": {"minAvailable": 1}}));
    budgets.patch("saw", &PatchParams::default(), &relaxed).await.unwrap();
    budget_allows(&budgets, 1).await;
    pods.evict(victim, &EvictParams::default()).await.unwrap();
    eventually("replaced", async || {
        let pods = list::<Pod>(&client).await;
        let gone = pods.iter().all(|pod| pod.metadata.name.as_deref() != Some(victim));
        let ready = pods.iter().filter(|pod| condition(pod, "Ready") == Some("True"));
        if gone && ready.count() == 2 { Ok(()) } else { Err(pods) }
    })
    .await;
}

#[tokio::test]
async fn a_node_that_a_test_breaks_stays_broken() {
    let cluster = start(Profile::Full).await;
    let nodes = Api::<Node>::all(cluster.client());
    apply(&cluster, NODE).await;
    node_is_ready(&nodes, "bench").await;
    let broken = Patch::Strategic(json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "Broken"}
    ]}}));
    nodes.patch_status("bench", &PatchParams::default(), &broken).await.unwrap();

    // kwok handles events in their order: once it has seen to this node, it has seen the broken one.
    apply(&cluster, &NODE.replace("bench", "anvil")).await;
    node_is_ready(&nodes, "anvil").await;
    assert_eq!(readiness(&nodes.get("bench").await.unwrap()), Some("False"));
}

#[tokio::test]
async fn two_clusters_do_not_know_of_each_other() {
    let (one, two) = tokio::join!(start(Profile::ApiOnly), start(Profile::ApiOnly));
    let named = |name: &str| serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    for (cluster, name) in [(&one, "one"), (&two, "two")] {
        let namespaces = Api::<Namespace>::all(cluster.client());
        namespaces.create(&PostParams::default(), &named(name)).await.unwrap();
    }
    for (cluster, own, other) in [(&one, "one", "two"), (&two, "two", "one")] {
        let namespaces = Api::<Namespace>::all(cluster.client());
        assert!(namespaces.get_opt(own).await.unwrap().is_some());
        assert!(namespaces.get_opt(other).await.unwrap().is_none());
    }
    // Nor would the one accept the other's credentials.
    let mut stranger = one.config();
    stranger.cluster_url = two.config().cluster_url;
    let refused = Api::<Namespace>::all(Client::try_from(stranger).unwrap()).get("two").await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn an_api_server_alone_validates_and_stores() {
    let cluster = shared_api_server().await;
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    let pod = |image: &str| {
        serde_json::from_value(json!({
            "metadata": {"name": "alone"},
            "spec": {"containers": [{"name": "saw", "image": image}]},
        }))
        .unwrap()
    };
    let refused = pods.create(&PostParams::default(), &pod("")).await.unwrap_err();
    assert!(refused.to_string().contains("spec.containers[0].image: Required value"), "{refused}");
    let stored = pods.create(&PostParams::default(), &pod("saw")).await.unwrap();
    assert_eq!(stored.spec.unwrap().restart_policy.as_deref(), Some("Always"));
}

#[tokio::test]
async fn what_was_killed_comes_back_with_what_was_stored() {
    let mut cluster = start(Profile::Full).await;
    let kept = "{apiVersion: v1, kind: Namespace, metadata: {name: kept}}";
    apply(&cluster, kept).await;
    for program in [Program::KubeApiserver, Program::Etcd] {
        cluster.kill(program).unwrap();
        let reaches = async || cluster.client().apiserver_version().await.is_ok();
        assert!(program == Program::Etcd || !reaches().await, "it answers without {program:?}");
        cluster.start_again(program).await.unwrap();
        eventually("the namespace is there", async || {
            Api::<Namespace>::all(cluster.client()).get("kept").await
        })
        .await;
        let running = cluster.processes();
        assert_eq!(running.len(), 5, "{running:?}");
    }
}

#[tokio::test]
async fn a_stopped_cluster_leaves_nothing() {
    let cluster = start(Profile::ApiOnly).await;
    let processes = identities(&cluster);
    let dir = cluster.dir().to_owned();
    assert!(processes.iter().all(|it| is_alive(it)) && dir.is_dir());
    drop(cluster);
    assert!(!processes.iter().any(|it| is_alive(it)));
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_detached_cluster_is_found_and_stopped_by_its_name() {
    /// Lest a failing test leave it running.
    struct Stopped(String);
    impl Drop for Stopped {
        fn drop(&mut self) {
            let _ = detached::down(&self.0);
        }
    }
    let name = format!("e2e-{}", std::process::id());
    let _stopped = Stopped(name.clone());
    let binaries = Binaries::find().unwrap();

    let cluster = detached::up(&binaries, &name).await.unwrap();
    assert!(detached::running().unwrap().contains(&cluster));
    let refused = detached::up(&binaries, &name).await.unwrap_err();
    assert!(matches!(refused, DetachedError::Running(_)), "{refused}");
    let nodes = Command::new(binaries.path(Program::Kubectl))
        .args(["get", "nodes", "--kubeconfig"])
        .arg(&cluster.kubeconfig)
        .output()
        .unwrap();
    assert!(nodes.status.success(), "{}", String::from_utf8_lossy(&nodes.stderr));

    assert!(detached::down(&name).unwrap());
    assert!(!detached::running().unwrap().contains(&cluster));
    assert!(!cluster.kubeconfig.exists());
    assert!(!detached::down(&name).unwrap());
}

/// Where the owner writes what it has started.
const OWNER_REPORT: &str = "KERF_E2E_OWNER_REPORT";

#[tokio::test]
async fn nothing_survives_an_owner_that_is_killed() {
    if let Some(report) = env::var_os(OWNER_REPORT) {
        be_the_owner(Path::new(&report)).await;
    }
    let temp = env::temp_dir().join(format!("kerf-owner-{}", std::process::id()));
    let mut owner = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "nothing_survives_an_owner_that_is_killed"])
        .env(OWNER_REPORT, &temp)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let report = eventually("started", async || fs::read_to_string(&temp)).await;
    fs::remove_file(&temp).unwrap();
    let mut lines = report.lines().map(str::to_owned);
    let dir = PathBuf::from(lines.next().unwrap());
    let processes: Vec<_> = lines.collect();
    assert_eq!(processes.len(), 5);
    assert!(processes.iter().all(|it| is_alive(it)) && dir.is_dir());

    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("gone", async || {
        let left: Vec<_> = processes.iter().filter(|it| is_alive(it)).collect();
        if left.is_empty() && !dir.exists() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

async fn be_the_owner(report: &Path) -> ! {
    let cluster = start(Profile::Full).await;
    let mut lines = vec![cluster.dir().display().to_string()];
    lines.extend(identities(&cluster));
    // Complete as soon as it is there.
    let partial = report.with_extension("partial");
    fs::write(&partial, lines.join("\n")).unwrap();
    fs::rename(&partial, report).unwrap();
    loop {
        std::thread::park();
    }
}

/// A process as `<pid> <when it started>`: the pid alone may be another's tomorrow.
fn identities(cluster: &ControlPlane) -> Vec<String> {
    let identity = |(_, pid)| format!("{pid} {}", stat(&format!("{pid}")).expect("runs").1);
    cluster.processes().into_iter().map(identity).collect()
}

fn is_alive(identity: &str) -> bool {
    let (pid, started) = identity.split_once(' ').unwrap();
    // A zombie has ended; it only waits for its parent to take note.
    stat(pid).is_some_and(|(state, since)| state != "Z" && since == started)
}

fn stat(pid: &str) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some((fields[0].to_owned(), fields[19].to_owned()))
}

async fn node_is_ready(nodes: &Api<Node>, name: &str) {
    eventually("ready", async || {
        let node = nodes.get(name).await.unwrap();
        if readiness(&node) == Some("True") { Ok(()) } else { Err(node) }
    })
    .await;
}

fn readiness(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == "Ready").map(|it| it.status.as_str())
}

async fn budget_allows(budgets: &Api<PodDisruptionBudget>, count: i32) {
    eventually("counted", async || {
        let budget = budgets.get("saw").await.unwrap();
        let status = budget.status.clone().unwrap_or_default();
        let current = status.observed_generation == budget.metadata.generation;
        if current && status.disruptions_allowed == Some(count) { Ok(()) } else { Err(status) }
    })
    .await;
}

async fn list<K>(client: &Client) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    Api::<K>::all(client.clone()).list(&ListParams::default()).await.unwrap().items
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == kind).map(|it| it.status.as_str())
}
