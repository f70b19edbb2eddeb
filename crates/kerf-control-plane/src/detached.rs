//! Clusters that outlive the command that started them, by name.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::PathBuf;

use crate::binaries::Binaries;
use crate::cache::control_plane_cache;
use crate::cluster::{ControlPlane, StartError};
use crate::components::{Profile, kubeconfig_in};
use crate::guard::stop_detached;
use crate::wait::poll_blocking;

/// A cluster that was started with [`up`] and has not been stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    pub name: String,
    pub kubeconfig: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum DetachedError {
    #[error("a cluster's name is made of a-z, 0-9 and -, at most 40 of them, but not {0:?}")]
    Name(String),
    #[error("cluster {0:?} is already running; stop it first, or choose another name")]
    Running(String),
    #[error("cluster {name:?} did not stop; its directory is {}", dir.display())]
    StillRunning { name: String, dir: PathBuf },
    #[error("could not {what} {}", path.display())]
    Files { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Starts a complete cluster and leaves it running.
pub async fn up(binaries: &Binaries, name: &str) -> Result<Detached, DetachedError> {
    let home = Home::of(name)?;
    let Some(claim) = home.claim()? else {
        return Err(DetachedError::Running(name.to_owned()));
    };
    let make = || {
        if home.dir.exists() {
            fs::remove_dir_all(&home.dir)?;
        }
        fs::create_dir(&home.dir)?;
        Ok(home.dir.clone())
    };
    ControlPlane::start_in(binaries, Profile::Full.into(), Some(&claim), make).await?.detach()?;
    Ok(home.describe(name))
}

/// Stops a cluster and removes what it left; `false` if there was none.
pub fn down(name: &str) -> Result<bool, DetachedError> {
    let home = Home::of(name)?;
    if !home.dir.exists() {
        return Ok(false);
    }
    // Whoever holds the claim is alive: somebody's `up` that is not ready yet, or the guard.
    let mut failure = None;
    let stopped = poll_blocking(|| {
        let claim = home.claim();
        match claim {
            Ok(Some(_)) => return true,
            Ok(None) => {}
            Err(error) => {
                failure = Some(error);
                return true;
            }
        }
        // Not there yet while the cluster is starting.
        let _ = stop_detached(&home.dir);
        false
    });
    match failure {
        Some(error) => return Err(error),
        None if !stopped => {
            return Err(DetachedError::StillRunning { name: name.to_owned(), dir: home.dir });
        }
        None => {}
    }
    if home.dir.exists() {
        let removed = fs::remove_dir_all(&home.dir);
        removed.map_err(|source| DetachedError::Files {
            what: "remove",
            path: home.dir,
            source,
        })?;
    }
    Ok(true)
}

/// The clusters that are running, by name.
pub fn running() -> Result<Vec<Detached>, DetachedError> {
    let clusters = clusters();
    let names = match fs::read_dir(&clusters) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(DetachedError::Files { what: "read", path: clusters, source });
        }
    };
    let mut running = Vec::new();
    for name in names {
        let Ok(home) = Home::of(&name) else { continue };
        if kubeconfig_in(&home.dir).exists() && home.claim()?.is_none() {
            running.push(home.describe(&name));
        }
    }
    running.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(running)
}

struct Home {
    dir: PathBuf,
    lock: PathBuf,
}

impl Home {
    fn of(name: &str) -> Result<Self, DetachedError> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 40 || !name.chars().all(allowed) {
            return Err(DetachedError::Name(name.to_owned()));
        }
        let clusters = clusters();
        // No cluster can have a dot in its name.
        Ok(Self { dir: clusters.join(name), lock: clusters.join(format!("{name}.lock")) })
    }

    /// Takes the name; `None` when a running cluster has it. The cluster's guard keeps the file open
    /// and therefore locked until it has cleaned up.
    fn claim(&self) -> Result<Option<File>, DetachedError> {
        let failed =
            |what| move |source| DetachedError::Files { what, path: self.lock.clone(), source };
        fs::create_dir_all(clusters()).map_err(failed("create the directory of"))?;
        let lock = File::create(&self.lock).map_err(failed("create"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed("lock")(source)),
        }
    }

    fn describe(&self, name: &str) -> Detached {
        Detached { name: name.to_owned(), kubeconfig: kubeconfig_in(&self.dir) }
    }
}

fn clusters() -> PathBuf {
    control_plane_cache().join("clusters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_within_its_directory() {
        for name in ["default", "a", "try-2"] {
            assert!(
                Home::of(name).is_ok_and(|home| home.dir.parent() == Some(&clusters())),
                "{name}"
            );
        }
        for name in ["", ".", "..", "../x", "a/b", "a.lock", "Upper", "a b", &"x".repeat(41)] {
            assert!(matches!(Home::of(name), Err(DetachedError::Name(_))), "{name}");
        }
    }
}
