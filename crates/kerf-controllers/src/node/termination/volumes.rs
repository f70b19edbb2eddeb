//! Waiting for volumes: a disk that is still attached when its instance dies keeps the next pod waiting for minutes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, VOLUMES_DETACHED},
};
use kerf_runtime::events::{Notice, Severity};
use kube::ResourceExt;

use crate::{context::Context, error::Result};

/// More names than this do not help the reader.
const NAMED_AT_MOST: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Over,
    /// The instance may not go.
    GoesOn,
    /// The time for it is up.
    GivenUp,
}

/// How the wait for the node's volumes stands.
pub(super) fn look(context: &Context, node: &Node, deadline: Option<Timestamp>) -> Wait {
    let now = context.now();
    let awaited = context.index.read().attachments_to_await(&node.name_any(), now);
    let wait = wait(awaited.len(), deadline, now);
    if wait == Wait::GoesOn {
        let names: Vec<_> = awaited.iter().map(|attachment| attachment.name_any()).collect();
        let message = format!("Awaiting deletion of bound volumeattachments ({})", listed(&names));
        let notice = Notice::about(node, Severity::Normal, "AwaitingVolumeDetachment", message);
        context.recorder.record(notice.same_if(vec![node.name_any()]));
    }
    wait
}

/// Notes on the claim how the wait stands.
pub(super) async fn record(context: &Context, claim: &NodeClaim, wait: Wait) -> Result<NodeClaim> {
    let mut changed = claim.clone();
    let mut conditions = changed.condition_set(context.now());
    match wait {
        Wait::Over => conditions.set_true(VOLUMES_DETACHED),
        Wait::GoesOn => {
            let reason = "AwaitingVolumeDetachment";
            conditions.set_unknown_because(VOLUMES_DETACHED, reason, reason)
        }
        Wait::GivenUp => {
            let reason = "TerminationGracePeriodElapsed";
            conditions.set_false(VOLUMES_DETACHED, reason, reason)
        }
    };
    context.write_status(claim, changed).await
}

fn wait(attached: usize, deadline: Option<Timestamp>, now: Timestamp) -> Wait {
    if attached == 0 {
        Wait::Over
    } else if deadline.is_some_and(|deadline| now > deadline) {
        Wait::GivenUp
    } else {
        Wait::GoesOn
    }
}

fn listed(names: &[String]) -> String {
    let first = names.iter().take(NAMED_AT_MOST).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_AT_MOST) {
        0 => first,
        more => format!("{first} and {more} other(s)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_with_the_last_attachment_or_after_the_deadline() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let earlier = now - jiff::SignedDuration::from_secs(1);
        let cases = [
            (0, None, Wait::Over),
            (0, Some(earlier), Wait::Over),
            (1, None, Wait::GoesOn),
            (1, Some(now), Wait::GoesOn),
            (1, Some(earlier), Wait::GivenUp),
        ];
        for (attached, deadline, expected) in cases {
            assert_eq!(wait(attached, deadline, now), expected, "{attached} {deadline:?}");
        }
    }

    #[test]
    fn only_the_first_names_are_listed() {
        let names: Vec<_> = (1..=7).map(|n| n.to_string()).collect();
        assert_eq!(listed(&names[..2]), "1, 2");
        assert_eq!(listed(&names), "1, 2, 3, 4, 5 and 2 other(s)");
    }
}
