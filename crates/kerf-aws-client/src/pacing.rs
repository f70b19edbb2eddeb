//! EC2 counts the calls of an account and refuses what is too many. Kerf counts along, and waits instead.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kerf_aws_wire::{Service, ec2};
use kerf_runtime::{Bucket, Tokens};
use tokio::{sync::Notify, time::timeout};

/// How many calls EC2 takes: it keeps one bucket per action, region and account. The numbers are those of Karpenter's model of
/// these limits, for accounts without a raised one. AWS's documentation was seen to say the same of describing actions, 20 a second
/// and 100 at once. `CreateFleet` counts as any action that changes something. No limit of another service is known that a
/// controller would reach.
pub fn bucket(service: &Service, operation: &str) -> Option<Bucket> {
    if *service != ec2::SERVICE {
        return None;
    }
    let (per_second, burst) = match operation {
        "RunInstances" => (2, 5),
        "TerminateInstances" => (5, 100),
        "CreateTags" => (10, 100),
        _ if operation.starts_with("Describe") || operation.starts_with("Get") => (20, 100),
        _ => (5, 50),
    };
    Some(Bucket { per_second, burst })
}

/// The buckets of this process, shared by all that call.
///
/// EC2 counts a call at some moment between its way out and its answer, and a full bucket does not fill. Many calls at once take
/// longer than later ones: a caller who counts when it sends then believes that EC2's bucket has been filling for longer than it has,
/// and is refused. Here a token is gone from the moment the call is sent, and the bucket fills only from the moment of its answer.
/// Whenever EC2 counted the call in between, it has at least as many tokens.
#[derive(Debug, Default)]
pub(crate) struct Pacing(Mutex<BTreeMap<&'static str, Arc<Action>>>);

/// The calls of one action.
#[derive(Debug)]
struct Action {
    /// Held by who is next, so that turns come in the order in which they were wished for.
    line: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    answered: Notify,
}

#[derive(Debug)]
struct State {
    /// As if EC2 counted each call when it answers.
    tokens: Tokens,
    on_their_way: u32,
}

/// A call that may go out. It is on its way until this is dropped.
#[derive(Debug)]
#[must_use = "the call counts as answered when this is dropped"]
pub(crate) struct Turn(Option<Arc<Action>>);

impl Pacing {
    pub(crate) async fn turn(&self, service: &Service, operation: &'static str) -> Turn {
        let Some(bucket) = bucket(service, operation) else { return Turn(None) };
        let action = {
            let mut actions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(actions.entry(operation).or_insert_with(|| Arc::new(Action::new(bucket))))
        };
        let next = action.line.lock().await;
        loop {
            let answered = action.answered.notified();
            let wait = action.lock().send();
            match wait {
                Some(Duration::ZERO) => break,
                // An answer changes how long that is.
                Some(wait) => drop(timeout(wait, answered).await),
                None => answered.await,
            }
        }
        drop(next);
        Turn(Some(action))
    }
}

impl Action {
    fn new(bucket: Bucket) -> Self {
        let state = State { tokens: Tokens::full(bucket), on_their_way: 0 };
        Self {
            line: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
            answered: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sends a call if that is possible at once, and says how long it takes otherwise. `None`: until there is an answer.
    fn send(&mut self) -> Option<Duration> {
        let wait = self.tokens.until(self.on_their_way.saturating_add(1));
        if wait.is_some_and(|wait| wait.is_zero()) {
            self.on_their_way += 1;
        }
        wait
    }
}

impl Turn {
    /// EC2 says that the bucket is empty: others in the account call as well. So it is empty for all of our calls.
    pub(crate) fn throttled(&self) {
        if let Some(action) = &self.0 {
            action.lock().tokens.drain();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(action) = &self.0 {
            let mut state = action.lock();
            state.on_their_way = state.on_their_way.saturating_sub(1);
            // What it would have to wait for a token is waited for by the next.
            let _ = state.tokens.take();
            drop(state);
            action.answered.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use kerf_aws_wire::iam;
    use tokio::time::{Instant, advance, sleep};

    use super::*;

    #[test]
    fn every_action_has_its_bucket() {
        let cases = [
            ("DescribeInstances", Some((20, 100))),
            ("GetConsoleOutput", Some((20, 100))),
            ("CreateFleet", Some((5, 50))),
            ("CreateLaunchTemplate", Some((5, 50))),
            ("RunInstances", Some((2, 5))),
            ("TerminateInstances", Some((5, 100))),
            ("CreateTags", Some((10, 100))),
        ];
        for (operation, expect) in cases {
            let bucket = bucket(&ec2::SERVICE, operation);
            assert_eq!(
                bucket.map(|bucket| (bucket.per_second, bucket.burst)),
                expect,
                "{operation}"
            );
        }
        assert_eq!(bucket(&iam::SERVICE, "CreateInstanceProfile"), None);
    }

    async fn waited(pacing: &Pacing, service: &Service, operation: &'static str) -> Duration {
        let begin = Instant::now();
        drop(pacing.turn(service, operation).await);
        begin.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_fleets_go_at_once_and_then_five_a_second() {
        let pacing = Pacing::default();
        let begin = Instant::now();
        let mut sent = Vec::new();
        for _ in 0..60 {
            drop(pacing.turn(&ec2::SERVICE, "CreateFleet").await);
            sent.push(begin.elapsed().as_millis());
        }
        assert!(sent[..50].iter().all(|at| *at == 0), "{sent:?}");
        assert_eq!((sent[50], sent[59]), (200, 2000));
        let other = waited(&pacing, &ec2::SERVICE, "DescribeInstances").await;
        assert_eq!(other, Duration::ZERO, "each action has its own");
        let iam = waited(&pacing, &iam::SERVICE, "GetInstanceProfile").await;
        assert_eq!(iam, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_empties_the_bucket_for_all() {
        let pacing = Pacing::default();
        pacing.turn(&ec2::SERVICE, "DescribeInstances").await.throttled();
        let wait = waited(&pacing, &ec2::SERVICE, "DescribeInstances").await;
        // The one that was refused counts as well: EC2 may have counted it.
        assert_eq!(wait, Duration::from_millis(100));
        advance(Duration::from_secs(10)).await;
        assert_eq!(waited(&pacing, &ec2::SERVICE, "DescribeInstances").await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn who_no_longer_waits_keeps_nobody_from_a_turn() {
        let pacing = Pacing::default();
        let mut all = Vec::new();
        for _ in 0..5 {
            all.push(pacing.turn(&ec2::SERVICE, "RunInstances").await);
        }
        let turn = pacing.turn(&ec2::SERVICE, "RunInstances");
        assert!(timeout(Duration::from_hours(1), turn).await.is_err(), "none was answered");
        all.clear();
        let wait = waited(&pacing, &ec2::SERVICE, "RunInstances").await;
        assert_eq!(wait, Duration::from_millis(500));
    }

    /// How many milliseconds a call takes until EC2 counts it, and from there to its answer.
    type Way = fn(u64) -> (u64, u64);

    #[tokio::test(start_paused = true)]
    async fn none_of_many_calls_is_refused_however_long_each_is_on_its_way() {
        const CALLS: u64 = 300;
        let ways: [(&str, Way); 5] = [
            ("at once", |_| (0, 0)),
            ("all alike", |_| (2000, 0)),
            ("the first take longest", |call| (if call < 50 { 6000 } else { 20 }, 0)),
            ("the first are counted last", |call| (if call < 25 { 0 } else { 3000 }, 1000)),
            ("by chance", |call| (call * 7919 % 3001, call * 104_729 % 1009)),
        ];
        for (what, way) in ways {
            let pacing = Arc::new(Pacing::default());
            let bucket = bucket(&ec2::SERVICE, "CreateFleet").unwrap();
            let counted = Arc::new(Mutex::new(Tokens::full(bucket)));
            let begin = Instant::now();
            let calls: Vec<_> = (0..CALLS)
                .map(|call| {
                    let (pacing, counted) = (Arc::clone(&pacing), Arc::clone(&counted));
                    tokio::spawn(async move {
                        let turn = pacing.turn(&ec2::SERVICE, "CreateFleet").await;
                        let (there, back) = way(call);
                        sleep(Duration::from_millis(there)).await;
                        let taken = counted.lock().unwrap().try_take();
                        sleep(Duration::from_millis(back)).await;
                        drop(turn);
                        taken
                    })
                })
                .collect();
            let mut refused = 0;
            for call in calls {
                refused += u32::from(!call.await.unwrap());
            }
            assert_eq!(refused, 0, "{what}");
            // Fifty at once and five a second take 50 s. To wait for the first answers costs some more.
            let took = begin.elapsed();
            assert!(took < Duration::from_mins(1), "{what}: {took:?}");
        }
    }
}
