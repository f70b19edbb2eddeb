//! Following the kinds that are recorded: a list, then its watch, again and again. Nothing but get, list and watch is asked for.

use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kerf_manifests::dumped_resources;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
};
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tracing::warn;

/// Objects per request, as kubectl has it.
const PAGE: u32 = 500;
/// After this time the API server ends a watch, and the next begins.
const WATCH: u32 = 290;
/// By how much an end may be late.
const SLACK: Duration = Duration::from_secs(10);
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

/// What a follower has seen of its kind.
#[derive(Debug)]
pub(crate) enum Sight {
    /// All there is: at first, and again when the API server no longer has the changes since the last time.
    Listed(Vec<Value>),
    /// Changes of this kind were out of sight for so long, and are in sight again.
    Blind(Duration),
    Changed(Value),
    Gone(Value),
    /// There is no reading this kind.
    Refused(Refusal),
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot {verb} {resource}: {problem}")]
pub struct Refusal {
    pub verb: &'static str,
    pub resource: String,
    pub problem: String,
}

/// A kind of NodeClass, and which of its fields may be recorded.
pub type NodeClassFields = (ApiResource, &'static [&'static str]);

/// A kind that is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    /// For a NodeClass, of which most clusters have one kind: the others are not there.
    pub(crate) class_fields: Option<&'static [&'static str]>,
}

/// The kinds that are recorded.
pub(crate) fn followed(node_classes: &[NodeClassFields]) -> Vec<Kind> {
    const KINDS: [&str; 7] =
        ["Namespace", "NodePool", "NodeClaim", "Node", "DaemonSet", "PodDisruptionBudget", "Pod"];
    let all = dumped_resources().into_iter();
    let all = all.filter(|resource| KINDS.contains(&resource.kind.as_str()));
    let classes = node_classes.iter().cloned();
    let classes = classes.map(|(resource, fields)| Kind { resource, class_fields: Some(fields) });
    all.map(|resource| Kind { resource, class_fields: None }).chain(classes).collect()
}

/// Follows one kind for as long as someone listens. `index` stands for the kind.
pub(crate) async fn follow(
    client: Client,
    kind: Kind,
    index: usize,
    sights: mpsc::Sender<(usize, Sight)>,
) {
    let api: Api<DynamicObject> = Api::all_with(client, &kind.resource);
    let mut follower = Follower {
        api,
        plural: kind.resource.plural,
        may_be_missing: kind.class_fields.is_some(),
        index,
        sights,
        revision: None,
        lost: None,
        has_listed: false,
    };
    let mut failures = 0_u32;
    loop {
        match follower.step().await {
            Ok(()) => failures = 0,
            // Of a kind that the cluster does not have nothing comes, and the record goes on without it.
            Err(Trouble::Closed | Trouble::Missing) => return,
            Err(Trouble::Expired) => {
                follower.revision = None;
                failures += 1;
            }
            Err(Trouble::Failed(problem)) => {
                follower.lost.get_or_insert_with(Instant::now);
                let resource = &follower.plural;
                if failures == 0 {
                    warn!("cannot follow {resource}: {problem}; trying again");
                }
                failures += 1;
            }
        }
        if failures > 1 {
            let wait = RETRY_FIRST.saturating_mul(1 << failures.min(6)).min(RETRY_MOST);
            tokio::time::sleep(wait).await;
        }
    }
}

struct Follower {
    api: Api<DynamicObject>,
    plural: String,
    may_be_missing: bool,
    index: usize,
    sights: mpsc::Sender<(usize, Sight)>,
    /// Where the watch goes on. `None`: a list comes first.
    revision: Option<String>,
    /// Since when it is out of reach.
    lost: Option<Instant>,
    has_listed: bool,
}

enum Trouble {
    /// The API server no longer has the changes since then.
    Expired,
    Failed(String),
    /// The cluster does not have this kind.
    Missing,
    /// Nobody listens any more.
    Closed,
}

impl Follower {
    async fn step(&mut self) -> Result<(), Trouble> {
        if self.revision.is_none() {
            self.list().await?;
        }
        let revision = self.revision.clone().unwrap_or_default();
        let end = Instant::now() + Duration::from_secs(WATCH.into()) + SLACK;
        let params = WatchParams::default().timeout(WATCH);
        let events = self.api.watch(&params, &revision).await.map_err(|error| trouble(&error))?;
        pin_mut!(events);
        self.found().await?;
        loop {
            let Ok(event) = timeout_at(end, events.next()).await else {
                return Err(Trouble::Failed("the watch went silent".to_owned()));
            };
            let Some(event) = event else { break };
            let sight = match event.map_err(|error| trouble(&error))? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.note(&object);
                    Sight::Changed(value(object)?)
                }
                WatchEvent::Deleted(object) => {
                    self.note(&object);
                    Sight::Gone(value(object)?)
                }
                WatchEvent::Bookmark(bookmark) => {
                    self.revision = Some(bookmark.metadata.resource_version);
                    continue;
                }
                WatchEvent::Error(status) if status.code == 410 => return Err(Trouble::Expired),
                WatchEvent::Error(status) => return Err(Trouble::Failed(status.message.clone())),
            };
            self.say(sight).await?;
        }
        Ok(())
    }

    /// Says how long it was out of reach.
    async fn found(&mut self) -> Result<(), Trouble> {
        match self.lost.take() {
            Some(lost) => self.say(Sight::Blind(lost.elapsed())).await,
            None => Ok(()),
        }
    }

    fn note(&mut self, object: &DynamicObject) {
        self.revision.clone_from(&object.metadata.resource_version);
    }

    async fn list(&mut self) -> Result<(), Trouble> {
        let (mut items, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
        let revision = loop {
            let page = match self.api.list(&params).await {
                Ok(page) => page,
                // The server forgot where the last page ended.
                Err(kube::Error::Api(status)) if status.code == 410 => {
                    return Err(Trouble::Expired);
                }
                Err(kube::Error::Api(status))
                    if status.code == 404 && self.may_be_missing && !self.has_listed =>
                {
                    // Who installs another provider starts the record again.
                    self.say(Sight::Listed(Vec::new())).await?;
                    return Err(Trouble::Missing);
                }
                Err(error) => return Err(self.refused(&error).await),
            };
            for item in page.items {
                items.push(value(item)?);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break page.metadata.resource_version,
            }
        };
        (self.revision, self.has_listed) = (revision, true);
        self.found().await?;
        self.say(Sight::Listed(items)).await
    }

    /// The first list says whether this kind can be read at all. Later troubles pass.
    async fn refused(&self, error: &kube::Error) -> Trouble {
        let problem = problem(error);
        if self.has_listed {
            return Trouble::Failed(problem);
        }
        let resource = self.plural.clone();
        let _ = self.say(Sight::Refused(Refusal { verb: "list", resource, problem })).await;
        Trouble::Closed
    }

    async fn say(&self, sight: Sight) -> Result<(), Trouble> {
        self.sights.send((self.index, sight)).await.map_err(|_| Trouble::Closed)
    }
}

fn value(object: DynamicObject) -> Result<Value, Trouble> {
    serde_json::to_value(object).map_err(|error| Trouble::Failed(error.to_string()))
}

fn trouble(error: &kube::Error) -> Trouble {
    match error {
        kube::Error::Api(status) if status.code == 410 => Trouble::Expired,
        other => Trouble::Failed(problem(other)),
    }
}

/// What the server said, or the innermost error: the outer ones say only that a request failed.
fn problem(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
