//! What people do to nodes, claims and pods by hand.

use kerf_testbed::Random;
use serde_json::{Value, json};

use super::{Action, Crowd, MINUTE, choose};

pub(super) fn act(random: &mut Random) -> Vec<(u64, Action)> {
    let which = random.next_u64();
    let patch = |of, patch: Value| Action::PatchOne { of, which, status: false, patch };
    let now = |action| vec![(0, action)];
    match random.below(14) {
        0 | 1 => now(Action::DeleteOne { of: Crowd::Nodes, which }),
        2 | 3 => now(Action::DeleteOne { of: Crowd::Claims, which }),
        4 => now(Action::DeleteOne { of: Crowd::Pods, which }),
        5 | 6 => {
            let drain = Action::Drain { which };
            if random.chance(0.5) {
                let back = patch(Crowd::Nodes, json!({"spec": {"unschedulable": false}}));
                return vec![(0, drain), (random.below(10 * MINUTE), back)];
            }
            now(drain)
        }
        7 => {
            let cordon = |on: bool| patch(Crowd::Nodes, json!({"spec": {"unschedulable": on}}));
            vec![(0, cordon(true)), (random.below(40 * MINUTE), cordon(false))]
        }
        8 => {
            // For a while: whoever forgets such an annotation keeps a node for ever.
            let kept = |value: Value| json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}});
            let of = *choose(random, &[Crowd::Nodes, Crowd::Claims, Crowd::Pods]);
            let later = random.below(60 * MINUTE);
            vec![(0, patch(of, kept(json!("true")))), (later, patch(of, kept(Value::Null)))]
        }
        9 => now(patch(Crowd::Claims, odd_metadata(random))),
        10 => now(patch(Crowd::Nodes, odd_metadata(random))),
        11 => {
            // Somebody is impatient with an object that does not go.
            let finalizers = json!({"metadata": {"finalizers": null}});
            let of = *choose(random, &[Crowd::Nodes, Crowd::Claims]);
            vec![(0, patch(of, finalizers)), (1, Action::DeleteOne { of, which })]
        }
        12 => {
            let mark = json!({"metadata": {"labels": {"karpenter.sh/initialized": null}}});
            now(patch(Crowd::Nodes, mark))
        }
        _ => {
            let taints = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
            now(patch(Crowd::Nodes, json!({"spec": {"taints": taints}})))
        }
    }
}

fn odd_metadata(random: &mut Random) -> Value {
    let long = "x".repeat(1 + usize::try_from(random.below(60)).unwrap_or_default());
    let key = choose(random, &["example.com/team", "karpenter.sh/nodepool-hash", "example.com/ü"]);
    match random.below(3) {
        0 => json!({"metadata": {"labels": {"example.com/team": long}}}),
        1 => json!({"metadata": {"annotations": {*key: long}}}),
        _ => json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": null}}}),
    }
}
