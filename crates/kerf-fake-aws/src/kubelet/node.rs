//! The Node that an instance registers.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::labels;
use kerf_aws_api::resources::{AMD_GPU, GAUDI, NEURON, NVIDIA_GPU};
use kerf_aws_api::{InstanceStorePolicy, KubeletConfiguration};
use kerf_aws_model::catalogue::TypeFacts;
use kerf_aws_model::user_data::{NodeSettings, Unreadable};
use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use kerf_model::{Quantity, Resources};

use crate::cloud::Cloud;
use crate::instances::Instance;

/// Why an instance never becomes a node. A kubelet would say it on the console of the instance.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoNode {
    #[error("the instance has no user data")]
    NoUserData,
    #[error("the user data is not text in base64")]
    NotText,
    #[error("the user data cannot be read: {0}")]
    Unreadable(#[from] Unreadable),
    #[error("the user data names the cluster {0:?}")]
    OtherCluster(String),
    #[error("the user data names the API server {0:?}")]
    OtherEndpoint(String),
    #[error("the user data has another certificate than the API server")]
    OtherCertificate,
    #[error("the kubelet's {field} has {text:?}, which is not an amount")]
    NotAnAmount { field: &'static str, text: String },
    #[error("the instance has no instance profile and cannot get a token")]
    NoProfile,
}

/// By this annotation KWOK, and the kubelets of the testbed, know the nodes that they are to run.
pub(super) const RUN_BY_KWOK: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

pub(crate) fn of(instance: &Instance, cloud: &Cloud, memory_lost: f64) -> Result<Node, NoNode> {
    let settings = read(instance)?;
    let cluster = &cloud.settings;
    if settings.cluster.name != cluster.cluster {
        return Err(NoNode::OtherCluster(settings.cluster.name));
    }
    if settings.cluster.endpoint != cluster.endpoint {
        return Err(NoNode::OtherEndpoint(settings.cluster.endpoint));
    }
    if settings.cluster.ca_bundle.as_ref().is_some_and(|bundle| *bundle != cluster.ca_bundle) {
        return Err(NoNode::OtherCertificate);
    }
    if instance.profile_arn.is_none() {
        return Err(NoNode::NoProfile);
    }
    let name = instance.dns_name(&cluster.region);
    let facts = &instance.facts;
    let capacity = capacity(instance, &settings, memory_lost);
    let allocatable = capacity.minus(&kept(facts, &settings.kubelet, &capacity)?);
    let is_windows = cloud.images.by_id.get(&instance.image).is_some_and(|image| image.windows);
    let mut all = settings.labels;
    let own = [
        (labels::HOSTNAME, name.as_str()),
        (labels::ARCH, facts.architecture.label()),
        (labels::OS, if is_windows { "windows" } else { "linux" }),
        (labels::INSTANCE_TYPE, &facts.name),
        (labels::ZONE, &instance.zone),
        (labels::REGION, &cluster.region),
        (kerf_aws_api::labels::ZONE_ID, &cloud.network.zone_id(&instance.zone).unwrap_or_default()),
    ];
    all.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let address = |kind: &str, address: &str| NodeAddress {
        address: address.to_owned(),
        type_: kind.to_owned(),
    };
    Ok(Node {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(all),
            annotations: Some([RUN_BY_KWOK].map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(format!("aws:///{}/{}", instance.zone, instance.id)),
            taints: Some(settings.taints),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: Some(vec![
                address("InternalIP", &instance.address),
                address("Hostname", &name),
            ]),
            capacity: Some(capacity.to_api()),
            allocatable: Some(allocatable.to_api()),
            phase: Some("Pending".to_owned()),
            ..NodeStatus::default()
        }),
    })
}

fn read(instance: &Instance) -> Result<NodeSettings, NoNode> {
    let data = instance.template.user_data.as_ref().ok_or(NoNode::NoUserData)?;
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| NoNode::NotText)?;
    let text = String::from_utf8(bytes).map_err(|_| NoNode::NotText)?;
    Ok(NodeSettings::read(&text)?)
}

fn capacity(instance: &Instance, settings: &NodeSettings, memory_lost: f64) -> Resources {
    let facts = &instance.facts;
    let raid = settings.instance_store_policy == Some(InstanceStorePolicy::Raid0);
    // Bottlerocket's second volume is the one for pods; the others have one.
    let volumes = instance.template.block_device_mappings.iter();
    let volume = volumes.filter_map(|one| one.ebs.as_ref()?.volume_size).next_back();
    let storage = match i64::try_from(facts.local_gb) {
        Ok(gigabytes) if raid && gigabytes > 0 => gigabytes.saturating_mul(1_000_000_000),
        _ => i64::from(volume.unwrap_or(20)).saturating_mul(GIB),
    };
    #[expect(clippy::cast_possible_truncation, reason = "float casts saturate")]
    let memory = (facts.memory_mib as f64 * (1.0 - memory_lost)) as i64 * MIB;
    let mut capacity = Resources::new()
        .with(CPU, Quantity::from_units(facts.vcpus.into()))
        .with(MEMORY, Quantity::from_bytes(memory))
        .with(EPHEMERAL_STORAGE, Quantity::from_bytes(storage))
        .with(PODS, Quantity::from_units(max_pods(facts, &settings.kubelet)));
    let neurons = facts.neurons.iter().map(|neuron| neuron.count).sum();
    for (name, count) in [
        (NVIDIA_GPU, facts.gpu_count("NVIDIA")),
        (AMD_GPU, facts.gpu_count("AMD")),
        (GAUDI, facts.gpu_count("Habana")),
        (NEURON, neurons),
    ] {
        if count > 0 {
            capacity.set(name, Quantity::from_units(count.into()));
        }
    }
    capacity
}

/// Every interface gives its addresses but its own; two pods use the network of the host.
fn by_interfaces(facts: &TypeFacts) -> i64 {
    let pods = facts.default_interfaces() * facts.addresses_per_interface.saturating_sub(1) + 2;
    pods.into()
}

fn max_pods(facts: &TypeFacts, kubelet: &KubeletConfiguration) -> i64 {
    let most = kubelet.max_pods.map_or_else(|| by_interfaces(facts), i64::from);
    match kubelet.pods_per_core {
        Some(per_core) if per_core > 0 => most.min(i64::from(per_core) * i64::from(facts.vcpus)),
        _ => most,
    }
}

/// What pods cannot have: what is reserved, and what must stay free for no pod to be evicted.
fn kept(
    facts: &TypeFacts,
    kubelet: &KubeletConfiguration,
    capacity: &Resources,
) -> Result<Resources, NoNode> {
    let mut kept = reserved_by_default(facts)
        .overridden_by(&amounts("kubeReserved", kubelet.kube_reserved.as_ref())?);
    kept.add(&amounts("systemReserved", kubelet.system_reserved.as_ref())?);
    let eviction = kubelet.eviction_hard.as_ref();
    for (signal, resource, default) in
        [("memory.available", MEMORY, "100Mi"), ("nodefs.available", EPHEMERAL_STORAGE, "10%")]
    {
        let text = eviction.and_then(|eviction| eviction.get(signal));
        let text = text.map_or(default, String::as_str);
        let wrong = || NoNode::NotAnAmount { field: "evictionHard", text: text.to_owned() };
        let amount = match text.strip_suffix('%') {
            #[expect(clippy::cast_possible_truncation, reason = "float casts saturate")]
            Some(percent) => {
                let percent: f64 = percent.parse().map_err(|_| wrong())?;
                let bytes = capacity.amount(resource).as_f64() * percent / 100.0;
                Quantity::from_bytes(bytes.ceil() as i64)
            }
            None => text.parse().map_err(|_| wrong())?,
        };
        kept.add(&Resources::new().with(resource, amount));
    }
    Ok(kept)
}

/// What images of EKS reserve if they are not told: a falling share of cores, and memory by the pods that the interfaces allow.
fn reserved_by_default(facts: &TypeFacts) -> Resources {
    let cores = i64::from(facts.vcpus);
    let hundredths = 600 * cores.min(1)
        + 100 * (cores - 1).clamp(0, 1)
        + 50 * (cores - 2).clamp(0, 2)
        + 25 * (cores - 4).max(0);
    Resources::new()
        .with(CPU, Quantity::from_millis(hundredths / 10))
        .with(MEMORY, Quantity::from_bytes((255 + 11 * by_interfaces(facts)) * MIB))
        .with(EPHEMERAL_STORAGE, Quantity::from_bytes(GIB))
}

fn amounts(
    field: &'static str,
    map: Option<&BTreeMap<String, String>>,
) -> Result<Resources, NoNode> {
    let mut amounts = Resources::new();
    for (name, text) in map.into_iter().flatten().filter(|(name, _)| *name != "pid") {
        let wrong = |_| NoNode::NotAnAmount { field, text: text.clone() };
        amounts.set(name, text.parse().map_err(wrong)?);
    }
    Ok(amounts)
}
