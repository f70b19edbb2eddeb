//! What every test begins with: an account, the provider in it, and the operator in a process of its own.

use std::sync::{Arc, LazyLock};

use kerf_aws_model::{
    catalogue::Catalogue,
    instance_types::{CniSettings, Settings},
    prices::Prices,
};
use kerf_controllers::{
    Operator,
    operator::{self, Freshness, Timing},
    window::Window,
};
use kerf_fake_aws::FakeAws;
use kerf_provider::{CloudProvider, Connect, FlagValues};
use kerf_provider_aws::{Connection, Options, Parts, Start};
use kerf_runtime::{Clock, Fence, Metrics};
use kerf_testbed::{KUBERNETES_VERSION, Testbed};
use kube::Client;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub(crate) static CATALOGUE: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(Catalogue::built_in().unwrap()));

pub(crate) const REGION: &str = "us-west-2";

/// In a cloud as slow as the real one. Its cluster has the version that the testbed has: nodes drift to images of another.
pub(crate) fn account(clock: &Clock) -> FakeAws {
    account_in(REGION, &CATALOGUE, clock)
}

pub(crate) fn account_in(region: &str, catalogue: &Arc<Catalogue>, clock: &Clock) -> FakeAws {
    let settings = kerf_fake_aws::Settings {
        region: region.to_owned(),
        kubernetes_version: KUBERNETES_VERSION.to_owned(),
        ..kerf_fake_aws::Settings::default()
    };
    FakeAws::new(settings, Arc::clone(catalogue), clock.clone())
}

/// The provider of a process that has just started.
pub(crate) fn provider(aws: &FakeAws, options: &Options) -> Connection {
    provider_in(aws, &CATALOGUE, options)
}

pub(crate) fn provider_in(
    aws: &FakeAws,
    catalogue: &Arc<Catalogue>,
    options: &Options,
) -> Connection {
    let cluster = aws.cluster();
    let region = cluster.region.clone();
    Connection::started(Parts {
        aws: Arc::new(aws.clone()),
        clock: aws.clock().clone(),
        options: options.clone(),
        kubernetes_version: KUBERNETES_VERSION.to_owned(),
        catalogue: Arc::clone(catalogue),
        cluster,
        settings: Settings {
            region: region.clone(),
            vm_memory_overhead: 0.075,
            reserved_enis: 0,
            cni: CniSettings::default(),
            reserved_capacity: true,
        },
        region: catalogue.region(&region).unwrap(),
        prices: Prices::new(catalogue.prices(&region).unwrap()),
    })
}

/// The provider of a process that has yet to find out what it needs.
pub(crate) fn unstarted(
    testbed: &Testbed,
    aws: &FakeAws,
    metrics: &Metrics,
    flags: &[(&'static str, &str)],
) -> Arc<Connection> {
    let name = ("cluster-name", "test".to_owned());
    let flags = flags.iter().map(|(name, value)| (*name, (*value).to_owned()));
    let start = Start::new(Connect {
        client: testbed.client(),
        clock: testbed.clock().clone(),
        fence: Fence::open(testbed.clock().clone()),
        metrics,
        cluster_ca: Some(b"certificate".to_vec()),
        reserved_capacity: true,
        flags: &FlagValues::new(flags.chain([name])),
    });
    Arc::new(Connection::new(start.unwrap().over(Arc::new(aws.clone()), REGION)))
}

/// The operator with nothing in its memory. Dropped, it is killed between two calls, as a crash would.
pub(crate) struct Process {
    pub(crate) metrics: Metrics,
    running: JoinHandle<()>,
}

impl Process {
    pub(crate) fn start(client: Client, clock: &Clock, provider: Arc<dyn CloudProvider>) -> Self {
        let metrics = Metrics::default();
        let operator = Operator {
            client,
            provider,
            fence: Fence::open(clock.clone()),
            clock: clock.clone(),
            settings: kerf_controllers::Settings::default(),
            metrics: metrics.clone(),
            ready: watch::channel(false).0,
            freshness: Freshness::default(),
            window: Window::default(),
            timing: Timing::in_process(),
            seed: 0,
        };
        let running = operator::run(operator, std::future::ready(()), CancellationToken::new());
        Self { metrics, running: tokio::spawn(async move { running.await.unwrap() }) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.running.abort();
    }
}
