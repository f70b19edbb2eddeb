//! What the account sells: KWOK's Linux machines, at KWOK's prices, in the four zones of a region. Stories know them by name.

use kerf_api::labels;
use kerf_aws_model::catalogue::{Catalogue, Document, TypeFacts};
use kerf_aws_model::prices::Prices;
use kerf_fake_aws::FakeAws;
use kerf_model::resources::{CPU, MEMORY, PODS};
use kerf_model::{InstanceType, Price};
use kerf_provider_kwok::generated;
use serde_json::{Map, Value, json};

use jiff::Timestamp;

pub(crate) const REGION: &str = "us-west-2";
const ZONES: &str = "abcd";

/// On AWS an instance type runs any operating system; here it is the class that says which.
pub(crate) fn instance_types() -> impl Iterator<Item = InstanceType> {
    generated().into_iter().filter(|one| one.name().ends_with("-linux"))
}

pub(crate) fn catalogue() -> Catalogue {
    let mut prices = Map::new();
    let mut zones = Map::new();
    let mut rows = Vec::new();
    for one in instance_types() {
        let name = one.name();
        prices
            .insert(name.to_owned(), json!(price(&one, labels::CAPACITY_TYPE_ON_DEMAND).as_f64()));
        zones.insert(name.to_owned(), json!(ZONES));
        rows.push(row(&one));
    }
    let document = json!({
        "source": "the catalogue that stories are told with",
        "retrieved": "2026-11-16",
        "columns": TypeFacts::COLUMNS,
        "types": rows,
        "zones": {REGION: {"zones": ZONES, "offered": zones}},
        "prices": {REGION: {"currency": "USD", "onDemand": prices}},
    });
    let document = Document::read(&document.to_string());
    let mut catalogue = Catalogue::default();
    catalogue.lay_over(document.unwrap_or_else(|error| panic!("the catalogue: {error}")));
    catalogue
}

fn row(one: &InstanceType) -> Value {
    let amount = |resource: &str| one.capacity().amount(resource).units();
    let arch = if one.name().contains("arm64") { "arm64" } else { "amd64" };
    let mebibytes = amount(MEMORY) >> 20;
    // One interface whose addresses make as many pods as KWOK allows: all but its own, and two on the host's network.
    let addresses = amount(PODS) - 1;
    json!([
        one.name(),
        arch,
        amount(CPU),
        mebibytes,
        "Intel",
        3000,
        "nitro",
        "os",
        null,
        0,
        addresses,
        [1],
    ])
}

fn price(one: &InstanceType, capacity_type: &str) -> Price {
    let offerings = one.offerings().iter();
    let mut offerings = offerings.filter(|it| it.capacity_type() == Some(capacity_type));
    offerings.next().map(|offering| offering.price).unwrap_or_default()
}

/// Spot prices as KWOK has them, in the account and in what the provider knows of it.
pub(crate) fn set_spot_prices(aws: &FakeAws, prices: &mut Prices, now: Timestamp) {
    let zones: Vec<String> = ZONES.chars().map(|letter| format!("{REGION}{letter}")).collect();
    let types: Vec<_> = instance_types().collect();
    let all = types.iter().flat_map(|one| {
        let price = price(one, labels::CAPACITY_TYPE_SPOT);
        zones.iter().map(move |zone| (one.name(), zone.as_str(), price))
    });
    let all: Vec<_> = all.collect();
    for (name, zone, price) in &all {
        aws.set_spot_price(name, zone, *price);
    }
    prices.take_spot(all, now).unwrap_or_else(|none| panic!("{none}"));
}
