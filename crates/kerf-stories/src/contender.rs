//! One of several operators of a cluster, of which the one that holds the lease acts.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use kerf_controllers::{
    Operator, Settings,
    operator::{self, OperatorError},
    window::Window,
};
use kerf_model::InstanceType;
use kerf_provider_kwok::KwokProvider;
use kerf_runtime::{
    Clock, Fence, Metrics,
    election::{Candidate, Election, Timing},
    leadership::{Ended, Term, lead},
};
use kerf_simulation::Connect;
use kerf_testbed::{Faults, Testbed};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

pub(crate) const LEASE: &str = "kerf";

/// An operator that acts while it holds the lease. Dropping it kills it, as a crash would.
#[derive(Debug)]
pub struct Contender {
    /// What goes wrong on its way to the API server, for the lease as for all else.
    pub faults: Faults,
    /// Its own: a machine that is suspended does not notice.
    pub clock: Clock,
    pub metrics: Metrics,
    stop: CancellationToken,
    running: JoinHandle<(Result<(), Ended<OperatorError>>, Instant)>,
}

/// What a contender is given.
#[derive(Debug)]
pub struct Terms {
    pub settings: Settings,
    pub catalogue: Vec<InstanceType>,
    pub provider: Connect,
    /// By how much its clock is ahead of the cluster's, or behind it.
    pub skew: SignedDuration,
    pub faults: Faults,
    /// How long its watches last.
    pub timing: operator::Timing,
}

/// How a contender ended.
#[derive(Debug)]
pub struct End {
    pub why: Result<(), Ended<OperatorError>>,
    pub at: Instant,
    /// How many calls it had made by then.
    pub calls: u64,
}

impl Contender {
    /// Starts an operator that leads when it can.
    pub fn start(testbed: &Testbed, identity: &str, terms: Terms) -> Self {
        let Terms { settings, catalogue, provider, skew, faults, timing } = terms;
        let (stop, metrics) = (CancellationToken::new(), Metrics::default());
        let clock = testbed.clock_skewed_by(skew);
        let fence = Fence::closed(clock.clone());
        let client = testbed.fenced_client_with(&faults, fence.clone());
        let candidate = Candidate {
            namespace: "default".to_owned(),
            lease: LEASE.to_owned(),
            identity: identity.to_owned(),
            timing: Timing::default(),
            seed: testbed.seed(),
        };
        let elections = testbed.client_with(&faults);
        let election = Election::new(elections, candidate, clock.clone(), fence.clone(), &metrics);
        let operator = Operator {
            provider: provider.connect(Arc::new(KwokProvider::new(client.clone(), catalogue))),
            settings,
            ready: watch::channel(false).0,
            client,
            clock: clock.clone(),
            fence,
            metrics: metrics.clone(),
            freshness: operator::Freshness::default(),
            window: Window::default(),
            timing,
            seed: testbed.seed(),
        };
        let work = |term: Term| {
            let elected = async move { term.begun.cancelled().await };
            operator::run(operator, elected, term.ended)
        };
        let leading = lead(Some(election), stop.clone(), work);
        let running = tokio::spawn(async move { (leading.await, Instant::now()) });
        Self { faults, clock, metrics, stop, running }
    }

    pub fn has_ended(&self) -> bool {
        self.running.is_finished()
    }

    /// Waits until it has ended, of itself or because it was asked to.
    pub async fn ended(&mut self) -> End {
        // Longer than it takes to notice that a lease is lost and to come to rest.
        let ended = tokio::time::timeout(Duration::from_mins(2), &mut self.running).await;
        let ended = ended.unwrap_or_else(|elapsed| panic!("the operator goes on: {elapsed}"));
        let (why, at) = ended.unwrap_or_else(|panic| panic!("the operator panicked: {panic}"));
        End { why, at, calls: self.faults.calls() }
    }

    /// Asks it to stop as SIGTERM would, and waits until it has.
    pub async fn stop(&mut self) -> End {
        self.stop.cancel();
        self.ended().await
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.running.abort();
    }
}
