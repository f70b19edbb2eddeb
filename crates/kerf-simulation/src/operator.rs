//! The operator of a cluster that is in the same process, as the binary would run it.

use std::{fmt, future::pending, sync::Arc};

use kerf_controllers::{
    Operator, Settings,
    operator::{self, Freshness, OperatorError, Timing},
    window::Window,
};
use kerf_model::InstanceType;
use kerf_provider::CloudProvider;
use kerf_provider_kwok::KwokProvider;
use kerf_runtime::{Clock, Fence, Metrics};
use kerf_testbed::{CloudFaults, Faults, FaultyCloud, Testbed};
use kube::Client;
use tokio::{
    sync::watch,
    task::{JoinError, JoinHandle},
};
use tokio_util::sync::CancellationToken;

/// What an operator is given besides its client.
#[derive(Clone, Debug)]
pub struct Terms {
    pub clock: Clock,
    pub settings: Settings,
    pub instance_types: Vec<InstanceType>,
    pub provider: Connect,
    /// What goes wrong in its cloud.
    pub cloud: CloudFaults,
    /// How long its watches last.
    pub timing: Timing,
    /// Who looks at what it does.
    pub window: Window,
    /// Where the jitter of its retries comes from.
    pub seed: u64,
}

/// Connects an operator to its cloud: to KWOK's machines, through KWOK's provider or another, or to others. Each operator that
/// is started is connected anew, as each process is.
#[derive(Clone)]
pub struct Connect(Arc<dyn Fn(Arc<KwokProvider>) -> Arc<dyn CloudProvider> + Send + Sync>);

impl Connect {
    pub fn by(
        connect: impl Fn(Arc<KwokProvider>) -> Arc<dyn CloudProvider> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(connect))
    }

    pub fn connect(&self, kwok: Arc<KwokProvider>) -> Arc<dyn CloudProvider> {
        (self.0)(kwok)
    }
}

impl Default for Connect {
    /// To KWOK.
    fn default() -> Self {
        Self::by(|kwok| kwok)
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").finish_non_exhaustive()
    }
}

/// An operator that runs. Dropping it kills it between two calls, as a crash would.
#[derive(Debug)]
pub struct OperatorHandle {
    stop: CancellationToken,
    running: JoinHandle<Result<(), OperatorError>>,
    provider: Arc<KwokProvider>,
    pub metrics: Metrics,
}

impl OperatorHandle {
    /// Starts an operator and waits until it knows the cluster, or has ended.
    pub async fn start(client: Client, terms: Terms) -> Self {
        let (stop, metrics) = (CancellationToken::new(), Metrics::default());
        let (operator, provider) = hire(client, terms, &metrics);
        let mut synced = operator.ready.subscribe();
        let running = tokio::spawn(operate(operator, stop.clone()));
        // An operator that ends before it is ready is noticed by whoever waits for what it should have done.
        let _ = synced.wait_for(|synced| *synced).await;
        Self { stop, running, provider, metrics }
    }

    /// Starts an operator that never leads, and waits until it knows the cluster: it looks, and changes nothing.
    pub async fn stand_by(testbed: &Testbed, window: Window) -> Self {
        let (stop, metrics) = (CancellationToken::new(), Metrics::default());
        let terms = Terms {
            clock: testbed.clock().clone(),
            settings: Settings::default(),
            instance_types: kerf_provider_kwok::generated(),
            provider: Connect::default(),
            cloud: CloudFaults::seeded(testbed.seed()),
            timing: Timing::in_process(),
            window,
            seed: testbed.seed(),
        };
        let (operator, provider) = hire(testbed.client(), terms, &metrics);
        let operator = Operator { fence: Fence::closed(operator.clock.clone()), ..operator };
        let mut synced = operator.ready.subscribe();
        let running = tokio::spawn(operator::run(operator, pending(), stop.clone()));
        let _ = synced.wait_for(|synced| *synced).await;
        Self { stop, running, provider, metrics }
    }

    /// Starts an operator that dies where `faults` say so, and one that takes its place.
    pub fn start_mortal(mortal: Client, faults: Faults, successor: Client, terms: &Terms) -> Self {
        let (stop, metrics) = (CancellationToken::new(), Metrics::default());
        let (first, _) = hire(mortal, terms.clone(), &metrics);
        let (second, provider) = hire(successor, terms.clone(), &metrics);
        let first = operate(first, stop.clone());
        let second = operate(second, stop.clone());
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

    /// From now on these are the instance types, at these prices.
    pub fn offer(&self, instance_types: impl IntoIterator<Item = InstanceType>) {
        self.provider.offer(instance_types);
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> Result<Result<(), OperatorError>, JoinError> {
        (&mut self.running).await
    }

    /// Asks it to stop and waits until it has; tells how it went.
    pub async fn stop(mut self) -> Result<Result<(), OperatorError>, JoinError> {
        self.stop.cancel();
        self.ended().await
    }
}

impl Drop for OperatorHandle {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn hire(client: Client, terms: Terms, metrics: &Metrics) -> (Operator, Arc<KwokProvider>) {
    let kwok = Arc::new(KwokProvider::new(client.clone(), terms.instance_types));
    let provider = terms.provider.connect(Arc::clone(&kwok));
    let operator = Operator {
        provider: Arc::new(FaultyCloud::new(provider, terms.cloud)),
        metrics: metrics.clone(),
        client,
        fence: Fence::open(terms.clock.clone()),
        clock: terms.clock,
        settings: terms.settings,
        ready: watch::channel(false).0,
        freshness: Freshness::default(),
        window: terms.window,
        timing: terms.timing,
        seed: terms.seed,
    };
    (operator, kwok)
}

fn operate(
    operator: Operator,
    stop: CancellationToken,
) -> impl Future<Output = Result<(), OperatorError>> + use<> {
    operator::run(operator, std::future::ready(()), stop)
}
