//! Settings of the kubelet.

use std::collections::BTreeMap;

use kerf_api::GoDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The settings of the kubelet that a class can make. They are called as in the kubelet's own configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfiguration {
    /// Addresses of the cluster's DNS servers. Some image families take only the first.
    #[serde(rename = "clusterDNS", skip_serializing_if = "Option::is_none")]
    pub cluster_dns: Option<Vec<String>>,

    /// Most pods that a node can run. If left out, it follows from the network interfaces of the instance type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_pods: Option<i32>,

    /// Most pods per core. The lower of this and maxPods holds; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub pods_per_core: Option<i32>,

    /// What is kept for the operating system: cpu, memory, ephemeral-storage and pid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reserved")]
    pub system_reserved: Option<BTreeMap<String, String>>,

    /// What is kept for Kubernetes on the node: cpu, memory, ephemeral-storage and pid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reserved")]
    pub kube_reserved: Option<BTreeMap<String, String>>,

    /// Amounts by signal, such as memory.available, below which pods are evicted at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::thresholds")]
    pub eviction_hard: Option<BTreeMap<String, String>>,

    /// Amounts by signal below which pods are evicted after the grace period of the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::thresholds")]
    pub eviction_soft: Option<BTreeMap<String, String>>,

    /// Grace periods by signal, for evictionSoft.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, String>>")]
    pub eviction_soft_grace_period: Option<BTreeMap<String, GoDuration>>,

    /// Longest grace period, in seconds, of pods that are evicted by evictionSoft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_max_pod_grace_period: Option<i32>,

    /// Use of the disk in percent from which images are removed.
    #[serde(rename = "imageGCHighThresholdPercent", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub image_gc_high_threshold_percent: Option<i32>,

    /// Use of the disk in percent down to which images are removed.
    #[serde(rename = "imageGCLowThresholdPercent", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub image_gc_low_threshold_percent: Option<i32>,

    /// Whether the CPU limits of containers are enforced.
    #[serde(rename = "cpuCFSQuota", skip_serializing_if = "Option::is_none")]
    pub cpu_cfs_quota: Option<bool>,
}
