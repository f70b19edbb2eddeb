//! A whole Kubernetes cluster in one process, in real or virtual time.
//!
//! The API server is a `tower` service behind [`kube::Client`]: no socket, no process, no waiting. Everything that
//! chance or time could change comes from one seed and one clock, so that a run can be repeated to the last write.
//!
//! ```
//! use k8s_openapi::api::core::v1::Node;
//! use kerf_testbed::{Fault, Faults, Matching, Testbed};
//! use kube::api::{Api, PostParams};
//!
//! Testbed::in_virtual_time(async {
//!     let testbed = Testbed::builder().seed(7).start().unwrap();
//!     let faults = Faults::seeded(testbed.seed());
//!     faults.on_call(1, Matching::writes().resource("nodes"), Fault::Conflict);
//!     let nodes: Api<Node> = Api::all(testbed.client_with(&faults));
//!     let mut node = Node::default();
//!     node.metadata.name = Some("a".into());
//!     assert!(nodes.create(&PostParams::default(), &node).await.is_err());
//!     assert!(nodes.create(&PostParams::default(), &node).await.is_ok());
//! })
//! .unwrap();
//! ```

pub mod actors;
mod api;
mod cloud;
mod dump;
mod faults;
mod log;
mod observe;
mod random;
mod serve;
mod service;
mod testbed;

pub use api::{
    Api, ApiError, Body, Call, Incoming, KUBERNETES_VERSION, Named, Query, Verb, WatchCut,
};
pub use cloud::{CSI_ZONE, CloudFault, CloudFaults, FaultyCloud, Offered};
pub use faults::{Fault, Faults, Journal, Matching, Times};
pub use log::{Entry, EventLog, Write};
pub use observe::{Observation, Observer};
pub use random::Random;
pub use serve::Served;
pub use service::ApiService;
pub use testbed::{Builder, StartError, Testbed, TimedOut};
