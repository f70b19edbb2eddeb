//! create, replace and patch: from what a client sent to what is stored.

mod form;

pub(super) use form::parse_object;

use super::patch::{Patch, PatchKind, disown_changed};
use super::request::Call;
use super::resources::Resource;
use super::store::{ChangeKind, Object};
use super::{Answer, ApiError, State, builtin, meta};
use crate::log::{Entry, Write, digest};
use form::{
    adopt_namespace, carry_metadata, conform, keep_other_parts, refuse_unknown_fields, shown,
    spec_changed, stored,
};
use http::StatusCode;
use kerf_admission::Cause;
use serde_json::Value;
use std::sync::Arc;

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Main,
    Status,
    Finalize,
}

impl Part {
    fn of(call: &Call) -> Self {
        match call.subresource.as_str() {
            "status" => Self::Status,
            "finalize" => Self::Finalize,
            _ => Self::Main,
        }
    }
}

/// What became of a write.
pub(super) enum Written {
    Stored(Arc<Object>),
    /// The last finalizer is gone, and with it the object.
    Removed(Arc<Object>),
}

impl Written {
    pub(super) fn into_object(self) -> Arc<Object> {
        match self {
            Self::Stored(object) | Self::Removed(object) => object,
        }
    }
}

/// What a client sends to be stored, in the namespace that it sends it to.
pub(super) fn object_of(resource: &Resource, call: &Call, body: &[u8]) -> Result<Value, ApiError> {
    let mut value = parse_object(resource, body)?;
    adopt_namespace(resource, call, &mut value)?;
    Ok(value)
}

impl State {
    pub(super) fn create(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        value: Value,
    ) -> Result<Answer, ApiError> {
        let object = self.insert(resource, value, None, call)?;
        Ok(Answer::Object(StatusCode::CREATED, resource.clone(), object))
    }

    /// `managers`: who owns its fields, where the object comes from an apply.
    pub(super) fn insert(
        &mut self,
        resource: &Arc<Resource>,
        mut value: Value,
        managers: Option<Vec<Value>>,
        call: &Call,
    ) -> Result<Arc<Object>, ApiError> {
        if !meta::text(&value, &["metadata", "resourceVersion"]).is_empty() {
            return Err(ApiError::Internal(
                "resourceVersion should not be set on objects to be created".into(),
            ));
        }
        let generated = meta::name(&value).is_empty()
            && !meta::text(&value, &["metadata", "generateName"]).is_empty();
        if generated {
            let base = meta::text(&value, &["metadata", "generateName"]);
            // The server cuts the prefix so that the whole name stays a valid label value.
            let base: String = base.chars().take(58).collect();
            let name = format!("{base}{}", self.random.name_suffix());
            meta::set(&mut value, "name", name);
        }
        self.refuse_missing_namespace(resource, &value)?;
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"]
        {
            meta::unset(&mut value, key);
        }
        if let Some(managers) = managers {
            meta::set(&mut value, "managedFields", managers);
        }
        meta::set(&mut value, "uid", self.random.uuid());
        meta::set(&mut value, "creationTimestamp", meta::seconds(self.clock.now()));
        meta::unset(&mut value, "generation");
        if resource.has_generation {
            meta::set(&mut value, "generation", 1);
        }
        if resource.has_status && !resource.keeps_status_on_create {
            meta::map_mut(&mut value).remove("status");
        }
        let pruned = conform(resource, call, &mut value)?;
        refuse_unknown_fields(resource, call, &pruned)?;
        if resource.custom.is_none() {
            builtin::prepare_create(self, resource, &mut value)?;
        }
        Self::refuse_invalid(resource, &value, None, Part::Main)?;
        let key = resource.key(meta::namespace(&value), meta::name(&value));
        if self.store.get(resource.table, &key).is_some() {
            return Err(ApiError::AlreadyExists {
                resource: resource.named(),
                name: meta::name(&value).to_owned(),
            });
        }
        if call.query.dry_run() {
            return Ok(Arc::new(Object::detached(value, 0)));
        }
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.resources.define(&value, &mut self.store).map_err(|error| ApiError::Invalid {
                kind: resource.named_kind(),
                name: meta::name(&value).to_owned(),
                causes: vec![Cause::invalid("spec.versions", &Value::Null, &error.to_string())],
            })?;
        }
        Ok(self.put(resource, &key, value))
    }

    pub(super) fn refuse_missing_namespace(
        &self,
        resource: &Resource,
        value: &Value,
    ) -> Result<(), ApiError> {
        if !resource.namespaced {
            return Ok(());
        }
        let name = meta::namespace(value);
        let namespaces = self.resources.find("", "v1", "namespaces");
        let found = namespaces.and_then(|namespaces| self.store.get(namespaces.table, name));
        let Some(namespace) = found else {
            let resource = super::Named { group: String::new(), resource: "namespaces".into() };
            return Err(ApiError::NotFound { resource, name: name.to_owned() });
        };
        if meta::is_deleting(&namespace.value) {
            return Err(ApiError::Forbidden {
                resource: resource.named(),
                name: meta::name(value).to_owned(),
                why: format!(
                    "unable to create new content in namespace {name} because it is being terminated"
                ),
                causes: vec![Cause {
                    reason: "NamespaceTerminating",
                    message: format!("namespace {name} is being terminated"),
                    field: "metadata.namespace".into(),
                }],
            });
        }
        Ok(())
    }

    pub(super) fn replace(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        mut value: Value,
    ) -> Result<Answer, ApiError> {
        let name = meta::name(&value);
        if name.is_empty() {
            meta::set(&mut value, "name", call.name.clone());
        } else if name != call.name {
            let message = format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.name
            );
            return Err(ApiError::BadRequest(message));
        }
        let part = self.part(resource, call)?;
        if part == Part::Main
            && resource.creatable_by_update
            && self.existing(resource, call).is_err()
        {
            let object = self.insert(resource, value, None, call)?;
            return Ok(Answer::Object(StatusCode::CREATED, resource.clone(), object));
        }
        let old = self.existing(resource, call)?.clone();
        let written = self.update(resource, part, &old, value, None, call)?;
        Ok(Answer::Object(StatusCode::OK, resource.clone(), written.into_object()))
    }

    pub(super) fn patch(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        content_type: &str,
        body: &[u8],
    ) -> Result<Answer, ApiError> {
        let part = self.part(resource, call)?;
        let kind = PatchKind::of(content_type, resource)?;
        let patch = Patch::parse(kind, body)?;
        if kind == PatchKind::Apply {
            return self.apply(resource, part, call, patch);
        }
        let old = self.existing(resource, call)?.clone();
        let new = Self::patched(resource, &old, &patch)?;
        let written = self.update(resource, part, &old, new, None, call)?;
        Ok(Answer::Object(StatusCode::OK, resource.clone(), written.into_object()))
    }

    /// The old object as the client knows it, with the patch applied, as it is stored.
    pub(super) fn patched(
        resource: &Resource,
        old: &Object,
        patch: &Patch,
    ) -> Result<Value, ApiError> {
        let mut value = shown(resource, &old.value);
        patch.apply_to(&mut value)?;
        let mut value = stored(resource, value)?;
        if meta::name(&value) != meta::name(&old.value) {
            let message = "the name of the object does not match the name on the URL";
            return Err(ApiError::BadRequest(message.into()));
        }
        // A patch that names no version is meant for whatever version there is.
        if meta::text(&value, &["metadata", "resourceVersion"]).is_empty() {
            meta::set(&mut value, "resourceVersion", old.revision.to_string());
        }
        Ok(value)
    }

    pub(super) fn part(&self, resource: &Resource, call: &Call) -> Result<Part, ApiError> {
        let part = Part::of(call);
        let served = match part {
            Part::Main => true,
            Part::Status => resource.has_status,
            Part::Finalize => resource.is("", "namespaces"),
        };
        if served { Ok(part) } else { Err(self.no_such(&resource.group)) }
    }

    /// Stores `new` in the place of `old`, where `part` says what may differ.
    pub(super) fn update(
        &mut self,
        resource: &Arc<Resource>,
        part: Part,
        old: &Arc<Object>,
        mut new: Value,
        managers: Option<Vec<Value>>,
        call: &Call,
    ) -> Result<Written, ApiError> {
        let name = meta::name(&old.value).to_owned();
        Self::refuse_stale(resource, old, &new)?;
        carry_metadata(&old.value, &mut new);
        let pruned = conform(resource, call, &mut new)?;
        refuse_unknown_fields(resource, call, &pruned)?;
        keep_other_parts(resource, part, &old.value, &mut new);
        match managers {
            Some(managers) => meta::set(&mut new, "managedFields", managers),
            None => disown_changed(resource, &old.value, &mut new),
        }
        if resource.custom.is_none() {
            builtin::prepare_update(self, resource, part, &old.value, &mut new);
        }
        if resource.has_generation && part == Part::Main && spec_changed(resource, &old.value, &new)
        {
            let generation = meta::field(&old.value, "generation").as_i64().unwrap_or(0);
            meta::set(&mut new, "generation", generation + 1);
        }
        if new == old.value {
            return Ok(Written::Stored(old.clone()));
        }
        Self::refuse_new_finalizers(resource, &old.value, &new)?;
        Self::refuse_invalid(resource, &new, Some(&old.value), part)?;
        if call.query.dry_run() {
            return Ok(Written::Stored(Arc::new(Object::detached(new, old.revision))));
        }
        let key = resource.key(meta::namespace(&old.value), &name);
        if ready_to_go(resource, &new) {
            let gone = self.put_and_remove(resource, &key, new);
            return Ok(Written::Removed(gone));
        }
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") && part == Part::Main {
            self.resources
                .define(&new, &mut self.store)
                .map_err(|error| ApiError::BadRequest(error.to_string()))?;
        }
        Ok(Written::Stored(self.put(resource, &key, new)))
    }

    fn refuse_stale(resource: &Resource, old: &Object, new: &Value) -> Result<(), ApiError> {
        let name = meta::name(&old.value).to_owned();
        let version = meta::text(new, &["metadata", "resourceVersion"]);
        let conflict = |why: String| ApiError::Conflict {
            resource: resource.named(),
            name: name.clone(),
            why,
        };
        if version.is_empty() && resource.needs_version {
            let cause = Cause {
                reason: "FieldValueInvalid",
                message: "Invalid value: 0: must be specified for an update".into(),
                field: "metadata.resourceVersion".into(),
            };
            return Err(ApiError::Invalid { kind: resource.named(), name, causes: vec![cause] });
        }
        let (theirs, ours) = (meta::uid(new), meta::uid(&old.value));
        if !theirs.is_empty() && theirs != ours {
            let why = format!(
                "Precondition failed: UID in precondition: {theirs}, UID in object meta: {ours}"
            );
            return Err(conflict(why));
        }
        if !version.is_empty() && version != old.revision.to_string() {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(conflict(why.into()));
        }
        Ok(())
    }

    fn refuse_new_finalizers(
        resource: &Resource,
        old: &Value,
        new: &Value,
    ) -> Result<(), ApiError> {
        if !meta::is_deleting(old) {
            return Ok(());
        }
        let before = meta::finalizers(old);
        let added: Vec<_> =
            meta::finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
        if added.is_empty() {
            return Ok(());
        }
        let list: Vec<_> = added.iter().map(|f| format!("{f:?}")).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            list.join(", ")
        );
        let causes = vec![Cause::forbidden("metadata.finalizers", &detail)];
        Err(ApiError::Invalid {
            kind: resource.named_kind(),
            name: meta::name(new).to_owned(),
            causes,
        })
    }

    fn refuse_invalid(
        resource: &Resource,
        new: &Value,
        old: Option<&Value>,
        part: Part,
    ) -> Result<(), ApiError> {
        let mut causes = builtin::validate_metadata(resource, new, old);
        match &resource.custom {
            Some(schema) => causes.extend(schema.validate(new, old)),
            None => causes.extend(builtin::validate(resource, new, old, part)),
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(ApiError::Invalid {
            kind: resource.named_kind(),
            name: meta::name(new).to_owned(),
            causes,
        })
    }

    pub(super) fn put(&mut self, resource: &Resource, key: &str, value: Value) -> Arc<Object> {
        let known = self.store.get(resource.table, key).is_some();
        let object = self.store.put(resource.table, key, value);
        self.record(
            resource,
            key,
            if known { ChangeKind::Modified } else { ChangeKind::Added },
            &object,
        );
        object
    }

    pub(super) fn remove(&mut self, resource: &Resource, key: &str) -> Option<Arc<Object>> {
        let object = self.store.remove(resource.table, key)?;
        self.record(resource, key, ChangeKind::Deleted, &object);
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            let spec = &object.value["spec"];
            self.resources.remove_definition(
                meta::text(spec, &["group"]),
                meta::text(spec, &["names", "plural"]),
            );
        }
        Some(object)
    }

    /// The write that takes the last finalizer is not itself stored: the object just goes.
    fn put_and_remove(&mut self, resource: &Resource, key: &str, value: Value) -> Arc<Object> {
        self.remove(resource, key);
        let revision = self.store.revision();
        let mut value = value;
        meta::set(&mut value, "resourceVersion", revision.to_string());
        Arc::new(Object::detached(value, revision))
    }

    fn record(&mut self, resource: &Resource, key: &str, kind: ChangeKind, object: &Object) {
        self.writes.send_replace(object.revision);
        self.log.push(Entry {
            time: self.clock.now(),
            revision: object.revision,
            what: match kind {
                ChangeKind::Added => Write::Created,
                ChangeKind::Modified => Write::Changed,
                ChangeKind::Deleted => Write::Removed,
            },
            resource: resource.label.clone(),
            key: key.into(),
            digest: digest(object.json()),
        });
    }
}

/// Deletion was asked for, its grace period is over, and nobody holds the object any more.
fn ready_to_go(resource: &Resource, value: &Value) -> bool {
    let waits_for_content = resource.is("", "namespaces")
        && meta::at(value, &["spec", "finalizers"]).as_array().is_some_and(|list| !list.is_empty());
    meta::is_deleting(value)
        && meta::finalizers(value).is_empty()
        && meta::field(value, "deletionGracePeriodSeconds").as_i64().unwrap_or(0) == 0
        && !waits_for_content
}
