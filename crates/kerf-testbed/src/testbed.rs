//! A testbed: one API server, one clock, one seed.

use crate::api::Api;
use crate::faults::Faults;
use crate::log::EventLog;
use crate::random::Random;
use crate::serve::Served;
use crate::service::ApiService;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_admission::SchemaError;
use kerf_runtime::{Clock, Fence, client::Fenced};
use kube::Client;
use std::future::Future;
use std::time::Duration;
use thiserror::Error;
use tokio::time::Instant;

#[derive(Debug, Error)]
pub enum StartError {
    #[error("cannot serve the custom resource {name}: {source}")]
    Definition { name: String, source: SchemaError },
    #[error("cannot read the custom resource definition {name}: {source}")]
    Encoding { name: String, source: serde_json::Error },
}

/// A condition did not come true in time. The message holds what the cluster looked like.
#[derive(Debug, Error)]
#[error("waited {waited:?} in vain until {what}; the cluster:\n{dump}")]
pub struct TimedOut {
    pub what: String,
    pub waited: Duration,
    pub dump: String,
}

/// A cluster in this process. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Testbed {
    api: Api,
    clock: Clock,
    seed: u64,
}

/// Draws set aside for the uids of definitions, two each. How many kinds are served has no say in the names that objects get, and so
/// in what becomes of equal pods: a play stays what it was when a kind is added.
const DRAWN_BY_DEFINITIONS: u64 = 6;

#[derive(Clone, Debug)]
pub struct Builder {
    seed: u64,
    epoch: Timestamp,
    crds: Vec<CustomResourceDefinition>,
}

impl Default for Builder {
    fn default() -> Self {
        // 2026-01-01T00:00:00Z: any fixed time does, as long as it is the same in each run.
        let epoch = Timestamp::constant(1_767_225_600, 0);
        Self { seed: 0, epoch, crds: kerf_provider_kwok::crds() }
    }
}

impl Builder {
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// What the clock shows at the start.
    pub fn epoch(self, epoch: Timestamp) -> Self {
        Self { epoch, ..self }
    }

    /// Custom resources to serve besides our own.
    pub fn with_crds(mut self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        self.crds.extend(crds);
        self
    }

    /// Custom resources to serve in place of our own with KWOK's.
    pub fn serving(self, crds: Vec<CustomResourceDefinition>) -> Self {
        Self { crds, ..self }
    }

    /// Needs a tokio runtime. Time is virtual when that runtime's clock is paused.
    pub fn start(self) -> Result<Testbed, StartError> {
        let clock = Clock::starting_at(self.epoch);
        let api = Api::new(clock.clone(), Random::seeded(self.seed));
        let of_objects = api.random().after(DRAWN_BY_DEFINITIONS);
        for crd in &self.crds {
            let name = || crd.metadata.name.clone().unwrap_or_default();
            let value = serde_json::to_value(crd)
                .map_err(|source| StartError::Encoding { name: name(), source })?;
            api.install(&value)
                .map_err(|source| StartError::Definition { name: name(), source })?;
        }
        api.draw_from(of_objects);
        // What was there before anyone could look is nobody's history.
        api.compact();
        Ok(Testbed { api, clock, seed: self.seed })
    }
}

impl Testbed {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs `body` on a runtime of its own whose time passes only while everyone waits.
    pub fn in_virtual_time<F: Future>(body: F) -> std::io::Result<F::Output> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        Ok(runtime.block_on(body))
    }

    /// A client to which nothing bad happens.
    pub fn client(&self) -> Client {
        self.client_with(&Faults::seeded(self.seed))
    }

    /// A client whose calls meet these faults.
    pub fn client_with(&self, faults: &Faults) -> Client {
        Client::new(ApiService::new(self.api.clone(), faults.clone()), "default")
    }

    /// A client whose calls meet these faults, and whose writes need the right that `fence` gives.
    pub fn fenced_client_with(&self, faults: &Faults, fence: Fence) -> Client {
        let service = ApiService::new(self.api.clone(), faults.clone());
        Client::new(Fenced::new(service, Some(fence)), "default")
    }

    /// Serves the API on a port of this machine as well; 0 takes any free one. Time should be real then.
    pub async fn serve(&self, port: u16) -> std::io::Result<Served> {
        Served::start(self.api.clone(), port).await
    }

    pub fn api(&self) -> &Api {
        &self.api
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The clock of a machine that is ahead of the API server, or behind it.
    pub fn clock_skewed_by(&self, skew: jiff::SignedDuration) -> Clock {
        Clock::starting_at(self.clock.now().saturating_add(skew).unwrap_or(Timestamp::MAX))
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// All writes since the start: equal for two runs exactly when they were the same run.
    pub fn event_log(&self) -> EventLog {
        self.api.event_log()
    }

    /// The cluster in a few readable lines per kind.
    pub fn dump(&self) -> String {
        self.api.dump()
    }

    /// Lets the cluster live until `condition` holds. It is asked again whenever something was written, once all
    /// that happens in the same millisecond has happened.
    pub async fn advance_until(
        &self,
        what: &str,
        limit: Duration,
        mut condition: impl AsyncFnMut() -> bool,
    ) -> Result<(), TimedOut> {
        let start = Instant::now();
        let mut writes = self.api.writes();
        loop {
            writes.mark_unchanged();
            if condition().await {
                return Ok(());
            }
            let left = limit.saturating_sub(start.elapsed());
            // The API server outlives this borrow of it, so an error can only be the timeout.
            if tokio::time::timeout(left, writes.changed()).await.is_err() {
                return Err(TimedOut {
                    what: what.into(),
                    waited: start.elapsed(),
                    dump: self.dump(),
                });
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
