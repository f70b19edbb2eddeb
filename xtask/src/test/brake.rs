//! Leaves a program a part of the machine.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// In microseconds, as the kernel counts; its own default.
const PERIOD: u32 = 100_000;

pub(super) struct Brake {
    cores: u32,
    percent: u32,
    means: Means,
}

enum Means {
    /// The directory of a cgroup with a quota.
    Cgroup(PathBuf),
    /// Processes that do nothing as fast as they can.
    Load(Vec<Child>),
}

impl Brake {
    /// A cgroup if one can be made, else busy processes.
    pub(super) fn engage(percent: u32) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let cores = u32::try_from(cores).unwrap_or(1);
        let means = match cgroup(cores * percent * (PERIOD / 100)) {
            Some(group) => Means::Cgroup(group),
            None => Means::Load(load(cores * (100 / percent - 1))?),
        };
        Ok(Self { cores, percent, means })
    }

    /// A command for a program that is braked, with all that it starts.
    pub(super) fn command(&self, program: &str) -> Command {
        match &self.means {
            Means::Cgroup(group) => {
                let mut command = Command::new("sh");
                command
                    .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
                    .arg(group.join("cgroup.procs"))
                    .arg(program);
                command
            }
            Means::Load(_) => Command::new(program),
        }
    }
}

impl fmt::Display for Brake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, percent, means } = self;
        match means {
            Means::Cgroup(_) => write!(f, "{percent} % of {cores} CPUs (cgroup)"),
            Means::Load(busy) => {
                write!(f, "{cores} CPUs beside {} busy processes, about {percent} %", busy.len())
            }
        }
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        match &mut self.means {
            Means::Cgroup(group) => {
                // The kernel refuses until the last process in it is gone.
                for _ in 0..100 {
                    if fs::remove_dir(&*group).is_ok() {
                        return;
                    }
                    thread::sleep(Duration::from_millis(100));
                }
                eprintln!("{} could not be removed", group.display());
            }
            Means::Load(busy) => {
                for process in busy {
                    let _ = process.kill();
                    let _ = process.wait();
                }
            }
        }
    }
}

/// Makes a cgroup with this quota per period, in the second or the first version of the interface.
fn cgroup(quota: u32) -> Option<PathBuf> {
    let quotas: [(&str, &str, String); 3] = [
        ("/sys/fs/cgroup", "cpu.max", format!("{quota} {PERIOD}")),
        ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota.to_string()),
        ("/sys/fs/cgroup/cpu,cpuacct", "cpu.cfs_quota_us", quota.to_string()),
    ];
    quotas.into_iter().find_map(|(parent, file, quota)| {
        // In a directory that is no cgroup one could be made that limits nothing.
        Path::new(parent).join("cgroup.procs").exists().then_some(())?;
        let group = Path::new(parent).join(format!("kerf-slow-{}", process::id()));
        fs::create_dir(&group).ok()?;
        // Without create: where the file is not there, the controller is not.
        let limited = fs::OpenOptions::new().write(true).open(group.join(file));
        let limited =
            limited.and_then(|mut file| io::Write::write_all(&mut file, quota.as_bytes()));
        if limited.is_err() {
            let _ = fs::remove_dir(&group);
            return None;
        }
        Some(group)
    })
}

/// Each ends of itself when this process is gone, however it went.
fn load(count: u32) -> io::Result<Vec<Child>> {
    const BUSY: &str =
        "while kill -0 \"$0\"; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";
    let parent = process::id().to_string();
    let spawn = |_| {
        Command::new("sh")
            .args(["-c", BUSY, &parent])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    (0..count).map(spawn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_processes_end_with_the_brake() {
        let busy = load(2).unwrap();
        let pids: Vec<_> = busy.iter().map(Child::id).collect();
        let brake = Brake { cores: 1, percent: 10, means: Means::Load(busy) };
        assert_eq!(brake.to_string(), "1 CPUs beside 2 busy processes, about 10 %");
        drop(brake);
        for pid in pids {
            assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} still runs");
        }
    }
}
