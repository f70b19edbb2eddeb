use super::*;
use Status::{False, True, Unknown};
use serde_json::{Value, json};

const TEN: Duration = Duration::from_mins(10);
const FALLBACK: RepairPolicy = RepairPolicy::new("Ready", False, TEN);

const fn specific(condition: &'static str, status: Status, reason: &'static str) -> RepairPolicy {
    RepairPolicy { reason, ..RepairPolicy::new(condition, status, TEN) }
}

fn bad(policies: &[RepairPolicy]) -> Vec<String> {
    let bad = RepairRules::new(policies, 20).err().map(|bad| bad.0).unwrap_or_default();
    bad.iter().map(ToString::to_string).collect()
}

#[test]
fn a_set_of_policies_is_refused_with_a_sentence_for_each_mistake() {
    let reboot = |policy| RepairPolicy { action: RepairAction::Reboot, ..policy };
    let priority = |priority, policy| RepairPolicy { priority, ..policy };
    let other = RepairPolicy::new("DiskBroken", True, TEN);
    let cases: [(Vec<RepairPolicy>, &[&str]); 12] = [
        (vec![FALLBACK], &[]),
        (vec![specific("Ready", Unknown, ".*"), FALLBACK], &[]),
        (vec![FALLBACK, reboot(specific("Ready", Unknown, "Stuck"))], &[]),
        (vec![priority(100, FALLBACK)], &[]),
        (
            vec![],
            &[
                "node repair requires the cloud provider to define repair policies, but it defines none",
            ],
        ),
        (
            vec![FALLBACK, specific("", True, ".*")],
            &["repair policy 1 has an empty condition type"],
        ),
        (
            vec![priority(101, FALLBACK)],
            &[
                "repair policy 0, Ready=False (ReplaceNode), has priority 101 outside the supported range [0, 100]",
            ],
        ),
        (
            vec![FALLBACK, specific("A", True, "(")],
            &[
                "repair policy 1, A=True with a reason like \"(\" (ReplaceNode), has an invalid reason regex: unclosed group",
            ],
        ),
        (
            vec![specific("A", True, "x")],
            &["the repair policies must define one default fallback: one with an empty reason"],
        ),
        (
            vec![FALLBACK, other.clone()],
            &[
                "the repair policies have multiple default fallbacks: Ready=False (ReplaceNode) and DiskBroken=True (ReplaceNode)",
            ],
        ),
        (
            vec![reboot(FALLBACK)],
            &[
                "the default fallback policy Ready=False (RebootNode) must use action \"ReplaceNode\"",
            ],
        ),
        (
            vec![priority(200, specific("", True, "["))],
            &[
                "repair policy 0 has an empty condition type",
                "repair policy 0, =True with a reason like \"[\" (ReplaceNode), has priority 200 outside the supported range [0, 100]",
                "repair policy 0, =True with a reason like \"[\" (ReplaceNode), has an invalid reason regex: unclosed character class",
                "the repair policies must define one default fallback: one with an empty reason",
            ],
        ),
    ];
    for (policies, expected) in cases {
        assert_eq!(bad(&policies), expected, "{policies:?}");
    }
    let both = BadPolicies(vec![BadPolicy::NoCondition { place: 0 }, BadPolicy::NoFallback]);
    assert_eq!(both.to_string().matches("; ").count(), 1, "one sentence after the other");
}

fn node(conditions: &[(&str, &str, &str)]) -> Node {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason)| {
            json!({"type": kind, "status": status, "reason": reason,
                   "lastTransitionTime": "2026-01-01T01:00:00Z"})
        })
        .collect();
    let created = "2026-01-01T00:00:00Z";
    serde_json::from_value(json!({
        "metadata": {"creationTimestamp": created}, "status": {"conditions": conditions},
    }))
    .unwrap()
}

#[test]
fn a_condition_is_matched_by_its_reason_and_else_by_the_fallback() {
    let rules = RepairRules::new(
        &[
            FALLBACK,
            specific("Ready", Unknown, ".*"),
            specific("Gpu", True, "Xid(48|63)"),
            specific("Gpu", True, "^Xid"),
            specific("Gpu", True, "Lost$"),
        ],
        20,
    )
    .unwrap();
    let check = |conditions: &[(&str, &str, &str)], expected: &[(&str, &str, bool)]| {
        let found = rules.matches(&node(conditions));
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.condition.as_str(), one.policy.reason, one.is_fallback))
            .collect();
        assert_eq!(shown, expected, "{conditions:?}");
    };
    check(&[], &[]);
    check(&[("Ready", "True", "KubeletReady")], &[]);
    check(&[("Gpu", "False", "Xid48"), ("Other", "True", "Xid48")], &[]);
    check(&[("Ready", "False", "KubeletNotReady")], &[("Ready", "", true)]);
    // An expression for everything is a policy of its own, and no fallback.
    check(&[("Ready", "Unknown", "")], &[("Ready", ".*", false)]);
    // Every policy whose expression finds something, anywhere unless it says where.
    check(&[("Gpu", "True", "HasXid63")], &[("Gpu", "Xid(48|63)", false)]);
    check(&[("Gpu", "True", "Xid48")], &[("Gpu", "Xid(48|63)", false), ("Gpu", "^Xid", false)]);
    // Of a condition that is known as bad, no reason is good.
    check(&[("Gpu", "True", "Hot")], &[("Gpu", "", true)]);
    check(
        &[("Gpu", "True", "Lost"), ("Ready", "False", "x"), ("Disk", "True", "y")],
        &[("Gpu", "Lost$", false), ("Ready", "", true)],
    );
    check(&[("Ready", "Perhaps", "x")], &[]);
}

#[test]
fn a_match_counts_from_when_the_condition_turned_and_never_before_the_node() {
    let rules = RepairRules::new(&[FALLBACK], 20).unwrap();
    let at = |time: &str| -> Timestamp { format!("2026-01-01T{time}Z").parse().unwrap() };
    let check = |turned: Value, created: Value, expected: Timestamp| {
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": turned});
        let node: Node = serde_json::from_value(json!({
            "metadata": {"creationTimestamp": created}, "status": {"conditions": [condition]},
        }))
        .unwrap();
        let [found] = &rules.matches(&node)[..] else { panic!("one match") };
        assert_eq!(found.since, expected, "{turned} {created}");
        found.clone()
    };
    let (noon, one) = (json!("2026-01-01T12:00:00Z"), json!("2026-01-01T13:00:00Z"));
    let turned_last = check(one.clone(), noon.clone(), at("13:00:00"));
    check(noon.clone(), one, at("13:00:00"));
    check(Value::Null, noon, at("12:00:00"));
    check(Value::Null, Value::Null, Timestamp::UNIX_EPOCH);
    assert_eq!(turned_last.eligible_at(None), at("13:10:00"));
    assert_eq!(turned_last.eligible_at(Some(at("12:59:00"))), at("13:10:00"));
    assert_eq!(turned_last.eligible_at(Some(at("13:30:00"))), at("13:40:00"));
}

/// Heartbeats and messages are no part of a match, so that they cannot change one.
#[test]
fn what_a_kubelet_repeats_is_no_change() {
    let rules = RepairRules::new(&[FALLBACK], 20).unwrap();
    let mut beating = node(&[("Ready", "False", "x")]);
    let before = rules.matches(&beating);
    let conditions = beating.status.as_mut().and_then(|status| status.conditions.as_mut());
    for condition in conditions.into_iter().flatten() {
        condition.message = Some("again".into());
        condition.last_heartbeat_time = condition.last_transition_time.clone();
    }
    assert_eq!(rules.matches(&beating), before);
}

#[test]
fn priorities_are_ranked_without_gaps() {
    let with = |priority, reason| RepairPolicy { priority, ..specific("A", True, reason) };
    let policies = [FALLBACK, with(90, "x"), with(7, "y"), with(90, "z")];
    let rules = RepairRules::new(&policies, 20).unwrap();
    let rank = |reason: &str| rules.matches(&node(&[("A", "True", reason)]))[0].rank;
    assert_eq!([rank("none"), rank("y"), rank("x"), rank("z")], [0, 1, 2, 2]);
}
