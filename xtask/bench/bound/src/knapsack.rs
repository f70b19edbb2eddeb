//! How much worth one machine can hold.

use microlp::{ComparisonOp, OptimizationDirection, Problem as LinearProgram, SolveOutcome};

use crate::Amounts;

/// A sort of pods that may be on the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) sort: usize,
    pub(crate) requests: Amounts,
    pub(crate) worth: f64,
    pub(crate) most: u32,
}

/// The best filling that was found, and what no filling exceeds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filling {
    pub(crate) pods: Vec<(usize, u32)>,
    /// What that is worth.
    pub(crate) found: f64,
    pub(crate) at_most: f64,
}

/// Nothing within this of the best is looked for. It makes bounds lower by as much, and the search many times shorter.
const NEAR: f64 = 3e-4;

/// Tries out fillings, best first by worth for the room, and leaves out what cannot be better than the best. After so many
/// `looks` it stops, and what it has not looked at counts by what it might be worth at most.
pub(crate) fn knapsack(items: &[Item], room: Amounts, looks: u64) -> Filling {
    let fits = |item: &&Item| {
        item.worth > 0.0 && item.requests.iter().zip(room).all(|(asks, has)| *asks <= has)
    };
    let mut items: Vec<Item> = items.iter().filter(fits).copied().collect();
    let prices = prices(&items, room);
    let cost = |item: &Item| value(item.requests, prices);
    let rate = |item: &Item| item.worth / cost(item).max(f64::MIN_POSITIVE);
    items.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(a.sort.cmp(&b.sort)));
    // What each and all after it are worth beyond the room that they take.
    let mut surplus = vec![0.0; items.len() + 1];
    for (at, item) in items.iter().enumerate().rev() {
        surplus[at] = surplus[at + 1] + f64::from(item.most) * (item.worth - cost(item)).max(0.0);
    }
    let rests = rests(&items, room);
    let taken = vec![0; items.len()];
    let best = Vec::new();
    let mut search =
        Search { items, prices, surplus, rests, taken, best, found: 0.0, at_most: 0.0, looks };
    search.from(0, room, 0.0);
    let pods = search.best.iter().zip(&search.items).filter(|(count, _)| **count > 0);
    let pods = pods.map(|(count, item)| (item.sort, *count)).collect();
    Filling { pods, found: search.found, at_most: search.at_most.max(search.found) }
}

struct Search {
    items: Vec<Item>,
    prices: [f64; 3],
    surplus: Vec<f64>,
    rests: Vec<Rest>,
    taken: Vec<u32>,
    best: Vec<u32>,
    found: f64,
    /// The most that anything that was left out might have been worth.
    at_most: f64,
    looks: u64,
}

impl Search {
    fn from(&mut self, at: usize, room: Amounts, worth: f64) {
        self.looks = self.looks.saturating_sub(1);
        let at_most = worth + self.rest_at_most(at, room);
        if at == self.items.len() {
            if worth > self.found {
                self.found = worth;
                self.best.clone_from(&self.taken);
            }
            return;
        }
        if at_most <= self.found * (1.0 + NEAR) || (self.looks == 0 && !self.best.is_empty()) {
            self.at_most = self.at_most.max(at_most);
            return;
        }
        let item = self.items[at];
        let asked = item.requests.iter().zip(room).filter(|(asks, _)| **asks > 0);
        let by_room = asked.map(|(asks, has)| has / asks).min().unwrap_or(u64::MAX);
        let most = u32::try_from(by_room).unwrap_or(u32::MAX).min(item.most);
        for count in (0..=most).rev() {
            let mut left = room;
            for (left, asks) in left.iter_mut().zip(item.requests) {
                *left -= asks * u64::from(count);
            }
            self.taken[at] = count;
            self.from(at + 1, left, worth + item.worth * f64::from(count));
        }
        self.taken[at] = 0;
    }
}

impl Search {
    /// What the items from this one on can be worth at most in the room.
    fn rest_at_most(&self, at: usize, room: Amounts) -> f64 {
        let Some(rest) = self.rests.get(at) else { return 0.0 };
        if rest.least.iter().zip(room).any(|(least, has)| *least > has) {
            return 0.0;
        }
        let by_prices = value(room, self.prices) + self.surplus[at];
        let by_mixtures = rest.mixtures.iter().map(|prices| value(room, *prices));
        by_mixtures.fold(by_prices, f64::min)
    }
}

/// What is known of an item and all after it.
struct Rest {
    /// Of each resource, what the most modest asks for. With less, none fits.
    least: Amounts,
    /// Prices of resources by which no item is worth more than it takes, one for each of some mixtures. The prices of the whole
    /// machine say little of a rest that has much of one resource and nothing of another.
    mixtures: Vec<[f64; 3]>,
}

const MIXTURES: [[f64; 3]; 6] = [
    [1.0, 0.0, 0.0],
    [0.8, 0.2, 0.0],
    [0.5, 0.5, 0.0],
    [0.2, 0.8, 0.0],
    [0.0, 1.0, 0.0],
    [0.0, 0.0, 1.0],
];

fn rests(items: &[Item], room: Amounts) -> Vec<Rest> {
    let mut least = [u64::MAX; 3];
    let mut rates = [0.0_f64; MIXTURES.len()];
    let mut rests = Vec::with_capacity(items.len());
    for item in items.iter().rev() {
        for (least, asks) in least.iter_mut().zip(item.requests) {
            *least = (*least).min(asks);
        }
        let shares = MIXTURES.map(|mixture| value(item.requests, per_unit(mixture, room)));
        for (rate, share) in rates.iter_mut().zip(shares) {
            *rate = rate.max(if share > 0.0 { item.worth / share } else { f64::INFINITY });
        }
        let mixtures = MIXTURES.iter().zip(rates).filter(|(_, rate)| rate.is_finite());
        let mixtures = mixtures.map(|(mixture, rate)| per_unit(mixture.map(|it| it * rate), room));
        rests.push(Rest { least, mixtures: mixtures.collect() });
    }
    rests.reverse();
    rests
}

fn per_unit(mixture: [f64; 3], room: Amounts) -> [f64; 3] {
    [0, 1, 2].map(|at: usize| mixture[at] / room[at].max(1) as f64)
}

fn value(amounts: Amounts, prices: [f64; 3]) -> f64 {
    amounts.iter().zip(prices).map(|(amount, price)| *amount as f64 * price).sum()
}

/// What a unit of each resource of the machine is worth: the dual of filling it with fractions of pods. Any prices make a valid
/// search; these make it short.
fn prices(items: &[Item], room: Amounts) -> [f64; 3] {
    let scale = room.map(|amount| amount.max(1) as f64);
    let mut program = LinearProgram::new(OptimizationDirection::Minimize);
    let prices = [0, 1, 2].map(|_| program.add_var(1.0, (0.0, f64::INFINITY)));
    for item in items {
        let over = program.add_var(f64::from(item.most), (0.0, f64::INFINITY));
        let parts = item.requests.iter().zip(scale).map(|(asks, scale)| *asks as f64 / scale);
        let mut terms: Vec<_> = prices.into_iter().zip(parts).collect();
        terms.push((over, 1.0));
        program.add_constraint(terms, ComparisonOp::Ge, item.worth);
    }
    let by_share = || {
        let worth: f64 = items.iter().map(|item| item.worth).sum();
        [worth, worth, 0.0]
    };
    let found = match program.solve() {
        Ok(SolveOutcome::Solution(solution)) => prices.map(|price| solution.var_value(price)),
        Ok(SolveOutcome::Interrupted(_)) | Err(_) => by_share(),
    };
    [0, 1, 2].map(|at: usize| found[at].max(0.0) / scale[at])
}
