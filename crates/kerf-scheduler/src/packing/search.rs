//! Passes over all machines, and repairs of the worst of them.

use super::fill::{Filler, Stock, Taste, fits, padded};
use super::values::Values;
use super::{PER_MACHINE, Packed, Problem};

/// Looks for a cheap packing until the budget is used up.
pub(super) struct Search<'p, const L: usize> {
    problem: &'p Problem,
    /// What passes begin with.
    starts: [Vec<f64>; 2],
    /// The better start: by it machines are compared.
    values: Vec<f64>,
    /// What there is in each realm.
    realms: Vec<Shelf<L>>,
    filler: Filler<L>,
    budget: u64,
    lots: u64,
}

/// A realm as it is searched.
struct Shelf<const L: usize> {
    /// The room of each offer.
    rooms: Vec<[f64; L]>,
    /// What a unit of each resource is worth.
    worth: [f64; L],
    /// The sorts that may come here.
    sorts: Vec<usize>,
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
/// The same when the budget is used up and there is no answer yet.
const OFFERS_IN_A_HURRY: usize = 3;
/// So many budgets, and so many looks in any case, may the first answer cost. Pods that have no machine then take the usual way.
const OVERDRAFT: u64 = 8;
const ANYWAY: u64 = 1_000_000;
/// Repairs in a row that found nothing.
const IN_VAIN: usize = 60;
const FIRST_LOT: u64 = 0x9e37_79b9_7f4a_7c15;

impl<'p, const L: usize> Search<'p, L> {
    pub(super) fn new(problem: &'p Problem, values: Values, budget: u64) -> Self {
        let Values { sorts: starts, resources } = values;
        let shelf = |(at, worth): (usize, Vec<f64>)| Shelf {
            rooms: problem.realms[at].offers.iter().map(|offer| padded(&offer.room)).collect(),
            worth: padded(&worth),
            sorts: (0..problem.sorts.len())
                .filter(|sort| problem.sorts[*sort].realms.contains(&at))
                .collect(),
        };
        let realms = resources.into_iter().enumerate().map(shelf).collect();
        let filler = Filler::new(problem);
        let values = starts[0].clone();
        Self { problem, starts, values, realms, filler, budget, lots: FIRST_LOT }
    }

    pub(super) fn run(mut self) -> Vec<Packed> {
        let mut best = self.passes();
        let mut order = self.worst_first(&best.machines);
        let mut in_vain = 0;
        while in_vain < IN_VAIN && self.filler.work < self.budget && best.machines.len() > 1 {
            let Some(repaired) = self.repair(&best, &order) else {
                in_vain += 1;
                continue;
            };
            best = repaired;
            order = self.worst_first(&best.machines);
            in_vain = 0;
        }
        best.machines
    }

    /// Each pass makes pods more valuable that ended up on poor machines in the one before.
    fn passes(&mut self) -> Packing {
        let all: Vec<_> = self.problem.sorts.iter().map(|sort| sort.count).collect();
        let budget = (self.budget as f64 * FOR_PASSES).max(0.0);
        let mut best: Option<Packing> = None;
        let mut next = Vec::new();
        for pass in 0..PASSES {
            let bias = BIASES[pass % BIASES.len()];
            let taste = [Taste::Mixed, Taste::Alike][pass % 2];
            let start = self.starts.get(pass).cloned();
            let begins = start.is_some();
            let values = start.unwrap_or_else(|| next.clone());
            let packing = self.pass(&all, &values, bias, taste);
            let is_best = best.as_ref().is_none_or(|best| packing.cost < best.cost);
            if begins && is_best {
                self.values.clone_from(&values);
            }
            // What comes after the starts builds on the better one, and then each on the one before it.
            if is_best || !begins {
                next = self.corrected(&values, &packing);
            }
            if is_best {
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
            if self.filler.work > self.budget.saturating_mul(OVERDRAFT).saturating_add(ANYWAY) {
                break;
            }
            let Some(machine) = self.best_machine(&stock, values) else { break };
            let times = machine.pods.iter().map(|(sort, count)| stock.left[*sort] / count).min();
            let times = times.unwrap_or(0).max(1);
            for (sort, count) in &machine.pods {
                stock.left[*sort] -= count * times;
            }
            cost += self.problem.cost(&machine) * f64::from(times);
            machines.extend(std::iter::repeat_n(machine, times as usize));
        }
        if stock.left.iter().any(|left| *left > 0) {
            // Not to be taken for cheaper than one with all pods.
            cost = f64::INFINITY;
        }
        Packing { machines, cost }
    }

    fn best_machine(&mut self, stock: &Stock, values: &[f64]) -> Option<Packed> {
        let mut best: Option<(f64, Packed)> = None;
        for realm in 0..self.realms.len() {
            self.filler.look_at(self.problem, stock, &self.realms[realm].sorts);
            if self.filler.waiting.is_empty() {
                continue;
            }
            for offer in self.promising(realm) {
                let room = self.realms[realm].rooms[offer];
                self.filler.fill(self.problem, stock.taste, room);
                let filled = &self.filler.kinds;
                if filled.is_empty() {
                    continue;
                }
                let offer = self.shrunk(realm, offer);
                let count = |sort: &usize| f64::from(self.filler.count(*sort));
                let worth: f64 = filled.iter().map(|sort| values[*sort] * count(sort)).sum();
                let price = self.problem.offer(realm, offer).price + PER_MACHINE;
                let rate = worth / price;
                if best.as_ref().is_none_or(|(highest, _)| rate > *highest) {
                    let mut pods: Vec<_> =
                        filled.iter().map(|sort| (*sort, self.filler.count(*sort))).collect();
                    pods.sort_unstable();
                    best = Some((rate, Packed { realm, offer, pods }));
                }
            }
        }
        best.map(|(_, machine)| machine)
    }

    /// The offers whose room is worth most for their price, as far as pods are left to use it; and the cheapest for each sort
    /// that fits none of them.
    fn promising(&self, realm: usize) -> Vec<usize> {
        let Shelf { rooms, worth, .. } = &self.realms[realm];
        if rooms.len() <= OFFERS {
            return (0..rooms.len()).collect();
        }
        let mut wanted = [0.0; L];
        for one in &self.filler.waiting {
            for (wanted, asks) in wanted.iter_mut().zip(one.asks) {
                *wanted += asks * f64::from(one.left);
            }
        }
        let offers = &self.problem.realms[realm].offers;
        let rate = |at: usize| {
            let used = wanted.iter().zip(&rooms[at]).map(|(wanted, room)| wanted.min(*room));
            let worth: f64 = used.zip(worth).map(|(used, worth)| used * worth).sum();
            worth / (offers[at].price + PER_MACHINE)
        };
        let mut ranked: Vec<_> = (0..rooms.len()).map(|at| (rate(at), at)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let hurries = self.filler.work > self.budget;
        let most = if hurries { OFFERS_IN_A_HURRY } else { OFFERS };
        let mut chosen: Vec<_> = ranked.iter().take(most).map(|(_, at)| *at).collect();
        for one in &self.filler.waiting {
            let holds = |at: &usize| fits(&one.asks, &rooms[*at]);
            if !chosen.iter().any(holds) {
                // By price, because offers are in that order.
                chosen.extend((0..rooms.len()).find(holds));
            }
        }
        chosen.sort_unstable();
        chosen
    }

    /// The cheapest machine that holds what the filler has put into this one.
    fn shrunk(&self, realm: usize, offer: usize) -> usize {
        let rooms = &self.realms[realm].rooms;
        let mut used = rooms[offer];
        for (used, left) in used.iter_mut().zip(self.filler.room) {
            *used -= left;
        }
        rooms.iter().take(offer).position(|room| fits(&used, room)).unwrap_or(offer)
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

    /// Positions of machines, those first that hold least for their price.
    fn worst_first(&self, machines: &[Packed]) -> Vec<usize> {
        let rate = |machine: &Packed| self.worth(machine) / self.problem.cost(machine);
        let mut rated: Vec<_> =
            machines.iter().enumerate().map(|(at, machine)| (rate(machine), at)).collect();
        rated.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        rated.into_iter().map(|(_, at)| at).collect()
    }

    /// Takes a few machines apart, the worst and some by lot, and packs their pods anew. Nothing where that is no cheaper.
    fn repair(&mut self, packing: &Packing, order: &[usize]) -> Option<Packing> {
        let machines = &packing.machines;
        let worst = 1 + self.draw(3.min(order.len()));
        let mut freed: Vec<usize> = order.iter().take(worst).copied().collect();
        let others = 1 + self.draw(4);
        for _ in 0..others {
            let at = order[self.draw(order.len())];
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
        let better = better?;
        let kept = machines.iter().enumerate().filter(|(at, _)| !freed.contains(at));
        let kept = kept.map(|(_, machine)| machine.clone());
        let machines = kept.chain(better.machines).collect();
        Some(Packing { machines, cost: packing.cost - before + better.cost })
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
