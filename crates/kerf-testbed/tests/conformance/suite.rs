//! One suite of API semantics, run unchanged against the testbed (here) and a real kube-apiserver (in `kerf-e2e`).
//!
//! The testbed is worth something only as long as it does what the real one does; every rule a controller may
//! lean on is a case here.

pub(crate) mod create;
pub(crate) mod custom;
pub(crate) mod delete;
pub(crate) mod harness;
pub(crate) mod patch;
pub(crate) mod read;
pub(crate) mod subresource;
pub(crate) mod update;
pub(crate) mod watch;

use harness::Case;

pub(crate) fn all() -> Vec<Case> {
    [
        create::cases(),
        read::cases(),
        watch::cases(),
        update::cases(),
        patch::cases(),
        delete::cases(),
        subresource::cases(),
        custom::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
