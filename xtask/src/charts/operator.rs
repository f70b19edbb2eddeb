//! What the chart's Deployment would run. Containers do not run on a control plane of ours: kwok says of the chart's pods that they
//! run, and the operator is a process beside it, with the arguments of the Deployment and as its `ServiceAccount`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kerf_control_plane::ControlPlane;

use crate::control_plane::kubectl;
use crate::process::Process;

/// A node that no NodePool launched, as every cluster has: the operator has to run somewhere.
const SYSTEM_NODE: &str = r#"{
    "apiVersion": "v1", "kind": "Node",
    "metadata": {
        "name": "system", "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "system"}
    },
    "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "20"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"}}
}"#;

pub(crate) async fn add_system_node(cluster: &ControlPlane) -> Result<()> {
    kubectl(cluster, &["apply", "-f", "-"], SYSTEM_NODE).await?;
    let taint = ["taint", "nodes", "system", "node.kubernetes.io/not-ready-"];
    // The controller manager may have been faster.
    let _ = kubectl(cluster, &taint, "").await;
    Ok(())
}

pub(crate) struct Operator {
    process: Process,
    /// Where its metrics are.
    pub(crate) metrics: u16,
}

impl Operator {
    /// The chart is installed as `kerf` in this namespace.
    pub(crate) async fn start(
        cluster: &ControlPlane,
        kerf: &Path,
        namespace: &str,
        log: &Path,
    ) -> Result<Self> {
        let container = "jsonpath={.spec.template.spec.containers[0].args}";
        let get = ["get", "deployment", "kerf", "-n", namespace, "-o", container];
        let arguments: Vec<String> = serde_json::from_str(&kubectl(cluster, &get, "").await?)
            .context("the Deployment has no arguments")?;
        let metrics = cluster.spare_port();
        let account = cluster.kubeconfig_of_service_account(namespace, "kerf").await?;
        let mut command = cluster.command(kerf);
        command.args(&arguments).env("KUBECONFIG", account);
        // The ports of the chart may be taken on this machine.
        command.args([&format!("--metrics-port={metrics}"), "--health-probe-port=0"]);
        let process = Process::start(&mut command, log)?;
        println!("(beside it, as ServiceAccount {namespace}/kerf: kerf {})", arguments.join(" "));
        Ok(Self { process, metrics })
    }

    pub(crate) fn log(&self) -> Result<String> {
        self.process.log()
    }

    /// It runs, and never lacked a right.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.process.check()?;
        self.check_rights()
    }

    pub(crate) fn check_rights(&self) -> Result<()> {
        let log = self.log()?;
        let refused =
            log.lines().find(|line| line.contains("orbidden") || line.contains("not allowed"));
        ensure!(refused.is_none(), "a right is missing: {refused:?}");
        Ok(())
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
