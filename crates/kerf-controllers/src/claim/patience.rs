//! The end of a drain, moved to now: for nodes on which pods are in trouble already.

use jiff::Timestamp;
use kerf_api::{NodeClaim, annotations};
use kerf_runtime::Lock;
use kube::ResourceExt;

use crate::{context::Context, error::Result};

impl Context {
    /// Whatever the grace period, and whether the drain has begun or not.
    pub(crate) async fn end_patience(&self, claim: &NodeClaim) -> Result<()> {
        let Some(deadline) = new_deadline(claim, self.now()) else { return Ok(()) };
        let mut changed = claim.clone();
        changed.annotations_mut().insert(annotations::TERMINATION_TIMESTAMP.into(), deadline);
        let what = || format!("writing the deadline of NodeClaim {}", claim.name_any());
        self.write_claim(claim, changed, Lock::None, what).await?;
        Ok(())
    }
}

/// Now, unless the deadline of the drain has passed already.
fn new_deadline(claim: &NodeClaim, now: Timestamp) -> Option<String> {
    let deadline = claim.annotations().get(annotations::TERMINATION_TIMESTAMP);
    let deadline = deadline.and_then(|value| value.parse::<Timestamp>().ok());
    let passed = deadline.is_some_and(|deadline| deadline < now);
    (!passed).then(|| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_becomes_now_unless_it_has_passed() {
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
