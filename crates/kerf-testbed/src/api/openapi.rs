//! As much `OpenAPI` as kubectl insists on: it validates on the server only where the server says that it can.

use super::{ApiError, State};
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
            "paths": paths, "components": { "schemas": {} },
        }))
    }
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}
