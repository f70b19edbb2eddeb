//! One suite of what a cluster does with pods, nodes and workloads, run unchanged against the testbed's actors (here)
//! and against kube-scheduler and kube-controller-manager (in `kerf-e2e`).

pub(crate) mod harness;
#[path = "../common/objects.rs"]
pub(crate) mod objects;
pub(crate) mod preemption;
pub(crate) mod scheduling;
pub(crate) mod sets;
pub(crate) mod upkeep;
pub(crate) mod workloads;

use harness::Cluster;
use kube::Client;

/// Plays every case, one after the other, and panics in the end if any failed.
pub(crate) async fn run(client: Client) {
    let mut cluster = Cluster::new(client);
    scheduling::play(&mut cluster).await;
    for cases in [preemption::cases(), workloads::cases(), sets::cases(), upkeep::cases()] {
        for (name, case) in cases {
            cluster.play(name, case).await;
        }
    }
    cluster.conclude();
}
