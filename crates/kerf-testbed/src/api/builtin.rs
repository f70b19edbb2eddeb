//! What the API server and its default admission do to built-in kinds, as far as a cluster of pods and nodes notices.

mod metadata;
mod pod;
mod quantity;
mod typed;
mod workload;

pub(super) use metadata::validate_metadata;

use super::resources::Resource;
use super::write::Part;
use super::{ApiError, State, meta};
use kerf_admission::Cause;
use serde_json::{Value, json};

/// Admission and defaults of a new object.
pub(super) fn prepare_create(
    state: &State,
    resource: &Resource,
    value: &mut Value,
) -> Result<(), ApiError> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod::prepare_create(state, resource, value)?,
        ("", "nodes") => taint_new_node(value),
        ("", "namespaces") => prepare_namespace(value),
        ("apps" | "batch", _) | ("", "replicationcontrollers") => {
            workload::prepare_create(resource, value);
        }
        ("policy", "poddisruptionbudgets") => {
            let status = json!({
                "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
            });
            meta::map_mut(value).insert("status".into(), status);
        }
        ("", "persistentvolumeclaims") => prepare_volume(value, "kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => {
            prepare_volume(value, "kubernetes.io/pv-protection");
            if let Some(spec) = value.get_mut("spec") {
                default(spec, "persistentVolumeReclaimPolicy", "Retain");
            }
        }
        ("storage.k8s.io", "volumeattachments") => {
            meta::map_mut(value).insert("status".into(), json!({ "attached": false }));
        }
        ("storage.k8s.io", "storageclasses") => {
            default(value, "reclaimPolicy", "Delete");
            default(value, "volumeBindingMode", "Immediate");
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            default(value, "preemptionPolicy", "PreemptLowerPriority");
        }
        ("", "services") => {
            let spec = value.as_object_mut().and_then(|map| map.get_mut("spec"));
            if let Some(spec) = spec {
                default(spec, "type", "ClusterIP");
                default(spec, "sessionAffinity", "None");
            }
        }
        ("apiextensions.k8s.io", _) => establish(state, value),
        _ => {}
    }
    Ok(())
}

/// What a write to an existing object may not change, and what it brings with it.
pub(super) fn prepare_update(
    state: &State,
    resource: &Resource,
    part: Part,
    old: &Value,
    new: &mut Value,
) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") if part == Part::Main => pod::fill_defaults(new),
        ("", "namespaces") => {
            // `spec.finalizers` is changed through /finalize alone.
            if part != Part::Finalize {
                meta::carry(meta::map_mut(new), old, "spec");
            }
            default_label(new);
        }
        ("apps" | "batch", _) if part == Part::Main => workload::fill_defaults(resource, new),
        ("apiextensions.k8s.io", _) if part == Part::Main => establish(state, new),
        _ => {}
    }
}

pub(super) fn validate(
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
    part: Part,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    if part != Part::Main {
        return causes;
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod::validate(new, old, &mut causes),
        ("", "nodes") => validate_node(new, old, &mut causes),
        ("apps" | "batch", _) => workload::validate(resource, new, old, &mut causes),
        ("policy", "poddisruptionbudgets") => validate_budget(new, &mut causes),
        ("coordination.k8s.io", "leases") => validate_lease(new, &mut causes),
        _ => {}
    }
    causes
}

pub(super) fn default(value: &mut Value, key: &str, to: impl Into<Value>) {
    meta::map_mut(value).entry(key).or_insert_with(|| to.into());
}

/// Brings an object into the form in which Go would write it.
pub(super) fn conform(
    resource: &Resource,
    value: &mut Value,
    dropped: Option<&mut Vec<String>>,
) -> Result<(), ApiError> {
    let refuse = |detail: String| {
        let (kind, version) = (&resource.kind, resource.api_version());
        ApiError::BadRequest(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {detail}"
        ))
    };
    if !typed::conform(resource, value, dropped).map_err(|error| refuse(error.to_string()))? {
        return Ok(());
    }
    drop_empty(value);
    let quantities = quantity::canonicalize(value);
    quantities.map_err(|text| {
        refuse(format!("quantities must match the regular expression, and {text:?} does not"))
    })
}

/// Go writes neither nulls nor empty lists, nor empty maps of strings; selectors that are empty mean something.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                drop_empty(value);
                match value {
                    Value::Null => false,
                    Value::Array(items) => !items.is_empty(),
                    Value::Object(inner) if inner.is_empty() => !matches!(
                        key.as_str(),
                        "labels"
                            | "annotations"
                            | "nodeSelector"
                            | "matchLabels"
                            | "requests"
                            | "limits"
                            | "data"
                            | "capacity"
                            | "allocatable"
                            | "overhead"
                            | "disruptedPods"
                            | "parameters"
                    ),
                    _ => true,
                }
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Admission taints every new node until its kubelet has reported.
fn taint_new_node(node: &mut Value) {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    let taints = meta::object_mut(node, "spec").entry("taints").or_insert_with(|| json!([]));
    let Some(taints) = taints.as_array_mut() else { return };
    if !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
        taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
    }
}

/// Volumes in use are protected by a finalizer from their first moment.
fn prepare_volume(value: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<String> =
        meta::finalizers(value).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|f| f == finalizer) {
        finalizers.push(finalizer.into());
    }
    meta::set(value, "finalizers", finalizers);
    if let Some(spec) = value.get_mut("spec") {
        default(spec, "volumeMode", "Filesystem");
    }
    meta::map_mut(value).insert("status".into(), json!({ "phase": "Pending" }));
}

fn prepare_namespace(namespace: &mut Value) {
    default_label(namespace);
    meta::map_mut(namespace).insert("spec".into(), json!({ "finalizers": ["kubernetes"] }));
    meta::map_mut(namespace).insert("status".into(), json!({ "phase": "Active" }));
}

fn default_label(namespace: &mut Value) {
    let name = meta::name(namespace).to_owned();
    let metadata = meta::map_mut(namespace).entry("metadata").or_insert(Value::Null);
    meta::object_mut(metadata, "labels").insert("kubernetes.io/metadata.name".into(), name.into());
}

/// CRDs are served at once, where a real server takes a moment.
fn establish(state: &State, crd: &mut Value) {
    let now = meta::seconds(state.clock.now());
    let condition = |kind: &str, reason: &str, message: &str| json!({ "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now });
    if meta::at(crd, &["spec", "names", "listKind"]).is_null() {
        let kind = meta::text(crd, &["spec", "names", "kind"]);
        let (list, singular) = (format!("{kind}List"), kind.to_lowercase());
        let spec = meta::object_mut(crd, "spec");
        let names = spec.entry("names").or_insert_with(|| json!({}));
        default(names, "listKind", list);
        default(names, "singular", singular);
    }
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<_> =
        versions.filter(|v| v["storage"] == true).map(|v| v["name"].clone()).collect();
    let status = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": crd["spec"]["names"],
        "storedVersions": stored,
    });
    meta::map_mut(crd).entry("status").or_insert(status);
}

fn validate_node(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if let Some(old) = old {
        let (was, is) =
            (meta::text(old, &["spec", "providerID"]), meta::text(new, &["spec", "providerID"]));
        if !was.is_empty() && was != is {
            let detail = "node updates may not change providerID except from \"\" to valid";
            causes.push(Cause::forbidden("spec.providerID", detail));
        }
    }
    let taints = new["spec"]["taints"].as_array().into_iter().flatten().enumerate();
    let mut seen = Vec::new();
    for (index, taint) in taints {
        let effect = meta::text(taint, &["effect"]);
        // The server's own slip: taints are part of the spec.
        let path = format!("metadata.taints[{index}]");
        if effect.is_empty() {
            causes.push(Cause::required(format!("{path}.effect"), ""));
        } else if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"].map(Value::from);
            causes.push(Cause::unsupported(format!("{path}.effect"), &effect.into(), &supported));
        }
        let identity = (meta::text(taint, &["key"]), effect);
        if seen.contains(&identity) {
            causes.push(Cause::duplicate(path, taint));
        }
        seen.push(identity);
    }
}

fn validate_budget(new: &Value, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        causes.push(Cause::invalid("spec", &"object".into(), detail));
    }
}

fn validate_lease(new: &Value, causes: &mut Vec<Cause>) {
    let seconds = &new["spec"]["leaseDurationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
}

impl State {
    /// What a fresh cluster holds before anyone asks.
    pub(super) fn create_initial_objects(&mut self) {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let mut namespace = json!({ "metadata": { "name": name } });
            prepare_namespace(&mut namespace);
            self.create_initial("namespaces", "", name, namespace);
        }
        for (name, value) in
            [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
        {
            let class = json!({
                "metadata": { "name": name, "generation": 1 }, "value": value,
                "preemptionPolicy": "PreemptLowerPriority",
                "description": "Used for system critical pods.",
            });
            self.create_initial("priorityclasses", "scheduling.k8s.io", name, class);
        }
    }

    pub(super) fn create_definition(&mut self, mut crd: Value) {
        let name = meta::name(&crd).to_owned();
        meta::map_mut(&mut crd).retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
        meta::set(&mut crd, "generation", 1);
        establish(self, &mut crd);
        self.create_initial("customresourcedefinitions", "apiextensions.k8s.io", &name, crd);
    }

    fn create_initial(&mut self, plural: &str, group: &str, name: &str, mut value: Value) {
        let Some(resource) = self.resources.find(group, "v1", plural).cloned() else { return };
        meta::set(&mut value, "uid", self.random.uuid());
        meta::set(&mut value, "creationTimestamp", meta::seconds(self.clock.now()));
        self.put(&resource, name, value);
    }
}
