//! One of the two operators: started, ended and started again, as a Deployment's pod is.

use jiff::SignedDuration;
use kerf_controllers::operator::{OperatorError, Timing};
use kerf_controllers::{Settings, settings::FeatureGates};
use kerf_model::InstanceType;
use kerf_runtime::{election::Lost, leadership::Ended};
use kerf_simulation::Connect;
use kerf_stories::clouds::Cloud;
use kerf_stories::{Contender, contender::Terms};
use kerf_testbed::{CloudFaults, Faults, FaultyCloud, Testbed};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use crate::checker::Invariant;
use crate::coverage::Coverage;
use crate::journal::{Calls, Judge};
use crate::plan::{ApiRule, Gates};

const NAMES: [&str; 2] = ["first", "second"];
/// A container that has ended is started again after a while.
const BACKOFF: Duration = Duration::from_secs(10);

/// A fifth of the types: what a decision costs grows with them, and what goes wrong does not.
fn catalogue(of: &dyn Cloud) -> Vec<InstanceType> {
    const LEFT_OUT: [&str; 8] =
        ["windows", "-32x-", "-48x-", "-64x-", "-96x-", "-128x-", "-192x-", "-256x-"];
    let mut types = of.instance_types();
    types.retain(|one| LEFT_OUT.iter().all(|name| !one.name().contains(name)));
    types
}

/// What both replicas have in common.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) testbed: Testbed,
    pub(crate) of: Arc<dyn Cloud>,
    pub(crate) cloud: CloudFaults,
    pub(crate) timing: Timing,
    pub(crate) judge: Judge,
    pub(crate) gates: Gates,
}

/// What operators run with where these gates are on.
fn settings(gates: Gates) -> Settings {
    let gates = FeatureGates {
        node_repair: gates.node_repair,
        spot_to_spot_consolidation: gates.spot_to_spot,
        node_overlay: gates.node_overlay,
        capacity_buffer: gates.capacity_buffer,
        terminate_first_drift: gates.terminate_first_drift,
        terminate_first_repair: gates.terminate_first_repair,
        pod_deletion_cost_management: gates.pod_deletion_cost,
        ..FeatureGates::default()
    };
    Settings { gates, ..Settings::default() }
}

#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) name: &'static str,
    running: Option<Contender>,
    /// When the next process is started.
    down_until: Instant,
    rules: Vec<ApiRule>,
    started: u64,
    place: u64,
}

impl Replica {
    pub(crate) fn new(place: usize) -> Self {
        Self {
            name: NAMES[place],
            running: None,
            down_until: Instant::now(),
            rules: Vec::new(),
            started: 0,
            place: place as u64,
        }
    }

    /// Starts it if it is time, and notes when it has ended of itself.
    pub(crate) async fn attend(&mut self, site: &Site, coverage: &mut Coverage) {
        if self.running.as_ref().is_some_and(Contender::has_ended) {
            let Some(mut ended) = self.running.take() else { return };
            coverage.read_metrics(&ended.metrics.text());
            let end = ended.ended().await;
            self.judge_end(site, coverage, end.why);
            self.down_until = Instant::now() + BACKOFF;
        }
        if self.running.is_none() && Instant::now() >= self.down_until {
            self.start(site);
        }
    }

    /// Whether something comes between it and the API server.
    pub(crate) fn is_troubled(&self) -> bool {
        !self.rules.is_empty()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    fn start(&mut self, site: &Site) {
        self.started += 1;
        let faults = Faults::seeded(site.testbed.seed() ^ (self.started << 8) ^ self.place);
        let journal = Calls { who: self.name, judge: site.judge.clone() };
        faults.read_along(Arc::new(journal));
        let (of, cloud) = (Arc::clone(&site.of), site.cloud.clone());
        let terms = Terms {
            settings: settings(site.gates),
            catalogue: catalogue(&*site.of),
            provider: Connect::by(move |kwok| {
                Arc::new(FaultyCloud::new(of.connect(kwok), cloud.clone()))
            }),
            skew: SignedDuration::ZERO,
            faults,
            timing: site.timing,
        };
        let contender = Contender::start(&site.testbed, self.name, terms);
        self.running = Some(contender);
        self.meet(self.rules.clone());
    }

    /// From now on its calls meet these faults, and none else.
    pub(crate) fn meet(&mut self, rules: Vec<ApiRule>) {
        if let Some(running) = &self.running {
            running.faults.clear();
            for rule in &rules {
                running.faults.at_rate(rule.rate, rule.matching(), rule.fault());
            }
        }
        self.rules = rules;
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self, down: Duration, coverage: &mut Coverage) {
        if let Some(killed) = self.running.take() {
            coverage.read_metrics(&killed.metrics.text());
        }
        self.down_until = Instant::now() + down;
    }

    /// Ends it as SIGTERM does.
    pub(crate) async fn stop(&mut self, site: &Site, down: Duration, coverage: &mut Coverage) {
        let Some(mut running) = self.running.take() else { return };
        let end = running.stop().await;
        coverage.read_metrics(&running.metrics.text());
        if end.why.is_err() {
            self.judge_end(site, coverage, end.why);
        }
        self.down_until = Instant::now() + down;
    }

    fn judge_end(
        &self,
        site: &Site,
        coverage: &mut Coverage,
        why: Result<(), Ended<OperatorError>>,
    ) {
        let name = match why {
            Err(Ended::Lost(Lost::Taken { .. })) => "Lost::Taken",
            Err(Ended::Lost(_)) => "Lost",
            Err(Ended::Fenced(_)) => "Fenced",
            other => {
                let what = format!("{}: {other:?}", self.name);
                site.judge.lock().note(Invariant::NoUnexpectedEnd, what);
                return;
            }
        };
        coverage.reach("end", name);
    }

    /// Its machine was suspended.
    pub(crate) fn suspend(&self, pause: Duration) {
        if let Some(running) = &self.running {
            running.clock.suspend(pause);
        }
    }

    pub(crate) fn set_clock(&self, by: SignedDuration) {
        if let Some(running) = &self.running {
            running.clock.set_by(by);
        }
    }

    pub(crate) fn metrics(&self) -> String {
        self.running.as_ref().map(|running| running.metrics.text()).unwrap_or_default()
    }
}
