//! For each constraint an object that meets it and one that does not.

use serde_json::{Value, json};

use crate::{
    case::{Case, Cases, Kind, base, merged},
    ec2_node_class, node_overlay,
};

pub(crate) const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
const DURATION: &str = "^([0-9]+(s|m|h))+$";
const DURATION_OR_NEVER: &str = "^(([0-9]+(s|m|h))+|Never)$";
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
const REASON_OR_NONE: &str = "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$";

pub(crate) const KARPENTER_DOMAIN: &str = r#"label domain "karpenter.sh" is restricted"#;
const KWOK_DOMAIN: &str = r#"label domain "karpenter.kwok.sh" is restricted"#;
const AWS_DOMAIN: &str = r#"label domain "karpenter.k8s.aws" is restricted"#;
const POOL_LABEL: &str = r#"label "karpenter.sh/nodepool" is restricted"#;
pub(crate) const HOSTNAME_LABEL: &str = r#"label "kubernetes.io/hostname" is restricted"#;

pub(crate) fn cases() -> Vec<Case> {
    use Kind::{KwokNodeClass, NodeClaim, NodePool};
    let mut cases = Cases::default();
    pool(&mut cases);
    disruption(&mut cases);
    for (kind, node) in [(NodePool, "/spec/template/spec"), (NodeClaim, "/spec")] {
        for list in ["taints", "startupTaints"] {
            taint(&mut cases, kind, &format!("{node}/{list}/0"));
        }
        requirements(&mut cases, kind, node);
        node_class_reference(&mut cases, kind, node);
        cases.pattern(kind, &format!("{node}/terminationGracePeriod"), DURATION, "1h30m", "Never");
        cases.pattern(kind, &format!("{node}/terminationGracePeriod"), DURATION, "0s", "-1s");
        for (good, bad) in [("1h30m", "1d"), ("Never", "never"), ("0s", "1.5h"), ("60m", "")] {
            cases.pattern(kind, &format!("{node}/expireAfter"), DURATION_OR_NEVER, good, bad);
        }
    }
    claim(&mut cases);
    cases.pattern(KwokNodeClass, "/spec/nodeRegistrationDelay", DURATION, "30s", "Never");
    for kind in [NodePool, NodeClaim, KwokNodeClass] {
        condition(&mut cases, kind, "/status/conditions/0");
    }
    ec2_node_class::all(&mut cases);
    node_overlay::all(&mut cases);
    for kind in [NodePool, NodeClaim] {
        let ready = base(kind)["status"]["conditions"][0].clone();
        let mut other = ready.clone();
        other["type"] = json!("Other");
        cases.value(
            kind,
            "/status/conditions",
            "unique",
            "Duplicate value",
            json!([ready, other]),
            json!([ready, ready]),
        );
    }
    cases.into_vec()
}

fn pool(cases: &mut Cases) {
    let kind = Kind::NodePool;
    cases.required(kind, "", "spec");
    cases.required(kind, "/spec", "template");
    cases.required(kind, "/spec/template", "spec");
    cases.minimum(kind, "/spec/weight", 1, json!(0));
    cases.maximum(kind, "/spec/weight", 100, json!(101));
    cases.quantity(kind, "/spec/limits/cpu");
    cases.quantity(kind, "/status/resources/cpu");

    let labels = "/spec/template/metadata/labels";
    let many = |count: usize| {
        (0..count).map(|index| (format!("label-{index}"), json!("a"))).collect::<Value>()
    };
    cases.value(
        kind,
        labels,
        "maxProperties 100",
        "must have at most 100 items",
        many(100),
        many(101),
    );
    cases.pattern(kind, &format!("{labels}/team"), LABEL_VALUE, "", "-a");
    cases.pattern(kind, &format!("{labels}/team"), LABEL_VALUE, "a.b_c-D", "a/b");
    longest(cases, kind, &format!("{labels}/team"), 63);
    let label =
        |key: &str| json!({ "spec": { "template": { "metadata": { "labels": { key: "a" } } } } });
    for (message, good, bad) in [
        (KARPENTER_DOMAIN, "karpenter.sh/capacity-type", "karpenter.sh/other"),
        (KARPENTER_DOMAIN, "karpenter.shop/other", "sub.karpenter.sh/other"),
        (KARPENTER_DOMAIN, "example.com/karpenter.sh", "notkarpenter.sh/other"),
        (KARPENTER_DOMAIN, "karpenter", "karpenter.sh"),
        (POOL_LABEL, "nodepool", "karpenter.sh/nodepool"),
        (HOSTNAME_LABEL, "hostname", "kubernetes.io/hostname"),
        (AWS_DOMAIN, "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-colour"),
        (AWS_DOMAIN, "karpenter.k8s.aws/ec2nodeclass", "sub.karpenter.k8s.aws/instance-cpu"),
    ] {
        cases.rule(kind, labels, message, &label(good), &label(bad));
    }

    let static_pool = |changes: Value| {
        merged(json!({ "spec": { "replicas": 1, "weight": null, "limits": null } }), &changes)
    };
    let with = |changes: Value| static_pool(json!({ "spec": changes }));
    {
        let minimum = "should be greater than or equal to 0";
        let object = |replicas: i64| {
            merged(kind.object("new", &base(kind)), &with(json!({ "replicas": replicas })))
        };
        cases.push(kind, "/spec/replicas", "minimum 0", minimum, None, object(0), object(-1));
    }
    let message = "only 'limits.nodes' is supported on static NodePools";
    cases.rule(
        kind,
        "/spec",
        message,
        &with(json!({})),
        &with(json!({ "limits": { "cpu": "1" } })),
    );
    cases.rule(
        kind,
        "/spec",
        message,
        &with(json!({ "limits": { "nodes": "1", "cpu": null } })),
        &with(json!({ "limits": { "nodes": "1", "cpu": "1" } })),
    );
    cases.rule(
        kind,
        "/spec",
        message,
        &json!({ "spec": { "limits": { "cpu": null } } }),
        &with(json!({ "limits": { "cpu": "1" } })),
    );
    let message = "'weight' is not supported on static NodePools";
    cases.rule(kind, "/spec", message, &with(json!({})), &with(json!({ "weight": 1 })));
    let message = "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes";
    let dynamic = json!({ "spec": { "weight": null, "limits": null } });
    let replicas = |replicas: Value| json!({ "spec": { "replicas": replicas } });
    cases.change(
        kind,
        "/spec",
        message,
        &with(json!({})),
        &replicas(json!(5)),
        &replicas(Value::Null),
    );
    cases.change(
        kind,
        "/spec",
        message,
        &dynamic,
        &json!({ "spec": { "weight": 5 } }),
        &replicas(json!(0)),
    );
}

fn disruption(cases: &mut Cases) {
    let kind = Kind::NodePool;
    let at = |field: &str| format!("/spec/disruption/{field}");
    for (good, bad) in [("1h30m", "1d"), ("Never", "never"), ("0s", "-1s"), ("60m", "1.5h")] {
        cases.pattern(kind, &at("consolidateAfter"), DURATION_OR_NEVER, good, bad);
        cases.pattern(kind, &at("consolidationGracePeriod"), DURATION_OR_NEVER, good, bad);
    }
    cases.one_of(
        kind,
        &at("consolidationPolicy"),
        &["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"],
        &["balanced", "", "1"],
    );
    for field in ["consolidationUtilizationThreshold", "consolidationPriceImprovementFactor"] {
        cases.minimum(kind, &at(field), 0, json!(-0.01));
        cases.maximum(kind, &at(field), 1, json!(1.01));
    }
    cases.minimum(kind, &at("consolidationSavingsThreshold"), 0, json!(-0.01));
    cases.maximum(kind, &at("consolidationSavingsThreshold"), 100_000, json!(100_000.01));

    let budget = |changes: Value| merged(json!({ "nodes": "1" }), &changes);
    let budgets = |count: usize| Value::Array(vec![budget(json!({})); count]);
    cases.value(
        kind,
        &at("budgets"),
        "maxItems 50",
        "must have at most 50 items",
        budgets(50),
        budgets(51),
    );
    let nodes = "^((100|[0-9]{1,2})%|[0-9]+)$";
    for (good, bad) in [("0", "-1"), ("100%", "101%"), ("5%", "5 %"), ("1000", "half")] {
        cases.pattern(kind, &at("budgets/0/nodes"), nodes, good, bad);
    }
    let schedule = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";
    // `@dailyxyz` is accepted by Karpenter, too: the pattern is anchored in part only.
    for (good, bad) in [("@daily", "daily"), ("0 9 * * 1-5", "0 9 * *"), ("@dailyxyz", "@reboot")] {
        cases.pattern(kind, &at("budgets/0/schedule"), schedule, good, bad);
    }
    let duration = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
    for (good, bad) in [("10m", "10s"), ("1h", "1d"), ("1h30m", "30m1h"), ("1h30m0s", "Never")] {
        cases.pattern(kind, &at("budgets/0/duration"), duration, good, bad);
    }
    cases.one_of(
        kind,
        &at("budgets/0/reasons/0"),
        &["Underutilized", "Empty", "Drifted", "Unhealthy"],
        &["empty", "unhealthy", "Expired", ""],
    );
    // More than four different reasons do not exist, and a set has none twice; so the bound shows
    // only together with that.
    let many = |count: usize| Value::Array(vec![json!("Empty"); count]);
    cases.value(
        kind,
        &at("budgets/0/reasons"),
        "maxItems 50",
        "must have at most 50 items",
        json!(["Empty"]),
        many(51),
    );
    cases.value(
        kind,
        &at("budgets/0/reasons"),
        "unique",
        "Duplicate value",
        json!(["Empty", "Drifted"]),
        json!(["Empty", "Empty"]),
    );
    let message = "'schedule' must be set with 'duration'";
    let both = budget(json!({ "schedule": "@daily", "duration": "1h" }));
    let without_duration = budget(json!({ "schedule": "@daily" }));
    let without_schedule = budget(json!({ "duration": "1h" }));
    let list = |budgets: Value| json!({ "spec": { "disruption": { "budgets": budgets } } });
    let neither = budget(json!({}));
    cases.rule(
        kind,
        &at("budgets"),
        message,
        &list(json!([both, neither])),
        &list(json!([both, without_duration])),
    );
    cases.rule(kind, &at("budgets"), message, &list(json!([])), &list(json!([without_schedule])));
}

fn taint(cases: &mut Cases, kind: Kind, at: &str) {
    cases.required(kind, at, "key");
    cases.required(kind, at, "effect");
    let field = |name: &str| format!("{at}/{name}");
    for (good, bad) in
        [("example.com/a", "a b"), ("A_b.c-d", "-a"), ("a", "a/b/c"), ("0", "A.com/b")]
    {
        cases.pattern(kind, &field("key"), QUALIFIED_NAME, good, bad);
        cases.pattern(kind, &field("value"), QUALIFIED_NAME, good, bad);
    }
    cases.value(
        kind,
        &field("key"),
        "minLength 1",
        "should be at least 1 chars long",
        json!("a"),
        json!(""),
    );
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    cases.one_of(kind, &field("effect"), &effects, &["noschedule", "", "Evict"]);
    cases.date_time(kind, &field("timeAdded"));
}

fn requirements(cases: &mut Cases, kind: Kind, node: &str) {
    let list = format!("{node}/requirements");
    let at = |field: &str| format!("{list}/0/{field}");
    cases.required(kind, node, "requirements");
    cases.required(kind, &format!("{list}/0"), "key");
    cases.required(kind, &format!("{list}/0"), "operator");
    let exists = |key: &str| json!({ "key": key, "operator": "Exists" });
    let many = |count: usize| Value::Array(vec![exists("a"); count]);
    cases.value(kind, &list, "maxItems 100", "must have at most 100 items", many(100), many(101));
    cases.value(kind, &list, "maxItems 100", "must have at most 100 items", json!([]), many(101));
    for (good, bad) in [("example.com/a", "a b"), ("A_b.c-d", "-a"), ("a", "a/b/c")] {
        cases.pattern(kind, &at("key"), QUALIFIED_NAME, good, bad);
    }
    longest(cases, kind, &at("key"), 316);
    // Each operator with values that suit it: the good objects have to pass the rules, too.
    let supported = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];
    let names = supported.map(|one| format!("{one:?}")).join(", ");
    for operator in supported {
        let with = |operator: &str| {
            let mut object = kind.object("new", &base(kind));
            *object.pointer_mut(&list).unwrap() =
                json!([{ "key": "a", "operator": operator, "values": ["1"] }]);
            object
        };
        let message = format!("Unsupported value: \"Near\": supported values: {names}");
        cases.push(kind, &at("operator"), "enum", &message, None, with(operator), with("Near"));
    }
    cases.minimum(kind, &at("minValues"), 1, json!(0));
    {
        let with = |min_values: u32| {
            let mut object = kind.object("new", &base(kind));
            let exists = json!([{ "key": "a", "operator": "Exists", "minValues": min_values }]);
            *object.pointer_mut(&list).unwrap() = exists;
            object
        };
        let message = "should be less than or equal to 50";
        cases.push(kind, &at("minValues"), "maximum 50", message, None, with(50), with(51));
    }

    let spec = |requirements: Value| match kind {
        Kind::NodePool => {
            json!({ "spec": { "template": { "spec": { "requirements": requirements } } } })
        }
        _ => json!({ "spec": { "requirements": requirements } }),
    };
    let key = at("key");
    let mut keys = vec![
        (KARPENTER_DOMAIN, "karpenter.sh/capacity-type", "karpenter.sh/other"),
        (KARPENTER_DOMAIN, "karpenter.shop/other", "sub.karpenter.sh/other"),
        (KARPENTER_DOMAIN, "example.com/karpenter.sh", "notkarpenter.sh/other"),
        (KARPENTER_DOMAIN, "karpenter", "karpenter.sh"),
        (HOSTNAME_LABEL, "hostname", "kubernetes.io/hostname"),
        (KWOK_DOMAIN, "karpenter.kwok.sh/kwoknodeclass", "karpenter.kwok.sh/other"),
        (KWOK_DOMAIN, "karpenter.kwok.sh/instance-cpu", "sub.karpenter.kwok.sh/other"),
        (KWOK_DOMAIN, "karpenter.kwok.sh/instance-memory", "karpenter.kwok.sh/instance"),
        (KWOK_DOMAIN, "karpenter.kwok.sh/instance-family", "karpenter.kwok.sh"),
        (KWOK_DOMAIN, "karpenter.kwok.sh/instance-size", "karpenter.kwok.sh/kwoknodeclasses"),
    ];
    for label in kerf_aws_api::labels::IN_REQUIREMENTS {
        keys.push((AWS_DOMAIN, label, "karpenter.k8s.aws/nitro-sandbox"));
    }
    keys.push((AWS_DOMAIN, "topology.k8s.aws/zone-id", "notkarpenter.k8s.aws/other"));
    match kind {
        Kind::NodePool => keys.push((POOL_LABEL, "nodepool", "karpenter.sh/nodepool")),
        // A claim says which pool it belongs to.
        _ => keys.push((KARPENTER_DOMAIN, "karpenter.sh/nodepool", "karpenter.sh/nodepools")),
    }
    for (message, good, bad) in keys {
        cases.rule(kind, &key, message, &spec(json!([exists(good)])), &spec(json!([exists(bad)])));
    }

    let one = |operator: &str, values: Value| json!({ "key": "a", "operator": operator, "values": values });
    let mut rule = |message: &str, good: Value, bad: Value| {
        cases.rule(
            kind,
            &list,
            message,
            &spec(json!([exists("b"), good])),
            &spec(json!([exists("b"), bad])),
        );
    };
    let message = "requirements with operator 'In' must have a value defined";
    rule(message, one("In", json!(["x"])), one("In", json!([])));
    rule(message, one("NotIn", json!([])), json!({ "key": "a", "operator": "In" }));
    let message = "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value";
    for operator in ["Gt", "Lt", "Gte", "Lte"] {
        rule(message, one(operator, json!(["0"])), one(operator, json!(["-1"])));
        rule(
            message,
            one(operator, json!(["9223372036854775807"])),
            one(operator, json!(["1", "2"])),
        );
        rule(message, one(operator, json!(["5"])), one(operator, json!([])));
        rule(message, one(operator, json!(["5"])), json!({ "key": "a", "operator": operator }));
        rule(message, one(operator, json!(["5"])), one(operator, json!(["five"])));
        rule(message, one(operator, json!(["5"])), one(operator, json!(["9223372036854775808"])));
    }
    let message = "requirements with 'minValues' must have at least that many values specified in the 'values' field";
    let at_least = |operator: &str, values: Value, least: u32| json!({ "key": "a", "operator": operator, "values": values, "minValues": least });
    rule(message, at_least("In", json!(["x", "y"]), 2), at_least("In", json!(["x"]), 2));
    rule(message, at_least("NotIn", json!(["x"]), 2), at_least("In", json!(["x", "y"]), 3));
}

fn node_class_reference(cases: &mut Cases, kind: Kind, node: &str) {
    let at = format!("{node}/nodeClassRef");
    cases.required(kind, node, "nodeClassRef");
    for name in ["group", "kind", "name"] {
        cases.required(kind, &at, name);
        let message = format!("{name} may not be empty");
        cases.value(
            kind,
            &format!("{at}/{name}"),
            &format!("rule {message}"),
            &message,
            json!("other"),
            json!(""),
        );
    }
    cases.pattern(kind, &format!("{at}/group"), "^[^/]*$", "example.com", "example.com/v1");
    if kind == Kind::NodePool {
        let reference = |field: &str| json!({ "spec": { "template": { "spec": { "nodeClassRef": { field: "other" } } } } });
        let mutable = reference("name");
        for field in ["group", "kind"] {
            let message = format!("nodeClassRef.{field} is immutable");
            cases.change(kind, &at, &message, &json!({}), &mutable, &reference(field));
        }
    }
}

fn claim(cases: &mut Cases) {
    let kind = Kind::NodeClaim;
    cases.required(kind, "", "spec");
    for map in ["/spec/resources/requests", "/status/capacity", "/status/allocatable"] {
        cases.quantity(kind, &format!("{map}/cpu"));
    }
    cases.date_time(kind, "/status/lastPodEventTime");
    for change in [
        json!({ "expireAfter": "1h" }),
        json!({ "taints": null }),
        json!({ "resources": { "requests": { "cpu": "2" } } }),
    ] {
        cases.change(
            kind,
            "/spec",
            "spec is immutable",
            &json!({}),
            &json!({}),
            &json!({ "spec": change }),
        );
    }
}

pub(crate) fn condition(cases: &mut Cases, kind: Kind, at: &str) {
    let field = |name: &str| format!("{at}/{name}");
    let lenient = kind == Kind::NodeClaim;
    cases.required(kind, at, "type");
    cases.required(kind, at, "status");
    cases.required(kind, at, "lastTransitionTime");
    cases.pattern(kind, &field("type"), CONDITION_TYPE, "example.com/Ready", "not ready");
    longest(cases, kind, &field("type"), 316);
    cases.one_of(kind, &field("status"), &["True", "False", "Unknown"], &["true", "", "Maybe"]);
    cases.date_time(kind, &field("lastTransitionTime"));
    cases.minimum(kind, &field("observedGeneration"), 0, json!(-1));
    longest(cases, kind, &field("message"), 32768);
    longest(cases, kind, &field("reason"), 1024);
    if lenient {
        cases.pattern(kind, &field("reason"), REASON_OR_NONE, "", "not ready");
    } else {
        cases.required(kind, at, "reason");
        cases.required(kind, at, "message");
        cases.pattern(kind, &field("reason"), REASON, "NotReady", "not ready");
        cases.value(
            kind,
            &field("reason"),
            "minLength 1",
            "should be at least 1 chars long",
            json!("a"),
            json!(""),
        );
    }
}

pub(crate) fn longest(cases: &mut Cases, kind: Kind, at: &str, length: usize) {
    let text = |length| json!("a".repeat(length));
    let message = format!("may not be more than {length} bytes");
    cases.value(kind, at, &format!("maxLength {length}"), &message, text(length), text(length + 1));
}
