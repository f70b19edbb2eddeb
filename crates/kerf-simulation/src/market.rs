//! Instance types, and their prices as time goes by.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kerf_api::{labels, labels::LabelRules};
use kerf_model::{InstanceType, Offering, Price};
use kerf_provider::InstanceTypes;
use kerf_provider_kwok::{CatalogueError, CatalogueFileError};
use kerf_testbed::Random;
use serde_json::{Value, json};

use crate::{
    overlays::Overlays,
    scenario::{InstanceTypeEntry, PriceMovement, Scenario},
    stock::Stock,
};

/// What is for sale.
#[derive(Clone, Debug)]
pub(crate) struct Market {
    /// At the prices of the start.
    stock: Stock,
    movements: Vec<PriceMovement>,
    /// How far each offering has wandered, per movement.
    wandered: BTreeMap<(usize, Place), i64>,
    prices: BTreeMap<Place, Price>,
    overlays: Option<Arc<Overlays>>,
    /// Of those pools in which overlays change it.
    overlaid: BTreeMap<(String, Place), Price>,
    random: Random,
}

/// What is bought: an instance type, in a zone, on terms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) capacity_type: String,
}

#[derive(Debug, thiserror::Error)]
pub enum MarketError {
    #[error(transparent)]
    File(#[from] CatalogueFileError),
    #[error("cannot use the scenario's instanceTypes: {0}")]
    List(CatalogueError),
    #[error("cannot use the instance types that nodes show: {0}; give yours with --instance-types")]
    Seen(CatalogueError),
    #[error(
        "the instance types of pool {pool} are not known ({because}), and no node shows any; give them with --instance-types"
    )]
    UnknownTypes { pool: String, because: String },
    #[error(
        "prices[{index}] of the scenario matches no offering: check its types, zones and capacityType"
    )]
    Nothing { index: usize },
}

impl Place {
    /// What a claim was launched as.
    pub(crate) fn of(claim: &Value) -> Self {
        let label = |name: &str| {
            let value = claim.pointer("/metadata/labels").and_then(|labels| labels.get(name));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        Self {
            instance_type: label(labels::INSTANCE_TYPE),
            zone: label(labels::ZONE),
            capacity_type: label(labels::CAPACITY_TYPE),
        }
    }
}

/// Factors are counted in millionths.
const WHOLE: i64 = 1_000_000;

impl Market {
    pub(crate) fn open(scenario: &Scenario, random: Random) -> Result<Self, MarketError> {
        let mut market = Self {
            stock: Stock::of(scenario)?,
            movements: scenario.prices.clone(),
            wandered: BTreeMap::new(),
            prices: BTreeMap::new(),
            overlays: None,
            overlaid: BTreeMap::new(),
            random,
        };
        market.note_prices(Duration::ZERO);
        for (index, movement) in market.movements.iter().enumerate() {
            if !market.prices.keys().any(|place| movement.concerns(place)) {
                return Err(MarketError::Nothing { index });
            }
        }
        Ok(market)
    }

    /// From now on the scenario's overlays decide what is paid.
    pub(crate) fn overlaid_by(mut self, scenario: &Scenario) -> Self {
        self.overlays = Overlays::of(scenario).map(Arc::new);
        self.note_overlaid();
        self
    }

    fn note_overlaid(&mut self) {
        let prices = |overlays: &Arc<Overlays>| overlays.prices(&self.offers(), self.label_rules());
        self.overlaid = self.overlays.as_ref().map(prices).unwrap_or_default();
    }

    /// What each pool can launch, at the prices of now.
    pub(crate) fn offers(&self) -> BTreeMap<String, InstanceTypes> {
        let now = |one: &Arc<InstanceType>| {
            if self.movements.is_empty() {
                return Arc::clone(one);
            }
            Arc::new(repriced(one, |offering| {
                let price = place(one, offering).and_then(|place| self.prices.get(&place).copied());
                price.unwrap_or(offering.price)
            }))
        };
        let shelves = self.stock.shelves.iter().map(|shelf| shelf.iter().map(now).collect());
        let shelves: Vec<InstanceTypes> = shelves.collect();
        let of_pool = self.stock.of_pool.iter();
        of_pool.map(|(pool, shelf)| (pool.clone(), Arc::clone(&shelves[*shelf]))).collect()
    }

    pub(crate) fn label_rules(&self) -> &LabelRules {
        &self.stock.label_rules
    }

    /// What a pool pays.
    pub(crate) fn price_in(&self, pool: &str, place: &Place) -> Price {
        let overlaid = (!self.overlaid.is_empty())
            .then(|| self.overlaid.get(&(pool.to_owned(), place.clone())).copied());
        overlaid.flatten().unwrap_or_else(|| self.price(place))
    }

    pub(crate) fn price(&self, place: &Place) -> Price {
        self.prices.get(place).copied().unwrap_or_default()
    }

    pub(crate) fn sells(&self, place: &Place) -> bool {
        self.prices.contains_key(place)
    }

    /// When prices change.
    pub(crate) fn changes(&self, end: Duration) -> BTreeSet<Duration> {
        let mut times = BTreeSet::new();
        for movement in &self.movements {
            times.extend(movement.steps.iter().map(|step| step.at.as_duration()));
            if let Some(wander) = &movement.wander {
                let every = wander.every.as_duration();
                times.extend((1..).map(|tick: u32| every * tick).take_while(|at| *at < end));
            }
        }
        times.retain(|at| *at < end && !at.is_zero());
        times
    }

    /// Moves the prices to this time after the start.
    pub(crate) fn move_to(&mut self, now: Duration) {
        for (index, movement) in self.movements.iter().enumerate() {
            let Some(wander) = &movement.wander else { continue };
            if !now.as_nanos().is_multiple_of(wander.every.as_duration().as_nanos()) {
                continue;
            }
            let most = millionths(wander.percent / 100.0);
            // A third of the way at a time: prices drift rather than jump.
            let stride = most / 3;
            for place in self.prices.keys().filter(|place| movement.concerns(place)) {
                let from = self.wandered.entry((index, place.clone())).or_default();
                let draw = self.random.below(u64::try_from(2 * stride + 1).unwrap_or(1));
                let step = i64::try_from(draw).unwrap_or_default() - stride;
                *from = (*from + step).clamp(-most, most);
            }
        }
        self.note_prices(now);
        self.note_overlaid();
    }

    fn note_prices(&mut self, now: Duration) {
        let mut prices = BTreeMap::new();
        for one in self.stock.shelves.iter().flatten() {
            for offering in one.offerings() {
                let Some(place) = place(one, offering) else { continue };
                let price = self.movements.iter().enumerate().fold(
                    offering.price,
                    |price, (index, movement)| {
                        if !movement.concerns(&place) {
                            return price;
                        }
                        let step = movement.steps.iter().rev().find(|s| s.at.as_duration() <= now);
                        let factor = step.map_or(WHOLE, |step| millionths(step.factor));
                        let wandered = self.wandered.get(&(index, place.clone()));
                        let wandered = WHOLE + wandered.copied().unwrap_or_default();
                        price.times(factor, WHOLE).times(wandered, WHOLE)
                    },
                );
                prices.insert(place, price);
            }
        }
        self.prices = prices;
    }
}

impl PriceMovement {
    fn concerns(&self, place: &Place) -> bool {
        let by_type = self.types.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => place.instance_type.starts_with(beginning),
            None => place.instance_type == *pattern,
        });
        (self.types.is_empty() || by_type)
            && (self.zones.is_empty() || self.zones.contains(&place.zone))
            && self.capacity_type.as_ref().is_none_or(|wanted| *wanted == place.capacity_type)
    }
}

/// The same instance type at other prices.
pub fn repriced(one: &InstanceType, price: impl Fn(&Offering) -> Price) -> InstanceType {
    let offerings = one.offerings().iter();
    let offerings =
        offerings.map(|offering| Offering { price: price(offering), ..offering.clone() });
    InstanceType::new(
        one.name(),
        one.requirements().clone(),
        offerings.collect(),
        one.capacity().clone(),
        one.overhead().clone(),
    )
}

pub(crate) fn place(one: &InstanceType, offering: &Offering) -> Option<Place> {
    Some(Place {
        instance_type: one.name().to_owned(),
        zone: offering.zone()?.to_owned(),
        capacity_type: offering.capacity_type()?.to_owned(),
    })
}

fn millionths(factor: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "factors are checked to be small")]
    let whole = (factor * 1e6).round() as i64;
    whole
}

/// The list in the form of a catalogue file, so that there is one reader of catalogues.
pub(crate) fn written_out(entries: &[InstanceTypeEntry]) -> String {
    let is_in = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let entries = entries.iter().map(|entry| {
        let offering = |zone: &String, terms: &str, price: f64| {
            json!({
                "Price": price, "Available": true,
                "Requirements": [is_in(labels::CAPACITY_TYPE, terms), is_in(labels::ZONE, zone)],
            })
        };
        let offerings = entry.zones.iter().flat_map(|zone| {
            let spot =
                entry.spot_price.map(|price| offering(zone, labels::CAPACITY_TYPE_SPOT, price));
            let on_demand = offering(zone, labels::CAPACITY_TYPE_ON_DEMAND, entry.price);
            spot.into_iter().chain([on_demand])
        });
        json!({
            "name": entry.name, "architecture": entry.arch, "operatingSystems": ["linux"],
            "resources": {
                "cpu": entry.cpu.0, "memory": entry.memory.0, "pods": entry.pods.to_string(),
                "ephemeral-storage": "20Gi",
            },
            "offerings": offerings.collect::<Vec<_>>(),
        })
    });
    Value::Array(entries.collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn market(prices: &str) -> Market {
        let yaml = format!(
            "length: 24h\npools: [{{name: p}}]\nworkloads: []\nprices: {prices}\n\
             instanceTypes: [{{name: m5.large, cpu: 2, memory: 8Gi, price: 0.1, spotPrice: 0.04}}]\n"
        );
        let scenario = Scenario::from_yaml(&yaml, "x.yaml").unwrap();
        Market::open(&scenario, Random::seeded(3)).unwrap()
    }

    fn price(market: &Market, capacity_type: &str) -> String {
        let place = Place {
            instance_type: "m5.large".into(),
            zone: "test-zone-b".into(),
            capacity_type: capacity_type.into(),
        };
        let told = market.offers()["p"][0].offering_price("test-zone-b", capacity_type).unwrap();
        assert_eq!(told, market.price(&place));
        told.as_f64().to_string()
    }

    #[test]
    fn steps_change_what_they_name_from_their_time_on() {
        let mut market =
            market("[{capacityType: spot, types: [m5*], steps: [{at: 2h, factor: 1.5}]}]");
        assert_eq!(market.changes(Duration::from_hours(24)).len(), 1);
        assert_eq!(
            (price(&market, "spot"), price(&market, "on-demand")),
            ("0.04".into(), "0.1".into())
        );
        market.move_to(Duration::from_hours(2));
        assert_eq!(
            (price(&market, "spot"), price(&market, "on-demand")),
            ("0.06".into(), "0.1".into())
        );
    }

    #[test]
    fn a_movement_of_nothing_is_refused() {
        let yaml =
            "length: 1h\npools: [{name: p}]\nworkloads: []\nprices: [{types: [m99*], steps: []}]\n";
        let scenario = Scenario::from_yaml(yaml, "x.yaml").unwrap();
        let told = Market::open(&scenario, Random::seeded(3)).unwrap_err().to_string();
        assert!(told.starts_with("prices[0] of the scenario matches no offering"), "{told}");
    }

    #[test]
    fn prices_wander_within_their_bounds() {
        let mut market = market("[{capacityType: spot, wander: {percent: 9, every: 10m}}]");
        let times = market.changes(Duration::from_hours(24));
        assert_eq!(times.len(), 143);
        let mut seen = BTreeSet::new();
        for at in times {
            market.move_to(at);
            let told = price(&market, "spot");
            assert!((0.0364..=0.0436).contains(&told.parse().unwrap()), "{told}");
            seen.insert(told);
            assert_eq!(price(&market, "on-demand"), "0.1");
        }
        assert!(seen.len() > 10, "prices moved");
    }
    #[test]
    fn prices_move_as_often_as_is_said() {
        let mut market = market("[{capacityType: spot, wander: {percent: 9, every: 15500ms}}]");
        let times = market.changes(Duration::from_hours(1));
        assert_eq!(times.len(), 232);
        let told = times.iter().map(|at| {
            let before = price(&market, "spot");
            market.move_to(*at);
            price(&market, "spot") != before
        });
        // Some stay where they are, at the end of their range.
        assert!(told.filter(|moved| *moved).count() > 200);
    }
}
