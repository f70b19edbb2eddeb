//! The rights in Kubernetes that the operator needs, whatever its provider.
//!
//! `cargo xtask generate` writes them into the chart. The stories on a real control plane run with them, and
//! `kerf-e2e/tests/rights.rs` compares them with what the API server's audit log says was asked for.

use kerf_provider::rbac::{Rule, Scope};

/// The name of the Lease unless a flag says otherwise.
pub const LEASE: &str = "karpenter-leader-election";

const CORE: &str = "";
const KARPENTER: &str = "karpenter.sh";
const AUTOSCALING: &str = "autoscaling.x-k8s.io";

pub static OPERATOR: [Rule; 18] = [
    Rule::new(KARPENTER, &["nodepools", "nodeclaims"], &["list", "watch", "patch"]),
    Rule::new(KARPENTER, &["nodepools/status", "nodeclaims/status"], &["patch"]),
    Rule::new(KARPENTER, &["nodeclaims"], &["create", "delete"]),
    Rule::new(CORE, &["nodes"], &["list", "watch", "patch", "delete"]),
    Rule::new(CORE, &["pods"], &["list", "watch", "delete"]),
    Rule::new(CORE, &["pods/eviction"], &["create"]),
    // With the feature gate PodDeletionCostManagement, and without it to take back what was written.
    Rule::new(CORE, &["pods"], &["patch"]),
    Rule::new(CORE, &["events"], &["create", "patch"]),
    Rule::new(
        CORE,
        &["namespaces", "persistentvolumes", "persistentvolumeclaims"],
        &["list", "watch"],
    ),
    Rule::new("apps", &["daemonsets"], &["list", "watch"]),
    Rule::new("policy", &["poddisruptionbudgets"], &["list", "watch"]),
    Rule::new(
        "storage.k8s.io",
        &["storageclasses", "csinodes", "volumeattachments"],
        &["list", "watch"],
    ),
    // With the feature gate NodeOverlay.
    Rule::new(KARPENTER, &["nodeoverlays"], &["list", "watch"]),
    Rule::new(KARPENTER, &["nodeoverlays/status"], &["patch"]),
    Rule::new(KARPENTER, &["nodeoverlays"], &["get"])
        .rarely("a new list does not have what was just written, or the definition was deleted"),
    Rule::new(KARPENTER, &["nodepools", "nodeclaims"], &["get"])
        .rarely("a write was refused or not answered, or a new list does not have what was just written"),
    Rule::new(CORE, &["nodes"], &["get"])
        .rarely("a write was refused, or a new list does not have what was just written"),
    // Whoever makes an object wait for the end of another needs the right to its finalizers.
    Rule::new(KARPENTER, &["nodepools/finalizers", "nodeclaims/finalizers"], &["update"])
        .rarely("only API servers with the admission plugin OwnerReferencesPermissionEnforcement ask for it, and they ask themselves"),
];

/// What pods belong to: read only with `--scheduler-config`.
pub static DEFAULT_SPREAD: [Rule; 2] = [
    Rule::new(CORE, &["services", "replicationcontrollers"], &["list", "watch"]),
    Rule::new("apps", &["replicasets", "statefulsets"], &["list", "watch"]),
];

/// Buffers, and what they refer to: read only with the feature gate `CapacityBuffer`.
pub static BUFFERS: [Rule; 4] = [
    Rule::new(AUTOSCALING, &["capacitybuffers"], &["list", "watch"]),
    Rule::new(AUTOSCALING, &["capacitybuffers/status"], &["patch"]),
    Rule::new(CORE, &["podtemplates"], &["list", "watch"]),
    Rule::new("apps", &["deployments", "replicasets", "statefulsets"], &["list", "watch"]),
];

/// What creates pods: read only with `--owner-aware-batching`. Without these rights batches are closed as without the flag.
pub static OWNERS: [Rule; 2] = [
    Rule::new("apps", &["replicasets", "statefulsets"], &["list", "watch"]),
    Rule::new("batch", &["jobs"], &["list", "watch"]),
];

/// One lease. The right to create cannot be bound to a name.
pub static ELECTION: [Rule; 2] = [
    Rule::new("coordination.k8s.io", &["leases"], &["create"]).within(Scope::Own),
    Rule::new("coordination.k8s.io", &["leases"], &["get", "watch", "update"])
        .only(&[LEASE])
        .within(Scope::Own),
];
