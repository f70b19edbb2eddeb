//! The catalogue that is used when no file is given: 144 types with 8 offerings each.

use std::collections::BTreeMap;

use kerf_api::labels;
use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use kerf_model::{
    InstanceType, Offering, Overhead, Price, Quantity, Requirement, Requirements, Resources,
};

const CPUS: [i64; 12] = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];
/// Families by their gibibytes of memory per CPU.
const FAMILIES: [(&str, i64); 3] = [("c", 2), ("s", 4), ("m", 8)];
const OPERATING_SYSTEMS: [&str; 2] = ["linux", "windows"];
const ARCHITECTURES: [&str; 2] = [labels::ARCH_AMD64, labels::ARCH_ARM64];
const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];

const GIBIBYTE: i64 = 1 << 30;

/// The generated catalogue.
pub fn generated() -> Vec<InstanceType> {
    let mut types = Vec::with_capacity(144);
    for cpu in CPUS {
        for (family, gibibytes_per_cpu) in FAMILIES {
            for os in OPERATING_SYSTEMS {
                for arch in ARCHITECTURES {
                    let memory = cpu * gibibytes_per_cpu * GIBIBYTE;
                    let capacity = Resources::new()
                        .with(CPU, Quantity::from_units(cpu))
                        .with(MEMORY, Quantity::from_bytes(memory))
                        .with(PODS, Quantity::from_units((16 * cpu).min(1024)))
                        .with(EPHEMERAL_STORAGE, Quantity::from_bytes(20 * GIBIBYTE));
                    types.push(
                        Described {
                            name: format!("{family}-{cpu}x-{arch}-{os}"),
                            arch: arch.to_owned(),
                            operating_systems: vec![os.to_owned()],
                            capacity,
                            allocatable: None,
                            volume_limits: BTreeMap::new(),
                            offerings: offerings(cpu, memory),
                        }
                        .instance_type(),
                    );
                }
            }
        }
    }
    types
}

fn offerings(cpu: i64, memory: i64) -> Vec<Offering> {
    let (on_demand, spot) = prices(cpu, memory);
    let offering = |zone: &str, capacity_type: &str, price| Offering {
        requirements: Requirements::new([
            Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]),
            Requirement::is_in(labels::ZONE, [zone]),
        ]),
        price,
        available: true,
        ..Offering::default()
    };
    let in_zone = |zone| {
        [
            offering(zone, labels::CAPACITY_TYPE_SPOT, spot),
            offering(zone, labels::CAPACITY_TYPE_ON_DEMAND, on_demand),
        ]
    };
    ZONES.into_iter().flat_map(in_zone).collect()
}

/// On demand 0.025 per CPU and 0.001 per 10^9 bytes of memory; 0.7 times that on spot. Computed in
/// units of 10^-12, in which all three numbers are whole, and rounded to money once.
fn prices(cpu: i64, memory: i64) -> (Price, Price) {
    let exact = 25_000_000_000 * cpu + memory;
    let on_demand = (exact + 50) / 100;
    let spot = (7 * exact + 500) / 1000;
    (Price::from_ten_billionths(on_demand), Price::from_ten_billionths(spot))
}

/// What a machine of this size would cost on demand and on spot if it were one of the generated ones: for machines whose price
/// is not known.
pub fn price_by_size(capacity: &Resources) -> (Price, Price) {
    // Whole CPUs and bytes: fractions of either are not sold.
    let whole = |resource| capacity.amount(resource).whole_units().max(0);
    prices(whole(CPU).min(1 << 20), whole(MEMORY).min(1 << 50))
}

/// An instance type as a catalogue describes it.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub name: String,
    pub arch: String,
    pub operating_systems: Vec<String>,
    /// With CPU and memory.
    pub capacity: Resources,
    /// What of the capacity pods can have, where the catalogue says it.
    pub allocatable: Option<Resources>,
    /// Volumes that can be attached, by driver.
    pub volume_limits: BTreeMap<String, u32>,
    /// Each with a zone and a capacity type.
    pub offerings: Vec<Offering>,
}

impl Described {
    pub(super) fn instance_type(self) -> InstanceType {
        let kube_reserved = match &self.allocatable {
            Some(allocatable) => self.capacity.minus(&self.capacity.overridden_by(allocatable)),
            None => Resources::new()
                .with(CPU, Quantity::from_millis(100))
                .with(MEMORY, Quantity::from_bytes(10 << 20)),
        };
        let overhead = Overhead { kube_reserved, ..Overhead::default() };
        let requirements = self.requirements();
        InstanceType::new(self.name, requirements, self.offerings, self.capacity, overhead)
            .with_volume_limits(self.volume_limits)
    }

    fn requirements(&self) -> Requirements {
        let cpu = self.capacity.amount(CPU).to_string();
        let offered =
            |value: fn(&Offering) -> Option<&str>| self.offerings.iter().filter_map(value);
        Requirements::new([
            Requirement::is_in(labels::INSTANCE_TYPE, [&self.name]),
            Requirement::is_in(labels::ARCH, [&self.arch]),
            Requirement::is_in(labels::OS, &self.operating_systems),
            Requirement::is_in(labels::ZONE, offered(Offering::zone)),
            Requirement::is_in(labels::CAPACITY_TYPE, offered(Offering::capacity_type)),
            Requirement::is_in(crate::labels::INSTANCE_SIZE, [size(&self.name).unwrap_or(&cpu)]),
            Requirement::is_in(crate::labels::INSTANCE_FAMILY, [family(&self.name)]),
            Requirement::is_in(crate::labels::INSTANCE_CPU, [&cpu]),
            Requirement::is_in(
                crate::labels::INSTANCE_MEMORY,
                [self.capacity.amount(MEMORY).to_string()],
            ),
        ])
    }
}

/// The name up to its first dot or hyphen; its first character if it has neither.
fn family(name: &str) -> &str {
    match name.find(['.', '-']) {
        Some(end) => &name[..end],
        None => name.chars().next().map_or("", |first| &name[..first.len_utf8()]),
    }
}

/// The part after the dot of a name like `m5.2xlarge`.
fn size(name: &str) -> Option<&str> {
    let (family, size) = name.split_once('.')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = ["nano", "micro", "small", "medium", "large", "metal"].contains(&size);
    let numbered =
        size.strip_suffix("xlarge").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    (!family.is_empty() && family.chars().all(is_word) && (named || numbered)).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> InstanceType {
        generated().into_iter().find(|one| one.name() == name).unwrap()
    }

    #[test]
    fn has_144_types_with_1152_offerings() {
        let types = generated();
        let names: std::collections::BTreeSet<&str> =
            types.iter().map(InstanceType::name).collect();
        assert_eq!((types.len(), names.len()), (144, 144));
        assert_eq!(types.iter().map(|one| one.offerings().len()).sum::<usize>(), 1152);
        let order: Vec<&str> = types.iter().map(InstanceType::name).take(6).collect();
        assert_eq!(
            order,
            [
                "c-1x-amd64-linux",
                "c-1x-arm64-linux",
                "c-1x-amd64-windows",
                "c-1x-arm64-windows",
                "s-1x-amd64-linux",
                "s-1x-arm64-linux",
            ]
        );
    }

    #[test]
    fn prices_are_karpenters_to_the_last_digit_of_money() {
        let check = |name: &str, on_demand: f64, spot: f64| {
            let instance_type = named(name);
            let price = |capacity_type| instance_type.offering_price("test-zone-b", capacity_type);
            assert_eq!(price("on-demand"), Some(Price::from_f64(on_demand)), "{name}");
            assert_eq!(price("spot"), Some(Price::from_f64(spot)), "{name}");
        };
        check("c-1x-amd64-linux", 0.027_147_483_648, 0.019_003_238_553_599_998);
        check("s-4x-arm64-windows", 0.117_179_869_184, 0.082_025_908_428_799_99);
        check("m-256x-arm64-linux", 8.599_023_255_552, 6.019_316_278_886_399);
    }

    #[test]
    fn sizes_follow_from_cpus() {
        let check = |name: &str, capacity: &str, allocatable: &str| {
            let instance_type = named(name);
            assert_eq!(instance_type.capacity().to_string(), capacity);
            assert_eq!(instance_type.allocatable().to_string(), allocatable);
        };
        check(
            "c-1x-amd64-linux",
            "cpu 1, ephemeral-storage 20Gi, memory 2Gi, pods 16",
            "cpu 900m, ephemeral-storage 20Gi, memory 2038Mi, pods 16",
        );
        check(
            "m-192x-arm64-windows",
            "cpu 192, ephemeral-storage 20Gi, memory 1536Gi, pods 1024",
            "cpu 191900m, ephemeral-storage 20Gi, memory 1572854Mi, pods 1024",
        );
    }

    #[test]
    fn labels_tell_what_a_type_is() {
        assert_eq!(
            named("m-128x-arm64-linux").requirements().to_string(),
            "karpenter.kwok.sh/instance-cpu In [128], karpenter.kwok.sh/instance-family In [m], \
             karpenter.kwok.sh/instance-memory In [1Ti], karpenter.kwok.sh/instance-size In [128], \
             karpenter.sh/capacity-type In [on-demand spot], kubernetes.io/arch In [arm64], kubernetes.io/os In [linux], \
             node.kubernetes.io/instance-type In [m-128x-arm64-linux], \
             topology.kubernetes.io/zone In [test-zone-a test-zone-b test-zone-c test-zone-d]"
        );
    }

    #[test]
    fn offerings_go_by_zone_and_then_by_capacity_type() {
        let instance_type = named("c-2x-amd64-linux");
        let places: Vec<_> = instance_type
            .offerings()
            .iter()
            .map(|offering| (offering.zone().unwrap(), offering.capacity_type().unwrap()))
            .collect();
        assert_eq!(
            places[..3],
            [("test-zone-a", "spot"), ("test-zone-a", "on-demand"), ("test-zone-b", "spot")]
        );
        assert!(instance_type.offerings().iter().all(|offering| offering.available));
    }

    #[test]
    fn reads_family_and_size_from_names() {
        let check = |name: &str, expected: (&str, Option<&str>)| {
            assert_eq!((family(name), size(name)), expected, "{name}");
        };
        check("m5.2xlarge", ("m5", Some("2xlarge")));
        check("m5.xlarge", ("m5", Some("xlarge")));
        check("t3.nano", ("t3", Some("nano")));
        check("m5.metal", ("m5", Some("metal")));
        check("m5.metal-24xl", ("m5", None));
        check("m5.huge", ("m5", None));
        check(".large", ("", None));
        check("a-b.large", ("a", None));
        check("c-4x-amd64-linux", ("c", None));
        check("standard", ("s", None));
        check("", ("", None));
    }
}
