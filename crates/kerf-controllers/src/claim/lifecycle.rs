//! The life of a NodeClaim: launched, registered, initialised; and its end.
//!
//! Each step is a file of its own. A step that has been taken is not taken again: its condition says so, and every
//! condition is written before the next reconcile can see a world that depends on it.

mod finalization;
mod initialization;
mod launch;
mod launch_failure;
mod liveness;
mod registration;

use std::time::Duration;

use jiff::Timestamp;
use kerf_api::{
    NodeClaim, NodePool, ObjectExt, TERMINATION_FINALIZER,
    conditions::{Conditioned, LAUNCHED, REGISTERED, Status},
    labels,
};
use kerf_cluster::{Change, Cluster};
use kerf_runtime::{Lock, Outcome, Queue, Workers};
use kube::ResourceExt;

use self::launch::Launches;
use crate::{
    context::Context,
    controller::{Reconciler, add_claim_of},
    error::Result,
    pool::registration_health::{self, RegistrationHealth},
};

/// What comes after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next one.
    Next,
    /// Look again after this time even if nothing happens.
    Again(Duration),
    /// The claim was deleted; there is nothing more to do here.
    Deleted,
}

pub(crate) struct Lifecycle {
    health: RegistrationHealth,
    /// Pools that have something new to say about their health.
    pools: Queue<String>,
    launches: Launches,
}

impl Lifecycle {
    pub(crate) fn new(health: RegistrationHealth, pools: Queue<String>) -> Self {
        Self { health, pools, launches: Launches::default() }
    }
}

impl Reconciler for Lifecycle {
    const WORKERS: Workers = Workers::new("nodeclaim.lifecycle", 1000)
        .up_to(5000)
        .backoff(Duration::from_secs(1), Duration::from_mins(1))
        .bucket(10, 100);

    /// A claim is looked at when it changes and when its node does.
    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>) {
        match change {
            Change::NodeClaim(delta) => {
                if let (Some(gone), None) = (&delta.before, &delta.after) {
                    self.launches.forget(gone);
                }
                queue.add(delta.key.name.clone());
            }
            Change::Node(delta) => add_claim_of(delta, cluster, queue),
            _ => {}
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let Some(claim) = context.managed_claim(name) else { return Ok(Outcome::Done) };
        if claim.is_deleting() {
            return finalization::finalize(context, &claim).await;
        }
        self.live(context, &claim).await
    }
}

impl Lifecycle {
    async fn live(&self, context: &Context, claim: &NodeClaim) -> Result<Outcome> {
        // Nothing is launched before the finalizer is written: it is what makes sure that no instance is ever forgotten.
        let claim = with_finalizer(context, claim).await?;
        let mut changed = claim.clone();
        let (mut failure, mut again) = (None, None);
        // A step that fails does not keep the next from looking: a claim that keeps failing still times out.
        let mut note = |step: Result<Step>| match step {
            Ok(Step::Again(after)) => {
                again = Some(again.map_or(after, |sooner: Duration| sooner.min(after)));
                Step::Next
            }
            Ok(step) => step,
            Err(error) => {
                failure.get_or_insert(error);
                Step::Next
            }
        };
        if note(self.launches.launch(context, &mut changed).await) == Step::Deleted {
            return Ok(Outcome::Done);
        }
        note(registration::register(context, &mut changed).await);
        note(initialization::initialize(context, &mut changed).await.map(|()| Step::Next));
        let alive = liveness::check(context, &changed).await?;
        if note(Ok(alive)) == Step::Deleted {
            self.note(context, &changed, Err(registration_health::failure(&changed)));
            return Ok(Outcome::Done);
        }
        let what = || format!("updating NodeClaim {}", claim.name_any());
        let changed = context.write_claim(&claim, changed, Lock::Optimistic, what).await?;
        if !claim.is_true(LAUNCHED) && changed.is_true(LAUNCHED) {
            launch::log(context, &changed);
        }
        if !claim.is_true(REGISTERED) && changed.is_true(REGISTERED) {
            self.note(context, &changed, Ok(()));
        }
        match (failure, again) {
            (Some(error), _) => Err(error),
            (None, Some(after)) => Ok(Outcome::After(after)),
            (None, None) => Ok(Outcome::Done),
        }
    }

    /// Notes how the launch ended, on the pool that asked for it.
    fn note(&self, context: &Context, claim: &NodeClaim, outcome: Result<(), (String, String)>) {
        let name = claim.labels().get(labels::NODE_POOL);
        let Some(pool) = name.and_then(|name| context.managed_pool(name)) else { return };
        if asked_for(&pool, claim) {
            self.health.note(&pool.uid().unwrap_or_default(), outcome);
            self.pools.add(pool.name_any());
        }
    }
}

/// Whether the claim is this pool's. A pool of the same name that came later did not ask for it.
fn asked_for(pool: &NodePool, claim: &NodeClaim) -> bool {
    let uid = pool.metadata.uid.as_deref().unwrap_or_default();
    claim.owner_references().iter().any(|owner| owner.kind == "NodePool" && owner.uid == uid)
}

async fn with_finalizer(context: &Context, claim: &NodeClaim) -> Result<NodeClaim> {
    if claim.finalizers().iter().any(|finalizer| finalizer == TERMINATION_FINALIZER) {
        return Ok(claim.clone());
    }
    let mut changed = claim.clone();
    changed.finalizers_mut().push(TERMINATION_FINALIZER.into());
    let what = || format!("adding the finalizer to NodeClaim {}", claim.name_any());
    context.write_claim(claim, changed, Lock::Optimistic, what).await
}

/// Whether the step with this condition is over. A condition that is no longer `Unknown` is only stamped with the
/// current generation, so that `Ready` does not wait for it.
fn is_settled(claim: &mut NodeClaim, condition: &str, now: Timestamp) -> bool {
    let Some(found) = claim.condition(condition).cloned() else { return false };
    let status = claim.condition_status(condition);
    if status == Status::Unknown {
        return false;
    }
    claim.condition_set(now).set(condition, status, &found.reason, &found.message);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_api::conditions::LAUNCHED;
    use serde_json::json;

    #[test]
    fn a_step_that_is_over_is_stamped_with_the_current_generation() {
        let now = Timestamp::UNIX_EPOCH;
        for (status, settled) in
            [(Status::Unknown, false), (Status::False, true), (Status::True, true)]
        {
            let mut claim = NodeClaim::default();
            assert!(!is_settled(&mut claim, LAUNCHED, now), "nobody has looked at it");
            claim.metadata.generation = Some(1);
            claim.condition_set(now).set(LAUNCHED, status, "Why", "because");
            claim.metadata.generation = Some(2);
            assert_eq!(is_settled(&mut claim, LAUNCHED, now), settled, "{status:?}");
            let found = claim.condition(LAUNCHED).unwrap();
            assert_eq!(found.observed_generation, Some(if settled { 2 } else { 1 }), "{status:?}");
            assert_eq!((found.reason.as_str(), found.message.as_str()), ("Why", "because"));
        }
    }

    #[test]
    fn a_launch_counts_for_the_pool_that_asked_for_it() {
        let mut pool = NodePool::default();
        pool.metadata.uid = Some("u".into());
        let check = |owners: &[(&str, &str)], expected: bool| {
            let owners = owners.iter().map(
                |(kind, uid)| json!({"apiVersion": "v1", "kind": kind, "name": "p", "uid": uid}),
            );
            let mut claim = NodeClaim::default();
            let owners: Vec<_> = owners.collect();
            claim.metadata.owner_references = serde_json::from_value(json!(owners)).unwrap();
            assert_eq!(asked_for(&pool, &claim), expected, "{owners:?}");
        };
        check(&[("NodePool", "u")], true);
        check(&[("Other", "v"), ("NodePool", "u")], true);
        check(&[("NodePool", "of a pool of this name that is gone")], false);
        check(&[("Other", "u")], false);
        check(&[], false);
    }
}
