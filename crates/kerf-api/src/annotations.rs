//! Annotations that Kerf reads or writes.

/// On Pods and Nodes: do not disrupt voluntarily. On Pods also a duration, counted from the start
/// of the pod.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// On Nodes, and on NodeClaims until their Node is registered: `true` forbids every repair of the node.
pub const DO_NOT_REPAIR: &str = "karpenter.sh/do-not-repair";

/// On NodeClaims: the boot ID of the node before the cloud was asked to restart the machine. There while a reboot is under way.
pub const REBOOT_PRE_BOOT_ID: &str = "karpenter.sh/reboot-pre-boot-id";
/// On NodeClaims: how long pods may take to leave before a reboot (a Go duration; `0s` for no drain).
pub const REBOOT_TERMINATION_GRACE_PERIOD: &str = "karpenter.sh/reboot-termination-grace-period";

/// On NodePools and NodeClaims: the drift hash of the pool's template, see [`crate::hash`].
pub const NODE_POOL_HASH: &str = "karpenter.sh/nodepool-hash";
pub const NODE_POOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";

/// On NodeClaims: when the drain is given up and the instance terminated all the same (RFC 3339).
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";

/// On NodeClaims: whether a `minValues` had to be disregarded to launch it.
pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";

/// On NodeClaims: `true` if a NodeOverlay changed the price of an instance type that the claim may become, or the capacity.
pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";

/// On Pods: how much more or less than others it costs to move this one. Stands in for [`POD_DELETION_COST`], which says what a
/// ReplicaSet removes first and may have other reasons.
pub const DISRUPTION_COST: &str = "karpenter.sh/disruption-cost";

/// On Pods: how much a ReplicaSet would rather keep this one (Kubernetes' own).
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// On Pods: the [`POD_DELETION_COST`] that Kerf has written (Kerf's own). While both say the same, that cost is Kerf's and no user's.
pub const DELETION_COST_MANAGED: &str = "karpenter.sh/deletion-cost-managed";

/// On NodeClaims: which claims this one replaces, and under which command (JSON; Kerf's own). Written with the claim and
/// removed when the command is given up, so that an operator that takes over can finish it or knows that it cannot.
pub const REPLACES: &str = "karpenter.sh/nodeclaim-replaces";

/// On NodeClaims: how often replacing it came to nothing, and when it is tried again (JSON; Kerf's own). See
/// [`crate::Setback`].
pub const SETBACK: &str = "karpenter.sh/nodeclaim-setback";

/// On NodeClaims: when its node was rebooted (JSON; Kerf's own). See [`crate::Reboots`].
pub const REBOOTS: &str = "karpenter.sh/nodeclaim-reboots";
