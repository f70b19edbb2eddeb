//! Network interfaces. The security groups are inside of them.

use kerf_aws_api::{ConnectionTracking, Ec2NodeClassSpec, InterfaceType};
use kerf_aws_wire::ec2::{
    ConnectionTrackingSpecificationRequest,
    LaunchTemplateInstanceNetworkInterfaceSpecificationRequest,
};

type Interface = LaunchTemplateInstanceNetworkInterfaceSpecificationRequest;

/// The class's interfaces; else as many for EFA as pods can use, if they ask for it; else one.
pub(super) fn interfaces(
    spec: &Ec2NodeClassSpec,
    security_groups: &[String],
    efa_interfaces: i32,
    ipv6: bool,
) -> Vec<Interface> {
    let with_addresses = Interface {
        associate_public_ip_address: spec.associate_public_ip_address,
        connection_tracking_specification: spec.connection_tracking.as_ref().and_then(tracking),
        groups: security_groups.to_vec(),
        ipv4_prefix_count: spec.ip_prefix_count.filter(|_| !ipv6),
        ipv6_prefix_count: spec.ip_prefix_count.filter(|_| ipv6),
        primary_ipv6: ipv6.then_some(true),
        ipv6_address_count: ipv6.then_some(1),
        ..Interface::default()
    };
    let of_class = spec.network_interfaces.as_deref().unwrap_or_default();
    if !of_class.is_empty() {
        let interface = |one: &kerf_aws_api::NetworkInterface| Interface {
            network_card_index: Some(one.network_card_index),
            device_index: Some(one.device_index),
            interface_type: Some(one.interface_type.as_str().to_owned()),
            ..match one.interface_type {
                InterfaceType::Interface => with_addresses.clone(),
                // EC2 refuses addresses and what belongs to them on these.
                InterfaceType::EfaOnly => {
                    Interface { groups: security_groups.to_vec(), ..Interface::default() }
                }
            }
        };
        return of_class.iter().map(interface).collect();
    }
    if efa_interfaces > 0 {
        // Only one interface can be the first of its instance, and it is the one that may have a public address.
        let interface = |card: i32| Interface {
            network_card_index: Some(card),
            device_index: Some(i32::from(card != 0)),
            interface_type: Some("efa".to_owned()),
            ..with_addresses.clone()
        };
        return (0..efa_interfaces).map(interface).collect();
    }
    vec![Interface { device_index: Some(0), ..with_addresses }]
}

fn tracking(tracking: &ConnectionTracking) -> Option<ConnectionTrackingSpecificationRequest> {
    let request = ConnectionTrackingSpecificationRequest {
        tcp_established_timeout: tracking.tcp_established_timeout,
        udp_stream_timeout: tracking.udp_stream_timeout,
        udp_timeout: tracking.udp_timeout,
    };
    (request != ConnectionTrackingSpecificationRequest::default()).then_some(request)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value, efa_interfaces: i32, ipv6: bool) -> Vec<Interface> {
        let spec = serde_json::from_value(spec).unwrap();
        interfaces(&spec, &["sg-1".to_owned()], efa_interfaces, ipv6)
    }

    fn plain() -> Interface {
        Interface { groups: vec!["sg-1".to_owned()], device_index: Some(0), ..Interface::default() }
    }

    #[test]
    fn without_wishes_there_is_one_interface() {
        assert_eq!(of(json!({}), 0, false), [plain()]);
        let ipv6 = Interface { primary_ipv6: Some(true), ipv6_address_count: Some(1), ..plain() };
        assert_eq!(of(json!({}), 0, true), std::slice::from_ref(&ipv6));
        let prefixes = json!({"ipPrefixCount": 2, "associatePublicIPAddress": false});
        let public =
            |interface| Interface { associate_public_ip_address: Some(false), ..interface };
        let ipv4 = Interface { ipv4_prefix_count: Some(2), ..plain() };
        assert_eq!(of(prefixes.clone(), 0, false), [public(ipv4)]);
        assert_eq!(
            of(prefixes, 0, true),
            [public(Interface { ipv6_prefix_count: Some(2), ..ipv6 })]
        );
    }

    #[test]
    fn efa_takes_one_interface_of_each_card() {
        let places = |count| -> Vec<_> {
            let all = of(json!({}), count, false).into_iter();
            all.map(|one| (one.network_card_index, one.device_index, one.interface_type.unwrap()))
                .collect()
        };
        let efa = || "efa".to_owned();
        assert_eq!(places(1), [(Some(0), Some(0), efa())]);
        assert_eq!(
            places(3),
            [(Some(0), Some(0), efa()), (Some(1), Some(1), efa()), (Some(2), Some(1), efa())]
        );
    }

    #[test]
    fn efa_only_interfaces_have_no_addresses() {
        let spec = json!({
            "ipPrefixCount": 1, "associatePublicIPAddress": true,
            "connectionTracking": {"udpTimeout": 30},
            "networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
            ],
        });
        let tracked = ConnectionTrackingSpecificationRequest {
            udp_timeout: Some(30),
            ..ConnectionTrackingSpecificationRequest::default()
        };
        let first = Interface {
            network_card_index: Some(0),
            interface_type: Some("interface".to_owned()),
            ipv4_prefix_count: Some(1),
            associate_public_ip_address: Some(true),
            connection_tracking_specification: Some(tracked),
            ..plain()
        };
        let second = Interface {
            network_card_index: Some(1),
            device_index: Some(1),
            interface_type: Some("efa-only".to_owned()),
            ..plain()
        };
        assert_eq!(of(spec, 8, false), [first, second]);
    }
}
