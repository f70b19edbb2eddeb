//! What `Describe…` calls say of an instance.

use kerf_aws_wire::ec2;

use super::{Impairment, Instance, State};
use crate::chance;
use crate::cloud::Cloud;
use crate::filters::{Texts, one, tag_list};
use crate::instance_types::architecture;
use crate::pools::Market;
use crate::reservations::{ReservationKind, placement_group};

impl Instance {
    pub(crate) fn describe(&self, cloud: &Cloud) -> ec2::Instance {
        let dead = self.state == State::Terminated;
        // A terminated instance has no interfaces, and neither address nor subnet.
        let attached = |text: String| (!dead).then_some(text);
        let (code, message) = self.end.map_or(("", ""), |(end, _)| end.reason());
        ec2::Instance {
            architecture: Some(architecture(&self.facts).to_owned()),
            capacity_block_id: None,
            capacity_reservation_id: self.reservation.clone(),
            capacity_reservation_specification: Some(self.reservation_specification()),
            client_token: Some(self.client_token.clone()),
            iam_instance_profile: self.profile_arn.as_ref().map(|arn| ec2::IamInstanceProfile {
                arn: Some(arn.clone()),
                id: Some(format!("AIPA{:016X}", chance::draw(0, &[arn]))),
            }),
            image_id: Some(self.image.clone()),
            instance_id: Some(self.id.clone()),
            instance_lifecycle: self.lifecycle(cloud).map(str::to_owned),
            instance_type: Some(self.facts.name.clone()),
            launch_time: Some(self.launched),
            network_interfaces: if dead { Vec::new() } else { self.interfaces(cloud) },
            placement: Some(self.placement(cloud)),
            private_dns_name: attached(self.dns_name(&cloud.settings.region)),
            private_ip_address: attached(self.address.clone()),
            security_groups: if dead { Vec::new() } else { self.groups(cloud) },
            spot_instance_request_id: self.spot_request.clone(),
            state: Some(state(self.state)),
            state_reason: self.end.map(|_| ec2::StateReason {
                code: Some(code.to_owned()),
                message: Some(format!("{code}: {message}")),
            }),
            state_transition_reason: self.end.map(|_| message.to_owned()),
            subnet_id: attached(self.subnet.clone()),
            tags: tag_list(&self.tags),
            vpc_id: attached(cloud.network.vpc.clone()),
        }
    }

    fn lifecycle(&self, cloud: &Cloud) -> Option<&'static str> {
        if self.market == Market::Spot {
            return Some("spot");
        }
        let kind = cloud.reservations.get(self.reservation.as_deref()?)?.kind;
        match kind {
            ReservationKind::Default => None,
            ReservationKind::CapacityBlock => Some("capacity-block"),
            ReservationKind::Interruptible => Some("interruptible-capacity-reservation"),
        }
    }

    fn reservation_specification(&self) -> ec2::CapacityReservationSpecificationResponse {
        let asked = self.template.capacity_reservation_specification.as_ref();
        let target = asked.and_then(|asked| asked.capacity_reservation_target.as_ref());
        let preference = asked.and_then(|asked| asked.capacity_reservation_preference.clone());
        ec2::CapacityReservationSpecificationResponse {
            capacity_reservation_preference: preference.or_else(|| Some("open".to_owned())),
            capacity_reservation_target: target.map(|target| {
                ec2::CapacityReservationTargetResponse {
                    capacity_reservation_id: target.capacity_reservation_id.clone(),
                }
            }),
        }
    }

    fn groups(&self, cloud: &Cloud) -> Vec<ec2::GroupIdentifier> {
        let ids = match self.template.network_interfaces.first() {
            Some(first) => &first.groups,
            None => &self.template.security_group_ids,
        };
        identifiers(ids, cloud)
    }

    fn interfaces(&self, cloud: &Cloud) -> Vec<ec2::InstanceNetworkInterface> {
        let interface =
            |number: usize, kind: Option<&String>, groups| ec2::InstanceNetworkInterface {
                groups,
                interface_type: Some(kind.map_or("interface", String::as_str).to_owned()),
                network_interface_id: Some(chance::id("eni", 0, &[&self.id, &number.to_string()])),
                subnet_id: Some(self.subnet.clone()),
            };
        let asked = &self.template.network_interfaces;
        if asked.is_empty() {
            return vec![interface(0, None, self.groups(cloud))];
        }
        let of = |(number, one): (
            usize,
            &ec2::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest,
        )| {
            interface(number, one.interface_type.as_ref(), identifiers(&one.groups, cloud))
        };
        asked.iter().enumerate().map(of).collect()
    }

    fn placement(&self, cloud: &Cloud) -> ec2::Placement {
        let asked = self.template.placement.clone().unwrap_or_default();
        let group = placement_group(&cloud.placement_groups, &asked).ok().flatten();
        ec2::Placement {
            availability_zone: Some(self.zone.clone()),
            availability_zone_id: cloud.network.zone_id(&self.zone),
            group_id: group.map(|group| group.id.clone()),
            group_name: group.map(|group| group.name.clone()),
            partition_number: self.partition,
            tenancy: asked.tenancy.or_else(|| Some("default".to_owned())),
        }
    }

    /// The texts of a filter of `DescribeInstances`.
    pub(crate) fn texts(&self, name: &str, cloud: &Cloud) -> Texts {
        let maybe = |text: Option<&str>| Some(text.map(str::to_owned).into_iter().collect());
        match name {
            "instance-id" => one(&self.id),
            "instance-state-name" => one(self.state.name()),
            "instance-type" => one(&self.facts.name),
            "image-id" => one(&self.image),
            "subnet-id" => one(&self.subnet),
            "vpc-id" => one(&cloud.network.vpc),
            "availability-zone" => one(&self.zone),
            "availability-zone-id" => one(cloud.network.zone_id(&self.zone)?),
            "private-dns-name" => one(self.dns_name(&cloud.settings.region)),
            "private-ip-address" => one(&self.address),
            "client-token" => one(&self.client_token),
            "instance-lifecycle" => maybe(self.lifecycle(cloud)),
            "spot-instance-request-id" => maybe(self.spot_request.as_deref()),
            "capacity-reservation-id" => maybe(self.reservation.as_deref()),
            "iam-instance-profile.arn" => maybe(self.profile_arn.as_deref()),
            _ => None,
        }
    }

    pub(crate) fn status(&self, cloud: &Cloud) -> ec2::InstanceStatus {
        let summary = |which: Impairment| {
            let since = self.impaired.filter(|(impaired, _)| *impaired == which);
            ec2::InstanceStatusSummary {
                details: vec![ec2::InstanceStatusDetails {
                    impaired_since: since.map(|(_, since)| since),
                    name: Some("reachability".to_owned()),
                    status: Some(if since.is_some() { "failed" } else { "passed" }.to_owned()),
                }],
                status: Some(self.check(which).to_owned()),
            }
        };
        ec2::InstanceStatus {
            availability_zone: Some(self.zone.clone()),
            availability_zone_id: cloud.network.zone_id(&self.zone),
            events: self.scheduled.clone(),
            instance_id: Some(self.id.clone()),
            instance_state: Some(state(self.state)),
            instance_status: Some(summary(Impairment::Instance)),
            system_status: Some(summary(Impairment::System)),
        }
    }

    fn check(&self, which: Impairment) -> &'static str {
        match (self.impaired, self.state) {
            (Some((impaired, _)), _) if impaired == which => "impaired",
            (_, State::Pending) => "initializing",
            (_, State::Running) => "ok",
            (_, State::ShuttingDown | State::Terminated) => "not-applicable",
        }
    }

    /// The texts of a filter of `DescribeInstanceStatus`.
    pub(crate) fn status_texts(&self, name: &str) -> Texts {
        match name {
            "instance-status.status" => one(self.check(Impairment::Instance)),
            "system-status.status" => one(self.check(Impairment::System)),
            "attached-ebs-status.status" => one("ok"),
            "instance-state-name" => one(self.state.name()),
            "availability-zone" => one(&self.zone),
            "event.code" => {
                Some(self.scheduled.iter().filter_map(|event| event.code.clone()).collect())
            }
            "instance-status.reachability" | "system-status.reachability" => {
                let which = if name.starts_with("instance") {
                    Impairment::Instance
                } else {
                    Impairment::System
                };
                one(if self.check(which) == "impaired" { "failed" } else { "passed" })
            }
            _ => None,
        }
    }
}

pub(crate) fn state(state: State) -> ec2::InstanceState {
    ec2::InstanceState { code: Some(state.code()), name: Some(state.name().to_owned()) }
}

fn identifiers(ids: &[String], cloud: &Cloud) -> Vec<ec2::GroupIdentifier> {
    ids.iter()
        .map(|id| ec2::GroupIdentifier {
            group_id: Some(id.clone()),
            group_name: cloud.network.groups.get(id).map(|group| group.name.clone()),
        })
        .collect()
}
