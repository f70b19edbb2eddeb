//! NodePools and their classes, and what users change about them.

use kerf_testbed::Random;
use serde_json::{Value, json};

use super::{Action, MINUTE, choose};

const POOLS: [&str; 3] = ["p0", "p1", "p2"];
const STATIC: &str = "s0";

/// A class and a pool that nobody touches, in which every pod of the plan has a place; others that are preferred to it; and what
/// belongs to another operator.
pub(super) fn first(random: &mut Random) -> Vec<Value> {
    let mut objects = vec![class("default", &json!({})), class("other", &json!({}))];
    let haven = json!({
        "disruption": {"consolidateAfter": "5m", "budgets": [{"nodes": "100%"}]},
        "template": {"spec": {"expireAfter": "Never"}},
    });
    objects.push(pool("haven", "default", haven));
    for name in POOLS {
        let spec = spec(random);
        objects.push(pool(name, "other", spec));
    }
    let mut fixed = json!({
        "replicas": random.below(4),
        "disruption": {"budgets": [{"nodes": choose(random, &["1", "100%", "0"])}]},
        "template": {"spec": {"expireAfter": "Never"}},
    });
    if random.chance(0.5) {
        fixed["limits"] = json!({"nodes": (2 + random.below(4)).to_string()});
    }
    objects.push(pool(STATIC, "other", fixed));
    objects.extend(of_another());
    objects
}

/// Something that a user changes.
pub(super) fn change(random: &mut Random) -> Vec<(u64, Action)> {
    if random.chance(0.15) {
        return change_class(random);
    }
    if random.chance(0.15) {
        let patch = match random.below(4) {
            0 => {
                json!({"spec": {"template": {"metadata": {"labels": {"version": version(random)}}}}})
            }
            1 => json!({"spec": {"limits": {"nodes": random.below(6).to_string()}}}),
            _ => json!({"spec": {"replicas": random.below(5)}}),
        };
        return vec![(0, patch_pool(STATIC, patch))];
    }
    let name = *choose(random, &POOLS);
    if random.chance(0.08) {
        let back = Action::Create(pool(name, "other", spec(random)));
        let gone = Action::Delete { kind: "NodePool".to_owned(), name: name.to_owned() };
        return vec![(0, gone), (random.below(30 * MINUTE), back)];
    }
    let template = |template: Value| json!({"spec": {"template": template}});
    let patch = match random.below(9) {
        0 | 1 => json!({"spec": {"limits": limits(random)}}),
        2 => json!({"spec": {"disruption": {"budgets": budgets(random)}}}),
        3 => json!({"spec": {"template": {"spec": {"requirements": requirements(random)}}}}),
        4 => json!({"spec": {"disruption": controls(random)}}),
        5 => json!({"spec": {"weight": 1 + random.below(100)}}),
        6 => template(json!({"spec": {"taints": taints(random)}})),
        7 => {
            let period = choose(random, &[Some("2m"), Some("20m"), None]);
            template(json!({"spec": {"terminationGracePeriod": period}}))
        }
        _ => template(json!({"metadata": {"labels": {"version": version(random)}}})),
    };
    vec![(0, patch_pool(name, patch))]
}

fn change_class(random: &mut Random) -> Vec<(u64, Action)> {
    let (kind, name) = ("KWOKNodeClass".to_owned(), "other".to_owned());
    let delay = choose(random, &["0s", "20s", "3m", "8m"]);
    if random.chance(0.25) {
        let back = Action::Create(class("other", &json!({"nodeRegistrationDelay": "5s"})));
        return vec![(0, Action::Delete { kind, name }), (random.below(20 * MINUTE), back)];
    }
    let patch = json!({"spec": {"nodeRegistrationDelay": delay}});
    vec![(0, Action::Patch { kind, name, patch })]
}

fn patch_pool(name: &str, patch: Value) -> Action {
    Action::Patch { kind: "NodePool".to_owned(), name: name.to_owned(), patch }
}

fn version(random: &mut Random) -> String {
    format!("v{}", random.below(1_000))
}

fn spec(random: &mut Random) -> Value {
    let mut disruption = controls(random);
    disruption["budgets"] = budgets(random);
    let mut template = json!({"requirements": requirements(random), "expireAfter": "Never"});
    if random.chance(0.1) {
        template["expireAfter"] = json!(choose(random, &["2h", "7h"]));
    }
    if random.chance(0.3) {
        template["terminationGracePeriod"] = json!(choose(random, &["90s", "10m"]));
    }
    if random.chance(0.2) {
        template["taints"] = taints(random);
    }
    json!({
        "weight": 1 + random.below(100), "disruption": disruption, "limits": limits(random),
        "template": {"spec": template},
    })
}

fn taints(random: &mut Random) -> Value {
    let effect = choose(random, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
    if random.chance(0.5) { json!([{"key": "dedicated", "effect": effect}]) } else { json!([]) }
}

fn limits(random: &mut Random) -> Value {
    match random.below(6) {
        0 => Value::Null,
        1 => json!({"nodes": random.below(6).to_string()}),
        2 => json!({"cpu": (1 + random.below(40)).to_string(), "memory": "200Gi"}),
        3 => json!({"memory": format!("{}Gi", 4 + random.below(100))}),
        _ => json!({"cpu": (4 + random.below(60)).to_string()}),
    }
}

fn budgets(random: &mut Random) -> Value {
    match random.below(7) {
        0 => json!([{"nodes": "0"}]),
        1 => json!([{"nodes": "1"}]),
        2 => json!([{"nodes": "10%"}]),
        3 => json!([{"nodes": "50%"}, {"nodes": "1", "reasons": ["Drifted"]}]),
        4 => json!([{"nodes": "2"}, {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}]),
        5 => json!([{"nodes": "0", "reasons": ["Underutilized"]}, {"nodes": "3"}]),
        _ => json!([{"nodes": "100%"}]),
    }
}

fn controls(random: &mut Random) -> Value {
    let policy = choose(random, &["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]);
    let policy = if random.chance(0.5) { &"WhenEmptyOrUnderutilized" } else { policy };
    let after = choose(random, &["0s", "30s", "5m", "5m", "Never"]);
    let mut controls = json!({"consolidationPolicy": policy, "consolidateAfter": after});
    let mut sometimes = |name: &str, values: &[Value]| {
        if random.chance(0.25) {
            controls[name] = choose(random, values).clone();
        }
    };
    sometimes("consolidationUtilizationThreshold", &[json!(0.3), json!(0.75), json!(1.0)]);
    sometimes("consolidationPriceImprovementFactor", &[json!(0.0), json!(0.8), json!(1.0)]);
    sometimes("consolidationSavingsThreshold", &[json!(0.0), json!(0.01), json!(5.0)]);
    sometimes("consolidationGracePeriod", &[json!("2m"), json!("10m"), json!("Never")]);
    controls
}

fn requirements(random: &mut Random) -> Value {
    const ARCHITECTURES: [&[&str]; 3] = [&["amd64"], &["arm64", "amd64"], &["arm64"]];
    const CAPACITY_TYPES: [&[&str]; 3] = [&["on-demand"], &["spot"], &["spot", "on-demand"]];
    let is_in =
        |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let mut all = vec![is_in("kubernetes.io/os", &["linux"])];
    let architectures = *choose(random, &ARCHITECTURES);
    let capacity_types = *choose(random, &CAPACITY_TYPES);
    all.push(is_in("kubernetes.io/arch", architectures));
    all.push(is_in("karpenter.sh/capacity-type", capacity_types));
    if random.chance(0.25) {
        all.push(is_in("topology.kubernetes.io/zone", &["test-zone-a", "test-zone-c"]));
    }
    if random.chance(0.25) {
        all.push(json!({
            "key": "karpenter.kwok.sh/instance-cpu", "operator": choose(random, &["Lt", "Gt"]),
            "values": [choose(random, &["3", "9", "17"])],
        }));
    }
    if random.chance(0.1) {
        all.push(json!({"key": "karpenter.kwok.sh/instance-family", "operator": "Exists", "minValues": 2}));
    }
    json!(all)
}

fn pool(name: &str, class: &str, changes: Value) -> Value {
    let mut template = changes["template"].clone();
    if template.is_null() {
        template = json!({});
    }
    template["spec"]["nodeClassRef"] =
        json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": class});
    if template["spec"]["requirements"].is_null() {
        template["spec"]["requirements"] = json!([
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
        ]);
    }
    let mut spec = changes;
    spec["template"] = template;
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec,
    })
}

fn class(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// A pool, a claim and a node of another operator, with a pod on it. The node is in a zone that we have: in one where nothing can be
/// launched no pod could ever run, and pods that are spread over zones would wait for it.
fn of_another() -> Vec<Value> {
    let class = json!({"group": "example.com", "kind": "Other", "name": "o"});
    let mut theirs = pool("theirs", "o", json!({}));
    theirs["spec"]["template"]["spec"]["nodeClassRef"] = class.clone();
    let labels = json!({
        "karpenter.sh/nodepool": "theirs", "example.com/other": "o", "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "huge",
        "topology.kubernetes.io/zone": "test-zone-d", "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
    });
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "theirs", "labels": labels, "finalizers": ["karpenter.sh/termination"]},
        "spec": {"nodeClassRef": class, "requirements": []},
    });
    let amounts = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "theirs", "labels": labels, "finalizers": ["karpenter.sh/termination"],
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {
            "providerID": "other://theirs",
            "taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}],
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "theirs", "namespace": "default", "labels": {"app": "theirs"}},
        "spec": {"nodeName": "theirs", "containers": [{"name": "main", "image": "main"}]},
    });
    vec![theirs, claim, node, pod]
}

/// A pool of the class that users change.
pub(super) fn bare(name: &str) -> Value {
    pool(name, "other", json!({}))
}

/// A claim that no pool asked for.
pub(super) fn stray(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
        "spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "other"},
            "requirements": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            ],
        },
    })
}
