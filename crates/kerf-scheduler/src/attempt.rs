//! What topology asks of any candidate, worked out once per attempt: counts do not change while a pod
//! looks for its place.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algebra::{Key, Rule, SetId, Value};
use crate::bits::Bits;
use crate::class::{ClassId, Spec};
use crate::engine::Engine;
use crate::refusal::TopologyKind;
use crate::topology::{GroupId, Place, Side};

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) class: ClassId,
    pub(crate) spec: Arc<Spec>,
    pub(crate) hosts: SmallVec<[HostCheck; 4]>,
    /// Those that only narrow come before those that choose, so that choices see what is left.
    pub(crate) domains: SmallVec<[DomainCheck; 2]>,
    /// No later placement can turn a refusal into an acceptance: counts only grow, and nothing here asks for
    /// a count to be high or for the least of several.
    pub(crate) refusals_are_final: bool,
    /// Nothing can accept before so many steps of relaxation were taken, so nothing needs to be asked.
    pub(crate) hopeless_until: u32,
}

/// What one constraint makes of all candidates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    Open,
    /// Nothing can accept, whatever else holds.
    Hopeless,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCheck {
    pub(crate) group: GroupId,
    pub(crate) rule: HostRule,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HostRule {
    AtMost(u32),
    /// There must be pods already, or the pod may be the first.
    Occupied {
        or_first: bool,
    },
    Never,
}

impl HostRule {
    pub(crate) fn accepts(self, count: u32) -> bool {
        match self {
            Self::AtMost(most) => count <= most,
            Self::Occupied { or_first } => or_first || count > 0,
            Self::Never => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct DomainCheck {
    pub(crate) group: GroupId,
    pub(crate) key: Key,
    pub(crate) pick: Pick,
}

/// Which domains of a label will do.
#[derive(Debug)]
pub(crate) enum Pick {
    /// All that are empty: the node may end up in any of them. Where other pods of the run must keep out of its domain, a
    /// new node takes exactly one of the pins, or it would keep them out of every domain that it may end up in.
    Empty { listing: Option<SetId>, pins: Vec<(Value, SetId)> },
    /// All of these.
    Any { domains: Bits, listing: SetId },
    /// One of these, the first that works.
    First(Vec<(Value, SetId)>),
}

impl Pick {
    fn chooses(&self) -> bool {
        match self {
            Self::Empty { pins, .. } => !pins.is_empty(),
            Self::Any { .. } => false,
            Self::First(_) => true,
        }
    }
}

impl Engine<'_> {
    pub(crate) fn attempt(&mut self, class: ClassId) -> Attempt {
        let spec = Arc::clone(&self.classes[class.index()].spec);
        let mut attempt = Attempt {
            class,
            hosts: SmallVec::new(),
            domains: SmallVec::new(),
            refusals_are_final: true,
            hopeless_until: 0,
            spec,
        };
        let base = Arc::clone(&attempt.spec.base);
        let step = attempt.spec.step;
        for owned in base.owned.iter().filter(|owned| owned.is_left(step)) {
            if self.add_check(&mut attempt, owned.group, owned.selects_self) == Outlook::Hopeless {
                attempt.hopeless_until =
                    attempt.hopeless_until.max(owned.given_up.unwrap_or(u32::MAX));
            }
        }
        for at in 0..self.topology.selecting(attempt.spec.base.key.audience).len() {
            let group = self.topology.selecting(attempt.spec.base.key.audience)[at];
            let carriers = &self.topology.groups[group.index()];
            // Nobody is there to keep away from.
            if carriers.identity.side == Side::Carriers && carriers.total() > 0 {
                let outlook = self.add_check(&mut attempt, group, false);
                debug_assert_eq!(outlook, Outlook::Open, "others keep away from some domains only");
            }
        }
        attempt.domains.sort_by_key(|check| check.pick.chooses());
        attempt
    }

    fn add_check(&mut self, attempt: &mut Attempt, group: GroupId, selects_self: bool) -> Outlook {
        let identity = &self.topology.groups[group.index()].identity;
        let (kind, place) = (identity.kind, identity.place);
        match place {
            Place::Host => {
                let rule = self.host_rule(&attempt.spec, group, selects_self);
                attempt.refusals_are_final &= matches!(rule, HostRule::AtMost(_));
                attempt.hosts.push(HostCheck { group, rule });
                let nobody_there = self.topology.groups[group.index()].total() == 0;
                match rule {
                    HostRule::Never => Outlook::Hopeless,
                    HostRule::Occupied { or_first: false } if nobody_there => Outlook::Hopeless,
                    HostRule::AtMost(_) | HostRule::Occupied { .. } => Outlook::Open,
                }
            }
            Place::Label(key) => {
                let pod_rule = self.algebra.get(attempt.spec.strict.set, key);
                let pick = match kind {
                    TopologyKind::Spread => self.spread_domains(group, key, pod_rule, selects_self),
                    TopologyKind::Affinity => {
                        self.affinity_domains(group, key, pod_rule, selects_self)
                    }
                    TopologyKind::AntiAffinity => {
                        self.empty_domains(group, key, pod_rule, selects_self)
                    }
                };
                attempt.refusals_are_final &= kind == TopologyKind::AntiAffinity;
                let outlook = match &pick {
                    Pick::First(domains) if domains.is_empty() => Outlook::Hopeless,
                    _ => Outlook::Open,
                };
                attempt.domains.push(DomainCheck { group, key, pick });
                outlook
            }
        }
    }

    /// A new node is always possible, so the least count over hosts is taken as zero.
    fn host_rule(&self, spec: &Spec, group: GroupId, selects_self: bool) -> HostRule {
        let group = &self.topology.groups[group.index()];
        match group.identity.kind {
            TopologyKind::Spread => {
                match group.identity.max_skew.checked_sub(u32::from(selects_self)) {
                    Some(most) => HostRule::AtMost(most),
                    None => HostRule::Never,
                }
            }
            TopologyKind::AntiAffinity => HostRule::AtMost(0),
            TopologyKind::Affinity => {
                let occupied = |(host, count): (usize, u32)| {
                    count > 0
                        && match self.existing.nodes.get(host) {
                            Some(node) => spec.strict.allows_host(node.node.hostname()),
                            None => spec.strict.allows_new_host(),
                        }
                };
                let any_occupied = match spec.strict.hostname {
                    None => group.total() > 0,
                    Some(_) => group.domains().any(occupied),
                };
                HostRule::Occupied { or_first: selects_self && !any_occupied }
            }
        }
    }

    /// Domains in which one more pod keeps the skew, the emptiest first.
    fn spread_domains(
        &mut self,
        group: GroupId,
        key: Key,
        pod_rule: Option<Rule>,
        selects_self: bool,
    ) -> Pick {
        let group = &self.topology.groups[group.index()];
        let eligible: SmallVec<[(Value, u32); 8]> = group
            .values()
            .filter(|(value, _)| pod_rule.is_none_or(|rule| self.algebra.allows(rule, *value)))
            .collect();
        let too_few =
            group.identity.min_domains.is_some_and(|least| eligible.len() < least as usize);
        let lowest = eligible.iter().map(|(_, count)| *count).min().unwrap_or(0);
        let lowest = if too_few { 0 } else { lowest };
        let most = (group.identity.max_skew + lowest).checked_sub(u32::from(selects_self));
        let mut valid: SmallVec<[(u32, Value); 8]> = eligible
            .into_iter()
            .filter(|(_, count)| most.is_some_and(|most| *count <= most))
            .map(|(value, count)| (count, value))
            .collect();
        let algebra = &self.algebra;
        valid.sort_by(|a, b| {
            let name = |value| algebra.value_name(key, value);
            a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1)))
        });
        let valid = valid.into_iter().map(|(_, value)| (value, self.algebra.pin(key, value)));
        Pick::First(valid.collect())
    }

    fn affinity_domains(
        &mut self,
        group: GroupId,
        key: Key,
        pod_rule: Option<Rule>,
        selects_self: bool,
    ) -> Pick {
        let eligible: Vec<(Value, u32)> = self.topology.groups[group.index()]
            .values()
            .filter(|(value, _)| pod_rule.is_none_or(|rule| self.algebra.allows(rule, *value)))
            .collect();
        let occupied: Bits = eligible
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(value, _)| value.index())
            .collect();
        if !occupied.is_empty() {
            let listing = self.algebra.listing(key, occupied.clone());
            return Pick::Any { domains: occupied, listing };
        }
        // The first of its kind chooses where the others follow: exactly one domain, or two claims could
        // each start one.
        let mut first: Vec<_> = eligible.into_iter().map(|(value, _)| value).collect();
        if !selects_self {
            first.clear();
        }
        let algebra = &self.algebra;
        first.sort_by(|a, b| algebra.value_name(key, *a).cmp(algebra.value_name(key, *b)));
        Pick::First(first.into_iter().map(|value| (value, self.algebra.pin(key, value))).collect())
    }

    fn empty_domains(
        &mut self,
        group: GroupId,
        key: Key,
        pod_rule: Option<Rule>,
        selects_self: bool,
    ) -> Pick {
        let mut empty: Vec<Value> = self.topology.groups[group.index()]
            .values()
            .filter(|(value, count)| {
                *count == 0 && pod_rule.is_none_or(|rule| self.algebra.allows(rule, *value))
            })
            .map(|(value, _)| value)
            .collect();
        let domains: Bits = empty.iter().map(|value| value.index()).collect();
        let listing = (!empty.is_empty()).then(|| self.algebra.listing(key, domains));
        let Some(wanted) = selects_self.then(|| self.wanted_domains(group, key)).flatten() else {
            return Pick::Empty { listing, pins: Vec::new() };
        };
        let algebra = &self.algebra;
        let rank = |value: &Value| {
            (wanted.get(value.index()).copied().unwrap_or(0), algebra.value_name(key, *value))
        };
        empty.sort_by(|a, b| rank(a).cmp(&rank(b)));
        let pins = empty.into_iter().map(|value| (value, self.algebra.pin(key, value)));
        Pick::Empty { listing, pins: pins.collect() }
    }
}
