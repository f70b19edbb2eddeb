//! The client of a controller in kube-controller-manager: so many requests a second, the pods of a workload in batches of one, two,
//! four and so on, and a few workloads at a time. It is why the pods of a rollout arrive over a minute and not all at once.

use super::desk::{Desk, PODS, Refusal};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How fast each controller of workloads sends requests. Every controller has a client of its own, which its events use as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPace {
    /// `--kube-api-qps`.
    pub per_second: u32,
    /// `--kube-api-burst`.
    pub burst: u32,
    /// Workloads that a controller works on at once: `--concurrent-replicaset-syncs` and its like.
    pub syncs: usize,
    /// A machine that has other things to do.
    pub pause: Option<Pause>,
}

/// After so many requests nothing is sent for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub after: u32,
    pub lasts: SignedDuration,
}

impl Default for ClientPace {
    /// kube-controller-manager's.
    fn default() -> Self {
        Self { per_second: 20, burst: 30, syncs: 5, pause: None }
    }
}

/// Of one object a client reports no more events than this in a row.
const EVENTS: u32 = 25;

#[derive(Debug)]
pub(super) struct LimitedClient {
    pace: ClientPace,
    /// When the requests so far would all have been sent, had none been sent in a burst.
    sent_up_to: Timestamp,
    paused_until: Timestamp,
    sent_since_pause: u32,
    /// What waits for its turn.
    line: VecDeque<(Arc<str>, Request)>,
    /// The workloads that are to be looked at when it is their turn.
    looks: BTreeSet<Arc<str>>,
    /// Those whose turn came while as many were worked on as can be.
    waiting: Vec<Arc<str>>,
    /// The workloads whose pods are being created.
    syncs: BTreeMap<Arc<str>, Sync>,
    /// Events that were reported of a workload.
    events: BTreeMap<Arc<str>, u32>,
}

#[derive(Debug)]
enum Request {
    Pod(Value),
    /// It takes its turn and is not kept.
    Event,
    /// To bring a workload to where it should be. What that needs is sent at once.
    Look,
}

/// The pods of a workload that are being created.
#[derive(Debug, Default)]
struct Sync {
    rest: VecDeque<Value>,
    batch: usize,
    in_line: usize,
    failure: Option<Refusal>,
}

/// What comes of a turn.
pub(super) enum Turn {
    Look(Arc<str>),
    /// All pods of the workload that were to be created are, or one was refused.
    Ended(Arc<str>, Option<Refusal>),
}

impl LimitedClient {
    pub(super) fn new(pace: ClientPace) -> Self {
        Self {
            pace,
            sent_up_to: Timestamp::UNIX_EPOCH,
            paused_until: Timestamp::UNIX_EPOCH,
            sent_since_pause: 0,
            line: VecDeque::new(),
            looks: BTreeSet::new(),
            waiting: Vec::new(),
            syncs: BTreeMap::new(),
            events: BTreeMap::new(),
        }
    }

    /// Whether the workload can be looked at now. If not, it gets its turn.
    pub(super) fn takes(&mut self, workload: &Arc<str>, now: Timestamp) -> bool {
        if self.syncs.contains_key(workload) {
            // When its pods are there it is looked at in any case.
            return false;
        }
        let at_once = self.line.is_empty() && self.has_time() && self.allowed() <= now;
        if !at_once && self.looks.insert(workload.clone()) {
            self.line.push_back((workload.clone(), Request::Look));
        }
        at_once
    }

    /// Creates a pod when it is its turn.
    pub(super) fn create(&mut self, workload: &str, pod: Value) {
        let workload: Arc<str> = workload.into();
        let sync = self.syncs.entry(workload.clone()).or_default();
        sync.rest.push_back(pod);
        if sync.in_line == 0 {
            next_batch(&workload, sync, &mut self.line);
        }
    }

    /// Notes that a request is sent.
    pub(super) fn spend(&mut self, now: Timestamp) {
        self.sent_up_to = self.sent_up_to.max(now) + self.interval();
        self.sent_since_pause += 1;
        if let Some(Pause { after, lasts }) = self.pace.pause
            && self.sent_since_pause >= after
        {
            self.sent_since_pause = 0;
            self.paused_until = now + lasts;
        }
    }

    /// When the next in line has its turn, if there is one.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.line.front().map(|_| self.allowed())
    }

    fn allowed(&self) -> Timestamp {
        let ahead = self.interval() * i32::try_from(self.pace.burst.max(1) - 1).unwrap_or(i32::MAX);
        let allowed = self.sent_up_to.checked_sub(ahead).unwrap_or(Timestamp::MIN);
        allowed.max(self.paused_until)
    }

    fn has_time(&self) -> bool {
        self.syncs.len() < self.pace.syncs
    }

    fn next(&mut self, now: Timestamp) -> Option<(Arc<str>, Request)> {
        self.due().filter(|due| *due <= now).and_then(|_| self.line.pop_front())
    }

    /// Whether a workload whose turn has come can be looked at.
    fn looks_at(&mut self, workload: &Arc<str>) -> bool {
        let has_time = self.has_time();
        if has_time {
            self.looks.remove(workload);
        } else {
            self.waiting.push(workload.clone());
        }
        has_time
    }

    /// Notes how it went with a pod.
    fn sent(&mut self, workload: Arc<str>, outcome: Result<(), Refusal>) -> Option<Turn> {
        let reported = self.events.entry(workload.clone()).or_default();
        if *reported < EVENTS {
            *reported += 1;
            self.line.push_back((workload.clone(), Request::Event));
        }
        let sync = self.syncs.get_mut(&workload)?;
        sync.in_line = sync.in_line.saturating_sub(1);
        if let Err(refusal) = outcome {
            sync.failure = Some(refusal);
            sync.rest.clear();
        }
        if sync.in_line == 0 {
            next_batch(&workload, sync, &mut self.line);
        }
        if sync.in_line > 0 {
            return None;
        }
        let failure = self.syncs.remove(&workload).and_then(|sync| sync.failure);
        let waiting = self.waiting.drain(..).map(|waiting| (waiting, Request::Look));
        self.line.extend(waiting);
        Some(Turn::Ended(workload, failure))
    }

    fn interval(&self) -> SignedDuration {
        SignedDuration::from_secs(1) / i32::try_from(self.pace.per_second.max(1)).unwrap_or(1)
    }
}

fn next_batch(workload: &Arc<str>, sync: &mut Sync, line: &mut VecDeque<(Arc<str>, Request)>) {
    sync.batch = (2 * sync.batch).max(1);
    for pod in sync.rest.drain(..sync.batch.min(sync.rest.len())) {
        line.push_back((workload.clone(), Request::Pod(pod)));
        sync.in_line += 1;
    }
}

impl Desk {
    /// Sends what may be sent now, until there is something for the controller to do.
    pub(super) fn next_turn(&self) -> Option<Turn> {
        let client = self.client.as_ref()?;
        let next = || lock(client).next(self.now());
        while let Some((workload, request)) = next() {
            let turn = match request {
                Request::Event => {
                    lock(client).spend(self.now());
                    None
                }
                Request::Look if lock(client).looks_at(&workload) => Some(Turn::Look(workload)),
                Request::Look => None,
                Request::Pod(pod) => {
                    let outcome = match self.create(PODS, namespace_of(&workload), &pod) {
                        Err(refusal) if !refusal.is_overtaken() => Err(refusal),
                        _ => Ok(()),
                    };
                    lock(client).sent(workload, outcome)
                }
            };
            if turn.is_some() {
                return turn;
            }
        }
        None
    }

    /// Creates pods of a workload, as fast as the client may.
    pub(super) fn create_pods(
        &self,
        workload: &str,
        pods: impl IntoIterator<Item = Value>,
    ) -> Result<(), Refusal> {
        for pod in pods {
            match &self.client {
                Some(client) => lock(client).create(workload, pod),
                None => drop(self.create(PODS, namespace_of(workload), &pod)?),
            }
        }
        Ok(())
    }

    /// Whether the controller has time for this workload. If not, it hears of it when it has.
    pub(super) fn takes(&self, workload: &Arc<str>) -> bool {
        self.client.as_ref().is_none_or(|client| lock(client).takes(workload, self.now()))
    }

    /// When something that waits has its turn.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.client.as_ref().and_then(|client| lock(client).due())
    }

    /// Notes that a request is sent.
    pub(super) fn spend(&self) {
        if let Some(client) = &self.client {
            lock(client).spend(self.now());
        }
    }
}

fn lock(client: &Mutex<LimitedClient>) -> MutexGuard<'_, LimitedClient> {
    client.lock().unwrap_or_else(PoisonError::into_inner)
}

fn namespace_of(workload: &str) -> &str {
    workload.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the requests of these workloads are sent, in milliseconds, events included.
    fn sent(pace: ClientPace, pods: &[(&str, usize)]) -> Vec<(i64, String)> {
        let mut client = LimitedClient::new(pace);
        for (workload, count) in pods {
            (0..*count).for_each(|_| client.create(workload, Value::Null));
        }
        let (mut now, mut sent) = (Timestamp::UNIX_EPOCH, Vec::new());
        while let Some(due) = client.due() {
            now = now.max(due);
            while let Some((workload, request)) = client.next(now) {
                client.spend(now);
                let is_pod = matches!(request, Request::Pod(_));
                let what = if is_pod { workload.to_string() } else { "event".to_owned() };
                sent.push((now.as_millisecond(), what));
                if is_pod {
                    client.sent(workload, Ok(()));
                }
            }
        }
        sent
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let pace = ClientPace { per_second: 10, burst: 3, ..ClientPace::default() };
        let times: Vec<_> = sent(pace, &[("a", 3)]).into_iter().map(|(at, _)| at).collect();
        assert_eq!(times, [0, 0, 0, 100, 200, 300]);
    }

    #[test]
    fn pods_come_in_growing_batches_with_their_events_between() {
        let sent = sent(ClientPace::default(), &[("a", 4)]);
        let order: Vec<_> = sent.iter().map(|(_, what)| what.as_str()).collect();
        assert_eq!(order, ["a", "event", "a", "a", "event", "event", "a", "event"]);
    }

    #[test]
    fn workloads_take_turns() {
        let sent = sent(ClientPace::default(), &[("a", 3), ("b", 1)]);
        let pods = sent.iter().map(|(_, what)| what.as_str()).filter(|what| *what != "event");
        assert_eq!(pods.collect::<Vec<_>>(), ["a", "b", "a", "a"]);
    }

    #[test]
    fn a_thousand_pods_of_ten_workloads_take_a_minute() {
        let names: Vec<_> = (0..10).map(|at| at.to_string()).collect();
        let pods: Vec<_> = names.iter().map(|name| (name.as_str(), 100)).collect();
        let sent = sent(ClientPace::default(), &pods);
        let last = sent.iter().rfind(|(_, what)| what != "event").unwrap().0;
        assert!((45_000..70_000).contains(&last), "{last}");
        assert_eq!(sent.iter().filter(|(_, what)| what == "event").count(), 250);
    }

    #[test]
    fn a_busy_machine_pauses() {
        let pause = Some(Pause { after: 2, lasts: SignedDuration::from_secs(3) });
        let pace = ClientPace { per_second: 10, burst: 1, pause, ..ClientPace::default() };
        let times: Vec<_> = sent(pace, &[("a", 2)]).into_iter().map(|(at, _)| at).collect();
        assert_eq!(times, [0, 100, 3100, 3200]);
    }

    #[test]
    fn a_workload_waits_while_its_pods_are_created_or_others_are_worked_on() {
        let now = Timestamp::UNIX_EPOCH;
        let mut client = LimitedClient::new(ClientPace { syncs: 1, ..ClientPace::default() });
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert!(client.takes(&a, now));
        client.create("a", Value::Null);
        assert!(!client.takes(&a, now) && !client.takes(&b, now));
        let order = std::iter::from_fn(|| client.next(now)).collect::<Vec<_>>();
        assert!(matches!(&order[..], [(_, Request::Pod(_)), (_, Request::Look)]), "{order:?}");
        assert!(!client.looks_at(&b), "another is worked on");
        assert!(
            matches!(client.sent(a.clone(), Ok(())), Some(Turn::Ended(ended, None)) if ended == a)
        );
        assert!(matches!(client.next(now), Some((_, Request::Event))));
        assert!(matches!(client.next(now), Some((workload, Request::Look)) if workload == b));
        assert!(client.looks_at(&b));
        assert!(client.takes(&b, now));
    }
}
