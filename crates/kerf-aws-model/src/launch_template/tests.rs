use kerf_aws_wire::ec2::{CapacityReservationTarget, LaunchTemplateInstanceMetadataOptionsRequest};
use serde_json::{Value, json};

use super::*;
use crate::{
    test_launch::{claim, class, cluster, instance_type, known_labels, launch},
    user_data::NodeSettings,
};

const ON_DEMAND: &str = "us-west-2a on-demand 0.1";

fn types() -> Vec<Arc<InstanceType>> {
    vec![
        instance_type("m5.large", "amd64", json!({"pods": "29"}), &[ON_DEMAND]),
        instance_type("c5.large", "amd64", json!({"pods": "29"}), &[ON_DEMAND]),
        instance_type("m5.xlarge", "amd64", json!({"pods": "58"}), &[ON_DEMAND]),
        instance_type("m6g.large", "arm64", json!({"pods": "29"}), &[ON_DEMAND]),
        instance_type("odd.large", "riscv64", json!({"pods": "29"}), &[ON_DEMAND]),
    ]
}

fn templates(spec: &Value, requests: &Value) -> Vec<LaunchTemplate> {
    let (class, claim, cluster) = (class(spec), claim(requests), cluster());
    let requirements = Requirements::default();
    let launch = launch(&class, &claim, &cluster, &requirements, "on-demand");
    launch.templates(&types(), &known_labels()).unwrap()
}

fn grouped(templates: &[LaunchTemplate]) -> Vec<String> {
    let names = |template: &LaunchTemplate| {
        let names: Vec<_> = template.types.iter().map(|one| one.name().to_owned()).collect();
        format!("{}: {}", template.image, names.join(" "))
    };
    templates.iter().map(names).collect()
}

#[test]
fn types_share_a_template_where_image_and_pods_are_the_same() {
    let all = templates(&json!({}), &json!({}));
    assert_eq!(
        grouped(&all),
        ["ami-arm: m6g.large", "ami-x86: m5.large c5.large", "ami-x86: m5.xlarge"]
    );
    // With the pods in the class there is nothing to tell the sizes apart.
    let fixed = templates(&json!({"kubelet": {"maxPods": 20}}), &json!({}));
    assert_eq!(grouped(&fixed), ["ami-arm: m6g.large", "ami-x86: m5.large c5.large m5.xlarge"]);
}

#[test]
fn a_name_stands_for_its_content() {
    let name = |spec: Value, requests: Value| templates(&spec, &requests)[0].name.clone();
    let plain = name(json!({}), json!({}));
    assert_eq!(plain, name(json!({}), json!({})));
    assert!(plain.starts_with("karpenter.k8s.aws/"), "{plain}");
    for other in [
        json!({"userData": "echo"}),
        json!({"tags": {"team": "b"}}),
        json!({"detailedMonitoring": true}),
        json!({"metadataOptions": {"httpTokens": "optional"}}),
        json!({"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "30Gi"}}]}),
        json!({"kubelet": {"maxPods": 20}}),
        json!({"cpuOptions": {"nestedVirtualization": "enabled"}}),
    ] {
        assert_ne!(plain, name(other.clone(), json!({})), "{other}");
    }
    assert_ne!(plain, name(json!({}), json!({"eks.amazonaws.com/nip-slots": "1"})));
    // The pods of a claim do not matter otherwise.
    assert_eq!(plain, name(json!({}), json!({"cpu": "1"})));
}

#[test]
fn a_template_says_what_the_class_says() {
    let spec = json!({
        "detailedMonitoring": true,
        "cpuOptions": {"nestedVirtualization": "disabled"},
        "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
                            "httpPutResponseHopLimit": 2, "httpTokens": "required"},
    });
    let template = templates(&spec, &json!({})).remove(1);
    let data = &template.data;
    assert_eq!(data.image_id.as_deref(), Some("ami-x86"));
    assert_eq!(data.iam_instance_profile.as_ref().unwrap().name.as_deref(), Some("demo_1"));
    assert_eq!(data.monitoring.as_ref().unwrap().enabled, Some(true));
    assert_eq!(data.enclave_options.as_ref().unwrap().enabled, Some(false));
    let nested = data.cpu_options.as_ref().unwrap().nested_virtualization.as_deref();
    assert_eq!(nested, Some("disabled"));
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        data.metadata_options,
        Some(LaunchTemplateInstanceMetadataOptionsRequest {
            http_endpoint: text("enabled"),
            http_protocol_ipv6: text("disabled"),
            http_put_response_hop_limit: Some(2),
            http_tokens: text("required"),
            instance_metadata_tags: text("disabled"),
        })
    );
    assert_eq!(data.placement.as_ref().unwrap().tenancy.as_deref(), Some("default"));
    assert_eq!(data.network_interfaces[0].groups, ["sg-1", "sg-2"]);
    assert_eq!(data.security_group_ids, [""; 0]);
    let settings = NodeSettings::read(template.user_data.text()).unwrap();
    assert_eq!(settings.kubelet.max_pods, Some(29));
    assert_eq!(settings.kubelet.cluster_dns, Some(vec!["10.100.0.10".to_owned()]));
    let request = template.create_request();
    assert_eq!(request.launch_template_name.as_ref(), Some(&template.name));
    let tags: Vec<_> = request.tag_specifications[0]
        .tags
        .iter()
        .map(|tag| format!("{}={}", tag.key.clone().unwrap(), tag.value.clone().unwrap()))
        .collect();
    assert_eq!(
        tags,
        [
            "eks:eks-cluster-name=demo",
            "karpenter.k8s.aws/ec2nodeclass=default",
            "karpenter.sh/nodepool=default",
            "kubernetes.io/cluster/demo=owned",
            "team=a",
        ]
    );
}

#[test]
fn spot_requests_are_tagged_and_isolated_regions_lack_a_field() {
    let (class, claim, requirements) =
        (class(&json!({})), claim(&json!({})), Requirements::default());
    let data = |capacity_type: &str, region: &str| {
        let cluster = Cluster { region: region.to_owned(), ..cluster() };
        let launch = launch(&class, &claim, &cluster, &requirements, capacity_type);
        launch.templates(&types(), &known_labels()).unwrap().remove(0).data
    };
    let tagged = |data: RequestLaunchTemplateData| -> Vec<String> {
        data.tag_specifications.into_iter().map(|one| one.resource_type.unwrap()).collect()
    };
    assert_eq!(tagged(data("on-demand", "us-west-2")), ["network-interface"]);
    assert_eq!(tagged(data("spot", "us-west-2")), ["network-interface", "spot-instances-request"]);
    let ipv6 = |region| data("spot", region).metadata_options.unwrap().http_protocol_ipv6;
    assert_eq!(ipv6("us-west-2").as_deref(), Some("disabled"));
    assert_eq!(ipv6("us-iso-east-1"), None);
}

#[test]
fn each_reservation_has_a_template() {
    let (class, claim, cluster) = (class(&json!({})), claim(&json!({})), cluster());
    let requirements = Requirements::default();
    let of = |offerings: &[&str], capacity_type, gate| {
        let launch = Launch {
            reserved_capacity: gate,
            ..launch(&class, &claim, &cluster, &requirements, capacity_type)
        };
        let reserved = instance_type("p5.48xlarge", "amd64", json!({"pods": "100"}), offerings);
        launch.templates(&[reserved], &known_labels()).map(|all| {
            let said = |template: LaunchTemplate| {
                let reservation = template.data.capacity_reservation_specification;
                let market = template.data.instance_market_options.and_then(|one| one.market_type);
                let preference = reservation
                    .as_ref()
                    .and_then(|one| one.capacity_reservation_preference.clone());
                let target = reservation.and_then(|one| one.capacity_reservation_target);
                let target =
                    target.and_then(|CapacityReservationTarget { capacity_reservation_id }| {
                        capacity_reservation_id
                    });
                [preference, target, market]
                    .map(|text| text.unwrap_or_else(|| "-".to_owned()))
                    .join(" ")
            };
            all.into_iter().map(said).collect::<Vec<_>>()
        })
    };
    let default = "us-west-2a reserved 0 cr-1 default false";
    let second = "us-west-2b reserved 0 cr-2 default false";
    let block = "us-west-2a reserved 0 cr-3 capacity-block false";
    let interruptible = "us-west-2a reserved 0 cr-4 default true";
    let only = "capacity-reservations-only";
    for (offerings, capacity_type, gate, expected) in [
        (&[ON_DEMAND][..], "on-demand", true, vec!["none - -".to_owned()]),
        (&[ON_DEMAND], "on-demand", false, vec!["- - -".to_owned()]),
        (
            &[default, second],
            "reserved",
            true,
            vec![format!("{only} cr-1 -"), format!("{only} cr-2 -")],
        ),
        (&[block], "reserved", true, vec![format!("{only} cr-3 capacity-block")]),
        (
            &[interruptible],
            "reserved",
            true,
            vec![format!("{only} cr-4 interruptible-capacity-reservation")],
        ),
    ] {
        assert_eq!(of(offerings, capacity_type, gate).unwrap(), expected, "{offerings:?}");
    }
    let none = NoTemplate::NoSuitableImage { types: 1 };
    assert_eq!(of(&[ON_DEMAND], "reserved", true), Err(none));
}

#[test]
fn efa_counts_if_pods_ask_for_it_or_the_class_lists_interfaces() {
    let (cluster, requirements) = (cluster(), Requirements::default());
    let interfaces = |spec: Value, requests: Value| {
        let (class, claim) = (class(&spec), claim(&requests));
        let launch = launch(&class, &claim, &cluster, &requirements, "on-demand");
        let capacity = json!({"pods": "100", "vpc.amazonaws.com/efa": "4"});
        let types = [instance_type("p4d.24xlarge", "amd64", capacity, &[ON_DEMAND])];
        let template = launch.templates(&types, &known_labels()).unwrap().remove(0);
        (template.data.network_interfaces.len(), template.efa_interfaces())
    };
    assert_eq!(interfaces(json!({}), json!({})), (1, 0));
    assert_eq!(interfaces(json!({}), json!({"vpc.amazonaws.com/efa": "1"})), (4, 4));
    let listed = json!({"networkInterfaces": [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]});
    assert_eq!(interfaces(listed, json!({})), (3, 2));
}

#[test]
fn what_is_missing_has_a_name() {
    let (claim, cluster, requirements) = (claim(&json!({})), cluster(), Requirements::default());
    let refused = |change: &dyn Fn(&mut Ec2NodeClass), types: &[Arc<InstanceType>]| {
        let mut class = class(&json!({}));
        change(&mut class);
        let launch = launch(&class, &claim, &cluster, &requirements, "on-demand");
        launch.templates(types, &known_labels()).unwrap_err()
    };
    let status = |change: fn(&mut Ec2NodeClassStatus)| {
        move |class: &mut Ec2NodeClass| change(class.status.as_mut().unwrap())
    };
    let all = types();
    assert_eq!(refused(&status(|status| status.amis.clear()), &all), NoTemplate::NoImages);
    let no_groups = status(|status| status.security_groups.clear());
    assert_eq!(refused(&no_groups, &all), NoTemplate::NoSecurityGroups);
    let no_profile = status(|status| status.instance_profile = None);
    assert_eq!(refused(&no_profile, &all), NoTemplate::NoInstanceProfile);
    assert_eq!(refused(&|_| {}, &all[4..]), NoTemplate::NoSuitableImage { types: 1 });
    let long = |class: &mut Ec2NodeClass| class.spec.user_data = Some("x".repeat(20_000));
    let error = refused(&long, &all);
    assert!(matches!(error, NoTemplate::UserData(Refusal::TooLarge { .. })), "{error}");
}
