//! The body of a watch: a cursor into a table's log, read as the client asks for more.

use super::read::{Filter, View};
use super::resources::Resource;
use super::store::{Change, ChangeKind, Cursor, Object};
use super::{Api, ApiError, meta};
use bytes::{BufMut, Bytes, BytesMut};
use http_body::Frame;
use kerf_runtime::Clock;
use serde_json::json;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// How often a watch that asked for bookmarks gets one, as in the API server.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);
/// Enough events per frame that a busy watch is not woken for each of them.
const FRAME: usize = 64 * 1024;

/// What goes wrong with a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchCut {
    #[default]
    Never,
    /// The stream just ends.
    After(Duration),
    /// 410 Gone after a while: the client must list again.
    Expired(Duration),
    /// After a while nothing comes any more, not even the end: the other side is gone and nobody said so.
    Hung(Duration),
}

/// A response body: bytes, or a watch.
pub struct Body(Kind);

enum Kind {
    Bytes(Option<Bytes>),
    Watch(Box<WatchBody>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Bytes(_) => "Body::Bytes",
            Kind::Watch(_) => "Body::Watch",
        })
    }
}

impl Body {
    pub(crate) fn from_bytes(bytes: Bytes) -> Self {
        Self(Kind::Bytes(Some(bytes)))
    }

    pub(super) fn from_watch(watch: WatchBody) -> Self {
        Self(Kind::Watch(Box::new(watch)))
    }

    /// Lets a watch arrive late or end early; any other body is left as it is.
    pub(crate) fn disturb(&mut self, delay: Duration, cut: WatchCut) {
        if let Kind::Watch(watch) = &mut self.0 {
            watch.disturb(delay, cut);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.0 {
            Kind::Bytes(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Watch(watch) => {
                watch.poll(context).map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }
}

/// What is watched, and how it is shown.
pub(super) struct Subject {
    pub(super) resource: Arc<Resource>,
    pub(super) filter: Filter,
    pub(super) view: View,
    pub(super) clock: Clock,
}

pub(super) struct WatchBody {
    api: Api,
    subject: Subject,
    /// None: over.
    cursor: Option<Cursor>,
    ready: BytesMut,
    bookmarks: bool,
    /// Revision the client was last told of.
    told: u64,
    deadline: Instant,
    ends: End,
    timer: Pin<Box<Sleep>>,
    next_bookmark: Instant,
    delay: Duration,
    late: VecDeque<(Instant, Bytes)>,
    late_timer: Option<Pin<Box<Sleep>>>,
    hangs_at: Option<Instant>,
}

enum End {
    Timeout,
    Cut,
    Expired,
}

impl WatchBody {
    pub(super) fn new(api: Api, subject: Subject, cursor: Option<Cursor>) -> Self {
        let now = Instant::now();
        // The API server picks 30 to 60 minutes when the client names none.
        let deadline = now + Duration::from_mins(45);
        Self {
            api,
            subject,
            cursor,
            ready: BytesMut::new(),
            bookmarks: false,
            told: 0,
            deadline,
            ends: End::Timeout,
            timer: Box::pin(sleep_until(deadline)),
            next_bookmark: now + BOOKMARK_PERIOD,
            delay: Duration::ZERO,
            late: VecDeque::new(),
            late_timer: None,
            hangs_at: None,
        }
    }

    /// A watch that only says that its history is gone.
    pub(super) fn expired(api: Api, subject: Subject, error: &ApiError) -> Self {
        let mut watch = Self::new(api, subject, None);
        watch.push_error(error);
        watch
    }

    pub(super) fn ending_after(mut self, timeout: Duration) -> Self {
        self.deadline = Instant::now() + timeout;
        self.arm();
        self
    }

    pub(super) fn with_bookmarks(mut self, told: u64) -> Self {
        self.bookmarks = true;
        self.told = told;
        self.arm();
        self
    }

    fn arm(&mut self) {
        let next =
            if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
        self.timer.as_mut().reset(next);
    }

    fn disturb(&mut self, delay: Duration, cut: WatchCut) {
        self.delay = delay;
        let (after, ends) = match cut {
            WatchCut::Never => return,
            WatchCut::Hung(after) => {
                self.hangs_at = Some(Instant::now() + after);
                return;
            }
            WatchCut::After(after) => (after, End::Cut),
            WatchCut::Expired(after) => (after, End::Expired),
        };
        self.deadline = self.deadline.min(Instant::now() + after);
        self.ends = ends;
        self.arm();
    }

    pub(super) fn push_added(&mut self, object: &Object) {
        self.push_event("ADDED", object);
    }

    fn push_event(&mut self, event: &str, object: &Object) {
        self.told = object.revision;
        self.ready.put_slice(b"{\"type\":\"");
        self.ready.put_slice(event.as_bytes());
        self.ready.put_slice(b"\",\"object\":");
        let Subject { resource, view, clock, .. } = &self.subject;
        view.render(resource, object, clock.now(), &mut self.ready);
        self.ready.put_slice(b"}\n");
    }

    /// `initial`: marks the end of the objects that were there when the watch began.
    pub(super) fn push_bookmark(&mut self, revision: u64, initial: bool) {
        self.told = revision;
        let mut metadata =
            json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = json!({
            "kind": self.subject.resource.kind, "apiVersion": self.subject.resource.api_version(), "metadata": metadata,
        });
        self.push_value(&json!({ "type": "BOOKMARK", "object": object }));
    }

    fn push_error(&mut self, error: &ApiError) {
        self.push_value(&json!({ "type": "ERROR", "object": error.to_status() }));
    }

    fn push_value(&mut self, value: &serde_json::Value) {
        self.ready.put_slice(value.to_string().as_bytes());
        self.ready.put_slice(b"\n");
    }

    fn push_change(&mut self, change: &Change) {
        let fits = |object: &Object| self.subject.filter.matches(&change.key, &object.value);
        let was = change.before.as_deref().is_some_and(fits);
        let is = change.kind != ChangeKind::Deleted && fits(&change.object);
        match (was, is) {
            (true, true) => self.push_event("MODIFIED", &change.object),
            (false, true) => self.push_event("ADDED", &change.object),
            (true, false) if change.kind == ChangeKind::Deleted => {
                self.push_event("DELETED", &change.object);
            }
            // No longer selected: the client gets what it knew, at the revision at which it left.
            (true, false) => {
                if let Some(before) = &change.before {
                    let mut value = before.value.clone();
                    meta::set(&mut value, "resourceVersion", change.object.revision.to_string());
                    self.push_event("DELETED", &Object::detached(value, change.object.revision));
                }
            }
            (false, false) => {}
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.hangs_at.is_some_and(|from| Instant::now() >= from) {
            return Poll::Pending;
        }
        self.read_log(context.waker());
        if self.cursor.is_some() && self.timer.as_mut().poll(context).is_ready() {
            self.on_timer(context);
        }
        if self.delay > Duration::ZERO {
            return self.poll_late(context);
        }
        if !self.ready.is_empty() {
            return Poll::Ready(Some(self.ready.split().freeze()));
        }
        if self.cursor.is_none() { Poll::Ready(None) } else { Poll::Pending }
    }

    fn read_log(&mut self, waker: &Waker) {
        let Some(cursor) = self.cursor else { return };
        let api = self.api.clone();
        let mut state = api.state();
        while self.ready.len() < FRAME {
            let Some(change) = state.store.next_change(cursor, waker) else { break };
            self.push_change(change);
        }
    }

    fn on_timer(&mut self, context: &mut Context<'_>) {
        let now = Instant::now();
        let revision = self.api.revision();
        if self.bookmarks
            && self.told < revision
            && !matches!(self.ends, End::Cut if now >= self.deadline)
        {
            self.push_bookmark(revision, false);
        }
        if now >= self.deadline {
            if matches!(self.ends, End::Expired) {
                let message = format!("too old resource version: {} ({revision})", self.told);
                self.push_error(&ApiError::Expired(message));
            }
            self.close();
            return;
        }
        self.next_bookmark = now + BOOKMARK_PERIOD;
        self.arm();
        // A timer that was reset must be polled again to be heard of.
        if self.timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
    }

    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let now = Instant::now();
        if !self.ready.is_empty() {
            self.late.push_back((now + self.delay, self.ready.split().freeze()));
        }
        loop {
            match self.late.front() {
                Some((due, _)) if *due <= now => {
                    self.late_timer = None;
                    return Poll::Ready(self.late.pop_front().map(|(_, bytes)| bytes));
                }
                Some((due, _)) => {
                    let due = *due;
                    let timer = self.late_timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
                    if timer.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    self.late_timer = None;
                }
                None if self.cursor.is_none() => return Poll::Ready(None),
                None => return Poll::Pending,
            }
        }
    }

    fn close(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            self.api.state().store.close_cursor(cursor);
        }
    }
}

impl Drop for WatchBody {
    fn drop(&mut self) {
        self.close();
    }
}
