//! What can be bought: EC2's types with the room that pods have on them, and prices.

use anyhow::{Context, Result};
use bench_bound::{Amounts, Offer};
use kerf_aws_model::catalogue::{Architecture, Catalogue, RegionType, Trait};
use kerf_aws_model::instance_types::{BareType, ClassShape, DiscoveredMemory, Known, Settings};
use serde_json::{Value, json};

use super::dice::Dice;

const REGION: &str = "us-east-1";
pub(super) const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];
/// A core and a GiB on demand, as prices of the families c, m and r of one generation say it: of two types, the one is the
/// greater bargain that is cheaper in proportion to this.
const PER_CORE: f64 = 0.034;
const PER_GIB: f64 = 0.0036;
/// Spot is so sensitive to single bargains that a plan without them has to be shown as well.
pub(super) const BARGAINS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    OnDemand,
    Spot,
}

/// The types of a `NodePool` as most are: x86, families c, m and r of the third generation or later, no accelerators, no
/// bare metal.
#[derive(Clone, Debug)]
pub(super) struct Market {
    terms: Terms,
    types: Vec<MachineType>,
}

#[derive(Clone, Debug)]
struct MachineType {
    name: String,
    room: Amounts,
    /// By zone, where it is sold there.
    prices: [Option<f64>; ZONES.len()],
}

impl Market {
    /// The spot prices are those of the seed.
    pub(super) fn new(terms: Terms, seed: u64) -> Result<Self> {
        let catalogue = Catalogue::built_in().context("reading the built-in catalogue of EC2")?;
        let region = catalogue.region(REGION).context("the catalogue has no such region")?;
        let prices = catalogue.prices(REGION).context("the catalogue has no prices")?;
        let class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "bench"},
            "spec": {"amiFamily": "AL2023"},
        });
        let shape = ClassShape::new(&serde_json::from_value(class)?, None)?;
        let mut types = Vec::new();
        for one in region.types.iter().filter(|one| is_usual(one)) {
            let name = &one.facts.name;
            let Some(on_demand) = prices.on_demand(name) else { continue };
            let price = |zone: &str| {
                let sold = one.zones.iter().any(|known| known == zone);
                sold.then(|| match terms {
                    Terms::OnDemand => on_demand.as_f64(),
                    Terms::Spot => on_demand.as_f64() * spot_share(name, zone, seed),
                })
            };
            let prices = ZONES.map(price);
            if prices.iter().any(Option::is_some) {
                types.push(MachineType { name: name.clone(), room: room(one, &shape), prices });
            }
        }
        Ok(Self { terms, types })
    }

    pub(super) fn types(&self) -> usize {
        self.types.len()
    }

    /// Without the types that have most to offer for their price.
    pub(super) fn without_bargains(mut self) -> Self {
        self.types.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        self.types.drain(..BARGAINS.min(self.types.len()));
        self.types.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }

    pub(super) fn offers(&self) -> Vec<Offer> {
        let each = self.types.iter().flat_map(|one| {
            let prices = one.prices.iter().enumerate();
            prices
                .filter_map(|(zone, price)| Some(Offer { room: one.room, price: (*price)?, zone }))
        });
        each.collect()
    }

    /// As the files of problems describe types. What the kubelet and the system keep is left out of the capacity, so that no
    /// side computes it in another way.
    pub(super) fn to_json(&self) -> impl Iterator<Item = Value> {
        let capacity_type = match self.terms {
            Terms::OnDemand => "on-demand",
            Terms::Spot => "spot",
        };
        self.types.iter().map(move |one| {
            let sold =
                ZONES.iter().zip(one.prices).filter_map(|(zone, price)| Some((zone, price?)));
            let offerings: Vec<_> = sold
                .clone()
                .map(|(zone, price)| {
                    json!({"capacityType": capacity_type, "zone": zone, "price": price})
                })
                .collect();
            let zones: Vec<_> = sold.map(|(zone, _)| zone).collect();
            let [millicores, mebibytes, pods] = one.room;
            json!({
                "kind": "InstanceType",
                "name": one.name,
                "capacity": {
                    "cpu": format!("{millicores}m"),
                    "memory": format!("{mebibytes}Mi"),
                    "pods": pods.to_string(),
                },
                "overhead": {},
                "labels": {
                    "node.kubernetes.io/instance-type": [one.name],
                    "kubernetes.io/arch": ["amd64"],
                    "kubernetes.io/os": ["linux"],
                    "topology.kubernetes.io/zone": zones,
                    "karpenter.sh/capacity-type": [capacity_type],
                },
                "offerings": offerings,
            })
        })
    }
}

impl MachineType {
    /// The price in the cheapest zone beside what its cores and memory usually cost.
    fn rate(&self) -> f64 {
        let [millicores, mebibytes, _] = self.room.map(|amount| amount as f64);
        let usual = PER_CORE * millicores / 1000.0 + PER_GIB * mebibytes / 1024.0;
        self.prices.iter().flatten().copied().fold(f64::INFINITY, f64::min) / usual
    }
}

fn is_usual(one: &RegionType) -> bool {
    let facts = &one.facts;
    let family = facts.family();
    let generation = family[1..].chars().next().and_then(|digit| digit.to_digit(10));
    facts.architecture == Architecture::Amd64
        && family.starts_with(['c', 'm', 'r'])
        && generation.is_some_and(|generation| generation > 2)
        && facts.size().is_some_and(|size| !size.starts_with("metal"))
        && facts.gpus.is_empty()
        && facts.neurons.is_empty()
        && facts.accelerators.is_empty()
        && facts.is(Trait::OnDemand)
        && facts.is(Trait::Spot)
}

/// What is left for pods with AL2023 and no settings.
fn room(one: &RegionType, shape: &ClassShape) -> Amounts {
    let known = Known { facts: &one.facts, network: one.network, zones: &one.zones };
    let bare = BareType::new(known, shape, &Settings::default(), &DiscoveredMemory::default());
    let whole = bare.with_offerings(Vec::new());
    let left = whole.allocatable();
    let amounts = [
        left.amount("cpu").millis(),
        left.amount("memory").whole_units() >> 20,
        left.amount("pods").whole_units(),
    ];
    amounts.map(|amount| u64::try_from(amount).unwrap_or(0))
}

/// Spot prices are not public as a list. Here a type costs 23 to 88 % of its price on demand: 30 to 70 % by its family, because
/// the sizes of a family share machines and move together, a fifth more or less by its size, and a twentieth by zone.
fn spot_share(name: &str, zone: &str, seed: u64) -> f64 {
    let part = |text: &str| Dice::named(text, seed).share();
    let family = name.split('.').next().unwrap_or(name);
    (0.3 + 0.4 * part(family))
        * (0.8 + 0.4 * part(name))
        * (0.95 + 0.1 * part(&format!("{name} {zone}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_types_of_a_usual_pool() {
        let market = Market::new(Terms::OnDemand, 1).unwrap();
        assert!(market.types() > 200, "{}", market.types());
        let m5 = market.types.iter().find(|one| one.name == "m5.xlarge").unwrap();
        assert_eq!((m5.room[0], m5.room[2]), (3920, 58));
        assert_eq!(m5.prices, [Some(0.192); 3]);
        for other in ["t3.large", "m5.metal", "m6g.large", "p4d.24xlarge", "m1.small"] {
            assert!(market.types.iter().all(|one| one.name != other), "{other}");
        }
        assert_eq!(market.clone().without_bargains().types(), market.types() - BARGAINS);
    }

    #[test]
    fn spot_prices_are_below_those_on_demand_and_follow_from_the_seed() {
        let on_demand = Market::new(Terms::OnDemand, 1).unwrap();
        let spot = |seed| Market::new(Terms::Spot, seed).unwrap();
        for (dear, cheap) in on_demand.offers().iter().zip(spot(1).offers()) {
            assert!((0.22..0.89).contains(&(cheap.price / dear.price)), "{dear:?} {cheap:?}");
        }
        let prices = |seed| spot(seed).offers().iter().map(|offer| offer.price).collect::<Vec<_>>();
        assert_eq!(prices(1), prices(1));
        assert_ne!(prices(1), prices(2));
    }
}
