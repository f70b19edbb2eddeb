//! The price list of AWS: what is asked of it, and how its entries are read.

use std::collections::BTreeMap;

use kerf_model::Price;
use serde::Deserialize;

/// Fields and values that products have to have; all compare whole texts.
pub type ProductQuery<'a> = Vec<(&'static str, &'a str)>;

/// The region whose endpoint has the price list: there are only a few.
pub fn pricing_region(region: &str) -> &'static str {
    match region.split_once('-').map_or(region, |(start, _)| start) {
        "ap" => "ap-south-1",
        "cn" => "cn-northwest-1",
        "eu" => "eu-central-1",
        _ => "us-east-1",
    }
}

pub fn currency(region: &str) -> &'static str {
    if region.starts_with("cn-") { "CNY" } else { "USD" }
}

/// The two queries for a region: virtual machines, then bare metal. `None` where there is no price list to ask.
pub fn product_queries(region: &str) -> Option<[ProductQuery<'_>; 2]> {
    if region.starts_with("us-gov-") {
        return None;
    }
    let query = |tenancy, family| {
        vec![
            ("regionCode", region),
            ("serviceCode", "AmazonEC2"),
            ("preInstalledSw", "NA"),
            ("operatingSystem", "Linux"),
            ("capacitystatus", "Used"),
            ("marketoption", "OnDemand"),
            ("tenancy", tenancy),
            ("productFamily", family),
        ]
    };
    Some([query("Shared", "Compute Instance"), query("Dedicated", "Compute Instance (bare metal)")])
}

/// An entry of the price list that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("an entry of the price list cannot be read: {0}")]
pub struct NotAPrice(#[from] serde_json::Error);

/// The prices in a page of the list. Entries without a type or with a price of nothing are passed over; those that cannot be
/// read are handed back beside the rest.
pub fn on_demand_prices<'a>(
    entries: impl IntoIterator<Item = &'a str>,
    currency: &str,
) -> (BTreeMap<String, Price>, Vec<NotAPrice>) {
    let mut prices = BTreeMap::new();
    let mut errors = Vec::new();
    for entry in entries {
        let entry: Entry = match serde_json::from_str(entry) {
            Ok(entry) => entry,
            Err(error) => {
                errors.push(NotAPrice(error));
                continue;
            }
        };
        let dimensions =
            entry.terms.on_demand.values().flat_map(|term| term.price_dimensions.values());
        let price = dimensions
            .filter_map(|dimension| dimension.price_per_unit.get(currency)?.parse::<Price>().ok())
            .rfind(|price| *price > Price::ZERO);
        if let Some(price) = price.filter(|_| !entry.product.attributes.instance_type.is_empty()) {
            prices.insert(entry.product.attributes.instance_type, price);
        }
    }
    (prices, errors)
}

#[derive(Deserialize)]
struct Entry {
    product: Product,
    #[serde(default)]
    terms: Terms,
}

#[derive(Deserialize)]
struct Product {
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Attributes {
    instance_type: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Terms {
    #[serde(rename = "OnDemand")]
    on_demand: BTreeMap<String, Term>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    price_dimensions: BTreeMap<String, Dimension>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Dimension {
    price_per_unit: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(instance_type: &str, currency: &str, price: &str) -> String {
        json!({
            "product": {"productFamily": "Compute Instance", "sku": "S", "attributes": {"instanceType": instance_type, "vcpu": "2"}},
            "serviceCode": "AmazonEC2",
            "terms": {"OnDemand": {"S.T": {"sku": "S", "priceDimensions": {"S.T.D": {
                "unit": "Hrs", "pricePerUnit": {currency: price}}}}}, "Reserved": {"x": {}}},
        })
        .to_string()
    }

    #[test]
    fn entries_of_the_price_list_become_prices() {
        let entries = [
            entry("m5.large", "USD", "0.0960000000"),
            entry("m5.xlarge", "USD", "0.0000000000"),
            entry("m5.2xlarge", "CNY", "3.2"),
            entry("", "USD", "1"),
            entry("m5.4xlarge", "USD", "dear"),
            json!({"product": {}}).to_string(),
            "{".to_owned(),
        ];
        let read = |currency| {
            let (prices, errors) = on_demand_prices(entries.iter().map(String::as_str), currency);
            let prices: Vec<_> =
                prices.into_iter().map(|(name, price)| format!("{name} {price}")).collect();
            (prices.join(", "), errors.len())
        };
        assert_eq!(read("USD"), ("m5.large $0.0960/h".to_owned(), 1));
        assert_eq!(read("CNY"), ("m5.2xlarge $3.2000/h".to_owned(), 1));
    }

    #[test]
    fn few_regions_have_the_price_list() {
        for (region, endpoint, currency_of) in [
            ("us-west-2", "us-east-1", "USD"),
            ("ca-central-1", "us-east-1", "USD"),
            ("ap-northeast-1", "ap-south-1", "USD"),
            ("eu-west-1", "eu-central-1", "USD"),
            ("cn-north-1", "cn-northwest-1", "CNY"),
        ] {
            assert_eq!((pricing_region(region), currency(region)), (endpoint, currency_of));
        }
        assert!(product_queries("us-gov-west-1").is_none());
        let [machines, metal] = product_queries("eu-west-1").unwrap();
        assert!(machines.contains(&("regionCode", "eu-west-1")));
        assert!(
            machines.contains(&("tenancy", "Shared")) && metal.contains(&("tenancy", "Dedicated"))
        );
    }
}
