//! Backups of what a cluster has stored, and how they are put back.
//!
//! Kubernetes' own way: the API server and etcd are stopped, the data of etcd is exchanged, both are started again. The
//! revision of the cluster goes back with its data, and clients that watched it find a server that is behind them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cluster::{ControlPlane, StartError, failed};

/// All that a cluster had stored at one moment. It is gone when the cluster is.
#[derive(Debug)]
pub struct Backup(PathBuf);

impl ControlPlane {
    /// Makes a backup. The API server is away for a few seconds.
    pub async fn back_up(&mut self) -> Result<Backup, StartError> {
        let backup = tempfile::Builder::new().prefix("backup-").tempdir_in(self.dir());
        let backup = backup.map_err(failed("make a directory for the backup"))?.keep();
        self.while_stored(|data| copy(data, &backup)).await?;
        Ok(Backup(backup))
    }

    /// Puts a backup back. The API server is away for a few seconds.
    pub async fn restore(&mut self, backup: &Backup) -> Result<(), StartError> {
        self.while_stored(|data| {
            fs::remove_dir_all(data)?;
            copy(&backup.0, data)
        })
        .await
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
