//! The vocabulary of AWS in Kubernetes: EC2NodeClass, its CRD, its hash and the labels of the domain `karpenter.k8s.aws`.
//!
//! The class is the one that Karpenter's AWS provider 1.14.1 has; what it accepts is accepted here. Nothing is decided here.
#![allow(clippy::duplicated_attributes, reason = "printer columns may have the same type")]

pub mod annotations;
pub mod conditions;
mod crd;
pub mod hash;
mod kubelet_validation;
pub mod labels;
mod node_class;
pub mod resources;
mod rules;
mod schema;
pub mod tags;

pub use crd::additions;
pub use kubelet_validation::InvalidKubelet;
pub use node_class::{
    Ec2NodeClass, Ec2NodeClassSpec,
    ami_family::{Alias, AliasVersion, AmiFamily, ParseAliasError},
    block_devices::{
        BlockDevice, BlockDeviceMapping, ParseVolumeSizeError, VolumeSize, VolumeType,
    },
    kubelet::KubeletConfiguration,
    networking::{ConnectionTracking, InterfaceType, NetworkInterface},
    options::{CpuOptions, HttpTokens, InstanceStorePolicy, MetadataOptions, Switch},
    selectors::{
        AmiSelectorTerm, CapacityReservationSelectorTerm, InstanceMatchCriteria,
        PlacementGroupSelector, SecurityGroupSelectorTerm, SubnetSelectorTerm, TagSelector,
    },
    status::{
        Ami, CapacityReservation, CapacityReservationState, CapacityReservationType,
        Ec2NodeClassStatus, SecurityGroup, Subnet,
    },
};

/// The API group of EC2NodeClasses, and the domain of the labels, annotations and finalizers of AWS.
pub const GROUP: &str = "karpenter.k8s.aws";
pub const VERSION: &str = "v1";
pub const KIND: &str = "EC2NodeClass";
pub const PLURAL: &str = "ec2nodeclasses";

/// Finalizer on EC2NodeClasses, until what was made for them in the account is gone.
pub const TERMINATION_FINALIZER: &str = "karpenter.k8s.aws/termination";
