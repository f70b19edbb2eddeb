//! A real Kubernetes control plane on loopback, for tests and for trying Kerf.
//!
//! etcd, kube-apiserver, kube-scheduler and kube-controller-manager, with kwok in the place of the
//! kubelets: pods are validated, admitted, scheduled, started and evicted by the same code as in a
//! production cluster; only containers do not run.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::Node;
//! use kerf_control_plane::ControlPlane;
//! use kube::{Api, api::ListParams};
//!
//! let cluster = ControlPlane::start().await?; // a few seconds; empty
//! let nodes = Api::<Node>::all(cluster.client()).list(&ListParams::default()).await?;
//! assert!(nodes.items.is_empty());
//!
//! let manifest = "{apiVersion: v1, kind: Namespace, metadata: {name: sawmill}}";
//! cluster.kubectl_with_input(&["apply", "-f", "-"], manifest).await?;
//! # Ok(())
//! # } // stopped here, and also if the process is killed
//! ```
//!
//! * A node that is annotated `kwok.x-k8s.io/node=fake` becomes Ready and runs the pods bound to it
//!   (`kwok/stages.yaml` says how). Other nodes are left alone.
//! * [`ControlPlane::start`] takes ready-made programs ([`Binaries::find`]). To have them,
//!   run `cargo xtask control-plane build` once.
//! * Several clusters can run at the same time, in one process or in many: each has its own directory,
//!   its own certificates and its own ports. One costs about half a gigabyte of memory.
//! * [`Profile::ApiOnly`] is enough to test what the API server alone decides (schemas, CEL rules,
//!   defaults, `kubectl explain`), and is ready sooner.
//! * [`Profile::audited`] has the API server write down who changed what and when
//!   ([`ControlPlane::audit_log`]); with a user for each program ([`ControlPlane::kubeconfig_of`]) they can be told apart.
//! * Rights are checked as in production (RBAC). [`ControlPlane::client_of`] gives a client with those of a group.
//! * [`Helm`] is built in the same way and kept in the same cache.
//! * [`ControlPlane::kill`] and [`ControlPlane::start_again`] let a component fail and come back.
//! * [`ControlPlane::back_up`] and [`ControlPlane::restore`] let the history of a cluster go back.
//! * A [`kube::Client`] belongs to the runtime in which it was made, and every `#[tokio::test]` has its
//!   own. So share the [`ControlPlane`] between tests, and call [`ControlPlane::client`] in each.
//! * kube-controller-manager moves pods off a node that was deleted under them only after 40 to 60 s;
//!   that is Kubernetes, not this harness. Drain first.

mod backup;
mod binaries;
mod cache;
mod cluster;
mod components;
pub mod detached;
mod go;
mod guard;
mod helm;
mod pki;
mod ports;
mod program;
mod wait;

pub use backup::Backup;
pub use binaries::{Binaries, BinariesError, Refusals, Source};
pub use cluster::{ControlPlane, StartError};
pub use components::{Options, Profile};
pub use go::GoError;
pub use helm::Helm;
pub use pki::{ADMINS, PkiError};
pub use ports::PortError;
pub use program::Program;
pub use wait::{SLOWNESS, patient};
