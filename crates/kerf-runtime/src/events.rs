//! Kubernetes events: what the operator reports about an object, shown by `kubectl describe`.

mod folding;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::SignedDuration;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::folding::{Outbox, Sending, Unsent};
use crate::{
    Bucket, Clock, Tokens,
    journal::{Journal, Subject},
};

/// The same thing is said about the same object at most once in this time, unless the event asks for another.
const REPEAT_AFTER: Duration = Duration::from_mins(2);

/// Events are commentary. They get a part of the requests that the API server takes from us, and the work gets the rest.
const PACE: Bucket = Bucket { per_second: 50, burst: 100 };

/// One line reports all events that had to be dropped in this time. A reconcile never waits for its own commentary.
const REPORT_EVERY: Duration = Duration::from_mins(1);

/// How many of the notices that are of little use by the thousand get through.
const SPARINGLY: Bucket = Bucket { per_second: 5, burst: 10 };

const TRIES: u32 = 3;
const TRY_AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// Something worth telling about an object.
#[derive(Clone, Debug)]
pub struct Notice {
    pub about: ObjectReference,
    pub severity: Severity,
    pub reason: Cow<'static, str>,
    pub message: String,
    /// Notices with the same reason and the same values here count as one. Empty: every one is published.
    pub same_if: Vec<String>,
    pub repeat_after: Duration,
    /// Of little use by the thousand: all such notices share [`SPARINGLY`].
    pub sparingly: bool,
}

impl Notice {
    /// A notice that becomes an event once in two minutes per object.
    pub fn about<K>(
        object: &K,
        severity: Severity,
        reason: impl Into<Cow<'static, str>>,
        message: String,
    ) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self::of(object.object_ref(&()), severity, reason, message)
    }

    /// The same about an object that is known by its reference.
    pub fn of(
        about: ObjectReference,
        severity: Severity,
        reason: impl Into<Cow<'static, str>>,
        message: String,
    ) -> Self {
        let uid = about.uid.clone().filter(|uid| !uid.is_empty());
        Self {
            same_if: vec![uid.or_else(|| about.name.clone()).unwrap_or_default()],
            about,
            severity,
            reason: reason.into(),
            message,
            repeat_after: REPEAT_AFTER,
            sparingly: false,
        }
    }

    pub fn sparingly(self) -> Self {
        Self { sparingly: true, ..self }
    }

    pub fn same_if(self, values: Vec<String>) -> Self {
        Self { same_if: values, ..self }
    }

    pub fn repeat_after(self, window: Duration) -> Self {
        Self { repeat_after: window, ..self }
    }
}

/// Takes notices from any task and publishes them in the background. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Clock,
    component: &'static str,
    said: Arc<Mutex<Said>>,
    sparingly: Arc<Mutex<Tokens>>,
    post: Arc<Post>,
    journal: Journal,
}

/// Between the recorders and the task that publishes.
#[derive(Debug, Default)]
struct Post {
    outbox: Mutex<Outbox>,
    filled: Notify,
    unsent: AtomicU64,
}

impl Post {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, event: Event, now: Timestamp) {
        match self.outbox().put(event, now) {
            Ok(()) => self.filled.notify_one(),
            Err(Unsent::TooManyWaiting) => {
                self.unsent.fetch_add(1, Ordering::Relaxed);
            }
            Err(Unsent::TooManyOfOneObject) => {}
        }
    }
}

impl Recorder {
    /// The recorder and the task that publishes for it; the task ends with `stop`.
    pub fn new(
        client: Client,
        clock: Clock,
        component: &'static str,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let recorder = Self::unpublished(clock, component);
        let post = Arc::clone(&recorder.post);
        (recorder, publish(client, post, stop))
    }

    fn unpublished(clock: Clock, component: &'static str) -> Self {
        let sparingly = Arc::new(Mutex::new(Tokens::full(SPARINGLY)));
        let journal = Journal::default();
        Self { clock, component, said: Arc::default(), sparingly, post: Arc::default(), journal }
    }

    /// Writes into this journal as well.
    pub fn with_journal(self, journal: Journal) -> Self {
        Self { journal, ..self }
    }

    pub fn record(&self, notice: Notice) {
        let now = self.clock.now();
        if !self.is_new(&notice, now) {
            return;
        }
        self.write_down(&notice, now);
        let mut sparingly = self.sparingly.lock().unwrap_or_else(PoisonError::into_inner);
        if notice.sparingly && !sparingly.try_take() {
            return;
        }
        drop(sparingly);
        self.post.put(event(notice, self.component, now), now);
    }

    fn write_down(&self, notice: &Notice, now: Timestamp) {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        let about = Subject {
            kind: part(&notice.about.kind),
            namespace: part(&notice.about.namespace),
            name: part(&notice.about.name),
        };
        self.journal.write(now, notice.severity, &notice.reason, about, &notice.message);
    }

    fn is_new(&self, notice: &Notice, now: Timestamp) -> bool {
        if notice.same_if.is_empty() {
            return true;
        }
        let key = format!("{}-{}", notice.reason.to_lowercase(), notice.same_if.join("-"));
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.quiet_until.get(&key).is_some_and(|until| now < *until) {
            return false;
        }
        said.forget_the_old(now);
        let window = SignedDuration::try_from(notice.repeat_after).unwrap_or(SignedDuration::MAX);
        said.quiet_until.insert(key, now.checked_add(window).unwrap_or(Timestamp::MAX));
        true
    }
}

/// When each notice may be repeated.
#[derive(Debug, Default)]
struct Said {
    quiet_until: BTreeMap<String, Timestamp>,
    next_sweep: Timestamp,
}

impl Said {
    /// Now and then: with tens of thousands of pods, going through all for each of them takes minutes.
    fn forget_the_old(&mut self, now: Timestamp) {
        if now >= self.next_sweep {
            self.quiet_until.retain(|_, until| now < *until);
            self.next_sweep = now.checked_add(SWEEP_EVERY).unwrap_or(Timestamp::MAX);
        }
    }
}

const SWEEP_EVERY: SignedDuration = SignedDuration::from_secs(10);

fn event(notice: Notice, component: &str, now: Timestamp) -> Event {
    let name = notice.about.name.as_deref().unwrap_or_default();
    // Events of cluster-scoped objects live in `default`, where `kubectl describe` looks for them.
    let namespace = notice.about.namespace.clone().unwrap_or_else(|| "default".into());
    let kind = match notice.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}.")),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        involved_object: notice.about,
        reason: Some(notice.reason.into_owned()),
        message: Some(notice.message),
        type_: Some(kind.into()),
        source: Some(EventSource { component: Some(component.into()), host: None }),
        reporting_component: Some(component.into()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

/// Whether the server understood and will say no again.
fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

async fn publish(client: Client, post: Arc<Post>, stop: CancellationToken) {
    let mut pace = Tokens::full(PACE);
    let mut report = tokio::time::Instant::now();
    loop {
        let next = post.outbox().next();
        let Some((identity, sending)) = next else {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = post.filled.notified() => continue,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pace.take()) => {}
        }
        if report.elapsed() >= REPORT_EVERY {
            report = tokio::time::Instant::now();
            let unsent = post.unsent.swap(0, Ordering::Relaxed);
            if unsent > 0 {
                warn!(unsent, "events were dropped: the API server takes them too slowly");
            }
        }
        match send(&client, sending, &stop).await {
            Some(taken) => post.outbox().took(identity, &taken),
            None => post.outbox().lost(&identity),
        }
    }
}

/// The event as the API server has it; nothing if it was not taken.
async fn send(client: &Client, sending: Sending, stop: &CancellationToken) -> Option<Event> {
    let (known, event) = match sending {
        Sending::New(event) => (None, event),
        Sending::Again { name, event } => (Some(name), event),
    };
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    // Best effort, as everywhere in Kubernetes; but what is said again only after minutes is worth a second try.
    for tries in 1..=TRIES {
        let sent = match &known {
            Some(name) => match events.patch(name, &PatchParams::default(), &renewed(&event)).await
            {
                // Events do not live long, and this one is worth telling all the same.
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    events.create(&PostParams::default(), &event).await
                }
                patched => patched,
            },
            None => events.create(&PostParams::default(), &event).await,
        };
        let error = match sent {
            Ok(taken) => return Some(taken),
            Err(error) => error,
        };
        debug!(%error, reason = event.reason, tries, "the API server did not accept an event");
        if tries == TRIES || is_refused(&error) || stop.is_cancelled() {
            break;
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
    None
}

fn renewed(event: &Event) -> Patch<serde_json::Value> {
    Patch::Merge(serde_json::json!({
        "count": event.count,
        "lastTimestamp": event.last_timestamp,
        "message": event.message,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Node, Pod};

    fn recorder() -> (Recorder, Waiting) {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let recorder = Recorder::unpublished(clock, "karpenter");
        let waiting = Waiting(Arc::clone(&recorder.post));
        (recorder, waiting)
    }

    struct Waiting(Arc<Post>);

    impl Waiting {
        fn try_recv(&mut self) -> Result<Event, ()> {
            match self.0.outbox().next() {
                Some((_, Sending::New(event) | Sending::Again { event, .. })) => Ok(event),
                None => Err(()),
            }
        }
    }

    fn node(name: &str, uid: &str) -> Node {
        let metadata =
            ObjectMeta { name: Some(name.into()), uid: Some(uid.into()), ..ObjectMeta::default() };
        Node { metadata, ..Node::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_notice_is_published_again_only_after_its_window() {
        let (recorder, mut waiting) = recorder();
        let notice = || Notice::about(&node("n", "u"), Severity::Normal, "Nominated", "m".into());
        recorder.record(notice());
        recorder.record(notice());
        tokio::time::advance(Duration::from_secs(119)).await;
        recorder.record(notice());
        assert!(waiting.try_recv().is_ok());
        assert!(waiting.try_recv().is_err(), "told twice within two minutes");
        tokio::time::advance(Duration::from_secs(1)).await;
        recorder.record(notice());
        assert!(waiting.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_notice_may_have_a_window_of_its_own_or_none() {
        let (recorder, mut waiting) = recorder();
        let notice = || Notice::about(&node("n", "u"), Severity::Normal, "Blocked", "m".into());
        let mut told = |notice: Notice| {
            recorder.record(notice);
            waiting.try_recv().is_ok()
        };
        let rarely = || notice().repeat_after(Duration::from_mins(15));
        assert!(told(rarely()));
        tokio::time::advance(Duration::from_mins(14)).await;
        assert!(!told(rarely()));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert!(told(rarely()));
        for _ in 0..2 {
            assert!(told(notice().same_if(Vec::new())), "one without values is never the same");
        }
        assert!(told(notice().same_if(vec!["a".into()])));
        assert!(told(notice().same_if(vec!["b".into()])), "other values are another notice");
        assert!(!told(notice().same_if(vec!["a".into()])));
    }

    #[tokio::test(start_paused = true)]
    async fn of_what_is_told_sparingly_ten_at_once_get_through() {
        let (recorder, mut waiting) = recorder();
        let tell = |uid: u32| {
            let about = node("n", &uid.to_string());
            let notice = Notice::about(&about, Severity::Normal, "Nominated", "m".into());
            recorder.record(notice.sparingly());
        };
        (0..30).for_each(tell);
        tokio::time::advance(Duration::from_secs(1)).await;
        (30..60).for_each(tell);
        recorder.record(Notice::about(&node("n", "x"), Severity::Normal, "Other", "m".into()));
        let told = std::iter::from_fn(|| waiting.try_recv().ok()).count();
        assert_eq!(told, 10 + 5 + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn another_object_or_reason_is_another_notice() {
        let (recorder, mut waiting) = recorder();
        for (uid, reason) in [("u", "Nominated"), ("v", "Nominated"), ("u", "Evicted")] {
            recorder.record(Notice::about(&node("n", uid), Severity::Normal, reason, "m".into()));
        }
        for _ in 0..3 {
            assert!(waiting.try_recv().is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_lies_in_the_namespace_of_its_object_or_in_default() {
        let pod = Pod {
            metadata: ObjectMeta { namespace: Some("shop".into()), ..ObjectMeta::default() },
            ..Pod::default()
        };
        let of_pod = Notice::about(&pod, Severity::Warning, "R", "m".into());
        let of_node = Notice::about(&node("n", "u"), Severity::Warning, "R", "m".into());
        for (notice, namespace) in [(of_pod, "shop"), (of_node, "default")] {
            let event = event(notice, "karpenter", Timestamp::UNIX_EPOCH);
            assert_eq!(event.metadata.namespace.as_deref(), Some(namespace));
            assert_eq!(event.type_.as_deref(), Some("Warning"));
        }
    }
}
