//! How much memory instance types take. Counted in bytes, not in time, so that a busy machine changes nothing.

use std::alloc::System;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kerf_aws_api::Ec2NodeClass;
use kerf_aws_model::catalogue::Catalogue;
use kerf_aws_model::class_types::TypesOfClasses;
use kerf_aws_model::instance_types::{ClassShape, DiscoveredMemory, Settings};
use kerf_aws_model::offerings::Market;
use kerf_aws_model::prices::Prices;
use kerf_aws_model::reservations::ReservationCounts;
use kerf_aws_model::subnets::FreeAddresses;
use kerf_aws_model::unavailable::Unavailable;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const REGION: &str = "us-east-1";

fn shape(spec: &Value) -> ClassShape {
    let subnet = |letter: &str, number: u32| {
        json!({
            "id": format!("subnet-{number}"), "zone": format!("{REGION}{letter}"),
            "zoneID": format!("use1-az{number}"),
        })
    };
    let class: Ec2NodeClass = serde_json::from_value(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": spec, "status": {"subnets": [subnet("a", 1), subnet("b", 2), subnet("c", 3)]},
    }))
    .expect("a class");
    ClassShape::new(&class, None).expect("a shape")
}

/// Bytes that stay allocated.
fn taken(act: impl FnOnce()) -> usize {
    let counting = Region::new(ALLOCATOR);
    act();
    let change = counting.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated)
}

#[test]
fn classes_that_share_their_types_take_next_to_nothing() {
    let catalogue = Catalogue::built_in().expect("a catalogue");
    let region = Arc::new(catalogue.region(REGION).expect("the region"));
    let prices = Prices::new(catalogue.prices(REGION).expect("its prices"));
    let (settings, unavailable) = (Settings::default(), Unavailable::default());
    let (reservations, addresses) = (ReservationCounts::default(), FreeAddresses::default());
    let (shifted_zones, overlay_prices) = (BTreeSet::new(), BTreeMap::new());
    let market = Market {
        prices: &prices,
        unavailable: &unavailable,
        reservations: &reservations,
        addresses: &addresses,
        shifted_zones: &shifted_zones,
        overlay_prices: &overlay_prices,
        now: Timestamp::UNIX_EPOCH,
    };
    let mut all = TypesOfClasses::default();
    let mut add = |class: &str, spec: &Value| {
        taken(|| {
            all.set(class, shape(spec), DiscoveredMemory::default());
            let types = all.refresh(class, &region, &settings, market).expect("types");
            assert!(types.len() > 1000, "{}", types.len());
        })
    };
    let first = add("first", &json!({"amiFamily": "AL2023"}));
    let tags = json!({"amiFamily": "AL2023", "tags": {"team": "a"}, "role": "other"});
    let second = add("second", &tags);
    let other = add("other", &json!({"amiFamily": "Bottlerocket"}));
    println!("first class {first} bytes, one of the same shape {second}, one of another {other}");
    assert!(second < 10_000, "{second}");
    assert!(first < 32 << 20 && other < 32 << 20, "{first} and {other}");
}
