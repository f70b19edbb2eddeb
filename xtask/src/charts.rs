//! `cargo xtask charts`: the charts are linted and rendered, wrong values are refused, and docs/install.md is followed to the
//! letter on a real control plane.

mod install;
pub(crate) mod operator;
mod prometheus;
pub(crate) mod rules;

use std::process::Command;

use anyhow::{Context, Result, ensure};
use kerf_control_plane::{GoError, Helm};

use crate::aws::Outcome;
use crate::cargo::workspace;

pub(crate) const CRDS: &str = "charts/kerf-crds";
pub(crate) const KERF: &str = "charts/kerf";

/// Everything that is off by default.
const EVERYTHING: &str = "xtask/src/charts/everything.yaml";
const AWS: [&str; 2] = ["--set", "settings.provider=aws,settings.clusterName=sawmill"];

/// Values that are refused, and words of the sentence that says why.
const REFUSED: [(&str, &str); 11] = [
    ("replicas=two", "/replicas': got string, want integer"),
    (
        "settings.logLevel=loud",
        "/settings/logLevel': value must be one of 'debug', 'info', 'error'",
    ),
    ("settings.provider=fog", "/settings/provider': value must be one of 'kwok', 'aws'"),
    ("settings.batchIdleDuraton=1s", "'batchIdleDuraton' not allowed"),
    (
        "settings.batchIdleDuration=soon",
        "/settings/batchIdleDuration': 'soon' does not match pattern",
    ),
    (
        "settings.scaledownUtilizationThreshold=75",
        "/settings/scaledownUtilizationThreshold': maximum",
    ),
    (
        "settings.featureGates.nodeRepair=maybe",
        "/settings/featureGates/nodeRepair': got string, want boolean",
    ),
    (
        "settings.disableLeaderElection=true",
        "settings.disableLeaderElection is true with 2 replicas",
    ),
    ("settings.provider=aws", "settings.clusterName is not set"),
    (
        "settings.metricsPort=8081",
        "settings.metricsPort and settings.healthProbePort are both 8081",
    ),
    ("serviceAccount.create=false", "serviceAccount.name is not set"),
];

pub(crate) async fn run(kerf: Option<String>) -> Result<Outcome> {
    let helm = match Helm::find_or_build(|line| eprintln!("helm: {line}")) {
        Err(error @ GoError::NotInstalled(_)) => {
            return Ok(Outcome::Skipped { reason: format!("{error}; Helm is built with it") });
        }
        helm => helm.context("Helm cannot be built")?,
    };
    let kerf = kerf.map(std::path::absolute).transpose()?;
    std::env::set_current_dir(workspace())?;
    for chart in [CRDS, KERF] {
        succeed(&mut helm.command(&["lint", "--strict", chart]))?;
    }
    let rendered = render(&helm, &["--values", EVERYTHING])?;
    for kind in ["ServiceMonitor", "PrometheusRule", "ConfigMap", "PodDisruptionBudget"] {
        ensure!(rendered.contains(&format!("\nkind: {kind}\n")), "{kind} is not in\n{rendered}");
    }
    let aws = render(&helm, &AWS)?;
    for part in ["--cluster-name=sawmill", "ec2nodeclasses/status", "namespace: kube-system"] {
        ensure!(aws.contains(part), "{part} is not in\n{aws}");
    }
    ensure!(!aws.contains("kwok"), "KWOK is in what is rendered for AWS:\n{aws}");
    for (value, sentence) in REFUSED {
        let refused = helm.command(&["template", "kerf", KERF, "--set", value]).output()?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(!refused.status.success(), "{value} is not refused");
        ensure!(said.contains(sentence), "{value} is refused by\n{said}\nand not by: {sentence}");
    }
    let prometheus = prometheus::find();
    let has_prometheus = prometheus.is_some();
    install::follow_the_documentation(&helm, kerf, prometheus).await?;
    Ok(if has_prometheus {
        Outcome::Done
    } else {
        let reason = format!("{}; all else of the charts was tried", rules::MISSING);
        Outcome::Skipped { reason }
    })
}

fn render(helm: &Helm, arguments: &[&str]) -> Result<String> {
    succeed(helm.command(&["template", "kerf", KERF, "--namespace", "kerf"]).args(arguments))
}

/// What the command prints, if it succeeds.
pub(crate) fn succeed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} does not run"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{command:?} failed:\n{printed}{said}");
    Ok(printed)
}
