//! The controls that keep churn low: which nodes consolidation may touch at all, and which moves are worth it.
//!
//! All of them have to agree, and all are exact: prices, costs and fractions are whole numbers of small units, so
//! that a saving of `1.00 - 0.90` reaches a threshold of `0.10`. Only consolidation is subject to them. Empty, drifted and
//! expired nodes go by rules of their own.

mod lifetime;
mod stakes;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use kerf_model::{
    Node, Quantity, Snapshot,
    churn::{ChurnControls, Fraction},
    resources::{CPU, MEMORY},
};

use crate::{Blocked, exact::greatest_common_divisor};

pub use lifetime::Lifetime;
pub use stakes::{Bound, Stake, Stakes};

/// A node that is used well is no source of savings.
///
/// Nodes that drifted or are in the last tenth of their life are not protected: they go soon anyway.
pub fn utilization(node: &Node, controls: &ChurnControls, now: Timestamp) -> Result<(), Blocked> {
    let threshold = controls.utilization_threshold;
    // Requests may exceed what is allocatable, so 1 has to be off by rule and not by comparison.
    if threshold >= Fraction::ONE
        || node.disruption.drifted_since.is_some()
        || !Lifetime::remaining(node, now).is_more_than_a_tenth()
    {
        return Ok(());
    }
    if Used::of(node).exceeds(threshold) {
        return Err(Blocked::Utilization { have: utilization_of(node), threshold });
    }
    Ok(())
}

/// The average of the requested shares of CPU and memory.
pub fn utilization_of(node: &Node) -> Fraction {
    let (numerator, denominator) = Used::of(node).average();
    Fraction::of_quotient(numerator, denominator)
}

/// A node where a pod just came or went is neither a source nor, for pods that consolidation moves, a destination.
pub fn grace_period(snapshot: &Snapshot, node: &Node) -> Result<(), Blocked> {
    match snapshot.grace_until(node) {
        Some(until) => Err(Blocked::GracePeriod { until }),
        None => Ok(()),
    }
}

/// Requested beside allocatable, in lowest terms.
struct Used {
    cpu: (i128, i128),
    memory: (i128, i128),
}

impl Used {
    fn of(node: &Node) -> Self {
        let share = |name: &str| {
            let requested: Quantity = node.pods.iter().map(|pod| pod.requests.amount(name)).sum();
            match (requested.nanos(), node.allocatable.amount(name).nanos()) {
                // What a node does not have cannot be used: it counts as nothing, and still as one of two.
                (_, ..=0) => (0, 1),
                (requested, allocatable) => {
                    let divisor = greatest_common_divisor(requested, allocatable);
                    (requested / divisor, allocatable / divisor)
                }
            }
        };
        Self { cpu: share(CPU), memory: share(MEMORY) }
    }

    fn exceeds(&self, threshold: Fraction) -> bool {
        let (numerator, denominator) = self.average();
        numerator.saturating_mul(Fraction::ONE.billionths().into())
            > denominator.saturating_mul(threshold.billionths().into())
    }

    /// Exact for whole bytes and thousandths of a CPU, up to a million CPUs beside a petabyte.
    fn average(&self) -> (i128, i128) {
        let (cpu, memory) = (self.cpu, self.memory);
        let sum = cpu.0.saturating_mul(memory.1).saturating_add(memory.0.saturating_mul(cpu.1));
        (sum, cpu.1.saturating_mul(memory.1).saturating_mul(2))
    }
}
