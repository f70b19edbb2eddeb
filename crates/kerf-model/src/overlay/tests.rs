use super::*;
use crate::{
    Overhead,
    labels::{CAPACITY_TYPE, ZONE},
};

const TYPE: &str = "node.kubernetes.io/instance-type";

fn machine(name: &str) -> Arc<InstanceType> {
    let offering = |capacity_type: &str, zone: &str, price: &str| Offering {
        requirements: Requirements::new([
            Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
            Requirement::is_in(ZONE, [zone]),
        ]),
        price: price.parse().unwrap(),
        available: true,
        capacity_override: Some(Resources::default().with("cpu", "3".parse().unwrap())),
        ..Offering::default()
    };
    let offerings = vec![
        offering("on-demand", "a", "1"),
        offering("spot", "a", "0.4"),
        offering("spot", "b", "0.5"),
    ];
    let requirements = Requirements::new([
        Requirement::is_in(TYPE, [name]),
        Requirement::is_in(CAPACITY_TYPE, ["on-demand", "spot"]),
        Requirement::is_in(ZONE, ["a", "b"]),
    ]);
    let capacity = Resources::default().with("cpu", "4".parse().unwrap());
    let made = InstanceType::new(name, requirements, offerings, capacity, Overhead::default());
    Arc::new(made.with_volume_limits([("ebs".to_owned(), 9)].into()))
}

fn overlay(name: &str, weight: i32, about: &[(&str, &str)], change: &str) -> Overlay {
    let about = about.iter().map(|(key, value)| Requirement::is_in(key, [*value]));
    let (price, capacity) = match change.split_once('=') {
        Some((name, amount)) => (None, Resources::default().with(name, amount.parse().unwrap())),
        None if change.is_empty() => (None, Resources::default()),
        None => {
            let to = || PriceChange::To(change.parse().unwrap());
            (Some(change.parse().unwrap_or_else(|_| to())), Resources::default())
        }
    };
    Overlay { name: name.into(), weight, requirements: Requirements::new(about), price, capacity }
}

/// Pools p (label team=x) and q, each with the types m and n: all prices that changed, all resources that were added, and who was
/// left out because of whom.
fn outcome(overlays: &[Overlay]) -> (Vec<String>, Vec<String>) {
    let (types, labels) =
        ([machine("m"), machine("n")], [("team".to_owned(), "x".to_owned())].into());
    let none = Labels::new();
    let offered = [
        Offered { pool: "p", labels: &labels, types: &types },
        Offered { pool: "q", labels: &none, types: &types },
    ];
    let Adjusted { types: adjusted, clashes, .. } =
        adjust(overlays, &offered, &KnownLabels::default());
    let mut changed = Vec::new();
    for (pool, list) in &adjusted {
        for (base, now) in types.iter().zip(list) {
            assert_eq!(now.volume_limits(), base.volume_limits());
            for (was, is) in base.offerings().iter().zip(now.offerings()) {
                assert_eq!(was.capacity_override, is.capacity_override);
                if was.price != is.price {
                    let (terms, zone) = (is.capacity_type().unwrap(), is.zone().unwrap());
                    changed.push(format!(
                        "{pool}/{} {terms} {zone} {}",
                        now.name(),
                        is.price.exact()
                    ));
                }
            }
            for (name, amount) in now.capacity().iter().filter(|(name, _)| *name != "cpu") {
                changed.push(format!("{pool}/{} {name}={}", now.name(), amount.units()));
            }
        }
    }
    let clashes = clashes.iter().map(|(name, clash)| format!("{name}<{}", clash.with)).collect();
    (changed, clashes)
}

#[test]
fn overlays_change_what_they_match_and_contradictions_are_left_out() {
    let check = |overlays: &[Overlay], changed: &[&str], clashes: &[&str]| {
        let (got, left_out) = outcome(overlays);
        assert_eq!(
            (got, left_out),
            (
                changed.iter().map(ToString::to_string).collect(),
                clashes.iter().map(ToString::to_string).collect()
            )
        );
    };
    let pm = [("karpenter.sh/nodepool", "p"), (TYPE, "m")];
    let with = |more: (&'static str, &'static str)| [pm[0], pm[1], more];
    let (a, b, spot) = (with((ZONE, "a")), with((ZONE, "b")), with((CAPACITY_TYPE, "spot")));
    check(&[], &[], &[]);
    check(&[overlay("o", 0, &pm, "")], &[], &[]);
    check(&[overlay("o", 0, &b, "0.1")], &["p/m spot b 0.1"], &[]);
    check(&[overlay("o", 0, &spot, "-50%")], &["p/m spot a 0.2", "p/m spot b 0.25"], &[]);
    check(
        &[overlay("o", 0, &[("team", "x"), (TYPE, "n"), (ZONE, "b")], "+1")],
        &["p/n spot b 1.5"],
        &[],
    );
    check(
        &[overlay("o", 0, &[("team", "y")], "+1"), overlay("u", 0, &[("unset", "x")], "+1")],
        &[],
        &[],
    );
    check(&[overlay("o", 0, &pm, "gpu=2")], &["p/m gpu=2"], &[]);
    // Exclusive zones, and a higher weight.
    check(
        &[overlay("o", 0, &a, "2"), overlay("u", 0, &b, "3")],
        &["p/m on-demand a 2", "p/m spot a 2", "p/m spot b 3"],
        &[],
    );
    check(&[overlay("o", 1, &b, "2"), overlay("u", 2, &b, "3")], &["p/m spot b 3"], &[]);
    // One weight: equal values contradict each other too, and the later name stays.
    check(&[overlay("o", 0, &b, "3"), overlay("u", 0, &b, "3")], &["p/m spot b 3"], &["o<u"]);
    check(&[overlay("o", 0, &spot, "3"), overlay("u", 0, &b, "3")], &["p/m spot b 3"], &["o<u"]);
    // A contradiction with one that was overruled.
    check(
        &[overlay("h", 9, &b, "7"), overlay("o", 0, &b, "3"), overlay("u", 0, &b, "3")],
        &["p/m spot b 7"],
        &["o<u"],
    );
    // Nothing of an overlay that is left out is applied, not even in pools without a contradiction.
    check(
        &[overlay("o", 0, &[(ZONE, "b")], "3"), overlay("u", 0, &b, "4")],
        &["p/m spot b 4"],
        &["o<u"],
    );
    // Price and capacity do not contradict each other. Each resource counts for itself, also among three.
    check(
        &[overlay("o", 0, &b, "3"), overlay("u", 0, &b, "gpu=1")],
        &["p/m spot b 3", "p/m gpu=1"],
        &[],
    );
    check(
        &[
            overlay("o", 0, &pm, "gpu=1"),
            overlay("t", 0, &pm, "fpga=1"),
            overlay("u", 0, &pm, "gpu=4"),
        ],
        &["p/m fpga=1", "p/m gpu=4"],
        &["o<u"],
    );
}

#[test]
fn a_clash_names_the_other_overlay_and_what_both_are_about() {
    let about = About::Price { capacity_type: "spot".into(), zone: "b".into() };
    let clash = Clash { with: "u".into(), pool: "p".into(), instance_type: "m".into(), about };
    assert_eq!(
        clash.to_string(),
        "conflict with another overlay: u has the same weight and sets the price of m (spot, b) in NodePool p"
    );
}

#[test]
fn it_is_known_which_overlay_decided_what() {
    let types = [machine("m"), machine("n")];
    let none = Labels::new();
    let offered = [Offered { pool: "p", labels: &none, types: &types }];
    let spot = [(CAPACITY_TYPE, "spot")];
    let overlays = [
        overlay("low", 1, &spot, "9"),
        overlay("high", 2, &[(CAPACITY_TYPE, "spot"), (TYPE, "m")], "8"),
        overlay("gpu", 0, &[(TYPE, "n")], "gpu=1"),
    ];
    let adjusted = adjust(&overlays, &offered, &KnownLabels::default());
    let effect =
        |priced_offerings, types_with_capacity| Effect { priced_offerings, types_with_capacity };
    let expected = [("gpu", effect(0, 1)), ("high", effect(2, 0)), ("low", effect(2, 0))];
    let expected = expected.map(|(name, effect)| (name.to_owned(), effect));
    assert_eq!(adjusted.effects["p"], BTreeMap::from(expected));
    let [m, n] = adjusted.types["p"].as_slice() else { panic!("two types") };
    assert_eq!((m.is_price_overlaid(), m.is_capacity_overlaid()), (true, false));
    assert_eq!((n.is_price_overlaid(), n.is_capacity_overlaid()), (true, true));
    let base: Vec<_> = m.offerings().iter().map(|one| one.base_price).collect();
    let price = |text: &str| Some(text.parse().unwrap());
    assert_eq!(base, [None, price("0.4"), price("0.5")]);
    let again = adjust(&[], &offered, &KnownLabels::default());
    assert!(again.types["p"].iter().zip(&types).all(|(one, other)| Arc::ptr_eq(one, other)));
}

#[test]
fn adjustments_are_exact_and_end_at_zero() {
    for (price, change, expected) in [
        ("0.1", "+0.2", "0.3"),
        ("0.1", "-.2", "0"),
        ("0.1", "-30%", "0.07"),
        ("0.3", "+12.5%", "0.3375"),
        ("0.3", "-100%", "0"),
        ("0", "+50%", "0"),
    ] {
        let change: PriceChange = change.parse().unwrap();
        assert_eq!(
            change.of(price.parse().unwrap()),
            expected.parse().unwrap(),
            "{price} {change:?}"
        );
    }
    let up: PriceChange = "+1".parse().unwrap();
    assert_eq!(up.of(Price::MAX), Price::MAX);
    for text in ["", "1", "10%", "+", "+%", "-a%", "+1%%"] {
        assert!(text.parse::<PriceChange>().is_err(), "{text}");
    }
}
