//! The operator of a scenario, in the same process.

use std::sync::Arc;

use kerf_controllers::{
    Operator, Settings,
    operator::{self, OperatorError},
};
use kerf_model::{InstanceType, Offering, Price};
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
    provider: Arc<KwokProvider>,
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
        let provider = provider(&client);
        let operator = Operator {
            provider: Arc::new(FaultyCloud::new(provider.clone(), cloud.clone())),
            metrics: metrics.clone(),
            client,
            clock,
            settings,
            ready,
        };
        let running = tokio::spawn(operate(operator, provider.clone(), stop.clone()));
        // An operator that ends before it is ready is noticed by whoever waits for what it should have done.
        let _ = synced.wait_for(|synced| *synced).await;
        Self { stop, running, provider, metrics }
    }

    /// Starts an operator that dies where `faults` say so, and one that takes its place.
    pub fn start_mortal(
        mortal: Client,
        faults: Faults,
        successor: Client,
        clock: &Clock,
        settings: &Settings,
        cloud: &CloudFaults,
    ) -> Self {
        let (stop, metrics) = (CancellationToken::new(), Metrics::default());
        let operator = |client: Client| {
            let provider = provider(&client);
            let operator = Operator {
                provider: Arc::new(FaultyCloud::new(provider.clone(), cloud.clone())),
                clock: clock.clone(),
                settings: settings.clone(),
                metrics: metrics.clone(),
                ready: watch::channel(false).0,
                client,
            };
            (operator, provider)
        };
        let (first, its_provider) = operator(mortal);
        let (second, provider) = operator(successor);
        let first = operate(first, its_provider, stop.clone());
        let second = operate(second, provider.clone(), stop.clone());
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
        Self { stop, running, provider, metrics }
    }

    /// From now on instances cost as much as `price` says, given their type's name and what they cost before.
    pub(crate) fn reprice(&self, price: impl Fn(&str, Price) -> Price) {
        let repriced = kwok::generated().into_iter().map(|one| {
            let offerings = one.offerings().iter().map(|offering| Offering {
                price: price(one.name(), offering.price),
                ..offering.clone()
            });
            InstanceType::new(
                one.name(),
                one.requirements().clone(),
                offerings.collect(),
                one.capacity().clone(),
                one.overhead().clone(),
            )
        });
        self.provider.offer(repriced);
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

fn provider(client: &Client) -> Arc<KwokProvider> {
    Arc::new(KwokProvider::new(client.clone(), kwok::generated()))
}

/// An operator as the binary runs it.
fn operate(
    operator: Operator,
    provider: Arc<KwokProvider>,
    stop: CancellationToken,
) -> impl Future<Output = Result<(), OperatorError>> + use<> {
    let elected = async move {
        // What the binary does when it is elected; claims it cannot take up time out by themselves.
        let _ = provider.resume().await;
    };
    operator::run(operator, elected, stop)
}

impl Drop for OperatorHandle {
    fn drop(&mut self) {
        self.running.abort();
    }
}
