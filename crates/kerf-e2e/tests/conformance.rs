//! A real kube-apiserver against the suite of API semantics that the testbed is measured by.
#![allow(clippy::unwrap_used, reason = "a case that panics is a case that fails")]
#![allow(clippy::needless_pass_by_value, reason = "bodies are written where they are sent")]
#![allow(clippy::similar_names, reason = "a patch goes to a path")]

#[path = "../../kerf-testbed/tests/conformance/suite.rs"]
mod suite;

use kerf_control_plane::{ControlPlane, Profile};

#[tokio::test]
async fn kube_apiserver_conforms() {
    let cluster = ControlPlane::start_with(Profile::ApiOnly).await.unwrap();
    suite::harness::run(cluster.client(), suite::all()).await;
}
