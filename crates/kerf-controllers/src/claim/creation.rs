//! The one way to create a NodeClaim: with a permit, which the limits of its pool have room for.

use std::time::Duration;

use kerf_api::{NodeClaim, annotations};
use kerf_cluster::{Change, Cluster, reservations::Wanted};
use kerf_runtime::{Outcome, Queue, Workers, journal::Subject};
use kube::ResourceExt;
use tracing::{info, warn};

use crate::{
    context::Context,
    controller::Reconciler,
    error::{Result, Tried},
};

/// An API server gives up on a request after a minute, unless told otherwise. A claim that is not there after that time
/// will not come any more.
const CERTAIN_AFTER: Duration = Duration::from_secs(61);

impl Context {
    /// Permission to create a claim, if the limits of its pool have room for it now. It takes up its room until it is used or
    /// dropped.
    pub(crate) fn permit(&self, wanted: Wanted<'_>) -> Result<Permit<'_>> {
        let name = self.index.reserve(wanted, self.now())?;
        Ok(Permit { context: self, pool: wanted.pool.name_any(), name, fate: Fate::Absent })
    }
}

/// Permission to create one claim.
pub(crate) struct Permit<'a> {
    context: &'a Context,
    pool: String,
    name: String,
    fate: Fate,
}

/// What is known of the claim that a permit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It does not exist.
    Absent,
    /// It may exist, or come to.
    Unknown,
    Exists,
}

impl Permit<'_> {
    /// The name of the claim to be.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Creates the claim under the name of the permit, and counts it under `reason`.
    pub(crate) async fn create(mut self, mut claim: NodeClaim, reason: &str) -> Result<NodeClaim> {
        let context = self.context;
        claim.metadata.name = Some(self.name.clone());
        // Whatever ends this call early leaves it open whether the request arrived.
        self.fate = Fate::Unknown;
        let created = context.create(&claim).await;
        self.fate = match &created {
            Ok(_) => Fate::Exists,
            // No other creation uses the name: the request was repeated on the way and arrived twice.
            Err(kube::Error::Api(status)) if status.code == 409 => Fate::Exists,
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Fate::Absent,
            Err(_) => Fate::Unknown,
        };
        let created =
            created.tried(|| format!("creating a NodeClaim of NodePool {}", self.pool))?;
        let relaxed = created.annotations().get(annotations::MIN_VALUES_RELAXED);
        let relaxed = relaxed.is_some_and(|relaxed| relaxed == "true");
        context.metrics.claim_created(reason, &self.pool, relaxed);
        info!(claim = self.name, pool = self.pool, reason, "created nodeclaim");
        let about =
            Subject { kind: "NodeClaim".into(), name: self.name.clone(), ..Subject::default() };
        let message = format!("Created NodeClaim of NodePool {}: {reason}", self.pool);
        context.window.write(context.now(), "Created", about, &message);
        Ok(created)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        match self.fate {
            Fate::Absent => self.context.index.release(&self.name),
            // The index need not have it yet: see `Objects::anticipate`.
            Fate::Exists => self.context.unsettled.add(self.name.clone()),
            Fate::Unknown => {
                warn!(
                    claim = self.name,
                    pool = self.pool,
                    "the creation of a nodeclaim was not answered"
                );
                self.context.unsettled.add_after(self.name.clone(), CERTAIN_AFTER);
            }
        }
    }
}

/// Finds out whether claims exist whose creation had no clear answer. The watch reports most of them long before.
pub(crate) struct Unsettled;

impl Reconciler for Unsettled {
    const WORKERS: Workers = Workers::new("nodeclaim.creation", 10)
        .backoff(Duration::from_secs(1), Duration::from_mins(1));

    fn concerns(&self, _: &Change, _: &Cluster, _: &Queue<String>) {}

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        if !context.index.read().is_reserved(name) {
            return Ok(Outcome::Done);
        }
        let claim = context.claims().get_opt(name).await;
        match claim.tried(|| format!("looking for NodeClaim {name}"))? {
            Some(claim) => context.index.anticipate(claim),
            None => context.index.release(name),
        }
        let here = !context.index.read().is_reserved(name);
        Ok(if here { Outcome::Done } else { Outcome::Backoff })
    }
}
