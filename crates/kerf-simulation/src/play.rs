//! A scenario on its stage: the testbed with the real operator in it, living through what the scenario says.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use kerf_controllers::{operator::OperatorError, window::Window};
use kerf_testbed::{
    CloudFaults, Observer, Random, StartError, Testbed,
    actors::{self, Actors, KubeletSettings},
};
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cloud::Offers,
    initial::Pools,
    ledger::{Change, Ledger, OBSERVED},
    load::LoadError,
    market::{Market, MarketError, Place},
    objects,
    operator::{Connect, OperatorHandle, Terms},
    policy::{Policy, PolicyError},
    scenario::Scenario,
    writing::Writer,
};

/// A play that is on. Dropping it ends it.
#[derive(Debug)]
pub struct Play {
    testbed: Testbed,
    observer: Observer,
    ledger: Ledger,
    writer: Writer,
    market: Market,
    offers: Arc<Offers>,
    operator: OperatorHandle,
    scenario: Scenario,
    policy: Policy,
    /// What is still to happen, by its time after the beginning.
    script: VecDeque<(Duration, Happening)>,
    beginning: Instant,
    _actors: actors::Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    PricesMove,
    PoolChanges {
        pool: usize,
        change: usize,
    },
    WorkloadScales {
        workload: usize,
        replicas: u32,
    },
    SetScales {
        set: usize,
        replicas: u32,
    },
    /// By its place in the scenario's record.
    Recorded(usize),
}

#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    #[error(transparent)]
    Testbed(#[from] StartError),
    #[error(transparent)]
    Market(#[from] MarketError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("policy {policy}: {source}")]
    Policy { policy: String, source: PolicyError },
    #[error(
        "node {node} is a {capacity_type} {instance_type} in {zone}, which is not among the instance types, and \
         its Node does not show what it has; give your instance types and prices with --instance-types"
    )]
    UnknownInstanceType { node: String, instance_type: String, zone: String, capacity_type: String },
    #[error("there are not {seeds} seeds from {first} on; give a smaller --seed, or fewer --seeds")]
    TooFewSeeds { first: u64, seeds: u32 },
    #[error("the API server refuses {what} under policy {policy}: {problem}")]
    Refused { what: String, policy: String, problem: String },
    #[error("the operator ended under policy {policy}: {problem}")]
    Operator { policy: String, problem: String },
}

impl PlayError {
    pub(crate) fn of(policy: &Policy, source: PolicyError) -> Self {
        Self::Policy { policy: policy.name.clone(), source }
    }

    pub(crate) fn unknown(node: String, place: Place) -> Self {
        let Place { instance_type, zone, capacity_type } = place;
        Self::UnknownInstanceType { node, instance_type, zone, capacity_type }
    }
}

impl Play {
    /// Sets the stage. Needs a tokio runtime; time is virtual if that runtime's clock is paused.
    pub async fn start(scenario: &Scenario, policy: &Policy) -> Result<Self, PlayError> {
        Self::start_watched(scenario, policy, Window::default()).await
    }

    /// The same, with a window through which its operator can be watched.
    pub async fn start_watched(
        scenario: &Scenario,
        policy: &Policy,
        window: Window,
    ) -> Result<Self, PlayError> {
        let settings = policy.settings(&scenario.operator);
        let settings = settings.map_err(|source| PlayError::of(policy, source))?;
        let mut random = Random::seeded(scenario.seed);
        let mut market = Market::open(scenario, random.fork())?;
        if settings.gates.node_overlay {
            market = market.overlaid_by(scenario);
        }
        let script = script(scenario, &market, &mut random);

        let initial = &scenario.initial;
        for (node, place) in initial.bought() {
            if !market.sells(&place) {
                return Err(PlayError::unknown(node, place));
            }
        }
        let epoch = initial.oldest().unwrap_or(scenario.start);
        let testbed = Testbed::builder().serving(scenario.cloud.crds());
        let testbed = testbed.seed(scenario.seed).epoch(epoch).start()?;
        let mut observer = testbed.observe(OBSERVED);
        let writer = Writer::new(&testbed, &policy.name);
        for object in objects::foundation(scenario) {
            writer.create(&object).await?;
        }
        for overlay in &scenario.overlays {
            writer.create(&objects::node_overlay(overlay)).await?;
        }
        let mut pools = Pools::of(&scenario.cloud);
        for pool in &scenario.pools {
            let written = objects::node_pool(pool, policy, &scenario.cloud);
            let created = writer.apply(&written).await?;
            pools.add(pool, policy, created.uid());
        }
        initial.build(&testbed, scenario.start, &pools, &writer).await?;
        for buffer in &scenario.buffers {
            if let Some(template) = objects::template_of_buffer(buffer) {
                writer.create(&template).await?;
            }
            writer.create(&objects::capacity_buffer(buffer)).await?;
        }
        let mut ledger = Ledger::open(testbed.clock().now(), &policy.name);
        if !initial.machines.is_empty() {
            ledger.take_over(observer.changes().await.iter().map(Change::from), &market);
        }
        let actors = testbed.start_actors(Actors {
            kubelets: Some(KubeletSettings {
                node_ready: scenario.timing.node_ready.as_duration(),
                pod_start: scenario.timing.pod_start.as_duration(),
                pod_ready: scenario.timing.pod_ready.as_duration(),
                pod_terminate: scenario.timing.pod_terminate.as_duration(),
                ..KubeletSettings::default()
            }),
            pace: scenario.pace,
            ..Actors::default()
        });
        let offers = Arc::new(Offers::new(market.offers()));
        let (cloud, rules) = (scenario.cloud.clone(), market.label_rules().clone());
        let shared = Arc::clone(&offers);
        let terms = Terms {
            provider: Connect::by(move |machines| {
                Arc::new(cloud.connect(machines, rules.clone(), Arc::clone(&shared)))
            }),
            clock: testbed.clock().clone(),
            settings,
            // Each pool has types of its own.
            instance_types: Vec::new(),
            cloud: CloudFaults::seeded(scenario.seed),
            timing: kerf_controllers::operator::Timing::in_process(),
            window,
            seed: scenario.seed,
        };
        let operator = OperatorHandle::start(testbed.client(), terms).await;
        Ok(Self {
            testbed,
            observer,
            ledger,
            writer,
            market,
            offers,
            operator,
            scenario: scenario.clone(),
            policy: policy.clone(),
            script,
            beginning: Instant::now(),
            _actors: actors,
        })
    }

    /// Lets the cluster live until this time after the beginning.
    pub async fn until(&mut self, time: Duration) -> Result<(), PlayError> {
        loop {
            let next = self.script.front().map_or(time, |(at, _)| (*at).min(time));
            tokio::select! {
                biased;
                changes = self.observer.changes() => {
                    let changes = changes.iter().map(Change::from);
                    self.ledger.take_in(self.testbed.clock().now(), changes, &self.market);
                }
                ended_as = self.operator.ended() => {
                    return Err(ended(self.ledger.policy(), ended_as));
                }
                () = tokio::time::sleep_until(self.beginning + next) => {
                    match self.script.front() {
                        Some((at, _)) if *at <= next => {
                            if let Some((at, happening)) = self.script.pop_front() {
                                self.happen(at, happening).await?;
                            }
                        }
                        _ => {
                            self.ledger.pass(self.testbed.clock().now());
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// Puts an object into the cluster that the scenario does not have.
    pub async fn create(&self, object: &Value) -> Result<(), PlayError> {
        self.writer.create(object).await.map(|_| ())
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// The operator's metrics in text form.
    pub fn metrics(&self) -> String {
        self.operator.metrics.text()
    }

    pub fn elapsed(&self) -> Duration {
        self.beginning.elapsed()
    }

    async fn happen(&mut self, at: Duration, happening: Happening) -> Result<(), PlayError> {
        let now = self.testbed.clock().now();
        match happening {
            Happening::PricesMove => {
                self.market.move_to(at);
                self.offers.change(self.market.offers());
                self.ledger.reprice(now, &self.market);
            }
            Happening::PoolChanges { pool, change } => {
                let pool = &self.scenario.pools[pool];
                let change = &pool.changes[change];
                let patch = objects::pool_change(&pool.name, &change.spec, &self.policy);
                let what = format!("the change of pool {} at {}", pool.name, change.at);
                self.writer.change(&patch, &what).await?;
                let told = format!("pool {} is changed: {}", pool.name, change.note);
                self.ledger.tell_of_change(now, told);
            }
            Happening::WorkloadScales { workload, replicas } => {
                let workload = &self.scenario.workloads[workload];
                for object in objects::of_workload(workload, replicas) {
                    self.writer.apply(&object).await?;
                }
                if let Some(told) = workload.announcement(at) {
                    self.ledger.tell_of_change(now, told);
                }
            }
            Happening::SetScales { set, replicas } => {
                let set = &self.scenario.initial.sets[set];
                let what = format!("the load of {}", set.workload);
                let mut patch = json!({"spec": {"replicas": replicas}});
                for field in ["apiVersion", "kind", "metadata"] {
                    patch[field] = set.object[field].clone();
                }
                self.writer.change(&patch, &what).await?;
            }
            Happening::Recorded(index) => {
                let recorded = &self.scenario.record[index].what;
                recorded.happen(&self.writer, &self.policy, &self.scenario.cloud).await?;
            }
        }
        Ok(())
    }
}

/// Everything that happens, in the order of time.
fn script(
    scenario: &Scenario,
    market: &Market,
    random: &mut Random,
) -> VecDeque<(Duration, Happening)> {
    let end = scenario.length.as_duration();
    let seconds = scenario.start.as_second().rem_euclid(86_400);
    let midnight = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    let mut script: Vec<_> =
        market.changes(end).into_iter().map(|at| (at, Happening::PricesMove)).collect();
    for (index, pool) in scenario.pools.iter().enumerate() {
        script.extend(pool.changes.iter().enumerate().map(|(change, entry)| {
            (entry.at.as_duration(), Happening::PoolChanges { pool: index, change })
        }));
    }
    for (index, workload) in scenario.workloads.iter().enumerate() {
        // A stream for each, so that a workload does the same whatever the others do.
        let mut changes = workload.replicas_over(end, midnight, &mut random.fork());
        if changes.is_empty() {
            changes.push((Duration::ZERO, 0));
        } else {
            changes = scenario.load.over(&workload.full_name(), changes, end, midnight);
        }
        script.extend(
            changes.into_iter().map(|(at, replicas)| {
                (at, Happening::WorkloadScales { workload: index, replicas })
            }),
        );
    }
    for (index, set) in scenario.initial.sets.iter().enumerate().filter(|(_, set)| set.scales) {
        let there = (Duration::ZERO, set.replicas());
        let mut changes = if scenario.load.is_trace() && !scenario.initial.is_main(set) {
            // The trace counts all pods of its workload.
            scenario.load.names(&set.workload).then_some((Duration::ZERO, 0)).into_iter().collect()
        } else {
            scenario.load.over(&set.workload, vec![there], end, midnight)
        };
        changes.retain(|change| *change != there);
        script.extend(
            changes
                .into_iter()
                .map(|(at, replicas)| (at, Happening::SetScales { set: index, replicas })),
        );
    }
    let recorded = scenario.record.iter().enumerate();
    script.extend(recorded.map(|(index, moment)| (moment.at, Happening::Recorded(index))));
    script.retain(|(at, _)| *at < end);
    script.sort();
    script.into()
}

fn ended(
    policy: &str,
    how: Result<Result<(), OperatorError>, tokio::task::JoinError>,
) -> PlayError {
    let problem = match how {
        Ok(Ok(())) => "it stopped by itself".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    PlayError::Operator { policy: policy.to_owned(), problem }
}
