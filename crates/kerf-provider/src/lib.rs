//! The contract with a cloud.
//!
//! | file | holds |
//! |---|---|
//! | `contract` | what the operator asks of a cloud that it is connected to |
//! | `error` | the ways in which a cloud may fail |
//! | `controllers` | controllers of a provider's own, on the operator's index, clock, recorder and metrics |
//! | `provider` | what is known of a provider before it is connected: its kinds, CRDs, flags, rights and catalogue |
//! | `rbac` | rights in Kubernetes as data |

mod contract;
mod controllers;
mod error;
mod provider;
pub mod rbac;

pub use contract::{
    CloudProvider, InstanceTypes, Launched, NodeClassKind, ProviderFacts, Registration,
};
pub use controllers::{BoxError, ControllerContext, Reconciler, Registry, Task};
pub use error::{ProviderError, UnavailableOffering};
pub use provider::{
    Catalogue, CloudDrift, Connect, Flag, FlagKind, FlagValues, ForeseenDrift, InvalidFlag,
    Launchable, Provider, UnknownTypes,
};
