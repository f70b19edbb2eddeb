use kerf_disruption::{Method, candidate};
use kerf_model::disruption::Obstacle;
use kerf_model::labels::{CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE};

use crate::places::{Place, ago, now, place, pool, snapshot};

/// Whether the node is a candidate, or the message that says why not.
fn check(place: Place, method: Method, expect: Option<&str>) {
    let told = format!("{place:?}");
    let snapshot = snapshot(vec![pool("default")], vec![place]);
    let got = candidate(&snapshot, 0, method).err().map(|why| why.to_string());
    assert_eq!(got.as_deref(), expect, "{method:?} {told}");
}

#[test]
fn every_check_has_its_message() {
    let node = || place("a", 1).runs("p", "100m");
    let block = |place: Place, message: &str| {
        check(place.clone(), Method::SingleNode, Some(message));
        check(place, Method::Drift, Some(message));
    };
    check(node(), Method::SingleNode, None);
    block(Place { in_queue: true, ..node() }, "candidate is already being disrupted");
    block(node().set(|node| node.claim = None), "node isn't managed by karpenter");
    block(node().set(|node| node.exists = false), "nodeclaim does not have an associated node");
    block(node().set(|node| node.initialized = false), "node isn't initialized");
    block(node().set(|node| node.deleting = true), "node is deleting or marked for deletion");
    block(
        Place { nominated_until: "2026-03-04T12:00:01Z".parse().ok(), ..node() },
        "node is nominated for a pending pod (until=2026-03-04T12:00:01Z)",
    );
    check(Place { nominated_until: Some(now()), ..node() }, Method::SingleNode, None);
    block(
        node().set(|node| node.disruption.do_not_disrupt = true),
        "disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation",
    );
    block(
        node().without_label(NODE_POOL),
        "node doesn't have required label (label=karpenter.sh/nodepool)",
    );
    block(node().pool("other"), "NodePool not found (NodePool=other)");
    // What consolidation will miss does not matter here.
    for label in [INSTANCE_TYPE, ZONE, CAPACITY_TYPE] {
        check(node().without_label(label), Method::SingleNode, None);
    }
}

#[test]
fn pods_that_block_are_waived_for_drift_with_a_bounded_drain() {
    let two = Obstacle::SeveralBudgets(vec!["default/a".into(), "default/b".into()]);
    for (obstacle, message) in [
        (
            Obstacle::DoNotDisrupt,
            "pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/p)",
        ),
        (
            Obstacle::Budget("default/b".into()),
            "pdb prevents pod evictions (PodDisruptionBudget=[default/b], Pod=default/p)",
        ),
        (
            two,
            "eviction does not support multiple PDBs (PodDisruptionBudget(s)=[default/a default/b], Pod=default/p)",
        ),
    ] {
        let node = place("a", 1).runs("p", "100m").obstacle(&obstacle);
        let bounded = node.clone().set(|node| {
            node.disruption.termination_grace_period = Some(std::time::Duration::from_mins(1));
        });
        check(node.clone(), Method::SingleNode, Some(message));
        check(node, Method::Drift, Some(message));
        check(bounded.clone(), Method::SingleNode, Some(message));
        check(bounded.clone(), Method::Emptiness, Some(message));
        check(bounded, Method::Drift, None);
    }
}

#[test]
fn the_annotation_is_reported_before_a_budget() {
    let node = place("a", 1)
        .runs("p", "100m")
        .obstacle(&Obstacle::Budget("default/b".into()))
        .runs("q", "100m")
        .obstacle(&Obstacle::DoNotDisrupt);
    let message = "pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/q)";
    check(node, Method::SingleNode, Some(message));
}

#[test]
fn a_pool_without_instance_types_has_no_candidates() {
    let mut pool = pool("default");
    pool.instance_types.clear();
    let snapshot = snapshot(vec![pool], vec![place("a", 1)]);
    let why = candidate(&snapshot, 0, Method::Drift).unwrap_err();
    assert_eq!(
        why.to_string(),
        "the instance types of its NodePool are unknown (NodePool=default)"
    );
}

#[test]
fn a_candidate_knows_its_price_and_cost() {
    let node = place("a", 4).runs("p", "1").runs("q", "1").set(|node| {
        node.disruption.created = Some(ago(30));
        node.disruption.expire_after = Some(std::time::Duration::from_hours(1));
    });
    let snapshot = snapshot(vec![pool("default")], vec![node]);
    let candidate = candidate(&snapshot, 0, Method::SingleNode).unwrap();
    let price = 0.1 * 4.0 + 0.1 * 8.0 * f64::from(1 << 30) / 1e9;
    assert_eq!(candidate.price, kerf_model::Price::from_f64(price));
    assert!((candidate.rescheduling_cost.as_f64() - 3.0).abs() < 1e-9);
    assert!((candidate.disruption_cost.as_f64() - 1.0).abs() < 1e-9);
}
