//! What the next plan is made from.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kerf_api::NodePool;
use kerf_cluster::{
    Key,
    snapshot::{self, Pools, Taken},
    view,
};
use kerf_model::{
    KnownLabels, MAX_INSTANCE_TYPES, MinValuesPolicy, Pod, Pool, Quantity, Resources,
    labels::INSTANCE_TYPE,
    resources::NODES,
    snapshot::{Idle, IdlePool, NothingToLaunch},
};
use kerf_provider::ProviderError;
use kerf_runtime::events::{Notice, Severity};
use kerf_scheduler::{Options, ReservedMode};
use kube::ResourceExt;
use tracing::{error, info};

use super::is_unlaunched;
use crate::{context::Context, error::Result, settings::Settings};

/// The cluster as it stands, without the pods that were promised a place.
pub(super) async fn take(context: &Context, promised: &BTreeSet<Key>) -> Result<Taken> {
    let pools = usable_pools(context, &context.known_labels()).await;
    let rules = context.provider.label_rules();
    let mut taken = context.index.read().snapshot(pools, rules, context.now())?;
    if !promised.is_empty() {
        let key = |pod: &Pod| Key::namespaced(&pod.namespace, &pod.name);
        taken.snapshot.pods.retain(|pod| !promised.contains(&key(pod)));
    }
    Ok(taken)
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
async fn usable_pools(context: &Context, known: &KnownLabels) -> Pools {
    let mut pools = Pools::default();
    for (pool, unreadable) in pools_of(context) {
        let name = pool.name_any();
        let unreadable = unreadable.map(Idle::NotReady);
        if let Some(why) = unreadable.or_else(|| snapshot::idle(&pool)) {
            pools.idle.push(IdlePool { pool: name, why });
            continue;
        }
        let Some((view, idle)) = with_instance_types(context, &pool, known).await else { continue };
        if let Some(why) = idle {
            info!(pool = name, reason = %why, "skipping nodepool");
            pools.idle.push(IdlePool { pool: name, why });
            continue;
        }
        let best_effort = context.settings.min_values_policy == MinValuesPolicy::BestEffort;
        match view.launchable(known) {
            Ok(()) => {}
            Err(NothingToLaunch::TooFewValues) if best_effort => {}
            Err(nothing) => tell_impossible(context, &pool, nothing),
        }
        // The plan makes nothing of a pool that can launch nothing, and says so to the pods.
        pools.launching.push(view);
    }
    pools
}

/// Every pool, whether it may launch nodes or not. One whose instance types are unknown has none.
pub(crate) async fn all_pools(context: &Context, known: &KnownLabels) -> Vec<Arc<Pool>> {
    let mut pools = Vec::new();
    let all = pools_of(context);
    context.prices.forget_all_but(all.iter().map(|(pool, _)| &**pool));
    // The nodes of one that cannot be read stay: to disruption its pool is unknown.
    for (pool, _) in all.iter().filter(|(_, unreadable)| unreadable.is_none()) {
        let read = with_instance_types(context, pool, known).await;
        pools.extend(read.map(|(pool, _)| pool));
    }
    pools
}

/// Every pool, and what of it cannot be read.
fn pools_of(context: &Context) -> Vec<(Arc<NodePool>, Option<String>)> {
    let cluster = context.index.read();
    let pools = cluster.pools().iter();
    let unreadable = |key| cluster.pools().unreadable(key).map(ToString::to_string);
    pools.map(|(key, pool)| (Arc::clone(pool), unreadable(key))).collect()
}

/// The pool with what its provider has for it, or why that is nothing. Nothing at all if it cannot be read.
async fn with_instance_types(
    context: &Context,
    pool: &NodePool,
    known: &KnownLabels,
) -> Option<(Arc<Pool>, Option<Idle>)> {
    let name = pool.name_any();
    let (types, idle) = match context.instance_types(pool).await {
        Ok(types) => {
            context.prices.remember(&name, &types);
            (types.to_vec(), types.is_empty().then_some(Idle::NoInstanceTypes))
        }
        Err(error) => {
            // The pool says by itself that its NodeClass is missing.
            if !matches!(error, ProviderError::NodeClassNotFound { .. }) {
                error!(pool = name, %error, "the instance types of the nodepool are unknown");
            }
            let because = error.to_string();
            (Vec::new(), Some(Idle::UnknownInstanceTypes { because }))
        }
    };
    match view::pool_view(pool, types, known) {
        Ok(mut pool) => {
            charge_unlaunched(context, &mut pool);
            Some((Arc::new(pool), idle))
        }
        Err(error) => {
            error!(pool = name, %error, "skipping nodepool");
            None
        }
    }
}

/// Claims whose launch is tried again are not among the nodes of a plan, but the room that they may come to take is gone: as
/// much as the largest type that they allow has.
fn charge_unlaunched(context: &Context, pool: &mut Pool) {
    let cluster = context.index.read();
    for claim in cluster.claims_in(&pool.name).filter(|claim| is_unlaunched(claim)) {
        let allowed = context.known_labels().requirements(&claim.spec.requirements);
        let allowed = allowed.get(INSTANCE_TYPE);
        let types = pool.instance_types.iter();
        let types = types.filter(|one| allowed.is_none_or(|allowed| allowed.has(one.name())));
        let one_node = Resources::new().with(NODES, Quantity::from_units(1));
        let largest = types.fold(one_node, |largest, one| largest.max(one.capacity()));
        pool.launching.add(&largest);
    }
}

fn tell_impossible(context: &Context, pool: &NodePool, nothing: NothingToLaunch) {
    let message = nothing.to_string();
    let reason = "NoCompatibleInstanceTypes";
    let notice = Notice::about(pool, Severity::Warning, reason, message);
    context.recorder.record(notice.repeat_after(Duration::from_mins(1)));
}
