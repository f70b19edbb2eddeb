//! A stand-in for AWS with its rules: capacity that runs dry, quotas, throttling, eventual consistency, spot warnings.
//!
//! [`FakeAws`] is an account with a cluster in it. It implements [`kerf_aws_client::Aws`], needs no socket, and follows the clock
//! that it is given, so that a day passes in a moment and the same seed gives the same day. Nothing runs in the background: what is
//! due happens before the next call looks. [`Server`] puts it behind HTTP on loopback, and [`Kubelets`] makes Nodes of its instances.

mod chance;
mod cloud;
mod cluster;
mod fake;
mod faults;
mod filters;
mod fleet;
mod images;
mod instance_types;
mod instances;
mod kubelet;
mod network;
mod paging;
mod pools;
mod prepared;
mod prices;
mod profiles;
mod queue;
mod refused;
mod requests;
mod reservations;
mod rights;
mod server;
mod settings;
mod templates;

pub use fake::{FakeAws, Gate};
pub use faults::{Fault, FaultRates};
pub use images::Release;
pub use instances::{Impairment, Life};
pub use kubelet::{BOOT, KubeletSettings, Kubelets};
pub use pools::{Depth, Market, PoolSelector};
pub use refused::Refused;
pub use requests::Count;
pub use reservations::{PlacementGroup, Reservation, ReservationKind, Strategy};
pub use server::Server;
pub use settings::{Delays, Quotas, Settings};
