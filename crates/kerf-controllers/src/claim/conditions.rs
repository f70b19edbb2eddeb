//! Two facts about a claim that disruption acts on: that it has drifted, and that it may be consolidated.

mod drift;

use std::{sync::Arc, time::Duration};

use kerf_api::{
    NodeClaim, NodeExt, NodePool, ObjectExt,
    conditions::{CONSOLIDATABLE, ConditionSet, Conditioned, DRIFTED},
};
use kerf_cluster::{Change, Cluster, pods};
use kerf_model::disruption::{Consolidatable, NodeDisruption, PoolDisruption};
use kerf_runtime::{Outcome, Queue, Workers};
use kube::ResourceExt;

use crate::{context::Context, controller::Reconciler, error::Result};

/// A cloud changes without telling.
const LOOK_AGAIN: Duration = Duration::from_mins(5);

#[derive(Default)]
pub(crate) struct ClaimConditions {
    checked_types: drift::CheckedTypes,
}

impl Reconciler for ClaimConditions {
    const WORKERS: Workers = Workers::new("nodeclaim.disruption", 10).up_to(1000);

    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>) {
        match change {
            Change::NodeClaim(delta) => queue.add(delta.key.name.clone()),
            Change::NodePool(delta) => {
                for (key, claim) in cluster.claims().iter() {
                    if claim.node_pool() == Some(&delta.key.name) {
                        queue.add(key.name.clone());
                    }
                }
            }
            Change::NodeClass(delta) => {
                let Some(class) = delta.either() else { return };
                for (key, claim) in cluster.claims().iter() {
                    if claim.spec.node_class_ref == class.reference {
                        queue.add(key.name.clone());
                    }
                }
            }
            Change::Pod(delta) => {
                let node = delta.either().and_then(|pod| pods::node_name(pod));
                let node = node.and_then(|name| cluster.nodes().named(name));
                let provider_id = node.map_or("", |node| node.provider_id());
                if let Ok(claim) = cluster.claim_of(provider_id) {
                    queue.add(claim.name_any());
                }
            }
            _ => {}
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let Some((claim, pool)) = claim_and_pool(context, name) else { return Ok(Outcome::Done) };
        if claim.is_deleting() {
            return Ok(Outcome::Done);
        }
        let mut changed = NodeClaim::clone(&claim);
        let drift = drift::reason(context, &self.checked_types, &claim, &pool).await;
        let mut conditions = changed.condition_set(context.now());
        match &drift {
            Ok(drift::Verdict::Drifted(reason)) => {
                conditions.set_true_because(DRIFTED, reason, reason);
            }
            Ok(drift::Verdict::NotDrifted) => clear(&mut conditions, DRIFTED),
            // A cloud that does not answer leaves drift as it was; the rest below needs no cloud.
            Ok(drift::Verdict::Unknown) | Err(_) => {}
        }
        let mut again = LOOK_AGAIN;
        // A static pool keeps its nodes whatever runs on them.
        if pool.spec.replicas.is_none() {
            let rules = PoolDisruption::new(&pool.spec.disruption, context.settings.churn);
            let verdict = rules.consolidatable(&NodeDisruption::from(&*claim), context.now());
            let mut conditions = changed.condition_set(context.now());
            match verdict {
                Consolidatable::Now => {
                    conditions.set_true(CONSOLIDATABLE);
                }
                Consolidatable::In(rest) => {
                    clear(&mut conditions, CONSOLIDATABLE);
                    again = again.min(rest);
                }
                Consolidatable::Never => clear(&mut conditions, CONSOLIDATABLE),
            }
        }
        context.write_status(&claim, changed).await?;
        drift.map(|_| Outcome::After(again))
    }
}

/// Takes a condition away that `Ready` does not depend on.
fn clear(conditions: &mut ConditionSet<'_>, kind: &str) {
    let cleared = conditions.clear(kind);
    debug_assert_eq!(cleared, Ok(()));
}

fn claim_and_pool(context: &Context, name: &str) -> Option<(Arc<NodeClaim>, Arc<NodePool>)> {
    let claim = context.managed_claim(name)?;
    let pool = context.managed_pool(claim.node_pool()?)?;
    Some((claim, pool))
}
