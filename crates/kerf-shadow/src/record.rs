//! Keeping the record of a live cluster.

use std::{collections::BTreeSet, path::Path, time::Duration};

use jiff::Timestamp;
use kerf_runtime::Clock;
use kube::Client;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    entry::{ObjectKey, What, text},
    journal::{Journal, JournalError, Limits},
    slim,
    state::State,
    watch::{self, Kind, NodeClassFields, Refusal, Sight},
};

/// What was seen is with the operating system after this time at the latest.
const FLUSH: Duration = Duration::from_secs(1);
/// A silent minute is written down, so that a reader knows until when nothing happened. On the disk it is then, too.
const ALIVE: Duration = Duration::from_mins(1);
/// The API server is read no faster than this many changes ahead of the disk.
const AHEAD: usize = 1024;
/// A watch that was lost for less than this has missed nothing that a list does not show.
const BLIND: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(
        "{0}; kerf shadow needs get, list and watch on the kinds in examples/shadow/rbac.yaml, and Karpenter's custom resources"
    )]
    Refused(Refusal),
    #[error("the watches of the cluster have ended")]
    Ended,
}

/// Records a cluster until `stop`: seven kinds, and those of these NodeClasses that it has. See [`Recorder`].
pub async fn record(
    client: Client,
    node_classes: &[NodeClassFields],
    clock: Clock,
    dir: &Path,
    limits: Limits,
    stop: CancellationToken,
) -> Result<(), RecordError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        recorder = Recorder::start(client, node_classes, clock, dir, limits) => recorder?.run(stop.clone()).await,
    }
}

/// Watches a cluster and writes down what changes. It only reads: of the client it uses get, list and watch.
#[derive(Debug)]
pub struct Recorder {
    clock: Clock,
    journal: Journal,
    state: State,
    kinds: Vec<Kind>,
    sights: mpsc::Receiver<(usize, Sight)>,
    /// Ends the watches when it is dropped.
    _followers: JoinSet<()>,
}

impl Recorder {
    /// Reads the whole cluster, and goes on with the record in this directory or begins one.
    pub async fn start(
        client: Client,
        node_classes: &[NodeClassFields],
        clock: Clock,
        dir: &Path,
        limits: Limits,
    ) -> Result<Self, RecordError> {
        let (journal, state, until) = Journal::open(dir, limits)?;
        let kinds: Vec<Kind> = watch::followed(node_classes);
        let (sender, sights) = mpsc::channel(AHEAD);
        let mut followers = JoinSet::new();
        for (index, kind) in kinds.iter().enumerate() {
            let follow = watch::follow(client.clone(), kind.clone(), index, sender.clone());
            followers.spawn(follow);
        }
        let mut recorder = Self { clock, journal, state, kinds, sights, _followers: followers };
        recorder.read_all(until).await?;
        Ok(recorder)
    }

    /// Goes on until `stop`.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), RecordError> {
        let mut tick = interval(FLUSH);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut alive = self.clock.now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                sight = self.sights.recv() => {
                    let (index, sight) = sight.ok_or(RecordError::Ended)?;
                    self.take_in(index, sight)?;
                }
                _ = tick.tick() => {
                    let now = self.clock.now();
                    if now.duration_since(alive).unsigned_abs() >= ALIVE {
                        alive = now;
                        self.journal.append(now, What::Alive)?;
                        self.journal.sync()?;
                    }
                    self.journal.flush()?;
                }
            }
        }
        while let Ok((index, sight)) = self.sights.try_recv() {
            self.take_in(index, sight)?;
        }
        self.journal.append(self.clock.now(), What::Alive)?;
        Ok(self.journal.sync()?)
    }

    /// Waits until each kind was listed once.
    async fn read_all(&mut self, until: Option<Timestamp>) -> Result<(), RecordError> {
        let mut missing: BTreeSet<usize> = (0..self.kinds.len()).collect();
        let mut lists = Vec::new();
        while !missing.is_empty() {
            let (index, sight) = self.sights.recv().await.ok_or(RecordError::Ended)?;
            match &sight {
                Sight::Listed(_) => drop(missing.remove(&index)),
                // No list of this kind will come.
                Sight::Refused(refusal) => return Err(RecordError::Refused(refusal.clone())),
                _ => {}
            }
            lists.push((index, sight));
        }
        let namespaces = lists.iter().filter_map(|(_, sight)| match sight {
            Sight::Listed(items) => Some(items),
            _ => None,
        });
        self.journal.identify(&identity(namespaces.flatten()))?;
        let now = self.clock.now();
        if let Some(until) = until {
            let away = now.as_millisecond() - until.as_millisecond();
            let away = u64::try_from(away).unwrap_or_default();
            self.journal.append(now, What::Blind(away))?;
        }
        for (index, sight) in lists {
            self.take_in(index, sight)?;
        }
        let (pods, objects) = self.state.counts();
        if self.journal.has_begun() {
            info!(pods, objects, "the record goes on");
        } else {
            let base = self.state.base();
            self.journal.rotate(self.clock.now(), base)?;
            info!(pods, objects, "the record begins");
        }
        Ok(self.journal.flush()?)
    }

    fn take_in(&mut self, index: usize, sight: Sight) -> Result<(), RecordError> {
        let now = self.clock.now();
        let kind = self.kinds[index].resource.kind.clone();
        match sight {
            Sight::Refused(refusal) => return Err(RecordError::Refused(refusal)),
            Sight::Changed(item) => {
                let (_, news) = self.see(index, item);
                self.write(now, news)?;
            }
            Sight::Gone(item) => {
                // What it was at the end comes first: an eviction may be seen only now.
                let (key, mut news) = self.see(index, item);
                news.extend(key.and_then(|key| self.lose(key)));
                self.write(now, news)?;
            }
            Sight::Blind(time) if time < BLIND => {}
            Sight::Blind(time) => {
                let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                self.journal.append(now, What::Blind(time))?;
            }
            Sight::Listed(items) => {
                let (mut pods, mut objects) = (BTreeSet::new(), BTreeSet::new());
                for item in items {
                    let (key, news) = self.see(index, item);
                    match key {
                        Some(Key::Pod(id)) => drop(pods.insert(id)),
                        Some(Key::Object(key)) => drop(objects.insert(key)),
                        None => {}
                    }
                    self.write(now, news)?;
                }
                let gone: Vec<Key> = if kind == "Pod" {
                    self.state.pods_beside(&pods).into_iter().map(Key::Pod).collect()
                } else {
                    let beside = self.state.objects_beside(&kind, &objects);
                    beside.into_iter().map(Key::Object).collect()
                };
                for key in gone {
                    let news = self.lose(key).into_iter().collect();
                    self.write(now, news)?;
                }
            }
        }
        if self.journal.has_begun() && self.journal.is_full() {
            let base = self.state.base();
            self.journal.rotate(now, base)?;
        }
        Ok(())
    }

    fn see(&mut self, index: usize, item: Value) -> (Option<Key>, Vec<What>) {
        let Kind { resource, class_fields } = &self.kinds[index];
        if resource.kind == "Pod" {
            let Some(pod) = slim::pod(item, resource) else { return (None, Vec::new()) };
            (Some(Key::Pod(pod.id.clone())), self.state.see_pod(pod))
        } else {
            let object = match class_fields {
                Some(fields) => slim::node_class(item, resource, fields),
                None => slim::object(item, resource),
            };
            let key = ObjectKey::of(&object);
            (Some(Key::Object(key)), self.state.see_object(object).into_iter().collect())
        }
    }

    fn lose(&mut self, key: Key) -> Option<What> {
        match key {
            Key::Pod(id) => self.state.lose_pod(&id),
            Key::Object(key) => self.state.lose_object(&key),
        }
    }

    fn write(&mut self, now: Timestamp, news: Vec<What>) -> Result<(), JournalError> {
        news.into_iter().try_for_each(|what| self.journal.append(now, what))
    }
}

enum Key {
    Pod(String),
    Object(ObjectKey),
}

/// The namespace `kube-system` is made once in the life of a cluster, and by its UID clusters are told apart.
fn identity<'a>(mut objects: impl Iterator<Item = &'a Value>) -> String {
    let system = objects.find(|object| {
        text(object, "/metadata/name") == "kube-system"
            && text(object, "/metadata/namespace").is_empty()
    });
    system.and_then(|object| slim::pod_id(text(object, "/metadata/uid"))).unwrap_or_default()
}
