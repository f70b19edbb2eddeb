//! The newest of what the operator did and said, in memory, for whoever looks at this process.
//!
//! Events go to the API server, which keeps them for an hour, and lines go to the log. A journal keeps the last few hundred of
//! both in one order. What is said of many objects at once is one entry with a count, so that a wave of pods does not wash
//! everything else away.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};

use crate::events::Severity;

/// Entries that are kept. At a thousand characters each that is half a megabyte.
const KEPT: usize = 500;
/// Longer messages are cut: a plan can name thousands of nodes.
const LONGEST: usize = 1000;
/// The same words within this time are one entry.
const SIMILAR_WITHIN: SignedDuration = SignedDuration::from_secs(60);
/// How far back the same words are looked for.
const LOOKED_BACK: usize = 32;

/// What happened to what, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was said first; entries are in this order.
    pub first: Timestamp,
    pub severity: Severity,
    pub reason: String,
    /// The first object that it was said of.
    pub about: Subject,
    pub message: String,
    /// Of how many objects of that kind it was said.
    pub count: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

/// A bounded list of entries. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    entries: VecDeque<Entry>,
    /// How often anything was written.
    writes: u64,
}

impl Journal {
    pub fn write(
        &self,
        now: Timestamp,
        severity: Severity,
        reason: &str,
        about: Subject,
        message: &str,
    ) {
        let mut kept = self.kept();
        kept.writes += 1;
        let message: String = message.chars().take(LONGEST).collect();
        let is_same = |entry: &Entry| {
            entry.reason == reason
                && entry.message == message
                && now.duration_since(entry.first) <= SIMILAR_WITHIN
        };
        if let Some(place) = kept.entries.iter().rev().take(LOOKED_BACK).position(is_same) {
            let place = kept.entries.len() - 1 - place;
            let entry = &mut kept.entries[place];
            // A node and its claim get the same words; they are one machine.
            if entry.about.kind == about.kind && entry.about != about {
                entry.count = entry.count.saturating_add(1);
            }
            return;
        }
        if kept.entries.len() >= KEPT {
            kept.entries.pop_front();
        }
        let (first, reason) = (now, reason.to_owned());
        kept.entries.push_back(Entry { first, severity, reason, about, message, count: 1 });
    }

    /// The newest entries, the newest first.
    pub fn newest(&self, most: usize) -> Vec<Entry> {
        self.kept().entries.iter().rev().take(most).cloned().collect()
    }

    /// As long as it stays the same, so does the journal.
    pub fn writes(&self) -> u64 {
        self.kept().writes
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(journal: &Journal, second: i64, kind: &str, name: &str, message: &str) {
        let now = Timestamp::from_second(second).unwrap();
        let about = Subject { kind: kind.into(), name: name.into(), ..Subject::default() };
        journal.write(now, Severity::Normal, "Reason", about, message);
    }

    /// What is kept, the newest first: object, message, count.
    fn kept(journal: &Journal) -> Vec<(String, String, u32)> {
        let entries = journal.newest(usize::MAX).into_iter();
        entries.map(|entry| (entry.about.name, entry.message, entry.count)).collect()
    }

    #[test]
    fn what_is_said_of_many_objects_is_one_entry() {
        let journal = Journal::default();
        write(&journal, 1, "Pod", "a", "m");
        write(&journal, 2, "Pod", "b", "m");
        write(&journal, 3, "Pod", "c", "other");
        write(&journal, 4, "Pod", "c", "m");
        let entry = |name: &str, message: &str, count| (name.to_owned(), message.to_owned(), count);
        assert_eq!(kept(&journal), [entry("c", "other", 1), entry("a", "m", 3)]);
        write(&journal, 65, "Pod", "d", "m");
        assert_eq!(kept(&journal)[0], entry("d", "m", 1), "a minute later it is news");
        assert_eq!(journal.writes(), 5);
    }

    #[test]
    fn a_node_and_its_claim_are_one_machine() {
        let journal = Journal::default();
        write(&journal, 1, "Node", "n", "m");
        write(&journal, 1, "NodeClaim", "c", "m");
        write(&journal, 1, "Node", "n", "m");
        assert_eq!(kept(&journal), [("n".to_owned(), "m".to_owned(), 1)]);
        write(&journal, 1, "Node", "o", "m");
        assert_eq!(kept(&journal)[0].2, 2);
    }

    #[test]
    fn a_journal_is_bounded() {
        let journal = Journal::default();
        for number in 0..2 * i64::try_from(KEPT).unwrap() {
            write(&journal, number, "Pod", "p", &format!("{number} {}", "ä".repeat(2 * LONGEST)));
        }
        let entries = journal.newest(usize::MAX);
        assert_eq!(entries.len(), KEPT);
        assert!(entries[0].message.starts_with(&format!("{} ", 2 * KEPT - 1)));
        assert!(entries.iter().all(|entry| entry.message.chars().count() == LONGEST));
    }
}
