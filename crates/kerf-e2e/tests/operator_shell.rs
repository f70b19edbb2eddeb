//! `kerf run` as a process on a real API server: who leads, and who takes over when.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{OnceLock, mpsc},
    time::Duration,
};

use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kerf_control_plane::{ControlPlane, Profile};
use kerf_e2e::{install_crds, start};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

const LEASE: &str = "karpenter-leader-election";

#[tokio::test]
async fn without_custom_resources_it_says_how_to_install_them() {
    let cluster = start(Profile::ApiOnly).await;
    let mut operator = Operator::start(&cluster);
    let error = operator.line(|line| line["level"] == "ERROR");
    assert_eq!(
        error["message"],
        "the cluster does not have the custom resources nodepools.karpenter.sh (v1), \
         nodeclaims.karpenter.sh (v1), kwoknodeclasses.karpenter.kwok.sh (v1alpha1); \
         install them with: kerf crds | kubectl apply -f -"
    );
    assert_eq!(operator.exit_code(), Some(1));

    let crds = Command::new(kerf()).arg("crds").output().unwrap().stdout;
    install_crds(&cluster, &String::from_utf8(crds).unwrap()).await;
    let mut operator = Operator::start(&cluster);
    operator.message("caches are synced");
    operator.signal("TERM");
    assert_eq!(operator.exit_code(), Some(0));
}

#[tokio::test]
async fn of_several_operators_one_leads_and_another_takes_over() {
    let cluster = start(Profile::ApiOnly).await;
    install_crds(&cluster, &kerf_api::crds_yaml().unwrap()).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "default");
    let spec = async || leases.get(LEASE).await.unwrap().spec.unwrap();

    let mut first = Operator::start(&cluster);
    let first_name = first.leading();
    first.message("starting controllers");
    first.is_ready();
    let mut second = Operator::start(&cluster);
    let standing_by = second.message("standing by");
    assert_eq!(standing_by["holder"], first_name);
    second.message("caches are synced");
    second.is_ready();
    assert!(first.metric("leader_election_master_status").ends_with(" 1"));
    assert!(second.metric("leader_election_master_status").ends_with(" 0"));
    let at_first = spec().await;
    assert_eq!(at_first.holder_identity.as_deref(), Some(first_name.as_str()));
    assert_eq!(at_first.lease_transitions, Some(0));

    // Killed: the lease has to run out first. All processes share one clock here, so that the times in
    // the lease can be compared.
    first.signal("KILL");
    assert_eq!(first.exit_code(), None);
    let last_renewed = spec().await.renew_time.unwrap().0;
    let second_name = second.leading();
    second.message("starting controllers");
    let taken = spec().await;
    assert_eq!(taken.holder_identity.as_deref(), Some(second_name.as_str()));
    assert_eq!(taken.lease_transitions, Some(1));
    let gap = taken.acquire_time.unwrap().0.duration_since(last_renewed);
    assert!(gap >= SignedDuration::from_secs(15), "{gap:?}");

    // Asked to stop: at the next look.
    let mut third = Operator::start(&cluster);
    third.message("standing by");
    second.signal("TERM");
    second.message("released the lease");
    assert_eq!(second.exit_code(), Some(0));
    let third_name = third.leading();
    let LeaseSpec { holder_identity, lease_transitions, .. } = spec().await;
    assert_eq!(holder_identity.as_deref(), Some(third_name.as_str()));
    assert_eq!(lease_transitions, Some(2));

    // Robbed: it stops by itself.
    let theft = json!({"spec": {"holderIdentity": "a thief"}});
    leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(theft)).await.unwrap();
    let error = third.line(|line| line["level"] == "ERROR");
    assert_eq!(error["message"], "lost the lease karpenter-leader-election to a thief");
    assert_eq!(third.exit_code(), Some(1));
}

/// A `kerf run`; killed when the test is over, however it ends.
struct Operator {
    process: Child,
    lines: mpsc::Receiver<Value>,
    metrics: u16,
    probes: u16,
}

impl Operator {
    fn start(cluster: &ControlPlane) -> Self {
        let mut process = cluster
            .command(kerf())
            .args(["run", "--metrics-port=0", "--health-probe-port=0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines() {
                let _ = sender.send(serde_json::from_str(&line.unwrap()).unwrap());
            }
        });
        let mut operator = Self { process, lines, metrics: 0, probes: 0 };
        let port = || {
            let line = operator.message("listening");
            u16::try_from(line["port"].as_u64().unwrap()).unwrap()
        };
        (operator.metrics, operator.probes) = (port(), port());
        operator
    }

    /// The next line of the log for which this holds.
    fn line(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(Duration::from_mins(1));
            let line = line.expect("the line that the test waits for");
            if wanted(&line) {
                return line;
            }
        }
    }

    fn message(&self, text: &str) -> Value {
        self.line(|line| line["message"] == text)
    }

    /// Waits until it leads, and says under which name.
    fn leading(&self) -> String {
        self.message("leading")["identity"].as_str().unwrap().to_owned()
    }

    fn is_ready(&self) {
        assert_eq!(get(self.probes, "/readyz"), "ok");
    }

    /// The first sample of that name.
    fn metric(&self, name: &str) -> String {
        let text = get(self.metrics, "/metrics");
        text.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// `None` when it was killed.
    fn exit_code(&mut self) -> Option<i32> {
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
fn kerf() -> &'static PathBuf {
    static KERF: OnceLock<PathBuf> = OnceLock::new();
    KERF.get_or_init(|| {
        let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["test", "--quiet", "--workspace", "--test", "process", "--no-run"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .status()
            .unwrap();
        assert!(built.success(), "kerf does not compile");
        // target/debug/deps/operator_shell-0123 and target/debug/kerf
        let this = env::current_exe().unwrap();
        this.parent().unwrap().parent().unwrap().join("kerf")
    })
}
