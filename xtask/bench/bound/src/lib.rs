//! What pods must cost at least, whatever the plan.
//!
//! Two bounds, both proven. [`Problem::fractions`] buys any fraction of a machine: a linear program with a row per resource.
//! [`Problem::patterns`] knows that a pod is on one machine: whatever a pod of each sort is said to be worth, if no machine can hold
//! more worth than it costs, then all pods together cost at least what they are worth. It looks for the worths that say most
//! (column generation, seen from its dual).
//!
//! It is a crate of its own so that it can be optimised while `xtask` is not, and it shares no code with the planner that is judged
//! by it.

mod knapsack;
mod patterns;

use microlp::{ComparisonOp, OptimizationDirection, Problem as LinearProgram, SolveOutcome};

/// Millicores, mebibytes and pods.
pub type Amounts = [u64; 3];

#[derive(Clone, Debug, Default)]
pub struct Problem {
    pub sorts: Vec<Sort>,
    pub offers: Vec<Offer>,
}

/// Pods that are alike.
#[derive(Clone, Debug, Default)]
pub struct Sort {
    pub requests: Amounts,
    pub count: u32,
    /// As many as may be on one machine.
    pub most_per_machine: Option<u32>,
    /// The one zone in which they have to be.
    pub zone: Option<usize>,
}

/// A machine that can be bought as often as one likes.
#[derive(Clone, Debug)]
pub struct Offer {
    pub room: Amounts,
    pub price: f64,
    pub zone: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub price: f64,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fractions of machines.
    Fractions,
    /// Whole pods on fractions of machines.
    Patterns,
}

/// Beyond this a worth for each sort is more than the linear program can find in seconds.
const MOST_SORTS: usize = 250;

impl Problem {
    /// The better of both bounds. `effort` is the number of rounds of the second; nothing where some pod fits no machine.
    pub fn bound(&self, effort: usize) -> Option<Bound> {
        let fractions = self.fractions()?;
        let loose = Bound { price: fractions, kind: Kind::Fractions };
        if self.sorts.len() > MOST_SORTS {
            return Some(loose);
        }
        let price = self.patterns(effort)?;
        Some(if price > fractions { Bound { price, kind: Kind::Patterns } } else { loose })
    }

    /// The price of the cheapest mix of machines, cut to any fraction, that has the resources of all pods together, and as many
    /// machines as the sort needs that has to be spread most.
    pub fn fractions(&self) -> Option<f64> {
        let hosts = self.sorts.iter().filter_map(|sort| {
            let most = sort.most_per_machine.filter(|most| *most > 0)?;
            Some(f64::from(sort.count) / f64::from(most))
        });
        fractions(&self.offers, self.demand(), hosts.fold(0.0, f64::max))
    }

    fn demand(&self) -> [f64; 3] {
        let mut demand = [0.0; 3];
        for sort in &self.sorts {
            for (total, asks) in demand.iter_mut().zip(sort.requests) {
                *total += asks as f64 * f64::from(sort.count);
            }
        }
        demand
    }
}

/// The price of the cheapest mix of at least `hosts` machines, cut to any fraction, that has these resources.
pub fn fractions(offers: &[Offer], demand: [f64; 3], hosts: f64) -> Option<f64> {
    let mut program = LinearProgram::new(OptimizationDirection::Minimize);
    let numbers: Vec<_> =
        offers.iter().map(|offer| program.add_var(offer.price, (0.0, f64::INFINITY))).collect();
    let all = numbers.iter().map(|number| (*number, 1.0));
    program.add_constraint(all.collect::<Vec<_>>(), ComparisonOp::Ge, hosts);
    for (resource, amount) in demand.into_iter().enumerate() {
        let given = numbers.iter().zip(offers);
        let given = given.map(|(number, offer)| (*number, offer.room[resource] as f64));
        program.add_constraint(given.collect::<Vec<_>>(), ComparisonOp::Ge, amount);
    }
    match program.solve().ok()? {
        SolveOutcome::Solution(solution) => Some(solution.objective()),
        SolveOutcome::Interrupted(_) => None,
    }
}

#[cfg(test)]
mod tests;
