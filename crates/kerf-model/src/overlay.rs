//! What users say about instance types that the provider does not know: other prices, further resources.
//!
//! [`adjust`] is a pure function of the overlays and of what the provider has at this moment. Nothing is kept between two calls, so an
//! offering that has just appeared has its price at once.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use crate::{
    InstanceType, KnownLabels, Labels, Offering, Price, Requirement, Requirements, Resources,
    Undefined, labels::NODE_POOL,
};

/// A `NodeOverlay` that is valid by itself.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    pub name: String,
    /// The highest one decides. Two of the same weight must not say something about the same thing.
    pub weight: i32,
    pub requirements: Requirements,
    pub price: Option<PriceChange>,
    /// Added to the capacity of the type; replaces what has the same name.
    pub capacity: Resources,
}

/// How a price changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceChange {
    To(Price),
    By(Price),
    /// The percentage as a number of its own, with the digits of a price.
    ByPercent(Price),
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a change of a price: write +0.01, -0.01, +10% or -10%")]
pub struct PriceChangeError(String);

/// A pool and what the provider has for it.
#[derive(Clone, Copy, Debug)]
pub struct Offered<'a> {
    pub pool: &'a str,
    /// Those of the pool's template.
    pub labels: &'a Labels,
    pub types: &'a [Arc<InstanceType>],
}

/// What came of the overlays.
#[derive(Clone, Debug, Default)]
pub struct Adjusted {
    /// By pool, in the provider's order. Types that no overlay changes are the provider's own.
    pub types: BTreeMap<String, Vec<Arc<InstanceType>>>,
    /// By name, the overlays that are left out everywhere because they contradict another.
    pub clashes: BTreeMap<String, Clash>,
    /// By pool, and by the name of the overlay that decides.
    pub effects: BTreeMap<String, BTreeMap<String, Effect>>,
}

/// How much of what a pool has is as an overlay says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    pub priced_offerings: usize,
    pub types_with_capacity: usize,
}

/// Why an overlay is left out: the first thing that another one of the same weight has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    pub with: String,
    pub pool: String,
    pub instance_type: String,
    pub about: About,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    Price { capacity_type: String, zone: String },
    Capacity { resource: String },
}

/// Applies overlays to what the provider has. Of two that contradict each other, the one whose name sorts last is applied, as in
/// Karpenter; the other is left out as a whole.
pub fn adjust(overlays: &[Overlay], offered: &[Offered<'_>], known: &KnownLabels) -> Adjusted {
    let mut order: Vec<&Overlay> = overlays.iter().collect();
    order.sort_by(|a, b| (b.weight, &b.name).cmp(&(a.weight, &a.name)));
    let mut rows: Vec<Row<'_>> = offered.iter().flat_map(Row::all).collect();
    let mut clashes = BTreeMap::new();
    for overlay in order {
        let matched: Vec<Vec<usize>> = rows.iter().map(|row| row.matches(overlay, known)).collect();
        let found = rows.iter().zip(&matched).find_map(|(row, at)| row.clash(overlay, at));
        if let Some(clash) = found {
            clashes.insert(overlay.name.clone(), clash);
            continue;
        }
        for (row, at) in rows.iter_mut().zip(&matched).filter(|(_, at)| !at.is_empty()) {
            row.take(overlay, at);
        }
    }
    let pools = offered.iter().map(|one| (one.pool.to_owned(), Vec::new()));
    let mut types: BTreeMap<String, Vec<Arc<InstanceType>>> = pools.collect();
    let mut effects: BTreeMap<String, BTreeMap<String, Effect>> = BTreeMap::new();
    for row in rows {
        row.count(&mut effects);
        types.entry(row.pool.to_owned()).or_default().push(row.adjusted());
    }
    Adjusted { types, clashes, effects }
}

/// One type of one pool, with the overlays that were accepted for it.
struct Row<'a> {
    pool: &'a str,
    instance_type: &'a Arc<InstanceType>,
    /// What a node of this type in this pool carries.
    carries: Requirements,
    /// By the index of the offering: two offerings may have the same requirements.
    prices: BTreeMap<usize, Decided<'a>>,
    capacity: BTreeMap<&'a str, Decided<'a>>,
}

/// Of the overlays about one thing, the one that decides and the last that was accepted.
struct Decided<'a> {
    by: &'a Overlay,
    last: &'a Overlay,
}

impl<'a> Row<'a> {
    fn all(offered: &Offered<'a>) -> Vec<Self> {
        let row = |instance_type: &'a Arc<InstanceType>| {
            let mut carries = Requirements::from_labels(offered.labels);
            carries.add(Requirement::is_in(NODE_POOL, [offered.pool]));
            carries.extend(instance_type.requirements().iter().cloned());
            let (prices, capacity) = (BTreeMap::new(), BTreeMap::new());
            Self { pool: offered.pool, instance_type, carries, prices, capacity }
        };
        offered.types.iter().map(row).collect()
    }

    /// The offerings that the overlay is about.
    fn matches(&self, overlay: &Overlay, known: &KnownLabels) -> Vec<usize> {
        if self.carries.compatible(&overlay.requirements, Undefined::Refused).is_err() {
            return Vec::new();
        }
        let offerings = self.instance_type.offerings().iter().enumerate();
        let served = offerings.filter(|(_, one)| one.serves(&overlay.requirements, known));
        served.map(|(index, _)| index).collect()
    }

    fn clash(&self, overlay: &Overlay, offerings: &[usize]) -> Option<Clash> {
        let same = |decided: &&Decided<'_>| decided.last.weight == overlay.weight;
        let clash = |decided: &Decided<'_>, about| Clash {
            with: decided.last.name.clone(),
            pool: self.pool.to_owned(),
            instance_type: self.instance_type.name().to_owned(),
            about,
        };
        let of_price = || {
            overlay.price?;
            offerings.iter().find_map(|index| {
                let decided = self.prices.get(index).filter(same)?;
                let offering = &self.instance_type.offerings()[*index];
                let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
                let (capacity_type, zone) = (text(offering.capacity_type()), text(offering.zone()));
                Some(clash(decided, About::Price { capacity_type, zone }))
            })
        };
        let of_capacity = || {
            overlay.capacity.names().filter(|_| !offerings.is_empty()).find_map(|resource| {
                let decided = self.capacity.get(resource).filter(same)?;
                Some(clash(decided, About::Capacity { resource: resource.to_owned() }))
            })
        };
        of_price().or_else(of_capacity)
    }

    fn take(&mut self, overlay: &'a Overlay, offerings: &[usize]) {
        let first = || Decided { by: overlay, last: overlay };
        if overlay.price.is_some() {
            for index in offerings {
                self.prices.entry(*index).or_insert_with(first).last = overlay;
            }
        }
        for resource in overlay.capacity.names() {
            self.capacity.entry(resource).or_insert_with(first).last = overlay;
        }
    }

    fn count(&self, effects: &mut BTreeMap<String, BTreeMap<String, Effect>>) {
        let mut of = |overlay: &Overlay, add: fn(&mut Effect)| {
            let of_pool = effects.entry(self.pool.to_owned()).or_default();
            add(of_pool.entry(overlay.name.clone()).or_default());
        };
        for decided in self.prices.values() {
            of(decided.by, |effect| effect.priced_offerings += 1);
        }
        // Each overlay once for a type, however many resources it adds.
        let by_name = self.capacity.values().map(|decided| (&decided.by.name, decided.by));
        for overlay in by_name.collect::<BTreeMap<_, _>>().into_values() {
            of(overlay, |effect| effect.types_with_capacity += 1);
        }
    }

    fn adjusted(self) -> Arc<InstanceType> {
        let base = self.instance_type;
        if self.prices.is_empty() && self.capacity.is_empty() {
            return Arc::clone(base);
        }
        let mut capacity = base.capacity().clone();
        for (resource, decided) in &self.capacity {
            capacity.set(resource, decided.by.capacity.amount(resource));
        }
        let priced = |(index, offering): (usize, &Offering)| {
            let change = self.prices.get(&index).and_then(|decided| decided.by.price);
            let price = change.map_or(offering.price, |change| change.of(offering.price));
            let base_price = change.map(|_| offering.price);
            Offering { price, base_price, ..offering.clone() }
        };
        let offerings = base.offerings().iter().enumerate().map(priced).collect();
        let (requirements, overhead) = (base.requirements().clone(), base.overhead().clone());
        let changed = InstanceType::new(base.name(), requirements, offerings, capacity, overhead);
        let changed = changed.with_overlaid_capacity(!self.capacity.is_empty());
        Arc::new(changed.with_volume_limits(base.volume_limits().clone()))
    }
}

impl PriceChange {
    /// The price after the change; an adjustment does not go below zero, and what cannot be bought stays so.
    pub fn of(self, price: Price) -> Price {
        match self {
            Self::To(to) => to,
            _ if price == Price::MAX => price,
            Self::By(amount) => (price + amount).max(Price::ZERO),
            Self::ByPercent(percent) => {
                let hundred = Price::from_ten_billionths(1_000_000_000_000);
                let factor = (hundred + percent).max(Price::ZERO);
                price.times(factor.ten_billionths(), hundred.ten_billionths())
            }
        }
    }
}

/// As `priceAdjustment` has it.
impl FromStr for PriceChange {
    type Err = PriceChangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || PriceChangeError(text.to_owned());
        if !text.starts_with(['+', '-']) {
            return Err(error());
        }
        let (number, change): (&str, fn(Price) -> Self) = match text.strip_suffix('%') {
            Some(number) => (number, Self::ByPercent),
            None => (text, Self::By),
        };
        number.parse().map(change).map_err(|_| error())
    }
}

/// Begins with Karpenter's text, which says no more than that.
impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { with, pool, instance_type, about } = self;
        write!(f, "conflict with another overlay: {with} has the same weight and sets ")?;
        match about {
            About::Price { capacity_type, zone } => {
                write!(f, "the price of {instance_type} ({capacity_type}, {zone})")?;
            }
            About::Capacity { resource } => write!(f, "{resource} of {instance_type}")?,
        }
        write!(f, " in NodePool {pool}")
    }
}

#[cfg(test)]
mod tests;
