//! The six programs of a control plane.

use std::path::Path;
use std::process::Command;

use crate::go::{Built, Recipe};

/// The wrapper module that pins and builds them.
const GO_MOD: &str = include_str!("../go/go.mod");
const GO_SUM: &str = include_str!("../go/go.sum");

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kwok,
    Kubectl,
}

impl Program {
    pub const ALL: [Self; 6] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kwok,
        Self::Kubectl,
    ];

    /// The name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Kubectl => "kubectl",
        }
    }

    /// The Go module it comes from.
    fn module(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::Kwok => "sigs.k8s.io/kwok",
            _ => "k8s.io/kubernetes",
        }
    }

    /// The package of its `main`.
    fn package(self) -> String {
        match self {
            Self::Etcd => self.module().to_owned(),
            _ => format!("{}/cmd/{}", self.module(), self.name()),
        }
    }

    /// What `go build` calls it: the last element of its path that is not a version.
    fn built_name(self) -> &'static str {
        match self {
            Self::Etcd => "server",
            _ => self.name(),
        }
    }

    /// The version that the wrapper module pins, without the `v`.
    pub fn pinned(self) -> &'static str {
        GO_MOD
            .lines()
            .filter_map(|line| line.trim().strip_prefix(self.module()))
            .find_map(|rest| rest.strip_prefix(" v"))
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap_or_default()
    }

    /// Asks a binary what it is and refuses one that is older than what the tests are made for.
    pub(crate) fn check(self, binary: &Path) -> Result<(), String> {
        let arguments: &[&str] = match self {
            Self::Kubectl => &["version", "--client"],
            _ => &["--version"],
        };
        let output = Command::new(binary)
            .args(arguments)
            .output()
            .map_err(|error| format!("{} does not run: {error}", binary.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found = first_version(&text)
            .ok_or_else(|| format!("{} does not print its version", binary.display()))?;
        let needed = first_version(self.pinned())
            .ok_or_else(|| format!("go.mod does not pin {}", self.module()))?;
        if found < needed {
            return Err(format!(
                "{} is {}.{}, at least {}.{} is needed",
                binary.display(),
                found.0,
                found.1,
                needed.0,
                needed.1
            ));
        }
        Ok(())
    }
}

/// How they are built.
pub(crate) fn recipe() -> Recipe {
    let programs = Program::ALL.map(|program| Built {
        package: program.package(),
        program: program.built_name(),
        name: program.name(),
    });
    let [kubernetes, etcd, kwok] =
        [Program::KubeApiserver, Program::Etcd, Program::Kwok].map(Program::pinned);
    Recipe {
        name: format!("kubernetes-{kubernetes}"),
        go_mod: GO_MOD,
        go_sum: GO_SUM,
        linker_flags: linker_flags(),
        programs: programs.into(),
        what: format!("Kubernetes {kubernetes}, etcd {etcd}, kwok {kwok}"),
    }
}

/// Without these, Kubernetes calls itself `v0.0.0-master+$Format:%H$`, to every client that asks.
fn linker_flags() -> String {
    const PACKAGE: &str = "k8s.io/component-base/version";
    let version = Program::KubeApiserver.pinned();
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
    format!(
        "-s -w -X {PACKAGE}.gitVersion=v{version} -X {PACKAGE}.gitMajor={major} \
         -X {PACKAGE}.gitMinor={minor} -X {PACKAGE}.gitTreeState=clean"
    )
}

/// Major and minor of the first thing in a text that looks like `v1.2` or `1.2.3`.
fn first_version(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').find_map(|word| {
        let mut numbers = word.strip_prefix('v').unwrap_or(word).split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_pinned_version() {
        for program in Program::ALL {
            assert!(first_version(program.pinned()).is_some(), "{program:?}");
        }
        assert_eq!(Program::Kubectl.pinned(), Program::KubeApiserver.pinned());
    }

    #[test]
    fn kubernetes_is_told_its_version() {
        let flags = linker_flags();
        let version = format!(".gitVersion=v{} ", Program::KubeApiserver.pinned());
        assert!(flags.contains(&version) && flags.contains(".gitMajor=1 "), "{flags}");
    }

    #[test]
    fn reads_versions_as_the_programs_print_them() {
        let cases = [
            ("etcd Version: 3.6.8\nGit SHA: Not provided\nGo Version: go1.26.8\n", Some((3, 6))),
            ("Kubernetes v1.36.4\n", Some((1, 36))),
            ("Client Version: v1.36.4\nKustomize Version: v5.8.1\n", Some((1, 36))),
            (
                r#"Client Version: version.Info{Major:"1", Minor:"20+", GitVersion:"v1.20.2"}"#,
                Some((1, 20)),
            ),
            ("kwok version v0.8.0 go1.26.8 (linux/amd64)\n", Some((0, 8))),
            ("no version here, 5 words", None),
        ];
        for (text, expect) in cases {
            assert_eq!(first_version(text), expect, "{text:?}");
        }
    }
}
