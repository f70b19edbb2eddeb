//! What a NodeClaim says of reboots of its node.

use jiff::Timestamp;
use kerf_api::{
    NodeClaim, Reboots,
    conditions::{Conditioned, REBOOT_FAILED, REBOOT_SUCCEEDED, REBOOTING, Status},
};

/// Reboots of one node: the one that is under way or was last, and those before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RebootHistory {
    pub last: LastReboot,
    /// Since when the cloud was asked for each, the oldest first. There may have been more before them.
    pub asked: Vec<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LastReboot {
    /// There was none, or it was called off before the cloud was asked.
    #[default]
    None,
    UnderWay,
    Succeeded {
        at: Timestamp,
    },
    /// The cloud did not restart the machine, or the node did not come back.
    Failed {
        at: Timestamp,
    },
}

impl From<&NodeClaim> for RebootHistory {
    fn from(claim: &NodeClaim) -> Self {
        let last = match claim.condition(REBOOTING) {
            Some(_) if claim.is_true(REBOOTING) => LastReboot::UnderWay,
            Some(over) if claim.condition_status(REBOOTING) == Status::False => {
                let at = over.last_transition_time.0;
                match over.reason.as_str() {
                    REBOOT_SUCCEEDED => LastReboot::Succeeded { at },
                    REBOOT_FAILED => LastReboot::Failed { at },
                    _ => LastReboot::None,
                }
            }
            _ => LastReboot::None,
        };
        let asked = Reboots::read(claim).asked.into_iter().map(|time| time.0).collect();
        Self { last, asked }
    }
}

impl RebootHistory {
    pub fn is_under_way(&self) -> bool {
        self.last == LastReboot::UnderWay
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.last, LastReboot::Failed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_api::conditions::{REBOOT_ISSUED, REBOOT_WITHDRAWN};

    #[test]
    fn the_condition_says_how_the_last_one_stands() {
        let at = Timestamp::from_second(60).unwrap();
        let check = |status: Status, reason: &str, expected: LastReboot| {
            let mut claim = NodeClaim::default();
            claim.condition_set(at).set(REBOOTING, status, reason, "");
            assert_eq!(RebootHistory::from(&claim).last, expected, "{status:?} {reason}");
        };
        check(Status::True, REBOOT_ISSUED, LastReboot::UnderWay);
        check(Status::True, "whatever", LastReboot::UnderWay);
        check(Status::False, REBOOT_SUCCEEDED, LastReboot::Succeeded { at });
        check(Status::False, REBOOT_FAILED, LastReboot::Failed { at });
        check(Status::False, REBOOT_WITHDRAWN, LastReboot::None);
        check(Status::Unknown, REBOOT_FAILED, LastReboot::None);
        assert_eq!(RebootHistory::from(&NodeClaim::default()), RebootHistory::default());
    }
}
