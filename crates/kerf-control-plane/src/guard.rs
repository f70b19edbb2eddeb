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

const ANCHOR: &str = "read -r _; kill -s KILL 0";

/// `$1` is the process group, `$2` the directory. After `detach` it waits at a named pipe
/// that it holds open itself, so that it is independent of the owner and anybody can stop it.
const WATCHER: &str = r#"
cd "$2"
if read -r word && [ "$word" = detach ]; then
  mkfifo stop.tmp && exec <>stop.tmp && mv stop.tmp stop && read -r _
fi
cd /
# As POSIX spells it: dash takes "kill -KILL -- -1" for an error.
kill -s KILL -- "-$1"
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

    /// Makes the process that `command` will start a member of the guarded group. One that is being
    /// started while the owner is killed finds the group gone, and never runs.
    pub(crate) fn enlist(&self, command: &mut Command) {
        let group = i32::try_from(self.anchor.id()).expect("Linux has no pids above 4194304");
        command.process_group(group).stdin(Stdio::null());
    }

    pub(crate) fn spawn(&mut self, command: &mut Command) -> io::Result<usize> {
        self.enlist(command);
        self.components.push(command.spawn()?);
        Ok(self.components.len() - 1)
    }

    /// Kills a component and waits until it is gone.
    pub(crate) fn kill(&mut self, component: usize) -> io::Result<()> {
        self.components[component].kill()?;
        self.components[component].wait().map(drop)
    }

    /// Starts a component in the place of one that has ended.
    pub(crate) fn respawn(&mut self, component: usize, command: &mut Command) -> io::Result<()> {
        self.enlist(command);
        self.components[component] = command.spawn()?;
        Ok(())
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
        // the watcher ends the group, or else the anchor does, or else we end what we started.
        for process in [&mut self.watcher, &mut self.anchor] {
            poll_blocking(|| !matches!(process.try_wait(), Ok(None)));
        }
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

#[cfg(test)]
mod tests {
    use std::{env, fs, process, thread};

    use super::*;

    /// A process, told apart from a later one with the same id by when it started.
    #[derive(Debug, Clone)]
    struct Process {
        pid: u32,
        started: String,
    }

    impl Process {
        fn of(pid: u32) -> Self {
            Self { pid, started: stat(pid).expect("runs").1 }
        }

        fn is_gone(&self) -> bool {
            // A zombie is only waiting for its parent to take note.
            stat(self.pid).is_none_or(|(state, started)| state == "Z" || started != self.started)
        }
    }

    fn stat(pid: u32) -> Option<(String, String)> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
        Some((fields[0].to_owned(), fields[19].to_owned()))
    }

    fn kill(pid: u32) {
        assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    }

    struct Guarded {
        home: tempfile::TempDir,
        dir: PathBuf,
        guard: Guard,
        sleepers: Vec<Process>,
    }

    fn guarded() -> Guarded {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("cluster");
        fs::create_dir(&dir).unwrap();
        let ports = PortBlock::reserve(&home.path().join("ports"), process::id()).unwrap();
        let mut guard = Guard::new(&dir, &ports, None).unwrap();
        guard.spawn(Command::new("sleep").arg("600")).unwrap();
        // A component may start processes of its own, which nobody but the group knows.
        let grandchild = home.path().join("grandchild");
        let script = r#"sleep 600 & echo $! > "$0.tmp"; mv "$0.tmp" "$0"; wait"#;
        guard.spawn(Command::new("sh").args(["-c", script]).arg(&grandchild)).unwrap();
        assert!(poll_blocking(|| grandchild.exists()));

        let mut pids = guard.pids();
        pids.push(fs::read_to_string(&grandchild).unwrap().trim().parse().unwrap());
        let sleepers = pids.into_iter().map(Process::of).collect();
        Guarded { home, dir, guard, sleepers }
    }

    fn assert_gone(sleepers: &[Process]) {
        assert!(poll_blocking(|| sleepers.iter().all(Process::is_gone)), "{sleepers:?}");
    }

    #[test]
    fn dropping_the_guard_ends_the_processes_and_removes_the_directory() {
        let Guarded { home: _home, dir, guard, sleepers } = guarded();
        assert!(sleepers.iter().all(|sleeper| !sleeper.is_gone()));
        drop(guard);
        assert_gone(&sleepers);
        assert!(!dir.exists());
    }

    #[test]
    fn a_panic_ends_the_processes() {
        let Guarded { home: _home, dir, guard, sleepers } = guarded();
        let panicked = thread::spawn(move || {
            let _guard = guard;
            panic!("as a failing test does");
        });
        assert!(panicked.join().is_err());
        assert_gone(&sleepers);
        assert!(!dir.exists());
    }

    #[test]
    fn killing_the_watcher_ends_the_processes() {
        let guarded = guarded();
        kill(guarded.guard.watcher.id());
        assert_gone(&guarded.sleepers);
        drop(guarded.guard);
        assert!(!guarded.dir.exists());
    }

    #[test]
    fn killing_the_anchor_does_not_save_the_processes() {
        let Guarded { home: _home, dir, guard, sleepers } = guarded();
        kill(guard.anchor.id());
        drop(guard);
        assert_gone(&sleepers);
        assert!(!dir.exists());
    }

    #[test]
    fn a_detached_cluster_lives_until_it_is_stopped() {
        let Guarded { home: _home, dir, guard, sleepers } = guarded();
        guard.detach().unwrap();
        assert!(sleepers.iter().all(|sleeper| !sleeper.is_gone()));
        stop_detached(&dir).unwrap();
        assert_gone(&sleepers);
        assert!(poll_blocking(|| !dir.exists()));
    }

    #[test]
    fn stopping_where_nothing_runs_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let made = Command::new("mkfifo").arg(stop_pipe(dir.path())).status().unwrap();
        assert!(made.success());
        stop_detached(dir.path()).unwrap();
    }

    /// How an owner can end without running its destructors.
    const ENDINGS: [&str; 3] = ["killed", "exit", "abort"];
    const ROLE: &str = "KERF_TEST_OWNER_ENDS";
    const REPORT: &str = "KERF_TEST_REPORT";

    #[test]
    fn no_process_survives_an_owner_that_ends_without_destructors() {
        if let Ok(ending) = env::var(ROLE) {
            be_the_owner(&ending);
        }
        for ending in ENDINGS {
            let home = tempfile::tempdir().unwrap();
            let report = home.path().join("report");
            let mut owner = Command::new(env::current_exe().unwrap())
                .args(["--exact", "--nocapture"])
                .arg("guard::tests::no_process_survives_an_owner_that_ends_without_destructors")
                .env(ROLE, ending)
                .env(REPORT, &report)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            assert!(poll_blocking(|| report.exists()), "{ending}: the owner did not start");
            let report = fs::read_to_string(&report).unwrap();
            let (dir, pids) = report.split_once('\n').unwrap();
            let sleepers: Vec<_> =
                pids.lines().map(|pid| Process::of(pid.parse().unwrap())).collect();
            assert_eq!(sleepers.len(), 3);
            if ending == "killed" {
                owner.kill().unwrap();
            } else {
                writeln!(owner.stdin.take().unwrap()).unwrap();
            }
            assert!(!owner.wait().unwrap().success());
            assert_gone(&sleepers);
            assert!(poll_blocking(|| !Path::new(dir).exists()), "{ending}: {dir} is left");
        }
    }

    fn be_the_owner(ending: &str) -> ! {
        let guarded = guarded();
        let mut lines = vec![guarded.dir.display().to_string()];
        lines.extend(guarded.sleepers.iter().map(|sleeper| sleeper.pid.to_string()));
        let report = PathBuf::from(env::var_os(REPORT).unwrap());
        // Complete as soon as it is there.
        fs::write(report.with_extension("tmp"), lines.join("\n")).unwrap();
        fs::rename(report.with_extension("tmp"), &report).unwrap();
        let mut line = String::new();
        if ending != "killed" {
            io::stdin().read_line(&mut line).unwrap();
        }
        match ending {
            "exit" => process::exit(7),
            "abort" => process::abort(),
            _ => loop {
                thread::park();
            },
        }
    }
}
