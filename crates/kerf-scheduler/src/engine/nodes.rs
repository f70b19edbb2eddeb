//! Whether a node that exists, or a claim in flight, takes a pod.

use std::sync::Arc;

use super::{Engine, Spot};
use crate::algebra::{SetId, Wish};
use crate::attempt::{Attempt, HostRule, Pick};
use crate::class::ClassId;
use crate::lanes;
use crate::template::conflict;

/// A refusal, and whether it holds for the rest of the run.
struct Refused {
    is_final: bool,
}

const FOR_GOOD: Refused = Refused { is_final: true };

impl Engine<'_> {
    pub(super) fn first_accepting_node(
        &mut self,
        class: ClassId,
        attempt: &Attempt,
    ) -> Option<usize> {
        let mut dead = std::mem::take(&mut self.classes[class.index()].dead_nodes);
        let mut found = None;
        let mut next = dead.next_absent(0, self.existing.targets);
        while let Some(node) = next {
            match self.evaluate_node(attempt, node) {
                Ok(()) => {
                    found = Some(node);
                    break;
                }
                Err(refused) if refused.is_final => dead.insert(node),
                Err(_) => {}
            }
            next = dead.next_absent(node + 1, self.existing.targets);
        }
        self.classes[class.index()].dead_nodes = dead;
        found
    }

    fn evaluate_node(&mut self, attempt: &Attempt, index: usize) -> Result<(), Refused> {
        let spec = &attempt.spec;
        let existing = &self.existing.nodes[index];
        let node = existing.node;
        let settling = self.options.honor_settling && node.settling && !spec.key.unsettled;
        if settling
            || !lanes::fits(&spec.key.requests, &existing.room)
            || conflict(&existing.ports, spec.ports())
            || !existing.can_attach(&spec.attachments)
            || !self.tolerates(attempt.class, &node.taints)
            || !self.node_meets(index, &spec.wish)
        {
            return Err(FOR_GOOD);
        }
        if !spec.alternatives.is_empty()
            && !spec.alternatives.iter().any(|alternative| self.node_meets(index, alternative))
        {
            return Err(FOR_GOOD);
        }
        for check in &attempt.hosts {
            if !check.rule.accepts(self.topology.groups[check.group.index()].count(index)) {
                return Err(Refused { is_final: matches!(check.rule, HostRule::AtMost(_)) });
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
                (_, None) => return Err(FOR_GOOD),
                (Pick::Any { domains, .. }, Some(domain)) => domains.contains(domain.index()),
                (Pick::First(domains), Some(domain)) => {
                    domains.iter().any(|(value, _)| *value == domain)
                }
            };
            if !accepted {
                return Err(Refused { is_final: matches!(check.pick, Pick::Empty { .. }) });
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
        let node = &mut self.existing.nodes[index];
        lanes::subtract(&mut node.room, &spec.key.requests);
        node.ports.extend_from_slice(spec.ports());
        for (driver, claims) in &spec.attachments {
            node.attach(driver, claims.iter().cloned());
        }
        node.placed.push(pod);
        self.record(class, Spot::Node(index));
    }
}
