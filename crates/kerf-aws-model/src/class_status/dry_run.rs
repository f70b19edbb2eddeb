//! A launch that is tried out before a class is used: EC2 says whether it would be allowed, and launches nothing.

use std::{collections::BTreeMap, sync::Arc};

use kerf_api::{NodeClaim, labels};
use kerf_aws_api::{Ec2NodeClass, labels as aws_labels};
use kerf_aws_wire::ec2;
use kerf_model::{InstanceType, KnownLabels, Offering, Requirement, Requirements};

use crate::{
    catalogue::{Region, RegionType, Trait},
    fleet::Fleet,
    images::Images,
    instance_types::{
        BareType, ClassShape, DiscoveredMemory, Known, PlacementGroup, Settings, ShapeError,
    },
    launch_template::{Cluster, Launch, LaunchTemplate, NoTemplate},
    unavailable::Placement,
};

/// Types that every region has, one of each architecture. They are tried where the pools of the class do not exclude them.
const PREFERRED: [&str; 2] = ["m5.large", "m6g.large"];

/// Tags that name the claim have this value.
const CLAIM: &str = "dry-run";

/// What a launch follows from beside the class and its pools.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    pub cluster: &'a Cluster,
    pub region: &'a Region,
    pub settings: &'a Settings,
    pub labels: &'a KnownLabels,
}

/// The requests of a launch, to be made in this order.
#[derive(Clone, Debug)]
pub struct DryRun {
    pub template: LaunchTemplate,
    pub fleet: ec2::CreateFleetRequest,
    /// One for each subnet; one that is allowed is enough.
    pub instances: Vec<ec2::RunInstancesRequest>,
}

/// Why there is nothing to try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDryRun {
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error("no instance type suits the AMIs, the subnets and the settings of the EC2NodeClass")]
    NoType,
    #[error(transparent)]
    Template(#[from] NoTemplate),
}

/// What is launched.
struct Chosen<'a> {
    pool: &'a str,
    instance_type: Arc<InstanceType>,
    capacity_type: &'static str,
    tenancy: &'static str,
}

impl DryRun {
    /// `pools` are those of the class, by name, with what they ask of instance types. What they would launch is tried; a type
    /// that they exclude may be forbidden in the account.
    pub fn new(
        class: &Ec2NodeClass,
        placement: Option<&PlacementGroup>,
        pools: &[(String, Requirements)],
        account: Account<'_>,
    ) -> Result<Self, NoDryRun> {
        let shape = ClassShape::new(class, placement.cloned())?;
        let chosen = choose(class, &shape, pools, account).ok_or(NoDryRun::NoType)?;
        let mut claim = NodeClaim::default();
        claim.metadata.name = Some(CLAIM.to_owned());
        let pool = (labels::NODE_POOL.to_owned(), chosen.pool.to_owned());
        claim.metadata.labels = Some(BTreeMap::from([pool]));
        let launch = Launch {
            class,
            claim: &claim,
            requirements: &Requirements::default(),
            cluster: account.cluster,
            capacity_type: chosen.capacity_type,
            tenancy: chosen.tenancy,
            placement: placement
                .map_or(Placement::Anywhere, |group| Placement::Group(group.id.as_str())),
            reserved_capacity: account.settings.reserved_capacity,
        };
        let templates = launch.templates(&[Arc::clone(&chosen.instance_type)], account.labels)?;
        let subnets = shape.zones.iter();
        let subnets = subnets
            .filter_map(|(name, zone)| Some((name.clone(), zone.subnets.first()?.clone())))
            .collect();
        let fleet = Fleet {
            launch,
            templates: &templates,
            subnets: &subnets,
            attempt: 0,
            prioritized: false,
        };
        let mut fleet = fleet.request(account.labels).map_err(|_| NoDryRun::NoType)?;
        fleet.dry_run = Some(true);
        // What is not done cannot be done twice.
        fleet.client_token = None;
        let template = templates.into_iter().next().ok_or(NoDryRun::NoType)?;
        let zones: Vec<_> = chosen.instance_type.offerings().iter().map(Offering::zone).collect();
        let of_class = class.status.iter().flat_map(|status| &status.subnets);
        let of_class = of_class.filter(|subnet| zones.contains(&Some(subnet.zone.as_str())));
        let name = chosen.instance_type.name();
        let instances = of_class.map(|subnet| run_request(&template, name, &subnet.id, &fleet));
        Ok(Self { instances: instances.collect(), template, fleet })
    }
}

/// The first type that suits: one that a pool of the class may have before others, one with an ordinary image before one with
/// that of accelerators, whose volumes may be larger than those of the class.
fn choose<'a>(
    class: &Ec2NodeClass,
    shape: &ClassShape,
    pools: &'a [(String, Requirements)],
    account: Account<'_>,
) -> Option<Chosen<'a>> {
    let amis = class.status.as_ref().map(|status| status.amis.as_slice());
    let images = Images::new(amis.unwrap_or_default(), account.labels);
    let mut types: Vec<_> = account.region.types.iter().collect();
    types.sort_by_key(|one| {
        let facts = &one.facts;
        let has_devices =
            !(facts.gpus.is_empty() && facts.neurons.is_empty() && facts.accelerators.is_empty());
        (has_devices, !PREFERRED.contains(&facts.name.as_str()), facts.name.as_str())
    });
    let any = Requirements::default();
    let wishes = pools.iter().map(|(pool, requirements)| (pool.as_str(), requirements));
    let mut wishes = wishes.chain([("", &any)]);
    wishes.find_map(|(pool, requirements)| {
        types.iter().find_map(|one| {
            let (instance_type, capacity_type) = candidate(one, shape, requirements, account)?;
            images.of(&instance_type)?;
            let tenancy = requirements.get(aws_labels::INSTANCE_TENANCY);
            let is_shared = tenancy.is_none_or(|one| one.has(aws_labels::TENANCY_DEFAULT));
            let tenancy =
                if is_shared { aws_labels::TENANCY_DEFAULT } else { aws_labels::TENANCY_DEDICATED };
            let instance_type = Arc::new(instance_type);
            Some(Chosen { pool, instance_type, capacity_type, tenancy })
        })
    })
}

/// The type as if it could be had wherever the class has a subnet, on demand if the pool allows it.
fn candidate(
    one: &RegionType,
    shape: &ClassShape,
    requirements: &Requirements,
    account: Account<'_>,
) -> Option<(InstanceType, &'static str)> {
    shape.suits(&one.facts).ok()?;
    let allows = |key: &str, value: &str| {
        requirements.get(key).is_none_or(|requirement| requirement.has(value))
    };
    let capacity_type = [
        (labels::CAPACITY_TYPE_ON_DEMAND, Trait::OnDemand),
        (labels::CAPACITY_TYPE_SPOT, Trait::Spot),
    ];
    // A pool with nothing but reservations has no terms here; on demand stands for them.
    let (capacity_type, _) = capacity_type
        .into_iter()
        .filter(|(_, sold)| one.facts.is(*sold))
        .max_by_key(|(name, _)| {
            (allows(labels::CAPACITY_TYPE, name), *name == labels::CAPACITY_TYPE_ON_DEMAND)
        })?;
    let zones = one
        .zones
        .iter()
        .filter(|zone| shape.zones.contains_key(zone.as_str()) && allows(labels::ZONE, zone));
    let offering = |zone: &String| Offering {
        requirements: Requirements::new([
            Requirement::is_in(labels::ZONE, [zone.as_str()]),
            Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]),
        ]),
        available: true,
        ..Offering::default()
    };
    let offerings: Vec<_> = zones.map(offering).collect();
    if offerings.is_empty() {
        return None;
    }
    let known = Known { facts: &one.facts, network: one.network, zones: &one.zones };
    let bare = BareType::new(known, shape, account.settings, &DiscoveredMemory::default());
    let instance_type = bare.with_offerings(offerings);
    let mut of_types = requirements.clone();
    of_types.remove(labels::CAPACITY_TYPE);
    instance_type.requirements().intersects(&of_types).ok()?;
    Some((instance_type, capacity_type))
}

/// The interfaces stand in the request, because EC2 takes no subnet beside those of a template.
fn run_request(
    template: &LaunchTemplate,
    instance_type: &str,
    subnet: &str,
    fleet: &ec2::CreateFleetRequest,
) -> ec2::RunInstancesRequest {
    let interface = |one: &ec2::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest| {
        ec2::InstanceNetworkInterfaceSpecification {
            associate_public_ip_address: one.associate_public_ip_address,
            device_index: one.device_index,
            groups: one.groups.clone(),
            interface_type: one.interface_type.clone(),
            network_card_index: one.network_card_index,
            subnet_id: Some(subnet.to_owned()),
        }
    };
    let tags = fleet.tag_specifications.iter();
    let of_instance = tags.filter(|one| one.resource_type.as_deref() != Some("fleet"));
    ec2::RunInstancesRequest {
        dry_run: Some(true),
        instance_type: Some(instance_type.to_owned()),
        launch_template: Some(ec2::LaunchTemplateSpecification {
            launch_template_name: Some(template.name.clone()),
            version: Some("$Latest".to_owned()),
            ..Default::default()
        }),
        max_count: Some(1),
        min_count: Some(1),
        network_interfaces: template.data.network_interfaces.iter().map(interface).collect(),
        tag_specifications: of_instance.cloned().collect(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        catalogue::Catalogue,
        test_launch::{class, cluster, known_labels},
    };

    fn try_out(spec: &Value, pools: &[(&str, &Value)]) -> Result<DryRun, NoDryRun> {
        let (labels, cluster) = (known_labels(), cluster());
        let region = Catalogue::built_in().unwrap().region("us-west-2").unwrap();
        let settings = Settings { region: "us-west-2".to_owned(), ..Settings::default() };
        let account =
            Account { cluster: &cluster, region: &region, settings: &settings, labels: &labels };
        let read = |(name, requirements): &(&str, &Value)| {
            let list: Vec<_> = serde_json::from_value((*requirements).clone()).unwrap();
            let list = list.iter().map(|one| labels.read(one).unwrap());
            ((*name).to_owned(), Requirements::new(list))
        };
        let pools: Vec<_> = pools.iter().map(read).collect();
        DryRun::new(&class(spec), None, &pools, account)
    }

    fn only(key: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": "In", "values": values})
    }

    #[test]
    fn what_the_pools_would_launch_is_tried() {
        let check = |pools: &[(&str, &Value)], expected: (&str, &str, &str)| {
            let dry_run = try_out(&json!({}), pools).unwrap();
            let overrides = &dry_run.fleet.launch_template_configs[0].overrides;
            let names: Vec<_> = overrides.iter().flat_map(|one| &one.instance_type).collect();
            assert_eq!(names, vec![expected.0; names.len()], "{pools:?}");
            let target = dry_run.fleet.target_capacity_specification.as_ref().unwrap();
            assert_eq!(target.default_target_capacity_type.as_deref(), Some(expected.1));
            let tags = &dry_run.template.tags;
            assert_eq!(tags["karpenter.sh/nodepool"], expected.2, "{pools:?}");
        };
        check(&[], ("m5.large", "on-demand", ""));
        let arm = json!([only("kubernetes.io/arch", &["arm64"])]);
        check(&[("a", &arm)], ("m6g.large", "on-demand", "a"));
        let spot = json!([
            only("karpenter.k8s.aws/instance-family", &["c5"]),
            only("karpenter.sh/capacity-type", &["spot"]),
        ]);
        check(&[("b", &spot)], ("c5.12xlarge", "spot", "b"));
        let nothing = json!([only("node.kubernetes.io/instance-type", &["x99.huge"])]);
        check(&[("c", &nothing), ("a", &arm)], ("m6g.large", "on-demand", "a"));
        check(&[("c", &nothing)], ("m5.large", "on-demand", ""));
        // An ordinary image where the pool allows it.
        let devices = json!([only("karpenter.k8s.aws/instance-family", &["g5", "m5"])]);
        check(&[("d", &devices)], ("m5.large", "on-demand", "d"));
    }

    #[test]
    fn nothing_is_launched() {
        let dry_run = try_out(&json!({}), &[]).unwrap();
        assert_eq!((dry_run.fleet.dry_run, &dry_run.fleet.client_token), (Some(true), &None));
        assert_eq!(dry_run.instances.len(), 2, "one for each subnet");
        for (request, subnet) in dry_run.instances.iter().zip(["subnet-a", "subnet-b"]) {
            assert_eq!((request.dry_run, &request.subnet_id), (Some(true), &None));
            let subnets = request.network_interfaces.iter().flat_map(|one| &one.subnet_id);
            assert_eq!(subnets.collect::<Vec<_>>(), [subnet]);
            let kinds = request.tag_specifications.iter().flat_map(|one| &one.resource_type);
            assert_eq!(kinds.collect::<Vec<_>>(), ["instance", "volume"]);
            let template = request.launch_template.as_ref().unwrap();
            assert_eq!(template.launch_template_name.as_ref(), Some(&dry_run.template.name));
        }
    }

    #[test]
    fn a_class_that_no_type_suits_has_nothing_to_try() {
        let nested = json!({"cpuOptions": {"nestedVirtualization": "enabled"}, "networkInterfaces": [
            {"networkCardIndex": 99, "deviceIndex": 0, "interfaceType": "interface"},
        ]});
        assert_eq!(try_out(&nested, &[]).unwrap_err(), NoDryRun::NoType);
    }

    #[test]
    fn user_data_that_is_too_large_is_named() {
        let long = json!({"amiFamily": "Custom", "userData": "x".repeat(20_000)});
        let error = try_out(&long, &[]).unwrap_err();
        assert!(error.to_string().contains("20000 bytes"), "{error}");
    }
}
