//! Laws that hold for all values, and parsers that survive all texts.

#[path = "../../kerf-cluster/tests/support/damage.rs"]
mod damage;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kerf_api::{DurationOrNever, GoDuration};
use kerf_model::churn::{Fraction, GracePeriod, SavingsThreshold};
use kerf_model::{
    Operator, Price, Quantity, Requirement, Requirements, Selector, Undefined, cron::Schedule,
};
use proptest::prelude::*;

use damage::{hostile_text, in_time};

/// Few keys and values, so that they meet.
fn value() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]", (-2i64..4).prop_map(|number| number.to_string())]
}

fn operation() -> impl Strategy<Value = (Operator, Vec<String>)> {
    use Operator::{DoesNotExist, Exists, Gt, Gte, In, Lt, Lte, NotIn};
    prop_oneof![
        (prop_oneof![Just(In), Just(NotIn)], prop::collection::vec(value(), 0..4)),
        (prop_oneof![Just(Exists), Just(DoesNotExist)], Just(Vec::new())),
        (
            prop_oneof![Just(Gt), Just(Lt), Just(Gte), Just(Lte)],
            (-3i64..5).prop_map(|number| vec![number.to_string()]),
        ),
    ]
}

/// An intersection of two, which reaches shapes that no single operator has.
fn requirement() -> impl Strategy<Value = Requirement> {
    (operation(), operation(), prop::option::of(1u32..4)).prop_map(|(a, b, min)| {
        let a = Requirement::new("key", a.0, a.1).with_min_values(min);
        a.intersection(&Requirement::new("key", b.0, b.1))
    })
}

proptest! {
    #[test]
    fn an_intersection_has_what_both_have(a in requirement(), b in requirement(), value in value()) {
        prop_assert_eq!(a.intersection(&b).has(&value), a.has(&value) && b.has(&value));
    }

    #[test]
    fn intersection_is_commutative_associative_and_idempotent(a in requirement(), b in requirement(), c in requirement()) {
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&b).intersection(&c), a.intersection(&b.intersection(&c)));
        prop_assert_eq!(a.intersection(&a), a);
    }

    #[test]
    fn requirements_that_share_a_value_intersect(a in requirement(), b in requirement(), value in value()) {
        if a.has(&value) && b.has(&value) {
            prop_assert!(a.intersects(&b));
        }
        prop_assert_eq!(a.intersects(&b), b.intersects(&a));
    }

    #[test]
    fn any_value_is_an_allowed_one(a in requirement()) {
        if let Some(value) = a.value_for("claim") {
            prop_assert!(a.has(&value), "{} does not allow {}", a, value);
        }
    }

    #[test]
    fn the_api_form_says_the_same(a in requirement()) {
        let again = a.expressions().iter().map(|entry| {
            Requirement::new(&entry.key, entry.operator, &entry.values).with_min_values(entry.min_values)
        }).reduce(|a, b| a.intersection(&b));
        let mut again = again.expect("at least one entry");
        // What lists nothing has no flexibility to carry.
        again.set_min_values(a.min_values());
        prop_assert_eq!(again, a);
    }

    #[test]
    fn what_is_compatible_stays_so_when_it_is_added(a in requirement(), b in requirement()) {
        let (node, incoming) = (Requirements::new([a]), Requirements::new([b]));
        if node.compatible(&incoming, Undefined::Refused).is_ok() {
            let both = node.merged(&incoming);
            prop_assert!(both.compatible(&incoming, Undefined::Refused).is_ok(), "{} then {}", both, incoming);
        }
    }

    #[test]
    fn quantities_survive_printing(nanos in any::<i64>(), scale in 0u32..9) {
        let text = format!("{nanos}e-{scale}");
        let quantity: Quantity = text.parse().expect("a quantity");
        prop_assert_eq!(quantity.to_string().parse::<Quantity>().expect("canonical"), quantity);
    }

    #[test]
    fn no_text_breaks_the_parsers(text in "[-+0-9.eEinumkKMGTPhs%µ ]{0,24}|.{0,12}") {
        let _ = text.parse::<Quantity>();
        let _ = text.parse::<Price>();
        let _ = text.parse::<Operator>();
        let _ = text.parse::<Fraction>();
        let _ = text.parse::<SavingsThreshold>();
        let _ = text.parse::<GracePeriod>();
        if let Ok(duration) = text.parse::<DurationOrNever>() {
            prop_assert_eq!(duration.as_str(), text);
        }
    }

    #[test]
    fn no_text_however_long_takes_the_parsers_long(text in hostile_text(), other in hostile_text()) {
        let quantity = in_time(|| text.parse::<Quantity>());
        if let (Ok(one), Ok(another)) = (quantity, other.parse::<Quantity>()) {
            // Amounts that no machine has are added and compared like others.
            let _ = (one + another, one - another, one < another, (one + another).to_string());
        }
        let _ = in_time(|| (text.parse::<Price>(), text.parse::<Operator>(), text.parse::<Fraction>()));
        let _ = in_time(|| (text.parse::<SavingsThreshold>(), text.parse::<GracePeriod>()));
        let _ = in_time(|| (text.parse::<GoDuration>(), text.parse::<DurationOrNever>()));
        if let Ok(schedule) = in_time(|| text.parse::<Schedule>()) {
            let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(500_000);
            let _ = in_time(|| schedule.last_hit(now - SignedDuration::from_hours(24 * 366 * 5), now));
            let _ = in_time(|| schedule.next(now));
            let _ = in_time(|| (schedule.next(Timestamp::MAX), schedule.last_hit(Timestamp::MIN, Timestamp::MIN)));
        }
    }

    #[test]
    fn selectors_and_requirements_of_any_text_are_read(
        key in hostile_text(), operator in "In|NotIn|Exists|DoesNotExist|Gt|Lt", values in prop::collection::vec(hostile_text(), 0..4),
        pod in hostile_text(),
    ) {
        let test = LabelSelectorRequirement { key: key.clone(), operator: operator.clone(), values: Some(values.clone()) };
        let selector = LabelSelector { match_labels: Some(BTreeMap::from([(key.clone(), pod.clone())])), match_expressions: Some(vec![test]) };
        let labels = BTreeMap::from([(key.clone(), pod.clone())]);
        let _ = in_time(|| Selector::from_api(Some(&selector)).selects(&labels));
        let operator: Operator = operator.parse().expect("an operator");
        let requirement = Requirement::new(&key, operator, &values);
        let _ = in_time(|| (requirement.has(&pod), requirement.value_for(&pod), requirement.to_string()));
    }

    #[test]
    fn durations_add_up(hours in 0u64..1000, minutes in 0u64..60, seconds in 0u64..60) {
        let text = format!("{hours}h{minutes}m{seconds}s");
        let duration: GoDuration = text.parse().expect("a duration");
        prop_assert_eq!(duration.as_duration().as_secs(), hours * 3600 + minutes * 60 + seconds);
    }

    #[test]
    fn selectors_of_any_shape_are_read(
        labels in prop::collection::btree_map("[ab/.]{0,3}", "[ab]{0,2}", 0..3),
        key in "[ab/.]{0,3}",
        operator in "In|NotIn|Exists|DoesNotExist|.{0,4}",
        values in prop::option::of(prop::collection::vec("[ab]{0,2}", 0..3)),
        pod in prop::collection::btree_map("[ab]", "[ab]", 0..3),
    ) {
        let test = LabelSelectorRequirement { key, operator: operator.clone(), values };
        let known = ["In", "NotIn", "Exists", "DoesNotExist"].contains(&operator.as_str());
        let selector = LabelSelector { match_labels: Some(labels.clone()), match_expressions: Some(vec![test]) };
        let read = Selector::from_api(Some(&selector));
        // What cannot be read selects nothing; everything that is selected carries the labels.
        prop_assert!(known || !read.selects(&pod));
        prop_assert!(!read.selects(&pod) || labels.iter().all(|(key, value)| pod.get(key) == Some(value)));
    }

    #[test]
    fn sums_of_quantities_are_exact(a in -1_000_000i64..1_000_000, b in -1_000_000i64..1_000_000) {
        let sum = Quantity::from_millis(a) + Quantity::from_millis(b);
        prop_assert_eq!(sum, Quantity::from_millis(a + b));
        prop_assert_eq!(sum - Quantity::from_millis(b), Quantity::from_millis(a));
    }
}
