//! What of a class its instance types follow from.

use std::collections::BTreeMap;

use kerf_aws_api::{
    AmiFamily, BlockDeviceMapping, CapacityReservation, Ec2NodeClass, InstanceStorePolicy,
    InterfaceType, NetworkInterface, Switch,
};
use kerf_model::{Quantity, Resources};

use super::overhead::Threshold;
use crate::launch_template::default_block_devices;

/// What of a class its instance types follow from, read once for all types. Classes of equal shapes have equal types.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassShape {
    pub(super) family: AmiFamily,
    pub(super) max_pods: Option<u32>,
    pub(super) pods_per_core: u32,
    pub(super) kube_reserved: Resources,
    pub(super) system_reserved: Resources,
    pub(super) eviction_memory: Option<Threshold>,
    pub(super) eviction_storage: Option<Threshold>,
    /// Ephemeral storage of types whose local disks are not used for it.
    pub(super) storage: Quantity,
    pub(super) local_disks: bool,
    pub(super) interfaces: Option<Vec<NetworkInterface>>,
    pub(super) nested_virtualization: bool,
    pub(super) connection_tracking: bool,
    pub(crate) placement: Option<PlacementGroup>,
    pub(crate) zones: BTreeMap<String, ClassZone>,
    /// Sorted by id.
    pub(crate) reservations: Vec<CapacityReservation>,
}

/// A zone in which a class has subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassZone {
    /// What the zone is called in all accounts.
    pub id: Option<String>,
    pub subnets: Vec<String>,
}

/// The placement group of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementGroup {
    pub id: String,
    pub strategy: PlacementStrategy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementStrategy {
    Cluster,
    Partition { count: u32 },
    Spread,
}

/// Why a class has no instance types.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("spec.kubelet.{field}.{key}: {value:?} is not an amount")]
    NoAmount { field: &'static str, key: String, value: String },
    #[error("spec.kubelet.{field}: {value} is negative")]
    Negative { field: &'static str, value: i32 },
}

const MEMORY_AVAILABLE: &str = "memory.available";
const NODEFS_AVAILABLE: &str = "nodefs.available";

impl ClassShape {
    /// The placement group is handed in because the class has only its name or id.
    pub fn new(
        class: &Ec2NodeClass,
        placement: Option<PlacementGroup>,
    ) -> Result<Self, ShapeError> {
        let spec = &class.spec;
        let family = spec.ami_family();
        let kubelet = spec.kubelet.clone().unwrap_or_default();
        let count = |field, value: Option<i32>| match value.map(u32::try_from) {
            None => Ok(None),
            Some(Ok(count)) => Ok(Some(count)),
            Some(Err(_)) => Err(ShapeError::Negative { field, value: value.unwrap_or_default() }),
        };
        let threshold = |signal: &str| {
            let text = kubelet.eviction_hard.as_ref().and_then(|signals| signals.get(signal));
            text.map(|text| {
                let error = || no_amount("evictionHard", signal, text);
                Threshold::parse(text).ok_or_else(error)
            })
            .transpose()
        };
        let status = class.status.clone().unwrap_or_default();
        let mut zones: BTreeMap<String, ClassZone> = BTreeMap::new();
        for subnet in status.subnets {
            let zone = zones.entry(subnet.zone).or_default();
            zone.id = zone.id.take().or(subnet.zone_id);
            zone.subnets.push(subnet.id);
        }
        let mut reservations = status.capacity_reservations;
        reservations.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let nested = spec.cpu_options.as_ref().and_then(|options| options.nested_virtualization);
        Ok(Self {
            family,
            max_pods: count("maxPods", kubelet.max_pods)?,
            pods_per_core: count("podsPerCore", kubelet.pods_per_core)?.unwrap_or(0),
            kube_reserved: amounts("kubeReserved", kubelet.kube_reserved.as_ref())?,
            system_reserved: amounts("systemReserved", kubelet.system_reserved.as_ref())?,
            eviction_memory: threshold(MEMORY_AVAILABLE)?,
            eviction_storage: threshold(NODEFS_AVAILABLE)?,
            storage: storage(family, spec.block_device_mappings.as_deref().unwrap_or_default()),
            local_disks: spec.instance_store_policy == Some(InstanceStorePolicy::Raid0),
            interfaces: spec.network_interfaces.clone(),
            nested_virtualization: nested == Some(Switch::Enabled),
            connection_tracking: spec.connection_tracking.is_some(),
            placement,
            zones,
            reservations,
        })
    }

    /// EFA-only interfaces that the class asks for, on one card or on all.
    pub(super) fn efa_only(&self, card: Option<i32>) -> u32 {
        let counts = |one: &&NetworkInterface| {
            one.interface_type == InterfaceType::EfaOnly
                && card.is_none_or(|card| one.network_card_index == card)
        };
        let interfaces = self.interfaces.iter().flatten().filter(counts).count();
        u32::try_from(interfaces).unwrap_or(u32::MAX)
    }
}

fn no_amount(field: &'static str, key: &str, value: &str) -> ShapeError {
    ShapeError::NoAmount { field, key: key.to_owned(), value: value.to_owned() }
}

fn amounts(
    field: &'static str,
    texts: Option<&BTreeMap<String, String>>,
) -> Result<Resources, ShapeError> {
    let mut amounts = Resources::new();
    for (name, text) in texts.into_iter().flatten() {
        amounts.set(name, text.parse().map_err(|_| no_amount(field, name, text))?);
    }
    Ok(amounts)
}

const DEFAULT_VOLUME: Quantity = Quantity::from_bytes(20 << 30);

/// The volume that containers and images are on.
fn storage(family: AmiFamily, mappings: &[BlockDeviceMapping]) -> Quantity {
    let size = |mapping: &BlockDeviceMapping| {
        mapping.ebs.as_ref()?.volume_size?.to_string().parse::<Quantity>().ok()
    };
    // Of a family's devices the last is the one that containers are on.
    let of_family = default_block_devices(family).pop();
    let device = of_family.as_ref().and_then(|mapping| mapping.device_name.clone());
    let default = of_family.as_ref().and_then(size).unwrap_or(DEFAULT_VOLUME);
    let root = mappings.iter().find(|mapping| mapping.root_volume).and_then(size);
    let own = || match family {
        AmiFamily::Custom => mappings.last().and_then(size),
        _ => mappings.iter().find(|mapping| mapping.device_name == device).and_then(size),
    };
    root.or_else(own).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use kerf_aws_api::Ec2NodeClassSpec;
    use serde_json::{Value, json};

    use super::*;

    fn shape(spec: Value) -> Result<ClassShape, ShapeError> {
        let spec: Ec2NodeClassSpec = serde_json::from_value(spec).unwrap();
        ClassShape::new(&Ec2NodeClass { spec, ..Ec2NodeClass::default() }, None)
    }

    #[test]
    fn storage_is_the_volume_that_containers_are_on() {
        let volume =
            |device: &str, size: &str| json!({"deviceName": device, "ebs": {"volumeSize": size}});
        let root =
            json!({"deviceName": "/dev/sdz", "rootVolume": true, "ebs": {"volumeSize": "7Gi"}});
        let snapshot = json!({"deviceName": "/dev/xvda", "ebs": {"snapshotID": "snap-1"}});
        let check = |family: &str, mappings: Value, expected: &str| {
            let spec = json!({"amiFamily": family, "blockDeviceMappings": mappings});
            assert_eq!(shape(spec).unwrap().storage.to_string(), expected, "{family} {mappings}");
        };
        for (family, expected) in [
            ("AL2", "20Gi"),
            ("AL2023", "20Gi"),
            ("Bottlerocket", "20Gi"),
            ("Custom", "20Gi"),
            ("Windows2022", "50Gi"),
        ] {
            check(family, json!([]), expected);
            check(family, json!([volume("/dev/sdz", "9Gi"), root]), "7Gi");
        }
        check("AL2023", json!([volume("/dev/xvda", "100G"), volume("/dev/xvdb", "1Gi")]), "100G");
        check("AL2023", json!([volume("/dev/xvdb", "1Gi")]), "20Gi");
        check("AL2023", json!([snapshot]), "20Gi");
        check(
            "Bottlerocket",
            json!([volume("/dev/xvda", "1Gi"), volume("/dev/xvdb", "2Ti")]),
            "2Ti",
        );
        check("Windows2019", json!([volume("/dev/sda1", "80Gi")]), "80Gi");
        check("Custom", json!([volume("/dev/a", "1Gi"), volume("/dev/b", "2Gi")]), "2Gi");
        check("Custom", json!([volume("/dev/a", "1Gi"), snapshot]), "20Gi");
    }

    #[test]
    fn amounts_that_cannot_be_read_are_named() {
        let check = |kubelet: Value, expected: &str| {
            let error = shape(json!({"amiFamily": "AL2023", "kubelet": kubelet})).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(
            json!({"kubeReserved": {"cpu": "much"}}),
            "spec.kubelet.kubeReserved.cpu: \"much\" is not an amount",
        );
        check(
            json!({"evictionHard": {"memory.available": "x%"}}),
            "spec.kubelet.evictionHard.memory.available: \"x%\" is not an amount",
        );
        check(json!({"maxPods": -1}), "spec.kubelet.maxPods: -1 is negative");
    }
}
