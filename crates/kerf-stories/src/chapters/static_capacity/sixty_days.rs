//! The example of the proposal: 12 nodes and never more than 20, in one zone, of one type, that live for 720 hours; a tenth of
//! them may be disrupted at a time, and none in business hours. For sixty days.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp, ToSpan, civil::Weekday, tz::TimeZone};
use kerf_api::conditions::REPLICAS_SATISFIED;
use kerf_testbed::{Observation, Observer};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{drift, has_nodes, replaced, says, with_static_pool};
use crate::{Stage, World, build, chapters::all_run};

const REPLICAS: i32 = 12;
const LIMIT: usize = 20;
const PODS: u32 = 24;
const LIFETIME: SignedDuration = SignedDuration::from_hours(720);
/// How long a node may take to come, and another one to go.
const REPLACEMENT: SignedDuration = SignedDuration::from_mins(5);

pub async fn the_proposals_example(world: World) {
    let begin = world.now();
    let history = History::of(&world);
    let pool = with_static_pool(&world, REPLICAS.into(), &example()).await;
    for (_, node) in has_nodes(&world, &pool, REPLICAS).await {
        assert_eq!(node.labels()["topology.kubernetes.io/zone"], "test-zone-a");
        assert_eq!(node.labels()["node.kubernetes.io/instance-type"], "m-8x-amd64-linux");
    }
    let tolerations =
        json!({"tolerations": [{"key": "example.com/special-taint", "operator": "Exists"}]});
    world.create(build::deployment("a", PODS, &tolerations)).await;
    let pods_run = async |world: &World| all_run(world, PODS as usize).await;
    world.until("all pods run", pods_run).await;

    // A new version at ten o'clock on a Tuesday has to wait until five; one at ten o'clock on a Saturday has not.
    let (tuesday, saturday) = (begin + (12 * 24 + 10).hours(), begin + (51 * 24 + 10).hours());
    assert!(in_business_hours(tuesday) && !in_business_hours(saturday));
    until(&world, tuesday).await;
    drift(&world, &pool, 2).await;
    until(&world, tuesday + 24.hours()).await;
    replaced(&world, &pool, 12, 2).await;
    until(&world, saturday).await;
    drift(&world, &pool, 3).await;
    until(&world, saturday + 6.hours()).await;
    replaced(&world, &pool, 12, 3).await;
    until(&world, begin + (60 * 24).hours()).await;

    has_nodes(&world, &pool, REPLICAS).await;
    says(&world, &pool, REPLICAS_SATISFIED).await;
    world.until("all pods run", pods_run).await;
    let history = history.ended();
    history.check(&[tuesday, saturday], world.now());
    // The first twelve, those of the second version, those that came when these had expired, and those of the third.
    assert_eq!(history.claims.len(), 48, "{:#?}", history.claims);
}

fn example() -> Value {
    let budgets = json!([
        {"nodes": "10%"}, {"schedule": "0 9 * * mon-fri", "duration": "8h", "nodes": "0"},
    ]);
    let template = json!({
        "metadata": {"labels": {"nodepool-type": "static"}},
        "spec": {
            "expireAfter": "720h",
            "taints": [{"key": "example.com/special-taint", "effect": "NoSchedule"}],
            "requirements": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m-8x-amd64-linux"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            ],
        },
    });
    let limits = json!({"nodes": LIMIT.to_string()});
    json!({"limits": limits, "disruption": {"budgets": budgets}, "template": template})
}

/// What happened to claims and nodes, as a bystander saw it.
#[derive(Clone, Debug, Default)]
struct History {
    claims: BTreeMap<String, Life>,
    /// Nodes that are ready and here to stay, and how many there were after each change.
    serving: BTreeSet<String>,
    counts: Vec<(Timestamp, Counts)>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    created: Timestamp,
    /// When it was told to go.
    leaving: Option<Timestamp>,
    gone: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    claims: usize,
    leaving: usize,
    serving: usize,
}

/// A history that is being written.
struct Writing(Arc<Mutex<History>>);

impl History {
    fn of(world: &World) -> Writing {
        let Stage::Testbed { testbed, .. } = world.stage() else {
            panic!("only the testbed shows every change")
        };
        let (written, clock) = (Arc::new(Mutex::default()), testbed.clock().clone());
        let mut changes: Observer =
            testbed.observe(&[("karpenter.sh", "nodeclaims"), ("", "nodes")]);
        let writing = Writing(Arc::clone(&written));
        tokio::spawn(async move {
            loop {
                for change in changes.changes().await {
                    let mut history = written.lock().unwrap_or_else(PoisonError::into_inner);
                    history.note(&change, clock.now());
                }
            }
        });
        writing
    }

    fn note(&mut self, change: &Observation, now: Timestamp) {
        let (key, object) = (change.key().to_owned(), change.object());
        let is_leaving = change.is_gone() || object["metadata"]["deletionTimestamp"].is_string();
        if change.resource() == "nodeclaims" {
            let life =
                self.claims.entry(key).or_insert(Life { created: now, leaving: None, gone: None });
            life.leaving = life.leaving.or(is_leaving.then_some(now));
            life.gone = life.gone.or(change.is_gone().then_some(now));
        } else if !is_leaving && is_ready(object) {
            self.serving.insert(key);
        } else {
            self.serving.remove(&key);
        }
        let there = self.claims.values().filter(|life| life.gone.is_none());
        let leaving = there.clone().filter(|life| life.leaving.is_some()).count();
        let counts = Counts { claims: there.count(), leaving, serving: self.serving.len() };
        self.counts.push((now, counts));
    }

    /// Nodes go because they have lived for 720 hours, or because of a rollout, and then not in business hours.
    fn check(&self, rollouts: &[Timestamp], end: Timestamp) {
        let (mut expired, mut replaced) = (Vec::new(), 0);
        for (claim, life) in &self.claims {
            let due = life.created + LIFETIME;
            match life.leaving {
                None => assert!(end < due, "{claim} has outlived its time: {life:?}"),
                // Conditions and timestamps know whole seconds.
                Some(time) if time + SignedDuration::from_secs(1) >= due => {
                    assert!(
                        time <= due + SignedDuration::from_secs(1),
                        "{claim} is late: {life:?}"
                    );
                    expired.push(time);
                }
                Some(time) => {
                    assert!(!in_business_hours(time), "{claim} was disrupted at {time}");
                    let since = rollouts.iter().filter(|rollout| **rollout <= time).max();
                    let late = since.map(|since| time.duration_since(*since));
                    assert!(
                        late.is_some_and(|late| late < SignedDuration::from_hours(24)),
                        "{life:?}"
                    );
                    replaced += 1;
                }
            }
            if let Some(time) = life.leaving {
                assert!(life.gone.is_some_and(|gone| gone <= time + REPLACEMENT), "{life:?}");
            }
        }
        assert_eq!((expired.len(), replaced), (12, 24));
        let complete = |counts: &Counts| counts.serving >= REPLICAS as usize;
        let since = self.counts.iter().position(|(_, counts)| complete(counts)).unwrap_or_default();
        for (time, counts) in &self.counts[since..] {
            assert!(counts.claims <= LIMIT, "{counts:?} at {time}");
            let expiring = expired.iter().any(|at| (*at..=*at + REPLACEMENT).contains(time));
            // Budgets bind rollouts: two at a time, and each has another in its place before it goes.
            assert!(expiring || complete(counts) && counts.leaving <= 2, "{counts:?} at {time}");
        }
        assert!(self.counts[since].0 <= self.counts[0].0 + REPLACEMENT);
    }
}

impl Writing {
    fn ended(self) -> History {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn in_business_hours(time: Timestamp) -> bool {
    let time = time.to_zoned(TimeZone::UTC);
    let weekend = matches!(time.weekday(), Weekday::Saturday | Weekday::Sunday);
    !weekend && (9..17).contains(&time.hour())
}

async fn until(world: &World, time: Timestamp) {
    let left = time.duration_since(world.now());
    world.pass(Duration::try_from(left).unwrap_or_default()).await;
}
