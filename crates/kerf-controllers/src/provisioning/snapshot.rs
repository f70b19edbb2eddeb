//! What the next plan is made from.

use std::sync::Arc;

use kerf_api::{
    NodePool,
    conditions::{Conditioned, READY},
};
use kerf_cluster::view;
use kerf_model::{KnownLabels, MAX_INSTANCE_TYPES, Pod, Pool, Snapshot};
use kerf_scheduler::{Options, ReservedMode};
use kube::ResourceExt;
use tracing::{error, info};

use crate::{context::Context, error::Result};

/// The cluster as it stands, or nothing if no pod needs a place.
pub(super) async fn take(context: &Context) -> Result<Option<Snapshot>> {
    let known = context.known_labels();
    let pools = usable_pools(context, &known).await;
    // Nodes are read before pods: a pod that is bound in between is then counted twice rather than not at all.
    let cluster = context.index.read();
    let nodes = cluster.node_views(&known)?;
    let daemons = cluster.daemon_sets().values().map(|daemon| view::daemon_view(daemon, &known));
    let daemons = daemons.map(|daemon| daemon.map(Arc::new)).collect::<Result<_, _>>()?;
    let volumes = Arc::new(cluster.volumes_view(&known).map_err(view::Unreadable::from)?);
    let namespaces = Arc::new(cluster.namespace_labels());
    let mut pods = Vec::new();
    for pod in cluster.pods_to_place(context.now()) {
        match Pod::from_api(&pod, &known) {
            Ok(pod) => pods.push(Arc::new(pod)),
            // One unreadable pod must not keep the others from their nodes.
            Err(error) => error!(controller = "provisioner", %error, "pod is left out"),
        }
    }
    if pods.is_empty() {
        return Ok(None);
    }
    let labels = Arc::new(known);
    Ok(Some(Snapshot { labels, pools, nodes, pods, daemons, volumes, namespaces }))
}

pub(super) fn options(context: &Context) -> Options {
    let settings = &context.settings;
    Options {
        preferences: settings.preference_policy,
        min_values: settings.min_values_policy,
        reserved: if settings.gates.reserved_capacity {
            ReservedMode::Strict
        } else {
            ReservedMode::Off
        },
        max_instance_types: MAX_INSTANCE_TYPES,
        ..Options::default()
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
        let class = &pool.spec.template.spec.node_class_ref;
        let label = format!("{}/{}", class.group, class.kind.to_lowercase());
        match view::pool_view(&pool, &label, types.to_vec(), known) {
            Ok(pool) => pools.push(Arc::new(pool)),
            Err(error) => error!(pool = name, %error, "skipping nodepool"),
        }
    }
    pools
}

/// Pools with `replicas` have the nodes they have, whatever pods want.
fn is_usable(context: &Context, pool: &NodePool) -> bool {
    context.manages(&pool.spec.template.spec.node_class_ref)
        && pool.spec.replicas.is_none()
        && pool.metadata.deletion_timestamp.is_none()
        && pool.is_true(READY)
}
