//! The policy `Balanced`: the share of the pool's price that a move saves has to be at least half of the share of the
//! pool's disruption cost that it causes.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use kerf_api::ConsolidationPolicy;
use kerf_model::{
    Node, Pool, Price, Snapshot,
    disruption::Cost,
    labels::{CAPACITY_TYPE, INSTANCE_TYPE, ZONE},
};

use crate::{
    Blocked, Candidate, costs,
    exact::{ceiling, greatest_common_divisor, price},
};

/// Savings may be this many times smaller than the disruption, each as a part of its pool.
pub const K: u32 = 2;

/// What pools cost, and what it would cost to disturb all of their nodes: the wholes that parts are taken of.
#[derive(Clone, Debug, Default)]
pub struct NodePoolTotals(BTreeMap<String, Total>);

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    price: Price,
    cost: Cost,
}

/// What becomes of a move, by the pools that it has to be weighed for. Approved by all, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub scores: Vec<Score>,
    /// What the move has to save for that; nothing where no pool is `Balanced`.
    pub required: Price,
}

/// How a move looks to one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    pub pool: String,
    /// Of what the pool costs.
    pub savings_fraction: f64,
    /// Of what it would cost to disturb the whole pool.
    pub disruption_fraction: f64,
    pub approved: bool,
}

impl NodePoolTotals {
    /// Of the pools that weigh their moves. Every node counts, those too that are no candidates.
    pub fn of(snapshot: &Snapshot, candidates: &[Candidate]) -> Self {
        let known: BTreeMap<usize, &Candidate> =
            candidates.iter().map(|candidate| (candidate.index, candidate)).collect();
        let mut totals = Self::default();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            let Some(pool) = node.pool.as_deref().filter(|pool| is_balanced(pool, &snapshot.pools))
            else {
                continue;
            };
            let (price, cost) = match known.get(&index) {
                Some(candidate) => (candidate.price, candidate.rescheduling_cost),
                None => (price_of(node, &snapshot.pools[pool]), costs::whole_cost(node)),
            };
            totals.add(pool, price, cost);
        }
        totals
    }

    fn add(&mut self, pool: &str, price: Price, cost: Cost) {
        let total = self.0.entry(pool.to_owned()).or_default();
        total.price += price;
        total.cost.0 = total.cost.0.saturating_add(cost.0);
    }

    /// Weighs a move that takes the candidates away and saves that much.
    pub fn weigh(
        &self,
        candidates: &[&Candidate],
        savings: Price,
        pools: &BTreeMap<String, Arc<Pool>>,
    ) -> Verdict {
        let mut parts: BTreeMap<&str, Total> = BTreeMap::new();
        for candidate in candidates {
            let part = parts.entry(&candidate.pool).or_default();
            part.price += candidate.price;
            part.cost.0 = part.cost.0.saturating_add(candidate.rescheduling_cost.0);
        }
        let whole: Price = parts.values().map(|part| part.price).sum();
        let mixed = parts.len() > 1 && whole > Price::ZERO;
        let mut verdict = Verdict { scores: Vec::new(), required: Price::ZERO };
        for (pool, part) in parts {
            if !is_balanced(pool, pools) {
                continue;
            }
            let share = if mixed { Share::new(part.price, whole) } else { Share::ALL };
            let total = self.0.get(pool).copied().unwrap_or_default();
            let required = total.required(part.cost, share);
            verdict.required = verdict.required.max(required);
            verdict.scores.push(total.score(pool, part.cost, share, savings, savings >= required));
        }
        verdict
    }

    /// Whether any move of this node alone could be worth it: none saves more than its removal.
    pub fn may_pass(
        &self,
        candidate: &Candidate,
        pools: &BTreeMap<String, Arc<Pool>>,
    ) -> Result<(), Blocked> {
        match self.0.get(&candidate.pool) {
            Some(total) if total.price > Price::ZERO => {
                self.weigh(&[candidate], candidate.price, pools).result()
            }
            _ => Ok(()),
        }
    }
}

impl Verdict {
    pub fn result(&self) -> Result<(), Blocked> {
        match self.scores.iter().find(|score| !score.approved) {
            Some(score) => {
                let (pool, threshold) = (score.pool.clone(), Score::threshold());
                Err(Blocked::Score { pool, score: score.value(), threshold })
            }
            None => Ok(()),
        }
    }
}

impl Score {
    /// For people and metrics; what is approved was decided without rounding.
    pub fn value(&self) -> f64 {
        if self.savings_fraction <= 0.0 {
            0.0
        } else if self.disruption_fraction == 0.0 {
            f64::INFINITY
        } else {
            self.savings_fraction / self.disruption_fraction
        }
    }

    pub fn threshold() -> f64 {
        1.0 / f64::from(K)
    }
}

fn price_of(node: &Node, pool: &Pool) -> Price {
    let label = |key: &str| node.labels.get(key).map(String::as_str);
    let instance_type = label(INSTANCE_TYPE)
        .and_then(|name| pool.instance_types.iter().find(|one| one.name() == name));
    costs::price(instance_type.map(AsRef::as_ref), label(ZONE), label(CAPACITY_TYPE))
}

fn is_balanced(pool: &str, pools: &BTreeMap<String, Arc<Pool>>) -> bool {
    pools.get(pool).is_some_and(|pool| pool.disruption.policy == ConsolidationPolicy::Balanced)
}

/// The part of a move's savings that falls to a pool.
#[derive(Clone, Copy)]
struct Share {
    part: i128,
    whole: i128,
}

impl Share {
    const ALL: Self = Self { part: 1, whole: 1 };

    /// By what its nodes cost, in lowest terms: the products below would not fit otherwise.
    fn new(part: Price, whole: Price) -> Self {
        let (part, whole) = (i128::from(part.ten_billionths()), i128::from(whole.ten_billionths()));
        let divisor = greatest_common_divisor(part, whole);
        Self { part: part / divisor, whole: whole / divisor }
    }
}

impl Total {
    /// What a move has to save in all, so that the pool's share of it outweighs disturbing this much of the pool.
    fn required(self, disturbed: Cost, share: Share) -> Price {
        let (total, cost) = (i128::from(self.price.ten_billionths()), i128::from(self.cost.0));
        if total <= 0 || cost <= 0 || share.part <= 0 {
            return Price::MAX;
        }
        let product = (i128::from(disturbed.0) * total).checked_mul(share.whole);
        let divisor = (cost * i128::from(K)).checked_mul(share.part);
        match product.zip(divisor) {
            // Even a move without disruption cost has to save something.
            Some((product, divisor)) => price(ceiling(product.max(0), divisor).max(1)),
            None => Price::MAX,
        }
    }

    fn score(
        self,
        pool: &str,
        disturbed: Cost,
        share: Share,
        savings: Price,
        approved: bool,
    ) -> Score {
        let (mut savings_fraction, mut disruption_fraction) = (0.0, 0.0);
        if self.price > Price::ZERO && self.cost > Cost(0) {
            savings_fraction =
                savings.as_f64() * (share.part as f64 / share.whole as f64) / self.price.as_f64();
            disruption_fraction = disturbed.as_f64() / self.cost.as_f64();
        }
        Score { pool: pool.to_owned(), savings_fraction, disruption_fraction, approved }
    }
}
