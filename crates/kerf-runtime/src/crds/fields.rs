//! Fields that an installed `CustomResourceDefinition` does not have.
//!
//! The API server drops a field that the schema does not know, and says nothing about it. A control that a user sets on a
//! NodePool is then as if it had never been set.

use http::{Request, header::ACCEPT};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use serde_json::Value;

/// What the API server takes care of itself.
const ENVELOPE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The fields of `definition` that objects lose in this cluster; `None` where the API server does not publish the schema (yet).
///
/// The published schema is open to every authenticated client, so that this needs no right to read definitions.
pub async fn missing_fields(
    client: &Client,
    definition: &CustomResourceDefinition,
) -> Result<Option<Vec<String>>, kube::Error> {
    let Some(version) = definition.spec.versions.first() else { return Ok(None) };
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    let Some(schema) = schema else { return Ok(None) };
    let schema = serde_json::to_value(schema).map_err(kube::Error::SerdeError)?;
    let (group, kind) = (&definition.spec.group, &definition.spec.names.kind);
    let path = format!("/openapi/v3/apis/{group}/{}", version.name);
    let request = Request::get(path).header(ACCEPT, "application/json").body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    let published: Value = match client.request(request).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
        answer => answer?,
    };
    let mut schemas = published["components"]["schemas"].as_object().into_iter().flatten();
    let of_kind = |candidate: &Value| {
        let kinds = candidate["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
        kinds.into_iter().any(|one| one["group"] == **group && one["kind"] == **kind)
    };
    let installed = schemas.find(|(_, candidate)| of_kind(candidate));
    Ok(installed.map(|(_, installed)| missing(&schema, installed)))
}

/// The fields of one schema that another one lacks. Of a field that is missing as a whole, its parts are not named.
fn missing(schema: &Value, installed: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    compare(schema, installed, "", &mut fields);
    fields
}

fn compare(schema: &Value, installed: &Value, path: &str, fields: &mut Vec<String>) {
    if installed["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if path.is_empty() && ENVELOPE.contains(&name.as_str()) {
            continue;
        }
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match installed["properties"].get(name) {
            Some(known) => compare(property, known, &path, fields),
            None => fields.push(path),
        }
    }
    for (part, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
        if schema[part].is_object() && installed[part].is_object() {
            compare(&schema[part], &installed[part], &format!("{path}{suffix}"), fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(properties: Value) -> Value {
        let mut object = json!({"type": "object"});
        object["properties"] = properties;
        object
    }

    #[test]
    fn a_field_that_the_installed_schema_lacks_is_named_by_its_path() {
        let text = json!({"type": "string"});
        let budget = |fields: Value| object(json!({"budgets": {"items": object(fields)}}));
        let ours = object(json!({
            "metadata": object(json!({"name": text})),
            "spec": object(json!({
                "weight": text,
                "disruption": budget(json!({"nodes": text, "reasons": text})),
                "labels": {"additionalProperties": object(json!({"value": text}))},
            })),
        }));
        let with = |spec: Value| object(json!({"spec": spec}));
        let labels = json!({"additionalProperties": object(json!({"value": text}))});
        let all = json!({
            "weight": text, "labels": labels, "more": text,
            "disruption": budget(json!({"nodes": text, "reasons": text})),
        });
        let without = |pointer: &str| {
            let mut spec = object(all.clone());
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            let parent = spec.pointer_mut(parent).unwrap();
            parent.as_object_mut().unwrap().remove(field).unwrap();
            with(spec)
        };
        let cases: [(Value, &[&str]); 6] = [
            (with(object(all.clone())), &[]),
            (without("/properties/weight"), &["spec.weight"]),
            (without("/properties/disruption"), &["spec.disruption"]),
            (
                without("/properties/disruption/properties/budgets/items/properties/reasons"),
                &["spec.disruption.budgets[].reasons"],
            ),
            (
                without("/properties/labels/additionalProperties/properties/value"),
                &["spec.labels.*.value"],
            ),
            (with(json!({"x-kubernetes-preserve-unknown-fields": true})), &[]),
        ];
        for (installed, expected) in cases {
            assert_eq!(missing(&ours, &installed), expected, "{installed}");
        }
    }
}
