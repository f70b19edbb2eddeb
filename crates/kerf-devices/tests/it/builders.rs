//! Small devices, slices and claims.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use kerf_devices::allocator::{Allocation, Allocator};
use kerf_devices::amount::Amount;
use kerf_devices::claim::{
    Claim, ClaimId, Constraint, DeviceClass, DeviceClasses, Mode, Request, Rule, Wanted, Wish,
};
use kerf_devices::device::{
    Attribute, AttributeName, Capacity, CounterName, CounterUse, Device, Effect, Kind, Policy,
    Portions, Taint,
};
use kerf_devices::pool::Pools;
use kerf_devices::reach::Reach;
use kerf_devices::refusal::Refusal;
use kerf_devices::slice::{Content, PoolId, Slice};
use kerf_devices::usage::Usage;

pub(crate) const DRIVER: &str = "gpu.example.com";

pub(crate) fn amount(text: &str) -> Amount {
    Amount::parse(text).expect("a quantity")
}

pub(crate) fn device(name: &str) -> Device {
    let kind = Kind {
        driver: DRIVER.into(),
        allows_multiple: false,
        attributes: BTreeMap::new(),
        capacity: BTreeMap::new(),
    };
    Device {
        name: name.into(),
        kind: Arc::new(kind),
        consumes: Vec::new(),
        taints: Vec::new(),
        reach: None,
        binds_to_node: false,
        has_binding_conditions: false,
    }
}

pub(crate) fn devices<const N: usize>(names: [&str; N]) -> Vec<Device> {
    names.map(device).to_vec()
}

/// What tests change of devices.
pub(crate) trait With {
    fn attribute(self, name: &str, value: impl Into<Attribute>) -> Self;
    fn int(self, name: &str, value: i64) -> Self;
    fn text(self, name: &str, value: &str) -> Self;
    fn capacity(self, name: &str, value: &str) -> Self;
    fn shared(self) -> Self;
    fn policy(self, name: &str, default: &str, portions: Portions) -> Self;
    fn consumes(self, counter: &str, amount: i64) -> Self;
    fn tainted(self, key: &str) -> Self;
    fn at(self, reach: Reach) -> Self;
}

impl With for Device {
    fn attribute(mut self, name: &str, value: impl Into<Attribute>) -> Self {
        let (domain, id) = name.split_once('/').unwrap_or((DRIVER, name));
        let attributes = &mut Arc::make_mut(&mut self.kind).attributes;
        attributes.entry(domain.into()).or_default().insert(id.into(), value.into());
        self
    }

    fn int(self, name: &str, value: i64) -> Self {
        self.attribute(name, Attribute::Int(value))
    }

    fn text(self, name: &str, value: &str) -> Self {
        self.attribute(name, Attribute::String(value.into()))
    }

    fn capacity(mut self, name: &str, value: &str) -> Self {
        let capacity = Capacity { value: amount(value), policy: None };
        Arc::make_mut(&mut self.kind).capacity.insert(name.into(), capacity);
        self
    }

    fn shared(mut self) -> Self {
        Arc::make_mut(&mut self.kind).allows_multiple = true;
        self
    }

    fn policy(mut self, name: &str, default: &str, portions: Portions) -> Self {
        let capacity = &mut Arc::make_mut(&mut self.kind).capacity;
        let policy = Policy { default: Some(amount(default)), portions };
        capacity.get_mut(name).expect("the capacity comes first").policy = Some(policy);
        self
    }

    fn consumes(mut self, counter: &str, amount: i64) -> Self {
        self.consumes
            .push(CounterUse { counter: counter_name(counter), amount: Amount::whole(amount) });
        self
    }

    fn tainted(mut self, key: &str) -> Self {
        let effect = Effect::NoSchedule;
        self.taints.push(Taint { key: key.into(), value: "".into(), effect });
        self
    }

    fn at(mut self, reach: Reach) -> Self {
        self.reach = Some(reach);
        self
    }
}

fn counter_name(counter: &str) -> CounterName {
    let (set, counter) = counter.split_once('/').unwrap_or(("gpu", counter));
    CounterName { set: set.into(), counter: counter.into() }
}

pub(crate) fn pool_id(pool: &str) -> PoolId {
    PoolId { driver: DRIVER.into(), pool: pool.into() }
}

/// A slice of a pool that has `slices` of them.
pub(crate) fn slice(pool: &str, name: &str, slices: u64, content: Content) -> Slice {
    Slice {
        name: format!("{pool}-{name}").into(),
        pool: pool_id(pool),
        generation: 1,
        slices: NonZeroU64::new(slices).expect("a pool has slices"),
        content,
    }
}

pub(crate) fn local(devices: Vec<Device>) -> Content {
    Content::Devices { reach: Reach::Node("node".into()), devices }
}

pub(crate) fn counters<const N: usize>(counters: [(&str, i64); N]) -> Content {
    Content::Counters(
        counters.map(|(name, total)| (counter_name(name), Amount::whole(total))).into(),
    )
}

/// One pool of one slice with these devices, and one with its counters if it has some.
pub(crate) fn pools<const N: usize>(devices: Vec<Device>, shared: [(&str, i64); N]) -> Pools {
    let slices = if N == 0 { 1 } else { 2 };
    let mut all = vec![slice("pool", "devices", slices, local(devices))];
    if N > 0 {
        all.push(slice("pool", "counters", slices, counters(shared)));
    }
    Pools::gather(all)
}

pub(crate) fn wanted(mode: Mode) -> Wanted {
    Wanted {
        class: "gpu".into(),
        selectors: Vec::new(),
        mode,
        admin_access: false,
        tolerations: Vec::new(),
        capacity: BTreeMap::new(),
    }
}

pub(crate) fn count(count: u32) -> Wanted {
    wanted(Mode::Count(NonZeroU32::new(count).expect("one device at least")))
}

pub(crate) fn one() -> Wanted {
    count(1)
}

pub(crate) fn all() -> Wanted {
    wanted(Mode::All)
}

/// What tests change of requests.
pub(crate) trait Asking {
    fn of(self, class: &str) -> Self;
    fn selecting(self, expression: &str) -> Self;
    fn admin(self) -> Self;
    fn asking(self, capacity: &str, amount: &str) -> Self;
}

impl Asking for Wanted {
    fn of(mut self, class: &str) -> Self {
        self.class = class.into();
        self
    }

    fn selecting(mut self, expression: &str) -> Self {
        self.selectors.push(expression.into());
        self
    }

    fn admin(mut self) -> Self {
        self.admin_access = true;
        self
    }

    fn asking(mut self, capacity: &str, value: &str) -> Self {
        self.capacity.insert(capacity.into(), amount(value));
        self
    }
}

pub(crate) fn exactly(name: &str, wanted: Wanted) -> Request {
    Request { name: name.into(), wish: Wish::Exactly(wanted) }
}

pub(crate) fn first_available<const N: usize>(name: &str, wanted: [(&str, Wanted); N]) -> Request {
    let all = wanted.into_iter().map(|(name, wanted)| (name.into(), wanted));
    Request { name: name.into(), wish: Wish::FirstAvailable(all.collect()) }
}

pub(crate) fn claim<const N: usize>(name: &str, requests: [Request; N]) -> Claim {
    let id = ClaimId { namespace: "default".into(), name: name.into() };
    Claim { id, requests: requests.into(), constraints: Vec::new() }
}

pub(crate) fn attribute_name(name: &str) -> AttributeName {
    let (domain, id) = name.split_once('/').unwrap_or((DRIVER, name));
    AttributeName { domain: domain.into(), id: id.into() }
}

pub(crate) fn matching<const N: usize>(attribute: &str, requests: [&str; N]) -> Constraint {
    let rule = Rule::MatchAttribute(attribute_name(attribute));
    Constraint { requests: requests.map(Into::into).into(), rule }
}

pub(crate) fn distinct<const N: usize>(attribute: &str, requests: [&str; N]) -> Constraint {
    let rule = Rule::DistinctAttribute(attribute_name(attribute));
    Constraint { requests: requests.map(Into::into).into(), rule }
}

pub(crate) trait Constrained {
    fn constrained(self, constraint: Constraint) -> Self;
}

impl Constrained for Claim {
    fn constrained(mut self, constraint: Constraint) -> Self {
        self.constraints.push(constraint);
        self
    }
}

/// Every device is of the class `gpu`; `small` and `large` tell them apart by their attribute `size`.
pub(crate) fn classes() -> DeviceClasses {
    let class = |expression: &str| DeviceClass {
        selectors: vec![expression.into()],
        extended_resource: None,
    };
    DeviceClasses::from([
        ("gpu".into(), class(r#"device.driver == "gpu.example.com""#)),
        ("small".into(), class(r#"device.attributes["gpu.example.com"].size == "small""#)),
        ("large".into(), class(r#"device.attributes["gpu.example.com"].size == "large""#)),
    ])
}

pub(crate) fn allocate(
    pools: &Pools,
    usage: &Usage,
    claims: &[Claim],
) -> Result<Vec<Allocation>, Box<Refusal>> {
    allocate_within(kerf_devices::allocator::DEFAULT_BUDGET, pools, usage, claims)
}

pub(crate) fn allocate_within(
    budget: u64,
    pools: &Pools,
    usage: &Usage,
    claims: &[Claim],
) -> Result<Vec<Allocation>, Box<Refusal>> {
    let mut allocator = Allocator::with_budget(budget);
    let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let inventory = allocator.inventory(pools, |reach| reach.includes("node", &labels));
    let demands: Result<Vec<_>, _> =
        claims.iter().map(|claim| allocator.demand(claim, &classes())).collect();
    let demands = demands?;
    let demands: Vec<_> = demands.iter().collect();
    allocator.allocate(&inventory, &[usage], &demands)
}

/// An allocation as `request: device` in order, claims separated by a bar.
pub(crate) fn told(allocations: &[Allocation]) -> String {
    let claims = allocations.iter().map(|allocation| {
        let devices = allocation.devices.iter();
        let devices = devices.map(|one| format!("{}: {}", one.request, one.device.device));
        devices.collect::<Vec<_>>().join(", ")
    });
    claims.collect::<Vec<_>>().join(" | ")
}

/// Usage after these allocations.
pub(crate) fn used(allocations: &[Allocation]) -> Usage {
    let mut usage = Usage::default();
    for device in allocations.iter().flat_map(|one| &one.devices) {
        usage.take(device);
    }
    usage
}
