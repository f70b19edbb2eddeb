//! One `kerf run`: started, signalled, asked how it is, started again.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kerf_control_plane::ADMINS;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::stage::Stage;

/// A replica; killed when it is dropped.
pub(super) struct Replica {
    /// The user that the API server knows it by. It stays the same when the process is another one.
    pub(super) user: String,
    kubeconfig: PathBuf,
    process: Child,
    log: Log,
    starts: u32,
    /// Once we have waited for it, its id may be a stranger's.
    status: Option<ExitStatus>,
    cpu: Cpu,
}

/// Seconds of computing: of the process that runs, and of those before it.
#[derive(Default)]
struct Cpu {
    now: f64,
    before: f64,
}

impl Replica {
    pub(super) fn start(stage: &Stage, user: &str, server: Option<&str>) -> Result<Self> {
        let kubeconfig = stage.cluster.kubeconfig_of(user, ADMINS, server)?;
        let (process, log) = spawn(stage, user, &kubeconfig, 1)?;
        Ok(Self {
            user: user.to_owned(),
            kubeconfig,
            process,
            log,
            starts: 1,
            status: None,
            cpu: Cpu::default(),
        })
    }

    /// A new process in the place of one that has ended.
    pub(super) fn restart(&mut self, stage: &Stage) -> Result<()> {
        ensure!(self.ended()?.is_some(), "{} still runs", self.user);
        self.starts += 1;
        self.status = None;
        self.cpu = Cpu { now: 0.0, before: self.cpu.now + self.cpu.before };
        (self.process, self.log) = spawn(stage, &self.user, &self.kubeconfig, self.starts)?;
        Ok(())
    }

    pub(super) fn starts(&self) -> u32 {
        self.starts
    }

    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            // What it used can be read until we have waited for it.
            self.cpu.now = cpu_seconds(self.process.id()).unwrap_or(self.cpu.now);
            self.status = self.process.try_wait()?;
        }
        Ok(self.status)
    }

    /// The seconds of computing of all its processes.
    pub(super) fn cpu(&self) -> f64 {
        self.cpu.now + self.cpu.before
    }

    /// By the id of our own child, which nobody else can have before we have waited for it.
    pub(super) fn signal(&self, name: &str) -> Result<()> {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status()?;
        ensure!(sent.success(), "SIG{name} could not be sent to {}", self.user);
        Ok(())
    }

    /// Waits until it has ended; how long that took.
    pub(super) async fn end(&mut self, patience: Duration) -> Result<Option<Duration>> {
        let begin = Instant::now();
        while self.ended()?.is_none() {
            if begin.elapsed() > patience {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Some(begin.elapsed()))
    }

    /// The name under which this process competes for the lease, once it does.
    pub(super) fn identity(&mut self) -> Result<Option<String>> {
        let line = self.log.find(|line| line["message"] == "waiting for the lease")?;
        Ok(line.and_then(|line| Some(line["identity"].as_str()?.to_owned())))
    }

    /// Waits until its log has such a message.
    pub(super) async fn says(&mut self, message: &str, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        while self.log.find(|line| line["message"] == message)?.is_none() {
            if let Some(status) = self.ended()? {
                bail!("{} ended ({status}) before it said {message:?}", self.user);
            }
            let waited = begin.elapsed();
            ensure!(waited < patience, "{} did not say {message:?} in {waited:?}", self.user);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// How many lines and bytes it has logged.
    pub(super) fn logged(&mut self) -> Result<(usize, u64)> {
        self.log.catch_up()?;
        Ok((self.log.lines.len(), self.log.read))
    }

    /// The port that a flag stands for: `metrics-port` or `health-probe-port`.
    pub(super) fn port(&mut self, flag: &str) -> Result<Option<u16>> {
        let line = self.log.find(|line| line["message"] == "listening" && line["flag"] == flag)?;
        Ok(line.and_then(|line| u16::try_from(line["port"].as_u64()?).ok()))
    }

    /// The status code of a probe; `None` when there is no answer in time.
    pub(super) async fn probe(&mut self, path: &str, patience: Duration) -> Result<Option<u16>> {
        let Some(port) = self.port("health-probe-port")? else { return Ok(None) };
        Ok(tokio::time::timeout(patience, status(port, path)).await.ok().and_then(Result::ok))
    }

    /// Waits until readiness says so.
    pub(super) async fn is_ready(&mut self, patience: Duration) -> Result<bool> {
        let begin = Instant::now();
        while self.probe("/readyz", Duration::from_secs(2)).await? != Some(200) {
            if begin.elapsed() > patience || self.ended()?.is_some() {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(true)
    }

    /// The most memory it ever had, in megabytes.
    pub(super) fn peak_memory(&self) -> Option<f64> {
        memory(self.process.id(), "VmHWM:")
    }

    /// The most memory it had since the last call, in megabytes; where the kernel does not forget the peak, what it has now.
    pub(super) fn peak_since_last_time(&self) -> Option<f64> {
        let pid = self.process.id();
        let peak = memory(pid, "VmHWM:");
        let forgotten = fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok();
        if forgotten { peak } else { memory(pid, "VmRSS:") }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In megabytes.
fn memory(pid: u32, what: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1024.0)
}

fn cpu_seconds(pid: u32) -> Option<f64> {
    /// What Linux tells programs, whatever it counts in itself.
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may have spaces and is in brackets; user and system time are the 12th and 13th after it.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_A_SECOND)
}

fn spawn(stage: &Stage, user: &str, kubeconfig: &Path, start: u32) -> Result<(Child, Log)> {
    let path = stage.logs.join(format!("{user}-{start}.log"));
    let log = File::create(&path).with_context(|| format!("writing {}", path.display()))?;
    let process = stage
        .cluster
        .command("sh")
        // As many open files as a process gets where nobody asks for more.
        .args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\""])
        .arg(&stage.kerf)
        .args(["run", "--metrics-port=0", "--health-probe-port=0"])
        .env("KUBECONFIG", kubeconfig)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("{} does not start", stage.kerf.display()))?;
    Ok((process, Log { path, read: 0, lines: Vec::new() }))
}

/// What a process has logged so far, one JSON object a line.
struct Log {
    path: PathBuf,
    read: u64,
    lines: Vec<Value>,
}

impl Log {
    fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Option<&Value>> {
        self.catch_up()?;
        Ok(self.lines.iter().find(|line| wanted(line)))
    }

    fn catch_up(&mut self) -> Result<()> {
        let mut file = BufReader::new(File::open(&self.path)?);
        file.seek(SeekFrom::Start(self.read))?;
        let mut line = String::new();
        loop {
            line.clear();
            let length = file.read_line(&mut line)?;
            if length == 0 || !line.ends_with('\n') {
                return Ok(());
            }
            self.read += length as u64;
            // What is not JSON is a panic, and is found in the file.
            self.lines.push(serde_json::from_str(&line).unwrap_or_default());
        }
    }
}

async fn status(port: u16, path: &str) -> Result<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let code = answer.split_whitespace().nth(1).context("no status line")?;
    Ok(code.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_what_a_process_used() {
        let this = std::process::id();
        let begin = Instant::now();
        let before = cpu_seconds(this).unwrap();
        while cpu_seconds(this).unwrap() < before + 0.02 {
            assert!(begin.elapsed() < Duration::from_mins(1), "no time passes");
        }
        assert!(memory(this, "VmRSS:").unwrap() > 1.0);
        assert_eq!(memory(this, "VmNothing:"), None);
    }
}
