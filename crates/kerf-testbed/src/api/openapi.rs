//! As much `OpenAPI` as kubectl insists on: it validates on the server only where the server says that it can, and explains
//! what it finds a schema of.
//!
//! Built-in resources have none here: theirs would have to say how lists are merged, because kubectl makes its patches by
//! them, and falls back to what it knows itself where there is none.

use super::{ApiError, State, meta};
use serde_json::{Map, Value, json};

impl State {
    /// The index of documents, one per group and version.
    pub(super) fn open_api_index(&self) -> Value {
        let mut paths = Map::new();
        for resource in self.resources.iter() {
            let path = document_path(&resource.group, &resource.version);
            let url = json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash=0") });
            paths.insert(path, url);
        }
        json!({ "paths": paths })
    }

    /// One document: that each resource can be patched, and that unknown fields can be refused in doing so.
    pub(super) fn open_api(&self, group: &str, version: &str) -> Result<Value, ApiError> {
        let mut paths = Map::new();
        for resource in self.resources.iter().filter(|r| r.group == group && r.version == version) {
            let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
            let path =
                format!("/{}/{scope}{}/{{name}}", document_path(group, version), resource.plural);
            let kind = json!({ "group": group, "version": version, "kind": resource.kind });
            let operation = json!({
                "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": kind,
                "parameters": [{ "name": "fieldValidation", "in": "query", "schema": { "type": "string" } }],
                "responses": { "200": { "description": "OK" } },
            });
            paths.insert(path, json!({ "patch": operation }));
        }
        if paths.is_empty() {
            return Err(ApiError::NoSuchPath);
        }
        Ok(json!({
            "openapi": "3.0.0", "info": { "title": "Kerf testbed", "version": "unversioned" },
            "paths": paths, "components": { "schemas": self.custom_schemas(group, version) },
        }))
    }

    /// The schemas of custom resources, as their definitions have them.
    fn custom_schemas(&self, group: &str, version: &str) -> Map<String, Value> {
        let mut schemas = Map::new();
        let Some(definitions) =
            self.resources.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        else {
            return schemas;
        };
        for (_, crd) in self.store.range(definitions.table, "") {
            let spec = &crd.value["spec"];
            let versions = spec["versions"].as_array().into_iter().flatten();
            let served = versions.filter(|one| one["name"] == version && one["served"] == true);
            for one in served.filter(|_| spec["group"] == group) {
                let kind = &spec["names"]["kind"];
                let mut schema = one["schema"]["openAPIV3Schema"].clone();
                let named = json!([{ "group": group, "version": version, "kind": kind }]);
                meta::map_mut(&mut schema).insert("x-kubernetes-group-version-kind".into(), named);
                schemas.insert(
                    format!("{group}.{version}.{}", kind.as_str().unwrap_or_default()),
                    schema,
                );
            }
        }
        schemas
    }
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}
