use super::*;
use crate::catalogue::shared;

const SPOT_A: Source<'_> =
    Source { capacity_type: "spot", zone: "a", placement: Placement::Anywhere };

fn facts(name: &str) -> &'static TypeFacts {
    shared().get(name).unwrap()
}

fn at(minutes: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
}

/// What is said of a type, without its times.
fn said(unavailable: &Unavailable, name: &str, source: Source<'_>, minute: i64) -> String {
    match unavailable.shortage(facts(name), source, &[], at(minute)) {
        None => String::new(),
        Some(Shortage::Marked { strikes, .. }) => format!("{strikes}"),
        Some(Shortage::SmallerIsOut { smaller, .. }) => smaller,
        Some(Shortage::FamilyIsOut { sizes, .. }) => format!("{sizes} sizes"),
        Some(Shortage::CapacityType { capacity_type, .. }) => capacity_type,
        Some(Shortage::Subnets { .. }) => "subnets".to_owned(),
    }
}

#[test]
fn the_time_grows_while_failures_go_on() {
    let mut unavailable = Unavailable::default();
    let large = facts("m5.large");
    // Failure at this minute, then the minutes at which it is out and no longer out.
    for (failed, strikes, still, over) in
        [(0, "1", 2, 3), (3, "2", 8, 9), (9, "3", 20, 21), (21, "4", 44, 45), (45, "5", 68, 69)]
    {
        unavailable.mark(large, SPOT_A, at(failed));
        assert_eq!(said(&unavailable, "m5.large", SPOT_A, still), strikes, "{failed}");
        assert_eq!(said(&unavailable, "m5.large", SPOT_A, over), "", "{failed}");
    }
    // After a long time without failure it begins anew.
    unavailable.mark(large, SPOT_A, at(1000));
    assert_eq!(said(&unavailable, "m5.large", SPOT_A, 1002), "1");
}

#[test]
fn failures_side_by_side_are_one_and_renew_the_time() {
    let mut unavailable = Unavailable::default();
    for minute in [0, 1, 2] {
        unavailable.mark(facts("m5.large"), SPOT_A, at(minute));
    }
    assert_eq!(said(&unavailable, "m5.large", SPOT_A, 4), "1");
    assert_eq!(said(&unavailable, "m5.large", SPOT_A, 5), "");
}

#[test]
fn a_shortage_is_of_one_capacity_type_and_zone() {
    let mut unavailable = Unavailable::default();
    unavailable.mark(facts("m5.large"), SPOT_A, at(0));
    for other in [Source { capacity_type: "on-demand", ..SPOT_A }, Source { zone: "b", ..SPOT_A }] {
        assert_eq!(said(&unavailable, "m5.large", other, 1), "");
    }
    assert_eq!(said(&unavailable, "m5d.large", SPOT_A, 1), "", "another family");
}

#[test]
fn larger_sizes_are_left_alone_for_a_while_and_smaller_ones_are_not() {
    let mut unavailable = Unavailable::default();
    unavailable.mark(facts("m5.4xlarge"), SPOT_A, at(0));
    for (name, expected) in [
        ("m5.4xlarge", "1"),
        ("m5.8xlarge", "m5.4xlarge"),
        ("m5.metal", "m5.4xlarge"),
        ("m5.2xlarge", ""),
    ] {
        assert_eq!(said(&unavailable, name, SPOT_A, 1), expected, "{name}");
    }
    // What is inferred does not grow.
    unavailable.mark(facts("m5.4xlarge"), SPOT_A, at(3));
    assert_eq!(said(&unavailable, "m5.4xlarge", SPOT_A, 7), "2");
    assert_eq!(said(&unavailable, "m5.8xlarge", SPOT_A, 7), "");
}

#[test]
fn with_three_sizes_out_the_family_is() {
    let mut unavailable = Unavailable::default();
    for (name, expected) in [("m5.4xlarge", ""), ("m5.2xlarge", ""), ("m5.8xlarge", "3 sizes")] {
        unavailable.mark(facts(name), SPOT_A, at(0));
        assert_eq!(said(&unavailable, "m5.large", SPOT_A, 1), expected, "{name}");
    }
    assert_eq!(said(&unavailable, "m5.large", Source { zone: "b", ..SPOT_A }, 1), "");
    assert_eq!(said(&unavailable, "m5.large", SPOT_A, 3), "");
}

#[test]
fn a_launch_shows_that_this_size_and_smaller_ones_are_there() {
    let mut unavailable = Unavailable::default();
    for name in ["m5.large", "m5.4xlarge", "m5.16xlarge"] {
        unavailable.mark(facts(name), SPOT_A, at(0));
    }
    unavailable.launched(facts("m5.4xlarge"), SPOT_A);
    for (name, expected) in [
        ("m5.large", ""),
        ("m5.4xlarge", ""),
        ("m5.8xlarge", ""),
        ("m5.16xlarge", "1"),
        ("m5.24xlarge", "m5.16xlarge"),
    ] {
        assert_eq!(said(&unavailable, name, SPOT_A, 1), expected, "{name}");
    }
}

#[test]
fn placement_groups_have_shortages_of_their_own() {
    let mut unavailable = Unavailable::default();
    let placed = |placement| Source { placement, ..SPOT_A };
    unavailable.mark(facts("m5.large"), placed(Placement::Partition("pg-1", 1)), at(0));
    unavailable.mark(facts("c5.large"), placed(Placement::Group("pg-1")), at(0));
    unavailable.mark(facts("r5.large"), SPOT_A, at(0));
    for (name, placement, expected) in [
        ("m5.large", Placement::Partition("pg-1", 1), "1"),
        ("m5.large", Placement::Partition("pg-1", 2), ""),
        ("m5.large", Placement::Anywhere, ""),
        ("c5.large", Placement::Partition("pg-1", 2), "1"),
        ("c5.large", Placement::Group("pg-2"), ""),
        ("c5.large", Placement::Anywhere, ""),
        ("r5.large", Placement::Partition("pg-1", 2), "1"),
    ] {
        assert_eq!(
            said(&unavailable, name, placed(placement), 1),
            expected,
            "{name} {placement:?}"
        );
    }
}

#[test]
fn capacity_types_and_subnets_can_be_out_as_a_whole() {
    let mut unavailable = Unavailable::default();
    let large = facts("m5.large");
    let subnets = ["subnet-1".to_owned(), "subnet-2".to_owned()];
    unavailable.mark_subnet("subnet-1", at(0));
    assert_eq!(unavailable.shortage(large, SPOT_A, &subnets, at(1)), None, "one of two");
    assert_eq!(
        unavailable.shortage(large, SPOT_A, &[], at(1)),
        None,
        "zones without subnets have their own reason"
    );
    unavailable.mark_subnet("subnet-2", at(1));
    assert_eq!(
        unavailable.shortage(large, SPOT_A, &subnets, at(2)),
        Some(Shortage::Subnets { until: at(3) })
    );
    assert_eq!(unavailable.shortage(large, SPOT_A, &subnets, at(3)), None);
    unavailable.mark_capacity_type("spot", at(10));
    assert_eq!(said(&unavailable, "m5.large", SPOT_A, 12), "spot");
    assert_eq!(
        said(&unavailable, "m5.large", Source { capacity_type: "on-demand", ..SPOT_A }, 12),
        ""
    );
    assert_eq!(said(&unavailable, "m5.large", SPOT_A, 13), "");
}

#[test]
fn versions_tell_when_something_changes_and_when_to_look_again() {
    let mut unavailable = Unavailable::default();
    let (large, other) = (facts("m5.large"), facts("c5.large"));
    assert_eq!(unavailable.expire(at(0)), None);
    let versions =
        |unavailable: &Unavailable| (unavailable.version(large), unavailable.version(other));
    let start = versions(&unavailable);
    unavailable.mark(large, SPOT_A, at(0));
    let marked = versions(&unavailable);
    assert!(marked.0 > start.0 && marked.1 == start.1);
    assert_eq!(unavailable.expire(at(0)), Some(at(3)));
    assert_eq!(versions(&unavailable), marked, "nothing changed");
    assert_eq!(unavailable.expire(at(3)), Some(at(6)), "it is remembered for as long again");
    let over = versions(&unavailable);
    assert!(over.0 > marked.0 && over.1 == marked.1);
    assert_eq!(unavailable.expire(at(6)), None);
    assert!(unavailable.families["m5"].pools.is_empty());
    unavailable.mark_capacity_type("spot", at(6));
    assert!(unavailable.version(other) > over.1);
}

#[test]
fn what_was_learned_survives_a_restart() {
    let mut unavailable = Unavailable::default();
    unavailable.mark(facts("m5.large"), SPOT_A, at(0));
    unavailable.mark(facts("m5.large"), SPOT_A, at(4));
    let saved = serde_json::to_string(&unavailable).unwrap();
    let again: Unavailable = serde_json::from_str(&saved).unwrap();
    assert_eq!(said(&again, "m5.large", SPOT_A, 9), "2");
}
