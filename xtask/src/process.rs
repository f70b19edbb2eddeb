//! Programs that run beside a command, each with a log of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};

/// A running program; killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| log.display().to_string())?;
        let child = command.stdout(file.try_clone()?).stderr(file).spawn();
        let child = child.with_context(|| format!("starting {command:?}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    pub(crate) fn check(&mut self) -> Result<()> {
        let status = self.child.try_wait()?;
        ensure!(status.is_none(), "it ended: see {}", self.log.display());
        Ok(())
    }

    /// What it has written so far.
    pub(crate) fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| self.log.display().to_string())
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.ask_to_end()?;
        self.wait()
    }

    /// Waits until it has ended, as it should.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "it failed: see {}", self.log.display());
        Ok(())
    }

    /// SIGTERM, as a kubelet sends it.
    pub(crate) fn ask_to_end(&self) -> Result<()> {
        let pid = self.child.id().to_string();
        ensure!(Command::new("kill").arg(&pid).status()?.success(), "cannot stop process {pid}");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
