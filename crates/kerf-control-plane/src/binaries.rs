//! Finding the six programs, or building them.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::control_plane_cache;
use crate::go::{self, GoError};
use crate::program::{Program, recipe};

/// The six programs of one control plane, all from one source. Sources are never mixed: a stray
/// kubectl of another decade on the `PATH` must not meet an API server from the cache.
#[derive(Debug, Clone)]
pub struct Binaries {
    source: Source,
    paths: BTreeMap<Program, PathBuf>,
    passed_over: Refusals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The directory named by `KUBEBUILDER_ASSETS`.
    KubebuilderAssets,
    /// What `cargo xtask control-plane build` made.
    Cache,
    Path,
}

#[derive(Debug, thiserror::Error)]
pub enum BinariesError {
    #[error(
        "no control plane found: {0}; run `cargo xtask control-plane build` (needs Go), or point \
         KUBEBUILDER_ASSETS to a directory with {names}",
        names = Program::ALL.map(Program::name).join(", ")
    )]
    NotFound(Refusals),
    #[error("could not build the control plane")]
    Build(#[from] GoError),
}

/// Why sources were passed over.
#[derive(Debug, Clone, Default)]
pub struct Refusals(Vec<(Source, String)>);

impl Binaries {
    /// Looks in `KUBEBUILDER_ASSETS`, then in the cache, then on the `PATH`, for a complete set of
    /// usable versions.
    pub fn find() -> Result<Self, BinariesError> {
        let mut passed_over = Refusals::default();
        for source in [Source::KubebuilderAssets, Source::Cache, Source::Path] {
            match locate(source) {
                Ok(paths) => return Ok(Self { source, paths, passed_over }),
                Err(reason) => passed_over.0.push((source, reason)),
            }
        }
        Err(BinariesError::NotFound(passed_over))
    }

    /// As [`find`](Self::find), and builds into the cache what cannot be found. A cold build takes
    /// ten minutes on two cores; `progress` gets a line now and then. Without Go, nothing is found.
    pub fn find_or_build(progress: impl FnMut(&str)) -> Result<Self, BinariesError> {
        let not_found = match Self::find() {
            Err(error @ BinariesError::NotFound(_)) => error,
            found => return found,
        };
        match Self::build(progress) {
            Err(BinariesError::Build(GoError::NotInstalled(_))) => Err(not_found),
            built => built,
        }
    }

    /// Builds into the cache with the Go that is installed, unless that has been done already.
    pub fn build(progress: impl FnMut(&str)) -> Result<Self, BinariesError> {
        let dir = go::build(&recipe(), &control_plane_cache(), progress)?;
        Ok(Self {
            source: Source::Cache,
            paths: in_directory(&dir),
            passed_over: Refusals::default(),
        })
    }

    pub fn source(&self) -> Source {
        self.source
    }

    pub fn path(&self, program: Program) -> &Path {
        &self.paths[&program]
    }

    /// Why sources that come before this one were not taken.
    pub fn passed_over(&self) -> &Refusals {
        &self.passed_over
    }
}

fn locate(source: Source) -> Result<BTreeMap<Program, PathBuf>, String> {
    match source {
        Source::KubebuilderAssets => match env::var_os("KUBEBUILDER_ASSETS") {
            Some(dir) if !dir.is_empty() => verify(in_directory(Path::new(&dir))),
            _ => Err("is not set".to_owned()),
        },
        // What we built ourselves has the versions that are in the name of its directory.
        Source::Cache => {
            let cache = control_plane_cache();
            let built = go::built(&recipe(), &cache);
            require_all(in_directory(
                &built.ok_or_else(|| format!("has nothing in {}", cache.display()))?,
            ))
        }
        Source::Path => verify(on_path()),
    }
}

/// All six are there, and each is new enough.
fn verify(paths: BTreeMap<Program, PathBuf>) -> Result<BTreeMap<Program, PathBuf>, String> {
    let paths = require_all(paths)?;
    paths.iter().try_for_each(|(program, path)| program.check(path))?;
    Ok(paths)
}

fn require_all(paths: BTreeMap<Program, PathBuf>) -> Result<BTreeMap<Program, PathBuf>, String> {
    let missing: Vec<_> = Program::ALL
        .into_iter()
        .filter(|program| paths.get(program).is_none_or(|path| !path.is_file()))
        .map(Program::name)
        .collect();
    if missing.is_empty() { Ok(paths) } else { Err(format!("lacks {}", missing.join(", "))) }
}

fn in_directory(dir: &Path) -> BTreeMap<Program, PathBuf> {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    Program::ALL.into_iter().map(|program| (program, dir.join(program.name()))).collect()
}

fn on_path() -> BTreeMap<Program, PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let find = |program: Program| {
        env::split_paths(&path)
            .map(|dir| dir.join(program.name()))
            .find(|file| fs::metadata(file).is_ok_and(|file| file.is_file()))
    };
    Program::ALL.into_iter().filter_map(|program| Some((program, find(program)?))).collect()
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KubebuilderAssets => "KUBEBUILDER_ASSETS",
            Self::Cache => "the cache",
            Self::Path => "PATH",
        })
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (source, reason)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{source} {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;

    use super::*;

    /// Six shell scripts that say they are what the wrapper module pins, and otherwise do `body`.
    pub(crate) fn stubs(dir: &Path, body: &str) -> Binaries {
        for program in Program::ALL {
            write_stub(dir, program, program.pinned(), body);
        }
        let passed_over = Refusals::default();
        Binaries { source: Source::Cache, paths: in_directory(dir), passed_over }
    }

    fn write_stub(dir: &Path, program: Program, version: &str, body: &str) {
        let path = dir.join(program.name());
        let script = format!(
            "#!/bin/sh\ncase $1 in version|--version) echo v{version}; exit;; esac\n{body}\n"
        );
        // By another process: a child that another test forks while we have the file open for writing
        // would make it busy, and a busy file cannot be run.
        let write = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
        let written = Command::new("sh").args(["-c", write]).arg(path).arg(script).status();
        assert!(written.unwrap().success());
    }

    #[test]
    fn takes_a_complete_set_of_the_pinned_versions() {
        let dir = tempfile::tempdir().unwrap();
        let stubs = stubs(dir.path(), "");
        assert!(verify(stubs.paths).is_ok());
    }

    #[test]
    fn takes_a_newer_version() {
        let dir = tempfile::tempdir().unwrap();
        let stubs = stubs(dir.path(), "");
        write_stub(dir.path(), Program::Etcd, "4.0.0", "");
        assert!(verify(stubs.paths).is_ok());
    }

    #[test]
    fn refuses_an_older_version() {
        let dir = tempfile::tempdir().unwrap();
        let stubs = stubs(dir.path(), "");
        write_stub(dir.path(), Program::Kubectl, "1.20.2", "");
        let refusal = verify(stubs.paths).unwrap_err();
        assert!(refusal.contains("kubectl is 1.20, at least 1."), "{refusal}");
    }

    #[test]
    fn refuses_an_incomplete_set() {
        let dir = tempfile::tempdir().unwrap();
        let stubs = stubs(dir.path(), "");
        fs::remove_file(dir.path().join("kwok")).unwrap();
        fs::remove_file(dir.path().join("kube-scheduler")).unwrap();
        assert_eq!(verify(stubs.paths), Err("lacks kube-scheduler, kwok".to_owned()));
    }
}
