//! What instances cost: the price list, and spot prices that move.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kerf_aws_model::prices::currency;
use kerf_aws_wire::{ec2, pricing};
use kerf_model::Price;
use serde_json::json;

use crate::chance;
use crate::cloud::{Answer, Cloud};
use crate::filters::{one, select, untagged};
use crate::paging::{PageSize, page};
use crate::refused::Refused;

/// Spot prices that were set by hand; all others follow from seed and time.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpotPrices {
    pub(crate) set: BTreeMap<(String, String), Price>,
}

/// A spot price holds for this long.
const SPOT_STEP: SignedDuration = SignedDuration::from_hours(4);

impl Cloud {
    pub(crate) fn on_demand_price(&self, instance_type: &str) -> Option<Price> {
        self.catalogue.prices(&self.settings.region)?.on_demand(instance_type)
    }

    /// 25 to 60 % of the price on demand, by type and zone, and every four hours up to 10 % more or less.
    pub(crate) fn spot_price(
        &self,
        instance_type: &str,
        zone: &str,
        at: Timestamp,
    ) -> Option<Price> {
        let key = (instance_type.to_owned(), zone.to_owned());
        if let Some(price) = self.spot_prices.set.get(&key) {
            return Some(*price);
        }
        let step = (at.as_second() / SPOT_STEP.as_secs()).to_string();
        let level = chance::share(self.settings.seed, &["spot", instance_type, zone]);
        let moved = chance::share(self.settings.seed, &["spot", instance_type, zone, &step]);
        let share = (0.25 + 0.35 * level) * (0.9 + 0.2 * moved);
        Some(Price::from_f64(self.on_demand_price(instance_type)?.as_f64() * share))
    }
}

const PRODUCTS: PageSize = PageSize::new(1, 100, 100);
/// EC2 gives fewer than a request asks for, and says nothing.
const SPOT: PageSize = PageSize::new(1, usize::MAX, 1000);
const MOST_SPOT_PRICES: i32 = 1000;

impl Answer for pricing::GetProductsRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        if self.service_code.as_deref() != Some("AmazonEC2") {
            return Err(Refused::new("NotFoundException", "There is no such service"));
        }
        let region = cloud.settings.region.clone();
        let currency = currency(&region);
        let products: Vec<(&str, BTreeMap<&str, String>, Price)> = cloud
            .catalogue
            .types()
            .filter(|facts| cloud.offers(&facts.name))
            .filter_map(|facts| {
                let price = cloud.on_demand_price(&facts.name)?;
                let metal = facts.hypervisor.is_empty();
                let (family, tenancy) = if metal {
                    ("Compute Instance (bare metal)", "Dedicated")
                } else {
                    ("Compute Instance", "Shared")
                };
                let attributes = [
                    ("instanceType", facts.name.as_str()),
                    ("productFamily", family),
                    ("tenancy", tenancy),
                    ("regionCode", &region),
                    ("serviceCode", "AmazonEC2"),
                    ("preInstalledSw", "NA"),
                    ("operatingSystem", "Linux"),
                    ("capacitystatus", "Used"),
                    ("marketoption", "OnDemand"),
                ];
                let attributes = attributes.map(|(name, value)| (name, value.to_owned()));
                Some((facts.name.as_str(), attributes.into(), price))
            })
            .collect();
        let holds = |attributes: &BTreeMap<&str, String>, filter: &pricing::Filter| {
            let field = filter.field.as_deref().unwrap_or_default();
            attributes.get(field) == filter.value.as_ref()
        };
        let found: Vec<_> = products
            .into_iter()
            .filter(|(_, attributes, _)| {
                self.filters.iter().all(|filter| holds(attributes, filter))
            })
            .collect();
        let (found, next_token) = page(
            found,
            |(name, ..)| (*name).to_owned(),
            &PRODUCTS,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        let price_list = found
            .into_iter()
            .map(|(name, attributes, price)| entry(name, &attributes, price, currency))
            .collect();
        Ok(pricing::GetProductsResponse {
            format_version: Some("aws_v1".to_owned()),
            next_token,
            price_list,
        })
    }
}

fn entry(name: &str, attributes: &BTreeMap<&str, String>, price: Price, currency: &str) -> String {
    let sku = format!("{:016X}", chance::draw(0, &[name]));
    let (term, rate) = (format!("{sku}.JRTCKXETXF"), format!("{sku}.JRTCKXETXF.6YS6EN2CT7"));
    json!({
        "product": {"productFamily": attributes.get("productFamily"), "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {term: {"sku": sku, "priceDimensions": {rate.clone(): {
            "unit": "Hrs",
            "rateCode": &rate,
            "pricePerUnit": {currency: format!("{:.10}", price.as_f64())},
        }}}}},
    })
    .to_string()
}

impl Answer for ec2::DescribeSpotPriceHistoryRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let now = cloud.now;
        let end = self.end_time.unwrap_or(now).min(now);
        let start = self.start_time.unwrap_or(end - SignedDuration::from_hours(24)).min(end);
        let mut rows = Vec::new();
        for facts in cloud.catalogue.types() {
            let name = &facts.name;
            let asked = self.instance_types.is_empty() || self.instance_types.contains(name);
            if !asked || !facts.is(kerf_aws_model::catalogue::Trait::Spot) {
                continue;
            }
            for zone in cloud.zones_offering(name) {
                if self.availability_zone.as_ref().is_some_and(|wanted| *wanted != zone) {
                    continue;
                }
                rows.push((name.clone(), zone));
            }
        }
        let rows = select(
            &rows,
            &self.filters,
            |_| untagged(),
            |(name, zone), filter| match filter {
                "instance-type" => one(name),
                "availability-zone" => one(zone),
                "product-description" => Some(PRODUCT_NAMES.map(str::to_owned).to_vec()),
                _ => None,
            },
        )?;
        let products: Vec<&str> = PRODUCT_NAMES
            .into_iter()
            .filter(|product| {
                self.product_descriptions.is_empty()
                    || self.product_descriptions.iter().any(|wanted| wanted == product)
            })
            .collect();
        let mut all = Vec::new();
        for (name, zone) in rows {
            for at in steps(start, end) {
                let Some(price) = cloud.spot_price(name, zone, at) else { continue };
                for product in &products {
                    let key = format!("{name} {zone} {} {product}", at.as_second());
                    all.push((key, name, zone, at, price, *product));
                }
            }
        }
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let (all, next_token) = page(
            all,
            |row| row.0.clone(),
            &SPOT,
            self.max_results.map(|most| most.min(MOST_SPOT_PRICES)),
            self.next_token.as_deref(),
        )?;
        let spot_price_history = all
            .into_iter()
            .map(|(_, name, zone, at, price, product)| ec2::SpotPrice {
                availability_zone: Some(zone.clone()),
                availability_zone_id: cloud.network.zone_id(zone),
                instance_type: Some(name.clone()),
                product_description: Some(product.to_owned()),
                spot_price: Some(format!("{:.6}", price.as_f64())),
                timestamp: Some(at),
            })
            .collect();
        Ok(ec2::DescribeSpotPriceHistoryResponse { next_token, spot_price_history })
    }
}

const PRODUCT_NAMES: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];

/// When prices changed: the change that still holds at the start, and all later ones.
fn steps(start: Timestamp, end: Timestamp) -> Vec<Timestamp> {
    let length = SPOT_STEP.as_secs();
    let (first, last) = (start.as_second().div_euclid(length), end.as_second().div_euclid(length));
    (first..=last).filter_map(|step| Timestamp::from_second(step * length).ok()).collect()
}
