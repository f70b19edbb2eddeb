//! `kerf shadow` (docs/shadow.md) beside an operator on a real control plane, with rights to read and no others. The audit log is the
//! witness.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use kerf_control_plane::{ControlPlane, Profile, Program, patient};
use kerf_e2e::{
    apply, eventually, install,
    operator::{Operator, kerf},
    start,
};
use serde_json::Value;

const RBAC: &str = include_str!("../../../examples/shadow/rbac.yaml");
const QUICKSTART: &str = include_str!("../../../examples/quickstart.yaml");
const USER: &str = "system:serviceaccount:kerf-shadow:kerf-shadow";
/// A report needs a record of this length.
const LONG_ENOUGH: Duration = Duration::from_secs(32);

struct Shadow(Child);

impl Shadow {
    /// Starts it, and waits until it has read the cluster and says so.
    fn start(cluster: &ControlPlane, kubeconfig: &Path, dir: &Path, says: &str) -> Self {
        let mut process = cluster
            .command(kerf())
            .env("KUBECONFIG", kubeconfig)
            .args(["shadow", "--record"])
            .arg(dir)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let found = lines.by_ref().map(Result::unwrap).find(|line| line.contains(says));
        assert!(found.is_some(), "it ended without: {says}");
        // Or it would wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self(process)
    }

    fn signal(mut self, name: &str) -> Option<i32> {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn count(cluster: &ControlPlane, what: &[&str]) -> usize {
    let output = cluster.kubectl(&[&["get", "-o", "name"], what].concat()).await.unwrap();
    String::from_utf8_lossy(&output.stdout).lines().count()
}

async fn until(cluster: &ControlPlane, what: &[&str], wanted: usize) {
    eventually(&format!("{wanted} of {what:?}"), async || match count(cluster, what).await {
        found if found == wanted => Ok(()),
        found => Err(found),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_reads_and_never_writes() {
    let cluster = start(Profile::Full.audited()).await;
    let crds = Command::new(kerf()).arg("crds").output().unwrap();
    install(&cluster, &String::from_utf8(crds.stdout).unwrap()).await;
    apply(&cluster, RBAC).await;
    let account = cluster.kubeconfig_of_service_account("kerf-shadow", "kerf-shadow").await;
    let (account, dir) = (account.unwrap(), tempfile::tempdir().unwrap());
    let begun = Instant::now();
    let shadow = Shadow::start(&cluster, &account, dir.path(), "the record begins");

    let operator = Operator::start(&cluster);
    operator.leading();
    apply(&cluster, QUICKSTART).await;
    let running = ["pods", "--field-selector=status.phase=Running"];
    until(&cluster, &running, 6).await;
    // It is killed in the middle, and goes on.
    assert_eq!(shadow.signal("KILL"), None);
    let shadow = Shadow::start(&cluster, &account, dir.path(), "the record goes on");
    let scaled = cluster.kubectl(&["scale", "deployment", "hello", "--replicas=0"]).await.unwrap();
    assert!(scaled.status.success());
    until(&cluster, &["pods"], 0).await;
    let deleted = cluster.kubectl(&["delete", "nodeclaims", "--all"]).await.unwrap();
    assert!(deleted.status.success());
    until(&cluster, &["nodeclaims"], 0).await;
    let left = patient(LONG_ENOUGH).saturating_sub(begun.elapsed());
    tokio::time::sleep(left).await;
    assert_eq!(shadow.signal("TERM"), Some(0));

    let report = ["shadow", "report", "-o", "json", "--compare=kerf-defaults"];
    let report = Command::new(kerf()).args(report).arg(dir.path()).output().unwrap();
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["kind"], "ShadowReport");
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.contains("the running autoscaler spent $"), "{verdict}");
    let running = &report["running"];
    assert_eq!((&running["launched"], &running["terminated"]), (&1.into(), &1.into()), "{report}");
    assert_eq!(
        (&running["podsStarted"], &running["evictions"]),
        (&6.into(), &0.into()),
        "{report}"
    );
    assert_eq!(report["gaps"], 1, "{report}");

    // The audit log has every write, and no reads of service accounts.
    assert_eq!(writes(&cluster), Vec::<String>::new());
    // And it could not have written; the witness would have seen it.
    let refused = Command::new(cluster.binaries().path(Program::Kubectl))
        .args(["create", "namespace", "own"])
        .env("KUBECONFIG", &account)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("orbidden"), "{refused:?}");
    eventually("the witness sees a write", async || match writes(&cluster).as_slice() {
        [one] if one == "create 403" => Ok(()),
        seen => Err(seen.to_vec()),
    })
    .await;
}

/// What the account of the shadow tried to change, with the answer.
fn writes(cluster: &ControlPlane) -> Vec<String> {
    let log = fs::read_to_string(cluster.audit_log().unwrap()).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = events.filter(|event| event["user"]["username"] == USER);
    own.map(|event| {
        format!("{} {}", event["verb"].as_str().unwrap(), event["responseStatus"]["code"])
    })
    .collect()
}
