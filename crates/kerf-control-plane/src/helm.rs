//! Helm, for the charts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::cache;
use crate::cluster::ControlPlane;
use crate::go::{self, Built, GoError, Recipe};
use crate::program::Program;

const GO_MOD: &str = include_str!("../helm/go.mod");
const GO_SUM: &str = include_str!("../helm/go.sum");
const MODULE: &str = "helm.sh/helm/v3";

/// The program, and a place for what it keeps.
#[derive(Debug, Clone)]
pub struct Helm(PathBuf);

impl Helm {
    /// Builds it into the cache with the Go that is installed, unless that has been done already with any Go. It takes a few
    /// minutes; `progress` gets a line now and then.
    pub fn find_or_build(progress: impl FnMut(&str)) -> Result<Self, GoError> {
        let (recipe, cache) = (recipe(), cache().join("helm"));
        let bin = match go::built(&recipe, &cache) {
            Some(bin) => bin,
            None => go::build(&recipe, &cache, progress)?,
        };
        Ok(Self(bin.join("helm")))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A command that knows of no cluster.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(arguments).env_remove("KUBECONFIG");
        command
    }

    /// A command that works on this cluster, and keeps what it knows there.
    pub fn command_on<S: AsRef<OsStr>>(&self, cluster: &ControlPlane, arguments: &[S]) -> Command {
        let mut command = self.command(arguments);
        command.env("KUBECONFIG", cluster.kubeconfig_path()).env("HOME", cluster.dir());
        command
    }
}

fn recipe() -> Recipe {
    let version = GO_MOD
        .lines()
        .filter_map(|line| line.trim().strip_prefix(MODULE))
        .find_map(|rest| rest.strip_prefix(" v"))
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_default();
    let kubernetes = Program::KubeApiserver.pinned();
    let minor = kubernetes.split('.').nth(1).unwrap_or_default();
    // Which version it is, and for which Kubernetes it renders where no cluster says so.
    let known = [
        ("internal/version.version", format!("v{version}")),
        ("pkg/chartutil.k8sVersionMajor", "1".to_owned()),
        ("pkg/chartutil.k8sVersionMinor", minor.to_owned()),
        ("pkg/lint/rules.k8sVersionMajor", "1".to_owned()),
        ("pkg/lint/rules.k8sVersionMinor", minor.to_owned()),
    ];
    let known = known.map(|(variable, value)| format!(" -X {MODULE}/{variable}={value}"));
    Recipe {
        name: format!("helm-{version}"),
        go_mod: GO_MOD,
        go_sum: GO_SUM,
        linker_flags: format!("-s -w{}", known.concat()),
        programs: vec![Built {
            package: format!("{MODULE}/cmd/helm"),
            program: "helm",
            name: "helm",
        }],
        what: format!("Helm {version}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_pinned_one() {
        assert!(recipe().name.starts_with("helm-3."), "{}", recipe().name);
    }
}
