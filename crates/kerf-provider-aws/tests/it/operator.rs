//! The operator with this provider: nodes come up from the user data of their instances.

mod instances;
mod interruption;
mod karpenter;
mod memory;
mod policy;
mod reservations;
mod world;
