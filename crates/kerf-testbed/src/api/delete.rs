//! delete: preconditions, grace periods, propagation, finalizers.

use super::request::Call;
use super::resources::Resource;
use super::store::Object;
use super::write::Written;
use super::{Answer, ApiError, State, meta, read};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

/// `DeleteOptions`, from the body or the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    grace: Option<i64>,
    uid: Option<String>,
    resource_version: Option<String>,
    propagation: Option<Propagation>,
    pub(super) dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    Orphan,
    Background,
    Foreground,
}

impl Options {
    pub(super) fn from_value(value: &Value) -> Result<Self, ApiError> {
        let text = |path: &[&str]| meta::at(value, path).as_str().map(str::to_owned);
        Ok(Self {
            grace: value["gracePeriodSeconds"].as_i64(),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            propagation: text(&["propagationPolicy"])
                .map(|p| Propagation::parse(&p))
                .transpose()?,
            dry_run: value["dryRun"].as_array().is_some_and(|list| list.iter().any(|v| v == "All")),
        })
    }

    pub(super) fn forget_version(&mut self) {
        self.resource_version = None;
    }

    pub(super) fn parse(call: &Call, body: &[u8]) -> Result<Self, ApiError> {
        let mut options = if body.is_empty() {
            Self::default()
        } else {
            let value = serde_json::from_slice(body).map_err(|error| {
                ApiError::BadRequest(format!("the object provided is unrecognized: {error}"))
            })?;
            Self::from_value(&value)?
        };
        if let Ok(grace) = call.query.get("gracePeriodSeconds").parse() {
            options.grace = Some(grace);
        }
        if !call.query.get("propagationPolicy").is_empty() {
            options.propagation = Some(Propagation::parse(call.query.get("propagationPolicy"))?);
        }
        options.dry_run |= call.query.dry_run();
        Ok(options)
    }
}

impl Propagation {
    fn parse(text: &str) -> Result<Self, ApiError> {
        match text {
            "Orphan" => Ok(Self::Orphan),
            "Background" => Ok(Self::Background),
            "Foreground" => Ok(Self::Foreground),
            _ => {
                let kind =
                    super::Named { group: "meta.k8s.io".into(), resource: "DeleteOptions".into() };
                let supported = ["Foreground", "Background", "Orphan", "nil"].map(Value::from);
                let causes = vec![kerf_admission::Cause::unsupported(
                    "propagationPolicy",
                    &text.into(),
                    &supported,
                )];
                Err(ApiError::Invalid { kind, name: String::new(), causes })
            }
        }
    }
}

impl State {
    pub(super) fn delete(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        options: &Options,
    ) -> Result<Answer, ApiError> {
        Ok(match self.delete_one(resource, call, options)? {
            Written::Removed(object) if !resource.returned_on_delete => {
                Answer::Value(StatusCode::OK, success(resource, &object.value))
            }
            Written::Removed(object) | Written::Stored(object) => {
                Answer::Object(StatusCode::OK, resource.clone(), object)
            }
        })
    }

    pub(super) fn delete_collection(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        options: &Options,
    ) -> Result<Answer, ApiError> {
        let mut deleted = Vec::new();
        for (namespace, name) in read::selected(self, resource, call)? {
            let one = Call { namespace, name, ..call.clone() };
            deleted.push(self.delete_one(resource, &one, options)?.into_object());
        }
        let metadata = json!({ "resourceVersion": self.store.revision().to_string() });
        Ok(read::render_list(
            resource,
            read::View::Whole,
            &deleted.iter().collect::<Vec<_>>(),
            metadata,
            self.clock.now(),
        ))
    }

    pub(super) fn delete_one(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        options: &Options,
    ) -> Result<Written, ApiError> {
        let old = self.existing(resource, call)?.clone();
        Self::refuse_unmet(resource, &old, options)?;
        let key = resource.key(&call.namespace, &call.name);
        let mut value = old.value.clone();
        adjust_finalizers(resource, options.propagation, &mut value);
        let grace = grace_period(resource, &old.value, options);
        let waits =
            grace > 0 || !meta::finalizers(&value).is_empty() || resource.is("", "namespaces");
        if options.dry_run {
            return Ok(if waits { Written::Stored(old) } else { Written::Removed(old) });
        }
        if !waits {
            let gone = self.remove(resource, &key);
            return Ok(Written::Removed(gone.unwrap_or(old)));
        }
        self.mark_deleted(resource, &mut value, grace);
        if value == old.value {
            return Ok(Written::Stored(old));
        }
        Ok(Written::Stored(self.put(resource, &key, value)))
    }

    pub(super) fn refuse_unmet(
        resource: &Resource,
        old: &Object,
        options: &Options,
    ) -> Result<(), ApiError> {
        let version = old.revision.to_string();
        let checks = [
            ("UID", &options.uid, meta::uid(&old.value), "deleted and then recreated"),
            ("ResourceVersion", &options.resource_version, version.as_str(), "modified"),
        ];
        for (what, wanted, actual, perhaps) in checks {
            if let Some(wanted) = wanted
                && wanted != actual
            {
                return Err(ApiError::Conflict {
                    resource: resource.named_kind(),
                    name: meta::name(&old.value).to_owned(),
                    why: format!(
                        "the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). The \
                         object might have been {perhaps}"
                    ),
                });
            }
        }
        Ok(())
    }

    fn mark_deleted(&self, resource: &Resource, value: &mut Value, grace: i64) {
        let now = self.clock.now();
        if meta::is_deleting(value) {
            // A later delete may only shorten the grace period, counted from the first one.
            let before = meta::field(value, "deletionGracePeriodSeconds").as_i64().unwrap_or(0);
            let ends = meta::parse_time(meta::field(value, "deletionTimestamp")).unwrap_or(now);
            if grace < before {
                let ends = ends - jiff::SignedDuration::from_secs(before)
                    + jiff::SignedDuration::from_secs(grace);
                meta::set(value, "deletionTimestamp", meta::seconds(ends));
                meta::set(value, "deletionGracePeriodSeconds", grace);
            }
            return;
        }
        let ends = now + jiff::SignedDuration::from_secs(grace);
        meta::set(value, "deletionTimestamp", meta::seconds(ends));
        if !resource.is("", "namespaces") {
            meta::set(value, "deletionGracePeriodSeconds", grace);
        }
        if let Some(generation) =
            meta::field(value, "generation").as_i64().filter(|generation| *generation > 0)
        {
            meta::set(value, "generation", generation + 1);
        }
        if resource.is("", "namespaces") {
            meta::object_mut(value, "status").insert("phase".into(), "Terminating".into());
        }
    }
}

/// Only pods have a grace period; it is none when no kubelet is involved.
fn grace_period(resource: &Resource, value: &Value, options: &Options) -> i64 {
    if !resource.is("", "pods") {
        return 0;
    }
    let unscheduled = meta::text(value, &["spec", "nodeName"]).is_empty();
    let finished = matches!(meta::text(value, &["status", "phase"]), "Succeeded" | "Failed");
    if unscheduled || finished {
        return 0;
    }
    let own = meta::at(value, &["spec", "terminationGracePeriodSeconds"]).as_i64().unwrap_or(30);
    let grace = options.grace.unwrap_or(own);
    if grace < 0 { 1 } else { grace }
}

/// The garbage collector acts on two finalizers, which the propagation policy puts on or takes off.
fn adjust_finalizers(resource: &Resource, propagation: Option<Propagation>, value: &mut Value) {
    let mut finalizers: Vec<String> =
        meta::finalizers(value).into_iter().map(str::to_owned).collect();
    let orphans_by_default =
        resource.is("batch", "jobs") || resource.is("", "replicationcontrollers");
    let wanted = match propagation {
        Some(Propagation::Orphan) => Some("orphan"),
        Some(Propagation::Foreground) => Some("foregroundDeletion"),
        // Without a policy, finalizers that are there already decide.
        None if finalizers.iter().any(|f| f == "orphan" || f == "foregroundDeletion") => return,
        None if orphans_by_default => Some("orphan"),
        None | Some(Propagation::Background) => None,
    };
    finalizers.retain(|f| f != "orphan" && f != "foregroundDeletion");
    finalizers.extend(wanted.map(str::to_owned));
    if finalizers.is_empty() {
        meta::unset(value, "finalizers");
    } else {
        meta::set(value, "finalizers", finalizers);
    }
}

fn success(resource: &Resource, value: &Value) -> Value {
    let mut details =
        json!({ "name": meta::name(value), "kind": resource.plural, "uid": meta::uid(value) });
    if !resource.group.is_empty() {
        details["group"] = resource.group.clone().into();
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}
