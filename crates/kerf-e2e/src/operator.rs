//! `kerf run` as a process.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{
    cell::RefCell,
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{OnceLock, mpsc},
    time::Duration,
};

use kerf_control_plane::ControlPlane;
use kerf_stories::rights::{OPERATORS, USER};
use serde_json::Value;

/// A `kerf run`; killed when the test is over, however it ends.
#[derive(Debug)]
pub struct Operator {
    process: Child,
    lines: mpsc::Receiver<Value>,
    /// What was read of them.
    seen: RefCell<Vec<Value>>,
    metrics: u16,
    probes: u16,
}

impl Operator {
    /// Starts an operator.
    pub fn start(cluster: &ControlPlane) -> Self {
        Self::start_as(cluster, USER)
    }

    /// Starts an operator that the audit log knows by this name. Like all of them it has the rights that
    /// [`install`](crate::install) gives, and no others.
    pub fn start_as(cluster: &ControlPlane, user: &str) -> Self {
        let kubeconfig = cluster.kubeconfig_of(user, OPERATORS, None).unwrap();
        Self::spawn(cluster.command(kerf()).env("KUBECONFIG", kubeconfig))
    }

    /// Starts an operator without leader election, which the audit log knows by this name. It reaches the API server at
    /// `server`, or directly.
    pub fn start_alone(cluster: &ControlPlane, user: &str, server: Option<&str>) -> Self {
        let kubeconfig = cluster.kubeconfig_of(user, OPERATORS, server).unwrap();
        let mut command = cluster.command(kerf());
        command.env("KUBECONFIG", kubeconfig).env("DISABLE_LEADER_ELECTION", "true");
        Self::spawn(command.env("LOG_LEVEL", "debug"))
    }

    /// Starts an operator with these variables.
    pub fn start_with(cluster: &ControlPlane, variables: &[(&str, &str)]) -> Self {
        Self::spawn(cluster.command(kerf()).envs(variables.iter().copied()))
    }

    fn spawn(command: &mut Command) -> Self {
        let ports = ["run", "--metrics-port=0", "--health-probe-port=0"];
        let mut process = command.args(ports).stdout(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines() {
                let _ = sender.send(serde_json::from_str(&line.unwrap()).unwrap());
            }
        });
        let seen = RefCell::default();
        let mut operator = Self { process, lines, seen, metrics: 0, probes: 0 };
        let port = || {
            let line = operator.message("listening");
            u16::try_from(line["port"].as_u64().unwrap()).unwrap()
        };
        (operator.metrics, operator.probes) = (port(), port());
        operator
    }

    /// The next line of the log for which this holds.
    pub fn line(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(Duration::from_mins(1));
            let line = line.expect("the line that the test waits for");
            self.seen.borrow_mut().push(line.clone());
            if wanted(&line) {
                return line;
            }
        }
    }

    /// The next line of the log that says this.
    pub fn message(&self, text: &str) -> Value {
        self.line(|line| line["message"] == text)
    }

    /// Waits until it leads, and says under which name.
    pub fn leading(&self) -> String {
        self.message("leading")["identity"].as_str().unwrap().to_owned()
    }

    /// All lines that it has written.
    pub fn so_far(&self) -> Vec<Value> {
        let mut seen = self.seen.borrow_mut();
        seen.extend(self.lines.try_iter());
        seen.clone()
    }

    /// Asks whether it is ready; else what it says.
    pub fn ready(&self) -> Result<(), String> {
        let answer = get(self.probes, "/readyz");
        if answer == "ok" { Ok(()) } else { Err(answer) }
    }

    /// Asks whether it is not ready because of this check.
    pub fn unready(&self, check: &str) -> Result<(), String> {
        let answer = get(self.probes, "/readyz");
        if answer.contains(&format!("[-]{check} ")) { Ok(()) } else { Err(answer) }
    }

    /// The first sample of that name.
    pub fn metric(&self, name: &str) -> String {
        let text = get(self.metrics, "/metrics");
        text.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
    }

    /// Sends it a signal: `TERM`, `STOP`.
    pub fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// `None` when it was killed.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The binary of today's sources. Cargo builds the binaries of a package for its own tests only, and these
/// are another package's: so the tests of the `kerf` package are built (not run), and it with them.
pub fn kerf() -> &'static PathBuf {
    static KERF: OnceLock<PathBuf> = OnceLock::new();
    KERF.get_or_init(|| {
        let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["test", "--quiet", "--workspace", "--features", "kerf/aws"])
            .args(["--test", "it", "--no-run"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .status()
            .unwrap();
        assert!(built.success(), "kerf does not compile");
        // target/debug/deps/name_of_a_test-0123 and target/debug/kerf
        let this = env::current_exe().unwrap();
        this.parent().unwrap().parent().unwrap().join("kerf")
    })
}
