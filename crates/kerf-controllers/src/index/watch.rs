//! Lists and watches of one kind, as the API server gives them out, each object read by itself.

use std::time::Duration;

use futures::{AsyncBufReadExt, Stream, StreamExt};
use kerf_api::{
    Decoded,
    decode::{self, ListMeta},
};
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
    core::{Request, Status},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;

/// As many objects as client-go asks for at once.
const PAGE: u32 = 500;
/// How long the beginning of an answer may take: a watch begins at once.
const HEAD: Duration = Duration::from_secs(10);
/// How long a page of a list may take: at first, and after one that took longer.
const PAGE_PATIENCE: [Duration; 2] = [Duration::from_secs(20), Duration::from_mins(1)];

/// One kind of objects on an API server.
#[derive(Clone)]
pub(crate) struct Source {
    client: Client,
    url: String,
    pub(crate) kind: String,
    /// Plural and group, as in a Role: `nodeclaims.karpenter.sh`.
    pub(crate) resource: String,
    /// The API server need not serve it. Then there are none.
    pub(crate) may_be_missing: bool,
    /// The operator does without it where it is not allowed to read it. What that means, as part of a sentence.
    pub(crate) without_it: Option<&'static str>,
}

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the API server no longer has the changes since then")]
    Expired,
    #[error("the API server is at an older revision than before; it was restored from a backup")]
    WentBack,
    #[error("no answer for {0:?}")]
    Silent(Duration),
    #[error("{}", .status.message)]
    Refused { verb: &'static str, status: Box<Status> },
    #[error("{0}")]
    Broken(String),
}

impl Failure {
    /// Whether the API server knows no such kind.
    pub(crate) fn is_not_served(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code == 404)
    }
}

/// One event of a watch, and the revision of what it tells.
#[derive(Debug)]
pub(crate) enum Told<W> {
    Applied(Decoded<W>, String),
    Deleted(Decoded<W>, String),
    /// Nothing else has happened up to here.
    Bookmark(String),
}

impl Source {
    pub(crate) fn new<W: kube::Resource>(
        client: Client,
        api: &Api<W>,
        kind: String,
        resource: String,
    ) -> Self {
        let url = api.resource_url().to_owned();
        Self { client, url, kind, resource, may_be_missing: false, without_it: None }
    }

    /// Of a kind that the API server may not know, and come to know.
    pub(crate) fn that_may_be_missing(self) -> Self {
        Self { may_be_missing: true, ..self }
    }

    /// Of a kind that the operator need not be allowed to read, and what it does then.
    pub(crate) fn that_may_be_forbidden(self, without_it: &'static str) -> Self {
        Self { without_it: Some(without_it), ..self }
    }

    /// A page of the newest list there is; the first with an empty token. `again`: the last attempt took too long.
    pub(crate) async fn page<W: DeserializeOwned>(
        &self,
        token: &str,
        again: bool,
    ) -> Result<(Vec<Decoded<W>>, ListMeta), Failure> {
        let mut params = ListParams::default().limit(PAGE);
        if !token.is_empty() {
            params = params.continue_token(token);
        }
        let text = self.text(&params, PAGE_PATIENCE[usize::from(again)]).await?;
        decode::decode_list(&self.kind, &text).map_err(|error| Failure::Broken(error.to_string()))
    }

    /// The revision at which the API server is now.
    pub(crate) async fn newest(&self) -> Result<u64, Failure> {
        let text = self.text(&ListParams::default().limit(1), HEAD).await?;
        let list = decode::decode_list::<Value>(&self.kind, &text);
        let (_, meta) = list.map_err(|error| Failure::Broken(error.to_string()))?;
        Ok(meta.resource_version.parse().unwrap_or_default())
    }

    async fn text(&self, params: &ListParams, patience: Duration) -> Result<String, Failure> {
        let request = Request::new(&self.url).list(params).map_err(|error| broken(&error))?;
        let answer = timeout(patience, self.client.request_text(request)).await;
        answer.map_err(|_| Failure::Silent(patience))?.map_err(|error| failure("list", error))
    }

    /// The changes after `revision`, for as long as `lasts`.
    pub(crate) async fn watch<W: DeserializeOwned + Clone + kube::Resource>(
        &self,
        revision: &str,
        lasts: Duration,
    ) -> Result<impl Stream<Item = Result<Told<W>, Failure>> + Unpin + use<W>, Failure> {
        let seconds = u32::try_from(lasts.as_secs()).unwrap_or(u32::MAX);
        let params = WatchParams::default().timeout(seconds);
        let request =
            Request::new(&self.url).watch(&params, revision).map_err(|error| broken(&error))?;
        let answer = timeout(HEAD, self.client.request_stream(request)).await;
        let answer = answer.map_err(|_| Failure::Silent(HEAD))?;
        let lines = answer.map_err(|error| failure("watch", error))?.lines();
        let kind = self.kind.clone();
        Ok(Box::pin(lines.map(move |line| match line {
            Ok(line) => read(&kind, &line),
            Err(error) => Err(broken(&error)),
        })))
    }
}

fn broken(error: &dyn std::error::Error) -> Failure {
    Failure::Broken(error.to_string())
}

fn failure(verb: &'static str, error: kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => refusal(verb, status),
        error => {
            // The innermost error says what happened; the outer ones say that a request failed.
            let mut cause: &dyn std::error::Error = &error;
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            Failure::Broken(cause.to_string())
        }
    }
}

fn refusal(verb: &'static str, status: Box<Status>) -> Failure {
    if status.code == 410 { Failure::Expired } else { Failure::Refused { verb, status } }
}

/// An event as it is on the wire.
#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

fn read<W: DeserializeOwned + Clone + kube::Resource>(
    kind: &str,
    line: &str,
) -> Result<Told<W>, Failure> {
    let version = |object: &W| object.meta().resource_version.clone().unwrap_or_default();
    match serde_json::from_str::<WatchEvent<W>>(line) {
        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
            let version = version(&object);
            Ok(Told::Applied(Decoded::Whole(object), version))
        }
        Ok(WatchEvent::Deleted(object)) => {
            let version = version(&object);
            Ok(Told::Deleted(Decoded::Whole(object), version))
        }
        Ok(WatchEvent::Bookmark(bookmark)) => {
            Ok(Told::Bookmark(bookmark.metadata.resource_version))
        }
        Ok(WatchEvent::Error(status)) => Err(refusal("watch", status)),
        Err(_) => read_one_by_one(kind, line),
    }
}

/// The object is not what its kind should be; the event around it may be.
fn read_one_by_one<W: DeserializeOwned>(kind: &str, line: &str) -> Result<Told<W>, Failure> {
    let raw: Raw = serde_json::from_str(line).map_err(|error| broken(&error))?;
    let version = raw.object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let version = version.unwrap_or_default().to_owned();
    match raw.kind.as_str() {
        "ADDED" | "MODIFIED" => Ok(Told::Applied(decode::decode(kind, raw.object), version)),
        "DELETED" => Ok(Told::Deleted(decode::decode(kind, raw.object), version)),
        "BOOKMARK" => Ok(Told::Bookmark(version)),
        other => Err(Failure::Broken(format!("an event of type {other:?} cannot be read"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    #[test]
    fn events_are_read_one_by_one() {
        let event = |kind: &str, time: &str| {
            let object = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "namespace": "ns", "resourceVersion": "7"},
                "status": {"startTime": time},
            });
            json!({"type": kind, "object": object}).to_string()
        };
        let (now, never) = ("2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z");
        for (line, expected) in [
            (event("ADDED", now), "applied whole 7"),
            (event("MODIFIED", never), "applied status.startTime 7"),
            (event("DELETED", never), "deleted status.startTime 7"),
            (event("BOOKMARK", now), "bookmark 7"),
            (event("BOOKMARK", never), "bookmark 7"),
            (event("NEWS", now), "an event of type \"NEWS\" cannot be read"),
            (
                json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "m"}})
                    .to_string(),
                "the API server no longer has the changes since then",
            ),
        ] {
            let of = |decoded: Decoded<Pod>| match decoded {
                Decoded::Whole(_) => "whole".to_owned(),
                Decoded::Partial(_, why) | Decoded::Nothing(why) => why.field,
            };
            let shown = match read::<Pod>("Pod", &line) {
                Ok(Told::Applied(decoded, at)) => format!("applied {} {at}", of(decoded)),
                Ok(Told::Deleted(decoded, at)) => format!("deleted {} {at}", of(decoded)),
                Ok(Told::Bookmark(at)) => format!("bookmark {at}"),
                Err(failure) => failure.to_string(),
            };
            assert_eq!(shown, expected, "{line}");
        }
    }
}
