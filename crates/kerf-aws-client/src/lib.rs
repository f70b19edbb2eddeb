//! The calls of AWS that Kerf makes.
//!
//! [`Aws`] has one method per call. [`AwsClient`] makes them over HTTPS: credentials, regions and signatures are AWS's own code,
//! the messages are those of `kerf-aws-wire`. Retries, pacing and endpoints are rules of our own, and pure. Whoever stands in for AWS
//! implements the trait; [`serve`] puts such a stand-in behind HTTP.

mod calls;
mod client;
mod config;
mod credentials;
mod endpoints;
mod error;
mod metrics;
mod pacing;
mod pages;
mod retry;
mod serve;
mod signing;
mod skew;

pub use calls::Aws;
pub use client::AwsClient;
pub use config::{Config, ConfigError};
pub use endpoints::{Endpoints, partition_of};
pub use error::{AwsError, Failure};
pub use pacing::bucket;
pub use pages::{Paged, all_pages};
pub use serve::serve;
