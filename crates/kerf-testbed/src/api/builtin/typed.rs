//! Built-in kinds are decoded into their types and written back: unknown fields fall away, wrong types are refused.

use super::super::resources::Resource;
use k8s_openapi::api::{
    apps::v1 as apps, batch::v1 as batch, coordination::v1 as coordination, core::v1 as core,
    policy::v1 as policy, scheduling::v1 as scheduling, storage::v1 as storage,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// `dropped` gets the paths of fields that the kind does not know. False: the kind is not listed, and stored as it
/// comes.
pub(in super::super) fn conform(
    resource: &Resource,
    value: &mut Value,
    dropped: Option<&mut Vec<String>>,
) -> Result<bool, serde_json::Error> {
    let before = dropped.is_some().then(|| value.clone());
    if !convert(resource, value)? {
        return Ok(false);
    }
    if let (Some(before), Some(dropped)) = (before, dropped) {
        compare(&before, value, "", dropped);
    }
    Ok(true)
}

fn compare(before: &Value, after: &Value, path: &str, dropped: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before.iter().filter(|(_, value)| !value.is_null()) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match after.get(key) {
                    Some(after) => compare(value, after, &path, dropped),
                    None => dropped.push(path),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(before, after, &format!("{path}[{index}]"), dropped);
            }
        }
        _ => {}
    }
}

fn convert(resource: &Resource, value: &mut Value) -> Result<bool, serde_json::Error> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => round_trip::<core::Pod>(value),
        ("", "nodes") => round_trip::<core::Node>(value),
        ("", "namespaces") => round_trip::<core::Namespace>(value),
        ("", "services") => round_trip::<core::Service>(value),
        ("", "configmaps") => round_trip::<core::ConfigMap>(value),
        ("", "secrets") => round_trip::<core::Secret>(value),
        ("", "serviceaccounts") => round_trip::<core::ServiceAccount>(value),
        ("", "persistentvolumes") => round_trip::<core::PersistentVolume>(value),
        ("", "persistentvolumeclaims") => round_trip::<core::PersistentVolumeClaim>(value),
        ("apps", "deployments") => round_trip::<apps::Deployment>(value),
        ("apps", "replicasets") => round_trip::<apps::ReplicaSet>(value),
        ("apps", "statefulsets") => round_trip::<apps::StatefulSet>(value),
        ("apps", "daemonsets") => round_trip::<apps::DaemonSet>(value),
        ("batch", "jobs") => round_trip::<batch::Job>(value),
        ("batch", "cronjobs") => round_trip::<batch::CronJob>(value),
        ("policy", "poddisruptionbudgets") => round_trip::<policy::PodDisruptionBudget>(value),
        ("coordination.k8s.io", "leases") => round_trip::<coordination::Lease>(value),
        ("scheduling.k8s.io", "priorityclasses") => round_trip::<scheduling::PriorityClass>(value),
        ("storage.k8s.io", "storageclasses") => round_trip::<storage::StorageClass>(value),
        ("storage.k8s.io", "volumeattachments") => round_trip::<storage::VolumeAttachment>(value),
        _ => return Ok(false),
    }?;
    Ok(true)
}

fn round_trip<T: Serialize + DeserializeOwned>(value: &mut Value) -> Result<(), serde_json::Error> {
    let typed = match T::deserialize(&*value) {
        // Go holds the last day of the year 9999, and our types do not: such an object is stored as it comes.
        Err(_) if is_on_the_last_day(value) => return Ok(()),
        typed => typed?,
    };
    *value = serde_json::to_value(typed)?;
    if let Value::Object(map) = value {
        map.remove("apiVersion");
        map.remove("kind");
    }
    Ok(())
}

fn is_on_the_last_day(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with("9999-12-31T") && text.ends_with('Z'),
        Value::Array(items) => items.iter().any(is_on_the_last_day),
        Value::Object(fields) => fields.values().any(is_on_the_last_day),
        _ => false,
    }
}
