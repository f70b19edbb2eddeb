//! AL2023: an archive whose last part is a `NodeConfig`, which nodeadm merges with those of the user.

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Taint;
use kerf_api::GoDuration;
use kerf_aws_api::{InstanceStorePolicy, KubeletConfiguration};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    ClusterAccess, NodeSettings, Refusal, Unreadable, kubelet_args,
    mime::{self, Part},
    quoted, yaml,
};

const NODE_CONFIG: &str = "application/node.eks.aws";

pub(super) fn render(settings: &NodeSettings, custom: &str) -> Result<String, Refusal> {
    let mut parts = custom_parts(custom)?;
    parts.push(Part::new(NODE_CONFIG, node_config(settings)?));
    Ok(mime::write(&parts))
}

/// What is neither an archive nor YAML is taken for a shell script.
fn custom_parts(custom: &str) -> Result<Vec<Part>, Refusal> {
    if custom.is_empty() {
        return Ok(Vec::new());
    }
    if mime::is_archive(custom) {
        return Ok(mime::read(custom)?);
    }
    let is_yaml = serde_saphyr::from_multiple::<Map<String, Value>>(custom).is_ok();
    Ok(vec![Part::new(if is_yaml { NODE_CONFIG } else { mime::SHELL_SCRIPT }, custom)])
}

fn node_config(settings: &NodeSettings) -> Result<String, Refusal> {
    let NodeSettings { cluster, kubelet, labels, taints, instance_store_policy } = settings;
    let cidr = cluster.service_cidr.as_ref().ok_or(Refusal::NoServiceCidr)?;
    let mut access =
        json!({ "name": cluster.name, "apiServerEndpoint": cluster.endpoint, "cidr": cidr });
    if let Some(ca_bundle) = cluster.ca_bundle.as_ref().filter(|bundle| !bundle.is_empty()) {
        BASE64_STANDARD.decode(ca_bundle).map_err(|_| Refusal::CaBundle)?;
        access["certificateAuthority"] = json!(ca_bundle);
    }
    let mut config = json!(as_go_writes(kubelet));
    config["registerWithTaints"] = json!(taints);
    let mut kubelet = json!({ "config": config });
    if !labels.is_empty() {
        kubelet["flags"] = json!([kubelet_args::labels(labels)]);
    }
    let local_storage = match instance_store_policy {
        Some(InstanceStorePolicy::Raid0) => json!({"strategy": "RAID0"}),
        None => json!({}),
    };
    let config = json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": access,
            "containerd": {},
            "instance": {"localStorage": local_storage},
            "kubelet": kubelet,
        },
    });
    Ok(format!("# Karpenter Generated NodeConfig\n{}", yaml::write(&config)))
}

/// Go forgets how a duration was written.
fn as_go_writes(kubelet: &KubeletConfiguration) -> KubeletConfiguration {
    let mut kubelet = kubelet.clone();
    for duration in kubelet.eviction_soft_grace_period.iter_mut().flat_map(|all| all.values_mut()) {
        *duration = GoDuration::from(duration.as_duration());
    }
    kubelet
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    cluster: Cluster,
    instance: Instance,
    kubelet: Kubelet,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Cluster {
    name: String,
    api_server_endpoint: String,
    certificate_authority: Option<String>,
    cidr: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Instance {
    local_storage: LocalStorage,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LocalStorage {
    strategy: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kubelet {
    config: Config,
    flags: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    register_with_taints: Vec<Taint>,
    #[serde(flatten)]
    rest: KubeletConfiguration,
}

/// The settings in every `NodeConfig` of an archive; `None` if it has none. As with nodeadm, later ones win, and flags add up.
pub(super) fn read(parts: &[Part]) -> Result<Option<NodeSettings>, Unreadable> {
    let unreadable = |error: &dyn ToString| Unreadable::NodeConfig(quoted(&error.to_string()));
    let mut merged: Option<Value> = None;
    for part in parts.iter().filter(|part| part.media_type() == NODE_CONFIG) {
        let configs: Vec<Value> =
            serde_saphyr::from_multiple(&part.content).map_err(|error| unreadable(&error))?;
        for mut config in configs {
            merge(merged.get_or_insert_with(|| json!({})), config["spec"].take());
        }
    }
    let Some(merged) = merged else { return Ok(None) };
    let Spec { cluster, instance, kubelet } =
        serde_json::from_value(merged).map_err(|error| unreadable(&error))?;
    let mut settings = NodeSettings {
        cluster: ClusterAccess {
            name: cluster.name,
            endpoint: cluster.api_server_endpoint,
            ca_bundle: cluster.certificate_authority,
            service_cidr: cluster.cidr,
        },
        kubelet: kubelet.config.rest,
        taints: kubelet.config.register_with_taints,
        ..NodeSettings::default()
    };
    settings.instance_store_policy = (instance.local_storage.strategy.as_deref() == Some("RAID0"))
        .then_some(InstanceStorePolicy::Raid0);
    for flag in &kubelet.flags {
        // As on a command line, without the shell that would take the quotes away.
        kubelet_args::read(&kubelet_args::words(flag), &mut settings)?;
    }
    Ok(Some(settings))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(&key) {
                    Some(Value::Array(flags)) if key == "flags" => {
                        if let Value::Array(more) = value {
                            flags.extend(more);
                        }
                    }
                    Some(known) => merge(known, value),
                    None => {
                        into.insert(key, value);
                    }
                }
            }
        }
        (into, from) => *into = from,
    }
}
