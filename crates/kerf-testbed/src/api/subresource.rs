//! scale, binding and eviction.

use super::delete::Options;
use super::patch::{Patch, PatchKind};
use super::request::{Call, Verb};
use super::resources::{Resource, ScalePaths};
use super::selector::Labels;
use super::store::Object;
use super::write::Part;
use super::{Answer, ApiError, State, meta};
use http::StatusCode;
use kerf_admission::Cause;
use serde_json::{Value, json};
use std::sync::Arc;

impl State {
    pub(super) fn subresource(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        content_type: &str,
        body: &[u8],
    ) -> Result<Answer, ApiError> {
        match (call.verb, call.subresource.as_str(), &resource.scale) {
            (Verb::Get, "scale", Some(paths)) => {
                let object = self.existing(resource, call)?;
                Ok(Answer::Value(StatusCode::OK, scale_of(paths, object)))
            }
            (Verb::Update | Verb::Patch, "scale", Some(paths)) => {
                self.set_scale(resource, paths, call, content_type, body)
            }
            (Verb::Create, "binding", _) if resource.is("", "pods") => {
                self.bind(resource, call, body)
            }
            (Verb::Create, "eviction", _) if resource.is("", "pods") => {
                self.evict(resource, call, body)
            }
            (_, sub, _) if resource.subresources().contains(&sub) => {
                Err(ApiError::MethodNotAllowed)
            }
            _ => Err(self.no_such(&resource.group)),
        }
    }

    fn set_scale(
        &mut self,
        resource: &Arc<Resource>,
        paths: &ScalePaths,
        call: &Call,
        content_type: &str,
        body: &[u8],
    ) -> Result<Answer, ApiError> {
        let old = self.existing(resource, call)?.clone();
        let mut scale = scale_of(paths, &old);
        if call.verb == Verb::Patch {
            let kind = PatchKind::of(content_type, resource)?;
            Patch::parse(kind, body)?.apply_to(&mut scale)?;
        } else {
            scale = parse(body)?;
        }
        let replicas = meta::at(&scale, &["spec", "replicas"]).as_i64().unwrap_or(0);
        if replicas < 0 {
            let kind = super::Named { group: "autoscaling".into(), resource: "Scale".into() };
            let causes = vec![Cause::invalid(
                "spec.replicas",
                &replicas.into(),
                "must be greater than or equal to 0",
            )];
            return Err(ApiError::Invalid { kind, name: call.name.clone(), causes });
        }
        let mut new = old.value.clone();
        let version = meta::text(&scale, &["metadata", "resourceVersion"]);
        let version =
            if version.is_empty() { old.revision.to_string() } else { version.to_owned() };
        meta::set(&mut new, "resourceVersion", version);
        set_path(&mut new, &paths.spec_replicas, replicas.into());
        let object = self.update(resource, Part::Main, &old, new, None, call)?.into_object();
        Ok(Answer::Value(StatusCode::OK, scale_of(paths, &object)))
    }

    fn bind(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        body: &[u8],
    ) -> Result<Answer, ApiError> {
        let binding = parse(body)?;
        let node = meta::text(&binding, &["target", "name"]);
        let name = &call.name;
        if node.is_empty() {
            let kind = super::Named { group: String::new(), resource: "Binding".into() };
            let causes = vec![Cause::required("target.name", "")];
            return Err(ApiError::Invalid { kind, name: name.clone(), causes });
        }
        let old = self.existing(resource, call)?.clone();
        self.refuse_missing_namespace(resource, &old.value)?;
        let conflict = |why: String| {
            let resource = super::Named { group: String::new(), resource: "pods/binding".into() };
            Err(ApiError::Conflict { resource, name: name.clone(), why })
        };
        let uid = meta::uid(&binding);
        if !uid.is_empty() && uid != meta::uid(&old.value) {
            return conflict(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta::uid(&old.value)
            ));
        }
        if meta::is_deleting(&old.value) {
            return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let bound_to = meta::text(&old.value, &["spec", "nodeName"]);
        if !bound_to.is_empty() {
            return conflict(format!("pod {name} is already assigned to node {bound_to:?}"));
        }
        if meta::at(&old.value, &["spec", "schedulingGates"])
            .as_array()
            .is_some_and(|gates| !gates.is_empty())
        {
            return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        let mut new = old.value.clone();
        meta::object_mut(&mut new, "spec").insert("nodeName".into(), node.into());
        for kind in ["annotations", "labels"] {
            for (key, value) in meta::field(&binding, kind).as_object().into_iter().flatten() {
                meta::object_mut(
                    meta::map_mut(&mut new).entry("metadata").or_insert(Value::Null),
                    kind,
                )
                .insert(key.clone(), value.clone());
            }
        }
        let condition = json!({
            "type": "PodScheduled", "status": "True",
            "lastTransitionTime": meta::seconds(self.clock.now()),
        });
        set_condition(&mut new, condition);
        let key = resource.key(&call.namespace, name);
        if !call.query.dry_run() {
            self.put(resource, &key, new);
        }
        Ok(Answer::Value(StatusCode::CREATED, ok()))
    }

    fn evict(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        body: &[u8],
    ) -> Result<Answer, ApiError> {
        let eviction = parse(body)?;
        let asked = meta::name(&eviction);
        if !asked.is_empty() && asked != call.name {
            let message = "name in URL does not match name in Eviction object";
            return Err(ApiError::BadRequest(message.into()));
        }
        let mut options = Options::from_value(&eviction["deleteOptions"])?;
        options.dry_run |= call.query.dry_run();
        let pod = self.existing(resource, call)?.clone();
        self.refuse_missing_namespace(resource, &pod.value)?;
        Self::refuse_unmet(resource, &pod, &options)?;
        let exempt = matches!(
            meta::text(&pod.value, &["status", "phase"]),
            "Succeeded" | "Failed" | "Pending"
        ) || meta::is_deleting(&pod.value);
        if !exempt {
            self.spend_budget(&call.namespace, &pod, options.dry_run)?;
        }
        if !exempt && !options.dry_run {
            let mut marked = pod.value.clone();
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
                "lastTransitionTime": meta::seconds(self.clock.now()),
            });
            set_condition(&mut marked, condition);
            self.put(resource, &resource.key(&call.namespace, &call.name), marked);
            // The mark made a new version, which a precondition on the old one must survive.
            options.forget_version();
        }
        self.delete_one(resource, call, &options)?;
        Ok(Answer::Value(StatusCode::CREATED, ok()))
    }

    /// Takes one disruption from the budget that covers a pod, or says why there is none to take.
    fn spend_budget(
        &mut self,
        namespace: &str,
        pod: &Object,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let Some(budgets) = self.resources.find("policy", "v1", "poddisruptionbudgets").cloned()
        else {
            return Ok(());
        };
        let prefix = format!("{namespace}/");
        let covering: Vec<_> = self
            .store
            .range(budgets.table, &prefix)
            .filter(|(_, budget)| {
                Labels::from_object(&budget.value["spec"]["selector"]).matches(&pod.value)
            })
            .map(|(key, budget)| (key.clone(), budget.clone()))
            .collect();
        let (key, budget) = match covering.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does \
                               not support.";
                return Err(ApiError::Internal(message.into()));
            }
        };
        let number = |path: &[&str]| meta::at(&budget.value, path).as_i64().unwrap_or(0);
        let healthy = number(&["status", "currentHealthy"]);
        let desired = number(&["status", "desiredHealthy"]);
        if !is_ready(&pod.value) {
            let always =
                meta::text(&budget.value, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
            if always || (healthy >= desired && desired > 0) {
                return Ok(());
            }
        }
        let name = meta::name(&budget.value);
        let refuse = |message: String, retry_after| {
            Err(ApiError::TooManyRequests {
                message: "Cannot evict pod as it would violate the pod's disruption budget.".into(),
                causes: vec![Cause { reason: "DisruptionBudget", message, field: String::new() }],
                retry_after,
            })
        };
        if number(&["status", "observedGeneration"]) < number(&["metadata", "generation"]) {
            return refuse(
                format!("The disruption budget {name} is still being processed by the server."),
                10,
            );
        }
        let allowed = number(&["status", "disruptionsAllowed"]);
        if allowed <= 0 {
            return refuse(
                format!(
                    "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
                ),
                0,
            );
        }
        if dry_run {
            return Ok(());
        }
        let mut spent = budget.value.clone();
        let now = meta::seconds(self.clock.now());
        let status = meta::object_mut(&mut spent, "status");
        status.insert("disruptionsAllowed".into(), (allowed - 1).into());
        let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
        meta::map_mut(disrupted).insert(meta::name(&pod.value).to_owned(), now.into());
        self.put(&budgets, key, spent);
        Ok(())
    }
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        ApiError::BadRequest(format!("the object provided is unrecognized: {error}"))
    })
}

fn ok() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 })
}

fn scale_of(paths: &ScalePaths, object: &Object) -> Value {
    let at = |path: &[String]| {
        path.iter().fold(&object.value, |v, key| v.get(key).unwrap_or(meta::NOTHING))
    };
    let metadata = &object.value["metadata"];
    let mut kept = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        meta::carry(meta::map_mut(&mut kept), metadata, key);
    }
    let mut status = json!({ "replicas": at(&paths.status_replicas).as_i64().unwrap_or(0) });
    if let Some(selector) = &paths.selector {
        status["selector"] = selector_text(at(selector)).into();
    }
    let mut spec = json!({});
    if let Some(replicas) = at(&paths.spec_replicas).as_i64() {
        spec["replicas"] = replicas.into();
    }
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status })
}

fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    labels
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(",")
}

fn set_path(value: &mut Value, path: &[String], to: Value) {
    match path {
        [] => *value = to,
        [key, rest @ ..] => {
            let inner = meta::map_mut(value).entry(key.clone()).or_insert_with(|| json!({}));
            set_path(inner, rest, to);
        }
    }
}

/// Puts a condition into `status.conditions` in the place of one of its type.
pub(super) fn set_condition(value: &mut Value, condition: Value) {
    let conditions =
        meta::object_mut(value, "status").entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(found) => *found = condition,
        None => list.push(condition),
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = meta::at(pod, &["status", "conditions"]).as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}
