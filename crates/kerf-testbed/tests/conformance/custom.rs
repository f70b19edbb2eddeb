//! Custom resources: pruning, defaults, validation, CEL rules; our own CRDs among them.

use super::harness::{Cluster, cases, version};
use serde_json::{Value, json};

cases![
    unknown_fields_are_pruned,
    strict_validation_refuses_unknown_fields,
    strict_validation_holds_for_built_in_kinds,
    defaults_are_filled_in,
    required_fields_are_required,
    wrong_types_are_refused,
    enums_patterns_and_bounds,
    lists_have_bounds_and_keys,
    int_or_string,
    preserved_fields_stay,
    nulls_get_defaults_or_are_dropped,
    an_update_needs_a_version,
    status_is_its_own,
    generation_ignores_metadata_and_status,
    needs_a_kind,
    cel_rules_hold,
    cel_transition_rules_hold,
    deleted_definitions_are_not_served,
    node_pools_get_their_defaults,
    node_pools_refuse_bad_values,
    node_pools_stay_static_or_dynamic,
    node_claims_are_immutable,
    node_class_references_are_immutable,
    apply_works_on_custom_resources,
    untouched_fields_are_not_judged_again,
];

pub(crate) fn widget_definition() -> Value {
    let spec = json!({
        "type": "object",
        "properties": {
            "size": { "type": "integer", "minimum": 1, "maximum": 10, "default": 3 },
            "color": { "type": "string", "enum": ["red", "green"] },
            "code": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2 },
            "tags": { "type": "array", "maxItems": 2, "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
            "parts": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object", "required": ["name"],
                    "properties": { "name": { "type": "string" }, "count": { "type": "integer", "default": 1 } },
                },
            },
            "port": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "labels": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 2 },
            "maybe": { "type": "string", "nullable": true },
            "flag": { "type": "boolean" },
            "when": { "type": "string", "format": "date-time" },
            "low": { "type": "integer" }, "high": { "type": "integer" },
            "fixed": { "type": "string", "x-kubernetes-validations": [
                { "rule": "self == oldSelf", "message": "fixed is fixed" },
            ] },
        },
        "x-kubernetes-validations": [
            { "rule": "!has(self.low) || !has(self.high) || self.low <= self.high", "message": "low must not exceed high" },
        ],
    });
    let status = json!({ "type": "object", "properties": { "seen": { "type": "integer" } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.conformance.example.com" },
        "spec": {
            "group": "conformance.example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
            }],
        },
    })
}

pub(crate) fn widgets(c: &Cluster) -> String {
    c.group("conformance.example.com", "widgets")
}

fn widget(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "conformance.example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec })
}

pub(crate) async fn make_widget(c: &Cluster, name: &str, spec: Value) -> Value {
    c.make(&widgets(c), widget(name, spec)).await
}

async fn refuses(c: &Cluster, spec: Value, message: &str) {
    let reply = c.post(&widgets(c), widget("refused", spec)).await;
    reply.refused(422, "Invalid", message);
    assert_eq!(reply.body["details"]["kind"], "Widget");
}

pub(crate) fn node_pool(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": name },
        "spec": { "template": { "spec": {
            "requirements": [],
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
        } } },
    })
}

fn node_claim(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": { "name": name },
        "spec": {
            "requirements": [{ "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] }],
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
        },
    })
}

async fn unknown_fields_are_pruned(c: Cluster) {
    let made = make_widget(
        &c,
        "a",
        json!({ "size": 2, "unknown": 1, "parts": [{ "name": "x", "odd": true }] }),
    )
    .await;
    assert_eq!(made["spec"], json!({ "size": 2, "parts": [{ "name": "x", "count": 1 }] }));
}

async fn strict_validation_refuses_unknown_fields(c: Cluster) {
    let reply = c
        .post(
            &format!("{}?fieldValidation=Strict", widgets(&c)),
            widget("a", json!({ "unknown": 1 })),
        )
        .await;
    reply.refused(400, "BadRequest", "strict decoding error: unknown field \"spec.unknown\"");
}

async fn strict_validation_holds_for_built_in_kinds(c: Cluster) {
    let path = c.core("configmaps?fieldValidation=Strict");
    let body = json!({ "metadata": { "name": "a" }, "datas": {} });
    let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"datas\"";
    c.post(&path, body).await.refused(400, "BadRequest", message);
    let body =
        json!({ "metadata": { "name": "a", "labels": {}, "annotations": null }, "data": {} });
    c.post(&path, body).await.expect_code(201);
}

async fn defaults_are_filled_in(c: Cluster) {
    let made = make_widget(&c, "a", json!({ "parts": [{ "name": "x" }] })).await;
    assert_eq!(made["spec"], json!({ "size": 3, "parts": [{ "name": "x", "count": 1 }] }));
}

async fn required_fields_are_required(c: Cluster) {
    refuses(&c, json!({ "parts": [{ "count": 1 }] }), "spec.parts[0].name: Required value").await;
}

async fn wrong_types_are_refused(c: Cluster) {
    refuses(&c, json!({ "size": "big" }), "spec.size in body must be of type integer: \"string\"")
        .await;
    refuses(&c, json!({ "flag": "yes" }), "spec.flag in body must be of type boolean").await;
    refuses(&c, json!({ "tags": "one" }), "spec.tags in body must be of type array").await;
    refuses(&c, json!({ "when": "noon" }), "spec.when").await;
}

async fn enums_patterns_and_bounds(c: Cluster) {
    refuses(
        &c,
        json!({ "color": "blue" }),
        "spec.color: Unsupported value: \"blue\": supported values: \"red\", \"green\"",
    )
    .await;
    refuses(&c, json!({ "code": "ABC" }), "spec.code in body should match '^[a-z]+$'").await;
    refuses(&c, json!({ "code": "abcdef" }), "spec.code: Too long: may not be more than 5 bytes")
        .await;
    refuses(&c, json!({ "code": "a" }), "spec.code in body should be at least 2 chars long").await;
    refuses(&c, json!({ "size": 11 }), "spec.size in body should be less than or equal to 10")
        .await;
    refuses(&c, json!({ "size": 0 }), "spec.size in body should be greater than or equal to 1")
        .await;
}

async fn lists_have_bounds_and_keys(c: Cluster) {
    refuses(
        &c,
        json!({ "tags": ["a", "b", "c"] }),
        "spec.tags: Too many: 3: must have at most 2 items",
    )
    .await;
    refuses(&c, json!({ "tags": ["a", "a"] }), "spec.tags[1]: Duplicate value: \"a\"").await;
    refuses(
        &c,
        json!({ "parts": [{ "name": "x" }, { "name": "x" }] }),
        "spec.parts[1]: Duplicate value: {\"name\":\"x\"}",
    )
    .await;
    refuses(
        &c,
        json!({ "labels": { "a": "1", "b": "2", "c": "3" } }),
        "spec.labels: Too many: 3: must have at most 2 items",
    )
    .await;
}

async fn int_or_string(c: Cluster) {
    make_widget(&c, "a", json!({ "port": 80 })).await;
    make_widget(&c, "b", json!({ "port": "http" })).await;
    refuses(&c, json!({ "port": true }), "spec.port").await;
}

async fn preserved_fields_stay(c: Cluster) {
    let made = make_widget(&c, "a", json!({ "free": { "any": { "thing": [1] } } })).await;
    assert_eq!(made["spec"]["free"], json!({ "any": { "thing": [1] } }));
}

async fn nulls_get_defaults_or_are_dropped(c: Cluster) {
    let made = make_widget(&c, "a", json!({ "size": null, "maybe": null, "color": null })).await;
    assert_eq!(made["spec"], json!({ "size": 3, "maybe": null }));
}

async fn an_update_needs_a_version(c: Cluster) {
    make_widget(&c, "a", json!({ "size": 1 })).await;
    let reply = c.put(&format!("{}/a", widgets(&c)), widget("a", json!({ "size": 2 }))).await;
    reply.refused(
        422,
        "Invalid",
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
    );
}

async fn status_is_its_own(c: Cluster) {
    let mut body = widget("a", json!({}));
    body["status"] = json!({ "seen": 1 });
    let made = c.make(&widgets(&c), body).await;
    assert_eq!(made["status"], Value::Null);
    let path = format!("{}/a", widgets(&c));
    let patch = json!({ "metadata": { "labels": { "x": "y" } }, "spec": { "size": 9 }, "status": { "seen": 2, "odd": 1 } });
    let new = c.merge(&format!("{path}/status"), patch).await.expect_code(200);
    assert_eq!(new["status"], json!({ "seen": 2 }));
    assert_eq!((&new["spec"]["size"], &new["metadata"]["labels"]), (&json!(3), &Value::Null));
    let new = c.merge(&path, json!({ "status": { "seen": 7 } })).await.expect_code(200);
    assert_eq!(new["status"], json!({ "seen": 2 }));
    c.merge(&format!("{path}/status"), json!({ "status": { "seen": "x" } })).await.refused(
        422,
        "Invalid",
        "status.seen",
    );
}

async fn generation_ignores_metadata_and_status(c: Cluster) {
    make_widget(&c, "a", json!({ "size": 1 })).await;
    let path = format!("{}/a", widgets(&c));
    let new = c
        .merge(&path, json!({ "metadata": { "annotations": { "x": "y" } } }))
        .await
        .expect_code(200);
    assert_eq!(new["metadata"]["generation"], 1);
    let new = c
        .merge(&format!("{path}/status"), json!({ "status": { "seen": 1 } }))
        .await
        .expect_code(200);
    assert_eq!(new["metadata"]["generation"], 1);
    let new = c.merge(&path, json!({ "spec": { "size": 2 } })).await.expect_code(200);
    assert_eq!(new["metadata"]["generation"], 2);
}

async fn needs_a_kind(c: Cluster) {
    let reply = c.post(&widgets(&c), json!({ "metadata": { "name": "a" } })).await;
    reply.refused(400, "BadRequest", "Object 'Kind' is missing");
}

async fn cel_rules_hold(c: Cluster) {
    make_widget(&c, "a", json!({ "low": 1, "high": 2 })).await;
    refuses(&c, json!({ "low": 3, "high": 2 }), "low must not exceed high").await;
    let reply = c.merge(&format!("{}/a", widgets(&c)), json!({ "spec": { "low": 5 } })).await;
    reply.refused(422, "Invalid", "spec: Invalid value: ");
}

async fn cel_transition_rules_hold(c: Cluster) {
    make_widget(&c, "a", json!({ "fixed": "x" })).await;
    let path = format!("{}/a", widgets(&c));
    c.merge(&path, json!({ "spec": { "fixed": "y" } })).await.refused(
        422,
        "Invalid",
        "spec.fixed: Invalid value: \"y\": fixed is fixed",
    );
    c.merge(&path, json!({ "spec": { "fixed": null } })).await.expect_code(200);
    c.merge(&path, json!({ "spec": { "fixed": "z" } })).await.expect_code(200);
}

async fn deleted_definitions_are_not_served(c: Cluster) {
    let mut definition = widget_definition();
    let group = format!("{}.example.com", c.namespace);
    definition["metadata"]["name"] = format!("widgets.{group}").into();
    definition["spec"]["group"] = group.clone().into();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = c.make(path, definition).await;
    assert_eq!(made["spec"]["names"]["listKind"], "WidgetList");
    let list = format!("/apis/{group}/v1/widgets");
    c.until(&list, 200).await;
    c.delete(&format!("{path}/widgets.{group}")).await.expect_code(200);
    c.until(&list, 404).await;
}

async fn node_pools_get_their_defaults(c: Cluster) {
    let made = c.make("/apis/karpenter.sh/v1/nodepools", node_pool(&c.own("a"))).await;
    let disruption = json!({
        "consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{ "nodes": "10%" }],
    });
    assert_eq!(made["spec"]["disruption"], disruption);
    assert_eq!(made["spec"]["template"]["spec"]["expireAfter"], "720h");
}

async fn node_pools_refuse_bad_values(c: Cluster) {
    let requirement = |key: &str, operator: &str, values: Value| json!({ "template": { "spec": { "requirements": [{ "key": key, "operator": operator, "values": values }] } } });
    for (change, message) in [
        (json!({ "weight": 101 }), "spec.weight in body should be less than or equal to 100"),
        (
            json!({ "disruption": { "consolidationPolicy": "Never" } }),
            "Unsupported value: \"Never\"",
        ),
        (
            json!({ "disruption": { "budgets": [{ "nodes": "101%" }] } }),
            "spec.disruption.budgets[0].nodes in body should match",
        ),
        (
            json!({ "disruption": { "budgets": [{ "nodes": "1", "schedule": "@daily" }] } }),
            "'schedule' must be set with 'duration'",
        ),
        (json!({ "replicas": 1, "weight": 1 }), "'weight' is not supported on static NodePools"),
        (
            json!({ "replicas": 1, "limits": { "cpu": "1" } }),
            "only 'limits.nodes' is supported on static NodePools",
        ),
        (
            json!({ "template": { "metadata": { "labels": { "karpenter.sh/nodepool": "x" } } } }),
            "label \"karpenter.sh/nodepool\" is restricted",
        ),
        (
            json!({ "template": { "metadata": { "labels": { "karpenter.sh/custom": "x" } } } }),
            "label domain \"karpenter.sh\" is restricted",
        ),
        (
            requirement("kubernetes.io/hostname", "In", json!(["x"])),
            "label \"kubernetes.io/hostname\" is restricted",
        ),
        (
            requirement("team", "In", json!([])),
            "requirements with operator 'In' must have a value defined",
        ),
        (requirement("team", "Gt", json!(["-1"])), "must have a single positive integer value"),
        (requirement("team", "Near", json!(["x"])), "Unsupported value: \"Near\""),
        (
            json!({ "template": { "spec": { "nodeClassRef": { "name": "" } } } }),
            "name may not be empty",
        ),
    ] {
        let mut pool = node_pool(&c.own("bad"));
        merge(&mut pool["spec"], &change);
        let reply = c.post("/apis/karpenter.sh/v1/nodepools", pool).await;
        reply.refused(422, "Invalid", message);
    }
}

fn merge(value: &mut Value, change: &Value) {
    match (value, change) {
        (Value::Object(map), Value::Object(change)) => {
            for (key, change) in change {
                merge(map.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
        (value, change) => *value = change.clone(),
    }
}

async fn node_pools_stay_static_or_dynamic(c: Cluster) {
    let name = c.own("a");
    c.make("/apis/karpenter.sh/v1/nodepools", node_pool(&name)).await;
    let reply = c
        .merge(
            &format!("/apis/karpenter.sh/v1/nodepools/{name}"),
            json!({ "spec": { "replicas": 1 } }),
        )
        .await;
    reply.refused(422, "Invalid", "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes");
}

async fn node_claims_are_immutable(c: Cluster) {
    let name = c.own("a");
    let made = c.make("/apis/karpenter.sh/v1/nodeclaims", node_claim(&name)).await;
    assert_eq!(made["spec"]["expireAfter"], "720h");
    let path = format!("/apis/karpenter.sh/v1/nodeclaims/{name}");
    c.merge(&path, json!({ "spec": { "expireAfter": "1h" } })).await.refused(
        422,
        "Invalid",
        "spec is immutable",
    );
    c.merge(&path, json!({ "metadata": { "labels": { "x": "y" } } })).await.expect_code(200);
    let status = json!({ "status": { "providerID": "kwok://a", "capacity": { "cpu": "4" } } });
    let new = c.merge(&format!("{path}/status"), status).await.expect_code(200);
    assert_eq!(new["status"]["providerID"], "kwok://a");
    assert_eq!(new["metadata"]["generation"], 1);
}

async fn node_class_references_are_immutable(c: Cluster) {
    let name = c.own("a");
    c.make("/apis/karpenter.sh/v1/nodepools", node_pool(&name)).await;
    let path = format!("/apis/karpenter.sh/v1/nodepools/{name}");
    let with = |key: &str| json!({ "spec": { "template": { "spec": { "nodeClassRef": { key: "other" } } } } });
    c.merge(&path, with("group")).await.refused(422, "Invalid", "nodeClassRef.group is immutable");
    c.merge(&path, with("kind")).await.refused(422, "Invalid", "nodeClassRef.kind is immutable");
    c.merge(&path, with("name")).await.expect_code(200);
}

async fn apply_works_on_custom_resources(c: Cluster) {
    let path = |manager: &str| format!("{}/a?fieldManager={manager}", widgets(&c));
    let with = |spec: Value| widget("a", spec);
    c.patch(
        &path("one"),
        "apply-patch+yaml",
        with(json!({ "parts": [{ "name": "x", "count": 2 }] })),
    )
    .await
    .expect_code(201);
    let new = c
        .patch(&path("two"), "apply-patch+yaml", with(json!({ "parts": [{ "name": "y" }] })))
        .await
        .expect_code(200);
    assert_eq!(
        new["spec"]["parts"],
        json!([{ "name": "x", "count": 2 }, { "name": "y", "count": 1 }])
    );
    let new = c
        .patch(&path("one"), "apply-patch+yaml", with(json!({ "size": 4 })))
        .await
        .expect_code(200);
    assert_eq!(new["spec"], json!({ "size": 4, "parts": [{ "name": "y", "count": 1 }] }));
}

async fn untouched_fields_are_not_judged_again(c: Cluster) {
    let made = make_widget(&c, "a", json!({ "fixed": "x", "size": 1 })).await;
    let new = c
        .merge(&format!("{}/a", widgets(&c)), json!({ "spec": { "size": 2 } }))
        .await
        .expect_code(200);
    assert_ne!(version(&made), version(&new));
}
