//! Whether a node that exists, or a claim in flight, takes a pod.

use std::sync::Arc;

use super::{Engine, Spot};
use crate::algebra::{SetId, Wish};
use crate::attempt::{Attempt, HostRule, Pick};
use crate::class::ClassId;

/// How long a refusal holds.
enum Refused {
    ForNow,
    /// Nodes only fill up and counts only grow.
    ForThisRun,
    Always,
}

impl Engine<'_> {
    pub(super) fn first_accepting_node(
        &mut self,
        class: ClassId,
        attempt: &Attempt,
    ) -> Option<usize> {
        let mut dead = std::mem::take(&mut self.classes[class.index()].run.dead_nodes);
        let mut found = None;
        let mut next = dead.next_absent(0, self.existing.targets);
        while let Some(node) = next {
            match self.evaluate_node(attempt, node) {
                Ok(()) => {
                    found = Some(node);
                    break;
                }
                Err(Refused::ForNow) => {}
                Err(Refused::ForThisRun) => dead.insert(node),
                Err(Refused::Always) => {
                    dead.insert(node);
                    self.classes[class.index()].barred_nodes.get_or_insert_default().insert(node);
                }
            }
            next = dead.next_absent(node + 1, self.existing.targets);
        }
        self.classes[class.index()].run.dead_nodes = dead;
        found
    }

    fn evaluate_node(&mut self, attempt: &Attempt, index: usize) -> Result<(), Refused> {
        let spec = &attempt.spec;
        let node = self.existing.nodes[index].node;
        if !self.existing.accepts(index, spec) {
            let changed = self.existing.is_changed(index);
            return Err(if changed { Refused::ForThisRun } else { Refused::Always });
        }
        let settling = self.options.honor_settling && node.settling && !spec.base.key.unsettled;
        if settling
            || !self.tolerates(attempt.class, &node.taints)
            || !self.node_meets(index, &spec.wish)
        {
            return Err(Refused::Always);
        }
        if !spec.base.alternatives.is_empty()
            && !spec.base.alternatives.iter().any(|alternative| self.node_meets(index, alternative))
        {
            return Err(Refused::Always);
        }
        for check in &attempt.hosts {
            if !check.rule.accepts(self.topology.groups[check.group.index()].count(index)) {
                let grows = matches!(check.rule, HostRule::AtMost(_));
                return Err(if grows { Refused::ForThisRun } else { Refused::ForNow });
            }
        }
        for check in &attempt.domains {
            let domain = self.existing.value(index, check.key, &mut self.algebra);
            let accepted = match (&check.pick, domain) {
                // A node without the label is in no domain, so nobody is there to keep away from.
                (Pick::Empty { .. }, None) => true,
                (Pick::Empty { .. }, Some(domain)) => {
                    self.topology.groups[check.group.index()].count(domain.index()) == 0
                }
                (_, None) => return Err(Refused::Always),
                (Pick::Any { domains, .. }, Some(domain)) => domains.contains(domain.index()),
                (Pick::First(domains), Some(domain)) => {
                    domains.iter().any(|(value, _)| *value == domain)
                }
            };
            if !accepted {
                let grows = matches!(check.pick, Pick::Empty { .. });
                return Err(if grows { Refused::ForThisRun } else { Refused::ForNow });
            }
        }
        Ok(())
    }

    /// Whether the node's labels meet everything that is wished for; what it does not carry it does not have.
    pub(super) fn node_meets(&mut self, index: usize, wish: &Wish) -> bool {
        wish.allows_host(self.existing.nodes[index].node.hostname())
            && self.node_serves(index, wish.set)
    }

    fn node_serves(&mut self, index: usize, set: SetId) -> bool {
        (0..self.algebra.entries(set).len()).all(|at| {
            let (key, rule) = self.algebra.entries(set)[at];
            match self.existing.value(index, key, &mut self.algebra) {
                Some(value) => self.algebra.allows(rule, value),
                None => self.algebra.requirement(rule).allows_absence(),
            }
        })
    }

    pub(super) fn commit_to_node(&mut self, pod: u32, class: ClassId, index: usize) {
        let spec = Arc::clone(&self.classes[class.index()].spec);
        self.existing.take(index, pod, &spec);
        self.record(class, Spot::Node(index));
    }
}
