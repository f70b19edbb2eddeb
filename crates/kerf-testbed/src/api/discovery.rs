//! What is served: discovery in both its forms, version and health.

use super::resources::Resource;
use super::{Answer, ApiError, State};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The version of Kubernetes that the testbed is. It is that of the real control plane that it is measured against.
pub const KUBERNETES_VERSION: &str = "1.36";
const PATCH: &str = "4";

impl State {
    pub(super) fn discover(&self, path: &[&str], accept: &str) -> Result<Answer, ApiError> {
        let aggregated = accept.contains("as=APIGroupDiscoveryList");
        let value = match path {
            ["api" | "apis"] if aggregated => {
                const TYPE: &str =
                    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
                return Ok(Answer::Typed(TYPE, self.aggregated(path == ["api"])));
            }
            ["api"] => {
                json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
            }
            ["apis"] => {
                let groups: Vec<_> = self
                    .groups()
                    .iter()
                    .filter(|(g, _)| !g.is_empty())
                    .map(|(g, v)| group(g, v))
                    .collect();
                json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
            }
            ["apis", name] => {
                let groups = self.groups();
                let versions = groups.get(*name).ok_or(ApiError::NoSuchPath)?;
                let mut group = group(name, versions);
                group["kind"] = "APIGroup".into();
                group["apiVersion"] = "v1".into();
                group
            }
            ["api", "v1"] => self.resource_list("", "v1")?,
            ["apis", group, version] => self.resource_list(group, version)?,
            ["version"] => {
                let (major, minor) =
                    KUBERNETES_VERSION.split_once('.').unwrap_or((KUBERNETES_VERSION, ""));
                json!({
                    "major": major, "minor": minor, "gitVersion": format!("v{KUBERNETES_VERSION}.{PATCH}"),
                    "gitCommit": "", "gitTreeState": "clean", "buildDate": "", "goVersion": "",
                    "compiler": "rustc", "platform": "testbed",
                })
            }
            ["openapi", "v3"] => self.open_api_index(),
            ["openapi", "v3", "api", version] => self.open_api("", version)?,
            ["openapi", "v3", "apis", group, version] => self.open_api(group, version)?,
            ["healthz" | "readyz" | "livez", ..] => {
                return Ok(Answer::Raw(Bytes::from_static(b"ok")));
            }
            _ => return Err(ApiError::NoSuchPath),
        };
        Ok(Answer::Value(StatusCode::OK, value))
    }

    fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for resource in self.resources.iter() {
            let versions = groups.entry(resource.group.clone()).or_default();
            if !versions.contains(&resource.version) {
                versions.push(resource.version.clone());
            }
        }
        groups
    }

    fn resource_list(&self, group: &str, version: &str) -> Result<Value, ApiError> {
        let of_group = |r: &&std::sync::Arc<Resource>| r.group == group && r.version == version;
        let mut list = Vec::new();
        for resource in self.resources.iter().filter(of_group) {
            list.push(json!({
                "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": VERBS, "shortNames": resource.short_names,
                "categories": resource.categories,
            }));
            for sub in resource.subresources() {
                let (group, version, kind, verbs) = subresource(resource, sub);
                list.push(json!({
                    "name": format!("{}/{sub}", resource.plural), "singularName": "",
                    "namespaced": resource.namespaced, "group": group, "version": version, "kind": kind, "verbs": verbs,
                }));
            }
        }
        if list.is_empty() {
            return Err(ApiError::NoSuchPath);
        }
        let group_version =
            if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Ok(
            json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list }),
        )
    }

    fn aggregated(&self, core: bool) -> Value {
        let groups = self.groups().into_iter().filter(|(group, _)| group.is_empty() == core);
        let items: Vec<_> = groups
            .map(|(group, versions)| {
                let versions: Vec<_> = versions
                    .iter()
                    .map(|version| {
                        let of_group = |r: &&std::sync::Arc<Resource>| r.group == group && &r.version == version;
                        let resources: Vec<_> =
                            self.resources.iter().filter(of_group).map(|r| aggregated_resource(r)).collect();
                        json!({ "version": version, "freshness": "Current", "resources": resources })
                    })
                    .collect();
                let metadata = if core { json!({}) } else { json!({ "name": group }) };
                json!({ "metadata": metadata, "versions": versions })
            })
            .collect();
        json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
    }
}

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn subresource(resource: &Resource, sub: &str) -> (String, String, String, Vec<&'static str>) {
    let of = |group: &str, version: &str, kind: &str, verbs: &[&'static str]| {
        (group.to_owned(), version.to_owned(), kind.to_owned(), verbs.to_vec())
    };
    match sub {
        "scale" => of("autoscaling", "v1", "Scale", &["get", "patch", "update"]),
        "eviction" => of("policy", "v1", "Eviction", &["create"]),
        "binding" => of("", "v1", "Binding", &["create"]),
        "finalize" => of(&resource.group, &resource.version, &resource.kind, &["update"]),
        _ => of(&resource.group, &resource.version, &resource.kind, &["get", "patch", "update"]),
    }
}

fn aggregated_resource(resource: &Resource) -> Value {
    let subresources: Vec<_> = resource
        .subresources()
        .into_iter()
        .map(|sub| {
            let (group, version, kind, verbs) = subresource(resource, sub);
            let kind = json!({ "group": group, "version": version, "kind": kind });
            json!({ "subresource": sub, "responseKind": kind, "verbs": verbs })
        })
        .collect();
    json!({
        "resource": resource.plural,
        "responseKind": { "group": resource.group, "version": resource.version, "kind": resource.kind },
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": VERBS, "shortNames": resource.short_names,
        "categories": resource.categories, "subresources": subresources,
    })
}

fn group(name: &str, versions: &[String]) -> Value {
    let versions: Vec<_> = versions
        .iter()
        .map(|v| json!({ "groupVersion": format!("{name}/{v}"), "version": v }))
        .collect();
    json!({ "name": name, "versions": versions, "preferredVersion": versions.first() })
}
