//! The remaining lifetime of a node.

use jiff::{SignedDuration, Timestamp};
use kerf_model::{Node, disruption::Cost};

/// A quotient between 0 and 1: a whole life for a node that never expires, nothing for one that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    left: i128,
    whole: i128,
}

impl Lifetime {
    pub fn remaining(node: &Node, now: Timestamp) -> Self {
        let Some(whole) = node.disruption.expire_after else { return Self { left: 1, whole: 1 } };
        let whole = SignedDuration::try_from(whole).unwrap_or(SignedDuration::MAX).as_nanos();
        if whole <= 0 {
            return Self { left: 0, whole: 1 };
        }
        let age =
            node.disruption.created.map_or(0, |created| now.duration_since(created).as_nanos());
        Self { left: (whole - age).clamp(0, whole), whole }
    }

    pub fn is_more_than_a_tenth(self) -> bool {
        self.left * 10 > self.whole
    }

    /// The cost of moving pods, as far as their node would have kept them.
    pub fn of(self, cost: Cost) -> Cost {
        let scaled = (i128::from(cost.0) * self.left).div_euclid(self.whole);
        Cost(i64::try_from(scaled).unwrap_or(cost.0))
    }
}
