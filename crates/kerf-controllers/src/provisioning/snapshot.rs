//! What the next plan is made from.

use std::sync::Arc;

use kerf_api::NodePool;
use kerf_cluster::{snapshot, view};
use kerf_model::{KnownLabels, MAX_INSTANCE_TYPES, Pool, Snapshot};
use kerf_scheduler::{Options, ReservedMode};
use kube::ResourceExt;
use tracing::{error, info};

use crate::{context::Context, error::Result, settings::Settings};

/// The cluster as it stands, or nothing if no pod needs a place.
pub(super) async fn take(context: &Context) -> Result<Option<Snapshot>> {
    let known = context.known_labels();
    let pools = usable_pools(context, &known).await;
    let taken = context.index.read().snapshot(pools, known, context.now())?;
    for error in taken.left_out {
        error!(controller = "provisioner", %error, "pod is left out");
    }
    Ok(Some(taken.snapshot).filter(|snapshot| !snapshot.pods.is_empty()))
}

impl Settings {
    /// How pods are placed under these settings.
    pub fn scheduling(&self) -> Options {
        Options {
            preferences: self.preference_policy,
            min_values: self.min_values_policy,
            reserved: if self.gates.reserved_capacity {
                ReservedMode::Strict
            } else {
                ReservedMode::Off
            },
            max_instance_types: MAX_INSTANCE_TYPES,
            ..Options::default()
        }
    }
}

/// The pools that may launch nodes for pods, with what their provider has for them.
async fn usable_pools(context: &Context, known: &KnownLabels) -> Vec<Arc<Pool>> {
    let candidates: Vec<Arc<NodePool>> = {
        let cluster = context.index.read();
        cluster.pools().values().filter(|pool| is_usable(context, pool)).cloned().collect()
    };
    let mut pools = Vec::new();
    for pool in candidates {
        let name = pool.name_any();
        let types = match context.provider.instance_types(&pool).await {
            Ok(types) if types.is_empty() => {
                info!(pool = name, "skipping nodepool, it has no instance types");
                continue;
            }
            Ok(types) => types,
            Err(error) => {
                error!(pool = name, %error, "skipping nodepool, its instance types are unknown");
                continue;
            }
        };
        match view::pool_view(&pool, types.to_vec(), known) {
            Ok(pool) => pools.push(Arc::new(pool)),
            Err(error) => error!(pool = name, %error, "skipping nodepool"),
        }
    }
    pools
}

fn is_usable(context: &Context, pool: &NodePool) -> bool {
    context.manages(&pool.spec.template.spec.node_class_ref) && snapshot::idle(pool).is_none()
}
