//! kubectl on the testbed: what a person types must work there as on a real cluster.
#![allow(clippy::unwrap_used, reason = "a command that fails is a test that fails")]

use std::io::Write;
use std::process::{Command, Stdio};

use kerf_control_plane::{Binaries, Program};
use kerf_testbed::Testbed;

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

#[tokio::test]
async fn kubectl_works_on_the_testbed() {
    let testbed = Testbed::builder().start().unwrap();
    let served = testbed.serve(0).await.unwrap();
    let directory = std::env::temp_dir().join(format!("kerf-kubectl-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let kubeconfig = directory.join("kubeconfig");
    std::fs::write(&kubeconfig, served.kubeconfig()).unwrap();
    let kubectl = Kubectl {
        program: Binaries::find().unwrap().path(Program::Kubectl).to_owned(),
        kubeconfig,
    };

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
    std::fs::remove_dir_all(directory).unwrap();
}
