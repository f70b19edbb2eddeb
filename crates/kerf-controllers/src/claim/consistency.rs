//! Whether the Node has the resources that its claim promises.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity as ApiQuantity};
use kerf_api::{
    NodeClaim, ObjectExt,
    conditions::{CONSISTENT_STATE_FOUND, Conditioned, INITIALIZED},
};
use kerf_cluster::{Change, Cluster};
use kerf_model::Quantity;
use kerf_runtime::{
    Outcome, Queue, Workers,
    events::{Notice, Severity},
};
use kube::ResourceExt;

use crate::{context::Context, controller::Reconciler, error::Result};

const LOOK_AGAIN: Duration = Duration::from_mins(10);
/// Machines come a little smaller than their type says; less than this share of it is another machine.
const LEAST_SHARE: f64 = 0.9;

/// Says so on the claim when a node has less than it should; changes nothing else.
pub(crate) struct Consistency;

impl Reconciler for Consistency {
    const WORKERS: Workers = Workers::new("nodeclaim.consistency", 10).up_to(1000);

    /// A claim is looked at when it is initialised and then at its own pace: machines do not shrink.
    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        if let Change::NodeClaim(delta) = change
            && let Some(after) = &delta.after
            && after.is_true(INITIALIZED)
            && delta.before.as_ref().is_none_or(|before| !before.is_true(INITIALIZED))
        {
            queue.add(delta.key.name.clone());
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let Some(claim) = context.managed_claim(name) else { return Ok(Outcome::Done) };
        let provider_id = claim.provider_id();
        let Ok(node) = context.index.read().node_of(provider_id).cloned() else {
            return Ok(Outcome::After(LOOK_AGAIN));
        };
        if claim.is_deleting() {
            return Ok(Outcome::Done);
        }
        let shortfalls = shortfalls(&claim, &node);
        let mut changed = NodeClaim::clone(&claim);
        let mut conditions = changed.condition_set(context.now());
        if shortfalls.is_empty() {
            conditions.set_true(CONSISTENT_STATE_FOUND);
        } else {
            let (reason, message) = ("ConsistencyCheckFailed", "Consistency Check Failed");
            conditions.set_false(CONSISTENT_STATE_FOUND, reason, message);
        }
        for shortfall in shortfalls {
            let uid = claim.uid().unwrap_or_default();
            let notice = Notice::about(
                &*claim,
                Severity::Warning,
                "FailedConsistencyCheck",
                shortfall.clone(),
            );
            context.recorder.record(notice.same_if(vec![uid, shortfall]));
        }
        context.write_status(&claim, changed).await?;
        Ok(Outcome::After(LOOK_AGAIN))
    }
}

/// The requested resources of which the node has much less than its claim promised.
fn shortfalls(claim: &NodeClaim, node: &Node) -> Vec<String> {
    let promised = claim.status.as_ref().map(|status| &status.capacity);
    let found = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let requested = &claim.spec.resources.requests;
    let wanted = requested.keys().filter(|resource| !read(Some(requested), resource).is_zero());
    wanted
        .filter_map(|resource| {
            let (promised, found) = (read(promised, resource), read(found, resource));
            if promised.is_zero() {
                return None;
            }
            let share = found.as_f64() / promised.as_f64();
            (share < LEAST_SHARE).then(|| {
                let percent = share * 100.0;
                format!("expected {promised} of resource {resource}, but found {found} ({percent:.1}% of expected)")
            })
        })
        .collect()
}

fn read(map: Option<&BTreeMap<String, ApiQuantity>>, resource: &str) -> Quantity {
    let amount = map.and_then(|map| map.get(resource));
    amount.and_then(|amount| amount.0.parse().ok()).unwrap_or(Quantity::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_node_with_less_than_nine_tenths_of_what_was_requested_falls_short() {
        let check = |requests: Value, promised: Value, found: Value, expected: &[&str]| {
            let mut claim = NodeClaim::default();
            claim.spec.resources.requests = serde_json::from_value(requests).unwrap();
            claim.status.get_or_insert_default().capacity =
                serde_json::from_value(promised).unwrap();
            let node: Node =
                serde_json::from_value(json!({"status": {"capacity": found}})).unwrap();
            assert_eq!(shortfalls(&claim, &node), expected);
        };
        let cpu = |amount: &str| json!({"cpu": amount});
        check(cpu("1"), cpu("10"), cpu("9"), &[]);
        check(
            cpu("1"),
            cpu("10"),
            cpu("8900m"),
            &["expected 10 of resource cpu, but found 8900m (89.0% of expected)"],
        );
        check(
            cpu("1"),
            cpu("10"),
            json!({}),
            &["expected 10 of resource cpu, but found 0 (0.0% of expected)"],
        );
        check(cpu("0"), cpu("10"), json!({}), &[]);
        check(json!({}), cpu("10"), cpu("1"), &[]);
        check(cpu("1"), json!({}), cpu("1"), &[]);
    }
}
