//! The state of a NodePool: its drift hash, whether it is valid, whether its NodeClass can be used, its registration health and
//! the resources of its nodes.

use std::{collections::BTreeMap, time::Duration};

use kerf_api::{
    NodeClass, NodePool,
    conditions::{Conditioned, NODE_CLASS_READY, READY, VALIDATION_SUCCEEDED},
    hash::NODE_POOL,
    labels,
    validation::validate_node_pool,
};
use kerf_cluster::{Change, Cluster, view::Unreadable};
use kerf_runtime::{Lock, Outcome, Queue, Workers};
use kube::ResourceExt;
use tracing::info;

use super::{drift_blocked, hash, registration_health::RegistrationHealth, static_capacity};
use crate::{context::Context, controller::Reconciler, error::Result};

pub(crate) struct Pools {
    pub(crate) health: RegistrationHealth,
}

impl Reconciler for Pools {
    const WORKERS: Workers = Workers::new("nodepool", 10).up_to(1000);

    /// A pool is looked at when it changes, when its NodeClass does, and when it gains or loses a node.
    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>) {
        match change {
            Change::NodePool(delta) => queue.add(delta.key.name.clone()),
            Change::NodeClass(delta) => {
                let Some(class) = delta.either() else { return };
                for (key, pool) in cluster.pools().iter() {
                    if pool.spec.template.spec.node_class_ref == class.reference {
                        queue.add(key.name.clone());
                    }
                }
            }
            Change::Node(delta) => {
                count_soon(queue, delta.either().map(|node| node.labels()));
            }
            Change::NodeClaim(delta) => {
                count_soon(queue, delta.either().map(|claim| claim.labels()));
            }
            _ => {}
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let Some(pool) = context.managed_pool(name) else {
            context.metrics.forget_static_pool(name);
            let cluster = context.index.read();
            self.health.forget_all_but(cluster.pools().values().filter_map(|pool| pool.uid()));
            return Ok(Outcome::Done);
        };
        let class = context.node_class(&pool.spec.template.spec.node_class_ref).ok();
        hash::migrate(context, &pool).await?;
        let mut changed = NodePool::clone(&pool);
        NODE_POOL.write(changed.annotations_mut(), pool.hash());
        set_validation(context, &mut changed);
        set_node_class_ready(context, &mut changed, class.as_deref());
        self.health.update(&mut changed, class.as_deref(), context.now());
        count(&context.index.read(), &mut changed)?;
        static_capacity::report::report(context, &mut changed);
        drift_blocked::report(context, &mut changed);

        let what = || format!("updating NodePool {name}");
        let turned = turned(&pool, &changed);
        context.write(&*pool, changed, Lock::Optimistic, what).await?;
        // Once it is written: what cannot be written is worked out again.
        match turned {
            Some(Turned::Ready) => info!(NodePool.name = name, "nodepool is ready"),
            Some(Turned::NotReady(reason)) => {
                info!(NodePool.name = name, reason, "ignoring nodepool, not ready");
            }
            None => {}
        }
        Ok(Outcome::Done)
    }
}

/// What a pool has become.
#[derive(Debug, PartialEq, Eq)]
enum Turned {
    Ready,
    /// With the message of its condition.
    NotReady(String),
}

/// A pool that has never been judged is expected to be ready.
fn turned(before: &NodePool, after: &NodePool) -> Option<Turned> {
    let status = |pool: &NodePool| pool.condition(READY).map(|ready| ready.status.clone());
    match (status(before).as_deref(), status(after).as_deref()) {
        (Some("False"), Some("True")) => Some(Turned::Ready),
        (Some("False"), Some("False")) => None,
        (_, Some("False")) => {
            let message = after.condition(READY).map(|ready| ready.message.clone());
            Some(Turned::NotReady(message.unwrap_or_default()))
        }
        _ => None,
    }
}

/// Nodes come and go in crowds; their pool is counted once for all of them.
const COUNT_AFTER: Duration = Duration::from_secs(1);

fn count_soon(queue: &Queue<String>, labels: Option<&BTreeMap<String, String>>) {
    if let Some(pool) = labels.and_then(|labels| labels.get(labels::NODE_POOL)) {
        queue.add_after(pool.clone(), COUNT_AFTER);
    }
}

fn count(cluster: &Cluster, pool: &mut NodePool) -> Result<()> {
    let resources = cluster.pool_resources(&pool.name_any()).map_err(Unreadable::from)?;
    let status = pool.status.get_or_insert_default();
    status.nodes = resources.amount("nodes").units();
    status.resources = resources.to_api();
    Ok(())
}

fn set_validation(context: &Context, pool: &mut NodePool) {
    let verdict = validate_node_pool(pool, &context.provider.facts().label_rules);
    let mut conditions = pool.condition_set(context.now());
    match verdict {
        Ok(()) => conditions.set_true(VALIDATION_SUCCEEDED),
        Err(invalid) => conditions.set_false(
            VALIDATION_SUCCEEDED,
            "NodePoolValidationFailed",
            &invalid.to_string(),
        ),
    };
}

fn set_node_class_ready(context: &Context, pool: &mut NodePool, class: Option<&NodeClass>) {
    let mut conditions = pool.condition_set(context.now());
    match why_not_ready(class) {
        None => conditions.set_true(NODE_CLASS_READY),
        Some((reason, message)) => conditions.set_false(NODE_CLASS_READY, &reason, &message),
    };
}

/// Reason and message, if nothing can be launched with this NodeClass.
fn why_not_ready(class: Option<&NodeClass>) -> Option<(String, String)> {
    let because = |reason: &str, message: &str| Some((reason.to_owned(), message.to_owned()));
    let Some(class) = class else {
        return because("NodeClassNotFound", "NodeClass not found on cluster");
    };
    let not_ready = class.readiness().err()?;
    because(not_ready.reason(), &not_ready.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{
        apimachinery::pkg::apis::meta::v1::{Condition, Time},
        jiff::Timestamp,
    };
    use kube::api::DynamicObject;
    use serde_json::json;

    #[test]
    fn a_node_class_is_ready_only_if_it_says_so_and_stays() {
        let ready = |status: &str| Condition {
            type_: "Ready".into(),
            status: status.into(),
            reason: "Why".into(),
            message: "because".into(),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            observed_generation: None,
        };
        let about = |generation, status| Condition {
            observed_generation: Some(generation),
            ..ready(status)
        };
        let object: DynamicObject =
            serde_json::from_value(json!({"metadata": {"generation": 2}})).unwrap();
        let class = |deleting, ready| {
            let (group, kind) = ("cloud.example", "ExampleNodeClass");
            let mut class = NodeClass::from_object(group, kind, object.clone());
            (class.deleting, class.ready) = (deleting, ready);
            class
        };
        let cases = [
            (None, Some("NodeClassNotFound")),
            (Some(class(true, Some(ready("True")))), Some("NodeClassTerminating")),
            (Some(class(false, None)), Some("NodeClassReadinessUnknown")),
            (Some(class(false, Some(ready("Unknown")))), Some("NodeClassReadinessUnknown")),
            (Some(class(false, Some(ready("False")))), Some("Why")),
            (Some(class(false, Some(ready("True")))), None),
            (Some(class(false, Some(about(1, "True")))), Some("NodeClassNotReconciled")),
            (Some(class(false, Some(about(1, "False")))), Some("NodeClassNotReconciled")),
            (Some(class(false, Some(about(2, "True")))), None),
        ];
        for (class, expected) in cases {
            let reason = why_not_ready(class.as_ref()).map(|(reason, _)| reason);
            assert_eq!(reason.as_deref(), expected, "{class:?}");
        }
    }
}
