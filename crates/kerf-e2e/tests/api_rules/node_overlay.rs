//! The constraints of NodeOverlays.

use serde_json::{Value, json};

use crate::{
    case::{Cases, Kind, base},
    cases::{HOSTNAME_LABEL, KARPENTER_DOMAIN, QUALIFIED_NAME, condition, longest},
};

const OVERLAY: Kind = Kind::NodeOverlay;
const PRICE: &str = r"^\d+(\.\d+)?$";
const ADJUSTMENT: &str =
    r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$";

pub(crate) fn all(cases: &mut Cases) {
    cases.required(OVERLAY, "", "spec");
    requirements(cases);
    prices(cases);
    capacity(cases);
    cases.minimum(OVERLAY, "/spec/weight", 1, json!(0));
    cases.maximum(OVERLAY, "/spec/weight", 10_000, json!(10_001));
    condition(cases, OVERLAY, "/status/conditions/0");
    let ready = base(OVERLAY)["status"]["conditions"][0].clone();
    let mut other = ready.clone();
    other["type"] = json!("Other");
    let (good, bad) = (json!([ready, other]), json!([ready, ready]));
    cases.value(OVERLAY, "/status/conditions", "unique", "Duplicate value", good, bad);
}

fn requirements(cases: &mut Cases) {
    let list = "/spec/requirements";
    let at = |field: &str| format!("{list}/0/{field}");
    cases.required(OVERLAY, "/spec", "requirements");
    cases.required(OVERLAY, &format!("{list}/0"), "key");
    cases.required(OVERLAY, &format!("{list}/0"), "operator");
    let exists = |key: &str| json!({ "key": key, "operator": "Exists" });
    let many = |count: usize| Value::Array(vec![exists("a"); count]);
    let message = "must have at most 100 items";
    cases.value(OVERLAY, list, "maxItems 100", message, many(100), many(101));
    cases.value(OVERLAY, list, "maxItems 100", message, json!([]), many(101));
    for (good, bad) in [("example.com/a", "a b"), ("A_b.c-d", "-a")] {
        cases.pattern(OVERLAY, &at("key"), QUALIFIED_NAME, good, bad);
    }
    longest(cases, OVERLAY, &at("key"), 316);

    let spec = |requirements: Value| json!({ "spec": { "requirements": requirements } });
    let supported = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];
    let names = supported.map(|one| format!("{one:?}")).join(", ");
    for operator in supported {
        let with = |operator: &str| {
            let values = json!([{ "key": "a", "operator": operator, "values": ["1"] }]);
            crate::case::merged(OVERLAY.object("new", &base(OVERLAY)), &spec(values))
        };
        let message = format!("Unsupported value: \"Near\": supported values: {names}");
        cases.push(OVERLAY, &at("operator"), "enum", &message, None, with(operator), with("Near"));
    }
    for (message, good, bad) in [
        (KARPENTER_DOMAIN, "karpenter.sh/capacity-type", "karpenter.sh/other"),
        (KARPENTER_DOMAIN, "karpenter.sh/nodepool", "sub.karpenter.sh/other"),
        (HOSTNAME_LABEL, "hostname", "kubernetes.io/hostname"),
    ] {
        let (good, bad) = (spec(json!([exists(good)])), spec(json!([exists(bad)])));
        cases.rule(OVERLAY, &at("key"), message, &good, &bad);
    }
    let one = |operator: &str, values: Value| json!({ "key": "a", "operator": operator, "values": values });
    let mut rule = |message: &str, good: Value, bad: Value| {
        let with = |last: Value| spec(json!([exists("b"), last]));
        cases.rule(OVERLAY, list, message, &with(good), &with(bad));
    };
    for operator in ["In", "NotIn"] {
        let message = format!("requirements with operator '{operator}' must have a value defined");
        rule(&message, one(operator, json!(["x"])), one(operator, json!([])));
        rule(&message, one(operator, json!(["x"])), json!({ "key": "a", "operator": operator }));
    }
    let message = "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value";
    for operator in ["Gt", "Lt", "Gte", "Lte"] {
        rule(message, one(operator, json!(["0"])), one(operator, json!(["-1"])));
        rule(message, one(operator, json!(["5"])), one(operator, json!(["1", "2"])));
        rule(message, one(operator, json!(["5"])), json!({ "key": "a", "operator": operator }));
    }
}

fn prices(cases: &mut Cases) {
    let spec = |price: Value, adjustment: Value| json!({ "spec": { "price": price, "priceAdjustment": adjustment } });
    let null = Value::Null;
    let message = format!("should match '{PRICE}'");
    for (good, bad) in [("0", "-1"), ("0.25", "1e3"), ("12.5", ".5")] {
        let keyword = format!("pattern {PRICE}");
        let (good, bad) = (
            json!({"price": good, "priceAdjustment": null}),
            json!({"price": bad, "priceAdjustment": null}),
        );
        cases.changed(OVERLAY, "/spec/price", &keyword, &message, &good, &bad);
    }
    for (good, bad) in
        [("+1", "1"), ("-.5", "30%"), ("-30%", "-101%"), ("+250%", "+1%%"), ("-100%", "-100.5%")]
    {
        cases.pattern(OVERLAY, "/spec/priceAdjustment", ADJUSTMENT, good, bad);
    }
    let message = "cannot set both 'price' and 'priceAdjustment'";
    let both = spec(json!("1"), json!("+1"));
    cases.rule(OVERLAY, "/spec", message, &spec(json!("1"), null.clone()), &both);
    cases.rule(OVERLAY, "/spec", message, &spec(null.clone(), json!("+1")), &both);
    cases.rule(OVERLAY, "/spec", message, &spec(null.clone(), null), &both);
}

fn capacity(cases: &mut Cases) {
    cases.quantity(OVERLAY, "/spec/capacity/example.com~1device");
    let with = |name: &str| json!({ "spec": { "capacity": { name: "1" } } });
    for name in ["cpu", "memory", "ephemeral-storage", "pods"] {
        let message = "invalid resource restricted";
        cases.rule(OVERLAY, "/spec/capacity", message, &with("example.com/other"), &with(name));
    }
}
