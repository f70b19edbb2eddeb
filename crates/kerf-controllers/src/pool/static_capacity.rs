//! Pools with `replicas`: they keep that many nodes, whatever pods need.
//!
//! One controller grows and shrinks a pool, so the two never work against each other. Nodes that go for another reason
//! (expired, broken, deleted by hand) are simply missing, and are replaced like missing nodes. Replacing drifted nodes
//! is disruption's business; both ask for permits, so `limits.nodes` holds between them.

mod launch_failures;
pub(crate) mod report;

use std::{sync::Arc, time::Duration};

use kerf_api::{
    NodeClaim, NodePool, ObjectExt,
    conditions::{Conditioned, DISRUPTION_REASON, READY},
    labels,
};
use kerf_cluster::{Change, Cluster, Delta, node_counts::ClaimStage, reservations::NoRoom, view};
use kerf_disruption::static_capacity::{Member, Resize, resize, victims};
use kerf_model::{NodeCount, Pool, Price, Resources, Stock};
use kerf_runtime::{Clock, Outcome, Queue, Workers};
use kerf_scheduler::PlannedClaim;
use kube::ResourceExt;
use tracing::info;

use crate::{
    context::Context,
    controller::Reconciler,
    error::{Error, Result},
    provisioning,
};
use launch_failures::LaunchFailures;

/// Changes of claims and pools wake the controller. This is for what no change reports.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// How soon to check again whether the limit has room, if no change wakes the controller.
const ROOM_AGAIN: Duration = Duration::from_secs(30);

/// Brings static pools to their number of nodes.
pub(crate) struct StaticCapacity {
    failures: LaunchFailures,
}

impl StaticCapacity {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { failures: LaunchFailures::new(clock) }
    }
}

impl Reconciler for StaticCapacity {
    const WORKERS: Workers = Workers::new("static.capacity", 10);

    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>) {
        match change {
            Change::NodePool(delta) if delta.either().is_some_and(|pool| pool.is_static()) => {
                queue.add(delta.key.name.clone());
            }
            Change::NodeClaim(delta) => {
                let claim = delta.either();
                let Some(pool) = claim.and_then(|claim| claim.labels().get(labels::NODE_POOL))
                else {
                    return;
                };
                if cluster.pools().named(pool).is_some_and(|pool| pool.is_static()) {
                    self.failures.notice(pool, delta, cluster);
                    if changes_the_count(delta) {
                        queue.add(pool.clone());
                    }
                }
            }
            _ => {}
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        // Looked at anew after each node: replicas and limits may change while many are created.
        loop {
            let Some((pool, replicas, count)) = static_pool(context, name) else {
                self.failures.forget(name);
                return Ok(Outcome::Done);
            };
            match resize(replicas, count) {
                Resize::Keep => return Ok(Outcome::After(LOOK_AGAIN)),
                Resize::Shrink(excess) => {
                    shrink(context, name, excess).await?;
                    return Ok(Outcome::After(LOOK_AGAIN));
                }
                Resize::Grow if !pool.is_true(READY) => return Ok(Outcome::After(LOOK_AGAIN)),
                Resize::Grow => {
                    if let Some(wait) = self.failures.wait(name, context.now()) {
                        return Ok(Outcome::After(wait));
                    }
                    if count.leaving > 0 && waits_for_a_slot(context, &pool).await {
                        return Ok(Outcome::After(ROOM_AGAIN));
                    }
                    match grow(context, &pool).await {
                        Ok(()) => {}
                        Err(Error::NoRoom(NoRoom::Nodes { .. })) => {
                            info!(
                                pool = name,
                                replicas,
                                ?count,
                                "limits.nodes has no room for another node"
                            );
                            return Ok(Outcome::After(ROOM_AGAIN));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }
}

/// A claim that came or went, or whose place is about to be taken. Conditions come and go more often than nodes.
fn changes_the_count(delta: &Delta<NodeClaim>) -> bool {
    let facts = |claim: &Arc<NodeClaim>| (claim.is_deleting(), claim.is_true(DISRUPTION_REASON));
    let (before, after) = (delta.before.as_ref().map(facts), delta.after.as_ref().map(facts));
    // The same claim before and after: a mark on it has changed.
    let marked = delta.before.as_ref().zip(delta.after.as_ref());
    before != after || marked.is_some_and(|(before, after)| Arc::ptr_eq(before, after))
}

/// A static pool of ours that is here to stay, with what it wants and what it has.
fn static_pool(context: &Context, name: &str) -> Option<(Arc<NodePool>, u64, NodeCount)> {
    let pool = context.managed_pool(name)?;
    let replicas = pool.replicas()?;
    let staying = !pool.is_deleting();
    staying.then(|| (pool, replicas, context.index.read().node_count(name)))
}

/// Whether the pool can only be launched from reservations that are full: a node that goes gives its slot back when its instance
/// has ended, and until then every launch would fail.
async fn waits_for_a_slot(context: &Context, pool: &NodePool) -> bool {
    let known = context.known_labels();
    let Ok(types) = context.instance_types(pool).await else { return false };
    let view = view::pool_view(pool, types.to_vec(), &known);
    view.is_ok_and(|view| matches!(Stock::of_template(&view, &known), Stock::Full { .. }))
}

/// Creates one claim.
async fn grow(context: &Context, pool: &NodePool) -> Result<()> {
    let view = view::pool_view(pool, Vec::new(), &context.known_labels())?;
    let (permit, claim) = provisioning::prepare(context, &of_template(Arc::new(view)), &[])?;
    permit.create(claim, "provisioned").await?;
    Ok(())
}

/// One more of what the pool always has: its template, no pods in mind. Which instance type it becomes is up to the provider.
pub(crate) fn of_template(pool: Arc<Pool>) -> PlannedClaim {
    PlannedClaim {
        requirements: pool.template_requirements(),
        pool,
        pods: Vec::new(),
        virtual_pods: Vec::new(),
        instance_types: Vec::new(),
        requests: Resources::new(),
        price: Price::ZERO,
        min_values_relaxed: false,
    }
}

/// Deletes what is too much. Budgets have no say, because the user asked for it; the drains that follow honour what drains do.
async fn shrink(context: &Context, pool: &str, excess: u64) -> Result<()> {
    let now = context.now();
    let chosen = {
        let cluster = context.index.read();
        let claims = cluster.claims_in(pool);
        let known = context.known_labels();
        let node =
            |claim: &Arc<NodeClaim>| Ok((claim.name_any(), cluster.node_of_claim(claim, &known)?));
        let active: Vec<_> = claims
            .filter(|claim| cluster.stage_of(claim) == ClaimStage::Active)
            .map(node)
            .collect::<Result<_>>()?;
        let members: Vec<_> =
            active.iter().map(|(claim, node)| Member { claim, node: node.as_deref() }).collect();
        victims(&members, excess, now)
    };
    for name in chosen {
        let Some(claim) = context.managed_claim(&name) else { continue };
        // Counts as leaving from here on, however late the watch is.
        context.index.alter(|cluster| cluster.mark_for_deletion(&name));
        info!(claim = name, pool, "deleting nodeclaim, its pool has more than its replicas");
        if let Err(error) = context.delete_claim(&claim).await {
            context.index.alter(|cluster| cluster.unmark_for_deletion(&name));
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_cluster::Key;
    use serde_json::json;

    #[test]
    fn only_changes_of_the_count_wake_a_pool() {
        let claim = |deleted: Option<&str>,
                     conditions: &[(&str, &str)]|
         -> Option<Arc<NodeClaim>> {
            let conditions: Vec<_> = conditions
                .iter()
                .map(|(kind, status)| {
                    json!({
                        "type": kind, "status": status, "reason": "R", "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    })
                })
                .collect();
            let claim: NodeClaim =
                serde_json::from_value(json!({
                    "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                    "metadata": {"name": "c", "deletionTimestamp": deleted},
                    "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                    "status": {"conditions": conditions},
                }))
                .unwrap();
            Some(Arc::new(claim))
        };
        let deleted = Some("2026-01-01T00:00:00Z");
        let check = |before: Option<Arc<NodeClaim>>, after: Option<Arc<NodeClaim>>, wakes: bool| {
            let delta = Delta { key: Key::cluster("c"), before, after };
            assert_eq!(changes_the_count(&delta), wakes, "{delta:?}");
        };
        check(None, claim(None, &[]), true);
        check(claim(None, &[]), None, true);
        check(claim(None, &[]), claim(deleted, &[]), true);
        check(claim(None, &[]), claim(None, &[("DisruptionReason", "True")]), true);
        check(claim(None, &[]), claim(None, &[("Launched", "True")]), false);
        let same = claim(None, &[]);
        check(same.clone(), same, true);
    }
}
