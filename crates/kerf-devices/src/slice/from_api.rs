//! Reading ResourceSlices.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Content, PoolId, Slice};
use crate::amount::{Amount, NotAnAmount};
use crate::device::{
    Attribute, Capacity, CounterName, CounterUse, Device, Effect, Kind, Policy, Portions, Taint,
};
use crate::reach::{MalformedSelector, Reach};

/// A slice that cannot be read. Its pool counts as incomplete without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ResourceSlice {slice} cannot be read: {defect}")]
pub struct MalformedSlice {
    pub slice: String,
    pub defect: SliceDefect,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceDefect {
    #[error("it says that its pool has {count} slices")]
    SliceCount { count: i64 },
    #[error("it does not say from which nodes its devices can be used")]
    NoReach,
    #[error("its node selector: {0}")]
    Selector(#[from] MalformedSelector),
    #[error("attribute {attribute} of device {device} has no value of a known type")]
    UnknownAttribute { device: String, attribute: String },
    #[error("{what} of device {device}: {source}")]
    Amount { device: String, what: String, source: NotAnAmount },
    #[error("counter {counter}: {source}")]
    Counter { counter: CounterName, source: NotAnAmount },
}

impl TryFrom<&api::ResourceSlice> for Slice {
    type Error = MalformedSlice;

    fn try_from(slice: &api::ResourceSlice) -> Result<Self, MalformedSlice> {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        let malformed = |defect| MalformedSlice { slice: name.to_owned(), defect };
        let spec = &slice.spec;
        let count = spec.pool.resource_slice_count;
        let slices = u64::try_from(count).ok().and_then(NonZeroU64::new);
        let driver: Arc<str> = spec.driver.as_str().into();
        Ok(Self {
            name: name.into(),
            pool: PoolId { driver: driver.clone(), pool: spec.pool.name.as_str().into() },
            generation: spec.pool.generation,
            slices: slices.ok_or(SliceDefect::SliceCount { count }).map_err(malformed)?,
            content: content(spec, &driver).map_err(malformed)?,
        })
    }
}

fn content(spec: &api::ResourceSliceSpec, driver: &Arc<str>) -> Result<Content, SliceDefect> {
    if let Some(sets) = spec.shared_counters.as_ref().filter(|sets| !sets.is_empty()) {
        let mut counters = BTreeMap::new();
        for set in sets {
            counters.extend(read_counters(&set.name, &set.counters)?);
        }
        return Ok(Content::Counters(counters));
    }
    let devices = spec.devices.iter().flatten().map(|device| read_device(device, driver));
    let devices = devices.collect::<Result<_, _>>()?;
    if spec.per_device_node_selection == Some(true) {
        return Ok(Content::ScatteredDevices(devices));
    }
    let reach = reach(spec.node_name.as_ref(), spec.all_nodes, spec.node_selector.as_ref())?;
    Ok(Content::Devices { reach: reach.ok_or(SliceDefect::NoReach)?, devices })
}

fn reach(
    node: Option<&String>,
    all: Option<bool>,
    selector: Option<&NodeSelector>,
) -> Result<Option<Reach>, SliceDefect> {
    Ok(match (node, all, selector) {
        (Some(node), _, _) if !node.is_empty() => Some(Reach::Node(node.as_str().into())),
        (_, Some(true), _) => Some(Reach::AllNodes),
        (_, _, Some(selector)) => Some(Reach::Nodes(selector.try_into()?)),
        _ => None,
    })
}

fn read_counters(
    set: &str,
    counters: &BTreeMap<String, api::Counter>,
) -> Result<Vec<(CounterName, Amount)>, SliceDefect> {
    let read = counters.iter().map(|(counter, amount)| {
        let counter = CounterName { set: set.into(), counter: counter.as_str().into() };
        match Amount::parse(&amount.value.0) {
            Ok(amount) => Ok((counter, amount)),
            Err(source) => Err(SliceDefect::Counter { counter, source }),
        }
    });
    read.collect()
}

fn read_device(device: &api::Device, driver: &Arc<str>) -> Result<Device, SliceDefect> {
    let mut consumes = Vec::new();
    for consumption in device.consumes_counters.iter().flatten() {
        let counters = read_counters(&consumption.counter_set, &consumption.counters)?;
        let uses = counters.into_iter().map(|(counter, amount)| CounterUse { counter, amount });
        consumes.extend(uses);
    }
    let taints = device.taints.iter().flatten().map(|taint| Taint {
        key: taint.key.as_str().into(),
        value: taint.value.as_deref().unwrap_or_default().into(),
        effect: Effect::named(&taint.effect),
    });
    let selector = device.node_selector.as_ref();
    Ok(Device {
        name: device.name.as_str().into(),
        kind: Arc::new(read_kind(device, driver)?),
        consumes,
        taints: taints.collect(),
        reach: reach(device.node_name.as_ref(), device.all_nodes, selector)?,
        binds_to_node: device.binds_to_node == Some(true),
        has_binding_conditions: device.binding_conditions.is_some(),
    })
}

impl Effect {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "NoSchedule" => Self::NoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => Self::Ignored,
        }
    }
}

fn read_kind(device: &api::Device, driver: &Arc<str>) -> Result<Kind, SliceDefect> {
    let mut attributes: BTreeMap<Arc<str>, BTreeMap<_, _>> = BTreeMap::new();
    // Names with a domain come second, so that they win over the same name without one.
    let mut named: Vec<_> = device.attributes.iter().flatten().collect();
    named.sort_by_key(|(name, _)| name.contains('/'));
    for (name, attribute) in named {
        let (domain, id) = name.split_once('/').unwrap_or((&**driver, name));
        let unknown = || SliceDefect::UnknownAttribute {
            device: device.name.clone(),
            attribute: name.clone(),
        };
        let value = read_attribute(attribute).ok_or_else(unknown)?;
        attributes.entry(domain.into()).or_default().insert(id.into(), value);
    }
    let capacity = device.capacity.iter().flatten().map(|(name, capacity)| {
        let amount = |quantity: &Quantity| {
            Amount::parse(&quantity.0).map_err(|source| SliceDefect::Amount {
                device: device.name.clone(),
                what: name.clone(),
                source,
            })
        };
        let policy = capacity.request_policy.as_ref();
        let policy = policy.map(|policy| read_policy(policy, amount)).transpose()?;
        let capacity = Capacity { value: amount(&capacity.value)?, policy };
        Ok::<_, SliceDefect>((Arc::from(name.as_str()), capacity))
    });
    Ok(Kind {
        driver: driver.clone(),
        allows_multiple: device.allow_multiple_allocations == Some(true),
        attributes,
        capacity: capacity.collect::<Result<_, _>>()?,
    })
}

fn read_policy(
    policy: &api::CapacityRequestPolicy,
    amount: impl Fn(&Quantity) -> Result<Amount, SliceDefect>,
) -> Result<Policy, SliceDefect> {
    let portions = match (&policy.valid_range, &policy.valid_values) {
        (Some(range), _) => Portions::Range {
            min: amount(&range.min)?,
            max: range.max.as_ref().map(&amount).transpose()?,
            step: range.step.as_ref().map(&amount).transpose()?,
        },
        (None, Some(values)) if !values.is_empty() => {
            Portions::Values(values.iter().map(&amount).collect::<Result<_, _>>()?)
        }
        _ => Portions::Any,
    };
    Ok(Policy { default: policy.default.as_ref().map(&amount).transpose()?, portions })
}

fn read_attribute(attribute: &api::DeviceAttribute) -> Option<Attribute> {
    let shared = |texts: &Vec<String>| texts.iter().map(|text| text.as_str().into()).collect();
    let lists = None
        .or_else(|| attribute.ints.clone().map(Attribute::Ints))
        .or_else(|| attribute.bools.clone().map(Attribute::Bools))
        .or_else(|| attribute.strings.as_ref().map(shared).map(Attribute::Strings))
        .or_else(|| attribute.versions.as_ref().map(shared).map(Attribute::Versions));
    let text = |text: &Option<String>| text.as_deref().map(Arc::from);
    lists
        .or_else(|| attribute.int.map(Attribute::Int))
        .or_else(|| attribute.bool.map(Attribute::Bool))
        .or_else(|| text(&attribute.string).map(Attribute::String))
        .or_else(|| text(&attribute.version).map(Attribute::Version))
}
