//! An operator in the test's own process, on a real control plane.

use std::sync::Arc;

use kerf_api::crds_yaml;
use kerf_control_plane::{ControlPlane, Profile};
use kerf_controllers::{Operator, Settings, operator};
use kerf_provider::kwok::{self, KwokProvider};
use kerf_runtime::{Clock, Metrics};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{apply, start};

/// A cluster of one's own with Kerf's CRDs and a running operator. Both end with it.
#[derive(Debug)]
pub struct Kerf {
    pub cluster: ControlPlane,
    stop: DropGuard,
    running: JoinHandle<Result<(), operator::OperatorError>>,
}

impl Kerf {
    pub async fn start() -> Self {
        let cluster = start(Profile::Full).await;
        apply(&cluster, &crds_yaml().expect("the CRDs can be written")).await;
        let (stop, running) = run(&cluster).await;
        Self { cluster, stop, running }
    }

    /// Stops the operator and waits until it is gone; the cluster stays.
    pub async fn stop_operator(self) -> ControlPlane {
        drop(self.stop);
        match self.running.await {
            Ok(Ok(())) => self.cluster,
            Ok(Err(error)) => panic!("the operator failed: {error}"),
            Err(panic) => panic!("the operator panicked: {panic}"),
        }
    }
}

async fn run(
    cluster: &ControlPlane,
) -> (DropGuard, JoinHandle<Result<(), operator::OperatorError>>) {
    let stop = CancellationToken::new();
    let (ready, mut synced) = watch::channel(false);
    let client = cluster.client();
    let operator = Operator {
        client: client.clone(),
        clock: Clock::system(),
        settings: Settings::default(),
        provider: Arc::new(KwokProvider::new(client, kwok::generated())),
        metrics: Metrics::default(),
        ready,
    };
    let running = tokio::spawn(operator::run(operator, async {}, stop.clone()));
    let _ = synced.wait_for(|synced| *synced).await;
    (stop.drop_guard(), running)
}
