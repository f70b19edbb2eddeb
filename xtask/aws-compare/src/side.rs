//! One of the two programs at work.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http::Request;
use kerf_control_plane::{ControlPlane, Profile, patient};
use kerf_fake_aws::Server;
use kube::Client;
use serde_json::Value;

use crate::account::{self, CA_BUNDLE, ENDPOINT, REGION};
use crate::case::{CLUSTER, Case};
use crate::journal::Journal;
use crate::observation::{Objects, observe};

pub(crate) enum Side {
    Upstream(PathBuf),
    Kerf(PathBuf),
}

const PATIENCE: Duration = Duration::from_mins(2);
/// A class can be refused and become ready a moment later.
const RESTS: Duration = Duration::from_secs(8);

const DNS: &str = r#"{"apiVersion": "v1", "kind": "Service",
    "metadata": {"name": "kube-dns", "namespace": "kube-system"},
    "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 53, "protocol": "UDP"}]}}"#;

impl Side {
    fn name(&self) -> &'static str {
        match self {
            Self::Upstream(_) => "upstream",
            Self::Kerf(_) => "kerf",
        }
    }

    /// What it does with the cases, by the name of the case. Both sides get the definitions that Kerf prints.
    pub(crate) async fn observe(
        &self,
        cases: &[Case],
        kerf: &Path,
        logs: &Path,
    ) -> Result<BTreeMap<String, Value>> {
        let name = self.name();
        eprintln!("{name}: {} cases", cases.len());
        fs::create_dir_all(logs)?;
        let journal = Journal::default();
        let noting = journal.clone();
        let watch = move |request: &_, response: &_| noting.note(request, response);
        let server = Server::watched(account::open().await?, 0, watch).await?;
        let cluster = ControlPlane::start_with(Profile::WithoutTaintEviction).await?;
        let crds = Command::new(kerf).args(["crds", "--provider=aws"]).output()?;
        ensure!(crds.status.success(), "kerf crds: {}", String::from_utf8_lossy(&crds.stderr));
        apply(&cluster, &String::from_utf8(crds.stdout)?).await?;
        let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        kubectl(&cluster, &established, "").await?;
        apply(&cluster, DNS).await?;
        let mut operator = Operator(self.start(&cluster, &server, logs)?);
        apply(&cluster, &Case::manifest(cases)).await?;
        let settled = settle(&cluster.client(), cases, &mut operator).await;
        fs::write(logs.join(format!("{name}-aws.log")), journal.to_text())?;
        for call in journal.unknown() {
            eprintln!("{name}: the stand-in for AWS does not know {call}");
        }
        let seen = observe(cases, &settled?, &journal);
        fs::write(logs.join(format!("{name}.json")), serde_json::to_string_pretty(&seen)?)?;
        Ok(seen)
    }

    fn start(&self, cluster: &ControlPlane, server: &Server, logs: &Path) -> Result<Child> {
        let path = logs.join(format!("{}.log", self.name()));
        let log = File::create(&path).with_context(|| path.display().to_string())?;
        let mut command = match self {
            Self::Upstream(program) => cluster.command(program),
            Self::Kerf(program) => {
                let mut command = cluster.command(program);
                command.args(["run", "--provider=aws"]);
                command
            }
        };
        command
            .env("CLUSTER_NAME", CLUSTER)
            .env("CLUSTER_ENDPOINT", ENDPOINT)
            .env("CLUSTER_CA_BUNDLE", CA_BUNDLE)
            .env("EKS_CONTROL_PLANE", "true")
            .env("INTERRUPTION_QUEUE", CLUSTER)
            .env("AWS_ENDPOINT_URL", server.url())
            .env("AWS_REGION", REGION)
            .env("AWS_ACCESS_KEY_ID", "fake")
            .env("AWS_SECRET_ACCESS_KEY", "fake")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("SYSTEM_NAMESPACE", "kube-system")
            .env("DISABLE_LEADER_ELECTION", "true")
            .env("METRICS_PORT", cluster.spare_port().to_string())
            .env("HEALTH_PROBE_PORT", cluster.spare_port().to_string())
            .stdout(log.try_clone()?)
            .stderr(log);
        command.spawn().with_context(|| format!("{} does not start", self.name()))
    }
}

struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The objects when nothing changes any more.
async fn settle(client: &Client, cases: &[Case], operator: &mut Operator) -> Result<Objects> {
    let patience = patient(PATIENCE);
    let begin = Instant::now();
    let mut last = Objects::default();
    let mut since = Instant::now();
    loop {
        if let Some(status) = operator.0.try_wait()? {
            bail!("it ended: {status}");
        }
        let objects = Objects {
            classes: list(client, "/apis/karpenter.k8s.aws/v1/ec2nodeclasses").await?,
            claims: list(client, "/apis/karpenter.sh/v1/nodeclaims").await?,
        };
        if objects != last {
            since = Instant::now();
            last = objects;
        }
        let open: Vec<_> = cases.iter().filter(|case| !last.is_done(case)).collect();
        let late = begin.elapsed() > patience;
        if late {
            for case in &open {
                eprintln!("{}: not done after {} s", case.name, patience.as_secs());
            }
        }
        if late || (open.is_empty() && since.elapsed() > RESTS) {
            return Ok(last);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

async fn list(client: &Client, path: &str) -> Result<Vec<Value>> {
    let request = Request::get(path).body(Vec::new())?;
    let mut list: Value = client.request(request).await.with_context(|| path.to_owned())?;
    Ok(match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    })
}

async fn apply(cluster: &ControlPlane, manifest: &str) -> Result<()> {
    kubectl(cluster, &["apply", "--server-side", "-f", "-"], manifest).await
}

async fn kubectl(cluster: &ControlPlane, arguments: &[&str], input: &str) -> Result<()> {
    let output = cluster.kubectl_with_input(arguments, input).await?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), error.trim());
    Ok(())
}
