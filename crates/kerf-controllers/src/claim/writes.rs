//! Writing claims: one of our writes at a time for each claim, on top of the result of the last one.
//!
//! Many controllers write the same claim, each its own part: one its conditions, another when a pod last came or went. Were
//! they to write at once, each with the version it had read, all but one would be refused and would have to begin anew, a
//! launch among them. So a write waits for its turn and carries its own change over to the newest version that we know.
//! A write that is refused then was preceded by another process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use kerf_api::{NodeClaim, conditions::Conditioned};
use kerf_runtime::{Lock, patch};
use kube::ResourceExt;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::{context::Context, error::Result};

impl Context {
    /// Writes what changed between `before` and `after`, metadata and status, and lets the index know at once. Returns the
    /// claim as it is then.
    pub(crate) async fn write_claim(
        &self,
        before: &NodeClaim,
        after: NodeClaim,
        lock: Lock,
        what: impl FnOnce() -> String,
    ) -> Result<NodeClaim> {
        // Most often: conditions are looked at far more often than they change, and a comparison costs no JSON.
        if *before == after {
            return Ok(after);
        }
        let _turn = self.turns.take(&before.name_any()).await;
        let carried = self.carried_over(before, &after);
        let (before, after) = carried.as_ref().map_or((before, &after), |(b, a)| (&**b, a));
        self.write(before, after.clone(), lock, what).await
    }

    /// The change from `before` to `after` as a change of the newest version that we know. `None`: `before` is the newest,
    /// or the two do not go together; then the API server refuses the write, and the key comes back.
    fn carried_over(
        &self,
        before: &NodeClaim,
        after: &NodeClaim,
    ) -> Option<(Arc<NodeClaim>, NodeClaim)> {
        let newest = self.index.read().claims().named(&before.name_any()).cloned()?;
        if newest.resource_version() == before.resource_version() || newest.uid() != before.uid() {
            return None;
        }
        let bare = |claim: &NodeClaim| {
            let mut claim = claim.clone();
            claim.conditions_mut().clear();
            claim
        };
        let mut carried = patch::carry_over(&bare(before), &bare(after), &bare(&newest))?;
        carried.conditions_mut().extend_from_slice(newest.conditions());
        if before.conditions() != after.conditions() {
            let mut conditions = carried.condition_set(self.now());
            conditions.take_over(before.conditions(), after.conditions());
        }
        Some((newest, carried))
    }
}

/// Who may write which claim now.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Arc<AsyncMutex<()>>>>);

/// The turn of one write; the next begins when this is dropped.
#[derive(Debug)]
#[must_use = "the turn is over when this is dropped"]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    claim: String,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    pub(crate) async fn take(&self, claim: &str) -> Turn<'_> {
        let queue = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(claim.to_owned()).or_default())
        };
        // Made before the wait, so that one who gives up waiting leaves nothing behind.
        let mut turn = Turn { turns: self, claim: claim.to_owned(), held: None };
        turn.held = Some(queue.lock_owned().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut turns = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Only the map has it: no task holds it or waits for it.
        if turns.get(&self.claim).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            turns.remove(&self.claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn writes_of_a_claim_take_turns_and_leave_nothing_behind() {
        let turns = Arc::new(Turns::default());
        let first = turns.take("a").await;
        let other = turns.take("b").await;
        let second = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { drop(turns.take("a").await) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!second.is_finished(), "two at once");
        let patience = Duration::from_secs(1);
        assert!(tokio::time::timeout(patience, turns.take("a")).await.is_err());
        drop(first);
        second.await.unwrap();
        assert_eq!(turns.0.lock().unwrap().len(), 1, "the other's is still held");
        drop(other);
        assert!(turns.0.lock().unwrap().is_empty());
    }
}
