//! Following one kind: a list, then its watch, again and again until the operator stops.
//!
//! A watch is short. The API server ends it after a few seconds, and the next one begins where it ended, so that a connection
//! over which nothing comes any more is noticed within [`Timing::blind_at_most`] instead of when TCP gives up.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use kerf_api::{Decoded, Unreadable};
use kerf_cluster::{Doubtful, Key, Kind};
use kerf_runtime::Jitter;
use kube::Api;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Index,
    watch::{Failure, Source, Told},
};

const RETRY_FIRST: Duration = Duration::from_millis(800);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// A failure that goes on is logged again after this time.
const SAY_AGAIN: Duration = Duration::from_mins(5);
/// A watch that ends sooner than this without a word is no watch.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How long watches last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// After this time the API server ends a watch, and the next begins.
    pub watch: Duration,
    /// By how much an end may be late.
    pub slack: Duration,
}

impl Default for Timing {
    /// Seventeen kinds make one request per second, and a broken connection is given up after 20 seconds.
    fn default() -> Self {
        Self { watch: Duration::from_secs(15), slack: Duration::from_secs(5) }
    }
}

impl Timing {
    /// For an API server in the same process, to which no connection can break: runs of weeks would otherwise be mostly
    /// watches that begin again.
    pub fn in_process() -> Self {
        Self { watch: Duration::from_secs(290), ..Self::default() }
    }

    /// A silence that is longer than this is no silence of the cluster.
    pub fn blind_at_most(self) -> Duration {
        self.watch + 3 * self.slack
    }
}

/// When the API server was last heard about each kind. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Freshness(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Freshness {
    /// The kind that has been silent for longest, and for how long; nothing before the first list.
    pub fn oldest(&self) -> Option<(String, Duration)> {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (kind, at) = heard.iter().min_by_key(|(_, at)| **at)?;
        Some((kind.clone(), at.elapsed()))
    }

    pub(crate) fn heard(&self, kind: &str) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match heard.get_mut(kind) {
            Some(at) => *at = Instant::now(),
            None => drop(heard.insert(kind.to_owned(), Instant::now())),
        }
    }
}

/// Called for an object that cannot be read as a whole.
pub(crate) type Report = Box<dyn Fn(&Unreadable, Option<ObjectReference>) + Send + Sync>;

/// Follows one kind.
pub(crate) struct Follower<'a, W, C> {
    index: &'a Index,
    api: Api<W>,
    source: Source,
    convert: C,
    timing: Timing,
    freshness: Freshness,
    /// Where the watch goes on. `None`: a list comes first.
    revision: Option<String>,
    /// Whether the API server has to be asked if it is still in the history of that revision.
    doubt: bool,
    pace: Pace,
    said: Option<(String, Instant)>,
}

impl<'a, W, C, K> Follower<'a, W, C>
where
    W: kube::Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    C: Fn(W) -> K + Send,
    K: Kind,
{
    pub(crate) fn new(
        index: &'a Index,
        (api, source): (Api<W>, Source),
        convert: C,
        (timing, freshness, jitter): (Timing, Freshness, Jitter),
    ) -> Self {
        let pace = Pace { failures: 0, jitter };
        Self {
            index,
            api,
            source,
            convert,
            timing,
            freshness,
            revision: None,
            doubt: false,
            pace,
            said: None,
        }
    }

    /// Goes on until `stop`, whatever fails.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut restores = self.index.restores.subscribe();
        loop {
            let result = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Another kind has found out.
                _ = restores.changed() => {
                    self.revision = None;
                    continue;
                }
                result = self.step() => result,
            };
            let Err(failure) = result else { continue };
            let wait = self.after(&failure);
            self.say(&failure, wait);
            if let Failure::WentBack = failure {
                self.index.begin_history();
                restores.mark_unchanged();
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = restores.changed() => self.revision = None,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// One watch, and before it whatever it needs.
    async fn step(&mut self) -> Result<(), Failure> {
        let revision = match self.revision.clone() {
            None => self.list().await?,
            Some(revision) if self.doubt => self.same_history(revision).await?,
            Some(revision) => revision,
        };
        self.watch(&revision).await
    }

    async fn list(&mut self) -> Result<String, Failure> {
        let again = self.pace.failures > 0;
        let mut token = String::new();
        let mut revision = None;
        loop {
            let page = self.source.page::<W>(&token, again).await;
            let is_missing = page.as_ref().is_err_and(Failure::is_not_served);
            if is_missing && self.source.may_be_missing {
                self.take_in_that_there_are_none().await;
            }
            let (items, meta) = page?;
            if revision.is_none() {
                self.index.begin_list::<K>(meta.resource_version.parse().unwrap_or_default());
                revision = Some(meta.resource_version);
            }
            for item in items {
                self.take_in(item);
            }
            if meta.continue_token.is_empty() {
                break;
            }
            token = meta.continue_token;
        }
        for doubtful in self.index.end_list::<K>() {
            self.settle(doubtful).await;
        }
        let revision = revision.unwrap_or_default();
        (self.revision, self.doubt) = (Some(revision.clone()), false);
        // No word of watching again: a server may answer lists and refuse every watch.
        self.heard();
        Ok(revision)
    }

    /// A kind that is not served has no objects. Without this the operator would wait for its list for ever.
    async fn take_in_that_there_are_none(&self) {
        self.index.begin_list::<K>(0);
        for doubtful in self.index.end_list::<K>() {
            self.settle(doubtful).await;
        }
        self.heard();
    }

    /// After a restore of etcd the API server waits until its revision has come to the one that is asked for, and says
    /// nothing meanwhile.
    async fn same_history(&mut self, revision: String) -> Result<String, Failure> {
        let newest = self.source.newest().await?;
        if newest < revision.parse().unwrap_or_default() {
            return Err(Failure::WentBack);
        }
        // A server that was away for longer may have been restored, and may have come past that revision since.
        if self.pace.failures > 1 {
            return self.list().await;
        }
        self.doubt = false;
        Ok(revision)
    }

    async fn watch(&mut self, revision: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        // Until the end says otherwise.
        self.doubt = true;
        let mut events = self.source.watch::<W>(revision, self.timing.watch).await?;
        let end = begun + self.timing.watch + self.timing.slack;
        let mut silent = true;
        loop {
            let event = timeout_at(end, events.next()).await;
            let event = event.map_err(|_| Failure::Silent(begun.elapsed()))?;
            let Some(event) = event else { break };
            self.revision = Some(match event? {
                Told::Applied(decoded, revision) => {
                    self.take_in(decoded);
                    revision
                }
                Told::Deleted(decoded, revision) => {
                    self.index.take_out(decoded.map(&self.convert));
                    revision
                }
                Told::Bookmark(revision) => revision,
            });
            silent = false;
            self.pace.failures = 0;
            self.progress();
        }
        if silent && begun.elapsed() < AT_ONCE {
            return Err(Failure::Broken("the watch ended as soon as it began".to_owned()));
        }
        self.pace.failures = 0;
        self.doubt = silent;
        self.progress();
        Ok(())
    }

    fn take_in(&self, decoded: Decoded<W>) {
        let uid = match &decoded {
            Decoded::Whole(object) | Decoded::Partial(object, _) => object.meta().uid.clone(),
            // What is not known by its type has no events of ours.
            Decoded::Nothing(_) => None,
        };
        self.index.take_in(&self.source.kind, decoded.map(&self.convert), uid);
    }

    /// Asks for an object that a new list did not have and that is younger than the list. Only what has no namespace is
    /// written here.
    async fn settle(&self, doubtful: Doubtful) {
        match self.api.get_opt(&doubtful.key.name).await {
            Ok(Some(object)) => {
                let object = (self.convert)(object);
                self.index.alter(|cluster| cluster.confirm(doubtful, object));
            }
            Ok(None) => self.index.alter(|cluster| cluster.refute::<K>(doubtful)),
            // A reconcile of it will find out.
            Err(error) => {
                warn!(%error, name = %doubtful.key, "cannot find out whether the object exists");
            }
        }
    }

    /// What the operator can do without makes it blind to nothing.
    fn heard(&self) {
        if self.source.without_it.is_none() {
            self.freshness.heard(&self.source.kind);
        }
    }

    fn progress(&mut self) {
        self.heard();
        if self.said.take().is_some() {
            info!(resource = self.source.resource, "watching again");
        }
    }

    /// What a failure means for the next attempt, and when that is.
    fn after(&mut self, failure: &Failure) -> Duration {
        match failure {
            Failure::Expired | Failure::WentBack => {
                self.revision = None;
                // The first time at once. A server that expires everything is not asked without end.
                if self.pace.failures == 0 {
                    self.pace.failures = 1;
                    return Duration::ZERO;
                }
            }
            // Whatever it is, a list will show.
            Failure::Refused { verb: "watch", status } if status.code != 403 => {
                self.revision = None;
            }
            Failure::Refused { .. } | Failure::Silent(_) | Failure::Broken(_) => {}
        }
        self.pace.next()
    }

    /// Says what is wrong: at once when it is new, and again after minutes.
    fn say(&mut self, failure: &Failure, wait: Duration) {
        let resource = &self.source.resource;
        let said = match failure {
            Failure::Expired => {
                debug!(resource, "listing again: the watch has expired");
                return;
            }
            Failure::WentBack => {
                warn!(resource, "listing again: {failure}");
                return;
            }
            Failure::Refused { verb, status } if status.code == 403 => match self.source.without_it
            {
                Some(without_it) => format!(
                    "not allowed to {verb} {resource}: {without_it}; to change that, grant list and \
                     watch on {resource} to the operator's service account, in a ClusterRole"
                ),
                None => format!(
                    "not allowed to {verb} {resource}; grant get, list and watch on {resource} to the \
                     operator's service account, in a ClusterRole"
                ),
            },
            not_served if self.source.may_be_missing && not_served.is_not_served() => format!(
                "the API server does not serve {resource}, so there are none; to install the definition: \
                 kerf crds | kubectl apply -f -"
            ),
            Failure::Refused { status, .. } if status.code == 404 => format!(
                "the API server does not serve {resource}; if its CustomResourceDefinition was \
                 deleted, apply it again: kerf crds | kubectl apply -f -"
            ),
            other => format!("cannot follow {resource}: {other}"),
        };
        let now = Instant::now();
        // What the operator does without is said once.
        let is_known = |at: Instant| self.source.without_it.is_some() || now < at + SAY_AGAIN;
        if self.said.as_ref().is_some_and(|(before, at)| *before == said && is_known(*at)) {
            debug!(retry_in = ?wait, "{said}");
            return;
        }
        warn!(retry_in = ?wait, "{said}");
        self.said = Some((said, now));
    }
}

/// When to try again: later each time, and not when all the others do.
#[derive(Debug)]
struct Pace {
    failures: u32,
    jitter: Jitter,
}

impl Pace {
    fn next(&mut self) -> Duration {
        let wait = RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(RETRY_MOST);
        self.failures += 1;
        self.jitter.shorten(wait)
    }
}

/// The key of an object of which nothing else could be read.
pub(super) fn key_of(unreadable: &Unreadable) -> Key {
    Key::namespaced(&unreadable.namespace, &unreadable.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_come_later_each_time_and_never_all_at_once() {
        let waits = |seed| {
            let mut pace = Pace { failures: 0, jitter: Jitter::seeded(seed) };
            std::iter::repeat_with(|| pace.next()).take(12).collect::<Vec<_>>()
        };
        let mut bound = RETRY_FIRST;
        for wait in waits(1) {
            assert!(bound / 2 <= wait && wait <= bound, "{wait:?} of {bound:?}");
            bound = (bound * 2).min(RETRY_MOST);
        }
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }

    #[test]
    fn a_broken_connection_is_noticed_within_thirty_seconds() {
        assert!(Timing::default().blind_at_most() <= Duration::from_secs(30));
    }
}
