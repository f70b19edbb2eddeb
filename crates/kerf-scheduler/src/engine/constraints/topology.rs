//! Topology spread, pod affinity and pod anti-affinity. What they ask of every place is worked out before (`attempt.rs`).

use kerf_model::labels::HOSTNAME;

use super::{Accepted, Engine, Evaluation, Rejected, Witness};
use crate::algebra::SetId;
use crate::attempt::{Attempt, DomainCheck, HostRule, Pick};
use crate::refusal::{Reason, TopologyRefusal};
use crate::topology::GroupId;

impl Engine<'_> {
    /// Constraints over hosts, for one that has pods or for a new one.
    pub(super) fn check_hosts<W: Witness>(
        &self,
        attempt: &Attempt,
        host: Option<usize>,
        witness: &mut W,
    ) -> Result<(), Rejected> {
        let refuses = attempt.hosts.iter().find(|check| {
            let count = |host| self.topology.groups[check.group.index()].count(host);
            !check.rule.accepts(host.map_or(0, count))
        });
        let Some(check) = refuses else { return Ok(()) };
        witness.refused(|| Reason::Topology(self.host_refusal(check.group, attempt)));
        let counts_only_grow = matches!(check.rule, HostRule::AtMost(_));
        Err(if counts_only_grow { Rejected::ForThisRun } else { Rejected::ForNow })
    }

    pub(super) fn check_node_domains(
        &mut self,
        attempt: &Attempt,
        node: usize,
    ) -> Result<(), Rejected> {
        for check in &attempt.domains {
            let domain = self.existing.value(node, check.key, &mut self.algebra);
            let accepted = match (&check.pick, domain) {
                // A node without the label is in no domain, so no pod is there to keep away from.
                (Pick::Empty { .. }, None) => true,
                (Pick::Empty { .. }, Some(domain)) => {
                    self.topology.groups[check.group.index()].count(domain.index()) == 0
                }
                (_, None) => return Err(Rejected::Always),
                (Pick::Any { domains, .. }, Some(domain)) => domains.contains(domain.index()),
                (Pick::First(domains), Some(domain)) => {
                    domains.iter().any(|(value, _)| *value == domain)
                }
            };
            if !accepted {
                let grows = matches!(check.pick, Pick::Empty { .. });
                return Err(if grows { Rejected::ForThisRun } else { Rejected::ForNow });
            }
        }
        Ok(())
    }

    /// Whether every constraint over domains by itself leaves something.
    pub(super) fn some_domain_is_open(&mut self, attempt: &Attempt, set: SetId) -> bool {
        let algebra = &mut self.algebra;
        let mut checks = attempt.domains.iter();
        checks.all(|check| check.pick.is_open(|domains| algebra.merge(set, domains).is_some()))
    }

    pub(super) fn through_topology<W: Witness>(
        &mut self,
        evaluation: &mut Evaluation<'_, W>,
        set: SetId,
    ) -> Option<Accepted> {
        if evaluation.claim.is_none() {
            self.check_hosts(evaluation.attempt, None, evaluation.witness).ok()?;
        }
        self.through_domains(evaluation, 0, set)
    }

    /// The constraints over domains from `at` on, each choice in turn, until something is left to buy.
    fn through_domains<W: Witness>(
        &mut self,
        evaluation: &mut Evaluation<'_, W>,
        at: usize,
        set: SetId,
    ) -> Option<Accepted> {
        let attempt = evaluation.attempt;
        let Some(check) = attempt.domains.get(at) else { return self.accept(evaluation, set) };
        let mut open = false;
        for domains in check.pick.choices() {
            let Some(merged) = self.algebra.merge(set, domains) else { continue };
            open = true;
            if let Some(accepted) = self.through_domains(evaluation, at + 1, merged) {
                return Some(accepted);
            }
        }
        if !open {
            evaluation
                .witness
                .refused(|| Reason::Topology(self.domain_refusal(check, attempt, set)));
        }
        None
    }

    fn host_refusal(&self, group: GroupId, attempt: &Attempt) -> TopologyRefusal {
        let host = |at: usize| match self.existing.nodes.get(at) {
            Some(node) => node.node.hostname().to_owned(),
            None => format!("new node {}", at - self.existing.nodes.len() + 1),
        };
        let group = &self.topology.groups[group.index()];
        let counts = group.domains().map(|(at, count)| (host(at), count));
        TopologyRefusal {
            constraint: group.identity.kind,
            key: HOSTNAME.to_owned(),
            counts: counts.take(TopologyRefusal::SHOWN).collect(),
            pod_domains: attempt.spec.strict_requirements.hostname.as_deref().cloned(),
            node_domains: attempt.spec.requirements.hostname.as_deref().cloned(),
        }
    }

    fn domain_refusal(
        &self,
        check: &DomainCheck,
        attempt: &Attempt,
        set: SetId,
    ) -> TopologyRefusal {
        let group = &self.topology.groups[check.group.index()];
        let name = |value| self.algebra.value_name(check.key, value).to_owned();
        let mut counts: Vec<_> =
            group.values().map(|(value, count)| (name(value), count)).collect();
        counts.sort();
        counts.truncate(TopologyRefusal::SHOWN);
        let allowed = |set| {
            let rule = self.algebra.get(set, check.key)?;
            Some(self.algebra.requirement(rule).clone())
        };
        TopologyRefusal {
            constraint: group.identity.kind,
            key: self.algebra.key_name(check.key).to_owned(),
            counts,
            pod_domains: allowed(attempt.spec.strict_requirements.set),
            node_domains: allowed(set),
        }
    }
}
