//! `cargo xtask try`: the operator at work on a real control plane, in a minute; README.md shows what it prints.

use std::env;
use std::fs::{self, File};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kerf_control_plane::{ControlPlane, Program};

use crate::cargo::{cargo, workspace};
use crate::control_plane;

const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) async fn run() -> Result<()> {
    // So that the commands can be shown as one would type them.
    env::set_current_dir(workspace())?;
    say("building kerf");
    let kerf = build_kerf(&[])?;
    let binaries = control_plane::binaries()?;

    let started = Instant::now();
    let cluster = ControlPlane::start().await?;
    say(&format!(
        "a control plane of its own, Kubernetes {} from {}: ready after {}",
        Program::KubeApiserver.pinned(),
        binaries.source(),
        seconds(started)
    ));
    let mut trial = Trial::start(cluster, kerf).await?;
    let result = trial.show().await;
    if result.is_err() {
        eprintln!("\nthe end of the operator's log:\n{}", trial.log_tail());
    }
    drop(trial);
    result?;
    say("everything is stopped, nothing is left");
    Ok(())
}

struct Trial {
    // Dropped first: ends with the cluster anyway, but must be waited for.
    operator: Operator,
    cluster: ControlPlane,
}

struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Trial {
    async fn start(cluster: ControlPlane, kerf: String) -> Result<Self> {
        let crds = Command::new(&kerf).arg("crds").output().context("kerf crds does not run")?;
        ensure!(crds.status.success(), "kerf crds: {}", String::from_utf8_lossy(&crds.stderr));
        succeeded(&cluster.kubectl_with_input(&["apply", "-f", "-"], crds.stdout).await?)?;
        let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        succeeded(&cluster.kubectl(&established).await?)?;

        let log = File::create(cluster.dir().join("kerf.log"))?;
        let operator = cluster
            .command(kerf)
            .arg("run")
            .arg(format!("--metrics-port={}", cluster.spare_port()))
            .arg(format!("--health-probe-port={}", cluster.spare_port()))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("kerf run does not start")?;
        say(
            "custom resources installed, operator started: kerf crds | kubectl apply -f -; kerf run",
        );
        Ok(Self { operator: Operator(operator), cluster })
    }

    async fn show(&mut self) -> Result<()> {
        self.kubectl(&["apply", "-f", "examples/quickstart.yaml"]).await?;
        let applied = Instant::now();
        let wanted = self.answer("deployment/hello", "{.spec.replicas}").await?;
        self.until("all pods run", async |trial| {
            Ok(trial.answer("deployment/hello", "{.status.readyReplicas}").await? == wanted)
        })
        .await?;
        say(&format!(
            "{wanted} of {wanted} pods run, {} after they were asked for",
            seconds(applied)
        ));
        self.kubectl(&["get", "nodepools,nodeclaims,nodes"]).await?;
        self.kubectl(&["get", "pods", "-o", "wide"]).await?;

        let deleted = Instant::now();
        self.kubectl(&["delete", "deployment", "hello"]).await?;
        self.kubectl(&["delete", "nodeclaims", "--all"]).await?;
        self.until("no node is left", async |trial| {
            Ok(trial.answer("nodes,nodeclaims", "{.items[*].metadata.name}").await?.is_empty())
        })
        .await?;
        say(&format!("no node is left, {} after the first deletion", seconds(deleted)));
        Ok(())
    }

    /// Shows a command and what it prints.
    async fn kubectl(&mut self, arguments: &[&str]) -> Result<()> {
        println!("\n$ kubectl {}", arguments.join(" "));
        let output = succeeded(&self.cluster.kubectl(arguments).await?)?;
        print!("{output}");
        Ok(())
    }

    async fn answer(&self, what: &str, path: &str) -> Result<String> {
        let path = format!("jsonpath={path}");
        succeeded(&self.cluster.kubectl(&["get", what, "-o", &path]).await?)
    }

    async fn until(&mut self, what: &str, ask: impl AsyncFn(&Self) -> Result<bool>) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !ask(self).await? {
            if let Some(status) = self.operator.0.try_wait()? {
                bail!("the operator ended ({status}) before {what}");
            }
            ensure!(Instant::now() < end, "not after {} s: {what}", PATIENCE.as_secs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.cluster.dir().join("kerf.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// Builds the binary, with these flags of cargo, and says where it is.
pub(crate) fn build_kerf(flags: &[&str]) -> Result<String> {
    let output = cargo(&["build", "--package", "kerf", "--message-format=json-render-diagnostics"])
        .args(flags)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "kerf does not build");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "kerf")
        .find_map(|message| message["executable"].as_str().map(str::to_owned))
        .context("cargo does not say where it put kerf")
}

fn succeeded(output: &Output) -> Result<String> {
    ensure!(output.status.success(), "kubectl: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn say(what: &str) {
    println!("\n==> {what}");
}

fn seconds(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f32())
}
