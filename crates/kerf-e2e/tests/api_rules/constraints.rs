//! The constraints that a CRD's schema holds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::case::Kind;

/// One constraint of one field: `("NodePool", "/spec/weight", "minimum 1")`.
pub(crate) type Constraint = (&'static str, String, String);

/// All constraints. List items stand as `[]` in a path, map values as `{}`.
pub(crate) fn constraints(kind: Kind, crd: &CustomResourceDefinition) -> Vec<Constraint> {
    let mut found = Vec::new();
    let root = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
    collect(&root["openAPIV3Schema"], "", &mut |path, constraint| {
        found.push((kind.name(), path.to_owned(), constraint));
    });
    found
}

fn collect(schema: &Value, path: &str, found: &mut impl FnMut(&str, String)) {
    let Value::Object(keywords) = schema else { return };
    for (keyword, value) in keywords {
        match keyword.as_str() {
            // On a list they have no effect; see the schema of `values`.
            "maxLength" | "pattern" if schema["type"] == "array" => {}
            "pattern" | "minLength" | "maxLength" | "minItems" | "maxItems" | "maxProperties" => {
                found(path, format!("{keyword} {}", plain(value)));
            }
            "minimum" | "maximum" => found(path, format!("{keyword} {}", value.as_f64().unwrap())),
            "enum" => found(path, keyword.clone()),
            "format" if value == "date-time" => found(path, format!("{keyword} date-time")),
            "x-kubernetes-list-type" if value == "set" || value == "map" => {
                found(path, "unique".to_owned());
            }
            "required" => {
                for name in value.as_array().unwrap() {
                    // What has a default is never missing.
                    let name = plain(name);
                    if schema["properties"][&name].get("default").is_none() {
                        found(path, format!("required {name}"));
                    }
                }
            }
            "x-kubernetes-validations" => {
                for rule in value.as_array().unwrap() {
                    found(path, format!("rule {}", plain(&rule["message"])));
                }
            }
            "properties" => {
                for (name, property) in value.as_object().unwrap() {
                    collect(property, &format!("{path}/{name}"), found);
                }
            }
            "items" => collect(value, &format!("{path}/[]"), found),
            "additionalProperties" => collect(value, &format!("{path}/{{}}"), found),
            _ => {}
        }
    }
}

/// Calls `found` for each field that `kubectl explain` would have nothing to say about.
pub(crate) fn undescribed(schema: &Value, path: &str, found: &mut impl FnMut(&str)) {
    if schema["description"].as_str().is_none_or(str::is_empty) {
        found(path);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        undescribed(property, &format!("{path}.{name}"), found);
    }
    if schema["items"]["type"] == "object" {
        undescribed(&schema["items"], &format!("{path}[]"), found);
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
