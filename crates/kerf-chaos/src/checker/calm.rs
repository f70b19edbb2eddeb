//! What must have come to rest some hours after the last fault and the last change by a user.

use std::collections::BTreeMap;

use super::{Checker, FOREIGN, Invariant, Millis, Pod, Sent, clock};

const MINUTE: Millis = 60_000;
/// Longer than a launch may take to register, and than instances without a claim are kept.
const LONG: Millis = 60 * MINUTE;
/// No command for this long.
const REST: Millis = 30 * MINUTE;
/// So many changes in that time are upkeep: conditions that follow the clock, nodes that expire.
const UPKEEP: usize = 100;

impl Checker {
    /// All has been well since then.
    pub fn is_at_rest(&mut self, now: Millis, since: Millis) {
        self.tick(now);
        self.orphans.calm = None;
        self.has_stopped_writing(now);
        let (now, calm) = (self.now, self.now - since);
        for (invariant, what) in
            [self.without_claim(), self.claims(now), self.taints(now), self.waiting(now)].concat()
        {
            self.note(invariant, what);
        }
        let last = self.last_command.clone().filter(|(at, _)| *at + REST > now);
        // Claims that expire are replaced for ever.
        let expires = self.claims.values().any(|claim| claim.expires);
        if let Some((at, command)) = last
            && calm >= 4 * REST
            && !expires
        {
            let what = format!("{command} at {}, {} minutes into calm", clock(at), calm / MINUTE);
            self.note(Invariant::Settles, what);
        }
    }

    /// Takes note of a change that an operator makes while all is well. An eviction that a budget forbids is tried for ever, and what
    /// goes on is told again and again.
    pub(super) fn keeps_writing(&mut self, call: &Sent<'_>) {
        let changes = matches!(call.verb, "update" | "patch") && call.resource != "events";
        if self.orphans.calm.is_some() && changes {
            self.written.push((self.now, format!("{} {}", call.resource, call.key)));
        }
    }

    fn has_stopped_writing(&mut self, now: Millis) {
        let written = std::mem::take(&mut self.written);
        let mut times = BTreeMap::<&str, usize>::new();
        for (_, what) in written.iter().filter(|(at, _)| *at + REST > now) {
            *times.entry(what).or_default() += 1;
        }
        let all: usize = times.values().sum();
        let most = times.into_iter().max_by_key(|(_, times)| *times);
        if let Some((what, times)) = most.filter(|_| all > UPKEEP) {
            let what = format!("{all} changes in 30 minutes, {times} of them of {what}");
            self.note(Invariant::WritesEnd, what);
        }
    }

    fn claims(&self, now: Millis) -> Vec<(Invariant, String)> {
        let mut found = Vec::new();
        for (name, claim) in &self.claims {
            let what = match claim.deleting {
                Some(at) if at + LONG <= now && !self.is_held(&claim.node) => {
                    format!("NodeClaim {name} has been deleted since {}", clock(at))
                }
                None if !claim.is_initialized && claim.created + LONG <= now => {
                    format!("NodeClaim {name} has no ready node since {}", clock(claim.created))
                }
                None if self.has_ended(&claim.instance) => {
                    format!("NodeClaim {name} stays, and its instance {} has ended", claim.instance)
                }
                _ => continue,
            };
            found.push((Invariant::ClaimsEnd, what));
        }
        found
    }

    /// Whether a pod keeps a node that is deleted.
    pub(super) fn is_held(&self, node: &str) -> bool {
        let holds = |pod: &Pod| {
            let is_selected = |labels: &std::collections::BTreeMap<String, String>| {
                labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
            };
            let mut budgets = self.pod_budgets.values();
            pod.protects.is_some()
                || pod.never_ends
                || budgets.any(|(selector, allows)| !allows && is_selected(selector))
        };
        let mut pods = self.pods.values();
        !node.is_empty() && pods.any(|pod| pod.node == node && holds(pod))
    }

    fn taints(&self, now: Millis) -> Vec<(Invariant, String)> {
        let mut found = Vec::new();
        for (name, node) in &self.nodes {
            if !node.is_disrupted || node.is_deleting || name.starts_with(FOREIGN) {
                continue;
            }
            let claim = self.claims.values().find(|claim| claim.node == *name);
            let goes = claim.is_some_and(|claim| {
                let marked = claim.marked.as_ref().is_some_and(|(at, _)| at + LONG > now);
                claim.deleting.is_some() || marked
            });
            if !goes {
                found.push((Invariant::TaintsEnd, format!("node {name}")));
            }
        }
        found
    }

    fn waiting(&self, now: Millis) -> Vec<(Invariant, String)> {
        let waits = |pod: &Pod| {
            pod.can_run
                && !pod.is_deleting
                && pod.created + LONG / 2 <= now
                && !matches!(pod.phase.as_str(), "Running" | "Succeeded" | "Failed")
        };
        let waiting = self.pods.iter().filter(|(_, pod)| waits(pod));
        waiting
            .map(|(key, pod)| (Invariant::PodsRun, format!("pod {key} is {}", pod.phase)))
            .collect()
    }
}
