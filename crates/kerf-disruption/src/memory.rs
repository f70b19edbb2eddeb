//! What one pass keeps for the next: where the search stopped, and what is known to find nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::{
    command::{Candidate, Command, Method},
    fingerprint::Fingerprint,
    methods::Remembers,
};

/// Prices change and costs fall as nodes age, so even a cluster that is the same is looked at again after a while.
pub(crate) const STALE_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// The caller hands it from pass to pass. It may be dropped at any time: the next pass then looks at everything.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    rounds: BTreeMap<Method, Round>,
    /// The method whose last command failed.
    rejected: Option<Method>,
}

/// When a method looked at what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    /// By node.
    looked: BTreeMap<String, LastLook>,
    pass: u64,
    /// The first pass that saw the cluster as it is now. What was looked at since need not be looked at again.
    first: u64,
    cluster: Option<(Fingerprint, Timestamp)>,
}

#[derive(Clone, Copy, Debug)]
struct LastLook {
    pass: u64,
    /// Another look at the same cluster is of no use.
    in_vain: bool,
}

impl Memory {
    /// To be called when a command of a pass was no longer right when it was looked at again, or could not be started this
    /// time. The next pass begins with the methods after it, and its method looks at everything else first: one that is
    /// wrong all the time does not keep the others from their turn.
    pub fn reject(&mut self, command: &Command) {
        self.set_aside(command, false);
    }

    /// The same for a command that cannot be started as things are: while they are so, it is not found again.
    pub fn refuse(&mut self, command: &Command) {
        self.set_aside(command, true);
    }

    fn set_aside(&mut self, command: &Command, in_vain: bool) {
        self.rejected = Some(command.method);
        let round = self.round(command.method);
        match command.method.row().remembers {
            Remembers::Nothing => {}
            Remembers::Search(name) => round.note(name, in_vain),
            Remembers::Nodes => {
                for candidate in &command.candidates {
                    round.note(&candidate.node.name, in_vain);
                }
            }
        }
    }

    pub(crate) fn take_rejected(&mut self) -> Option<Method> {
        self.rejected.take()
    }

    /// To be called once by each pass of the method.
    pub(crate) fn begin_pass(&mut self, method: Method, cluster: Fingerprint, now: Timestamp) {
        self.round(method).begin_pass(cluster, now);
    }

    pub(crate) fn round(&mut self, method: Method) -> &mut Round {
        self.rounds.entry(method).or_default()
    }
}

impl Round {
    fn begin_pass(&mut self, cluster: Fingerprint, now: Timestamp) {
        self.pass += 1;
        let known = self.cluster.is_some_and(|(known, since)| {
            known == cluster && now.duration_since(since) < STALE_AFTER
        });
        if !known {
            self.cluster = Some((cluster, now));
            self.first = self.pass;
        }
    }

    /// Whether looking at it again would find what was found before.
    pub(crate) fn is_known(&self, name: &str) -> bool {
        self.looked.get(name).is_some_and(|last| last.in_vain && last.pass >= self.first)
    }

    /// What has not been looked at for the longest time comes first; what was never looked at before all else.
    pub(crate) fn last_look(&self, name: &str) -> u64 {
        self.looked.get(name).map_or(0, |last| last.pass)
    }

    /// Whether a command about it could not be started. The others have their turn first.
    pub(crate) fn was_set_aside(&self, name: &str) -> bool {
        self.looked.get(name).is_some_and(|last| !last.in_vain)
    }

    /// Its first find ends the pass, so nodes that were looked at without a find need not be looked at again.
    pub(crate) fn looked_at(&mut self, name: &str) {
        self.note(name, true);
    }

    fn note(&mut self, name: &str, in_vain: bool) {
        self.looked.insert(name.to_owned(), LastLook { pass: self.pass, in_vain });
    }

    /// Forgets the nodes that are candidates no longer.
    pub(crate) fn retain(&mut self, candidates: &[Candidate]) {
        let there: BTreeSet<_> = candidates.iter().map(|one| one.node.name.as_str()).collect();
        self.looked.retain(|name, _| there.contains(name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_is_known_until_the_cluster_changes_or_time_passes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut memory = Memory::default();
        let mut look = |cluster: u64, second: i64, name: &str| {
            memory.begin_pass(Method::SingleNode, Fingerprint(cluster), at(second));
            let round = memory.round(Method::SingleNode);
            let known = round.is_known(name);
            round.looked_at(name);
            known
        };
        assert!(!look(1, 0, "a"));
        assert!(look(1, 10, "a"));
        assert!(!look(1, 20, "b"));
        assert!(look(1, 299, "a"));
        assert!(!look(1, 300, "a"), "stale");
        assert!(look(1, 310, "a"));
        assert!(!look(2, 320, "a"), "changed");
        assert!(!look(1, 330, "a"), "changed back");
    }

    #[test]
    fn the_next_pass_goes_on_where_the_last_one_stopped() {
        let mut memory = Memory::default();
        let now = Timestamp::UNIX_EPOCH;
        memory.begin_pass(Method::SingleNode, Fingerprint(1), now);
        memory.round(Method::SingleNode).looked_at("a");
        memory.begin_pass(Method::SingleNode, Fingerprint(2), now);
        let round = memory.round(Method::SingleNode);
        assert!(round.last_look("b") < round.last_look("a"));
        round.looked_at("b");
        assert!(round.last_look("a") < round.last_look("b"));
        round.retain(&[]);
        assert_eq!(round.last_look("b"), 0);
    }
}
