//! Capacity reservations and placement groups.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kerf_aws_wire::ec2;

use crate::cloud::{Answer, Cloud};
use crate::filters::{one, select, tag_list};
use crate::network::known;
use crate::paging::{PageSize, page};
use crate::refused::Refused;

/// Capacity that is paid for, used or not.
#[derive(Clone, Debug)]
pub struct Reservation {
    pub id: String,
    pub instance_type: String,
    pub zone: String,
    pub total: u32,
    pub available: u32,
    pub kind: ReservationKind,
    /// Taken by any launch that fits, and not by those alone that name it.
    pub open: bool,
    pub end: Option<Timestamp>,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationKind {
    Default,
    CapacityBlock,
    /// Its owner can take it back.
    Interruptible,
}

impl Reservation {
    /// Of the account's own, for those that name it, without an end.
    pub fn new(id: &str, instance_type: &str, zone: &str, total: u32) -> Self {
        Self {
            id: id.to_owned(),
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            total,
            available: total,
            kind: ReservationKind::Default,
            open: false,
            end: None,
            tags: BTreeMap::new(),
        }
    }

    pub(crate) fn is_active(&self, now: Timestamp) -> bool {
        self.end.is_none_or(|end| end > now)
    }

    fn state(&self, now: Timestamp) -> &'static str {
        if self.is_active(now) { "active" } else { "expired" }
    }
}

#[derive(Clone, Debug)]
pub struct PlacementGroup {
    pub id: String,
    pub name: String,
    pub strategy: Strategy,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Cluster,
    Partition { count: i32 },
    Spread,
}

/// A spread group has no more instances in one zone.
pub(crate) const SPREAD_LIMIT: usize = 7;

const PAGE: PageSize = PageSize::new(1, 1000, 1000);

impl Answer for ec2::DescribeCapacityReservationsRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let (now, account) = (cloud.now, &cloud.settings.account);
        let all = &cloud.reservations;
        let code = "InvalidCapacityReservationId.NotFound";
        known(&self.capacity_reservation_ids, all, code, "capacity reservation")?;
        let criteria = |one: &Reservation| if one.open { "open" } else { "targeted" };
        let found = select(
            all.values(),
            &self.filters,
            |one| &one.tags,
            |reservation, name| match name {
                "state" => one(reservation.state(now)),
                "owner-id" => one(account),
                "instance-type" => one(&reservation.instance_type),
                "instance-match-criteria" => one(criteria(reservation)),
                "availability-zone" => one(&reservation.zone),
                _ => None,
            },
        )?;
        let wanted = |one: &&Reservation| {
            self.capacity_reservation_ids.is_empty()
                || self.capacity_reservation_ids.contains(&one.id)
        };
        let describe = |one: &Reservation| ec2::CapacityReservation {
            availability_zone: Some(one.zone.clone()),
            availability_zone_id: cloud.network.zone_id(&one.zone),
            available_instance_count: i32::try_from(one.available).ok(),
            capacity_block_id: None,
            capacity_reservation_id: Some(one.id.clone()),
            end_date: one.end,
            end_date_type: Some(if one.end.is_some() { "limited" } else { "unlimited" }.to_owned()),
            instance_match_criteria: Some(criteria(one).to_owned()),
            instance_platform: Some("Linux/UNIX".to_owned()),
            instance_type: Some(one.instance_type.clone()),
            interruptible: Some(one.kind == ReservationKind::Interruptible),
            owner_id: Some(account.clone()),
            placement_group_arn: None,
            reservation_type: Some(
                match one.kind {
                    ReservationKind::CapacityBlock => "capacity-block",
                    ReservationKind::Default | ReservationKind::Interruptible => "default",
                }
                .to_owned(),
            ),
            start_date: None,
            state: Some(one.state(now).to_owned()),
            tags: tag_list(&one.tags),
            tenancy: Some("default".to_owned()),
            total_instance_count: i32::try_from(one.total).ok(),
        };
        let found: Vec<_> = found.into_iter().filter(wanted).map(describe).collect();
        let (capacity_reservations, next_token) = page(
            found,
            |one| one.capacity_reservation_id.clone().unwrap_or_default(),
            &PAGE,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        Ok(ec2::DescribeCapacityReservationsResponse { capacity_reservations, next_token })
    }
}

impl Answer for ec2::DescribePlacementGroupsRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let all = &cloud.placement_groups;
        let has =
            |wanted: &String| all.iter().any(|group| group.id == *wanted || group.name == *wanted);
        if let Some(name) = self.group_ids.iter().chain(&self.group_names).find(|name| !has(name)) {
            let message = format!("The Placement Group '{name}' is unknown.");
            return Err(Refused::new("InvalidPlacementGroup.Unknown", message));
        }
        let found = select(
            all,
            &self.filters,
            |group: &PlacementGroup| &group.tags,
            |group, name| match name {
                "group-id" => one(&group.id),
                "group-name" => one(&group.name),
                "state" => one("available"),
                "strategy" => one(strategy(group.strategy)),
                _ => None,
            },
        )?;
        let wanted = |group: &&PlacementGroup| {
            (self.group_ids.is_empty() || self.group_ids.contains(&group.id))
                && (self.group_names.is_empty() || self.group_names.contains(&group.name))
        };
        let (region, account) = (&cloud.settings.region, &cloud.settings.account);
        let describe = |group: &PlacementGroup| ec2::PlacementGroup {
            group_arn: Some(format!(
                "arn:aws:ec2:{region}:{account}:placement-group/{}",
                group.name
            )),
            group_id: Some(group.id.clone()),
            group_name: Some(group.name.clone()),
            partition_count: match group.strategy {
                Strategy::Partition { count } => Some(count),
                Strategy::Cluster | Strategy::Spread => None,
            },
            spread_level: (group.strategy == Strategy::Spread).then(|| "rack".to_owned()),
            state: Some("available".to_owned()),
            strategy: Some(strategy(group.strategy).to_owned()),
            tags: tag_list(&group.tags),
        };
        let placement_groups = found.into_iter().filter(wanted).map(describe).collect();
        Ok(ec2::DescribePlacementGroupsResponse { placement_groups })
    }
}

fn strategy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Cluster => "cluster",
        Strategy::Partition { .. } => "partition",
        Strategy::Spread => "spread",
    }
}

/// Those that are named by a template.
pub(crate) fn placement_group<'a>(
    groups: &'a [PlacementGroup],
    placement: &ec2::LaunchTemplatePlacementRequest,
) -> Result<Option<&'a PlacementGroup>, Refused> {
    let Some(wanted) = placement.group_id.as_ref().or(placement.group_name.as_ref()) else {
        return Ok(None);
    };
    let found = groups.iter().find(|group| group.id == *wanted || group.name == *wanted);
    found.map(Some).ok_or_else(|| {
        let message = format!("The placement group '{wanted}' is unknown.");
        Refused::new("InvalidPlacementGroup.Unknown", message)
    })
}
