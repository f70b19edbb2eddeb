//! docs/install.md, followed to the letter: its commands are run in a shell, on a real control plane. Those of README.md that install
//! are among them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kerf_control_plane::{ControlPlane, Helm, Program};

use super::operator::{self, Operator};
use super::{CRDS, prometheus, succeed};
use crate::control_plane::{self, kubectl};
use crate::try_out::build_kerf;

const DOCUMENTATION: &str = "docs/install.md";
const NAMESPACE: &str = "kerf";

/// The command after which the operator runs, the one after which there are nodes, and the one that ends it.
const INSTALLS: &str = "helm install kerf charts/kerf ";
const HAS_NODES: &str = "kubectl wait --for=condition=Available deployment/hello ";
const UNINSTALLS: &str = "helm uninstall kerf ";

/// Objects that the example for AWS makes. An operator with another provider names each in its log, and leaves it alone.
const IGNORED: [&str; 2] = ["aws-general-purpose", "aws-spot"];

/// Prometheus evaluates rules meanwhile, where there is one.
pub(super) async fn follow_the_documentation(
    helm: &Helm,
    kerf: Option<PathBuf>,
    prometheus: Option<PathBuf>,
) -> Result<()> {
    let kerf = match kerf {
        Some(kerf) => kerf,
        None => build_kerf(&[])?.into(),
    };
    control_plane::binaries()?;
    let cluster = ControlPlane::start().await?;
    operator::add_system_node(&cluster).await?;

    let text = fs::read_to_string(DOCUMENTATION)?;
    let mut operator: Option<Operator> = None;
    for commands in blocks(&text) {
        if commands.contains(UNINSTALLS) {
            let mut operator = operator.take().context("what is uninstalled was not installed")?;
            operator.check()?;
            let log = operator.log()?;
            for name in IGNORED {
                let named =
                    log.lines().any(|line| line.contains("ignoring") && line.contains(name));
                ensure!(named, "the operator does not say that it ignores {name}:\n{log}");
            }
        }
        println!("$ {}", commands.trim_end().replace('\n', "\n$ "));
        match (shell(&cluster, helm, &kerf, commands), &operator) {
            (Err(error), Some(operator)) => {
                bail!("{error:#}\nthe operator's log:\n{}", operator.log()?)
            }
            (printed, _) => print!("{}", printed?),
        }
        if commands.contains(INSTALLS) {
            let log = cluster.dir().join("kerf.log");
            operator = Some(Operator::start(&cluster, &kerf, NAMESPACE, &log).await?);
        }
        if let (true, Some(operator), Some(prometheus)) =
            (commands.contains(HAS_NODES), &operator, &prometheus)
        {
            prometheus::evaluate(prometheus.clone(), &cluster, operator.metrics).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_of_commands_are_run() {
        let text = "a\n\n```sh\none\ntwo\n```\nb\n```console\n$ three\n```\n```sh needs-cloud\nfour\n```\n```sh\nfive\n```\n";
        assert_eq!(blocks(text), ["one\ntwo\n", "five\n"]);
    }
}
