//! Objects that no reasonable person makes and that the API server accepts. None of them can run, and none may harm another.

use kerf_testbed::Random;
use serde_json::{Value, json};

use super::{Action, Crowd, MINUTE, choose};

pub(super) fn act(random: &mut Random) -> Vec<(u64, Action)> {
    let which = random.next_u64();
    let name = format!("hostile-{}", random.below(100_000));
    let of = *choose(random, &[Crowd::Nodes, Crowd::Claims, Crowd::Pods]);
    let object = match random.below(11) {
        0 | 1 => return vec![(0, Action::Spoil { of, which })],
        2 => return vec![(0, Action::Pretend { which })],
        3 => amount(random, &name),
        4 => {
            let terms = choose(random, &[100, 400, 3_000]);
            let terms: Vec<_> = (0..*terms).map(term).collect();
            let kind = choose(random, &["podAffinity", "podAntiAffinity"]);
            pod(
                &name,
                json!({"affinity": {*kind: {
                    "preferredDuringSchedulingIgnoredDuringExecution": terms,
                }}}),
            )
        }
        5 => {
            let expressions: Vec<_> = (0..300)
                .map(|at| {
                    json!({"key": format!("example.com/{at}"), "operator": "In", "values": ["a"]})
                })
                .collect();
            let terms: Vec<_> =
                expressions.iter().map(|it| json!({"matchExpressions": [it]})).collect();
            pod(
                &name,
                json!({"affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                }}}),
            )
        }
        6 => {
            let endless = choose(random, &["10000000000000000000", "1e18", "9Ei", "0"]);
            let limits = json!({"cpu": endless, "memory": endless});
            let mut pool = super::pools::bare(&name);
            pool["spec"]["limits"] = limits;
            pool["spec"]["weight"] = json!(1);
            pool
        }
        7 => {
            let keys = ["nodeName", "schedulerName"];
            let key = *choose(random, &keys);
            pod(&name, json!({key: "nobody"}))
        }
        8 => pod(&name, json!({"nodeSelector": {"kubernetes.io/hostname": "nowhere"}})),
        9 => {
            // A claim that no pool asked for.
            let mut claim = super::pools::stray(&name);
            claim["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
            claim
        }
        _ => {
            let mut pool = super::pools::bare(&name);
            pool["spec"]["template"]["spec"]["requirements"] = json!([
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["none-such"]},
            ]);
            pool["spec"]["weight"] = json!(100);
            pool
        }
    };
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let later = MINUTE + random.below(90 * MINUTE);
    vec![(0, Action::Create(object)), (later, Action::Delete { kind, name })]
}

/// More than any machine has.
fn amount(random: &mut Random, name: &str) -> Value {
    let resource = choose(random, &["cpu", "memory", "example.com/gpu", "ephemeral-storage"]);
    let amount = choose(random, &["50000000000000000", "8Ei", "1e18", "100000"]);
    pod(
        name,
        json!({"containers": [{
            "name": "main", "image": "main", "resources": {
                "requests": {*resource: amount}, "limits": {*resource: amount},
            },
        }]}),
    )
}

fn term(at: u32) -> Value {
    json!({"weight": 1, "podAffinityTerm": {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": at.to_string()}},
    }})
}

fn pod(name: &str, changes: Value) -> Value {
    let mut spec = json!({"containers": [{
        "name": "main", "image": "main", "resources": {"requests": {"cpu": "100m"}},
    }]});
    if let (Some(spec), Value::Object(changes)) = (spec.as_object_mut(), changes) {
        spec.extend(changes);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}}, "spec": spec,
    })
}
