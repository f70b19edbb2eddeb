//! From the objects of Kubernetes to ours.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use kerf_devices::claim::standing::Standing;
use kerf_devices::claim::{Claim, ClaimDefect, ClaimId, DeviceClass, Mode, Rule, Wish};
use kerf_devices::device::{Attribute, Effect, Portions};
use kerf_devices::reach::Reach;
use kerf_devices::slice::{Content, Slice, SliceDefect};

use crate::builders::{DRIVER, amount, attribute_name, pool_id};

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some("default".into()),
        ..ObjectMeta::default()
    }
}

fn quantity(text: &str) -> Quantity {
    Quantity(text.into())
}

fn slice_of(devices: Vec<api::Device>) -> api::ResourceSlice {
    api::ResourceSlice {
        metadata: named("slice"),
        spec: api::ResourceSliceSpec {
            driver: DRIVER.into(),
            node_name: Some("node".into()),
            pool: api::ResourcePool { name: "pool".into(), generation: 3, resource_slice_count: 2 },
            devices: Some(devices),
            ..api::ResourceSliceSpec::default()
        },
    }
}

fn counter(amount: &str) -> BTreeMap<String, api::Counter> {
    BTreeMap::from([("slices".to_owned(), api::Counter { value: quantity(amount) })])
}

fn full_device() -> api::Device {
    let text = |value: &str| api::DeviceAttribute {
        string: Some(value.into()),
        ..api::DeviceAttribute::default()
    };
    let policy = api::CapacityRequestPolicy {
        default: Some(quantity("1Gi")),
        valid_range: Some(api::CapacityRequestPolicyRange {
            min: quantity("1Gi"),
            max: Some(quantity("20Gi")),
            step: None,
        }),
        valid_values: None,
    };
    api::Device {
        name: "gpu-0".into(),
        allow_multiple_allocations: Some(true),
        attributes: Some(BTreeMap::from([
            ("model".to_owned(), text("without a domain")),
            (format!("{DRIVER}/model"), text("with its domain")),
            (
                "other.example.com/numas".to_owned(),
                api::DeviceAttribute { ints: Some(vec![1, 2]), ..Default::default() },
            ),
        ])),
        capacity: Some(BTreeMap::from([(
            "memory".to_owned(),
            api::DeviceCapacity { value: quantity("40Gi"), request_policy: Some(policy) },
        )])),
        consumes_counters: Some(vec![api::DeviceCounterConsumption {
            counter_set: "gpu".into(),
            counters: counter("4"),
        }]),
        taints: Some(vec![
            api::DeviceTaint { key: "a".into(), effect: "NoExecute".into(), ..Default::default() },
            api::DeviceTaint {
                key: "b".into(),
                effect: "SomethingNew".into(),
                ..Default::default()
            },
        ]),
        ..api::Device::default()
    }
}

#[test]
fn reads_slices_of_devices() {
    let slice = Slice::try_from(&slice_of(vec![full_device()])).unwrap();
    assert_eq!((slice.pool.clone(), slice.generation, slice.slices.get()), (pool_id("pool"), 3, 2));
    let devices: Vec<_> = slice.devices().collect();
    let [(device, Some(Reach::Node(node)))] = &devices[..] else { panic!("{devices:?}") };
    assert_eq!((&**node, &*device.name), ("node", "gpu-0"));
    let model = device.kind.attribute(&attribute_name("model"));
    assert_eq!(model, Some(&Attribute::String("with its domain".into())));
    let numas = device.kind.attribute(&attribute_name("other.example.com/numas"));
    assert_eq!(numas, Some(&Attribute::Ints(vec![1, 2])));
    let memory = &device.kind.capacity["memory"];
    assert_eq!(memory.value, amount("40Gi"));
    let range = Portions::Range { min: amount("1Gi"), max: Some(amount("20Gi")), step: None };
    assert_eq!(memory.policy.as_ref().unwrap().portions, range);
    assert!(device.kind.allows_multiple);
    assert_eq!(device.consumes[0].counter.to_string(), "gpu/slices");
    let effects: Vec<_> = device.taints.iter().map(|taint| taint.effect).collect();
    assert_eq!(effects, [Effect::NoExecute, Effect::Ignored]);
}

#[test]
fn reads_slices_of_counters_and_of_scattered_devices() {
    let mut slice = slice_of(vec![]);
    slice.spec.shared_counters =
        Some(vec![api::CounterSet { name: "gpu".into(), counters: counter("7") }]);
    let read = Slice::try_from(&slice).unwrap();
    assert!(matches!(read.content, Content::Counters(counters) if counters.len() == 1));

    let mut device = full_device();
    device.node_selector = Some(NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: Some(vec![NodeSelectorRequirement {
                key: "zone".into(),
                operator: "Exists".into(),
                values: None,
            }]),
            match_fields: None,
        }],
    });
    let mut slice = slice_of(vec![device, full_device()]);
    slice.spec.node_name = None;
    slice.spec.per_device_node_selection = Some(true);
    let read = Slice::try_from(&slice).unwrap();
    let reaches: Vec<_> = read.devices().map(|(_, reach)| reach).collect();
    assert!(matches!(reaches[..], [Some(Reach::Nodes(_)), None]), "{reaches:?}");
}

#[test]
fn says_what_is_wrong_with_slices() {
    let defect = |change: fn(&mut api::ResourceSlice)| {
        let mut slice = slice_of(vec![full_device()]);
        change(&mut slice);
        Slice::try_from(&slice).unwrap_err().defect
    };
    assert!(matches!(
        defect(|one| one.spec.pool.resource_slice_count = 0),
        SliceDefect::SliceCount { count: 0 }
    ));
    assert!(matches!(defect(|one| one.spec.node_name = None), SliceDefect::NoReach));
    let without_type = defect(|one| {
        let attributes = BTreeMap::from([("odd".to_owned(), api::DeviceAttribute::default())]);
        one.spec.devices.as_mut().unwrap()[0].attributes = Some(attributes);
    });
    assert!(matches!(without_type, SliceDefect::UnknownAttribute { .. }));
    let amount = defect(|one| {
        let odd = api::DeviceCapacity { value: Quantity("many".into()), request_policy: None };
        let capacity = BTreeMap::from([("memory".to_owned(), odd)]);
        one.spec.devices.as_mut().unwrap()[0].capacity = Some(capacity);
    });
    assert!(matches!(amount, SliceDefect::Amount { .. }));
    let counter = defect(|one| {
        let uses = one.spec.devices.as_mut().unwrap()[0].consumes_counters.as_mut().unwrap();
        uses[0].counters.get_mut("slices").unwrap().value = Quantity("many".into());
    });
    assert_eq!(
        counter.to_string(),
        "counter gpu/slices: \"many\" is not a quantity such as 4, 500m or 16Gi"
    );
}

fn request(change: impl FnOnce(&mut api::ExactDeviceRequest)) -> api::DeviceRequest {
    let mut exactly = api::ExactDeviceRequest {
        device_class_name: "gpu".into(),
        selectors: Some(vec![api::DeviceSelector {
            cel: Some(api::CELDeviceSelector { expression: "true".into() }),
        }]),
        ..api::ExactDeviceRequest::default()
    };
    change(&mut exactly);
    api::DeviceRequest { name: "r".into(), exactly: Some(exactly), first_available: None }
}

fn claim_of(
    requests: Vec<api::DeviceRequest>,
    constraints: Vec<api::DeviceConstraint>,
) -> api::ResourceClaim {
    api::ResourceClaim {
        metadata: named("claim"),
        spec: api::ResourceClaimSpec {
            devices: Some(api::DeviceClaim {
                requests: Some(requests),
                constraints: Some(constraints),
                config: None,
            }),
        },
        status: None,
    }
}

#[test]
fn reads_claims() {
    let full = request(|one| {
        one.count = Some(2);
        one.admin_access = Some(true);
        one.tolerations = Some(vec![
            api::DeviceToleration { operator: Some("Exists".into()), ..Default::default() },
            api::DeviceToleration {
                key: Some("k".into()),
                value: Some("v".into()),
                effect: Some("NoSchedule".into()),
                ..Default::default()
            },
        ]);
        let memory = BTreeMap::from([("memory".to_owned(), quantity("8Gi"))]);
        one.capacity = Some(api::CapacityRequirements { requests: Some(memory) });
    });
    let either = api::DeviceRequest {
        name: "s".into(),
        exactly: None,
        first_available: Some(vec![api::DeviceSubRequest {
            name: "t".into(),
            device_class_name: "gpu".into(),
            allocation_mode: Some("All".into()),
            ..Default::default()
        }]),
    };
    let together = api::DeviceConstraint {
        match_attribute: Some("gpu.example.com/numa".into()),
        requests: Some(vec!["r".into()]),
        distinct_attribute: None,
    };
    let claim = Claim::try_from(&claim_of(vec![full, either], vec![together])).unwrap();
    assert_eq!(claim.id.to_string(), "default/claim");
    let Wish::Exactly(wanted) = &claim.requests[0].wish else { panic!() };
    assert!(matches!(wanted.mode, Mode::Count(count) if count.get() == 2));
    assert!(wanted.admin_access && wanted.capacity["memory"] == amount("8Gi"));
    assert_eq!(
        (wanted.tolerations[0].key.clone(), wanted.tolerations[0].value.clone()),
        (None, None)
    );
    assert_eq!(wanted.tolerations[1].effect, Some(Effect::NoSchedule));
    let Wish::FirstAvailable(all) = &claim.requests[1].wish else { panic!() };
    assert!(matches!(&all[..], [(name, wanted)] if &**name == "t" && wanted.mode == Mode::All));
    assert_eq!(claim.constraints[0].rule, Rule::MatchAttribute(attribute_name("numa")));

    let template = api::ResourceClaimTemplate {
        metadata: named("template"),
        spec: api::ResourceClaimTemplateSpec {
            metadata: None,
            spec: claim_of(vec![request(|_| {})], vec![]).spec,
        },
    };
    let id = ClaimId { namespace: "default".into(), name: "pod-gpu".into() };
    let made = Claim::from_template(&template, id.clone()).unwrap();
    let Wish::Exactly(wanted) = &made.requests[0].wish else { panic!() };
    assert!(made.id == id && matches!(wanted.mode, Mode::Count(count) if count.get() == 1));
}

#[test]
fn says_what_is_wrong_with_claims() {
    let defect = |change: fn(&mut api::ExactDeviceRequest)| {
        Claim::try_from(&claim_of(vec![request(change)], vec![])).unwrap_err().defect
    };
    assert!(matches!(defect(|one| one.count = Some(0)), ClaimDefect::Count { count: 0, .. }));
    assert!(matches!(defect(|one| one.count = Some(1 << 40)), ClaimDefect::Count { .. }));
    let mode = defect(|one| one.allocation_mode = Some("Some".into()));
    assert!(matches!(mode, ClaimDefect::UnknownMode { .. }));
    let class = defect(|one| one.device_class_name = String::new());
    assert!(matches!(class, ClaimDefect::UnknownRequest { .. }));
    let selector = defect(|one| one.selectors = Some(vec![api::DeviceSelector { cel: None }]));
    assert_eq!(selector.to_string(), "selector 0 of request r is not a CEL expression");
    let operator = defect(|one| {
        let odd = api::DeviceToleration { operator: Some("Odd".into()), ..Default::default() };
        one.tolerations = Some(vec![odd]);
    });
    assert!(matches!(operator, ClaimDefect::UnknownOperator { .. }));

    let nothing = api::DeviceRequest { name: "r".into(), ..Default::default() };
    let defect = Claim::try_from(&claim_of(vec![nothing], vec![])).unwrap_err().defect;
    assert!(matches!(defect, ClaimDefect::UnknownRequest { .. }));
    let constraint = |attribute: Option<&str>| {
        let one = api::DeviceConstraint {
            match_attribute: attribute.map(Into::into),
            ..Default::default()
        };
        Claim::try_from(&claim_of(vec![], vec![one])).unwrap_err().defect
    };
    assert!(matches!(constraint(None), ClaimDefect::UnknownConstraint { .. }));
    assert!(matches!(constraint(Some("numa")), ClaimDefect::NoDomain { .. }));
}

#[test]
fn reads_classes() {
    let class = api::DeviceClass {
        metadata: named("gpu"),
        spec: api::DeviceClassSpec {
            selectors: Some(vec![api::DeviceSelector {
                cel: Some(api::CELDeviceSelector { expression: "true".into() }),
            }]),
            extended_resource_name: Some("example.com/gpu".into()),
            config: None,
        },
    };
    let class = DeviceClass::try_from(&class).unwrap();
    assert_eq!(class.selectors, ["true".into()]);
    assert_eq!(class.extended_resource.as_deref(), Some("example.com/gpu"));
}

#[test]
fn reads_what_is_allocated() {
    let result = |request: &str, device: &str| api::DeviceRequestAllocationResult {
        request: request.into(),
        driver: DRIVER.into(),
        pool: "pool".into(),
        device: device.into(),
        ..Default::default()
    };
    let mut shared = result("s/t", "b");
    shared.share_id = Some("share".into());
    shared.consumed_capacity = Some(BTreeMap::from([("memory".to_owned(), quantity("8Gi"))]));
    let mut watched = result("w", "c");
    watched.admin_access = Some(true);
    let consumer = |resource: &str| api::ResourceClaimConsumerReference {
        resource: resource.into(),
        uid: "uid".into(),
        ..Default::default()
    };
    let mut claim = claim_of(vec![], vec![]);
    assert_eq!(Standing::read(&claim), Ok(None));
    let selector = NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: None,
            match_fields: Some(vec![NodeSelectorRequirement {
                key: "metadata.name".into(),
                operator: "In".into(),
                values: Some(vec!["node".into()]),
            }]),
        }],
    };
    claim.status = Some(api::ResourceClaimStatus {
        allocation: Some(api::AllocationResult {
            devices: Some(api::DeviceAllocationResult {
                results: Some(vec![result("r", "a"), shared, watched]),
                config: None,
            }),
            node_selector: Some(selector),
            allocation_timestamp: None,
        }),
        devices: None,
        reserved_for: Some(vec![consumer("pods")]),
    });
    let standing = Standing::read(&claim).unwrap().unwrap();
    assert!(standing.can_be_used_on("node", &BTreeMap::new()));
    assert!(!standing.can_be_used_on("other", &BTreeMap::new()));
    assert!(standing.ends_with(&["uid".into()].into()));
    let [whole, share, watch] = &standing.devices[..] else { panic!() };
    assert!(whole.share.is_none() && !whole.admin_access && watch.admin_access);
    assert_eq!(share.share.as_ref().unwrap()["memory"], amount("8Gi"));
    assert_eq!(share.request.to_string(), "s/t");

    // Something else than pods uses it: nothing that happens to pods frees it.
    claim.status.as_mut().unwrap().reserved_for = Some(vec![consumer("pods"), consumer("jobs")]);
    let standing = Standing::read(&claim).unwrap().unwrap();
    assert!(!standing.ends_with(&["uid".into()].into()));
}
