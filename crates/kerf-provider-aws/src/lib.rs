//! The AWS provider: EC2 instances for NodeClaims, and the controllers of their NodeClasses.
//!
//! | file | holds |
//! |---|---|
//! | `provider`, `options`, `offline` | what is known of it before it is connected: kinds, CRDs, flags, types without an account |
//! | `connection`, `start`, `cluster` | what the operator asks, and what has to be found out before it can |
//! | `cloud`, `drift` | the provider at work |
//! | `launch`, `templates` | how an instance comes about |
//! | `instances`, `batch` | reading and terminating instances, many with one call |
//! | `offers`, `market`, `account` | what can be launched now and at what price, and how EC2 is asked for it |
//! | `errors`, `metrics` | what AWS's errors mean to the operator, and what is counted |

mod account;
mod batch;
mod cloud;
mod cluster;
mod connection;
mod controllers;
mod drift;
mod errors;
mod instances;
mod launch;
mod market;
mod metrics;
mod offers;
mod offline;
mod options;
mod provider;
mod start;
mod templates;

pub use kerf_aws_client::partition_of;
pub use kerf_aws_model::permissions::Installation;

pub use account::{NoCatalogue, catalogue_of_account};
pub use cloud::{AwsCloud, Parts};
pub use connection::Connection;
pub use options::Options;
pub use provider::Aws;
pub use start::Start;
