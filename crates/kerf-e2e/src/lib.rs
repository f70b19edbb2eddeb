//! Tests against a real Kubernetes control plane: what they share.
//!
//! They need the programs that `cargo xtask control-plane build` makes; see [`kerf_control_plane`].

pub mod operator;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use kerf_control_plane::{ControlPlane, Options, Profile, patient};
use kerf_stories::rights;
use tokio::sync::OnceCell;

/// One API server for all tests of a test program that only ask it to accept or refuse objects. They
/// must use names of their own. It ends with the process.
pub async fn shared_api_server() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED.get_or_init(async || start(Profile::ApiOnly).await).await
}

/// A cluster of one's own, or a panic that says what is missing.
pub async fn start(options: impl Into<Options>) -> ControlPlane {
    match ControlPlane::start_with(options).await {
        Ok(cluster) => cluster,
        Err(error) => panic!("{error}"),
    }
}

/// Creates or changes what `manifest` (YAML, several documents) says.
pub async fn apply(cluster: &ControlPlane, manifest: &str) {
    let output = cluster.kubectl_with_input(&["apply", "-f", "-"], manifest).await;
    let output = output.expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Asks again and again until the answer is `Ok`, and gives back what it holds; panics with the last
/// `Err` when that takes longer than anything in a healthy cluster does.
pub async fn eventually<T, E: Debug>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let patience = patient(Duration::from_mins(2));
    let end = Instant::now() + patience;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(last) if Instant::now() > end => {
                panic!("not {what} in {patience:?}: {last:?}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Installs Kerf's custom resources and the roles of its operators.
pub async fn install(cluster: &ControlPlane, crds: &str) {
    install_crds(cluster, crds).await;
    apply(cluster, &rights::manifests()).await;
}

/// Installs Kerf's custom resources and waits until the API server serves them.
pub async fn install_crds(cluster: &ControlPlane, crds: &str) {
    apply(cluster, crds).await;
    let served = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    let output = cluster.kubectl(&served).await.expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
