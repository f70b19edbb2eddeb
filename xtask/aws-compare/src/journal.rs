//! What a side asked of AWS.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kerf_aws_wire::{WireRequest, WireResponse, find_operation};
use serde::Serialize;
use serde_json::Value;

use crate::form;

/// How often a call was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) made: usize,
    /// Of these, one too many for AWS.
    pub(crate) throttled: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Call>>>);

#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Its name, or what there was in its place.
    pub(crate) operation: String,
    pub(crate) request: Value,
    status: u16,
    answer: String,
    is_known: bool,
}

impl Journal {
    pub(crate) fn note(&self, request: &WireRequest, response: &WireResponse) {
        let known = match find_operation(request) {
            Ok(Some((_, operation))) => Some(operation.to_owned()),
            Ok(None) | Err(_) => None,
        };
        let read = if request.body.starts_with('{') {
            serde_json::from_str(&request.body).unwrap_or_default()
        } else {
            form::read(&request.body)
        };
        let named =
            || read["Action"].as_str().or(request.target.as_deref()).unwrap_or(&request.path);
        self.lock().push(Call {
            is_known: known.is_some(),
            operation: known.unwrap_or_else(|| named().to_owned()),
            request: read,
            status: response.status,
            answer: response.body.clone(),
        });
    }

    /// The requests of one kind that did something, the oldest first.
    pub(crate) fn done(&self, operation: &str) -> Vec<Value> {
        let calls = self.lock();
        let of_kind = calls.iter().filter(|call| call.operation == operation && call.status == 200);
        of_kind.map(|call| call.request.clone()).collect()
    }

    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    /// By operation.
    pub(crate) fn counts(&self) -> BTreeMap<String, Count> {
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        for call in &*self.lock() {
            let count = counts.entry(call.operation.clone()).or_default();
            count.made += 1;
            let throttled = ["RequestLimitExceeded", "Throttling", "TooManyRequests"];
            if call.status != 200 && throttled.iter().any(|code| call.answer.contains(code)) {
                count.throttled += 1;
            }
        }
        counts
    }

    /// Calls that the stand-in for AWS does not have.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let calls = self.lock();
        let mut names: Vec<_> =
            calls.iter().filter(|call| !call.is_known).map(|call| call.operation.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// All calls, for a person to read.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for call in &*self.lock() {
            let _ = writeln!(text, "{} {} {}", call.status, call.operation, call.request);
            if call.status != 200 {
                let _ = writeln!(text, "    {}", call.answer);
            }
        }
        text
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
