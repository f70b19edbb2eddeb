//! What instances cost.

mod product;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kerf_model::Price;

pub use product::{
    NotAPrice, ProductQuery, currency, on_demand_prices, pricing_region, product_queries,
};

use crate::catalogue::KnownPrices;

/// Prices as far as they are known. Each type has a number that grows when one of its prices changes.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    on_demand: BTreeMap<String, Price>,
    /// By type and zone. `None` before the first read: until then spot is taken to cost what on demand does.
    spot: Option<BTreeMap<String, BTreeMap<String, SpotPrice>>>,
    versions: BTreeMap<String, u64>,
    /// Counts what changed for all types.
    version: u64,
}

/// A spot price and when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpotPrice {
    pub price: Price,
    pub read: Timestamp,
}

/// An answer without any price. It changes nothing: an empty answer is a fault of whoever gave it, not free machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPrices {
    #[error("the answer has no on-demand prices of virtual machines")]
    Virtual,
    #[error("the answer has no on-demand prices of bare metal")]
    BareMetal,
    #[error("the answer has no spot prices")]
    Spot,
}

impl Prices {
    /// What is known before anything was read.
    pub fn new(known: KnownPrices<'_>) -> Self {
        Self { on_demand: known.prices.on_demand.clone(), ..Self::default() }
    }

    pub fn on_demand(&self, instance_type: &str) -> Option<Price> {
        self.on_demand.get(instance_type).copied()
    }

    /// After the first read a type or zone that was not in any answer has no price.
    pub fn spot(&self, instance_type: &str, zone: &str) -> Option<Price> {
        match &self.spot {
            None => self.on_demand(instance_type),
            Some(spot) => Some(spot.get(instance_type)?.get(zone)?.price),
        }
    }

    /// How old the spot price is; `None` where there is none that was read.
    pub fn spot_age(
        &self,
        instance_type: &str,
        zone: &str,
        now: Timestamp,
    ) -> Option<SignedDuration> {
        Some(now.duration_since(self.spot.as_ref()?.get(instance_type)?.get(zone)?.read))
    }

    /// Changes whenever a price of the type does.
    pub fn version(&self, instance_type: &str) -> u64 {
        self.version + self.versions.get(instance_type).copied().unwrap_or(0)
    }

    /// Takes in what the price list says. What it leaves out keeps its price. Gives the types that cost something else now.
    pub fn take_on_demand(
        &mut self,
        virtual_machines: BTreeMap<String, Price>,
        bare_metal: BTreeMap<String, Price>,
    ) -> Result<BTreeSet<String>, NoPrices> {
        for (prices, none) in
            [(&virtual_machines, NoPrices::Virtual), (&bare_metal, NoPrices::BareMetal)]
        {
            if prices.is_empty() {
                return Err(none);
            }
        }
        let mut changed = BTreeSet::new();
        for (name, price) in virtual_machines.into_iter().chain(bare_metal) {
            if self.on_demand.insert(name.clone(), price) != Some(price) {
                changed.insert(name);
            }
        }
        self.bump(&changed);
        Ok(changed)
    }

    /// Takes in spot prices: instance type, zone and price. What is left out keeps its price, so that a read may be about
    /// those zones and types alone that are in use.
    pub fn take_spot<'a>(
        &mut self,
        prices: impl IntoIterator<Item = (&'a str, &'a str, Price)>,
        now: Timestamp,
    ) -> Result<BTreeSet<String>, NoPrices> {
        let mut prices = prices.into_iter().peekable();
        if prices.peek().is_none() {
            return Err(NoPrices::Spot);
        }
        if self.spot.is_none() {
            // From now on types that are not among them have no price.
            self.version += 1;
        }
        let spot = self.spot.get_or_insert_default();
        let mut changed = BTreeSet::new();
        for (name, zone, price) in prices {
            let zones = match spot.get_mut(name) {
                Some(zones) => zones,
                None => spot.entry(name.to_owned()).or_default(),
            };
            let before = zones.insert(zone.to_owned(), SpotPrice { price, read: now });
            if before.map(|before| before.price) != Some(price) {
                changed.insert(name.to_owned());
            }
        }
        self.bump(&changed);
        Ok(changed)
    }

    fn bump(&mut self, changed: &BTreeSet<String>) {
        for name in changed {
            *self.versions.entry(name.clone()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::shared;

    fn price(text: &str) -> Price {
        text.parse().unwrap()
    }

    fn known() -> Prices {
        Prices::new(shared().prices("eu-west-1").unwrap())
    }

    fn listed(prices: &[(&str, &str)]) -> BTreeMap<String, Price> {
        prices.iter().map(|(name, text)| ((*name).to_owned(), price(text))).collect()
    }

    #[test]
    fn spot_costs_what_on_demand_does_before_the_first_read() {
        let mut prices = known();
        let start = Timestamp::UNIX_EPOCH;
        assert_eq!(prices.on_demand("m5.large"), Some(price("0.096")));
        assert_eq!(prices.spot("m5.large", "eu-west-1a"), Some(price("0.096")));
        assert_eq!(prices.spot("z9.unheard", "eu-west-1a"), None);
        assert_eq!(prices.spot_age("m5.large", "eu-west-1a", start), None);

        let other = prices.version("m5.xlarge");
        let changed = prices.take_spot([("m5.large", "eu-west-1a", price("0.04"))], start).unwrap();
        assert_eq!(changed, ["m5.large".to_owned()].into());
        assert_eq!(prices.spot("m5.large", "eu-west-1a"), Some(price("0.04")));
        assert_eq!(prices.spot("m5.large", "eu-west-1b"), None);
        assert_eq!(prices.spot("m5.xlarge", "eu-west-1a"), None, "no price any more");
        assert!(prices.version("m5.xlarge") > other, "which is a change");
    }

    #[test]
    fn a_read_keeps_what_it_leaves_out_and_says_what_it_changed() {
        let mut prices = known();
        let start = Timestamp::UNIX_EPOCH;
        let later = start + SignedDuration::from_mins(15);
        prices
            .take_spot([("m5.large", "a", price("0.04")), ("m5.large", "b", price("0.05"))], start)
            .unwrap();
        let version = prices.version("m5.large");
        let same = prices.take_spot([("m5.large", "a", price("0.04"))], later).unwrap();
        assert!(same.is_empty());
        assert_eq!(prices.version("m5.large"), version);
        assert_eq!(prices.spot_age("m5.large", "a", later), Some(SignedDuration::ZERO));
        assert_eq!(prices.spot_age("m5.large", "b", later), Some(SignedDuration::from_mins(15)));
        prices.take_spot([("m5.large", "a", price("0.03"))], later).unwrap();
        assert!(prices.version("m5.large") > version);
        assert_eq!(prices.take_spot([], later), Err(NoPrices::Spot));

        let metal = || listed(&[("m5.metal", "4.6")]);
        let changed = prices
            .take_on_demand(listed(&[("m5.large", "0.107"), ("m5.xlarge", "0.192")]), metal());
        let changed = changed.unwrap();
        assert_eq!(changed, ["m5.large".to_owned(), "m5.metal".to_owned()].into());
        assert_eq!(prices.on_demand("m5.large"), Some(price("0.107")));
        assert_eq!(prices.on_demand("m5.2xlarge"), Some(price("0.384")), "kept");
        assert_eq!(prices.take_on_demand(BTreeMap::new(), metal()), Err(NoPrices::Virtual));
        assert_eq!(prices.take_on_demand(metal(), BTreeMap::new()), Err(NoPrices::BareMetal));
    }
}
