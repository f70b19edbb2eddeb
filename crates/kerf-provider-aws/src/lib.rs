//! The AWS provider: EC2 instances for NodeClaims, and the controllers of their NodeClasses.
//!
//! | file | holds |
//! |---|---|
//! | `provider`, `options`, `offline` | what is known of it before it is connected: kinds, CRDs, flags, types without an account |
//! | `cloud` | the provider at work, as the operator asks it |
//! | `launch`, `templates` | how an instance comes about |
//! | `instances`, `batch` | reading and terminating instances, many with one call |
//! | `offers` | what can be launched now, and at what price |
//! | `errors` | what AWS's errors mean to the operator |

mod batch;
mod cloud;
mod controllers;
mod errors;
mod instances;
mod launch;
mod offers;
mod offline;
mod options;
mod provider;
mod templates;

pub use cloud::{AwsCloud, Parts};
pub use options::Options;
pub use provider::Aws;
