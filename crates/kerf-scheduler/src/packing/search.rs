//! Passes over all machines, and repairs of the worst of them.

use super::fill::{Filler, Stock, Taste};
use super::values::Values;
use super::{PER_MACHINE, Packed, Problem};

/// Looks for a cheap packing until the budget is used up.
pub(super) struct Search<'p> {
    problem: &'p Problem,
    values: Vec<f64>,
    /// What a unit of each resource is worth in each realm.
    resources: Vec<Vec<f64>>,
    filler: Filler,
    budget: u64,
    lots: u64,
}

/// A whole answer.
#[derive(Clone, Debug)]
struct Packing {
    machines: Vec<Packed>,
    cost: f64,
}

/// How much large pods come before small ones that are worth as much together. They are harder to place.
#[derive(Clone, Copy, Debug)]
enum Bias {
    None,
    Some,
    Strong,
}

const BIASES: [Bias; 3] = [Bias::Some, Bias::None, Bias::Strong];
/// Passes with other values, as long as the budget lasts. More hardly find anything better.
const PASSES: usize = 12;
/// Of the budget, for passes; the rest is for repairs.
const FOR_PASSES: f64 = 0.5;
/// Offers that are looked at for a machine: those that are worth most for their price.
const OFFERS: usize = 12;
/// Repairs in a row that found nothing.
const IN_VAIN: usize = 60;
const FIRST_LOT: u64 = 0x9e37_79b9_7f4a_7c15;

impl<'p> Search<'p> {
    pub(super) fn new(problem: &'p Problem, values: Values, budget: u64) -> Self {
        let Values { sorts, resources } = values;
        let filler = Filler::default();
        Self { problem, values: sorts, resources, filler, budget, lots: FIRST_LOT }
    }

    pub(super) fn run(mut self) -> Vec<Packed> {
        let mut best = self.passes();
        let mut in_vain = 0;
        while in_vain < IN_VAIN && self.filler.work < self.budget && best.machines.len() > 1 {
            let repaired = self.repair(&best);
            if repaired.cost < best.cost - 1e-9 {
                best = repaired;
                in_vain = 0;
            } else {
                in_vain += 1;
            }
        }
        best.machines
    }

    /// Each pass makes pods more valuable that ended up on poor machines in the one before.
    fn passes(&mut self) -> Packing {
        let all: Vec<_> = self.problem.sorts.iter().map(|sort| sort.count).collect();
        let budget = (self.budget as f64 * FOR_PASSES).max(0.0);
        let mut best: Option<Packing> = None;
        let mut values = self.values.clone();
        for pass in 0..PASSES {
            let bias = BIASES[pass % BIASES.len()];
            let taste = [Taste::Alike, Taste::Mixed][pass % 2];
            let packing = self.pass(&all, &values, bias, taste);
            values = self.corrected(&values, &packing);
            if best.as_ref().is_none_or(|best| packing.cost < best.cost) {
                best = Some(packing);
            }
            if self.filler.work as f64 >= budget {
                break;
            }
        }
        best.unwrap_or(Packing { machines: Vec::new(), cost: 0.0 })
    }

    /// Buys the machine that holds most for its price, as often as the pods allow; and so on until all have a place.
    fn pass(&mut self, pods: &[u32], values: &[f64], bias: Bias, taste: Taste) -> Packing {
        let weights = values.iter().map(|value| bias.weight(*value)).collect();
        let mut stock = Stock { left: pods.to_vec(), weights, taste };
        let mut machines = Vec::new();
        let mut cost = 0.0;
        while stock.left.iter().any(|left| *left > 0) {
            let Some(machine) = self.best_machine(&stock, values) else { break };
            let times = machine.pods.iter().map(|(sort, count)| stock.left[*sort] / count).min();
            let times = times.unwrap_or(0).max(1);
            for (sort, count) in &machine.pods {
                stock.left[*sort] -= count * times;
            }
            cost += self.problem.cost(&machine) * f64::from(times);
            machines.extend(std::iter::repeat_n(machine, times as usize));
        }
        Packing { machines, cost }
    }

    fn best_machine(&mut self, stock: &Stock, values: &[f64]) -> Option<Packed> {
        let mut best: Option<(f64, Packed)> = None;
        for realm in 0..self.problem.realms.len() {
            let waits =
                |at: usize| stock.left[at] > 0 && self.problem.sorts[at].realms.contains(&realm);
            if !(0..stock.left.len()).any(waits) {
                continue;
            }
            for offer in self.promising(realm, stock) {
                let filled = self.filler.fill(self.problem, stock, realm, offer);
                if filled.pods.is_empty() {
                    continue;
                }
                let filled = self.shrunk(filled);
                let worth: f64 =
                    filled.pods.iter().map(|(sort, count)| values[*sort] * f64::from(*count)).sum();
                let rate = worth / self.problem.cost(&filled);
                if best.as_ref().is_none_or(|(highest, _)| rate > *highest) {
                    best = Some((rate, filled));
                }
            }
        }
        best.map(|(_, machine)| machine)
    }

    /// The offers whose room is worth most for their price, as far as pods are left to use it; and the cheapest for each sort
    /// that fits none of them.
    fn promising(&self, realm: usize, stock: &Stock) -> Vec<usize> {
        let offers = &self.problem.realms[realm].offers;
        if offers.len() <= OFFERS {
            return (0..offers.len()).collect();
        }
        let mut wanted = vec![0.0; offers[0].room.len()];
        for (sort, left) in self.problem.sorts.iter().zip(&stock.left) {
            if *left > 0 && sort.realms.contains(&realm) {
                for (wanted, asks) in wanted.iter_mut().zip(&sort.requests) {
                    *wanted += asks * f64::from(*left);
                }
            }
        }
        let worth = &self.resources[realm];
        let rate = |offer: &super::Offer| {
            let used = wanted.iter().zip(&offer.room).map(|(wanted, room)| wanted.min(*room));
            let worth: f64 = used.zip(worth).map(|(used, worth)| used * worth).sum();
            worth / (offer.price + PER_MACHINE)
        };
        let mut ranked: Vec<_> = (0..offers.len()).map(|at| (rate(&offers[at]), at)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut chosen: Vec<_> = ranked.iter().take(OFFERS).map(|(_, at)| *at).collect();
        for (sort, left) in self.problem.sorts.iter().zip(&stock.left) {
            let fits = |at: &usize| {
                sort.requests.iter().zip(&offers[*at].room).all(|(asks, has)| asks <= has)
            };
            if *left > 0 && sort.realms.contains(&realm) && !chosen.iter().any(fits) {
                // By price, because offers are in that order.
                chosen.extend((0..offers.len()).find(fits));
            }
        }
        chosen.sort_unstable();
        chosen
    }

    /// The same pods on the cheapest machine that holds them.
    fn shrunk(&self, machine: Packed) -> Packed {
        let offers = &self.problem.realms[machine.realm].offers;
        let mut used = vec![0.0; offers[machine.offer].room.len()];
        for (sort, count) in &machine.pods {
            for (used, asks) in used.iter_mut().zip(&self.problem.sorts[*sort].requests) {
                *used += asks * f64::from(*count);
            }
        }
        let holds =
            |offer: &super::Offer| used.iter().zip(&offer.room).all(|(used, room)| used <= room);
        let offer = offers.iter().position(holds).unwrap_or(machine.offer);
        Packed { offer, ..machine }
    }

    /// Values by which machines of this packing would all be equally good.
    fn corrected(&self, values: &[f64], packing: &Packing) -> Vec<f64> {
        let (mut paid, mut pods) = (vec![0.0; values.len()], vec![0.0; values.len()]);
        for machine in &packing.machines {
            let worth: f64 = self.worth(machine);
            let rate = self.problem.cost(machine) / worth.max(f64::MIN_POSITIVE);
            for (sort, count) in &machine.pods {
                let count = f64::from(*count);
                pods[*sort] += count;
                paid[*sort] += rate.sqrt() * count;
            }
        }
        let mean = packing.cost / self.total_worth();
        let mean = mean.sqrt().max(f64::MIN_POSITIVE);
        values
            .iter()
            .enumerate()
            .map(|(at, value)| {
                let factor = if pods[at] > 0.0 { paid[at] / pods[at] / mean } else { 1.0 };
                // In small steps, or sorts would trade places for ever.
                value * factor.clamp(0.8, 1.25)
            })
            .collect()
    }

    fn worth(&self, machine: &Packed) -> f64 {
        machine.pods.iter().map(|(sort, count)| self.values[*sort] * f64::from(*count)).sum()
    }

    fn total_worth(&self) -> f64 {
        let sorts = self.problem.sorts.iter().zip(&self.values);
        sorts.map(|(sort, value)| value * f64::from(sort.count)).sum::<f64>().max(f64::MIN_POSITIVE)
    }

    /// Takes a few machines apart, the worst and some by lot, and packs their pods anew.
    fn repair(&mut self, packing: &Packing) -> Packing {
        let machines = &packing.machines;
        let mut order: Vec<_> = (0..machines.len())
            .map(|at| (self.worth(&machines[at]) / self.problem.cost(&machines[at]), at))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let worst = 1 + self.draw(3.min(order.len()));
        let mut freed: Vec<usize> = order.iter().take(worst).map(|(_, at)| *at).collect();
        let others = 1 + self.draw(4);
        for _ in 0..others {
            let at = order[self.draw(order.len())].1;
            if !freed.contains(&at) {
                freed.push(at);
            }
        }
        let mut pods = vec![0; self.problem.sorts.len()];
        let mut before = 0.0;
        for at in &freed {
            before += self.problem.cost(&machines[*at]);
            for (sort, count) in &machines[*at].pods {
                pods[*sort] += count;
            }
        }
        let values = self.shaken();
        let mut better: Option<Packing> = None;
        let taste = [Taste::Alike, Taste::Mixed][self.draw(2)];
        for bias in BIASES {
            let anew = self.pass(&pods, &values, bias, taste);
            if anew.cost < before - 1e-9
                && better.as_ref().is_none_or(|better| anew.cost < better.cost)
            {
                better = Some(anew);
            }
        }
        let Some(better) = better else { return packing.clone() };
        let kept = machines.iter().enumerate().filter(|(at, _)| !freed.contains(at));
        let kept = kept.map(|(_, machine)| machine.clone());
        Packing {
            machines: kept.chain(better.machines).collect(),
            cost: packing.cost - before + better.cost,
        }
    }

    /// The values, each up to a fifth higher or lower by lot.
    fn shaken(&mut self) -> Vec<f64> {
        let values = self.values.clone();
        values.into_iter().map(|value| value * (0.8 + 0.004 * self.draw(101) as f64)).collect()
    }

    /// A number below `end`, the same in every run.
    fn draw(&mut self, end: usize) -> usize {
        self.lots = self
            .lots
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.lots >> 33).unwrap_or(0) % end.max(1)
    }
}

impl Bias {
    fn weight(self, value: f64) -> f64 {
        match self {
            Self::None => value,
            Self::Some => value * value.sqrt().sqrt(),
            Self::Strong => value * value.sqrt(),
        }
    }
}
