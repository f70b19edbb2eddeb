//! Karpenter with its KWOK provider, for commands that run it on the same control plane as Kerf. It is built from the module registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kerf_control_plane::ControlPlane;

use crate::cache::cache;
use crate::cargo::workspace;
use crate::process::Process;
use crate::python::fnv;

/// In the tool directive of xtask/shadow/upstream/go.mod.
const CONTROLLER: &str = "sigs.k8s.io/karpenter/kwok";
const MODULE: &str = "sigs.k8s.io/karpenter";
pub(crate) const NAMESPACE: &str = "kube-system";

pub(crate) struct Karpenter {
    program: PathBuf,
}

/// Whether it competes for the lease. A controller that is alone need not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elections {
    On,
    Off,
}

impl Karpenter {
    /// The program is named after its module file, so that it is built once per version.
    pub(crate) fn build() -> Result<Self> {
        let module = module();
        let recipe = fs::read(module.join("go.sum")).context("upstream/go.sum")?;
        let home = cache().join("shadow");
        let program = home.join(format!("karpenter-{:016x}", fnv(&recipe)));
        if !program.exists() {
            eprintln!("building Karpenter with its KWOK provider (some minutes the first time)");
            fs::create_dir_all(&home)?;
            crate::go::build(&module, CONTROLLER, &program)?;
        }
        Ok(Self { program })
    }

    pub(crate) fn start(
        &self,
        cluster: &ControlPlane,
        elections: Elections,
        log: &Path,
    ) -> Result<Process> {
        let mut command = cluster.command(&self.program);
        command.env("SYSTEM_NAMESPACE", NAMESPACE).env("LEADER_ELECTION_NAMESPACE", NAMESPACE);
        command.env("DISABLE_LEADER_ELECTION", (elections == Elections::Off).to_string());
        for port in ["METRICS_PORT", "HEALTH_PROBE_PORT"] {
            command.env(port, cluster.spare_port().to_string());
        }
        Process::start(&mut command, log)
    }

    /// Its own definitions of the custom resources, as files: those of the module that it was built from.
    pub(crate) fn definitions() -> Result<Vec<PathBuf>> {
        let mut go = Command::new("go");
        go.args(["list", "-m", "-f", "{{.Dir}}", MODULE]).current_dir(module());
        let listed = go.env("GOWORK", "off").output().context("running go: install Go")?;
        let said = String::from_utf8_lossy(&listed.stderr);
        ensure!(listed.status.success(), "go list -m {MODULE}: {said}");
        let directory = PathBuf::from(String::from_utf8(listed.stdout)?.trim());
        let mut files = Vec::new();
        for part in ["pkg/apis/crds", "kwok/apis/crds"] {
            for entry in fs::read_dir(directory.join(part)).context("Karpenter's definitions")? {
                files.push(entry?.path());
            }
        }
        files.sort();
        Ok(files)
    }
}

fn module() -> PathBuf {
    workspace().join("xtask/shadow/upstream")
}
