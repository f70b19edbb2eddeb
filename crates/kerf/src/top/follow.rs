//! A cluster, followed: one list and one watch for each kind that decisions depend on. Nothing is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt};
use kerf_manifests::{dumped, dumped_node_class, dumped_resources, referenced_node_classes};
use kerf_runtime::client::Target;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, WatchEvent, WatchParams},
};
use serde_json::Value;

use crate::{
    plan::PlanError,
    providers,
    snapshot::{Connected, ReadError, cause, connect, list},
};

/// The API server ends a watch after this many seconds, and the next begins where it ended.
const WATCH: u32 = 60;
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// How long the first look may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// Without these there is nothing to show.
const NEEDED: [&str; 3] = ["nodepools", "nodes", "pods"];

/// Followed in the background for as long as the process lasts.
pub(super) struct Following {
    store: Arc<Store>,
    subject: String,
}

#[derive(Default)]
struct Store {
    kept: Mutex<Kept>,
    changed: Condvar,
}

#[derive(Default)]
struct Kept {
    /// By plural. Pods come last, as in a snapshot.
    kinds: Vec<(String, Followed)>,
    has_changed: bool,
}

/// The objects of one kind.
#[derive(Default)]
struct Followed {
    /// By namespace and name.
    objects: BTreeMap<String, Value>,
    is_listed: bool,
    /// Why it is not known what has happened since.
    problem: Option<String>,
}

impl Following {
    /// Returns when every kind has been listed, or has been refused.
    pub(super) fn start(target: &Target) -> Result<Self, PlanError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ReadError::Runtime)?;
        let Connected { client, server, .. } = runtime.block_on(connect(target))?;
        let subject = target.context.clone().unwrap_or(server);
        let store = Arc::new(Store::default());
        let kinds = dumped_resources();
        for resource in &kinds {
            store.lock().kinds.push((resource.plural.clone(), Followed::default()));
        }
        let followed = Arc::clone(&store);
        thread::spawn(move || runtime.block_on(follow_all(client, kinds.into(), followed)));
        let following = Self { store, subject };
        following.first_look()?;
        Ok(following)
    }

    /// What is looked at.
    pub(super) fn subject(&self) -> &str {
        &self.subject
    }

    /// Waits until something has changed, but no longer than this.
    pub(super) fn wait(&self, at_most: Duration) {
        let kept = self.store.lock();
        let waited = self.store.changed.wait_timeout_while(kept, at_most, |it| !it.has_changed);
        let (mut kept, _) = waited.unwrap_or_else(PoisonError::into_inner);
        kept.has_changed = false;
    }

    /// All objects, and a sentence for each kind that is not known or no longer.
    pub(super) fn objects(&self) -> (Vec<Value>, Vec<String>) {
        let kept = self.store.lock();
        let objects = kept.kinds.iter().flat_map(|(_, kind)| kind.objects.values().cloned());
        let mut notes: Vec<String> = Vec::new();
        for (plural, kind) in &kept.kinds {
            let Some(problem) = &kind.problem else { continue };
            let shown = if kind.is_listed {
                format!("{plural} are shown as they were before")
            } else {
                format!("reasons are shown as if there were no {plural}")
            };
            notes.push(format!("{problem}; {shown}"));
        }
        (objects.collect(), notes)
    }

    fn first_look(&self) -> Result<(), PlanError> {
        let begun = Instant::now();
        let mut kept = self.store.lock();
        let is_open = |(_, kind): &(String, Followed)| !kind.is_listed && kind.problem.is_none();
        while kept.kinds.iter().any(is_open) && begun.elapsed() < PATIENCE {
            let waited = self.store.changed.wait_timeout(kept, RETRY_FIRST);
            (kept, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        for (plural, kind) in &kept.kinds {
            if kind.is_listed || !NEEDED.contains(&plural.as_str()) {
                continue;
            }
            let problem = kind.problem.clone().unwrap_or_else(|| "no answer".to_owned());
            let problem = problem.trim_start_matches(&format!("cannot list {plural}: ")).to_owned();
            return Err(ReadError::List { plural: plural.clone(), problem }.into());
        }
        kept.has_changed = false;
        Ok(())
    }
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alter(&self, plural: &str, alter: impl FnOnce(&mut Followed)) {
        let mut kept = self.lock();
        if let Some((_, kind)) = kept.kinds.iter_mut().find(|(name, _)| name == plural) {
            alter(kind);
            kept.has_changed = true;
            self.changed.notify_all();
        }
    }

    /// Kinds of NodeClasses that pools and claims refer to.
    fn referenced(&self) -> BTreeSet<(String, String)> {
        let kept = self.lock();
        let pools = kept.kinds.iter().filter(|(plural, _)| plural.starts_with("node"));
        let objects: Vec<Value> =
            pools.flat_map(|(_, kind)| kind.objects.values().cloned()).collect();
        referenced_node_classes(&objects)
    }
}

async fn follow_all(client: Client, kinds: Vec<ApiResource>, store: Arc<Store>) {
    for resource in kinds {
        let trimmed = |item, resource: &ApiResource| dumped(item, resource);
        tokio::spawn(follow(client.clone(), resource, Arc::clone(&store), trimmed));
    }
    let mut known = BTreeSet::new();
    loop {
        for (group, kind) in store.referenced() {
            let Some((resource, fields)) = providers::node_class(&group, &kind) else { continue };
            if known.insert((group, kind)) {
                let first = (resource.plural.clone(), Followed::default());
                store.lock().kinds.insert(0, first);
                let trimmed =
                    move |item, resource: &ApiResource| dumped_node_class(item, resource, fields);
                tokio::spawn(follow(client.clone(), resource, Arc::clone(&store), trimmed));
            }
        }
        tokio::time::sleep(RETRY_FIRST).await;
    }
}

/// One kind, for good.
async fn follow(
    client: Client,
    resource: ApiResource,
    store: Arc<Store>,
    trimmed: impl Fn(Value, &ApiResource) -> Value,
) {
    let mut wait = RETRY_FIRST;
    loop {
        let begun = Instant::now();
        let ended = list_and_watch(&client, &resource, &store, &trimmed).await;
        if begun.elapsed() > RETRY_MOST {
            wait = RETRY_FIRST;
        }
        if let Err(error) = ended {
            store.alter(&resource.plural, |kind| kind.problem = Some(error.to_string()));
        }
        tokio::time::sleep(wait).await;
        wait = (2 * wait).min(RETRY_MOST);
    }
}

/// Ends well when the server no longer has the changes since the last one, or where the kind is not there.
async fn list_and_watch(
    client: &Client,
    resource: &ApiResource,
    store: &Store,
    trimmed: &impl Fn(Value, &ApiResource) -> Value,
) -> Result<(), ReadError> {
    let mut objects = Vec::new();
    let revision = list(client, resource, &mut objects, |item| trimmed(item, resource)).await?;
    store.alter(&resource.plural, |kind| {
        kind.objects = objects.into_iter().map(|object| (key(&object), object)).collect();
        (kind.is_listed, kind.problem) = (true, None);
    });
    let Some(mut revision) = revision else { return Ok(()) };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let failed = |error: &kube::Error| ReadError::Watch {
        plural: resource.plural.clone(),
        problem: cause(error),
    };
    loop {
        let begun = Instant::now();
        let parameters = WatchParams::default().timeout(WATCH);
        let events = api.watch(&parameters, &revision).await.map_err(|error| failed(&error))?;
        let mut events = events.boxed();
        while let Some(event) = events.try_next().await.map_err(|error| failed(&error))? {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    revision = object.metadata.resource_version.clone().unwrap_or(revision);
                    let Ok(object) = serde_json::to_value(object) else { continue };
                    let object = trimmed(object, resource);
                    store.alter(&resource.plural, |kind| {
                        kind.objects.insert(key(&object), object);
                    });
                }
                WatchEvent::Deleted(object) => {
                    revision = object.metadata.resource_version.clone().unwrap_or(revision);
                    let Ok(object) = serde_json::to_value(object) else { continue };
                    store.alter(&resource.plural, |kind| drop(kind.objects.remove(&key(&object))));
                }
                WatchEvent::Bookmark(bookmark) => revision = bookmark.metadata.resource_version,
                WatchEvent::Error(status) if status.code == 410 => return Ok(()),
                WatchEvent::Error(status) => return Err(failed(&kube::Error::Api(status))),
            }
        }
        if begun.elapsed() < RETRY_FIRST {
            // A watch that ends at once is no watch.
            tokio::time::sleep(RETRY_FIRST).await;
        }
    }
}

fn key(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"))
}
