//! What a controller has still to look at: each key once, now or later.

use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key that keeps failing is looked at no less often than this.
const LONGEST_RETRY: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct Queue {
    now: BTreeSet<Arc<str>>,
    later: BTreeSet<(Timestamp, Arc<str>)>,
    failures: BTreeMap<Arc<str>, u32>,
}

impl Queue {
    pub(super) fn add(&mut self, key: impl Into<Arc<str>>) {
        self.now.insert(key.into());
    }

    pub(super) fn add_at(&mut self, time: Timestamp, key: impl Into<Arc<str>>) {
        self.later.insert((time, key.into()));
    }

    /// Looks at the key again after a second, then two, four and so on.
    pub(super) fn retry(&mut self, now: Timestamp, key: Arc<str>) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = SignedDuration::from_secs(1 << (*failures).min(10)).min(LONGEST_RETRY);
        *failures += 1;
        self.later.insert((now + delay, key));
    }

    pub(super) fn succeeded(&mut self, key: &str) {
        self.failures.remove(key);
    }

    /// All that is due, in key order.
    pub(super) fn take(&mut self, now: Timestamp) -> BTreeSet<Arc<str>> {
        while let Some((time, _)) = self.later.first()
            && *time <= now
        {
            if let Some((_, key)) = self.later.pop_first() {
                self.now.insert(key);
            }
        }
        std::mem::take(&mut self.now)
    }

    /// When to look again if nothing happens before.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        if self.now.is_empty() { self.later.first().map(|(time, _)| *time) } else { Some(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn take(queue: &mut Queue, second: i64) -> Vec<String> {
        queue.take(at(second)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn gives_each_key_once_when_it_is_due() {
        let mut queue = Queue::default();
        queue.add("b");
        queue.add("a");
        queue.add("b");
        queue.add_at(at(5), "c");
        assert_eq!(take(&mut queue, 0), ["a", "b"]);
        assert_eq!(queue.next(at(0)), Some(at(5)));
        assert_eq!(take(&mut queue, 4), [""; 0]);
        assert_eq!(take(&mut queue, 5), ["c"]);
        assert_eq!(queue.next(at(5)), None);
    }

    #[test]
    fn waits_longer_after_each_failure() {
        let mut queue = Queue::default();
        let mut now = at(0);
        let mut waits = Vec::new();
        for _ in 0..10 {
            queue.retry(now, "a".into());
            let due = queue.next(now).unwrap();
            waits.push(due.duration_since(now).as_secs());
            now = due;
            queue.take(now);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        queue.succeeded("a");
        queue.retry(now, "a".into());
        assert_eq!(queue.next(now), Some(now + SignedDuration::from_secs(1)));
    }
}
