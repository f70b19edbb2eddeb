//! Leader election: of several operators one acts, the others stand by.
//!
//! A `Lease` object is the lock. Its holder renews it; a replica that sees it unchanged for as long as the
//! holder promised may take it. The rules and times are client-go's, so that a Kerf and a Karpenter that
//! share a lease name exclude each other.
//!
//! It is written here rather than taken from kube-lease-manager because it has to run in virtual time,
//! under injected faults, with the rest of the operator: every wait is tokio's, every wall-clock time
//! comes from the [`Clock`], and the jitter from a seed.
//!
//! Clocks of different machines are never compared: what counts is how long *this* process has seen the
//! record unchanged. Writes carry the resource version they were decided on, so that of two candidates
//! that both see a free lease one is refused.

use std::{future::pending, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client, ResourceExt,
    api::{PostParams, WatchEvent, WatchParams},
};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::{debug, info, warn};

use crate::{Clock, Fence, Jitter, Metrics};

#[cfg(test)]
mod tests;

/// A candidate for one lease.
#[derive(Debug)]
pub struct Election {
    leases: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    clock: Clock,
    fence: Fence,
    jitter: Jitter,
    metrics: ElectionMetrics,
    observed: Option<Observed>,
    runtime: Handle,
}

/// What tells one candidate from another.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub namespace: String,
    pub lease: String,
    /// Must be unique: a candidate that finds its own identity in the lease takes itself for the holder.
    pub identity: String,
    pub timing: Timing,
    /// Spreads the attempts of candidates that start together.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait after the last renewal that they saw.
    pub lease: Duration,
    /// How long the holder goes on without a successful renewal.
    pub renew_deadline: Duration,
    /// How often the holder renews, and how often at most the others look.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Why a leader no longer is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("lost the lease {lease}: could not renew it within {deadline:?}")]
    NotRenewed { lease: String, deadline: Duration },
    #[error("lost the lease {lease} to {holder}")]
    Taken { lease: String, holder: String },
    #[error("nothing renews the lease any more: the election failed")]
    Abandoned,
}

/// One attempt that led nowhere; the next may.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("the API server did not answer within {0:?}")]
    Silence(Duration),
}

#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Held,
    HeldBy(String),
}

#[derive(Debug)]
struct Observed {
    lease: Lease,
    /// Our own renewal: when it was sent. Someone else's: when we first read it. Each is the side that
    /// errs towards one leader too few.
    at: Instant,
}

/// When a request was sent, by the clock that our own timers go by and by the one that runs through pauses.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    uptime: Duration,
}

impl Sent {
    fn now(fence: &Fence) -> Self {
        Self { at: Instant::now(), uptime: fence.now() }
    }
}

impl Election {
    /// An election that is held on the runtime in which this is called; `client` has to belong to it. `fence` is open for as
    /// long as the lease is held.
    pub fn new(
        client: Client,
        candidate: Candidate,
        clock: Clock,
        fence: Fence,
        metrics: &Metrics,
    ) -> Self {
        let metrics = ElectionMetrics::register(metrics, &candidate.lease);
        metrics.leading.set(0);
        Self {
            leases: Api::namespaced(client, &candidate.namespace),
            name: candidate.lease,
            identity: candidate.identity,
            timing: candidate.timing,
            clock,
            fence,
            jitter: Jitter::seeded(candidate.seed),
            metrics,
            observed: None,
            runtime: Handle::current(),
        }
    }

    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Waits until this candidate holds the lease.
    ///
    /// It looks every few seconds, which is what safety rests on, and follows the lease between the looks, so that one
    /// that is released or deleted is taken at once.
    pub async fn acquire(&mut self) {
        let mut leader = None;
        let mut changes = Changes(None);
        info!(lease = self.name, identity = self.identity, "waiting for the lease");
        loop {
            match self.attempt().await {
                Ok(Attempt::Held) => break,
                Ok(Attempt::HeldBy(holder)) => {
                    if leader.as_ref() != Some(&holder) {
                        info!(lease = self.name, holder, "standing by");
                        leader = Some(holder);
                    }
                }
                Err(error) => warn!(lease = self.name, %error, "cannot acquire the lease yet"),
            }
            let look = sleep(self.jitter.stretch(self.timing.retry));
            let version = self.observed.as_ref().and_then(|seen| seen.lease.resource_version());
            tokio::select! {
                biased;
                () = look => {}
                () = changes.freed(&self.leases, &self.name, version.as_deref()) => {}
            }
        }
        self.metrics.leading.set(1);
        info!(lease = self.name, identity = self.identity, "leading");
    }

    /// Renews the lease for as long as that works. After [`Election::acquire`].
    pub async fn keep(&mut self) -> Lost {
        let lost = loop {
            sleep(self.timing.retry).await;
            if let Err(lost) = self.renew().await {
                break lost;
            }
        };
        self.metrics.leading.set(0);
        // Who could not renew may finish what is under way until the lease has run out. Who was robbed may not: the other
        // is at work already.
        if let Lost::Taken { .. } = lost {
            self.fence.close();
        }
        lost
    }

    /// Gives the lease up, so that another candidate need not wait for it to run out.
    ///
    /// Only after everything that needed it has stopped. It asks the server who holds the lease, because an
    /// [`Election::acquire`] that was given up may have been granted it.
    pub async fn release(&mut self) {
        self.metrics.leading.set(0);
        self.fence.close();
        match self.try_release().await {
            Ok(true) => info!(lease = self.name, "released the lease"),
            Ok(false) => {}
            Err(error) => {
                warn!(lease = self.name, %error, "could not release the lease; other replicas wait until it runs out");
            }
        }
    }

    async fn renew(&mut self) -> Result<(), Lost> {
        // Counted from when the last successful renewal was *sent*: an answer may take long, and the
        // the patience of other replicas starts when the server has written, not when its answer arrives here.
        let sent = self.observed.as_ref().map_or_else(Instant::now, |observed| observed.at);
        let deadline = sent + self.timing.renew_deadline;
        loop {
            match timeout_at(deadline, self.attempt()).await {
                Ok(Ok(Attempt::Held)) => return Ok(()),
                Ok(Ok(Attempt::HeldBy(holder))) => {
                    return Err(Lost::Taken { lease: self.name.clone(), holder });
                }
                Ok(Err(error)) => warn!(lease = self.name, %error, "cannot renew the lease yet"),
                Err(_) => break,
            }
            if timeout_at(deadline, sleep(self.timing.retry)).await.is_err() {
                break;
            }
        }
        let deadline = self.timing.renew_deadline;
        Err(Lost::NotRenewed { lease: self.name.clone(), deadline })
    }

    /// Takes or renews the lease, if that is allowed now.
    async fn attempt(&mut self) -> Result<Attempt, Failure> {
        if let Some(observed) = &self.observed
            && self.is_ours(&observed.lease)
            && !observed.expired()
        {
            // No other replica may have written since our last renewal: no need to read first.
            let next = self.renewed(&observed.lease);
            match self.renew_with(next).await {
                Ok(()) => return Ok(Attempt::Held),
                Err(error) => {
                    debug!(lease = self.name, %error, "renewing failed, reading the lease anew");
                    self.metrics.slow_path.inc();
                }
            }
        }

        let read = self.leases.get_opt(&self.name);
        let Some(current) = self.answer(read).await? else {
            let first = self.first();
            let sent = Sent::now(&self.fence);
            let created = self.answer(self.leases.create(&PostParams::default(), &first)).await?;
            self.granted(created, sent);
            return Ok(Attempt::Held);
        };
        let next = self.renewed(&current);
        let holder = holder(&current).to_owned();
        let expired = self.observe(current).expired();
        if !holder.is_empty() && holder != self.identity && !expired {
            return Ok(Attempt::HeldBy(holder));
        }
        self.renew_with(next).await?;
        Ok(Attempt::Held)
    }

    /// Whether there was something to release.
    async fn try_release(&mut self) -> Result<bool, Failure> {
        let read = self.leases.get_opt(&self.name);
        let Some(mut lease) = self.answer(read).await?.filter(|lease| self.is_ours(lease)) else {
            return Ok(false);
        };
        let now = MicroTime(self.clock.now());
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        // For candidates that look at the duration only. The API server wants at least 1.
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(now.clone());
        spec.acquire_time = Some(now);
        let released = self.write(lease).await?;
        self.observed = Some(Observed { lease: released, at: Instant::now() });
        Ok(true)
    }

    async fn renew_with(&mut self, lease: Lease) -> Result<(), Failure> {
        let sent = Sent::now(&self.fence);
        let written = self.write(lease).await?;
        self.granted(written, sent);
        Ok(())
    }

    async fn write(&self, lease: Lease) -> Result<Lease, Failure> {
        let parameters = PostParams::default();
        self.answer(self.leases.replace(&self.name, &parameters, &lease)).await
    }

    /// The lease is ours for its duration from when we asked for it: the others' patience starts when the server has
    /// written, not when its answer arrives here.
    fn granted(&mut self, lease: Lease, sent: Sent) {
        self.fence.extend(sent.uptime, self.timing.lease);
        self.observed = Some(Observed { lease, at: sent.at });
    }

    /// A request that hangs must not use up all the time there is to renew.
    async fn answer<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let patience = self.timing.renew_deadline / 2;
        Ok(timeout(patience, request).await.map_err(|_| Failure::Silence(patience))??)
    }

    /// Takes note of the lease as read; its time runs from when it last changed.
    fn observe(&mut self, current: Lease) -> &Observed {
        let at = match &self.observed {
            Some(before) if before.lease.spec == current.spec => before.at,
            _ => Instant::now(),
        };
        self.observed.insert(Observed { lease: current, at })
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == self.identity
    }

    fn first(&self) -> Lease {
        Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: Some(self.held(LeaseSpec { lease_transitions: Some(0), ..LeaseSpec::default() })),
        }
    }

    /// `current` as it is to be next: ours, from now on or still.
    fn renewed(&self, current: &Lease) -> Lease {
        let mut spec = current.spec.clone().unwrap_or_default();
        if !self.is_ours(current) {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
            spec.acquire_time = None;
        }
        Lease { metadata: current.metadata.clone(), spec: Some(self.held(spec)) }
    }

    fn held(&self, spec: LeaseSpec) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.timing.lease.as_secs()).ok(),
            acquire_time: spec.acquire_time.or_else(|| Some(now.clone())),
            renew_time: Some(now),
            ..spec
        }
    }
}

/// The watch of one lease. It only ever saves time: when it breaks, the next look opens it again.
struct Changes(Option<BoxStream<'static, kube::Result<WatchEvent<Lease>>>>);

impl Changes {
    /// Waits until no replica holds the lease any more; for ever if that cannot be followed.
    async fn freed(&mut self, leases: &Api<Lease>, name: &str, since: Option<&str>) {
        let Some(since) = since else { return pending().await };
        if self.0.is_none() {
            let only_this = WatchParams::default().fields(&format!("metadata.name={name}"));
            self.0 = leases.watch(&only_this, since).await.ok().map(StreamExt::boxed);
        }
        while let Some(changes) = &mut self.0 {
            match changes.next().await {
                Some(Ok(WatchEvent::Modified(lease) | WatchEvent::Added(lease)))
                    if holder(&lease).is_empty() =>
                {
                    return;
                }
                Some(Ok(WatchEvent::Deleted(_))) => return,
                Some(Ok(
                    WatchEvent::Modified(_) | WatchEvent::Added(_) | WatchEvent::Bookmark(_),
                )) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => self.0 = None,
            }
        }
        pending::<()>().await;
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

impl Observed {
    /// By the duration that the holder itself wrote down.
    fn expired(&self) -> bool {
        let promised = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let promised = Duration::from_secs(promised.unwrap_or(0).max(0).unsigned_abs().into());
        self.at.elapsed() >= promised
    }
}

/// Registers the metrics of an election without one: to document them, with a registry that shows examples.
pub fn register_metrics(metrics: &Metrics) {
    ElectionMetrics::register(metrics, "");
}

#[derive(Debug)]
struct ElectionMetrics {
    leading: Gauge,
    slow_path: Counter,
}

impl ElectionMetrics {
    fn register(metrics: &Metrics, lease: &str) -> Self {
        let labels = vec![("name", lease.to_owned())];
        let leading = Family::<Vec<(&str, String)>, Gauge>::default();
        let slow_path = Family::<Vec<(&str, String)>, Counter>::default();
        let own = Self {
            leading: leading.get_or_create_owned(&labels),
            slow_path: slow_path.get_or_create_owned(&labels),
        };
        metrics.register(|registry| {
            let help = "Whether this process leads: 1 is leader, 0 stands by";
            registry.register("leader_election_master_status", help, leading);
            let help = "Renewals of the lease that had to read it first";
            registry.register("leader_election_slowpath", help, slow_path);
        });
        own
    }
}
