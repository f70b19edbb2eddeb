//! Each rule is broken once, and kept by the case beside it.

use serde_json::{Value, json};

use super::*;

const HOUR: Millis = 3_600_000;

fn claim(name: &str, conditions: &[(&str, &str)], more: &Value) -> Value {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(kind, reason)| json!({"type": kind, "status": "True", "reason": reason}))
        .collect();
    let mut claim = json!({
        "metadata": {
            "uid": name, "labels": {"karpenter.sh/nodepool": "p"},
            "finalizers": ["karpenter.sh/termination"],
        },
        "status": {"conditions": conditions, "nodeName": name, "capacity": {"cpu": "4"}},
    });
    for (pointer, value) in more.as_object().into_iter().flatten() {
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        claim.pointer_mut(parent).expect("a parent")[field] = value.clone();
    }
    claim
}

const READY: [(&str, &str); 2] = [("Launched", "Launched"), ("Initialized", "Initialized")];
const MARKED: [(&str, &str); 3] =
    [("Launched", "Launched"), ("Initialized", "Initialized"), ("DisruptionReason", "Empty")];

fn node(name: &str, tainted: bool) -> Value {
    let taints = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
    json!({
        "metadata": {"annotations": {"karpenter.kwok.sh/nodeclaim-uid": name}},
        "spec": {"taints": if tainted { taints } else { json!([]) }},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pool(limits: &Value, budget: &str) -> Value {
    json!({"spec": {"limits": limits, "disruption": {"budgets": [{"nodes": budget}]}}})
}

fn pod(on: &str, protects: bool) -> Value {
    let annotations = json!({"karpenter.sh/do-not-disrupt": "true"});
    json!({
        "metadata": {
            "annotations": if protects { annotations } else { json!({}) },
            "labels": {"can-run": "true"},
        },
        "spec": {"nodeName": on}, "status": {"phase": if on.is_empty() { "Pending" } else { "Running" }},
    })
}

/// A pool with a limit of 8 CPUs and a budget of one node, and two nodes of it.
fn two_nodes() -> Checker {
    let mut checker = Checker::default();
    checker.saw(0, "nodepools", "p", &pool(&json!({"cpu": "8"}), "1"), false);
    for name in ["a", "b"] {
        checker.saw(0, "nodeclaims", name, &claim(name, &READY, &json!({})), false);
        checker.saw(0, "nodes", name, &node(name, false), false);
    }
    assert_eq!(checker.violations(), []);
    checker
}

/// The operator disrupts a node: first the taint, then the reason.
fn disrupts(checker: &mut Checker, now: Millis, name: &str, conditions: &[(&str, &str)]) {
    checker.saw(now, "nodes", name, &node(name, true), false);
    checker.saw(now, "nodeclaims", name, &claim(name, conditions, &json!({})), false);
}

fn found(checker: &Checker) -> Vec<Invariant> {
    checker.violations().iter().map(|it| it.invariant).collect()
}

fn sent(checker: &mut Checker, now: Millis, who: &str, call: [&str; 4]) {
    let [verb, resource, subresource, key] = call;
    checker.sent(now, &Sent { who, verb, resource, subresource, key, uid: None });
}

#[test]
fn a_launch_beyond_the_limit() {
    let mut checker = two_nodes();
    checker.saw(HOUR, "nodeclaims", "c", &claim("c", &READY, &json!({})), false);
    assert_eq!(found(&checker), [Invariant::LimitsKept]);
    // One of the others was being replaced when it came.
    let mut checker = two_nodes();
    disrupts(&mut checker, HOUR, "a", &MARKED);
    checker.saw(HOUR, "nodeclaims", "c", &claim("c", &READY, &json!({})), false);
    assert_eq!(found(&checker), []);
    // The limit was lowered a moment ago.
    let mut checker = two_nodes();
    checker.saw(HOUR, "nodepools", "p", &pool(&json!({"cpu": "12"}), "1"), false);
    checker.saw(2 * HOUR, "nodepools", "p", &pool(&json!({"cpu": "1"}), "1"), false);
    checker.saw(2 * HOUR + 1, "nodeclaims", "c", &claim("c", &READY, &json!({})), false);
    assert_eq!(found(&checker), []);
}

#[test]
fn a_disruption_beyond_the_budget() {
    let mut checker = two_nodes();
    disrupts(&mut checker, HOUR, "a", &MARKED);
    assert_eq!(found(&checker), []);
    disrupts(&mut checker, 2 * HOUR, "b", &MARKED);
    assert_eq!(found(&checker), [Invariant::BudgetsKept]);
    // The instance of the first is told to end: it counts no longer.
    let mut checker = two_nodes();
    let ending = [MARKED.as_slice(), &[("InstanceTerminating", "InstanceTerminating")]].concat();
    disrupts(&mut checker, HOUR, "a", &ending);
    disrupts(&mut checker, 2 * HOUR, "b", &MARKED);
    assert_eq!(found(&checker), []);
}

/// While nothing comes between them and the API server, operators know of what happened seconds ago.
#[test]
fn what_an_operator_has_to_know() {
    let deleted = json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"});
    for (is_troubled, age, expected) in [
        (false, SHORT_LAG, vec![Invariant::BudgetsKept]),
        (false, SHORT_LAG - 1, vec![]),
        (true, LAG - 1, vec![]),
        (true, LAG, vec![Invariant::BudgetsKept]),
    ] {
        let mut checker = two_nodes();
        checker.saw(HOUR - age, "nodeclaims", "a", &claim("a", &READY, &deleted), false);
        if is_troubled {
            checker.is_troubled(HOUR - 1);
        }
        disrupts(&mut checker, HOUR, "b", &MARKED);
        assert_eq!(found(&checker), expected, "{is_troubled} {age}");
    }
}

#[test]
fn a_node_without_a_taint_that_is_disrupted() {
    let mut checker = two_nodes();
    checker.saw(HOUR, "nodeclaims", "a", &claim("a", &MARKED, &json!({})), false);
    assert_eq!(found(&checker), [Invariant::TaintBeforeDisruption]);
}

#[test]
fn a_protected_pod_on_a_node_that_is_disrupted() {
    for (since, expected) in [(HOUR, vec![Invariant::DoNotDisruptKept]), (2 * HOUR - 1, vec![])] {
        let mut checker = two_nodes();
        checker.saw(since, "pods", "default/x", &pod("a", true), false);
        disrupts(&mut checker, 2 * HOUR, "a", &MARKED);
        assert_eq!(found(&checker), expected, "{since}");
    }
}

#[test]
fn evictions() {
    let evict = ["create", "pods", "eviction", "default/x"];
    // Whether the pod is protected, whether the node is tainted.
    for (protects, tainted, expected) in [
        (false, true, vec![]),
        (false, false, vec![Invariant::TaintBeforeEviction]),
        (true, true, vec![Invariant::DoNotDisruptKept]),
    ] {
        let mut checker = two_nodes();
        checker.saw(1, "pods", "default/x", &pod("a", protects), false);
        checker.saw(2, "nodes", "a", &node("a", tainted), false);
        sent(&mut checker, HOUR, "first", evict);
        checker.tick(2 * HOUR);
        assert_eq!(found(&checker), expected, "{protects} {tainted}");
    }
    // The one with this uid is meant, and no other of its name.
    for (uid, expected) in [("x", vec![Invariant::TaintBeforeEviction]), ("another", vec![])] {
        let mut checker = two_nodes();
        let mut x = pod("a", false);
        x["metadata"]["uid"] = json!("x");
        checker.saw(1, "pods", "default/x", &x, false);
        let [verb, resource, subresource, key] = evict;
        let call = Sent { who: "first", verb, resource, subresource, key, uid: Some(uid) };
        checker.sent(HOUR, &call);
        checker.tick(2 * HOUR);
        assert_eq!(found(&checker), expected, "{uid}");
    }
    for (grace, expected) in
        [(json!("5m"), vec![]), (Value::Null, vec![Invariant::EvictionsThroughTheApi])]
    {
        let mut checker = two_nodes();
        let mut a = claim("a", &READY, &json!({}));
        a["spec"] = json!({"terminationGracePeriod": grace});
        checker.saw(1, "nodeclaims", "a", &a, false);
        checker.saw(1, "pods", "default/x", &pod("a", false), false);
        sent(&mut checker, HOUR, "first", ["delete", "pods", "", "default/x"]);
        assert_eq!(found(&checker), expected, "{grace}");
    }
}

#[test]
fn a_write_while_another_leads() {
    let mut checker = two_nodes();
    let patch = ["patch", "nodes", "", "a"];
    checker.leads(1, "first");
    sent(&mut checker, 2, "first", patch);
    checker.leads(3, "second");
    sent(&mut checker, 4, "second", patch);
    sent(&mut checker, 5, "first", ["patch", "leases", "", "default/kerf"]);
    sent(&mut checker, 5, "first", ["list", "nodes", "", ""]);
    assert_eq!(found(&checker), []);
    sent(&mut checker, 6, "first", patch);
    assert_eq!(found(&checker), [Invariant::OneWriter]);
}

#[test]
fn instances_and_their_claims() {
    let mut checker = two_nodes();
    checker.saw(1, "nodes", "c", &node("a", false), false);
    assert_eq!(found(&checker), [Invariant::OneInstancePerClaim]);

    let mut checker = two_nodes();
    let bare = json!({"/metadata/finalizers": []});
    checker.saw(1, "nodeclaims", "c", &claim("c", &[], &bare), false);
    checker.saw(2, "nodes", "c", &node("c", false), false);
    assert!(found(&checker).contains(&Invariant::FinalizerBeforeInstance));

    let mut checker = two_nodes();
    checker.saw(1, "nodeclaims", "a", &claim("a", &READY, &json!({})), true);
    checker.is_at_rest(3 * HOUR, 0);
    assert_eq!(found(&checker), [Invariant::InstancesHaveClaims]);

    let mut checker = two_nodes();
    checker.saw_instances(1, vec![instance("nodeless://x", "x", true)]);
    checker.is_at_rest(3 * HOUR, 0);
    assert_eq!(found(&checker), [Invariant::InstancesHaveClaims]);
}

fn instance(id: &str, uid: &str, is_alive: bool) -> Instance {
    Instance { id: id.to_owned(), claim_uid: uid.to_owned(), is_alive }
}

/// A claim `c` whose instance is no Node of ours to see, as on AWS.
fn with_instance(id: &str) -> Checker {
    let mut checker = Checker::default();
    let id = json!({"/status/providerID": format!("aws:///us-west-2a/{id}")});
    checker.saw(1, "nodeclaims", "c", &claim("c", &READY, &id), false);
    checker
}

#[test]
fn instances_of_an_account() {
    let (one, other) = (instance("i-1", "c", true), instance("i-2", "c", true));
    let ended = instance("i-1", "c", false);
    let cases = [
        (vec![vec![one.clone()]], vec![]),
        (vec![vec![one.clone(), other.clone()]], vec![Invariant::OneInstancePerClaim; 2]),
        // The first has ended before its claim knew of it, and the claim got a second one.
        (vec![vec![ended.clone()], vec![ended.clone(), other]], vec![Invariant::ClaimsEnd]),
        (vec![vec![one.clone()], vec![ended]], vec![Invariant::ClaimsEnd]),
        // AWS has forgotten it.
        (vec![vec![one], vec![]], vec![Invariant::ClaimsEnd]),
        (vec![vec![instance("i-1", "c", true), instance("i-3", "", true)]], vec![]),
    ];
    for (place, (looks, expected)) in cases.into_iter().enumerate() {
        let mut checker = with_instance("i-1");
        for (second, look) in (2..).zip(looks) {
            checker.saw_instances(second * 1_000, look);
        }
        checker.is_at_rest(3 * HOUR, 0);
        assert_eq!(found(&checker), expected, "case {place}");
    }

    let mut checker = Checker::default();
    let bare = json!({"/metadata/finalizers": []});
    checker.saw(1, "nodeclaims", "c", &claim("c", &[], &bare), false);
    checker.saw_instances(2, vec![instance("i-1", "c", true)]);
    assert_eq!(found(&checker), [Invariant::FinalizerBeforeInstance]);
    // It had one when it was launched.
    let mut checker = with_instance("i-1");
    checker.saw(2, "nodeclaims", "c", &claim("c", &READY, &bare), false);
    checker.saw_instances(3, vec![instance("i-1", "c", true)]);
    assert_eq!(found(&checker), []);
}

#[test]
fn an_instance_without_a_claim_is_collected_in_calm() {
    let minute = HOUR / 60;
    for (until, expected) in [(20, vec![]), (22, vec![Invariant::InstancesHaveClaims])] {
        let mut checker = with_instance("i-1");
        checker.saw(2, "nodeclaims", "c", &claim("c", &READY, &json!({})), true);
        // While things go wrong there is no time by which it has to be gone.
        checker.saw_instances(10 * HOUR, vec![instance("i-1", "c", true)]);
        assert_eq!(found(&checker), []);
        checker.is_calm(10 * HOUR);
        for at in 1..=until {
            let one = instance("i-1", "c", true);
            checker.saw_instances(10 * HOUR + at * minute, vec![one]);
        }
        assert_eq!(found(&checker), expected, "{until}");
    }
}

#[test]
fn what_belongs_to_others() {
    let mut checker = two_nodes();
    sent(&mut checker, 1, "first", ["patch", "nodes", "", "theirs"]);
    assert_eq!(found(&checker), [Invariant::ForeignUntouched]);
}

#[test]
fn refusals_without_a_name() {
    let mut checker = two_nodes();
    let nameless = json!({"type": "Ready", "status": "False", "reason": ""});
    let pool = json!({"status": {"conditions": [nameless]}});
    checker.saw(1, "nodepools", "q", &pool, false);
    let event = json!({"source": {"component": "karpenter"}, "reason": "x", "message": ""});
    checker.saw(1, "events", "default/e", &event, false);
    assert_eq!(found(&checker), [Invariant::RefusalsNamed; 2]);
}

#[test]
fn what_is_not_at_rest() {
    type Change = fn(&mut Checker, &Value);
    let deleted = json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"});
    let cases: [(Change, Option<Invariant>); 6] = [
        (|_, _| {}, None),
        (
            |it, deleted| it.saw(1, "nodeclaims", "a", &claim("a", &READY, deleted), false),
            Some(Invariant::ClaimsEnd),
        ),
        (
            |it, deleted| {
                it.saw(1, "nodeclaims", "a", &claim("a", &READY, deleted), false);
                it.saw(1, "pods", "default/x", &pod("a", true), false);
            },
            None,
        ),
        (
            |it, _| it.saw(1, "nodeclaims", "a", &claim("a", &[], &json!({})), false),
            Some(Invariant::ClaimsEnd),
        ),
        (|it, _| it.saw(1, "nodes", "a", &node("a", true), false), Some(Invariant::TaintsEnd)),
        (|it, _| it.saw(1, "pods", "default/x", &pod("", false), false), Some(Invariant::PodsRun)),
    ];
    for (place, (change, expected)) in cases.into_iter().enumerate() {
        let mut checker = two_nodes();
        change(&mut checker, &deleted);
        checker.is_at_rest(3 * HOUR, 0);
        assert_eq!(found(&checker), Vec::from_iter(expected), "case {place}");
    }
}

#[test]
fn commands_in_calm() {
    for (at, expected) in [(HOUR, vec![]), (3 * HOUR - 1, vec![Invariant::Settles])] {
        let mut checker = two_nodes();
        disrupts(&mut checker, at, "a", &MARKED);
        checker.saw(at, "nodeclaims", "a", &claim("a", &READY, &json!({})), true);
        checker.saw(at, "nodes", "a", &node("a", true), true);
        checker.is_at_rest(3 * HOUR, 0);
        assert_eq!(found(&checker), expected, "{at}");
    }
}

#[test]
fn writes_in_calm() {
    for (each, verb, expected) in [
        (60_000, "patch", vec![]),
        (10_000, "patch", vec![Invariant::WritesEnd]),
        (10_000, "create", vec![]),
    ] {
        let mut checker = two_nodes();
        checker.is_calm(HOUR);
        for at in (HOUR..2 * HOUR).step_by(each) {
            sent(&mut checker, at, "first", [verb, "nodeclaims", "status", "a"]);
        }
        checker.is_at_rest(2 * HOUR, HOUR);
        assert_eq!(found(&checker), expected, "{verb} each {each} ms");
        // What was done in one calm does not count in the next.
        checker.is_calm(3 * HOUR);
        checker.is_at_rest(4 * HOUR, 3 * HOUR);
        assert_eq!(found(&checker), expected);
    }
}
