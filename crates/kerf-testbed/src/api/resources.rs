//! The resources that are served: the built-in ones and those that CRDs add.

use super::error::Named;
use super::meta;
use super::store::{Store, TableId};
use kerf_admission::{CustomSchema, SchemaError, strings};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One served resource and the rules that differ between resources.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a rule of its own that a resource has or has not"
)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    /// As the event log names it.
    pub(crate) label: Arc<str>,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) table: TableId,
    /// `status` is written through its own subresource only.
    pub(crate) has_status: bool,
    /// `status` sent with a create is kept: nodes register with their capacity.
    pub(crate) keeps_status_on_create: bool,
    /// Counts changes of its spec.
    pub(crate) has_generation: bool,
    pub(crate) creatable_by_update: bool,
    /// An update that names no version is refused rather than taken as an overwrite.
    pub(crate) needs_version: bool,
    /// The answer to a delete is the object, not a status.
    pub(crate) returned_on_delete: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) selectable_fields: Vec<String>,
    pub(crate) custom: Option<Arc<CustomSchema>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    pub(crate) fn named(&self) -> Named {
        Named { group: self.group.clone(), resource: self.plural.clone() }
    }

    pub(crate) fn named_kind(&self) -> Named {
        Named { group: self.group.clone(), resource: self.kind.clone() }
    }

    pub(crate) fn subresources(&self) -> Vec<&'static str> {
        let mut all = Vec::new();
        if self.has_status {
            all.push("status");
        }
        if self.scale.is_some() {
            all.push("scale");
        }
        if self.is("", "pods") {
            all.extend(["binding", "eviction"]);
        }
        if self.is("", "namespaces") {
            all.push("finalize");
        }
        all
    }

    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// Flags of a built-in resource, one letter each: `s` status subresource, `k` keeps status on create,
/// `g` generation, `u` creatable by update, `v` not updated without a version, `d` returned when deleted,
/// `r` scalable, `c` cluster-scoped. All of it as a real API server was seen to do.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const BUILT_IN: &[Row] = &[
    // group, version, kind, plural, short names, flags
    ("", "v1", "Pod", "pods", "po", "sgd"),
    ("", "v1", "Node", "nodes", "no", "skc"),
    ("", "v1", "Namespace", "namespaces", "ns", "skcd"),
    ("", "v1", "Service", "services", "svc", "sud"),
    ("", "v1", "Event", "events", "ev", "u"),
    ("", "v1", "ConfigMap", "configmaps", "cm", ""),
    ("", "v1", "Secret", "secrets", "", ""),
    ("", "v1", "ServiceAccount", "serviceaccounts", "sa", "d"),
    ("", "v1", "PersistentVolume", "persistentvolumes", "pv", "scd"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "sd"),
    ("", "v1", "ReplicationController", "replicationcontrollers", "rc", "sgr"),
    ("", "v1", "ResourceQuota", "resourcequotas", "quota", "sd"),
    ("", "v1", "LimitRange", "limitranges", "limits", "u"),
    ("", "v1", "Endpoints", "endpoints", "ep", "u"),
    ("", "v1", "PodTemplate", "podtemplates", "", "gd"),
    ("apps", "v1", "Deployment", "deployments", "deploy", "sgr"),
    ("apps", "v1", "ReplicaSet", "replicasets", "rs", "sgr"),
    ("apps", "v1", "StatefulSet", "statefulsets", "sts", "sgr"),
    ("apps", "v1", "DaemonSet", "daemonsets", "ds", "sg"),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", "", ""),
    ("batch", "v1", "Job", "jobs", "", "sg"),
    ("batch", "v1", "CronJob", "cronjobs", "cj", "sg"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", "sgv"),
    ("coordination.k8s.io", "v1", "Lease", "leases", "", "uv"),
    ("events.k8s.io", "v1", "Event", "events", "ev", "u"),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "pc", "gc"),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", "sc", "cd"),
    ("storage.k8s.io", "v1", "CSINode", "csinodes", "", "cvd"),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "", "cvd"),
    ("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", "", ""),
    ("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", "", "scvd"),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "", "cuv"),
    ("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", "", "gcd"),
    ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", "", "sd"),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", "", ""),
    ("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", "", "gcd"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", "", "u"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "", "u"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "", "uc"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "", "uc"),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "netpol", "g"),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", "ing", "sg"),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", "g"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "crd,crds", "sgcv"),
];

fn selectable(group: &str, plural: &str) -> &'static [&'static str] {
    match (group, plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("" | "events.k8s.io", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("batch", "jobs") => &["status.successful"],
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

#[derive(Debug, Default)]
pub(crate) struct Resources {
    all: Vec<Arc<Resource>>,
    by_path: BTreeMap<(String, String, String), usize>,
}

impl Resources {
    pub(crate) fn built_in(store: &mut Store) -> Self {
        let mut resources = Self::default();
        for (group, version, kind, plural, short_names, flags) in BUILT_IN {
            let has = |flag| flags.contains(flag);
            // Events are one set of objects served under two groups.
            let shared =
                (*group == "events.k8s.io").then(|| resources.find("", "v1", plural)).flatten();
            let table = shared.map_or_else(|| store.add_table(), |core| core.table);
            let path = |text: &str| text.split('.').map(str::to_owned).collect();
            let scale = has('r').then(|| ScalePaths {
                spec_replicas: path("spec.replicas"),
                status_replicas: path("status.replicas"),
                selector: Some(path("spec.selector")),
            });
            resources.add(Resource {
                group: (*group).into(),
                version: (*version).into(),
                kind: (*kind).into(),
                plural: (*plural).into(),
                label: Named { group: (*group).into(), resource: (*plural).into() }
                    .to_string()
                    .into(),
                singular: kind.to_lowercase(),
                short_names: short_names
                    .split(',')
                    .filter(|s| !s.is_empty())
                    .map(str::to_owned)
                    .collect(),
                categories: if matches!(*group, "apps" | "batch")
                    || matches!(*plural, "pods" | "services")
                {
                    vec!["all".into()]
                } else {
                    Vec::new()
                },
                namespaced: !has('c'),
                table,
                has_status: has('s'),
                keeps_status_on_create: has('k'),
                has_generation: has('g'),
                creatable_by_update: has('u'),
                needs_version: has('v'),
                returned_on_delete: has('d'),
                scale,
                selectable_fields: selectable(group, plural)
                    .iter()
                    .map(|s| (*s).to_owned())
                    .collect(),
                custom: None,
            });
        }
        resources
    }

    /// Serves what a CRD defines: each of its served versions, from one table.
    pub(crate) fn define(&mut self, crd: &Value, store: &mut Store) -> Result<(), SchemaError> {
        let spec = &crd["spec"];
        let names = &spec["names"];
        let text = |path: &[&str]| meta::text(spec, path).to_owned();
        let known = self
            .all
            .iter()
            .find(|r| r.group == text(&["group"]) && r.plural == text(&["names", "plural"]));
        let table = known.map_or_else(|| store.add_table(), |resource| resource.table);
        for version in spec["versions"].as_array().into_iter().flatten() {
            if version["served"] != true {
                continue;
            }
            let path = |value: &Value| -> Vec<String> {
                let text = value.as_str().unwrap_or_default();
                text.trim_start_matches('.').split('.').map(str::to_owned).collect()
            };
            let scale = &version["subresources"]["scale"];
            let kind = text(&["names", "kind"]);
            let singular = text(&["names", "singular"]);
            self.add(Resource {
                group: text(&["group"]),
                version: meta::text(version, &["name"]).to_owned(),
                plural: text(&["names", "plural"]),
                label: Named { group: text(&["group"]), resource: text(&["names", "plural"]) }
                    .to_string()
                    .into(),
                singular: if singular.is_empty() { kind.to_lowercase() } else { singular },
                kind,
                short_names: strings(&names["shortNames"]),
                categories: strings(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                table,
                has_status: !version["subresources"]["status"].is_null(),
                keeps_status_on_create: false,
                has_generation: true,
                creatable_by_update: false,
                needs_version: true,
                returned_on_delete: false,
                scale: (!scale.is_null()).then(|| ScalePaths {
                    spec_replicas: path(&scale["specReplicasPath"]),
                    status_replicas: path(&scale["statusReplicasPath"]),
                    selector: scale["labelSelectorPath"]
                        .is_string()
                        .then(|| path(&scale["labelSelectorPath"])),
                }),
                selectable_fields: version["selectableFields"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|field| {
                        meta::text(field, &["jsonPath"]).trim_start_matches('.').to_owned()
                    })
                    .collect(),
                custom: Some(CustomSchema::shared(version)?),
            });
        }
        Ok(())
    }

    fn add(&mut self, resource: Resource) {
        let path = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        let resource = Arc::new(resource);
        if let Some(index) = self.by_path.get(&path) {
            self.all[*index] = resource;
        } else {
            self.by_path.insert(path, self.all.len());
            self.all.push(resource);
        }
    }

    pub(crate) fn remove_definition(&mut self, group: &str, plural: &str) {
        self.all.retain(|resource| !resource.is(group, plural) || resource.custom.is_none());
        let path = |r: &Resource| (r.group.clone(), r.version.clone(), r.plural.clone());
        self.by_path =
            self.all.iter().enumerate().map(|(index, resource)| (path(resource), index)).collect();
    }

    /// Whether a group has built-in resources; paths in other groups are answered by another part of the server.
    pub(crate) fn is_built_in(&self, group: &str) -> bool {
        self.all.iter().any(|resource| resource.group == group && resource.custom.is_none())
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let path = (group.to_owned(), version.to_owned(), plural.to_owned());
        self.by_path.get(&path).map(|index| &self.all[*index])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.all.iter()
    }
}
