//! Whether the drifted nodes of a pool can be replaced: a replacement comes first, and `limits.nodes` has to have room for it.

use std::time::Duration;

use kerf_api::{
    NodePool,
    conditions::{Conditioned, DRIFT_BLOCKED, DRIFTED},
};
use kerf_cluster::node_counts::{ClaimStage, node_limit};
use kerf_disruption::static_capacity::{DriftBlocked, Kept, drift_blocked};
use kerf_runtime::events::{Notice, Severity};
use kube::ResourceExt;

use crate::context::Context;

/// A pool stays blocked until it is changed; an event once in a while is enough.
const SAY_AGAIN: Duration = Duration::from_mins(15);

/// Says on the pool, and by an event, that its drifted nodes have to wait for a higher limit.
pub(super) fn report(context: &Context, pool: &mut NodePool) {
    let blocked = find(context, pool);
    if let Some(blocked) = &blocked {
        let notice = Notice::about(pool, Severity::Warning, "DriftBlocked", blocked.to_string());
        context.recorder.record(notice.repeat_after(SAY_AGAIN));
    }
    let mut conditions = pool.condition_set(context.now());
    match blocked {
        Some(blocked) => {
            conditions.set_true_because(DRIFT_BLOCKED, "NoHeadroom", &blocked.to_string());
        }
        // Ready does not depend on it, so that it can be cleared.
        None => drop(conditions.clear(DRIFT_BLOCKED)),
    }
}

fn find(context: &Context, pool: &NodePool) -> Option<DriftBlocked> {
    let gates = context.settings.gates;
    // With the other gate its nodes go first.
    if pool.is_static() && (!gates.static_capacity || gates.terminate_first_drift) {
        return None;
    }
    let limit = node_limit(pool)?;
    let (name, cluster) = (pool.name_any(), context.index.read());
    let staying = cluster.claims_in(&name).filter(|it| cluster.stage_of(it) == ClaimStage::Active);
    let (nodes, drifted) = staying.fold((0, 0), |(nodes, drifted), claim| {
        (nodes + 1, drifted + u64::from(claim.is_true(DRIFTED)))
    });
    let kept = pool.replicas().map_or(Kept::Nodes(nodes), Kept::Replicas);
    drift_blocked(kept, Some(limit), drifted)
}
