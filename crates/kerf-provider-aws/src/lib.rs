//! The AWS provider: EC2 instances for NodeClaims, and the controllers of their NodeClasses.

mod offline;
mod options;
mod provider;

pub use options::Options;
pub use provider::Aws;
