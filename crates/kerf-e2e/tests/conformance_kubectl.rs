//! kubectl on the testbed: what a person types must work there as on a real cluster.
#![allow(clippy::unwrap_used, reason = "a command that fails is a test that fails")]

use std::io::Write;
use std::process::{Command, Stdio};

use kerf_control_plane::{Binaries, Program};
use kerf_testbed::{Served, Testbed};

const MANIFEST: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: registry/app:1}]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: pool}
spec:
  replicas: 1
  template:
    spec:
      requirements: []
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Pod
metadata: {name: lonely}
spec: {nodeName: n1, terminationGracePeriodSeconds: 0, containers: [{name: main, image: registry/app:1}]}
";

struct Kubectl {
    program: std::path::PathBuf,
    kubeconfig: std::path::PathBuf,
}

impl Kubectl {
    /// Runs kubectl with `input` and returns what it printed on either stream.
    async fn run(&self, arguments: &str, input: &'static str) -> String {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        });
        let output = output.await.unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    async fn says(&self, arguments: &str, expected: &[&str]) {
        self.says_to(arguments, "", expected).await;
    }

    async fn says_to(&self, arguments: &str, input: &'static str, expected: &[&str]) {
        let output = self.run(arguments, input).await;
        for text in expected {
            assert!(output.contains(text), "kubectl {arguments}: {output:?} lacks {text:?}");
        }
    }
}

/// A cluster with an API server on a port, and kubectl for it.
struct Stage {
    _served: Served,
    kubectl: Kubectl,
    directory: std::path::PathBuf,
}

impl Stage {
    async fn set(name: &str) -> Self {
        let served = Testbed::builder().start().unwrap().serve(0).await.unwrap();
        let directory =
            std::env::temp_dir().join(format!("kerf-kubectl-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let kubeconfig = directory.join("kubeconfig");
        std::fs::write(&kubeconfig, served.kubeconfig()).unwrap();
        let program = Binaries::find().unwrap().path(Program::Kubectl).to_owned();
        Self { _served: served, kubectl: Kubectl { program, kubeconfig }, directory }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

#[tokio::test]
async fn kubectl_works_on_the_testbed() {
    let stage = Stage::set("all").await;
    let kubectl = &stage.kubectl;

    kubectl.says("version", &["Server Version: v1.36.4"]).await;
    let created =
        ["deployment.apps/web created", "nodepool.karpenter.sh/pool created", "node/n1 created"];
    kubectl.says_to("apply -f -", MANIFEST, &created).await;
    kubectl.says_to("apply -f -", MANIFEST, &["deployment.apps/web unchanged"]).await;
    let forced = "apply --server-side --force-conflicts -f -";
    kubectl.says_to(forced, MANIFEST, &["deployment.apps/web serverside-applied"]).await;
    let misspelt = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"dada":{}}"#;
    kubectl.says_to("apply -f -", misspelt, &["unknown field \"dada\""]).await;

    kubectl.says("get deployments", &["NAME", "READY", "web", "0/2"]).await;
    kubectl.says("get nodes", &["n1", "NotReady"]).await;
    kubectl.says("get nodepools -o wide", &["NODECLASS", "WEIGHT", "pool", "default"]).await;
    kubectl.says("get pods -A", &["default", "lonely", "Pending"]).await;
    kubectl.says("get deploy web -o jsonpath={.spec.replicas}", &["2"]).await;
    let replicas = ["KIND:       NodePool", "FIELD: replicas <integer>"];
    kubectl.says("explain nodepool.spec.replicas", &replicas).await;
    kubectl.says("describe node n1", &["Name:               n1", "Taints:"]).await;
    kubectl.says("describe deployment web", &["Replicas:               2 desired"]).await;

    kubectl.says("scale deployment web --replicas=5", &["deployment.apps/web scaled"]).await;
    kubectl.says("scale nodepool pool --replicas=3", &["nodepool.karpenter.sh/pool scaled"]).await;
    kubectl.says("get nodepool pool -o jsonpath={.spec.replicas}", &["3"]).await;
    kubectl.says("label node n1 team=blue", &["node/n1 labeled"]).await;
    kubectl.says("get nodes -l team=blue", &["n1"]).await;
    kubectl.says("taint node n1 team=blue:NoSchedule", &["node/n1 tainted"]).await;
    kubectl.says("cordon n1", &["node/n1 cordoned"]).await;
    kubectl.says("drain n1 --force", &["evicting pod default/lonely", "node/n1 drained"]).await;
    kubectl.says("get pods", &["No resources found"]).await;
    kubectl.says("delete deployment web", &["deployment.apps \"web\" deleted"]).await;
    kubectl.says("delete node n1", &["node \"n1\" deleted"]).await;
    kubectl.says("get node n1", &["Error from server (NotFound): nodes \"n1\" not found"]).await;
}

/// kubectl writes built-in kinds in protobuf when it makes them itself, and does not fall back to JSON.
#[tokio::test]
async fn kubectl_creates_what_it_makes_itself() {
    let stage = Stage::set("create").await;
    let kubectl = &stage.kubectl;
    for (arguments, expected) in [
        ("create namespace team", "namespace/team created"),
        (
            "create deployment api -n team --image=registry/api:1 --replicas=3 --port=80",
            "deployment.apps/api created",
        ),
        (
            "get deployment api -n team -o jsonpath={.spec.replicas},{.spec.template.spec.containers[0].image}",
            "3,registry/api:1",
        ),
        (
            "get deployment api -n team -o jsonpath={.spec.template.spec.containers[0].ports}",
            "\"containerPort\":80",
        ),
        (
            "create deployment none --image=registry/api:1 --replicas=0",
            "deployment.apps/none created",
        ),
        ("get deployment none -o jsonpath={.spec.replicas}", "0"),
        ("create configmap facts --from-literal=a=b", "configmap/facts created"),
        ("get configmap facts -o jsonpath={.data.a}", "b"),
        ("create secret generic key --from-literal=a=b", "secret/key created"),
        ("get secret key -o jsonpath={.data.a}", "Yg=="),
        ("create serviceaccount robot", "serviceaccount/robot created"),
        ("create job once --image=registry/job:1", "job.batch/once created"),
        (
            "create cronjob often --image=registry/job:1 --schedule=@hourly",
            "cronjob.batch/often created",
        ),
        (
            "create poddisruptionbudget most --selector=app=api --min-available=50%",
            "poddisruptionbudget.policy/most created",
        ),
        (
            "get pdb most -o jsonpath={.spec.minAvailable},{.spec.selector.matchLabels.app}",
            "50%,api",
        ),
        ("create priorityclass high --value=1000", "priorityclass.scheduling.k8s.io/high created"),
        ("create quota few --hard=pods=5", "resourcequota/few created"),
        ("create service clusterip api --tcp=80:8080", "service/api created"),
        (
            "create clusterrole reader --verb=get --resource=pods",
            "clusterrole.rbac.authorization.k8s.io/reader created",
        ),
        (
            "create rolebinding r --clusterrole=reader --user=u",
            "rolebinding.rbac.authorization.k8s.io/r created",
        ),
        ("create namespace team", "namespaces \"team\" already exists"),
        ("auth can-i delete nodes", "yes"),
        ("auth can-i --list", "*.*"),
        ("auth whoami", "kerf"),
    ] {
        kubectl.says(arguments, &[expected]).await;
    }
}

const EVENTS: &str = "\
apiVersion: v1
kind: Event
metadata: {name: late}
type: Normal
reason: Late
message: m
involvedObject: {kind: Node, name: n1, uid: n1}
lastTimestamp: 2026-01-01T00:00:00Z
---
apiVersion: v1
kind: Event
metadata: {name: soon}
type: Normal
reason: Soon
message: m
involvedObject: {kind: Node, name: n1, uid: n1}
lastTimestamp: 2025-12-31T23:50:00Z
";

#[tokio::test]
async fn kubectl_sorts_and_dates_events() {
    let stage = Stage::set("events").await;
    let kubectl = &stage.kubectl;
    kubectl.says_to("create -f -", EVENTS, &["event/late created", "event/soon created"]).await;
    let sorted = kubectl.run("get events --sort-by=.lastTimestamp", "").await;
    let place = |text: &str| sorted.find(text).unwrap_or_else(|| panic!("{text}: {sorted}"));
    assert!(place("Soon") < place("Late"), "{sorted}");
    kubectl.says("get events --sort-by=.lastTimestamp", &["node/n1", "10m"]).await;
    kubectl.says_to("create -f -", MANIFEST, &["node/n1 created"]).await;
    let described = ["Name:               n1", "Events:", "Late", "Soon"];
    kubectl.says("describe node n1", &described).await;
    kubectl.says("describe pod lonely", &["Name:", "lonely", "Node:", "n1"]).await;
}
