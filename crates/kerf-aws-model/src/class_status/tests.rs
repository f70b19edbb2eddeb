use serde_json::{Value, json};

use super::*;

fn terms<T: serde::de::DeserializeOwned>(terms: &Value) -> Vec<T> {
    serde_json::from_value(terms.clone()).unwrap()
}

/// `name=value|value` of each filter.
fn written(filters: &[ec2::Filter]) -> Vec<String> {
    let one = |filter: &ec2::Filter| {
        format!("{}={}", filter.name.as_deref().unwrap_or_default(), filter.values.join("|"))
    };
    filters.iter().map(one).collect()
}

#[test]
fn terms_become_calls() {
    let both = json!([
        {"tags": {"a": "*", "b": "c"}}, {"id": "x-1"}, {"tags": {"d": "e"}}, {"id": "x-2"},
    ]);
    let subnets = subnet_requests(&terms(&both));
    let subnets: Vec<_> = subnets.iter().map(|request| written(&request.filters)).collect();
    let expected = [vec!["subnet-id=x-1|x-2"], vec!["tag-key=a", "tag:b=c"], vec!["tag:d=e"]];
    assert_eq!(subnets, expected);

    let groups = security_group_requests(&terms(&json!([
        {"id": "sg-1"}, {"name": "nodes"}, {"tags": {"a": "b"}},
    ])));
    let groups: Vec<_> = groups.iter().map(|request| written(&request.filters)).collect();
    assert_eq!(groups, [["group-id=sg-1"], ["group-name=nodes"], ["tag:a=b"]]);

    let found = reservation_requests(&terms(&json!([
        {"id": "cr-1"}, {"ownerID": "123456789012", "instanceMatchCriteria": "open", "tags": {"a": "b"}},
    ])));
    assert_eq!(found[0].capacity_reservation_ids, ["cr-1"]);
    assert_eq!(
        (written(&found[0].filters), found[0].max_results),
        (vec!["state=active".into()], None)
    );
    let expected =
        ["state=active", "owner-id=123456789012", "instance-match-criteria=open", "tag:a=b"];
    assert_eq!(written(&found[1].filters), expected);

    for selector in [json!({"id": "pg-1"}), json!({"name": "near"})] {
        let request = placement_group_request(&serde_json::from_value(selector.clone()).unwrap());
        assert_eq!(json!(request.group_ids.first()), selector["id"]);
        assert_eq!(json!(request.group_names.first()), selector["name"]);
        assert_eq!(written(&request.filters), ["state=available"]);
    }
}

#[test]
fn subnets_are_sorted_by_free_addresses() {
    let subnet = |id: &str, free: i32| ec2::Subnet {
        subnet_id: Some(id.to_owned()),
        availability_zone: Some("a".to_owned()),
        available_ip_address_count: Some(free),
        ..Default::default()
    };
    let found = vec![subnet("s-3", 5), subnet("s-2", 5), subnet("s-1", 9), subnet("s-2", 5)];
    let found = subnets(found);
    let found: Vec<_> = found.iter().map(|(subnet, free)| (&*subnet.id, *free)).collect();
    assert_eq!(found, [("s-1", 9), ("s-2", 5), ("s-3", 5)]);
    assert!(subnets(vec![ec2::Subnet::default()]).is_empty());
}

#[test]
fn security_groups_are_sorted_by_id() {
    let group = |id: &str| ec2::SecurityGroup {
        group_id: Some(id.to_owned()),
        group_name: Some(format!("{id}-name")),
        ..Default::default()
    };
    let found = security_groups(vec![group("sg-2"), group("sg-1"), group("sg-2")]);
    let found: Vec<_> = found.iter().map(|group| (&*group.id, group.name.as_deref())).collect();
    assert_eq!(found, [("sg-1", Some("sg-1-name")), ("sg-2", Some("sg-2-name"))]);
}

#[test]
fn reservations_that_have_ended_are_left_out() {
    let now: Timestamp = "2026-11-16T20:00:00Z".parse().unwrap();
    let minutes = |minutes: i64| Some(now + jiff::SignedDuration::from_mins(minutes));
    let reservation = |id: &str, kind: &str, end: Option<Timestamp>| ec2::CapacityReservation {
        availability_zone: Some("us-west-2a".to_owned()),
        available_instance_count: Some(3),
        capacity_reservation_id: Some(id.to_owned()),
        end_date: end,
        instance_match_criteria: Some("targeted".to_owned()),
        instance_type: Some("m5.large".to_owned()),
        owner_id: Some("123456789012".to_owned()),
        reservation_type: Some(kind.to_owned()),
        ..Default::default()
    };
    let found = reservations(
        vec![
            reservation("cr-5", "default", minutes(10)),
            reservation("cr-4", "default", None),
            reservation("cr-3", "capacity-block", minutes(40)),
            reservation("cr-2", "default", minutes(0)),
            reservation("cr-1", "something-new", None),
            reservation("cr-4", "default", None),
        ],
        now,
    );
    let expiring = CapacityReservationState::Expiring;
    let found: Vec<_> =
        found.iter().map(|(one, left)| (&*one.id, one.state == expiring, *left)).collect();
    assert_eq!(found, [("cr-3", true, 3), ("cr-4", false, 3), ("cr-5", false, 3)]);
}

#[test]
fn placement_groups_have_a_strategy() {
    let group = |strategy: &str, partitions: Option<i32>| {
        placement_group(vec![ec2::PlacementGroup {
            group_id: Some("pg-1".to_owned()),
            strategy: Some(strategy.to_owned()),
            partition_count: partitions,
            ..Default::default()
        }])
        .map(|group| group.strategy)
    };
    assert_eq!(group("cluster", None), Some(PlacementStrategy::Cluster));
    assert_eq!(group("spread", None), Some(PlacementStrategy::Spread));
    assert_eq!(group("partition", Some(3)), Some(PlacementStrategy::Partition { count: 3 }));
    assert_eq!(group("something-new", None), None);
    assert_eq!(placement_group(Vec::new()), None);
}
