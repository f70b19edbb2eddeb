//! A Kubernetes API server without a network: requests in, responses out, one state behind a lock.

mod builtin;
mod delete;
mod discovery;
mod error;
mod event;
mod feed;
pub(crate) mod meta;
mod openapi;
mod patch;
mod protobuf;
mod read;
mod request;
mod resources;
mod review;
pub(crate) mod selector;
mod store;
mod subresource;
mod table;
mod watch;
mod write;

pub use discovery::KUBERNETES_VERSION;
pub use error::{ApiError, Named};
pub(crate) use feed::{Feed, Seen, Wanted};
pub use request::{Call, Query, Verb};
pub use watch::{Body, WatchCut};

use crate::log::EventLog;
use crate::random::Random;
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, header};
use kerf_admission::SchemaError;
use kerf_runtime::Clock;
use request::Target;
pub(crate) use resources::Resource;
use resources::Resources;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use store::Object;
use store::Store;

/// What kubectl sends of built-in kinds when it creates them itself. Refused it, it does not fall back to JSON.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The API server of one testbed. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Api(Arc<Mutex<State>>);

#[derive(Debug)]
pub(crate) struct State {
    resources: Resources,
    store: Store,
    clock: Clock,
    random: Random,
    log: EventLog,
    /// Tells of each write by its revision.
    writes: tokio::sync::watch::Sender<u64>,
}

/// A request as it came in, with its body read.
#[derive(Debug)]
pub struct Incoming {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Incoming {
    /// What is asked of which resource; `None` for discovery and the like.
    pub fn call(&self) -> Option<Call> {
        match request::parse(&self.method, &self.path, &self.query) {
            Target::Resource(call) => Some(call),
            _ => None,
        }
    }

    fn header(&self, name: &http::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// What a verb on a resource brings forth.
enum Answer {
    Object(StatusCode, Arc<Resource>, Arc<store::Object>),
    /// Anything that is not a stored object: statuses, scales, discovery.
    Value(StatusCode, Value),
    /// The same, where clients look at the content type.
    Typed(&'static str, Value),
    Raw(Bytes),
    Watch(Box<watch::WatchBody>),
}

impl Api {
    pub(crate) fn new(clock: Clock, random: Random) -> Self {
        let mut store = Store::default();
        let resources = Resources::built_in(&mut store);
        let mut state = State {
            resources,
            store,
            clock,
            random,
            log: EventLog::default(),
            writes: tokio::sync::watch::Sender::new(0),
        };
        state.create_initial_objects();
        Self(Arc::new(Mutex::new(state)))
    }

    pub fn handle(&self, request: &Incoming) -> Response<Body> {
        let answer = match request::parse(&request.method, &request.path, &request.query) {
            Target::Resource(call) => self.answer_in_any_encoding(&call, request),
            Target::Other(segments) => {
                let segments: Vec<_> = segments.iter().map(String::as_str).collect();
                self.state().discover(&segments, request.header(&header::ACCEPT))
            }
            Target::MethodNotAllowed => Err(ApiError::MethodNotAllowed),
        };
        match answer {
            Ok(answer) => answer.into_response(),
            Err(error) => refusal(&error),
        }
    }

    fn answer_in_any_encoding(&self, call: &Call, request: &Incoming) -> Result<Answer, ApiError> {
        if request.header(&header::CONTENT_TYPE) != PROTOBUF || request.body.is_empty() {
            return self.answer(call, request, &request.body);
        }
        let object = protobuf::to_json(&request.body).map_err(|why| {
            ApiError::UnsupportedMediaType(format!("cannot read the object in {PROTOBUF}: {why}"))
        })?;
        self.answer(call, request, &serde_json::to_vec(&object).unwrap_or_default())
    }

    fn answer(&self, call: &Call, request: &Incoming, body: &[u8]) -> Result<Answer, ApiError> {
        if let Some(answer) = review::answer(call, body) {
            return answer;
        }
        let mut state = self.state();
        let resource = state.resources.find(&call.group, &call.version, &call.plural).cloned();
        let resource = resource.ok_or_else(|| state.no_such(&call.group))?;
        let accept = request.header(&header::ACCEPT);
        let object = || write::object_of(&resource, call, body);
        let options = || delete::Options::parse(call, body);
        match (call.verb, call.subresource.as_str()) {
            (Verb::Watch, _) => state.watch(&resource, call, self, accept),
            (Verb::List, _) => state.list(&resource, call, accept),
            (Verb::Get, "" | "status") => state.get(&resource, call, accept),
            (Verb::Create, "") => state.create(&resource, call, object()?),
            (Verb::Update, "" | "status" | "finalize") => state.replace(&resource, call, object()?),
            (Verb::Patch, "" | "status") => {
                state.patch(&resource, call, request.header(&header::CONTENT_TYPE), body)
            }
            (Verb::Delete, "") => state.delete(&resource, call, &options()?),
            (Verb::DeleteCollection, "") => state.delete_collection(&resource, call, &options()?),
            _ => state.subresource(&resource, call, request.header(&header::CONTENT_TYPE), body),
        }
    }

    /// Serves a custom resource from now on, and holds its definition as if it had been created.
    pub(crate) fn install(&self, crd: &Value) -> Result<(), SchemaError> {
        let state = &mut *self.state();
        state.resources.define(crd, &mut state.store)?;
        state.create_definition(crd.clone());
        Ok(())
    }

    /// What names and uids are drawn from.
    pub(crate) fn random(&self) -> Random {
        self.state().random.clone()
    }

    pub(crate) fn draw_from(&self, random: Random) {
        self.state().random = random;
    }

    /// Changes with each write, to the write's revision.
    pub(crate) fn writes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.state().writes.subscribe()
    }

    /// Shows each object of a resource, in key order.
    pub(crate) fn each(&self, group: &str, plural: &str, mut show: impl FnMut(&Value)) {
        let state = self.state();
        if let Some(resource) = state.resources.iter().find(|resource| resource.is(group, plural)) {
            state.store.range(resource.table, "").for_each(|(_, object)| show(&object.value));
        }
    }

    /// Group and plural of all resources that have objects.
    pub(crate) fn inhabited(&self) -> Vec<(String, String, usize)> {
        let state = self.state();
        let all = state
            .resources
            .iter()
            .map(|r| (r.group.clone(), r.plural.clone(), state.store.len(r.table)));
        all.filter(|(group, _, count)| *count > 0 && group != event::GROUP).collect()
    }

    /// Forgets history, as etcd's compaction does: watches from before now get 410 Gone.
    pub fn compact(&self) {
        self.state().store.compact();
    }

    /// Revision of the last write.
    pub fn revision(&self) -> u64 {
        self.state().store.revision()
    }

    /// The log of all writes so far.
    pub fn event_log(&self) -> EventLog {
        self.state().log.clone()
    }

    /// How many objects of a resource there are.
    pub fn count(&self, group: &str, plural: &str) -> usize {
        let state = self.state();
        let resource = state.resources.iter().find(|resource| resource.is(group, plural));
        resource.map_or(0, |resource| state.store.len(resource.table))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a handler is a defect that the test sees; the state itself is changed only by whole writes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The refusal of a path that leads nowhere.
    fn no_such(&self, group: &str) -> ApiError {
        if self.resources.is_built_in(group) {
            ApiError::NoSuchResource
        } else {
            ApiError::NoSuchPath
        }
    }
}

impl Answer {
    fn into_response(self) -> Response<Body> {
        match self {
            Self::Object(code, resource, object) => {
                json_response(code, read::whole_json(&resource, &object).into())
            }
            Self::Value(code, value) => {
                json_response(code, serde_json::to_vec(&value).unwrap_or_default().into())
            }
            Self::Typed(content_type, value) => {
                let bytes = serde_json::to_vec(&value).unwrap_or_default().into();
                let mut response = json_response(StatusCode::OK, bytes);
                let value = http::HeaderValue::from_static(content_type);
                response.headers_mut().insert(header::CONTENT_TYPE, value);
                response
            }
            Self::Raw(bytes) => json_response(StatusCode::OK, bytes),
            Self::Watch(body) => respond(StatusCode::OK, Body::from_watch(*body)),
        }
    }
}

/// The response to a request that is refused.
pub(crate) fn refusal(error: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if matches!(error, ApiError::NoSuchPath) {
        let body = Body::from_bytes(Bytes::from_static(b"404 page not found\n"));
        let mut response = respond(code, body);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
        return response;
    }
    let status = error.to_status();
    let retry = status["details"]["retryAfterSeconds"].as_u64();
    let mut response = json_response(code, serde_json::to_vec(&status).unwrap_or_default().into());
    if let Some(seconds) = retry {
        response.headers_mut().insert(header::RETRY_AFTER, http::HeaderValue::from(seconds));
    }
    response
}

fn json_response(code: StatusCode, bytes: Bytes) -> Response<Body> {
    respond(code, Body::from_bytes(bytes))
}

fn respond(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
