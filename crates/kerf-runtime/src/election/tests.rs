//! Elections in virtual time, against an API server that holds one lease and can be made to misbehave.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle};
use tower::service_fn;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
struct Server(Arc<Mutex<Stored>>, Arc<Notify>);

#[derive(Default)]
struct Stored {
    lease: Option<Value>,
    version: u64,
    /// For the candidate of this name, or for all.
    fault: Option<(Option<&'static str>, Fault)>,
}

#[derive(Clone, Copy)]
enum Fault {
    /// Answers 500 and does nothing.
    Broken,
    /// Never answers and does nothing.
    Silent,
    /// Does what it is asked at once and answers this much later.
    Slow(Duration),
}

impl Server {
    fn client(&self, candidate: &'static str) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let fault = match server.0.lock().unwrap().fault {
                    Some((who, fault)) if who.is_none_or(|who| who == candidate) => Some(fault),
                    _ => None,
                };
                let watching = parts.uri.query().is_some_and(|query| query.contains("watch="));
                if watching && fault.is_none() {
                    let line = server.next_change().await;
                    return Ok(Response::new(Body::from(line.into_bytes())));
                }
                let (status, answer) = match fault {
                    Some(Fault::Broken) => (500, failure(500, "InternalError")),
                    Some(Fault::Silent) => std::future::pending().await,
                    Some(Fault::Slow(_)) | None => server.handle(&parts.method, &body),
                };
                if let Some(Fault::Slow(delay)) = fault {
                    sleep(delay).await;
                }
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    /// A watch that ends after the first event: the client has to open it again.
    async fn next_change(&self) -> String {
        let changed = self.1.notified();
        changed.await;
        let stored = self.0.lock().unwrap();
        json!({"type": "MODIFIED", "object": stored.lease}).to_string() + "\n"
    }

    fn handle(&self, method: &Method, body: &[u8]) -> (u16, Value) {
        let mut stored = self.0.lock().unwrap();
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        match (method.as_str(), &stored.lease) {
            ("GET", Some(lease)) => (200, lease.clone()),
            ("GET" | "PUT", None) => (404, failure(404, "NotFound")),
            ("POST", Some(_)) => (409, failure(409, "AlreadyExists")),
            ("PUT", Some(lease))
                if lease["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"] =>
            {
                (409, failure(409, "Conflict"))
            }
            ("PUT" | "POST", _) => {
                let mut lease = sent;
                stored.version += 1;
                lease["metadata"]["resourceVersion"] = json!(stored.version.to_string());
                stored.lease = Some(lease.clone());
                self.1.notify_waiters();
                (200, lease)
            }
            other => panic!("unexpected request {other:?}"),
        }
    }

    fn fail(&self, candidate: impl Into<Option<&'static str>>, fault: Fault) {
        self.0.lock().unwrap().fault = Some((candidate.into(), fault));
    }

    fn recover(&self) {
        self.0.lock().unwrap().fault = None;
    }

    fn spec(&self) -> LeaseSpec {
        let stored = self.0.lock().unwrap();
        serde_json::from_value(stored.lease.as_ref().unwrap()["spec"].clone()).unwrap()
    }

    fn holder(&self) -> String {
        self.spec().holder_identity.unwrap()
    }

    fn candidate(&self, identity: &'static str) -> Election {
        self.candidate_with_clock(identity, "2026-01-01T00:00:00Z")
    }

    fn candidate_with_clock(&self, identity: &'static str, clock: &str) -> Election {
        let candidate = Candidate {
            namespace: "kube-system".into(),
            lease: "karpenter-leader-election".into(),
            identity: identity.into(),
            timing: Timing::default(),
            seed: identity.bytes().map(u64::from).sum(),
        };
        let clock = Clock::starting_at(clock.parse::<Timestamp>().unwrap());
        let fence = Fence::closed(clock.clone());
        Election::new(self.client(identity), candidate, clock, fence, &Metrics::default())
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
           "code": code, "reason": reason, "message": reason})
}

/// Leads until the lease is lost, and says when and why.
fn lead(mut election: Election, start: Instant) -> JoinHandle<(Duration, Lost)> {
    tokio::spawn(async move {
        election.acquire().await;
        let lost = election.keep().await;
        (start.elapsed(), lost)
    })
}

/// Waits for the lease, and says when it was acquired.
fn stand_by(mut election: Election, start: Instant) -> JoinHandle<Duration> {
    tokio::spawn(async move {
        election.acquire().await;
        start.elapsed()
    })
}

#[tokio::test(start_paused = true)]
async fn of_two_candidates_one_leads_for_as_long_as_it_lives() {
    let server = Server::default();
    let start = Instant::now();
    let mut first = server.candidate("a");
    first.acquire().await;
    let spec = server.spec();
    assert_eq!(spec.holder_identity.as_deref(), Some("a"));
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(0)));
    assert_eq!(spec.acquire_time, spec.renew_time);

    let second = stand_by(server.candidate("b"), start);
    let keeping = tokio::spawn(async move { first.keep().await });
    sleep(Duration::from_hours(1)).await;
    assert!(!keeping.is_finished() && !second.is_finished());
    let later = server.spec();
    assert_eq!((later.acquire_time, later.lease_transitions), (spec.acquire_time, Some(0)));
    assert!(later.renew_time > spec.renew_time);
}

#[tokio::test(start_paused = true)]
async fn when_the_holder_dies_another_takes_over_as_soon_as_the_lease_ran_out() {
    let server = Server::default();
    let start = Instant::now();
    let holder = lead(server.candidate("a"), start);
    sleep(Duration::from_mins(1)).await;
    let second = stand_by(server.candidate("b"), start);
    sleep(Duration::from_mins(1)).await;
    holder.abort();
    let died = start.elapsed();
    let renewed = died.checked_sub(2 * SECOND).unwrap();
    let taken = second.await.unwrap();
    // Not before the lease ran out, and at most two looks of the other later (2 s, stretched to 4.4 s).
    assert!(taken >= renewed + 15 * SECOND, "{taken:?}");
    assert!(taken <= died + 15 * SECOND + 2 * Duration::from_millis(4400), "{taken:?}");
    assert_eq!((server.holder().as_str(), server.spec().lease_transitions), ("b", Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once() {
    let server = Server::default();
    let start = Instant::now();
    let mut first = server.candidate("a");
    first.acquire().await;
    let second = stand_by(server.candidate("b"), start);
    sleep(Duration::from_secs(5)).await;
    first.release().await;
    let spec = server.spec();
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    assert_eq!(spec.lease_duration_seconds, Some(1));
    let taken = second.await.unwrap();
    assert_eq!(taken, 5 * SECOND);
    let spec = server.spec();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("b"), Some(1)));
    assert_eq!((spec.lease_duration_seconds, spec.acquire_time), (Some(15), spec.renew_time));
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_the_next_look_when_it_cannot_be_watched() {
    let server = Server::default();
    let start = Instant::now();
    let mut first = server.candidate("a");
    first.acquire().await;
    server.fail("b", Fault::Broken);
    let second = stand_by(server.candidate("b"), start);
    sleep(Duration::from_secs(5)).await;
    first.release().await;
    server.recover();
    let taken = second.await.unwrap();
    assert!(taken > 5 * SECOND && taken <= Duration::from_millis(9400), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn releasing_what_another_holds_changes_nothing() {
    let server = Server::default();
    let mut first = server.candidate("a");
    first.acquire().await;
    sleep(Duration::from_secs(20)).await;
    let mut second = server.candidate("b");
    // It sees the lease for the first time and has to give the holder its full time.
    let start = Instant::now();
    second.acquire().await;
    assert!(start.elapsed() >= 15 * SECOND);
    first.release().await;
    assert_eq!(server.holder(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_gives_up_before_others_may_take_over() {
    for fault in [Fault::Broken, Fault::Silent] {
        let server = Server::default();
        let start = Instant::now();
        let holder = lead(server.candidate("a"), start);
        let second = stand_by(server.candidate("b"), start);
        sleep(Duration::from_millis(60_500)).await;
        server.fail("a", fault);
        let (stopped, lost) = holder.await.unwrap();
        let expected = Lost::NotRenewed {
            lease: "karpenter-leader-election".into(),
            deadline: Duration::from_secs(10),
        };
        assert_eq!(lost, expected);
        // The last renewal went through at 60 s.
        assert_eq!(stopped.as_secs(), 70);
        let taken = second.await.unwrap();
        assert!(taken >= stopped + 5 * SECOND, "{stopped:?} {taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_nothing() {
    for fault in [Fault::Broken, Fault::Silent, Fault::Slow(Duration::from_secs(4))] {
        let server = Server::default();
        let start = Instant::now();
        let holder = lead(server.candidate("a"), start);
        sleep(Duration::from_millis(60_500)).await;
        server.fail(None, fault);
        sleep(Duration::from_secs(6)).await;
        server.recover();
        sleep(Duration::from_mins(1)).await;
        assert!(!holder.is_finished());
        assert_eq!((server.holder().as_str(), server.spec().lease_transitions), ("a", Some(0)));
    }
}

/// The server writes at once and answers late. Were the deadline counted from the answer, the holder
/// would go on leading after the others' patience has run out.
#[tokio::test(start_paused = true)]
async fn late_answers_do_not_stretch_the_deadline() {
    let server = Server::default();
    let start = Instant::now();
    let holder = lead(server.candidate("a"), start);
    sleep(Duration::from_millis(59_500)).await;
    server.fail("a", Fault::Slow(Duration::from_millis(4900)));
    sleep(Duration::from_secs(2)).await;
    // The renewal sent at 60 s is answered at 64.9 s; after that the server is gone.
    server.fail("a", Fault::Silent);
    let (stopped, _) = holder.await.unwrap();
    assert_eq!(stopped.as_secs(), 70);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_someone_else_wrote_into_is_lost_at_once() {
    let server = Server::default();
    let start = Instant::now();
    let holder = lead(server.candidate("a"), start);
    sleep(Duration::from_millis(10_500)).await;
    {
        let mut stored = server.0.lock().unwrap();
        stored.version += 1;
        let version = stored.version.to_string();
        let lease = stored.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = json!(version);
        lease["spec"]["holderIdentity"] = json!("intruder");
    }
    let (stopped, lost) = holder.await.unwrap();
    assert_eq!(lost.to_string(), "lost the lease karpenter-leader-election to intruder");
    assert_eq!(stopped.as_secs(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_anew() {
    let server = Server::default();
    let holder = lead(server.candidate("a"), Instant::now());
    sleep(Duration::from_millis(10_500)).await;
    server.0.lock().unwrap().lease = None;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(server.holder(), "a");
    assert!(!holder.is_finished());
}

/// The other's clock is a year ahead or behind: by the times in the lease it would be long expired, or
/// never expire. Only what was seen by one's own clock counts.
#[tokio::test(start_paused = true)]
async fn clocks_that_disagree_change_nothing() {
    for clock in ["2027-01-01T00:00:00Z", "2025-01-01T00:00:00Z"] {
        let server = Server::default();
        let start = Instant::now();
        let holder = lead(server.candidate("a"), start);
        let second = stand_by(server.candidate_with_clock("b", clock), start);
        sleep(Duration::from_mins(10)).await;
        assert!(!holder.is_finished() && !second.is_finished(), "{clock}");
        assert_eq!(server.spec().lease_transitions, Some(0), "{clock}");
        holder.abort();
        let taken = second.await.unwrap();
        assert!(taken <= Duration::from_millis(600_000 + 15_000 + 8_800), "{clock} {taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_candidates_that_start_together_make_one_leader() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let server = Server::default();
    let start = Instant::now();
    let candidates: Vec<_> = NAMES.map(|name| lead(server.candidate(name), start)).into();
    let mut killed = Vec::new();
    for round in 0..4 {
        sleep(Duration::from_mins(2)).await;
        let leader = NAMES.iter().position(|name| *name == server.holder()).unwrap();
        assert_eq!(server.spec().lease_transitions, Some(round));
        // A candidate that ended by itself had the lease and lost it.
        for (place, candidate) in candidates.iter().enumerate() {
            assert_eq!(candidate.is_finished(), killed.contains(&place), "{}", NAMES[place]);
        }
        candidates[leader].abort();
        killed.push(leader);
    }
}

#[tokio::test(start_paused = true)]
async fn the_metric_says_who_leads() {
    let server = Server::default();
    let metrics = Metrics::default();
    let leading = || {
        let text = metrics.text();
        let line = text.lines().find(|l| l.starts_with("leader_election_master_status{")).unwrap();
        line.to_owned()
    };
    let candidate = Candidate {
        namespace: "n".into(),
        lease: "l".into(),
        identity: "a".into(),
        timing: Timing::default(),
        seed: 0,
    };
    let clock = Clock::system();
    let fence = Fence::closed(clock.clone());
    let mut election = Election::new(server.client("a"), candidate, clock, fence, &metrics);
    assert_eq!(leading(), "leader_election_master_status{name=\"l\"} 0");
    election.acquire().await;
    assert_eq!(leading(), "leader_election_master_status{name=\"l\"} 1");
    election.release().await;
    assert_eq!(leading(), "leader_election_master_status{name=\"l\"} 0");
}

/// The right to write follows the lease: from when it is acquired to its end by the clock, or to when it is lost.
#[tokio::test(start_paused = true)]
async fn the_fence_is_open_while_the_lease_is_held() {
    let server = Server::default();
    let mut election = server.candidate("a");
    let fence = election.fence().clone();
    assert!(fence.check().is_err());
    server.fail("a", Fault::Slow(4 * SECOND));
    election.acquire().await;
    // The read took 4 s as well as the write, which was sent after it.
    assert_eq!(fence.left(), 11 * SECOND);
    server.recover();
    let keeping = tokio::spawn(async move {
        let lost = election.keep().await;
        (lost, election)
    });
    sleep(Duration::from_mins(1)).await;
    assert!(fence.left() > 12 * SECOND, "{:?}", fence.left());
    server.fail("a", Fault::Broken);
    let (_, mut election) = keeping.await.unwrap();
    assert_eq!(fence.left().as_secs(), 5, "what is under way may end");
    server.recover();
    election.release().await;
    assert_eq!(fence.left(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn who_is_robbed_of_the_lease_may_not_write_any_more() {
    let server = Server::default();
    let mut election = server.candidate("a");
    let fence = election.fence().clone();
    election.acquire().await;
    {
        let mut stored = server.0.lock().unwrap();
        let lease = stored.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = json!("99");
        lease["spec"]["holderIdentity"] = json!("b");
    }
    assert!(matches!(election.keep().await, Lost::Taken { .. }));
    assert_eq!(fence.left(), Duration::ZERO);
}

/// The work keeps the only thread of its runtime busy for longer than the lease lasts.
#[test]
fn work_that_takes_every_thread_does_not_keep_the_lease_from_being_renewed() {
    let server = Server::default();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let elections = runtime.worker_threads(1).enable_all().build().unwrap();
    let election = {
        let _entered = elections.enter();
        let timing =
            Timing { lease: 2 * SECOND, renew_deadline: SECOND, retry: Duration::from_millis(100) };
        let candidate = Candidate {
            namespace: "n".into(),
            lease: "l".into(),
            identity: "a".into(),
            timing,
            seed: 0,
        };
        let clock = Clock::system();
        let fence = Fence::closed(clock.clone());
        Election::new(server.client("a"), candidate, clock, fence, &Metrics::default())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let ended = runtime.block_on(crate::leadership::lead(Some(election), stop, async |term| {
        term.begun.cancelled().await;
        std::thread::sleep(3 * SECOND);
        // A leader that had lost the lease would learn it now.
        sleep(Duration::from_millis(300)).await;
        Ok::<_, Infallible>(())
    }));
    assert!(ended.is_ok(), "{ended:?}");
    let renewals = server.0.lock().unwrap().version;
    assert!(renewals > 10, "{renewals} renewals in three seconds");
    elections.shutdown_background();
}
