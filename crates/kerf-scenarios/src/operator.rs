//! The operator of a scenario, in the same process.

use std::sync::Arc;

use kerf_controllers::{
    Operator, Settings,
    operator::{self, OperatorError},
};
use kerf_provider::kwok::{self, KwokProvider};
use kerf_runtime::{Clock, Metrics};
use kerf_testbed::{CloudFaults, Faults, FaultyCloud};
use kube::Client;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// An operator that runs. Dropping it kills it between two calls, as a crash would.
#[derive(Debug)]
pub struct OperatorHandle {
    stop: CancellationToken,
    running: JoinHandle<Result<(), OperatorError>>,
    pub metrics: Metrics,
}

impl OperatorHandle {
    /// Starts an operator and waits until it knows the cluster.
    pub async fn start(
        client: Client,
        clock: Clock,
        settings: Settings,
        cloud: &CloudFaults,
    ) -> Self {
        let (stop, metrics) = (CancellationToken::new(), Metrics::default());
        let (ready, mut synced) = watch::channel(false);
        let operating =
            operate(client, clock, settings, cloud, metrics.clone(), ready, stop.clone());
        let running = tokio::spawn(operating);
        // An operator that ends before it is ready is noticed by whoever waits for what it should have done.
        let _ = synced.wait_for(|synced| *synced).await;
        Self { stop, running, metrics }
    }

    /// Starts an operator that dies where `faults` say so, and one that takes its place.
    pub fn start_mortal(
        mortal: Client,
        faults: Faults,
        successor: Client,
        clock: Clock,
        settings: Settings,
        cloud: &CloudFaults,
    ) -> Self {
        let (stop, metrics) = (CancellationToken::new(), Metrics::default());
        let first = operate(
            mortal,
            clock.clone(),
            settings.clone(),
            cloud,
            metrics.clone(),
            watch::channel(false).0,
            stop.clone(),
        );
        let second = operate(
            successor,
            clock,
            settings,
            cloud,
            metrics.clone(),
            watch::channel(false).0,
            stop.clone(),
        );
        let running = tokio::spawn(async move {
            let mut first = tokio::spawn(first);
            tokio::select! {
                biased;
                () = faults.stopped() => {
                    first.abort();
                    let _ = first.await;
                }
                ended = &mut first => return ended.unwrap_or(Ok(())),
            }
            second.await
        });
        Self { stop, running, metrics }
    }

    /// Asks it to stop and waits until it has.
    pub async fn stop(mut self) {
        self.stop.cancel();
        match (&mut self.running).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("the operator failed: {error}"),
            Err(panic) => panic!("the operator panicked: {panic}"),
        }
    }
}

/// An operator as the binary makes it, in a cloud where something may go wrong.
fn operate(
    client: Client,
    clock: Clock,
    settings: Settings,
    cloud: &CloudFaults,
    metrics: Metrics,
    ready: watch::Sender<bool>,
    stop: CancellationToken,
) -> impl Future<Output = Result<(), OperatorError>> + use<> {
    let resumed = Arc::new(KwokProvider::new(client.clone(), kwok::generated()));
    let provider = Arc::new(FaultyCloud::new(resumed.clone(), cloud.clone()));
    let operator = Operator { client, clock, settings, provider, metrics, ready };
    let elected = async move {
        // What the binary does when it is elected; claims it cannot take up time out by themselves.
        let _ = resumed.resume().await;
    };
    operator::run(operator, elected, stop)
}

impl Drop for OperatorHandle {
    fn drop(&mut self) {
        self.running.abort();
    }
}
