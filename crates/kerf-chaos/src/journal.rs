//! Hands what operators send to the checker, as they send it.

use http::StatusCode;
use kerf_testbed::{Call, Incoming, Journal};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

use crate::checker::{Checker, Millis, Sent};

/// The checker of a run. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    checker: Arc<Mutex<Checker>>,
    start: Instant,
}

impl Judge {
    pub(crate) fn new() -> Self {
        Self { checker: Arc::default(), start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Millis {
        Millis::try_from(self.start.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calls of one replica.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) who: &'static str,
    pub(crate) judge: Judge,
}

impl Journal for Calls {
    fn sent(&self, call: &Call, request: &Incoming) {
        let key = match call.namespace.as_str() {
            "" => call.name.clone(),
            namespace => format!("{namespace}/{}", call.name),
        };
        let body: Value = match call.plural.as_str() {
            "pods" => serde_json::from_slice(&request.body).unwrap_or_default(),
            _ => Value::Null,
        };
        // Whoever writes it by another name does not ask for it: the API server leaves it out.
        let of_eviction = body.pointer("/deleteOptions/preconditions/uid");
        let uid = of_eviction.or_else(|| body.pointer("/preconditions/uid"));
        let sent = Sent {
            who: self.who,
            verb: call.verb.as_str(),
            resource: &call.plural,
            subresource: &call.subresource,
            key: &key,
            uid: uid.and_then(Value::as_str),
        };
        self.judge.lock().sent(self.judge.now(), &sent);
    }

    fn answered(&self, call: &Call, request: &Incoming, status: StatusCode) {
        if call.plural != "leases" || !call.verb.writes() || !status.is_success() {
            return;
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let Some(holder) = body.pointer("/spec/holderIdentity").and_then(Value::as_str) {
            self.judge.lock().leads(self.judge.now(), holder);
        }
    }
}
