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

use crate::account::{self, CA_BUNDLE, ENDPOINT, Pace, REGION};
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
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Upstream(_) => "upstream",
            Self::Kerf(_) => "kerf",
        }
    }

    /// What it does with the cases, by the name of the case.
    pub(crate) async fn observe(
        &self,
        cases: &[Case],
        kerf: &Path,
        logs: &Path,
    ) -> Result<BTreeMap<String, Value>> {
        let name = self.name();
        eprintln!("{name}: {} cases", cases.len());
        let mut stage = self.stage(Pace::Instant, kerf, logs).await?;
        stage.apply(&Case::manifest(cases)).await?;
        let settled = stage.settle(cases).await;
        fs::write(logs.join(format!("{name}-aws.log")), stage.journal.to_text())?;
        for call in stage.journal.unknown() {
            eprintln!("{name}: the stand-in for AWS does not know {call}");
        }
        let seen = observe(cases, &settled?, &stage.journal);
        fs::write(logs.join(format!("{name}.json")), serde_json::to_string_pretty(&seen)?)?;
        Ok(seen)
    }

    /// The program at work on a new cluster and a new account. Both sides get the definitions that Kerf prints.
    pub(crate) async fn stage(&self, pace: Pace, kerf: &Path, logs: &Path) -> Result<Stage> {
        fs::create_dir_all(logs)?;
        let journal = Journal::default();
        let noting = journal.clone();
        let watch = move |request: &_, response: &_| noting.note(request, response);
        let server = Server::watched(account::open(pace).await?, 0, watch).await?;
        let cluster = ControlPlane::start_with(Profile::WithoutTaintEviction).await?;
        let crds = Command::new(kerf).args(["crds", "--provider=aws"]).output()?;
        ensure!(crds.status.success(), "kerf crds: {}", String::from_utf8_lossy(&crds.stderr));
        apply(&cluster, &String::from_utf8(crds.stdout)?).await?;
        let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        kubectl(&cluster, &established, "").await?;
        apply(&cluster, DNS).await?;
        let operator = Operator(self.start(&cluster, &server, logs)?);
        Ok(Stage { operator, journal, cluster, _server: server })
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

/// A side at work. What is named first ends first.
pub(crate) struct Stage {
    operator: Operator,
    pub(crate) journal: Journal,
    cluster: ControlPlane,
    _server: Server,
}

struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    pub(crate) async fn objects(&mut self) -> Result<Objects> {
        if let Some(status) = self.operator.0.try_wait()? {
            bail!("it ended: {status}");
        }
        let client = self.cluster.client();
        Ok(Objects {
            classes: list(&client, "/apis/karpenter.k8s.aws/v1/ec2nodeclasses").await?,
            claims: list(&client, "/apis/karpenter.sh/v1/nodeclaims").await?,
        })
    }

    /// The objects when nothing changes any more.
    async fn settle(&mut self, cases: &[Case]) -> Result<Objects> {
        let patience = patient(PATIENCE);
        let begin = Instant::now();
        let mut last = Objects::default();
        let mut since = Instant::now();
        loop {
            let objects = self.objects().await?;
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

    pub(crate) async fn apply(&self, manifest: &str) -> Result<()> {
        apply(&self.cluster, manifest).await
    }
}

async fn list(client: &Client, path: &str) -> Result<Vec<Value>> {
    let mut list: Value = loop {
        let request = Request::get(path).body(Vec::new())?;
        match client.request(request).await {
            // A new definition makes the API server open its storage anew.
            Err(kube::Error::Api(status)) if status.code == 429 => {
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            answer => break answer.with_context(|| path.to_owned())?,
        }
    };
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
