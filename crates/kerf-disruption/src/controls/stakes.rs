//! What a move costs and saves in each pool, and up to which price it is worth it.

use std::{collections::BTreeMap, sync::Arc};

use kerf_model::{
    Pool, Price,
    churn::{ChurnControls, Fraction},
    disruption::Cost,
};

use crate::{
    Blocked, Candidate,
    exact::{ceiling, price},
};

/// The nodes that a move takes away, by pool.
///
/// Where pools are mixed each has to be satisfied with its share of the savings, in proportion to what its nodes
/// cost. One pool's savings do not pay for another's disruption.
#[derive(Clone, Debug)]
pub struct Stakes {
    price: Price,
    /// By name of the pool.
    pools: Vec<Stake>,
}

#[derive(Clone, Debug)]
pub struct Stake {
    pub pool: String,
    /// Of its nodes.
    pub price: Price,
    /// Of moving their pods. A node whose pods cost nothing does not pay for another.
    pub cost: Cost,
    pub controls: ChurnControls,
}

/// What a replacement may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Below(Price),
    AtMost(Price),
}

impl Bound {
    /// The highest price within it.
    pub fn highest(self) -> Price {
        match self {
            Self::Below(price) => below(price),
            Self::AtMost(price) => price,
        }
    }

    /// The stricter one of this and what costs so much.
    pub fn and_at_most(self, price: Price) -> Self {
        if price < self.highest() { Self::AtMost(price) } else { self }
    }
}

impl Stakes {
    pub fn of<'a>(
        candidates: impl IntoIterator<Item = &'a Candidate>,
        pools: &BTreeMap<String, Arc<Pool>>,
    ) -> Self {
        let mut stakes: BTreeMap<&str, Stake> = BTreeMap::new();
        for candidate in candidates {
            let stake = stakes.entry(&candidate.pool).or_insert_with(|| Stake {
                pool: candidate.pool.clone(),
                price: Price::ZERO,
                cost: Cost(0),
                controls: pools
                    .get(&candidate.pool)
                    .map(|pool| pool.disruption.controls)
                    .unwrap_or_default(),
            });
            stake.price += candidate.price;
            stake.cost.0 = stake.cost.0.saturating_add(candidate.disruption_cost.0.max(0));
        }
        Self::new(stakes.into_values().collect())
    }

    pub fn new(pools: Vec<Stake>) -> Self {
        Self { price: pools.iter().map(|stake| stake.price).sum(), pools }
    }

    /// Of all the nodes.
    pub fn price(&self) -> Price {
        self.price
    }

    pub fn pools(&self) -> &[Stake] {
        &self.pools
    }

    /// What the savings thresholds ask for, of all pools together.
    pub fn required(&self) -> Price {
        self.pools.iter().map(Stake::required).sum()
    }

    /// Whether the nodes may go without a replacement: the savings threshold alone has a say in it.
    pub fn allow_removal(&self) -> Result<(), Blocked> {
        self.pools.iter().try_for_each(|stake| {
            let enough = i128::from(stake.price.ten_billionths()) * i128::from(Cost::ONE.0)
                >= stake.required_by_cost();
            if enough { Ok(()) } else { Err(stake.blocked(stake.price)) }
        })
    }

    /// Whether the nodes may be replaced by something that may turn out to cost this much.
    pub fn allow_replacement(&self, launch: Price) -> Result<(), Blocked> {
        if self.price <= Price::ZERO {
            return Err(Blocked::UnknownPrice);
        }
        if launch > self.strictly_cheaper() {
            return Err(Blocked::NotCheaper {
                price: self.price,
                cheapest: (launch < Price::MAX).then_some(launch),
            });
        }
        if launch > self.improved() {
            let (price, factor) = (self.price, self.factor());
            let pool = self.strictest().map_or_else(String::new, |stake| stake.pool.clone());
            return Err(Blocked::PriceFactor { pool, price, factor, cheapest: launch });
        }
        match self.pools.iter().find(|stake| launch > stake.worth_it(self.price)) {
            Some(stake) => Err(stake.blocked(stake.share_of(self.price - launch, self.price))),
            None => Ok(()),
        }
    }

    /// The highest price of a replacement that [`Self::allow_replacement`] lets pass.
    pub fn at_most(&self) -> Price {
        self.bound().highest()
    }

    /// Whether a control asks for more than that a replacement is cheaper.
    pub(crate) fn controls_bind(&self) -> bool {
        self.at_most() < self.strictly_cheaper()
    }

    /// The same as it is said to people: two of the rules ask for less than a price.
    pub fn bound(&self) -> Bound {
        let cheaper = self.strictly_cheaper().min(self.improved());
        match self.pools.iter().map(|stake| stake.worth_it(self.price)).min() {
            Some(worth_it) if worth_it < cheaper => Bound::AtMost(worth_it),
            _ => Bound::Below(cheaper + Price::from_ten_billionths(1)),
        }
    }

    /// The strictest among the pools: a factor of 0 is a veto.
    pub fn factor(&self) -> Fraction {
        self.strictest().map_or(Fraction::ONE, |stake| stake.controls.price_improvement_factor)
    }

    fn strictest(&self) -> Option<&Stake> {
        self.pools.iter().min_by_key(|stake| stake.controls.price_improvement_factor)
    }

    fn strictly_cheaper(&self) -> Price {
        below(self.price)
    }

    /// What is strictly below the price times the factor.
    fn improved(&self) -> Price {
        let product =
            i128::from(self.price.ten_billionths()) * i128::from(self.factor().billionths());
        below(price(ceiling(product, Fraction::ONE.billionths().into())))
    }
}

impl Stake {
    /// What of the savings of a move that takes away nodes for `whole` falls to this pool.
    pub fn share_of(&self, savings: Price, whole: Price) -> Price {
        if whole <= Price::ZERO {
            return Price::ZERO;
        }
        savings.times(self.price.ten_billionths(), whole.ten_billionths())
    }

    /// What has to be saved in this pool per hour, rounded up.
    fn required(&self) -> Price {
        price(ceiling(self.required_by_cost(), Cost::ONE.0.into()))
    }

    /// The same without rounding, in units of a price times a cost.
    fn required_by_cost(&self) -> i128 {
        let per_unit = self.controls.savings_threshold.per_unit().ten_billionths();
        i128::from(per_unit) * i128::from(self.cost.0)
    }

    /// The highest price of a replacement for nodes that cost `whole` at which this pool's share suffices.
    fn worth_it(&self, whole: Price) -> Price {
        let required = self.required_by_cost();
        if required <= 0 {
            return Price::MAX;
        }
        let own = i128::from(self.price.ten_billionths()) * i128::from(Cost::ONE.0);
        match required.checked_mul(whole.ten_billionths().into()) {
            Some(product) if own > 0 => whole - price(ceiling(product, own)),
            _ => -Price::MAX,
        }
    }

    fn blocked(&self, savings: Price) -> Blocked {
        if self.price <= Price::ZERO {
            return Blocked::UnknownPrice;
        }
        let (pool, required) = (self.pool.clone(), self.required());
        Blocked::SavingsThreshold { pool, savings, required, cost: self.cost }
    }
}

fn below(price: Price) -> Price {
    price - Price::from_ten_billionths(1)
}
