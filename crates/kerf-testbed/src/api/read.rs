//! get, list, and the start of a watch.

use super::request::Call;
use super::resources::Resource;
use super::selector::{Fields, Labels};
use super::store::Object;
use super::watch::{Subject, WatchBody};
use super::{Answer, Api, ApiError, State, event, meta, table};
use bytes::{BufMut, BytesMut};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Which objects a list or watch is about.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Keys start with it: the namespace and a slash, or nothing.
    prefix: String,
    labels: Labels,
    fields: Fields,
}

impl Filter {
    pub(super) fn of(resource: &Resource, call: &Call) -> Result<Self, ApiError> {
        let bad = |error: super::selector::SelectorError| ApiError::BadRequest(error.to_string());
        let prefix =
            if call.namespace.is_empty() { String::new() } else { format!("{}/", call.namespace) };
        let labels = Labels::parse(call.query.get("labelSelector")).map_err(bad)?;
        let mut fields = call.query.get("fieldSelector").to_owned();
        if !call.name.is_empty() {
            fields = format!("metadata.name={}", call.name);
        }
        Ok(Self {
            prefix,
            labels,
            fields: Fields::parse(&fields, &resource.selectable_fields).map_err(bad)?,
        })
    }

    pub(super) fn matches(&self, key: &str, value: &Value) -> bool {
        key.starts_with(&self.prefix) && self.labels.matches(value) && self.fields.matches(value)
    }

    fn selects_all(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}

/// The form in which the client wants objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Whole,
    Metadata,
    /// With the whole object beside each row, or only its metadata.
    Table {
        whole: bool,
    },
}

impl View {
    pub(super) fn asked_for(accept: &str, call: &Call) -> Self {
        let first = accept.split(',').next().unwrap_or_default();
        if first.contains("as=Table") {
            // kubectl asks for it when it sorts.
            Self::Table { whole: call.query.get("includeObject") == "Object" }
        } else if first.contains("as=PartialObjectMetadata") {
            Self::Metadata
        } else {
            Self::Whole
        }
    }

    pub(super) fn render(
        self,
        resource: &Resource,
        object: &Object,
        now: Timestamp,
        out: &mut BytesMut,
    ) {
        match self {
            Self::Whole => out.put_slice(&whole_json(resource, object)),
            Self::Metadata => out.put_slice(partial(object).to_string().as_bytes()),
            Self::Table { whole } => {
                let table = table::of(resource, &mut std::iter::once(object), whole, now);
                out.put_slice(table.to_string().as_bytes());
            }
        }
    }
}

pub(super) fn partial(object: &Object) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.value["metadata"] })
}

/// An object with the `kind` and `apiVersion` that it is stored without.
pub(super) fn whole_json(resource: &Resource, object: &Object) -> Vec<u8> {
    let converted;
    let json = if resource.group == event::GROUP {
        converted = serde_json::to_vec(&event::to_group(&object.value)).unwrap_or_default();
        converted.as_slice()
    } else {
        object.json()
    };
    let mut out = Vec::with_capacity(json.len() + 64);
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(resource.kind.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    out.extend_from_slice(resource.api_version().as_bytes());
    out.extend_from_slice(b"\",");
    out.extend_from_slice(json.get(1..).unwrap_or(b"}"));
    out
}

impl State {
    pub(super) fn get(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        accept: &str,
    ) -> Result<Answer, ApiError> {
        self.refuse_future(call)?;
        let object = self.existing(resource, call)?.clone();
        Ok(match View::asked_for(accept, call) {
            View::Whole => Answer::Object(StatusCode::OK, resource.clone(), object),
            View::Metadata => Answer::Value(StatusCode::OK, partial(&object)),
            View::Table { whole } => Answer::Value(
                StatusCode::OK,
                table::of(resource, &mut std::iter::once(&*object), whole, self.clock.now()),
            ),
        })
    }

    pub(super) fn existing(
        &self,
        resource: &Resource,
        call: &Call,
    ) -> Result<&Arc<Object>, ApiError> {
        let key = resource.key(&call.namespace, &call.name);
        self.store.get(resource.table, &key).ok_or_else(|| ApiError::NotFound {
            resource: resource.named(),
            name: call.name.clone(),
        })
    }

    fn refuse_future(&self, call: &Call) -> Result<u64, ApiError> {
        let text = call.query.get("resourceVersion");
        if text.is_empty() {
            return Ok(0);
        }
        let asked: u64 = text.parse().map_err(|_| {
            ApiError::BadRequest(format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"))
        })?;
        let current = self.store.revision();
        if asked > current { Err(ApiError::RevisionAhead { asked, current }) } else { Ok(asked) }
    }

    pub(super) fn list(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        accept: &str,
    ) -> Result<Answer, ApiError> {
        let filter = Filter::of(resource, call)?;
        let limit: usize = call.query.get("limit").parse().unwrap_or(0);
        let token = call.query.get("continue");
        let asked = if token.is_empty() { self.refuse_future(call)? } else { 0 };
        let exact = call.query.get("resourceVersionMatch") == "Exact" || (asked > 0 && limit > 0);
        let (revision, after) = if token.is_empty() {
            (if asked > 0 && exact { asked } else { self.store.revision() }, None)
        } else {
            let bad = || ApiError::BadRequest("continue key is not valid".into());
            let (revision, after) = token.split_once(':').ok_or_else(bad)?;
            (revision.parse().map_err(|_| bad())?, Some(after))
        };
        let past;
        let objects: Box<dyn Iterator<Item = (&Arc<str>, &Arc<Object>)>> = if revision
            == self.store.revision()
        {
            Box::new(self.store.range(resource.table, &filter.prefix))
        } else {
            past = self.store.at(resource.table, revision).ok_or_else(|| {
                ApiError::Expired(if token.is_empty() {
                    "The resourceVersion for the provided list is too old.".into()
                } else {
                    "The provided continue parameter is too old to display a consistent list result. You can start a \
                     new list without the continue parameter."
                        .into()
                })
            })?;
            Box::new(past.iter())
        };
        let mut objects = objects
            .filter(|(key, _)| after.is_none_or(|after| key.as_ref() > after))
            .filter(|(key, object)| filter.matches(key, &object.value));
        let mut page: Vec<(&Arc<str>, &Arc<Object>)> = Vec::new();
        page.extend(objects.by_ref().take(if limit == 0 { usize::MAX } else { limit }));
        let rest = objects.count();
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if rest > 0
            && let Some((last, _)) = page.last()
        {
            metadata["continue"] = format!("{revision}:{last}").into();
            if filter.selects_all() {
                metadata["remainingItemCount"] = rest.into();
            }
        }
        let page: Vec<_> = page.into_iter().map(|(_, object)| object).collect();
        Ok(render_list(resource, View::asked_for(accept, call), &page, metadata, self.clock.now()))
    }

    pub(super) fn watch(
        &mut self,
        resource: &Arc<Resource>,
        call: &Call,
        api: &Api,
        accept: &str,
    ) -> Result<Answer, ApiError> {
        let filter = Filter::of(resource, call)?;
        let query = &call.query;
        let view = View::asked_for(accept, call);
        let subject = Subject {
            resource: resource.clone(),
            filter: filter.clone(),
            view,
            clock: self.clock.clone(),
        };
        let asked = self.refuse_future(call)?;
        let send_initial = query.is_true("sendInitialEvents");
        if send_initial && query.get("resourceVersionMatch") != "NotOlderThan" {
            let kind = super::Named { group: "meta.k8s.io".into(), resource: "ListOptions".into() };
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let causes = vec![kerf_admission::Cause::forbidden("resourceVersionMatch", detail)];
            return Err(ApiError::Invalid { kind, name: String::new(), causes });
        }
        let current = self.store.revision();
        let from_now = asked == 0 || send_initial;
        let start = if from_now { current } else { asked };
        let Some(cursor) = self.store.open_cursor(resource.table, start) else {
            let error = ApiError::Expired(format!("too old resource version: {asked} ({current})"));
            let watch = WatchBody::expired(api.clone(), subject, &error);
            return Ok(Answer::Watch(Box::new(watch)));
        };
        let wants_state = send_initial || (asked == 0 && query.get("sendInitialEvents").is_empty());
        let mut watch = WatchBody::new(api.clone(), subject, Some(cursor));
        if query.is_true("allowWatchBookmarks") {
            watch = watch.with_bookmarks(start);
        }
        if let Ok(seconds) = query.get("timeoutSeconds").parse() {
            watch = watch.ending_after(Duration::from_secs(seconds));
        }
        if wants_state {
            for (key, object) in self.store.range(resource.table, &filter.prefix) {
                if filter.matches(key, &object.value) {
                    watch.push_added(object);
                }
            }
            if send_initial && query.is_true("allowWatchBookmarks") {
                watch.push_bookmark(current, true);
            }
        }
        Ok(Answer::Watch(Box::new(watch)))
    }
}

pub(super) fn render_list(
    resource: &Resource,
    view: View,
    page: &[&Arc<Object>],
    metadata: Value,
    now: Timestamp,
) -> Answer {
    match view {
        View::Table { whole } => {
            let objects = &mut page.iter().map(|object| &***object);
            let mut value = table::of(resource, objects, whole, now);
            value["metadata"] = metadata;
            Answer::Value(StatusCode::OK, value)
        }
        View::Metadata => {
            let items: Vec<_> = page.iter().map(|object| partial(object)).collect();
            let kind = "PartialObjectMetadataList";
            let value = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items });
            Answer::Value(StatusCode::OK, value)
        }
        View::Whole => {
            let head = json!({ "kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(), "metadata": metadata });
            let mut out = BytesMut::from(head.to_string().trim_end_matches('}'));
            // Trimming took the closing brace of the metadata as well.
            out.put_slice(b"},\"items\":[");
            for (index, object) in page.iter().enumerate() {
                if index > 0 {
                    out.put_u8(b',');
                }
                // Items of built-in lists carry no kind; those of custom resources do.
                if resource.custom.is_some() || resource.group == event::GROUP {
                    out.put_slice(&whole_json(resource, object));
                } else {
                    out.put_slice(object.json());
                }
            }
            out.put_slice(b"]}");
            Answer::Raw(out.freeze())
        }
    }
}

/// Names of the objects a list would show; for collections that are deleted.
pub(super) fn selected(
    state: &State,
    resource: &Resource,
    call: &Call,
) -> Result<Vec<(String, String)>, ApiError> {
    let filter = Filter::of(resource, call)?;
    let all = state.store.range(resource.table, &filter.prefix);
    let all = all.filter(|(key, object)| filter.matches(key, &object.value));
    Ok(all
        .map(|(_, o)| (meta::namespace(&o.value).to_owned(), meta::name(&o.value).to_owned()))
        .collect())
}
