//! The worths of pods that say most about what they cost.

use microlp::{
    ComparisonOp, OptimizationDirection, Problem as LinearProgram, Solution, SolveOutcome, Variable,
};

use crate::knapsack::{Filling, Item, knapsack};
use crate::{Amounts, Problem, Sort};

/// Looks at fillings of one machine: at first; how many times more where these find nothing new; while worths are still being
/// changed; in the end.
const LOOKS: u64 = 10_000;
const MORE_LOOKS: u64 = 4;
const MOST_LOOKS: u64 = 128_000;
const LAST_LOOKS: u64 = 200_000;
/// Looks at machines that turn out not to matter.
const GLANCE: u64 = 1_000;
/// How much of the best worths is kept when the next are tried: far jumps tell little.
const KEPT: f64 = 0.6;
/// Rounds that look around the first worths. The linear program knows nothing yet, and what it proposes is far off.
const SHAKEN: usize = 12;
/// Fillings that are made rules of in one round.
const RULES: usize = 40;
/// Within this there is nothing more to gain.
const CLOSE: f64 = 1e-3;
const TINY: f64 = 1e-9;

impl Problem {
    /// A price below which no plan can be, by the worths that `rounds` rounds have found. Nothing where some pod fits no machine.
    pub fn patterns(&self, rounds: usize) -> Option<f64> {
        let machines = self.machines();
        let mut rules = Rules::new(self, &machines)?;
        let mut looks = LOOKS;
        let mut best = self.judged(&machines, self.first_worths(&machines), looks);
        for round in 0..rounds {
            if rules.most() <= best.price * (1.0 + CLOSE) {
                break;
            }
            let proposed = rules.worths();
            let between = if round < SHAKEN {
                shaken(&best.worths, round)
            } else {
                let both = best.worths.iter().zip(&proposed);
                both.map(|(best, new)| KEPT * best + (1.0 - KEPT) * new).collect()
            };
            let mut tried = self.judged(&machines, between, looks);
            let mut broken = tried.broken(&machines, &proposed);
            if broken.is_empty() {
                let other = self.judged(&machines, proposed.clone(), looks);
                broken = other.broken(&machines, &proposed);
                if other.price > tried.price {
                    tried = other;
                }
            }
            if tried.price > best.price {
                best = tried;
            }
            if broken.is_empty() {
                if looks >= MOST_LOOKS {
                    break;
                }
                looks *= MORE_LOOKS;
                continue;
            }
            match rules.with(&broken) {
                Some(more) => rules = more,
                // Rounding has led the linear program astray. What was found holds all the same.
                None => break,
            }
        }
        let last = self.judged(&machines, best.worths.clone(), LAST_LOOKS);
        Some(best.price.max(last.price))
    }

    /// What is no worse than another in anything, with the sorts that may be on it.
    fn machines(&self) -> Vec<Machine> {
        let zonal = self.sorts.iter().any(|sort| sort.zone.is_some());
        let mut offers: Vec<_> = self.offers.iter().collect();
        offers.sort_by(|a, b| a.price.total_cmp(&b.price).then(b.room.cmp(&a.room)));
        let mut kept: Vec<&crate::Offer> = Vec::new();
        for offer in offers {
            let dominated = kept.iter().any(|cheaper| {
                (!zonal || cheaper.zone == offer.zone)
                    && cheaper.room.iter().zip(offer.room).all(|(one, other)| *one >= other)
            });
            if !dominated {
                kept.push(offer);
            }
        }
        let machine = |offer: &crate::Offer| {
            let here = |sort: &Sort| sort.zone.is_none_or(|zone| zone == offer.zone);
            let sorts = self.sorts.iter().enumerate().filter(|(_, sort)| here(sort));
            Machine {
                room: offer.room,
                price: offer.price,
                zone: if zonal { offer.zone } else { 0 },
                sorts: sorts.map(|(at, _)| at).collect(),
            }
        };
        kept.into_iter().map(machine).collect()
    }

    /// By the resources that they ask for, each with a price in each zone: the dual of fractions of machines. A pod that may be in
    /// any zone is worth what it is in the cheapest.
    fn first_worths(&self, machines: &[Machine]) -> Vec<f64> {
        let mut program = LinearProgram::new(OptimizationDirection::Maximize);
        let zones = machines.iter().map(|machine| machine.zone + 1).max().unwrap_or(1);
        let prices: Vec<[Variable; 3]> = (0..zones)
            .map(|_| [0, 1, 2].map(|_| program.add_var(0.0, (0.0, f64::INFINITY))))
            .collect();
        for machine in machines {
            let room = machine.room.map(|amount| amount as f64);
            let terms = prices[machine.zone].into_iter().zip(room);
            program.add_constraint(terms.collect::<Vec<_>>(), ComparisonOp::Le, machine.price);
        }
        let mut worths = Vec::new();
        for sort in &self.sorts {
            let worth = program.add_var(f64::from(sort.count), (0.0, f64::INFINITY));
            let has = |zone: &usize| machines.iter().any(|machine| machine.zone == *zone);
            for zone in
                (0..zones).filter(|zone| sort.zone.is_none_or(|own| own == *zone)).filter(has)
            {
                let requests = sort.requests.map(|amount| -(amount as f64));
                let mut terms: Vec<_> = prices[zone].into_iter().zip(requests).collect();
                terms.push((worth, 1.0));
                program.add_constraint(terms, ComparisonOp::Le, 0.0);
            }
            worths.push(worth);
        }
        match program.solve() {
            Ok(SolveOutcome::Solution(found)) => {
                worths.iter().map(|worth| found.var_value(*worth).max(TINY)).collect()
            }
            // Any worths will do to begin with.
            Ok(SolveOutcome::Interrupted(_)) | Err(_) => {
                self.sorts.iter().map(|sort| sort.requests[0] as f64).collect()
            }
        }
    }

    /// What the worths prove: they are cut until no machine can hold more worth than it costs, and then all pods cost at
    /// least what they are worth.
    fn judged(&self, machines: &[Machine], mut worths: Vec<f64>, looks: u64) -> Judged {
        let fill = |machine: &Machine, looks: u64| {
            let item = |sort: &usize| Item {
                sort: *sort,
                requests: self.sorts[*sort].requests,
                worth: worths[*sort],
                most: self.sorts[*sort].most(),
            };
            let items: Vec<_> = machine.sorts.iter().map(item).collect();
            knapsack(&items, machine.room, looks)
        };
        let mut fillings: Vec<Filling> =
            machines.iter().map(|machine| fill(machine, looks.min(GLANCE))).collect();
        // Only a machine that might hold more than another does for certain deserves a closer look.
        let certain = fillings.iter().zip(machines);
        let certain = certain.map(|(filling, machine)| filling.found / machine.price);
        let mut certain = certain.fold(0.0, f64::max);
        for (filling, machine) in fillings.iter_mut().zip(machines) {
            if looks > GLANCE && filling.at_most / machine.price > certain * (1.0 + TINY) {
                *filling = fill(machine, looks);
                certain = certain.max(filling.found / machine.price);
            }
        }
        let rates =
            fillings.iter().zip(machines).map(|(filling, machine)| filling.at_most / machine.price);
        let highest = rates.fold(f64::MIN_POSITIVE, f64::max) * (1.0 + TINY);
        for worth in &mut worths {
            *worth /= highest;
        }
        let counts = self.sorts.iter().zip(&worths);
        let price = counts.map(|(sort, worth)| f64::from(sort.count) * worth).sum();
        Judged { worths, price, fillings }
    }
}

/// Each up to an eighth higher or lower, otherwise in each round and the same in each run.
fn shaken(worths: &[f64], round: usize) -> Vec<f64> {
    let lot = |at: usize| (at as f64 * 0.618_034 + round as f64 * 0.414_214).fract();
    worths.iter().enumerate().map(|(at, worth)| worth * (0.875 + 0.25 * lot(at))).collect()
}

impl Sort {
    /// On one machine.
    fn most(&self) -> u32 {
        self.count.min(self.most_per_machine.unwrap_or(u32::MAX))
    }
}

struct Machine {
    room: Amounts,
    price: f64,
    /// Zero where zones do not matter.
    zone: usize,
    sorts: Vec<usize>,
}

struct Judged {
    worths: Vec<f64>,
    price: f64,
    /// By machine.
    fillings: Vec<Filling>,
}

impl Judged {
    /// The fillings that would be worth more than their machine costs, with its price; the worst first.
    fn broken(&self, machines: &[Machine], worths: &[f64]) -> Vec<(Vec<(usize, u32)>, f64)> {
        let mut broken: Vec<_> = self.fillings.iter().zip(machines).collect();
        let excess = |filling: &Filling, machine: &Machine| {
            let pods = filling.pods.iter();
            let worth: f64 = pods.map(|(sort, count)| worths[*sort] * f64::from(*count)).sum();
            worth / machine.price
        };
        broken.retain(|(filling, machine)| excess(filling, machine) > 1.0 + 1e-7);
        broken.sort_by(|a, b| excess(b.0, b.1).total_cmp(&excess(a.0, a.1)));
        let broken = broken.into_iter().take(RULES);
        broken.map(|(filling, machine)| (filling.pods.clone(), machine.price)).collect()
    }
}

/// The highest worths by which no filling that is known so far is worth more than its machine costs.
struct Rules {
    variables: Vec<Variable>,
    solution: Solution,
}

impl Rules {
    /// Begins with machines that hold pods of one sort.
    fn new(problem: &Problem, machines: &[Machine]) -> Option<Self> {
        let mut program = LinearProgram::new(OptimizationDirection::Maximize);
        let mut variables = Vec::new();
        for (at, sort) in problem.sorts.iter().enumerate() {
            let alone = machines.iter().filter(|machine| machine.sorts.contains(&at));
            let alone = alone.filter_map(|machine| {
                let asked = sort.requests.iter().zip(machine.room).filter(|(asks, _)| **asks > 0);
                let most = asked.map(|(asks, has)| has / asks).min()?.min(sort.most().into());
                (most > 0).then(|| machine.price / most as f64)
            });
            let most = alone.fold(f64::INFINITY, f64::min);
            if most.is_infinite() {
                return None;
            }
            variables.push(program.add_var(f64::from(sort.count), (0.0, most)));
        }
        match program.solve().ok()? {
            SolveOutcome::Solution(solution) => Some(Self { variables, solution }),
            SolveOutcome::Interrupted(_) => None,
        }
    }

    fn most(&self) -> f64 {
        self.solution.objective()
    }

    fn worths(&self) -> Vec<f64> {
        let worths = self.variables.iter().map(|at| self.solution.var_value(*at));
        worths.map(|worth| worth.max(0.0)).collect()
    }

    fn with(self, fillings: &[(Vec<(usize, u32)>, f64)]) -> Option<Self> {
        let Self { variables, mut solution } = self;
        for (pods, price) in fillings {
            let terms = pods.iter().map(|(sort, count)| (variables[*sort], f64::from(*count)));
            let more = solution.add_constraint(terms.collect::<Vec<_>>(), ComparisonOp::Le, *price);
            solution = more.ok()?.into_solution().ok()?;
        }
        Some(Self { variables, solution })
    }
}
