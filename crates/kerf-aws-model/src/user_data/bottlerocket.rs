//! Bottlerocket: settings in TOML, where the cluster's overwrite the user's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use kerf_aws_api::InstanceStorePolicy;
use toml::{Table, Value};

use super::{BindPaths, NodeSettings, Refusal, Unreadable, kubelet_args, quoted};

/// What is passed on of `settings.kubernetes`. Others are left out, as by Karpenter: Bottlerocket does not start with a key that
/// it does not know.
const KNOWN: [&str; 49] = [
    "allowed-unsafe-sysctls",
    "api-server",
    "cloud-provider",
    "cluster-certificate",
    "cluster-dns-ip",
    "cluster-domain",
    "cluster-name",
    "container-log-max-files",
    "container-log-max-size",
    "container-log-max-workers",
    "container-log-monitor-interval",
    "cpu-cfs-quota-enforced",
    "cpu-manager-policy",
    "cpu-manager-policy-options",
    "cpu-manager-reconcile-period",
    "credential-providers",
    "device-ownership-from-security-context",
    "event-burst",
    "event-qps",
    "eviction-hard",
    "eviction-max-pod-grace-period",
    "eviction-soft",
    "eviction-soft-grace-period",
    "hostname-override-source",
    "ids-per-pod",
    "image-gc-high-threshold-percent",
    "image-gc-low-threshold-percent",
    "kube-api-burst",
    "kube-api-qps",
    "kube-reserved",
    "log-level",
    "max-pods",
    "memory-manager-policy",
    "memory-manager-reserved-memory",
    "node-labels",
    "node-taints",
    "pod-pids-limit",
    "registry-burst",
    "registry-qps",
    "seccomp-default",
    "server-tls-bootstrap",
    "shutdown-grace-period",
    "shutdown-grace-period-for-critical-pods",
    "single-process-oom-kill",
    "static-pods",
    "system-reserved",
    "topology-manager-policy",
    "topology-manager-policy-options",
    "topology-manager-scope",
];

const GRACE_PERIODS: &str = "eviction-soft-grace-period";
const MOUNT_COMMAND: &str = "000-mount-instance-storage";

pub(super) fn render(
    settings: &NodeSettings,
    custom: &str,
    paths: BindPaths,
    ignored: &mut Vec<String>,
) -> Result<String, Refusal> {
    let mut user: Table =
        toml::from_str(custom).map_err(|error| Refusal::Toml(quoted(error.message())))?;
    let mut all = table(user.remove("settings"), "settings")?;
    let mut kubernetes = table(all.remove("kubernetes"), "settings.kubernetes")?;
    kubernetes.retain(|key, _| {
        let known = KNOWN.contains(&key);
        if !known {
            ignored.push(format!("settings.kubernetes.{key}"));
        }
        known
    });
    overwrite(&mut kubernetes, settings)?;
    all.insert("kubernetes".to_owned(), kubernetes.into());
    if settings.instance_store_policy == Some(InstanceStorePolicy::Raid0) {
        let mut commands = table(all.remove("bootstrap-commands"), "settings.bootstrap-commands")?;
        commands.insert(MOUNT_COMMAND.to_owned(), mount_command(paths).into());
        all.insert("bootstrap-commands".to_owned(), commands.into());
    }
    let root = Table::from_iter([("settings".to_owned(), Value::from(all))]);
    Ok(root.to_string())
}

fn table(value: Option<Value>, name: &'static str) -> Result<Table, Refusal> {
    match value {
        None => Ok(Table::new()),
        Some(Value::Table(table)) => Ok(table),
        Some(_) => Err(Refusal::NotATable(name)),
    }
}

/// What the cluster and the class say wins over what the user wrote; labels are merged.
fn overwrite(kubernetes: &mut Table, settings: &NodeSettings) -> Result<(), Refusal> {
    let NodeSettings { cluster, kubelet, labels, taints, .. } = settings;
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            kubernetes.insert(key.to_owned(), value);
        }
    };
    set("cluster-name", Some(cluster.name.as_str().into()));
    set("api-server", Some(cluster.endpoint.as_str().into()));
    set("max-pods", kubelet.max_pods.map(Into::into));
    let dns = kubelet.cluster_dns.as_ref().and_then(|all| all.first());
    set("cluster-dns-ip", dns.map(|dns| dns.as_str().into()));
    set("system-reserved", kubelet.system_reserved.as_ref().map(texts));
    set("kube-reserved", kubelet.kube_reserved.as_ref().map(texts));
    set("eviction-hard", kubelet.eviction_hard.as_ref().map(texts));
    set("eviction-soft", kubelet.eviction_soft.as_ref().map(texts));
    let grace_periods = kubelet.eviction_soft_grace_period.as_ref().map(kubelet_args::go_texts);
    set(GRACE_PERIODS, grace_periods.as_ref().map(texts));
    set("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period.map(Into::into));
    // Bottlerocket wants percentages as texts.
    let percent = |percent: Option<i32>| percent.map(|percent| percent.to_string().into());
    set("image-gc-high-threshold-percent", percent(kubelet.image_gc_high_threshold_percent));
    set("image-gc-low-threshold-percent", percent(kubelet.image_gc_low_threshold_percent));
    set("cpu-cfs-quota-enforced", kubelet.cpu_cfs_quota.map(Into::into));

    kubernetes.remove("cluster-certificate");
    if let Some(ca_bundle) = &cluster.ca_bundle {
        kubernetes.insert("cluster-certificate".to_owned(), ca_bundle.as_str().into());
    }
    let mut node_labels =
        table(kubernetes.remove("node-labels"), "settings.kubernetes.node-labels")?;
    node_labels.extend(labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
    if !node_labels.is_empty() {
        kubernetes.insert("node-labels".to_owned(), node_labels.into());
    }
    let mut node_taints: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for Taint { key, value, effect, .. } in taints {
        let value = value.as_deref().unwrap_or_default();
        node_taints.entry(key).or_default().push(format!("{value}:{effect}").into());
    }
    kubernetes.remove("node-taints");
    if !node_taints.is_empty() {
        let by_key = node_taints.into_iter().map(|(key, taints)| (key.to_owned(), taints.into()));
        kubernetes.insert("node-taints".to_owned(), by_key.collect::<Table>().into());
    }
    Ok(())
}

fn texts(values: &BTreeMap<String, String>) -> Value {
    values.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect::<Table>().into()
}

/// Makes an array of the instance's disks at each start, and puts the directories of containers, pods and logs on it.
fn mount_command(paths: BindPaths) -> Table {
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if paths == BindPaths::Explicit {
        bind.extend(["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]);
    }
    let commands = vec![vec!["apiclient", "ephemeral-storage", "init"], bind];
    Table::from_iter([
        ("commands".to_owned(), commands.into()),
        ("essential".to_owned(), true.into()),
        ("mode".to_owned(), "always".into()),
    ])
}

pub(super) fn read(text: &str) -> Result<NodeSettings, Unreadable> {
    let unreadable = |key: &str| Unreadable::Settings(format!("{key} has an unexpected value"));
    let root: Table =
        toml::from_str(text).map_err(|error| Unreadable::Settings(quoted(error.message())))?;
    let all = root.get("settings").and_then(Value::as_table).ok_or(Unreadable::UnknownForm)?;
    let kubernetes =
        all.get("kubernetes").and_then(Value::as_table).ok_or(Unreadable::UnknownForm)?;
    let text = |key: &str| match kubernetes.get(key) {
        None => Ok(None),
        Some(value) => value.as_str().map(|text| Some(text.to_owned())).ok_or(unreadable(key)),
    };
    let number = |key: &str| match kubernetes.get(key) {
        None => Ok(None),
        Some(value) => {
            let number = value.as_integer().or_else(|| value.as_str()?.parse().ok());
            let number = number.and_then(|number| i32::try_from(number).ok());
            number.map(Some).ok_or(unreadable(key))
        }
    };
    let map = |key: &str| match kubernetes.get(key) {
        None => Ok(None),
        Some(value) => read_texts(value).map(Some).ok_or(unreadable(key)),
    };
    let mut settings = NodeSettings::default();
    let NodeSettings { cluster, kubelet, labels, taints, instance_store_policy } = &mut settings;
    cluster.name = text("cluster-name")?.unwrap_or_default();
    cluster.endpoint = text("api-server")?.unwrap_or_default();
    cluster.ca_bundle = text("cluster-certificate")?;
    kubelet.max_pods = number("max-pods")?;
    kubelet.cluster_dns = text("cluster-dns-ip")?.map(|dns| vec![dns]);
    kubelet.system_reserved = map("system-reserved")?;
    kubelet.kube_reserved = map("kube-reserved")?;
    kubelet.eviction_hard = map("eviction-hard")?;
    kubelet.eviction_soft = map("eviction-soft")?;
    kubelet.eviction_max_pod_grace_period = number("eviction-max-pod-grace-period")?;
    kubelet.image_gc_high_threshold_percent = number("image-gc-high-threshold-percent")?;
    kubelet.image_gc_low_threshold_percent = number("image-gc-low-threshold-percent")?;
    kubelet.cpu_cfs_quota = kubernetes.get("cpu-cfs-quota-enforced").and_then(Value::as_bool);
    if let Some(texts) = map(GRACE_PERIODS)? {
        kubelet_args::read_durations(texts, kubelet).ok_or(unreadable(GRACE_PERIODS))?;
    }
    *labels = map("node-labels")?.unwrap_or_default();
    if let Some(value) = kubernetes.get("node-taints") {
        *taints = read_taints(value).ok_or(unreadable("node-taints"))?;
    }
    let commands = all.get("bootstrap-commands").and_then(Value::as_table);
    *instance_store_policy = commands
        .is_some_and(|commands| commands.contains_key(MOUNT_COMMAND))
        .then_some(InstanceStorePolicy::Raid0);
    Ok(settings)
}

fn read_texts(value: &Value) -> Option<BTreeMap<String, String>> {
    let entry = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    value.as_table()?.iter().map(entry).collect()
}

fn read_taints(value: &Value) -> Option<Vec<Taint>> {
    let mut taints = Vec::new();
    for (key, list) in value.as_table()? {
        for text in list.as_array()? {
            let (value, effect) = text.as_str()?.split_once(':')?;
            taints.push(Taint {
                key: key.clone(),
                value: Some(value.to_owned()).filter(|value| !value.is_empty()),
                effect: effect.to_owned(),
                ..Taint::default()
            });
        }
    }
    Some(taints)
}
