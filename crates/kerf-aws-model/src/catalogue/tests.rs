use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn built_in() -> Catalogue {
    Catalogue::built_in().unwrap()
}

#[test]
fn the_built_in_catalogue_has_the_counts_that_its_readme_gives() {
    let catalogue = built_in();
    assert_eq!(catalogue.types().count(), 1386);
    assert_eq!(catalogue.network.len(), 1379);
    assert_eq!(catalogue.regions().count(), 30);
    let zones: usize =
        catalogue.zones.iter().map(|(region, zones)| zones.names(region).len()).sum();
    assert_eq!(zones, 95);
    let prices: BTreeMap<_, _> = catalogue
        .prices
        .iter()
        .map(|(region, prices)| (region.as_str(), prices.on_demand.len()))
        .collect();
    let expected =
        [("cn-north-1", 316), ("us-east-1", 1367), ("us-gov-east-1", 549), ("us-gov-west-1", 770)];
    assert_eq!(prices, expected.into());
}

#[test]
fn documents_survive_writing() {
    for text in BUILT_IN {
        let document = Document::read(text).unwrap();
        assert_eq!(document.write(), text, "write it with `cargo xtask aws data`");
        assert!(!document.source.is_empty() && document.retrieved.len() == 10);
    }
}

#[test]
fn a_row_is_read_by_its_places() {
    let catalogue = built_in();
    let facts = catalogue.get("p5.48xlarge").unwrap();
    assert_eq!((facts.family(), facts.size()), ("p5", Some("48xlarge")));
    assert_eq!((facts.vcpus, facts.memory_mib, facts.clock_mhz), (192, 2_097_152, 3600));
    assert_eq!((facts.interfaces_per_card.len(), facts.default_interfaces()), (32, 2));
    assert_eq!((facts.efa_interfaces, facts.gpu_count("NVIDIA")), (32, 8));
    assert_eq!((facts.local_gb, facts.ebs_mbps), (30_400, Some(80_000)));
    assert!(facts.is(Trait::CapacityBlock) && facts.is(Trait::LocalNvme));
    assert!(!facts.is(Trait::EnaUnsupported) && !facts.is(Trait::NestedVirtualization));
    assert_eq!(catalogue.network("p5.48xlarge").branch_interfaces, 120);
    assert_eq!(catalogue.network("c1.medium").bandwidth_mbps, None);
    assert_eq!(catalogue.network("z9.unheard"), Network::default());
}

#[test]
fn zones_are_known_by_family_and_by_type() {
    let catalogue = built_in();
    let zones =
        |region: &str, name: &str| catalogue.zones(region).unwrap().offering(region, name).concat();
    assert_eq!(zones("eu-west-1", "m5.large"), "eu-west-1aeu-west-1beu-west-1c");
    assert_eq!(zones("eu-west-1", "z9.unheard"), "");
    let offered = BTreeMap::from([
        ("m5.large", vec!["x-1b", "x-1a"]),
        ("m5.xlarge", vec!["x-1a", "x-1b"]),
        ("m5.metal", vec!["x-1c"]),
    ]);
    let known = ["m5.large", "m5.metal", "m5.nowhere", "m5.xlarge"];
    let zones = RegionZones::new("x-1", &offered, known.into_iter());
    assert_eq!(
        serde_json::to_string(&zones).unwrap(),
        r#"{"zones":"abc","offered":{"m5":"ab","m5.metal":"c","m5.nowhere":""}}"#
    );
    assert_eq!(zones.names("x-1"), ["x-1a", "x-1b", "x-1c"]);
    for (name, expected) in
        [("m5.large", &["x-1a", "x-1b"][..]), ("m5.metal", &["x-1c"]), ("m5.nowhere", &[])]
    {
        assert_eq!(zones.offering("x-1", name), expected, "{name}");
    }
}

#[test]
fn a_region_without_prices_borrows_them_and_says_so() {
    let catalogue = built_in();
    for (asked, given, price) in [
        ("us-east-1", "us-east-1", "0.096"),
        ("eu-west-1", "us-east-1", "0.096"),
        ("us-gov-west-1", "us-gov-west-1", "0.121"),
        ("cn-north-1", "cn-north-1", "1.013"),
    ] {
        let prices = catalogue.prices(asked).unwrap();
        assert_eq!(prices.region, given, "{asked}");
        assert_eq!(prices.on_demand("m5.large"), Some(price.parse().unwrap()), "{asked}");
    }
    assert!(Catalogue::default().prices("us-east-1").is_none());
}

/// Retired types, and some that the descriptions lack.
#[test]
fn nearly_every_price_has_a_type() {
    let catalogue = built_in();
    let missing: BTreeSet<&str> = catalogue.prices["us-east-1"]
        .on_demand
        .keys()
        .map(String::as_str)
        .filter(|name| catalogue.get(name).is_none())
        .collect();
    assert_eq!(missing.len(), 27, "{missing:?}");
}

#[test]
fn a_document_of_an_account_is_laid_over() {
    let mut catalogue = built_in();
    let text = r#"{"source":"account 1","retrieved":"2026-11-16",
        "columns":["name","architecture","vcpus","memoryMiB","cpuManufacturer","clockMHz","hypervisor","traits","ebsMbps",
        "localGB","addressesPerInterface","interfacesPerCard","efaInterfaces","gpus","neurons","accelerators","defaultCard"],
        "types":[["m5.large","amd64",3,8192,"Intel",3100,"nitro","os",null,0,10,[3]]],
        "prices":{"eu-west-1":{"currency":"USD","onDemand":{"m5.large":0.107}}}}"#;
    catalogue.lay_over(Document::read(text).unwrap());
    assert_eq!(catalogue.get("m5.large").unwrap().vcpus, 3);
    assert_eq!(catalogue.types().count(), 1386);
    assert_eq!(catalogue.prices("eu-west-1").unwrap().region, "eu-west-1");
}

#[test]
fn documents_that_cannot_be_used_are_refused() {
    let check = |text: &str, expected: &str| {
        let error = Document::read(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let row = r#"["m5.large","amd64",2,8192,"Intel",3100,"nitro","os",null,0,10,[3]]"#;
    let columns = serde_json::to_string(&TypeFacts::COLUMNS).unwrap();
    let with = |columns: &str, rows: &str| {
        format!(r#"{{"source":"","retrieved":"","columns":{columns},"types":[{rows}]}}"#)
    };
    check("[]", "cannot be read");
    check(&with("[]", row), "its columns are []");
    check(&with(&columns, &format!("{row},{row}")), "m5.large is listed twice");
    check(&with(&columns, &row.replace("os", "o!")), "'!' stands for no trait");
    check(&with(&columns, &row.replace("amd64", "mips")), "mips");
    check(r#"{"source":"","retrieved":"","typos":[]}"#, "typos");
}

#[test]
fn what_an_account_says_is_written_down_and_read_again() {
    let mut region = shared().region("us-west-2").unwrap();
    region.types.retain(|one| one.facts.name.starts_with("m5."));
    region.types[0].zones.push("us-west-2-lax-1a".to_owned());
    let price: kerf_model::Price = "0.123".parse().unwrap();
    let prices = BTreeMap::from([("m5.large".to_owned(), price)]);
    let document =
        Document::of_region(&region, Some(prices), "test".to_owned(), "2026-11-16".to_owned());
    let mut catalogue = Catalogue::default();
    catalogue.lay_over(Document::read(&document.write()).unwrap());
    assert_eq!(catalogue.prices("us-west-2").unwrap().on_demand("m5.large"), Some(price));
    region.types[0].zones.pop();
    assert_eq!(catalogue.region("us-west-2").unwrap(), region);
}
