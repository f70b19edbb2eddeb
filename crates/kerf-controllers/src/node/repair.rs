//! Nodes that have been unhealthy for too long are deleted: as Karpenter did before 1.15 (`--legacy-node-repair`).
//!
//! It knows neither budgets nor priorities, and no replacement comes first. Otherwise repair is a method of disruption.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodeExt, ObjectExt, labels};
use kerf_cluster::{Change, Cluster};
use kerf_model::repair::{Reason, RepairAction, RepairPolicy};
use kerf_runtime::{
    Outcome, Queue, Workers,
    events::{Notice, Severity},
};
use kube::ResourceExt;
use tracing::info;

use crate::{context::Context, controller::Reconciler, error::Result, metrics::Cause};

/// When many nodes are unwell at once, the cause is rarely the nodes, and replacing them makes it worse.
const UNHEALTHY_PERCENT: usize = 20;
const BLOCKED_FOR: Duration = Duration::from_mins(5);

/// Deletes the claims of unwell nodes, by force: neither budgets nor annotations nor grace periods hold it back, since the
/// pods there are in trouble already. Only the circuit breaker does.
pub(crate) struct Repair {
    policies: Vec<Rule>,
}

/// A policy that it can act by, and what it looks for in the reason of a condition.
struct Rule {
    policy: RepairPolicy,
    reason: Reason,
}

impl Repair {
    /// Those that ask for a reboot are left alone. There is no fallback: a policy is about its own condition.
    pub(crate) fn by(policies: &[RepairPolicy]) -> Self {
        let replacing = policies.iter().filter(|policy| policy.action == RepairAction::Replace);
        let rule = |policy: &RepairPolicy| {
            let reason = Reason::new(policy.reason).ok()?;
            Some(Rule { policy: policy.clone(), reason })
        };
        Self { policies: replacing.filter_map(rule).collect() }
    }
}

impl Reconciler for Repair {
    const WORKERS: Workers = Workers::new("node.health", 10).up_to(1000);

    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        let Change::Node(delta) = change else { return };
        let conditions = |node: &Option<Arc<Node>>| {
            node.as_ref().and_then(|node| node.status.as_ref()?.conditions.clone())
        };
        if delta.after.is_some() && conditions(&delta.before) != conditions(&delta.after) {
            queue.add(delta.key.name.clone());
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let policies = &self.policies;
        let (node, claim, crowd) = {
            let cluster = context.index.read();
            let Some(node) = cluster.nodes().named(name).cloned() else { return Ok(Outcome::Done) };
            let claim = cluster.claim_of(node.provider_id()).cloned();
            let Some(claim) = claim.ok().filter(|it| cluster.is_readable(&it.name_any())) else {
                return Ok(Outcome::Done);
            };
            let crowd = Crowd::around(&claim, &cluster, policies);
            (node, claim, crowd)
        };
        let now = context.now();
        let Some((policy, deadline)) = first_due(&node, policies) else { return Ok(Outcome::Done) };
        if let Ok(left) = Duration::try_from(deadline.duration_since(now))
            && !left.is_zero()
        {
            return Ok(Outcome::After(left));
        }
        if crowd.is_unwell() {
            let message =
                format!("more than {UNHEALTHY_PERCENT}% nodes are unhealthy in the {}", crowd.of);
            let notice = Notice::about(&*node, Severity::Warning, "NodeRepairBlocked", message);
            context.recorder.record(notice.repeat_after(Duration::from_mins(15)));
            return Ok(Outcome::After(BLOCKED_FOR));
        }
        // Also where it is being deleted: a drain that waits for a budget waits for ever on a node that does not answer.
        context.end_patience(&claim).await?;
        if claim.is_deleting() {
            return Ok(Outcome::Done);
        }
        info!(node = name, condition = policy.condition, "deleting nodeclaim of unhealthy node");
        context.disrupt(&claim, Cause::Unhealthy).await?;
        context.metrics.unhealthy_disrupted(policy.condition, &claim, None);
        Ok(Outcome::Done)
    }
}

/// The nodes among which an unwell one is counted: its pool's, or all if it has no pool.
struct Crowd {
    of: &'static str,
    total: usize,
    unwell: usize,
}

impl Crowd {
    fn around(claim: &NodeClaim, cluster: &Cluster, policies: &[Rule]) -> Self {
        let pool = claim.labels().get(labels::NODE_POOL);
        let among = cluster.nodes().values().filter(|node| {
            pool.is_none_or(|pool| node.labels().get(labels::NODE_POOL) == Some(pool))
        });
        let (mut total, mut unwell) = (0, 0);
        for node in among {
            total += 1;
            unwell += usize::from(first_due(node, policies).is_some());
        }
        Self { of: if pool.is_some() { "nodepool" } else { "cluster" }, total, unwell }
    }

    fn is_unwell(&self) -> bool {
        self.unwell > (self.total * UNHEALTHY_PERCENT).div_ceil(100)
    }
}

/// The policy that asks for the node's replacement first, and when.
fn first_due<'a>(node: &Node, rules: &'a [Rule]) -> Option<(&'a RepairPolicy, Timestamp)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let due = rules.iter().filter_map(|Rule { policy, reason }| {
        let condition = conditions.iter().find(|one| {
            let of_condition = one.reason.as_deref().unwrap_or_default();
            one.type_ == policy.condition
                && one.status == policy.status.as_str()
                && reason.suits(of_condition)
        })?;
        let since = condition.last_transition_time.as_ref()?.0;
        let toleration = SignedDuration::try_from(policy.toleration).ok()?;
        Some((policy, since.checked_add(toleration).ok()?))
    });
    due.min_by_key(|(_, deadline)| *deadline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_api::conditions::Status;
    use serde_json::json;

    fn rules() -> Vec<Rule> {
        let policy = |condition, status, minutes: u64| {
            RepairPolicy::new(condition, status, Duration::from_mins(minutes))
        };
        Repair::by(&[
            policy("Ready", Status::False, 30),
            policy("DiskBroken", Status::True, 10),
            RepairPolicy { action: RepairAction::Reboot, ..policy("Stuck", Status::True, 1) },
            RepairPolicy { reason: "^Xid", ..policy("Gpu", Status::True, 5) },
        ])
        .policies
    }

    fn node(conditions: &[(&str, &str, &str)]) -> Node {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status, since)| {
                // `Gpu:Xid48` is the condition Gpu for the reason Xid48.
                let (kind, reason) = kind.split_once(':').unwrap_or((kind, "Any"));
                json!({"type": kind, "status": status, "reason": reason,
                       "lastTransitionTime": format!("2026-01-01T{since}Z")})
            })
            .collect();
        serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap()
    }

    #[test]
    fn the_earliest_deadline_of_the_matching_policies_counts() {
        let rules = rules();
        let check = |conditions: &[(&str, &str, &str)], expected: Option<(&str, &str)>| {
            let node = node(conditions);
            let due = first_due(&node, &rules).map(|(policy, at)| (policy.condition, at));
            let expected =
                expected.map(|(kind, at)| (kind, format!("2026-01-01T{at}Z").parse().unwrap()));
            assert_eq!(due, expected, "{conditions:?}");
        };
        check(&[("Ready", "True", "00:00:00")], None);
        check(&[("Ready", "Unknown", "00:00:00")], None);
        check(&[("MemoryPressure", "True", "00:00:00"), ("DiskBroken", "False", "00:00:00")], None);
        check(&[("Stuck", "True", "00:00:00")], None);
        check(&[("Gpu:Hot", "True", "00:00:00")], None);
        check(&[("Gpu:Xid48", "True", "00:00:00")], Some(("Gpu", "00:05:00")));
        check(&[("Ready", "False", "00:00:00")], Some(("Ready", "00:30:00")));
        check(
            &[("Stuck", "True", "00:00:00"), ("Ready", "False", "00:00:00")],
            Some(("Ready", "00:30:00")),
        );
        check(
            &[("Ready", "False", "00:00:00"), ("DiskBroken", "True", "00:15:00")],
            Some(("DiskBroken", "00:25:00")),
        );
        check(
            &[("Ready", "False", "00:00:00"), ("DiskBroken", "True", "00:25:00")],
            Some(("Ready", "00:30:00")),
        );
    }

    #[test]
    fn nodes_are_counted_in_their_pool_or_in_the_cluster_if_they_have_none() {
        let mut cluster = Cluster::default();
        for (name, pool, status) in [
            ("a", Some("p"), "False"),
            ("b", Some("p"), "True"),
            ("c", Some("q"), "False"),
            ("d", None, "False"),
        ] {
            let mut node = node(&[("Ready", status, "00:00:00")]);
            node.metadata.name = Some(name.into());
            let label = pool.map(|pool| (labels::NODE_POOL.to_owned(), pool.to_owned()));
            node.labels_mut().extend(label);
            cluster.apply(node);
        }
        for (pool, expected) in [(Some("p"), ("nodepool", 2, 1)), (None, ("cluster", 4, 3))] {
            let mut claim = NodeClaim::default();
            let label = pool.map(|pool| (labels::NODE_POOL.to_owned(), pool.to_owned()));
            claim.labels_mut().extend(label);
            // Patience is not asked for here: one that just became unwell counts.
            let crowd = Crowd::around(&claim, &cluster, &rules());
            assert_eq!((crowd.of, crowd.total, crowd.unwell), expected, "{pool:?}");
        }
    }

    #[test]
    fn a_fifth_of_the_nodes_may_be_unwell_rounded_up() {
        for (total, unwell, blocked) in [
            (3, 1, false),
            (3, 2, true),
            (10, 2, false),
            (10, 3, true),
            (1, 1, false),
            (5, 2, true),
        ] {
            let crowd = Crowd { of: "nodepool", total, unwell };
            assert_eq!(crowd.is_unwell(), blocked, "{unwell} of {total}");
        }
    }
}
