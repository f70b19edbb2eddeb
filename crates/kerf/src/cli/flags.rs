//! Every flag of `kerf run`, with its environment variable and default; those of a provider stand with it.
//!
//! The names are those of Karpenter, so that a deployment made for it starts. The four consolidation
//! controls, `--log-format`, the addresses, `--dashboard-port` and `--disable-pod-metrics` are Kerf's own. docs/configuration.md is
//! generated from them.

use kerf_controllers::settings::FeatureGates;
use kerf_provider::Flag;

use crate::providers;

const BOOL: Flag = Flag::BOOL;
const NUMBER: Flag = Flag::NUMBER;
const TEXT: Flag = Flag::TEXT;
const PORT: Flag = Flag {
    value: "PORT",
    expected: "a port number from 0 to 65535, where 0 takes any free port",
    ..NUMBER
};
const ADDRESS: Flag = Flag {
    value: "ADDRESS",
    expected: "an IP address such as 127.0.0.1 or ::1, or nothing for all addresses",
    ..TEXT
};
const DURATION: Flag = Flag {
    value: "DURATION",
    expected: "a duration of 0 or more, such as 500ms, 10s or 1m30s",
    ..NUMBER
};
const FRACTION: Flag = Flag { expected: "a number from 0 to 1", ..NUMBER };

pub(crate) const METRICS_PORT: Flag = Flag {
    name: "metrics-port",
    env: "METRICS_PORT",
    default: "8080",
    heading: "Endpoints",
    help: "Port of /metrics",
    ..PORT
};
pub(crate) const METRICS_ADDRESS: Flag = Flag {
    name: "metrics-address",
    env: "METRICS_ADDRESS",
    heading: "Endpoints",
    help: "IP address on which /metrics is served; empty for all",
    ..ADDRESS
};
pub(crate) const HEALTH_PROBE_PORT: Flag = Flag {
    name: "health-probe-port",
    env: "HEALTH_PROBE_PORT",
    default: "8081",
    heading: "Endpoints",
    help: "Port of /healthz and /readyz",
    ..PORT
};

pub(crate) const HEALTH_ADDRESS: Flag = Flag {
    name: "health-address",
    env: "HEALTH_ADDRESS",
    heading: "Endpoints",
    help: "IP address on which /healthz and /readyz are served; empty for all",
    ..ADDRESS
};

pub(crate) const DASHBOARD_PORT: Flag = Flag {
    name: "dashboard-port",
    env: "DASHBOARD_PORT",
    default: "0",
    heading: "Endpoints",
    help: "Port of a read-only page with nodes, prices, decisions and refusals; 0 for no page",
    expected: "a port number from 1 to 65535, or 0 for no page",
    ..PORT
};
pub(crate) const DASHBOARD_ADDRESS: Flag = Flag {
    name: "dashboard-address",
    env: "DASHBOARD_ADDRESS",
    default: "127.0.0.1",
    heading: "Endpoints",
    help: "IP address on which the page is served; 0.0.0.0 for all. The page has no login",
    expected: "an IP address such as 127.0.0.1, ::1 or 0.0.0.0",
    ..ADDRESS
};

pub(crate) const KUBE_CLIENT_QPS: Flag = Flag {
    name: "kube-client-qps",
    env: "KUBE_CLIENT_QPS",
    default: "200",
    heading: "API server",
    help: "Requests per second to the API server in the long run; -1 for no limit",
    expected: "a number from 1 to 4294967295, or -1 for no limit",
    ..NUMBER
};
pub(crate) const KUBE_CLIENT_BURST: Flag = Flag {
    name: "kube-client-burst",
    env: "KUBE_CLIENT_BURST",
    default: "300",
    heading: "API server",
    help: "Requests that may be sent at once after a pause",
    expected: "a number from 1 to 4294967295",
    ..NUMBER
};

pub(crate) const DISABLE_LEADER_ELECTION: Flag = Flag {
    name: "disable-leader-election",
    env: "DISABLE_LEADER_ELECTION",
    heading: "Leader election",
    help: "Lead without a Lease; only where no second operator runs",
    ..BOOL
};
pub(crate) const LEADER_ELECTION_NAME: Flag = Flag {
    name: "leader-election-name",
    env: "LEADER_ELECTION_NAME",
    default: "karpenter-leader-election",
    value: "NAME",
    heading: "Leader election",
    help: "Name of the Lease",
    expected: "the name of a Lease, not empty",
    ..TEXT
};
pub(crate) const LEADER_ELECTION_NAMESPACE: Flag = Flag {
    name: "leader-election-namespace",
    env: "LEADER_ELECTION_NAMESPACE",
    value: "NAMESPACE",
    heading: "Leader election",
    help: "Namespace of the Lease; empty for the namespace of the pod, or outside of a cluster for that of the \
           kubeconfig's context",
    ..TEXT
};

pub(crate) const LOG_LEVEL: Flag = Flag {
    name: "log-level",
    env: "LOG_LEVEL",
    default: "info",
    value: "LEVEL",
    heading: "Logging",
    help: "How much to log: debug, info or error",
    expected: "debug, info or error",
    ..TEXT
};
pub(crate) const LOG_FORMAT: Flag = Flag {
    name: "log-format",
    env: "LOG_FORMAT",
    default: "auto",
    value: "FORMAT",
    heading: "Logging",
    help: "json, text, or auto: text on a terminal and JSON elsewhere",
    expected: "auto, json or text",
    ..TEXT
};
pub(crate) const LOG_OUTPUT_PATHS: Flag = Flag {
    name: "log-output-paths",
    env: "LOG_OUTPUT_PATHS",
    default: "stdout",
    value: "PATHS",
    heading: "Logging",
    help: "Where to log to: stdout, stderr and files, separated by commas",
    expected: "stdout, stderr or file paths, separated by commas",
    ..TEXT
};

pub(crate) const BATCH_MAX_DURATION: Flag = Flag {
    name: "batch-max-duration",
    env: "BATCH_MAX_DURATION",
    default: "10s",
    heading: "Scheduling",
    help: "Longest time to collect pending pods before scheduling them",
    ..DURATION
};
pub(crate) const BATCH_IDLE_DURATION: Flag = Flag {
    name: "batch-idle-duration",
    env: "BATCH_IDLE_DURATION",
    default: "1s",
    heading: "Scheduling",
    help: "Time without new pending pods after which scheduling begins",
    ..DURATION
};
pub(crate) const OWNER_AWARE_BATCHING: Flag = Flag {
    name: "owner-aware-batching",
    env: "OWNER_AWARE_BATCHING",
    heading: "Scheduling",
    help: "Schedule at once when ReplicaSets, StatefulSets and Jobs have created all their pods, and wait while they have not",
    ..BOOL
};
pub(crate) const PREFERENCE_POLICY: Flag = Flag {
    name: "preference-policy",
    env: "PREFERENCE_POLICY",
    default: "Respect",
    value: "POLICY",
    heading: "Scheduling",
    help: "Respect or Ignore preferred affinities and spread constraints",
    expected: "Respect or Ignore",
    ..TEXT
};
pub(crate) const PACKING: Flag = Flag {
    name: "packing",
    env: "PACKING",
    heading: "Scheduling",
    help: "Look for cheaper machines for pending pods than Karpenter's way of placing them finds",
    ..BOOL
};
pub(crate) const MIN_VALUES_POLICY: Flag = Flag {
    name: "min-values-policy",
    env: "MIN_VALUES_POLICY",
    default: "Strict",
    value: "POLICY",
    heading: "Scheduling",
    help: "Strict, or BestEffort to launch even when fewer instance types are left than minValues asks for",
    expected: "Strict or BestEffort",
    ..TEXT
};
pub(crate) const SCHEDULER_CONFIG: Flag = Flag {
    name: "scheduler-config",
    env: "SCHEDULER_CONFIG",
    value: "YAML",
    heading: "Scheduling",
    help: "Spread constraints for pods that have none: podTopologySpread.defaultConstraints, in YAML or JSON",
    ..TEXT
};
pub(crate) const CPU_REQUESTS: Flag = Flag {
    name: "cpu-requests",
    env: "CPU_REQUESTS",
    default: "1000",
    value: "MILLICORES",
    heading: "Scheduling",
    help: "CPU of the operator; with more CPU, controllers reconcile more objects at once",
    expected: "a whole number of millicores, where 0 or less means 1000",
    ..NUMBER
};
pub(crate) const FEATURE_GATES: Flag = Flag {
    name: "feature-gates",
    env: "FEATURE_GATES",
    default: FeatureGates::DEFAULTS,
    value: "GATES",
    heading: "Scheduling",
    help: "Features to switch on or off; features that are not named keep their defaults",
    ..TEXT
};
pub(crate) const PROVIDER: Flag = Flag {
    name: "provider",
    env: "CLOUD_PROVIDER",
    default: providers::DEFAULT,
    value: "NAME",
    heading: "Provider",
    help: "The cloud that launches nodes",
    ..TEXT
};

pub(crate) const UTILIZATION_THRESHOLD: Flag = Flag {
    name: "scaledown-utilization-threshold",
    env: "SCALE_DOWN_UTILIZATION_THRESHOLD",
    default: "0.75",
    heading: "Consolidation (defaults for NodePools without the field)",
    help: "Do not consolidate nodes with a higher utilization than this; 1 is off",
    ..FRACTION
};
pub(crate) const PRICE_IMPROVEMENT_FACTOR: Flag = Flag {
    name: "consolidation-price-improvement-factor",
    env: "CONSOLIDATION_PRICE_IMPROVEMENT_FACTOR",
    default: "1.0",
    heading: "Consolidation (defaults for NodePools without the field)",
    help: "A replacement has to cost less than this share of the price of the nodes that it replaces; 1 allows any \
           cheaper node, 0 allows none",
    ..FRACTION
};
pub(crate) const SAVINGS_THRESHOLD: Flag = Flag {
    name: "consolidation-savings-threshold",
    env: "CONSOLIDATION_SAVINGS_THRESHOLD",
    default: "0.01",
    heading: "Consolidation (defaults for NodePools without the field)",
    help: "Dollars per hour that a consolidation has to save for each unit of disruption cost (about one pod); 0 is off",
    expected: "a number of dollars from 0 to 100000",
    ..NUMBER
};
pub(crate) const GRACE_PERIOD: Flag = Flag {
    name: "consolidation-grace-period",
    env: "CONSOLIDATION_GRACE_PERIOD",
    default: "Never",
    value: "DURATION",
    heading: "Consolidation (defaults for NodePools without the field)",
    help: "For this time after a pod came or went, do not consolidate a node; Never or 0s is off",
    expected: "a duration such as 30m or 1h30m, or Never to switch it off",
    ..NUMBER
};
pub(crate) const MANY_TO_MANY: Flag = Flag {
    name: "many-to-many-consolidation",
    env: "MANY_TO_MANY_CONSOLIDATION",
    heading: "Consolidation (all NodePools)",
    help: "Consolidation also replaces nodes by several others that cost less together",
    ..BOOL
};

pub(crate) const DISABLE_CLUSTER_STATE_OBSERVABILITY: Flag = Flag {
    name: "disable-cluster-state-observability",
    env: "DISABLE_CLUSTER_STATE_OBSERVABILITY",
    heading: "Observability",
    help: "Leave out the metrics per pod, node and pool",
    ..BOOL
};

pub(crate) const DISABLE_POD_METRICS: Flag = Flag {
    name: "disable-pod-metrics",
    env: "DISABLE_POD_METRICS",
    heading: "Observability",
    help: "Leave out the gauges of single pods; they are most of /metrics in a large cluster",
    ..BOOL
};

pub(crate) const ENABLE_PROFILING: Flag = Flag {
    name: "enable-profiling",
    env: "ENABLE_PROFILING",
    heading: "Accepted for compatibility with Karpenter, without effect",
    help: "Kerf has no profiling endpoints",
    ..BOOL
};
pub(crate) const DISABLE_CONTROLLER_WARMUP: Flag = Flag {
    name: "disable-controller-warmup",
    env: "DISABLE_CONTROLLER_WARMUP",
    default: "true",
    heading: "Accepted for compatibility with Karpenter, without effect",
    help: "Kerf always watches the cluster while it waits for the lease",
    ..BOOL
};
pub(crate) const IGNORE_DRA_REQUESTS: Flag = Flag {
    name: "ignore-dra-requests",
    env: "IGNORE_DRA_REQUESTS",
    default: "true",
    heading: "Accepted for compatibility with Karpenter, without effect",
    help: "Kerf does not have dynamic resource allocation yet",
    ..BOOL
};
pub(crate) const LEGACY_NODE_REPAIR: Flag = Flag {
    name: "legacy-node-repair",
    env: "LEGACY_NODE_REPAIR",
    default: "false",
    heading: "Node repair (feature gate NodeRepair)",
    help: "Repair nodes as Karpenter did before 1.15: by force, without budgets and without a replacement first",
    ..BOOL
};
pub(crate) const NODE_REPAIR_UNHEALTHY_PERCENT: Flag = Flag {
    name: "node-repair-unhealthy-percent",
    env: "NODE_REPAIR_UNHEALTHY_PERCENT",
    default: "20",
    value: "PERCENT",
    heading: "Node repair (feature gate NodeRepair)",
    help: "Where more of a NodePool's nodes are unhealthy, none of them is repaired",
    expected: "a whole number from 0 to 100",
    ..NUMBER
};
pub(crate) const MEMORY_LIMIT: Flag = Flag {
    name: "memory-limit",
    env: "MEMORY_LIMIT",
    default: "-1",
    value: "BYTES",
    heading: "Accepted for compatibility with Karpenter, without effect",
    help: "Kerf has no garbage collector that needs a limit",
    expected: "a whole number of bytes",
    ..NUMBER
};
pub(crate) const LOG_ERROR_OUTPUT_PATHS: Flag = Flag {
    name: "log-error-output-paths",
    env: "LOG_ERROR_OUTPUT_PATHS",
    default: "stderr",
    value: "PATHS",
    heading: "Accepted for compatibility with Karpenter, without effect",
    help: "The logger's own errors go to stderr",
    ..TEXT
};
pub(crate) const KARPENTER_SERVICE: Flag = Flag {
    name: "karpenter-service",
    env: "KARPENTER_SERVICE",
    value: "NAME",
    heading: "Accepted for compatibility with Karpenter, without effect",
    help: "Name of the operator's Service",
    ..TEXT
};

/// All of them, those of the providers included.
pub(crate) fn all() -> impl Iterator<Item = &'static Flag> {
    own().chain(providers::flags())
}

/// Those that are no provider's.
pub(crate) fn own() -> impl Iterator<Item = &'static Flag> {
    OWN.into_iter()
}

static OWN: [&Flag; 39] = [
    &METRICS_PORT,
    &METRICS_ADDRESS,
    &HEALTH_PROBE_PORT,
    &HEALTH_ADDRESS,
    &DASHBOARD_PORT,
    &DASHBOARD_ADDRESS,
    &KUBE_CLIENT_QPS,
    &KUBE_CLIENT_BURST,
    &DISABLE_LEADER_ELECTION,
    &LEADER_ELECTION_NAME,
    &LEADER_ELECTION_NAMESPACE,
    &LOG_LEVEL,
    &LOG_FORMAT,
    &LOG_OUTPUT_PATHS,
    &BATCH_MAX_DURATION,
    &BATCH_IDLE_DURATION,
    &OWNER_AWARE_BATCHING,
    &PREFERENCE_POLICY,
    &MIN_VALUES_POLICY,
    &PACKING,
    &SCHEDULER_CONFIG,
    &CPU_REQUESTS,
    &FEATURE_GATES,
    &PROVIDER,
    &UTILIZATION_THRESHOLD,
    &PRICE_IMPROVEMENT_FACTOR,
    &SAVINGS_THRESHOLD,
    &GRACE_PERIOD,
    &MANY_TO_MANY,
    &LEGACY_NODE_REPAIR,
    &NODE_REPAIR_UNHEALTHY_PERCENT,
    &DISABLE_CLUSTER_STATE_OBSERVABILITY,
    &DISABLE_POD_METRICS,
    &ENABLE_PROFILING,
    &DISABLE_CONTROLLER_WARMUP,
    &IGNORE_DRA_REQUESTS,
    &MEMORY_LIMIT,
    &LOG_ERROR_OUTPUT_PATHS,
    &KARPENTER_SERVICE,
];
