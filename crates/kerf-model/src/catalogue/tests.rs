use super::*;
use crate::instance_type::{Offering, Overhead};
use crate::labels::{CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE};
use crate::requirement::{Operator, Requirement};
use crate::resources::Resources;

fn instance_type(name: &str, family: &str, price: &str) -> Arc<InstanceType> {
    let offering = Offering {
        requirements: [Requirement::is_in(CAPACITY_TYPE, [SPOT]), Requirement::is_in(ZONE, ["a"])]
            .into_iter()
            .collect(),
        price: price.parse().unwrap(),
        available: true,
        ..Offering::default()
    };
    let requirements = [
        Requirement::is_in(INSTANCE_TYPE, [name]),
        Requirement::is_in("family", [family]),
        Requirement::is_in("zones", ["a", "b", "c"]),
    ];
    Arc::new(InstanceType::new(
        name,
        requirements.into_iter().collect(),
        vec![offering],
        Resources::new(),
        Overhead::default(),
    ))
}

fn types() -> Vec<Arc<InstanceType>> {
    vec![
        instance_type("c-large", "c", "3"),
        instance_type("b", "b", "1"),
        instance_type("a", "a", "1"),
        instance_type("c-small", "c", "2"),
    ]
}

fn names(types: &[Arc<InstanceType>]) -> Vec<&str> {
    types.iter().map(|instance_type| instance_type.name()).collect()
}

fn wants(list: &[(&str, u32)]) -> Requirements {
    list.iter()
        .map(|(key, min)| {
            Requirement::new(key, Operator::Exists, [""; 0]).with_min_values(Some(*min))
        })
        .collect()
}

#[test]
fn equal_prices_are_ordered_by_name() {
    let mut types = types();
    order_by_price(&mut types, &Requirements::default(), &KnownLabels::default());
    assert_eq!(names(&types), ["a", "b", "c-small", "c-large"]);
}

#[test]
fn counts_distinct_values_until_every_key_has_enough() {
    let short = |list: &[(&str, u32)]| {
        Err(TooFewValues(list.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect()))
    };
    for (wanted, expect) in [
        (wants(&[]), Ok(0)),
        (wants(&[("family", 1)]), Ok(1)),
        (wants(&[("family", 3)]), Ok(3)),
        (wants(&[(INSTANCE_TYPE, 4), ("family", 2)]), Ok(4)),
        (wants(&[("family", 4)]), short(&[("family", 3)])),
        (wants(&[("family", 4), (INSTANCE_TYPE, 5)]), short(&[("family", 3), (INSTANCE_TYPE, 4)])),
        (wants(&[("family", 4), (INSTANCE_TYPE, 4)]), short(&[("family", 3)])),
        (wants(&[("unknown", 1)]), short(&[("unknown", 0)])),
    ] {
        assert_eq!(satisfies_min_values(&types(), &wanted), expect, "{wanted}");
    }
    assert_eq!(satisfies_min_values(&[], &wants(&[("family", 3)])), Ok(0));
}

#[test]
fn counts_only_values_that_the_requirement_admits() {
    use Operator::{In, NotIn};
    let at_least = |key: &str, operator, values: &[&str], min| {
        let one = Requirement::new(key, operator, values.to_vec()).with_min_values(Some(min));
        satisfies_min_values(&types(), &[one].into_iter().collect())
    };
    let short = |key: &str, left| Err(TooFewValues([(key.to_owned(), left)].into()));
    assert_eq!(at_least("family", In, &["a", "b"], 2), Ok(3));
    assert_eq!(at_least("family", In, &["a", "b", "z"], 3), short("family", 2));
    assert_eq!(at_least("family", NotIn, &["b"], 2), Ok(3));
    assert_eq!(at_least("family", NotIn, &["b"], 3), short("family", 2));
    assert_eq!(at_least(INSTANCE_TYPE, NotIn, &["a", "b"], 2), Ok(4));
    assert_eq!(at_least("zones", In, &["a"], 1), Ok(1));
    assert_eq!(at_least("zones", In, &["a", "z"], 2), short("zones", 1));
}

#[test]
fn truncation_keeps_the_cheapest_and_respects_flexibility() {
    let labels = KnownLabels::default();
    let cut = |wanted: &Requirements, max, policy| {
        let mut types = types();
        let result = truncate(&mut types, wanted, &labels, max, policy);
        (result.is_ok(), types.len())
    };
    assert_eq!(cut(&wants(&[]), 2, MinValuesPolicy::Strict), (true, 2));
    assert_eq!(cut(&wants(&[]), 9, MinValuesPolicy::Strict), (true, 4));
    assert_eq!(cut(&wants(&[("family", 3)]), 3, MinValuesPolicy::Strict), (true, 3));
    assert_eq!(cut(&wants(&[("family", 3)]), 2, MinValuesPolicy::Strict), (false, 4));
    assert_eq!(cut(&wants(&[("family", 3)]), 2, MinValuesPolicy::BestEffort), (true, 2));
}
