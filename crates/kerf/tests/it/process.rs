//! The built binary as its users meet it, without a cluster.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::kerf::{command, output, write_kubeconfig};

/// How long a thing may take that is expected to happen at once.
const PATIENCE: Duration = Duration::from_mins(1);

/// `kerf run` on ports that are free.
fn kerf_run(home: &Path, arguments: &[&str]) -> Command {
    let mut command = command(home, &["run", "--metrics-port=0", "--health-probe-port=0"]);
    command.args(arguments);
    command
}

/// The messages of the error lines in a log.
fn errors(log: &str) -> Vec<String> {
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["level"] == "ERROR")
        .map(|line| line["message"].as_str().unwrap().to_owned())
        .collect()
}

/// A running operator; killed when the test is over, however it ends.
struct Running {
    process: Child,
    lines: mpsc::Receiver<Value>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, lines }
    }

    /// The next line of the log with this message.
    fn line(&self, message: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line =
                self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line {message:?}"));
            if line["message"] == message {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the process goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The status line and the body.
fn get(port: &Value, path: &str) -> (String, String) {
    let port = u16::try_from(port.as_u64().unwrap()).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn a_wrong_value_is_refused_with_one_sentence() {
    let home = tempfile::tempdir().unwrap();
    let mut by_variable = command(home.path(), &["run"]);
    by_variable.env("BATCH_MAX_DURATION", "soon");
    // As docs/configuration.md shows it.
    let mut documented = command(home.path(), &["run"]);
    documented.env("SCALE_DOWN_UTILIZATION_THRESHOLD", "75%");
    for (command, sentence) in [
        (
            command(home.path(), &["run", "--metrics-port=http"]),
            "kerf: invalid value \"http\" for --metrics-port: expected a port number from 0 to 65535, \
             where 0 takes any free port\n",
        ),
        (
            by_variable,
            "kerf: invalid value \"soon\" for the environment variable BATCH_MAX_DURATION \
             (--batch-max-duration): expected a duration of 0 or more, such as 500ms, 10s or 1m30s\n",
        ),
        (
            documented,
            "kerf: invalid value \"75%\" for the environment variable SCALE_DOWN_UTILIZATION_THRESHOLD \
             (--scaledown-utilization-threshold): expected a number from 0 to 1\n",
        ),
        (
            command(home.path(), &["run", "--metricsport=1"]),
            "kerf: unknown argument --metricsport (did you mean --metrics-port?); \
             see kerf run --help for all flags\n",
        ),
    ] {
        assert_eq!(output(command), (Some(2), String::new(), sentence.to_owned()));
    }
}

#[test]
fn what_cannot_be_opened_or_read_is_named() {
    let home = tempfile::tempdir().unwrap();
    let command = kerf_run(home.path(), &["--log-output-paths=/nonexistent/log"]);
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("kerf: cannot open the log file /nonexistent/log: "), "{stderr}");

    let command = kerf_run(home.path(), &["--instance-types-file-path=/nonexistent/types"]);
    let (code, stdout, _) = output(command);
    assert_eq!(code, Some(2));
    let errors = errors(&stdout);
    assert_eq!(errors.len(), 1, "{stdout}");
    assert!(errors[0].contains("/nonexistent/types"), "{stdout}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let home = tempfile::tempdir().unwrap();
    let taken =
        TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0))).unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, stdout, _) = output(kerf_run(home.path(), &[&format!("--metrics-port={port}")]));
    assert_eq!(code, Some(1));
    let [error] = &errors(&stdout)[..] else { panic!("{stdout}") };
    assert!(
        error.starts_with(&format!("cannot listen on port {port} (--metrics-port): ")),
        "{error}"
    );
}

#[test]
fn without_a_cluster_there_is_one_clear_sentence() {
    let home = tempfile::tempdir().unwrap();
    let (code, stdout, _) = output(kerf_run(home.path(), &[]));
    let expected = format!(
        "no Kubernetes cluster to connect to: KUBECONFIG is not set, this process does not run in a pod, and \
         {}/.kube/config does not exist; set KUBECONFIG to the path of a kubeconfig file",
        home.path().display()
    );
    assert_eq!((code, errors(&stdout)), (Some(1), vec![expected]));

    let mut command = kerf_run(home.path(), &[]);
    command.env("KUBECONFIG", "/nonexistent/kubeconfig");
    let (code, stdout, _) = output(command);
    let expected = "cannot read the kubeconfig /nonexistent/kubeconfig that KUBECONFIG names: no such file; \
                    set KUBECONFIG to the path of a kubeconfig file";
    assert_eq!((code, errors(&stdout)), (Some(1), vec![expected.to_owned()]));
}

#[test]
fn a_server_that_is_down_is_waited_for() {
    // Bound and closed again: a port that refuses connections.
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let home = tempfile::tempdir().unwrap();
    write_kubeconfig(home.path(), &format!("http://127.0.0.1:{port}"));
    let mut operator = Running::start(kerf_run(home.path(), &["--feature-gates=Sorcery=true"]));

    let warning = operator.line("feature gate Sorcery: unknown to Kerf");
    assert_eq!(warning["level"], "WARN");
    let (metrics, probes) = (operator.line("listening"), operator.line("listening"));
    assert_eq!(
        (&metrics["flag"], &probes["flag"]),
        (&"metrics-port".into(), &"health-probe-port".into())
    );
    let first = operator.line("cannot reach the API server");
    assert_eq!(first["url"], format!("http://127.0.0.1:{port}/"));
    assert!(first["error"].as_str().unwrap().contains("refused"), "{first}");
    let second = operator.line("cannot reach the API server");
    assert_ne!(first["retry_in"], second["retry_in"]);

    let ok = "HTTP/1.0 200 OK".to_owned();
    assert_eq!(get(&probes["port"], "/healthz"), (ok.clone(), "ok".into()));
    let (status, body) = get(&probes["port"], "/readyz");
    assert_eq!(status, "HTTP/1.0 500 Internal Server Error");
    assert!(body.contains("[-]manager failed") && body.contains("[-]crd failed"), "{body}");
    let (status, body) = get(&metrics["port"], "/metrics");
    assert_eq!(status, ok);
    for line in [
        "karpenter_build_info{",
        "process_resident_memory_bytes ",
        "client_go_request_total{code=\"<error>\",method=\"GET\"} ",
    ] {
        assert!(body.lines().any(|l| l.starts_with(line)), "{line}\n{body}");
    }

    operator.signal("TERM");
    assert_eq!(operator.end().code(), Some(0));
}

/// An API server that answers a path, or says nothing at all, to clients that call themselves kerf.
fn serve(answer: fn(&str) -> Option<(&'static str, String)>) -> String {
    let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let request = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<_> = request.take_while(|line| !line.is_empty()).collect();
            // A process that ends drops connections that it has just opened.
            let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)) else { continue };
            assert!(head.iter().any(|line| line.to_lowercase().starts_with("user-agent: kerf/")));
            match answer(path) {
                Some((status, body)) => {
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n");
                    write!(stream, "{head}connection: close\r\n\r\n{body}").unwrap();
                }
                None => silent.push(stream),
            }
        }
    });
    url
}

#[test]
fn missing_custom_resources_come_with_the_command_that_installs_them() {
    let home = tempfile::tempdir().unwrap();
    write_kubeconfig(home.path(), &serve(|_| Some(("404 Not Found", String::new()))));
    let (code, stdout, _) = output(kerf_run(home.path(), &[]));
    let expected = "the cluster does not have the custom resources nodepools.karpenter.sh (v1), \
                    nodeclaims.karpenter.sh (v1), kwoknodeclasses.karpenter.kwok.sh (v1alpha1); \
                    install them with: kerf crds | kubectl apply -f -";
    assert_eq!((code, errors(&stdout)), (Some(1), vec![expected.to_owned()]));
}

/// The server is there and then falls silent, so that the lease cannot be given back: one signal would
/// wait for that.
#[test]
fn a_second_signal_ends_the_process_at_once() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(|path| {
        let (group_version, plurals) = match path {
            "/apis/karpenter.sh/v1" => ("karpenter.sh/v1", &["nodepools", "nodeclaims"][..]),
            "/apis/karpenter.kwok.sh/v1alpha1" => {
                ("karpenter.kwok.sh/v1alpha1", &["kwoknodeclasses"][..])
            }
            _ => return None,
        };
        let resource = |name| json!({"name": name, "singularName": "", "namespaced": false, "kind": "", "verbs": []});
        let resources: Vec<_> = plurals.iter().map(resource).collect();
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1",
                          "groupVersion": group_version, "resources": resources});
        Some(("200 OK", list.to_string()))
    });
    write_kubeconfig(home.path(), &server);
    let mut operator = Running::start(kerf_run(home.path(), &[]));
    operator.line("waiting for the lease");
    operator.signal("TERM");
    operator.line("stopping");
    operator.signal("INT");
    operator.line("stopping at once");
    assert_eq!(operator.end().code(), Some(1));
}

#[test]
fn help_version_and_crds_are_printed() {
    let home = tempfile::tempdir().unwrap();
    let (code, stdout, _) = output(command(home.path(), &["--version"]));
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with(concat!("kerf ", env!("CARGO_PKG_VERSION"))), "{stdout}");

    for arguments in [&["--help"][..], &["run", "--help"], &["run", "-help"], &["run", "-h"]] {
        let (code, stdout, _) = output(command(home.path(), arguments));
        assert_eq!(code, Some(0));
        assert!(stdout.contains("Usage: kerf"), "{stdout}");
    }
    let (_, stdout, _) = output(command(home.path(), &["run", "--help"]));
    for text in
        ["--kube-client-qps <NUMBER>", "[env: KUBE_CLIENT_QPS]", "[default: 200]", "Examples:"]
    {
        assert!(stdout.contains(text), "{text}\n{stdout}");
    }

    let (code, stdout, _) = output(command(home.path(), &["crds"]));
    assert_eq!((code, stdout), (Some(0), kerf_api::crds_yaml(kerf_provider_kwok::crds()).unwrap()));
}
