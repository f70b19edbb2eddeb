//! kube-scheduler and kube-controller-manager against the suite that the testbed's actors are measured by.
#![allow(clippy::unwrap_used, reason = "a case that panics is a case that fails")]
#![allow(clippy::needless_pass_by_value, reason = "changes are written where they are used")]

#[path = "../../kerf-testbed/tests/parity/suite.rs"]
mod suite;

use kerf_control_plane::ControlPlane;

#[tokio::test]
async fn the_real_ones_do_as_the_suite_says() {
    let cluster = ControlPlane::start().await.unwrap();
    suite::run(cluster.client()).await;
}
