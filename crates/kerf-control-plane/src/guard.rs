//! No process of a cluster survives its owner.
//!
//! The owner may end without running a destructor (SIGKILL, abort, `process::exit`), so somebody else
//! has to notice. Two small shells do:
//!
//! * the **anchor** leads the process group that all components join. It only waits; its pid is the
//!   group's id, so killing the group can never hit a stranger that got a recycled pid.
//! * the **watcher** sits in a group of its own and reads from a pipe whose other end the owner holds.
//!   When the owner goes, however it goes, the kernel closes that pipe; the watcher kills the group
//!   and removes the cluster's directory.
//!
//! The anchor in turn reads from a pipe that the watcher holds: should somebody kill the watcher, the
//! anchor takes the group down with itself.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::ports::PortBlock;
use crate::wait::poll_blocking;

const ANCHOR: &str = "read -r _; kill -KILL 0";

/// `$1` is the process group, `$2` the directory. After `detach` it waits at a named pipe
/// that it holds open itself, so that it is independent of the owner and anybody can stop it.
const WATCHER: &str = r#"
cd "$2"
if read -r word && [ "$word" = detach ]; then
  mkfifo stop.tmp && exec <>stop.tmp && mv stop.tmp stop && read -r _
fi
cd /
kill -KILL -- "-$1"
# A process that was killed may still finish the write it was in.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf -- "$2" && break
  sleep 0.1
done
"#;

/// Holds the owner's end of the pipe; dropping it stops the cluster and removes its directory.
#[derive(Debug)]
pub(crate) struct Guard {
    dir: PathBuf,
    anchor: Child,
    watcher: Child,
    lifeline: Option<ChildStdin>,
    components: Vec<Child>,
}

impl Guard {
    /// Takes charge of `dir`. The anchor keeps `ports` locked, the watcher keeps `claim` locked (if
    /// there is one), each for as long as it lives.
    pub(crate) fn new(dir: &Path, ports: &PortBlock, claim: Option<File>) -> io::Result<Self> {
        let mut anchor = Command::new("sh")
            .args(["-c", ANCHOR, "kerf-anchor"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(ports.lock()?)
            .spawn()?;
        let held = anchor.stdin.take().map_or_else(Stdio::null, Stdio::from);
        let mut watcher = Command::new("sh")
            .args(["-c", WATCHER, "kerf-watcher", &anchor.id().to_string()])
            .arg(dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(held)
            .stderr(claim.map_or_else(Stdio::null, Stdio::from))
            .spawn()?;
        let lifeline = watcher.stdin.take();
        Ok(Self { dir: dir.to_owned(), anchor, watcher, lifeline, components: Vec::new() })
    }

    /// Starts a component in the guarded group. A component that is being started while the owner is
    /// killed finds the group gone, and never runs.
    pub(crate) fn spawn(&mut self, command: &mut Command) -> io::Result<usize> {
        let group = i32::try_from(self.anchor.id()).map_err(io::Error::other)?;
        let child = command.process_group(group).stdin(Stdio::null()).spawn()?;
        self.components.push(child);
        Ok(self.components.len() - 1)
    }

    /// The exit status of a component if it has ended.
    pub(crate) fn exited(&mut self, component: usize) -> Option<String> {
        match self.components[component].try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(format!("unknown status: {error}")),
        }
    }

    /// The pids of the components, in the order in which they were started.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.components.iter().map(Child::id).collect()
    }

    /// Lets the cluster live on without its owner, until [`stop_detached`].
    pub(crate) fn detach(mut self) -> io::Result<()> {
        if let Some(lifeline) = &mut self.lifeline {
            lifeline.write_all(b"detach\n")?;
        }
        let stop = stop_pipe(&self.dir);
        if !poll_blocking(|| stop.exists()) {
            return Err(io::Error::other("the watcher did not take over"));
        }
        // The watcher no longer reads from the pipe; what is left is to not stop it on drop.
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        // Failures here have nobody to report to, and each step only covers for the one before it:
        // the watcher, then our own handles should somebody have killed the watcher.
        poll_blocking(|| !matches!(self.watcher.try_wait(), Ok(None)));
        for process in [&mut self.watcher, &mut self.anchor].into_iter().chain(&mut self.components)
        {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Tells the watcher of a detached cluster to stop it. Says nothing about whether there is one.
pub(crate) fn stop_detached(dir: &Path) -> io::Result<()> {
    // Opened for reading too, or a pipe without a watcher behind it would block us for ever.
    File::options().read(true).write(true).open(stop_pipe(dir))?.write_all(b"stop\n")
}

fn stop_pipe(dir: &Path) -> PathBuf {
    dir.join("stop")
}
