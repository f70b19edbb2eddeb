//! Asks AWS what there is and what it costs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kerf_aws_client::{Aws, AwsError, all_pages};
use kerf_aws_model::{
    catalogue::{Catalogue, Region},
    prices::{NoPrices, Prices, ProductQuery, currency, on_demand_prices, product_queries},
};
use kerf_aws_wire::{
    ec2::{self, Filter},
    pricing,
};
use kerf_model::Price;
use tracing::{debug, warn};

/// The most that EC2 gives in a page.
const TYPES_OF_A_PAGE: i32 = 100;
const OFFERINGS_OF_A_PAGE: i32 = 1000;
const SPOT_PRICES_OF_A_PAGE: i32 = 1000;
const PRODUCTS_OF_A_PAGE: i32 = 100;
/// What spot prices are asked for: Linux in a VPC, by both of its names.
const PRODUCTS: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];

/// The instance types of the region, and the zones that have them.
pub(crate) async fn region(
    aws: &dyn Aws,
    name: &str,
    catalogue: &Catalogue,
) -> Result<Region, AwsError> {
    let filters = vec![
        filter("supported-virtualization-type", &["hvm"]),
        filter("processor-info.supported-architecture", &["x86_64", "arm64"]),
    ];
    let types = ec2::DescribeInstanceTypesRequest {
        filters,
        max_results: Some(TYPES_OF_A_PAGE),
        ..Default::default()
    };
    let offerings = ec2::DescribeInstanceTypeOfferingsRequest {
        location_type: Some("availability-zone".to_owned()),
        max_results: Some(OFFERINGS_OF_A_PAGE),
        ..Default::default()
    };
    let (types, offerings) = tokio::try_join!(all_pages(aws, types), all_pages(aws, offerings))?;
    let (region, unusable) = Region::read(name, &types, &offerings, catalogue);
    for why in unusable {
        debug!(%why, "an instance type is left out");
    }
    Ok(region)
}

/// On-demand prices: of virtual machines, and of bare metal.
pub(crate) type OnDemand = [BTreeMap<String, Price>; 2];

/// What the price list says of the region. `None` where there is no list to ask.
pub(crate) async fn on_demand(aws: &dyn Aws, region: &str) -> Result<Option<OnDemand>, AwsError> {
    let Some([virtual_machines, bare_metal]) = product_queries(region) else { return Ok(None) };
    let (virtual_machines, bare_metal) = tokio::try_join!(
        products(aws, region, virtual_machines),
        products(aws, region, bare_metal)
    )?;
    Ok(Some([virtual_machines, bare_metal]))
}

async fn products(
    aws: &dyn Aws,
    region: &str,
    query: ProductQuery<'_>,
) -> Result<BTreeMap<String, Price>, AwsError> {
    let filter = |(field, value): (&str, &str)| pricing::Filter {
        field: Some(field.to_owned()),
        r#type: Some("TERM_MATCH".to_owned()),
        value: Some(value.to_owned()),
    };
    let request = pricing::GetProductsRequest {
        filters: query.into_iter().map(filter).collect(),
        max_results: Some(PRODUCTS_OF_A_PAGE),
        service_code: Some("AmazonEC2".to_owned()),
        ..Default::default()
    };
    let entries = all_pages(aws, request).await?;
    let entries = entries.iter().map(String::as_str);
    let (prices, unreadable) = on_demand_prices(entries, currency(region));
    if let Some(first) = unreadable.first() {
        warn!(count = unreadable.len(), %first, "entries of AWS's price list cannot be read");
    }
    Ok(prices)
}

/// Instance type, zone and price.
pub(crate) type Spot = Vec<(String, String, Price)>;

/// The spot prices of now: in these zones, or in all where none is named.
pub(crate) async fn spot(
    aws: &dyn Aws,
    zones: Vec<String>,
    now: Timestamp,
) -> Result<Spot, AwsError> {
    let name = Some("availability-zone".to_owned());
    let in_zones = Filter { name, values: zones };
    let request = ec2::DescribeSpotPriceHistoryRequest {
        filters: Some(in_zones).filter(|filter| !filter.values.is_empty()).into_iter().collect(),
        max_results: Some(SPOT_PRICES_OF_A_PAGE),
        product_descriptions: PRODUCTS.map(str::to_owned).to_vec(),
        start_time: Some(now),
        ..Default::default()
    };
    let history = all_pages(aws, request).await?;
    Ok(newest(history))
}

/// Why prices stay as they were.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRead {
    #[error(transparent)]
    NoAnswer(#[from] AwsError),
    #[error(transparent)]
    Nothing(#[from] NoPrices),
}

/// Takes in what was read, and gives the types that cost something else now. A region without a price list has nothing to take in.
pub(crate) fn take_on_demand(
    prices: &mut Prices,
    read: Result<Option<OnDemand>, AwsError>,
) -> Result<BTreeSet<String>, NotRead> {
    let Some([virtual_machines, bare_metal]) = read? else { return Ok(BTreeSet::new()) };
    Ok(prices.take_on_demand(virtual_machines, bare_metal)?)
}

pub(crate) fn take_spot(
    prices: &mut Prices,
    read: Result<Spot, AwsError>,
    now: Timestamp,
) -> Result<BTreeSet<String>, NotRead> {
    let read = read?;
    let read = read.iter().map(|(name, zone, price)| (&**name, &**zone, *price));
    Ok(prices.take_spot(read, now)?)
}

/// The last price of each type and zone.
fn newest(history: Vec<ec2::SpotPrice>) -> Spot {
    let mut newest: BTreeMap<(String, String), (Timestamp, Price)> = BTreeMap::new();
    for row in history {
        let (Some(name), Some(zone)) = (row.instance_type, row.availability_zone) else { continue };
        let (Some(at), Some(price)) = (row.timestamp, row.spot_price) else { continue };
        let Ok(price) = price.parse() else { continue };
        let last = newest.entry((name, zone)).or_insert((at, price));
        if last.0 < at {
            *last = (at, price);
        }
    }
    newest.into_iter().map(|((name, zone), (_, price))| (name, zone, price)).collect()
}

fn filter(name: &str, values: &[&str]) -> Filter {
    Filter {
        name: Some(name.to_owned()),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_prices_the_last_counts() {
        let row = |zone: &str, at: &str, price: &str| ec2::SpotPrice {
            instance_type: Some("m5.large".to_owned()),
            availability_zone: Some(zone.to_owned()),
            timestamp: Some(at.parse().unwrap()),
            spot_price: Some(price.to_owned()),
            ..Default::default()
        };
        let found = newest(vec![
            row("a", "2026-11-16T10:00:00Z", "0.03"),
            row("a", "2026-11-16T12:00:00Z", "0.05"),
            row("a", "2026-11-16T11:00:00Z", "0.04"),
            row("b", "2026-11-16T09:00:00Z", "unreadable"),
            row("c", "2026-11-16T09:00:00Z", "0.02"),
        ]);
        let price = |text: &str| text.parse::<Price>().unwrap();
        let expected = [("a", price("0.05")), ("c", price("0.02"))];
        let expected =
            expected.map(|(zone, price)| ("m5.large".to_owned(), zone.to_owned(), price));
        assert_eq!(found, expected);
    }
}
