//! The `karpenter.sh` resources as Kubernetes sees them.
//!
//! This crate holds what is written on the wire and the rules about writing it: the types, the CRDs
//! generated from them, the labels and annotations, the status conditions, the drift hash and the
//! checks that the API server cannot make. It decides nothing.
#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the types inside of functions, visibility included"
)]
#![allow(clippy::duplicated_attributes, reason = "printer columns may have the same type")]

pub mod annotations;
pub mod capacity_buffer;
pub mod conditions;
pub mod crd;
pub mod decode;
pub mod duration;
pub mod hash;
pub mod hashstructure;
pub mod labels;
pub mod names;
pub mod node_class;
pub mod node_overlay;
pub mod nodeclaim;
pub mod nodepool;
pub mod objects;
mod reboots;
pub mod requirement;
pub mod schema;
mod setback;
pub mod taints;
pub mod validation;

pub use capacity_buffer::{
    CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus, PodTemplateReference,
    ScalableReference,
};
pub use crd::{CrdFile, WriteCrdError, crd_files, crds_without_provider, crds_yaml};
pub use decode::{Decoded, Unreadable};
pub use duration::{DurationOrNever, GoDuration};
pub use node_class::{NodeClass, NotReady};
pub use node_overlay::{
    InvalidNodeOverlay, NodeOverlay, NodeOverlayProblem, NodeOverlaySpec, NodeOverlayStatus,
};
pub use nodeclaim::{NodeClaim, NodeClaimSpec, NodeClaimStatus, ResourceRequirements};
pub use nodepool::{
    Budget, ConsolidationPolicy, Disruption, DisruptionReason, MAX_SAVINGS_THRESHOLD,
    NodeClaimTemplate, NodeClaimTemplateSpec, NodePool, NodePoolSpec, NodePoolStatus,
    TemplateMetadata,
};
pub use objects::{NodeExt, ObjectExt};
pub use reboots::Reboots;
pub use requirement::{NodeClassReference, NodeSelectorRequirement, Operator, UnknownOperator};
pub use setback::Setback;

/// The API group of NodePools and NodeClaims, and the domain of every label and annotation that
/// Kerf owns.
pub const GROUP: &str = "karpenter.sh";

/// Finalizer on NodeClaims (until the instance is gone) and on Nodes (until they are drained).
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
