//! The end of a drain: moved to now for nodes on which pods are in trouble already, or set where the claim has none.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kerf_api::{NodeClaim, ObjectExt, annotations};
use kerf_runtime::Lock;
use kube::ResourceExt;

use crate::{
    context::Context,
    error::{Error, Result, is_not_found},
};

impl Context {
    /// Whatever the grace period, and whether the drain has begun or not.
    pub(crate) async fn end_patience(&self, claim: &NodeClaim) -> Result<()> {
        self.drain_until(claim, self.now()).await
    }

    /// The drain ends then, unless it ends earlier already.
    pub(crate) async fn drain_until(&self, claim: &NodeClaim, end: Timestamp) -> Result<()> {
        let Some(deadline) = new_deadline(claim, end) else { return Ok(()) };
        let mut changed = claim.clone();
        changed.annotations_mut().insert(annotations::TERMINATION_TIMESTAMP.into(), deadline);
        let what = || format!("writing the deadline of NodeClaim {}", claim.name_any());
        self.write_claim(claim, changed, Lock::None, what).await?;
        Ok(())
    }

    /// Gives the drain of a claim that is about to be deleted so much time from now on. A deadline that is there stays.
    pub(crate) async fn bound_drain(
        &self,
        claim: &NodeClaim,
        bound: Duration,
    ) -> Result<NodeClaim> {
        if claim.annotations().contains_key(annotations::TERMINATION_TIMESTAMP) {
            return Ok(claim.clone());
        }
        let mut changed = claim.clone();
        let deadline = shown(after(self.now(), bound));
        changed.annotations_mut().insert(annotations::TERMINATION_TIMESTAMP.into(), deadline);
        let what = || format!("writing the deadline of NodeClaim {}", claim.name_any());
        self.write_claim(claim, changed, Lock::None, what).await
    }

    /// Takes the deadline from a claim that stays after all: whenever it goes, its pods would be deleted at once.
    pub(crate) async fn unbound_drain(&self, claim: &str) -> Result<()> {
        let found = self.index.read().claims().named(claim).cloned();
        let Some(found) = found.filter(|claim| !claim.is_deleting()) else { return Ok(()) };
        let mut changed = NodeClaim::clone(&found);
        if changed.annotations_mut().remove(annotations::TERMINATION_TIMESTAMP).is_none() {
            return Ok(());
        }
        let what = || format!("removing the deadline of NodeClaim {claim}");
        match self.write_claim(&found, changed, Lock::None, what).await {
            Err(Error::Api { source, .. }) if is_not_found(&source) => Ok(()),
            written => written.map(drop),
        }
    }
}

/// This end, unless the drain ends earlier already.
fn new_deadline(claim: &NodeClaim, end: Timestamp) -> Option<String> {
    let deadline = claim.annotations().get(annotations::TERMINATION_TIMESTAMP);
    let deadline = deadline.and_then(|value| value.parse::<Timestamp>().ok());
    let is_earlier = deadline.is_some_and(|deadline| deadline < end);
    (!is_earlier).then(|| shown(end))
}

fn after(now: Timestamp, bound: Duration) -> Timestamp {
    let bound = SignedDuration::try_from(bound).unwrap_or(SignedDuration::MAX);
    now.saturating_add(bound).unwrap_or(Timestamp::MAX)
}

fn shown(deadline: Timestamp) -> String {
    deadline.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_moved_to_an_earlier_time_and_never_to_a_later_one() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let moved = Some("2026-01-01T01:00:00Z");
        for (deadline, expected) in [
            (None, moved),
            (Some("2026-01-01T02:00:00Z"), moved),
            (Some("2026-01-01T00:59:59Z"), None),
            (Some("soon"), moved),
        ] {
            let mut claim = NodeClaim::default();
            let key = annotations::TERMINATION_TIMESTAMP;
            claim.annotations_mut().extend(deadline.map(|it| (key.to_owned(), it.to_owned())));
            assert_eq!(new_deadline(&claim, now).as_deref(), expected, "{deadline:?}");
        }
    }
}
