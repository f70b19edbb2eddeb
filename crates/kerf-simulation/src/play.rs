//! A scenario on its stage: the testbed with the real operator in it, living through what the scenario says.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use kerf_controllers::{
    Operator,
    operator::{self, OperatorError},
};
use kerf_provider::kwok::KwokProvider;
use kerf_runtime::Metrics;
use kerf_testbed::{
    Observer, Random, StartError, Testbed,
    actors::{self, Actors, KubeletSettings},
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    ledger::{Ledger, OBSERVED},
    market::{Market, MarketError},
    objects,
    policy::{Policy, PolicyError},
    scenario::Scenario,
};

/// A play that is on. Dropping it ends it.
#[derive(Debug)]
pub struct Play {
    testbed: Testbed,
    observer: Observer,
    ledger: Ledger,
    market: Market,
    provider: Arc<KwokProvider>,
    operator: JoinHandle<Result<(), OperatorError>>,
    stop: CancellationToken,
    metrics: Metrics,
    scenario: Scenario,
    /// What is still to happen, by its time after the beginning.
    script: VecDeque<(Duration, Happening)>,
    beginning: Instant,
    _actors: actors::Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    PricesMove,
    PoolChanges { pool: usize, change: usize },
    WorkloadScales { workload: usize, replicas: u32 },
}

#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    #[error(transparent)]
    Testbed(#[from] StartError),
    #[error(transparent)]
    Market(#[from] MarketError),
    #[error("policy {policy}: {source}")]
    Policy { policy: String, source: PolicyError },
    #[error("the API server refuses {what} under policy {policy}: {problem}")]
    Refused { what: String, policy: String, problem: String },
    #[error("the operator ended under policy {policy}: {problem}")]
    Operator { policy: String, problem: String },
}

impl Play {
    /// Sets the stage. Needs a tokio runtime; time is virtual if that runtime's clock is paused.
    pub async fn start(scenario: &Scenario, policy: &Policy) -> Result<Self, PlayError> {
        let settings = policy.settings(&scenario.operator);
        let settings =
            settings.map_err(|source| PlayError::Policy { policy: policy.name.clone(), source })?;
        let mut random = Random::seeded(scenario.seed);
        let market = Market::open(scenario, random.fork())?;
        let script = script(scenario, &market, &mut random);

        let testbed = Testbed::builder().seed(scenario.seed).epoch(scenario.start).start()?;
        let observer = testbed.observe(OBSERVED);
        let actors = testbed.start_actors(Actors {
            kubelets: Some(KubeletSettings {
                node_ready: scenario.timing.node_ready.as_duration(),
                pod_start: scenario.timing.pod_start.as_duration(),
                pod_ready: scenario.timing.pod_ready.as_duration(),
                pod_terminate: scenario.timing.pod_terminate.as_duration(),
                ..KubeletSettings::default()
            }),
            ..Actors::default()
        });
        let client = testbed.client();
        for object in objects::foundation(scenario, policy) {
            apply(&client, &object, &policy.name).await?;
        }

        let (stop, metrics) = (CancellationToken::new(), Metrics::default());
        let provider = Arc::new(KwokProvider::new(client.clone(), market.catalogue().collect()));
        let (ready, mut synced) = watch::channel(false);
        let operator = Operator {
            client: client.clone(),
            clock: testbed.clock().clone(),
            settings,
            provider: Arc::clone(&provider) as _,
            metrics: metrics.clone(),
            ready,
        };
        let operator = tokio::spawn(operator::run(operator, async {}, stop.clone()));
        if synced.wait_for(|synced| *synced).await.is_err() {
            return Err(ended(&policy.name, operator.await));
        }
        let ledger = Ledger::open(testbed.clock().now(), &policy.name);
        Ok(Self {
            testbed,
            observer,
            ledger,
            market,
            provider,
            operator,
            stop,
            metrics,
            scenario: scenario.clone(),
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
                    self.ledger.take_in(self.testbed.clock().now(), &changes, &self.market);
                }
                ended_as = &mut self.operator => {
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
        self.metrics.text()
    }

    pub fn elapsed(&self) -> Duration {
        self.beginning.elapsed()
    }

    async fn happen(&mut self, at: Duration, happening: Happening) -> Result<(), PlayError> {
        let now = self.testbed.clock().now();
        match happening {
            Happening::PricesMove => {
                self.market.move_to(at);
                self.provider.offer(self.market.catalogue());
                self.ledger.reprice(now, &self.market);
            }
            Happening::PoolChanges { pool, change } => {
                let pool = &self.scenario.pools[pool];
                let change = &pool.changes[change];
                let patch = json!({"spec": change.spec});
                let resource = resource("karpenter.sh/v1", "NodePool");
                let api: Api<DynamicObject> = Api::all_with(self.testbed.client(), &resource);
                let parameters = PatchParams::default().validation_strict();
                let patched = api.patch(&pool.name, &parameters, &Patch::Merge(patch)).await;
                patched.map_err(|error| {
                    let what = format!("the change of pool {} at {}", pool.name, change.at);
                    refused(what, self.ledger.policy(), &error)
                })?;
                let told = format!("pool {} is changed: {}", pool.name, change.note);
                self.ledger.tell_of_change(now, told);
            }
            Happening::WorkloadScales { workload, replicas } => {
                let workload = &self.scenario.workloads[workload];
                for object in objects::of_workload(workload, replicas) {
                    apply(&self.testbed.client(), &object, self.ledger.policy()).await?;
                }
                if let Some(told) = workload.announcement(at) {
                    self.ledger.tell_of_change(now, told);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        self.stop.cancel();
        self.operator.abort();
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
        }
        script.extend(
            changes.into_iter().map(|(at, replicas)| {
                (at, Happening::WorkloadScales { workload: index, replicas })
            }),
        );
    }
    script.retain(|(at, _)| *at < end);
    script.sort();
    script.into()
}

/// Creates or changes an object.
async fn apply(client: &Client, object: &Value, policy: &str) -> Result<(), PlayError> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let resource = resource(text("/apiVersion"), kind);
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let parameters = PatchParams::apply("kerf-simulation").force().validation_strict();
    let applied = api.patch(name, &parameters, &Patch::Apply(object)).await;
    applied.map_err(|error| refused(format!("{kind} {name}"), policy, &error))?;
    Ok(())
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn refused(what: String, policy: &str, error: &kube::Error) -> PlayError {
    let problem = match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    PlayError::Refused { what, policy: policy.to_owned(), problem }
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
