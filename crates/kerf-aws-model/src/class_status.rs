//! What a class selects in the account: how it is asked for, and what of the answers stands in the status of the class.

mod dry_run;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kerf_aws_api::{
    CapacityReservation, CapacityReservationSelectorTerm, CapacityReservationState,
    CapacityReservationType, InstanceMatchCriteria, PlacementGroupSelector, SecurityGroup,
    SecurityGroupSelectorTerm, Subnet, SubnetSelectorTerm, TagSelector,
};
use kerf_aws_wire::ec2;

use crate::instance_types::{PlacementGroup, PlacementStrategy};

pub use dry_run::{Account, DryRun, NoDryRun};

/// EC2 gives at most so many subnets or security groups in an answer.
const PAGE: i32 = 500;
const PAGE_OF_RESERVATIONS: i32 = 1000;

/// One call for all ids, and one for each other term.
pub fn subnet_requests(terms: &[SubnetSelectorTerm]) -> Vec<ec2::DescribeSubnetsRequest> {
    let ids = terms.iter().filter_map(|term| term.id.clone());
    let others = terms.iter().filter(|term| term.id.is_none());
    let filters = others.map(|term| tag_filters(&term.tags).collect());
    let request = |filters| ec2::DescribeSubnetsRequest {
        filters,
        max_results: Some(PAGE),
        ..Default::default()
    };
    by_ids("subnet-id", ids).into_iter().chain(filters).map(request).collect()
}

/// One call for all ids, and one for each other term.
pub fn security_group_requests(
    terms: &[SecurityGroupSelectorTerm],
) -> Vec<ec2::DescribeSecurityGroupsRequest> {
    let ids = terms.iter().filter_map(|term| term.id.clone());
    let others = terms.iter().filter(|term| term.id.is_none());
    let filters = others.map(|term| {
        let name = term.name.clone().map(|name| filter("group-name", [name]));
        name.into_iter().chain(tag_filters(&term.tags)).collect()
    });
    let request = |filters| ec2::DescribeSecurityGroupsRequest {
        filters,
        max_results: Some(PAGE),
        ..Default::default()
    };
    by_ids("group-id", ids).into_iter().chain(filters).map(request).collect()
}

/// One call for each term: EC2 refuses a list of ids as a whole if one of them is unknown.
pub fn reservation_requests(
    terms: &[CapacityReservationSelectorTerm],
) -> Vec<ec2::DescribeCapacityReservationsRequest> {
    let active = || filter("state", ["active".to_owned()]);
    let request = |term: &CapacityReservationSelectorTerm| {
        if let Some(id) = &term.id {
            return ec2::DescribeCapacityReservationsRequest {
                capacity_reservation_ids: vec![id.clone()],
                filters: vec![active()],
                ..Default::default()
            };
        }
        let owner = term.owner_id.clone().map(|owner| filter("owner-id", [owner]));
        let criteria = term
            .instance_match_criteria
            .map(|criteria| filter("instance-match-criteria", [criteria.as_str().to_owned()]));
        let filters = [active()].into_iter().chain(owner).chain(criteria);
        ec2::DescribeCapacityReservationsRequest {
            filters: filters.chain(tag_filters(&term.tags)).collect(),
            max_results: Some(PAGE_OF_RESERVATIONS),
            ..Default::default()
        }
    };
    terms.iter().map(request).collect()
}

pub fn placement_group_request(
    selector: &PlacementGroupSelector,
) -> ec2::DescribePlacementGroupsRequest {
    ec2::DescribePlacementGroupsRequest {
        group_ids: selector.id.iter().cloned().collect(),
        group_names: selector.name.iter().cloned().collect(),
        filters: vec![filter("state", ["available".to_owned()])],
        ..Default::default()
    }
}

/// The launch templates with these tags.
pub fn templates_request(tags: &[(&str, &str)]) -> ec2::DescribeLaunchTemplatesRequest {
    let filter = |(key, value): &(&str, &str)| filter(&format!("tag:{key}"), [(*value).to_owned()]);
    ec2::DescribeLaunchTemplatesRequest {
        filters: tags.iter().map(filter).collect(),
        ..Default::default()
    }
}

/// None for terms that name none.
fn by_ids(name: &str, ids: impl Iterator<Item = String>) -> Option<Vec<ec2::Filter>> {
    let ids: Vec<_> = ids.collect();
    (!ids.is_empty()).then(|| vec![filter(name, ids)])
}

pub(crate) fn filter(name: &str, values: impl IntoIterator<Item = String>) -> ec2::Filter {
    ec2::Filter { name: Some(name.to_owned()), values: values.into_iter().collect() }
}

/// The value `*` stands for any value.
pub(crate) fn tag_filters(tags: &TagSelector) -> impl Iterator<Item = ec2::Filter> + '_ {
    tags.iter().map(|(key, value)| match value.as_str() {
        "*" => filter("tag-key", [key.clone()]),
        value => filter(&format!("tag:{key}"), [value.to_owned()]),
    })
}

/// Each subnet once with its free addresses, the one with most first.
pub fn subnets(found: Vec<ec2::Subnet>) -> Vec<(Subnet, i64)> {
    let read = |one: ec2::Subnet| {
        let (id, zone) = (one.subnet_id?, one.availability_zone?);
        let free = one.available_ip_address_count.unwrap_or(0).into();
        Some((Subnet { id, zone, zone_id: one.availability_zone_id }, free))
    };
    let mut all: Vec<(Subnet, i64)> = found.into_iter().filter_map(read).collect();
    all.sort_by(|(one, free), (other, others)| {
        others.cmp(free).then_with(|| one.id.cmp(&other.id))
    });
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|(subnet, _)| seen.insert(subnet.id.clone()));
    all
}

/// Each group once, by id.
pub fn security_groups(found: Vec<ec2::SecurityGroup>) -> Vec<SecurityGroup> {
    let read = |one: ec2::SecurityGroup| {
        let name = one.group_name.filter(|name| !name.is_empty());
        Some(SecurityGroup { id: one.group_id?, name })
    };
    let mut all: Vec<_> = found.into_iter().filter_map(read).collect();
    all.sort_by(|one, other| one.id.cmp(&other.id));
    all.dedup_by(|one, other| one.id == other.id);
    all
}

/// Each reservation once, by id, with how many instances it has left. Those that have ended, and those of a kind that is not
/// known, are left out.
pub fn reservations(
    found: Vec<ec2::CapacityReservation>,
    now: Timestamp,
) -> Vec<(CapacityReservation, u32)> {
    let read = |one: ec2::CapacityReservation| {
        let end = one.end_date.filter(|_| one.end_date_type.as_deref() != Some("unlimited"));
        if end.is_some_and(|end| end <= now) {
            return None;
        }
        let instance_match_criteria = match one.instance_match_criteria.as_deref()? {
            "open" => InstanceMatchCriteria::Open,
            "targeted" => InstanceMatchCriteria::Targeted,
            _ => return None,
        };
        let reservation_type = match one.reservation_type.as_deref() {
            None | Some("default") => CapacityReservationType::Default,
            Some("capacity-block") => CapacityReservationType::CapacityBlock,
            Some(_) => return None,
        };
        let left = one.available_instance_count.and_then(|count| u32::try_from(count).ok());
        let reservation = CapacityReservation {
            availability_zone: one.availability_zone?,
            end_time: end.map(Time),
            id: one.capacity_reservation_id?,
            instance_match_criteria,
            instance_type: one.instance_type?,
            owner_id: one.owner_id?,
            reservation_type,
            interruptible: one.interruptible == Some(true),
            state: CapacityReservationState::at(now, reservation_type, end),
        };
        Some((reservation, left.unwrap_or(0)))
    };
    let mut all: Vec<(CapacityReservation, u32)> = found.into_iter().filter_map(read).collect();
    all.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
    all.dedup_by(|(one, _), (other, _)| one.id == other.id);
    all
}

/// `None` if there is none of that name, or of a kind that is not known.
pub fn placement_group(found: Vec<ec2::PlacementGroup>) -> Option<PlacementGroup> {
    let group = found.into_iter().next()?;
    let strategy = match group.strategy.as_deref()? {
        "cluster" => PlacementStrategy::Cluster,
        "spread" => PlacementStrategy::Spread,
        "partition" => {
            let count = group.partition_count.and_then(|count| u32::try_from(count).ok());
            PlacementStrategy::Partition { count: count.unwrap_or(0) }
        }
        _ => return None,
    };
    Some(PlacementGroup { id: group.group_id?, strategy })
}

#[cfg(test)]
mod tests;
