//! The snapshot that the next plan is made from.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kerf_api::{NodeClass, NodePool};
use kerf_cluster::snapshot::{Inputs, Taken};
use kerf_model::{
    MAX_INSTANCE_TYPES, MinValuesPolicy, Snapshot,
    snapshot::{Idle, NothingToLaunch},
};
use kerf_provider::{CloudProvider, ProviderError};
use kerf_runtime::events::{Notice, Severity};
use kerf_scheduler::{Options, PACKING, ReservedMode};
use kube::ResourceExt;
use tracing::{error, info};

use super::promises::Outstanding;
use crate::{context::Context, error::Result, settings::Settings};

/// The cluster as it stands, without the pods that were promised a place.
pub(super) async fn take(context: &Context, promised: &Outstanding) -> Result<Taken> {
    // Of pools that launch nothing for pods, only that matters here.
    let inputs = inputs(context, |pool| Idle::of(pool).is_none()).await;
    let inputs = Inputs {
        promised: promised.pods.clone(),
        promised_to_buffers: promised.virtual_pods.iter().map(|pod| pod.uid.clone()).collect(),
        ..inputs
    };
    let taken = context.index.read().snapshot(inputs)?;
    remember_prices(context, &taken.snapshot);
    report_pools(context, &taken.snapshot);
    Ok(taken)
}

/// Keeps for metrics what the instance types of the pools cost, as decisions see it.
pub(crate) fn remember_prices(context: &Context, snapshot: &Snapshot) {
    for (name, pool) in snapshot.pools.iter().filter(|(_, pool)| !pool.instance_types.is_empty()) {
        context.prices.remember(name, &pool.instance_types);
    }
}

/// What a snapshot is made from, with the instance types of these pools.
pub(crate) async fn inputs(context: &Context, of: fn(&NodePool) -> bool) -> Inputs {
    // An overlay that contradicts another in any pool is left out in all of them.
    let overlaid = context.index.read().has_overlays();
    let pools = pools_with_classes(context, |pool| overlaid || of(pool));
    let inputs =
        snapshot_inputs(&*context.provider, &context.settings, &pools, context.now()).await;
    for (pool, class) in &pools {
        let name = pool.name_any();
        // The pool says by itself that its NodeClass is missing.
        if let Err(error) = &inputs.instance_types[&name]
            && class.is_some()
        {
            error!(pool = name, error, "the instance types of the nodepool are unknown");
        }
    }
    inputs
}

/// These pools, with their NodeClasses beside them.
pub(crate) fn pools_with_classes(
    context: &Context,
    of: impl Fn(&NodePool) -> bool,
) -> Vec<(Arc<NodePool>, Option<Arc<NodeClass>>)> {
    let cluster = context.index.read();
    let pools = cluster.pools().values().filter(|pool| of(pool));
    let class = |pool: &NodePool| cluster.node_class(&pool.spec.template.spec.node_class_ref);
    pools.map(|pool| (Arc::clone(pool), class(pool).cloned())).collect()
}

/// What a snapshot is made from, apart from what an operator has in memory, with the instance types of these pools, whose
/// NodeClasses stand beside them.
pub async fn snapshot_inputs(
    provider: &dyn CloudProvider,
    settings: &Settings,
    pools: &[(Arc<NodePool>, Option<Arc<NodeClass>>)],
    now: Timestamp,
) -> Inputs {
    let mut instance_types = BTreeMap::new();
    for (pool, class) in pools {
        let known = match class {
            Some(class) => provider.instance_types(pool, class).await,
            None => Err(ProviderError::no_node_class(&pool.spec.template.spec.node_class_ref)),
        };
        let known = known.map(|types| types.to_vec()).map_err(|error| error.to_string());
        instance_types.insert(pool.name_any(), known);
    }
    let (label_rules, churn) = (provider.facts().label_rules.clone(), settings.churn);
    Inputs { now, label_rules, instance_types, churn, ..Inputs::default() }
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
            packing: if self.packing { PACKING } else { 0 },
            ..Options::default()
        }
    }
}

/// Says of which pools nothing can be launched.
fn report_pools(context: &Context, snapshot: &Snapshot) {
    for (name, pool) in &snapshot.pools {
        match &pool.idle {
            None => {}
            Some(why @ (Idle::NoInstanceTypes | Idle::UnknownInstanceTypes { .. })) => {
                info!(pool = name, reason = %why, "skipping nodepool");
                continue;
            }
            Some(_) => continue,
        }
        let best_effort = context.settings.min_values_policy == MinValuesPolicy::BestEffort;
        match pool.launchable(&snapshot.labels) {
            Ok(()) => {}
            Err(NothingToLaunch::TooFewValues) if best_effort => {}
            // The plan makes nothing of a pool that can launch nothing, and says so to the pods.
            Err(nothing) => {
                let object = context.index.read().pools().named(name).cloned();
                if let Some(object) = object {
                    tell_impossible(context, &object, nothing);
                }
            }
        }
    }
}

fn tell_impossible(context: &Context, pool: &NodePool, nothing: NothingToLaunch) {
    let message = nothing.to_string();
    let reason = "NoCompatibleInstanceTypes";
    let notice = Notice::about(pool, Severity::Warning, reason, message);
    context.recorder.record(notice.repeat_after(Duration::from_mins(1)));
}
