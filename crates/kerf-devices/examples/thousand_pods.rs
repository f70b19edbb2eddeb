//! How long it takes to find devices for 1,000 pods with one claim each, over the devices of 400 instance types:
//! `cargo run --release -p kerf-devices --example thousand_pods`.
//!
//! Two ways are measured. In the first, every pod is tried on every type, each with devices of its own: 400,000 searches. In the second,
//! each type has one node that fills up, so searches also go past devices in use and are refused.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Instant;

use kerf_devices::capacity::Amounts;
use kerf_devices::claim::{Mode, Request, Wanted, Wish};
use kerf_devices::device::{Attribute, Capacity, CounterName, CounterUse, Kind};
use kerf_devices::slice::Content;
use kerf_devices::{
    Allocator, Amount, Claim, ClaimId, Demand, Device, DeviceClass, DeviceClasses, Inventory,
    PoolId, Pools, Reach, Slice, Usage,
};

const DRIVER: &str = "gpu.example.com";
const TYPES: usize = 400;
const PODS: usize = 1000;

fn main() {
    for partitioned in [false, true] {
        println!("{}", if partitioned { "GPUs in seven partitions" } else { "whole GPUs" });
        let mut allocator = Allocator::default();
        let start = Instant::now();
        let inventories: Vec<_> = (0..TYPES)
            .map(|number| allocator.inventory(&pools(number, partitioned), |_| true))
            .collect();
        println!("  inventories of {TYPES} types: {:?}", start.elapsed());

        let start = Instant::now();
        let demands: Vec<_> = (0..PODS).map(|pod| demand(&mut allocator, pod)).collect();
        println!("  demands of {PODS} pods: {:?}", start.elapsed());

        let start = Instant::now();
        let found = on_fresh_types(&mut allocator, &inventories, &demands);
        println!("  each pod on each type: {:?}, {found} of {}", start.elapsed(), TYPES * PODS);

        let start = Instant::now();
        let (placed, refused) = on_filling_nodes(&mut allocator, &inventories, &demands);
        println!(
            "  first fit on one node of each type: {:?}, {placed} placed, {refused} refusals",
            start.elapsed()
        );
    }
}

fn on_fresh_types(
    allocator: &mut Allocator,
    inventories: &[Inventory],
    demands: &[Demand],
) -> usize {
    let unused = Usage::default();
    let mut found = 0;
    for demand in demands {
        for inventory in inventories {
            found += usize::from(allocator.allocate(inventory, &[&unused], &[demand]).is_ok());
        }
    }
    found
}

fn on_filling_nodes(
    allocator: &mut Allocator,
    inventories: &[Inventory],
    demands: &[Demand],
) -> (usize, usize) {
    let mut usages = vec![Usage::default(); inventories.len()];
    let (mut placed, mut refused) = (0, 0);
    for demand in demands {
        for (inventory, usage) in inventories.iter().zip(&mut usages) {
            let Ok(found) = allocator.allocate(inventory, &[usage], &[demand]) else {
                refused += 1;
                continue;
            };
            for device in found.iter().flat_map(|one| &one.devices) {
                usage.take(device);
            }
            placed += 1;
            break;
        }
    }
    (placed, refused)
}

/// Types with one to eight GPUs of four models.
fn pools(number: usize, partitioned: bool) -> Pools {
    let pool = PoolId { driver: DRIVER.into(), pool: format!("type-{number}").into() };
    let gpus = number % 8 + 1;
    let slice = |name: &str, content| Slice {
        name: name.into(),
        pool: pool.clone(),
        generation: 1,
        slices: NonZeroU64::MIN.saturating_add(u64::from(partitioned)),
        content,
    };
    let counter =
        |gpu: usize| CounterName { set: format!("gpu-{gpu}").into(), counter: "slices".into() };
    let model = ["T4", "A10", "A100", "H100"][number % 4];
    let mut devices = Vec::new();
    for gpu in 0..gpus {
        let parts = if partitioned { 7 } else { 1 };
        for part in 0..parts {
            let name = format!("gpu-{gpu}-{part}");
            let consumes =
                partitioned.then(|| CounterUse { counter: counter(gpu), amount: Amount::whole(1) });
            devices.push(device(&name, model, consumes.into_iter().collect()));
        }
    }
    let reach = Reach::Node("node".into());
    let mut slices = vec![slice("devices", Content::Devices { reach, devices })];
    if partitioned {
        let counters = (0..gpus).map(|gpu| (counter(gpu), Amount::whole(7))).collect();
        slices.push(slice("counters", Content::Counters(counters)));
    }
    Pools::gather(slices)
}

fn device(name: &str, model: &str, consumes: Vec<CounterUse>) -> Device {
    let attributes = BTreeMap::from([
        ("model".into(), Attribute::String(model.into())),
        ("driverVersion".into(), Attribute::Version("12.4.1".into())),
    ]);
    let memory = Capacity { value: Amount::whole(40 << 30), policy: None };
    Device {
        name: name.into(),
        kind: Arc::new(Kind {
            driver: DRIVER.into(),
            allows_multiple: false,
            attributes: BTreeMap::from([(DRIVER.into(), attributes)]),
            capacity: BTreeMap::from([("memory".into(), memory)]),
        }),
        consumes,
        taints: Vec::new(),
        reach: None,
        binds_to_node: false,
        has_binding_conditions: false,
    }
}

fn demand(allocator: &mut Allocator, pod: usize) -> Demand {
    let class = DeviceClass {
        selectors: vec![format!(r#"device.driver == "{DRIVER}""#).into()],
        extended_resource: None,
    };
    let selector = r#"cel.bind(gpu, device.attributes["gpu.example.com"],
        gpu.model in ["A100", "H100"] && gpu.driverVersion.isGreaterThan(semver("12.0.0")))
        && device.capacity["gpu.example.com"].memory.compareTo(quantity("20Gi")) >= 0"#;
    let wanted = Wanted {
        class: "gpu".into(),
        selectors: vec![selector.into()],
        mode: Mode::Count(NonZeroU32::MIN),
        admin_access: false,
        tolerations: Vec::new(),
        capacity: Amounts::new(),
    };
    let claim = Claim {
        id: ClaimId { namespace: "default".into(), name: format!("pod-{pod}").into() },
        requests: vec![Request { name: "gpu".into(), wish: Wish::Exactly(wanted) }],
        constraints: Vec::new(),
    };
    let classes = DeviceClasses::from([("gpu".into(), class)]);
    allocator.demand(&claim, &classes).expect("the claim is well-formed")
}
