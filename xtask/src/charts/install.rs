//! docs/install.md, followed to the letter: its commands are run in a shell, on a real control plane.
//!
//! Containers do not run there. kwok says of the chart's pods that they run, and the operator is a process beside it: with the
//! arguments of the chart's Deployment, as the chart's `ServiceAccount`.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, bail, ensure};
use kerf_control_plane::{ControlPlane, Helm, Program};

use super::{CRDS, succeed};
use crate::control_plane;
use crate::try_out::build_kerf;

const DOCUMENTATION: &str = "docs/install.md";
const NAMESPACE: &str = "kerf";

/// The command after which the operator runs, and the one that ends it.
const INSTALLS: &str = "helm install kerf charts/kerf ";
const UNINSTALLS: &str = "helm uninstall kerf ";

/// A node that no NodePool launched, as every cluster has: the operator has to run somewhere.
const SYSTEM_NODE: &str = r#"{
    "apiVersion": "v1", "kind": "Node",
    "metadata": {
        "name": "system", "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "system"}
    },
    "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "20"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"}}
}"#;

pub(super) async fn follow_the_documentation(helm: &Helm, kerf: Option<PathBuf>) -> Result<()> {
    let kerf = match kerf {
        Some(kerf) => kerf,
        None => build_kerf(&[])?.into(),
    };
    control_plane::binaries()?;
    let cluster = ControlPlane::start().await?;
    kubectl(&cluster, &["apply", "-f", "-"], SYSTEM_NODE).await?;
    let taint = ["taint", "nodes", "system", "node.kubernetes.io/not-ready-"];
    // The controller manager may have been faster.
    let _ = kubectl(&cluster, &taint, "").await;

    let text = fs::read_to_string(DOCUMENTATION)?;
    let mut operator: Option<Operator> = None;
    for commands in blocks(&text) {
        if commands.contains(UNINSTALLS) {
            let mut operator = operator.take().context("what is uninstalled was not installed")?;
            operator.check()?;
        }
        println!("$ {}", commands.trim_end().replace('\n', "\n$ "));
        match (shell(&cluster, helm, &kerf, commands), &operator) {
            (Err(error), Some(operator)) => {
                bail!("{error:#}\nthe operator's log:\n{}", operator.log()?)
            }
            (printed, _) => print!("{}", printed?),
        }
        if commands.contains(INSTALLS) {
            operator = Some(Operator::start(&cluster, &kerf).await?);
        }
    }
    ensure!(operator.is_none(), "{DOCUMENTATION} does not say how to uninstall");

    // Nobody means to lose every machine by this.
    succeed(&mut helm.command_on(&cluster, &["uninstall", "kerf-crds"]))?;
    kubectl(&cluster, &["get", "crd", "nodepools.karpenter.sh"], "").await?;
    succeed(&mut helm.command_on(&cluster, &["install", "kerf-crds", CRDS, "--take-ownership"]))?;
    Ok(())
}

/// The blocks of commands, in their order: those that are marked as `sh` and nothing else.
fn blocks(text: &str) -> Vec<&str> {
    let after = text.split("\n```sh\n").skip(1);
    after.filter_map(|rest| rest.split_once("```")).map(|(commands, _)| commands).collect()
}

fn shell(cluster: &ControlPlane, helm: &Helm, kerf: &Path, commands: &str) -> Result<String> {
    let kubectl = cluster.binaries().path(Program::Kubectl);
    let tools = [helm.path(), kubectl, kerf].into_iter().filter_map(Path::parent);
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(tools.map(Path::to_owned).chain(env::split_paths(&path)))?;
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", commands]).env("PATH", path);
    succeed(bash.env("KUBECONFIG", cluster.kubeconfig_path()).env("HOME", cluster.dir()))
}

async fn kubectl(cluster: &ControlPlane, arguments: &[&str], input: &str) -> Result<String> {
    let output = cluster.kubectl_with_input(arguments, input).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {}: {said}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What the chart's Deployment would run.
struct Operator {
    process: Child,
    log: PathBuf,
}

impl Operator {
    async fn start(cluster: &ControlPlane, kerf: &Path) -> Result<Self> {
        let container = "jsonpath={.spec.template.spec.containers[0].args}";
        let get = ["get", "deployment", "kerf", "-n", NAMESPACE, "-o", container];
        let arguments: Vec<String> = serde_json::from_str(&kubectl(cluster, &get, "").await?)
            .context("the Deployment has no arguments")?;
        let log = cluster.dir().join("kerf.log");
        let file = File::create(&log)?;
        let process = cluster
            .command(kerf)
            .args(&arguments)
            // The ports of the chart may be taken on this machine.
            .args(["--metrics-port=0", "--health-probe-port=0"])
            .env("KUBECONFIG", cluster.kubeconfig_of_service_account(NAMESPACE, "kerf").await?)
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("kerf does not start")?;
        println!("(beside it, as ServiceAccount {NAMESPACE}/kerf: kerf {})", arguments.join(" "));
        Ok(Self { process, log })
    }

    fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).context("the operator has no log")
    }

    /// It runs, and never lacked a right.
    fn check(&mut self) -> Result<()> {
        let log = self.log()?;
        ensure!(self.process.try_wait()?.is_none(), "the operator has ended:\n{log}");
        let refused =
            log.lines().find(|line| line.contains("orbidden") || line.contains("not allowed"));
        ensure!(refused.is_none(), "a right is missing: {refused:?}");
        Ok(())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_of_commands_are_run() {
        let text = "a\n\n```sh\none\ntwo\n```\nb\n```console\n$ three\n```\n```sh needs-cloud\nfour\n```\n```sh\nfive\n```\n";
        assert_eq!(blocks(text), ["one\ntwo\n", "five\n"]);
    }
}
