//! Static pools as time goes by: nodes that expire, and what else happens meanwhile.

use std::time::Duration;

use jiff::{Timestamp, ToSpan, civil::Weekday, tz::TimeZone};
use kerf_api::NodePool;
use kerf_testbed::{EventLog, Write};
use serde_json::json;

use super::{drift, has_nodes, names, never_more_nodes_than, replaced, says, with_static_pool};
use crate::World;

pub async fn expired_nodes_are_replaced(world: World) {
    let changes = json!({"limits": {"nodes": "3"}, "template": {"spec": {"expireAfter": "1h"}}});
    let pool = with_static_pool(&world, 3, &changes).await;
    let old = names(&has_nodes(&world, &pool, 3).await);
    world.pass(Duration::from_mins(61)).await;
    let new = names(&has_nodes(&world, &pool, 3).await);
    assert!(old.iter().all(|name| !new.contains(name)), "{old:?} {new:?}");
    let metrics = world.metrics();
    let expired = "karpenter_nodeclaims_disrupted_total{reason=\"expired\",nodepool=\"static\"";
    assert!(metrics.lines().any(|line| line.starts_with(expired)), "{metrics}");
    never_more_nodes_than(&world, 3);
}

/// The pool is scaled and changed at about the time when its nodes expire.
pub async fn scaling_drift_and_expiry_at_once(world: World) {
    let changes = json!({
        "limits": {"nodes": "5"}, "disruption": {"budgets": [{"nodes": "100%"}]},
        "template": {"spec": {"expireAfter": "20s"}},
    });
    let pool = with_static_pool(&world, 3, &changes).await;
    has_nodes(&world, &pool, 3).await;
    let template = json!({
        "metadata": {"labels": {"version": "2"}}, "spec": {"expireAfter": "Never"},
    });
    world.patch(&pool, json!({"spec": {"replicas": 4, "template": template}})).await;
    replaced(&world, &pool, 4, 2).await;
    world.scale(&pool, 2).await;
    drift(&world, &pool, 3).await;
    replaced(&world, &pool, 2, 3).await;
    has_nodes(&world, &pool, 2).await;
    never_more_nodes_than(&world, 5);
}

const DAYS: i64 = 60;
const DRIFT_DAY: i64 = 12;

/// The example of the proposal: 12 nodes and never more than 20, in one zone, of one type, that live for 720 hours; a tenth of
/// them may be disrupted at a time, and none in business hours.
pub async fn the_proposals_example_for_sixty_days(world: World) {
    let budgets = json!([
        {"nodes": "10%"}, {"schedule": "0 9 * * mon-fri", "duration": "8h", "nodes": "0"},
    ]);
    let template = json!({
        "metadata": {"labels": {"nodepool-type": "static"}},
        "spec": {
            "expireAfter": "720h",
            "taints": [{"key": "example.com/special-taint", "effect": "NoSchedule"}],
            "requirements": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m-8x-amd64-linux"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            ],
        },
    });
    let limits = json!({"nodes": "20"});
    let changes =
        json!({"limits": limits, "disruption": {"budgets": budgets}, "template": template});
    let begin = world.now();
    let pool = with_static_pool(&world, 12, &changes).await;
    for (_, node) in has_nodes(&world, &pool, 12).await {
        let label = |key: &str| node.metadata.labels.as_ref().and_then(|it| it.get(key)).cloned();
        assert_eq!(label("topology.kubernetes.io/zone").as_deref(), Some("test-zone-a"));
        assert_eq!(label("node.kubernetes.io/instance-type").as_deref(), Some("m-8x-amd64-linux"));
    }
    // A new version at ten o'clock on a Tuesday: it has to wait until five.
    let rollout = begin + (DRIFT_DAY * 24 + 10).hours();
    assert!(in_business_hours(rollout));
    until(&world, rollout).await;
    drift(&world, &pool, 2).await;
    until(&world, rollout + 24.hours()).await;
    replaced(&world, &pool, 12, 2).await;
    until(&world, begin + (DAYS * 24).hours()).await;
    has_nodes(&world, &pool, 12).await;
    says(&world, &pool, kerf_api::conditions::REPLICAS_SATISFIED).await;
    let log = world.event_log();
    never_more_nodes_than(&world, 20);
    check_rollout(&log, &pool, rollout);
    // The first twelve, those of the new version, and those that came when these had expired after 30 days.
    let created = claims(&log).filter(|(_, what)| *what == Write::Created).count();
    assert_eq!(created, 36, "{log}");
}

/// Nothing happened in business hours, everything within the next night, and never more than two nodes at a time.
fn check_rollout(log: &EventLog, pool: &NodePool, rollout: Timestamp) {
    let day = rollout..rollout + 24.hours();
    let (mut count, mut most) = (12, 12);
    for (time, what) in claims(log).filter(|(time, _)| day.contains(time)) {
        assert!(!in_business_hours(time), "{pool:?} changed at {time}");
        match what {
            Write::Created => count += 1,
            Write::Removed => count -= 1,
            Write::Changed => {}
        }
        most = most.max(count);
    }
    assert_eq!((count, most), (12, 14));
}

/// When claims came and went.
fn claims(log: &EventLog) -> impl Iterator<Item = (Timestamp, Write)> {
    let claims = log.entries().iter().filter(|it| &*it.resource == "nodeclaims.karpenter.sh");
    claims.filter(|it| it.what != Write::Changed).map(|entry| (entry.time, entry.what))
}

fn in_business_hours(time: Timestamp) -> bool {
    let time = time.to_zoned(TimeZone::UTC);
    let weekend = matches!(time.weekday(), Weekday::Saturday | Weekday::Sunday);
    !weekend && (9..17).contains(&time.hour())
}

async fn until(world: &World, time: Timestamp) {
    let left = time.duration_since(world.now());
    world.pass(Duration::try_from(left).unwrap_or_default()).await;
}
