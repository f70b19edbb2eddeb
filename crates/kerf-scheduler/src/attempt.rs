//! What topology asks of any place, worked out once per attempt: counts do not change while a pod
//! looks for its place.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algebra::{Key, Rule, SetId, Value};
use crate::bits::Bits;
use crate::class::{ClassId, Spec};
use crate::engine::Engine;
use crate::refusal::TopologyKind;
use crate::topology::{GroupId, Side, TopologyKey};

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) spec: Arc<Spec>,
    pub(crate) hosts: SmallVec<[HostCheck; 4]>,
    /// Those that only narrow come before those that choose, so that choices see what is left.
    pub(crate) domains: SmallVec<[DomainCheck; 2]>,
    /// No later placement can turn a refusal into an acceptance: counts only grow, and nothing here asks for
    /// a count to be high or for the least of several.
    pub(crate) refusals_are_final: bool,
    /// Nothing can accept before so many steps of relaxation were taken, so nothing needs to be asked.
    pub(crate) unsatisfiable_until: u32,
}

/// Whether any place could accept, for all that one constraint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Satisfiable {
    Perhaps,
    Never,
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
    /// Whether a new node has to take one of several.
    pub(crate) fn chooses(&self) -> bool {
        match self {
            Self::Empty { pins, .. } => !pins.is_empty(),
            Self::Any { .. } => false,
            Self::First(_) => true,
        }
    }

    /// What a new node may be narrowed to: the first that leaves something to buy.
    pub(crate) fn choices(&self) -> impl Iterator<Item = SetId> {
        let (listing, pins) = self.listing_and_pins();
        let listing = listing.filter(|_| pins.is_empty());
        listing.into_iter().chain(pins.iter().map(|(_, pin)| *pin))
    }

    /// Whether some choice will do. One listing stands for all of its pins.
    pub(crate) fn is_open(&self, mut will_do: impl FnMut(SetId) -> bool) -> bool {
        match self.listing_and_pins() {
            (Some(listing), _) => will_do(listing),
            (None, pins) => pins.iter().any(|(_, pin)| will_do(*pin)),
        }
    }

    fn listing_and_pins(&self) -> (Option<SetId>, &[(Value, SetId)]) {
        match self {
            Self::Empty { listing, pins } => (*listing, pins),
            Self::Any { listing, .. } => (Some(*listing), &[]),
            Self::First(pins) => (None, pins),
        }
    }
}

/// There are rarely more zones.
type Few<T> = SmallVec<[T; 8]>;

/// One constraint over domains as a pod has it.
#[derive(Clone, Copy)]
struct OverDomains {
    group: GroupId,
    key: Key,
    /// What the pod itself allows.
    pod_rule: Option<Rule>,
    selects_self: bool,
}

impl Engine<'_> {
    pub(crate) fn attempt(&mut self, class: ClassId) -> Attempt {
        let spec = Arc::clone(&self.classes[class.index()].spec);
        let mut attempt = Attempt {
            hosts: SmallVec::new(),
            domains: SmallVec::new(),
            refusals_are_final: true,
            unsatisfiable_until: 0,
            spec,
        };
        let base = Arc::clone(&attempt.spec.base);
        let step = attempt.spec.step;
        for owned in base.owned.iter().filter(|owned| owned.is_left(step)) {
            if self.add_check(&mut attempt, owned.group, owned.selects_self) == Satisfiable::Never {
                attempt.unsatisfiable_until =
                    attempt.unsatisfiable_until.max(owned.given_up.unwrap_or(u32::MAX));
            }
        }
        for at in 0..self.topology.selecting(attempt.spec.base.key.pod_labels).len() {
            let group = self.topology.selecting(attempt.spec.base.key.pod_labels)[at];
            let inverse = &self.topology.groups[group.index()];
            // Without pods there is nothing to keep away from.
            if inverse.identity.side == Side::Inverse && inverse.total() > 0 {
                let satisfiable = self.add_check(&mut attempt, group, false);
                debug_assert_eq!(
                    satisfiable,
                    Satisfiable::Perhaps,
                    "others keep away from some domains only"
                );
            }
        }
        attempt.domains.sort_by_key(|check| check.pick.chooses());
        attempt
    }

    fn add_check(
        &mut self,
        attempt: &mut Attempt,
        group: GroupId,
        selects_self: bool,
    ) -> Satisfiable {
        let identity = &self.topology.groups[group.index()].identity;
        let (kind, topology_key) = (identity.kind, identity.topology_key);
        match topology_key {
            TopologyKey::Hostname => {
                let rule = self.host_rule(&attempt.spec, group, selects_self);
                attempt.refusals_are_final &= matches!(rule, HostRule::AtMost(_));
                attempt.hosts.push(HostCheck { group, rule });
                let no_pods = self.topology.groups[group.index()].total() == 0;
                match rule {
                    HostRule::Never => Satisfiable::Never,
                    HostRule::Occupied { or_first: false } if no_pods => Satisfiable::Never,
                    HostRule::AtMost(_) | HostRule::Occupied { .. } => Satisfiable::Perhaps,
                }
            }
            TopologyKey::Label(key) => {
                let pod_rule = self.algebra.get(attempt.spec.strict_requirements.set, key);
                let of = OverDomains { group, key, pod_rule, selects_self };
                let pick = match kind {
                    TopologyKind::Spread => self.spread_domains(of),
                    TopologyKind::Affinity => self.affinity_domains(of),
                    TopologyKind::AntiAffinity => self.empty_domains(of),
                };
                attempt.refusals_are_final &= kind == TopologyKind::AntiAffinity;
                let satisfiable = match &pick {
                    Pick::First(domains) if domains.is_empty() => Satisfiable::Never,
                    _ => Satisfiable::Perhaps,
                };
                attempt.domains.push(DomainCheck { group, key, pick });
                satisfiable
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
                            Some(node) => {
                                spec.strict_requirements.allows_host(node.node.hostname())
                            }
                            None => spec.strict_requirements.allows_new_host(),
                        }
                };
                let any_occupied = match spec.strict_requirements.hostname {
                    None => group.total() > 0,
                    Some(_) => group.domains().any(occupied),
                };
                HostRule::Occupied { or_first: selects_self && !any_occupied }
            }
        }
    }

    /// The group's domains that the pod itself allows, with their counts.
    fn eligible_domains(&mut self, of: OverDomains) -> Few<(Value, u32)> {
        self.topology.groups[of.group.index()]
            .values()
            .filter(|(value, _)| of.pod_rule.is_none_or(|rule| self.algebra.allows(rule, *value)))
            .collect()
    }

    /// The domains by rank, then by name.
    fn pins<R: Ord>(&mut self, key: Key, mut ranked: Few<(R, Value)>) -> Vec<(Value, SetId)> {
        let name = |value| self.algebra.value_name(key, value);
        ranked.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1))));
        ranked.into_iter().map(|(_, value)| (value, self.algebra.pin(key, value))).collect()
    }

    /// Domains in which one more pod keeps the skew, the emptiest first.
    fn spread_domains(&mut self, of: OverDomains) -> Pick {
        let eligible = self.eligible_domains(of);
        let identity = &self.topology.groups[of.group.index()].identity;
        let too_few = identity.min_domains.is_some_and(|least| eligible.len() < least as usize);
        let lowest = eligible.iter().map(|(_, count)| *count).min().unwrap_or(0);
        let lowest = if too_few { 0 } else { lowest };
        let most = (identity.max_skew + lowest).checked_sub(u32::from(of.selects_self));
        let valid =
            eligible.into_iter().filter(|(_, count)| most.is_some_and(|most| *count <= most));
        let valid = valid.map(|(value, count)| (count, value)).collect();
        Pick::First(self.pins(of.key, valid))
    }

    fn affinity_domains(&mut self, of: OverDomains) -> Pick {
        let eligible = self.eligible_domains(of);
        let occupied = eligible.iter().filter(|(_, count)| *count > 0);
        let occupied: Bits = occupied.map(|(value, _)| value.index()).collect();
        if !occupied.is_empty() {
            let listing = self.algebra.listing(of.key, occupied.clone());
            return Pick::Any { domains: occupied, listing };
        }
        if !of.selects_self {
            return Pick::First(Vec::new());
        }
        // The first of its kind chooses where the others follow: exactly one domain, or two claims could
        // each start one.
        let first = eligible.into_iter().map(|(value, _)| ((), value)).collect();
        Pick::First(self.pins(of.key, first))
    }

    fn empty_domains(&mut self, of: OverDomains) -> Pick {
        let eligible = self.eligible_domains(of);
        let empty = || eligible.iter().filter(|(_, count)| *count == 0).map(|(value, _)| *value);
        let domains: Bits = empty().map(Value::index).collect();
        let listing = (!domains.is_empty()).then(|| self.algebra.listing(of.key, domains));
        let wanted = of.selects_self.then(|| self.wanted_domains(of.group, of.key)).flatten();
        let Some(wanted) = wanted else { return Pick::Empty { listing, pins: Vec::new() } };
        let rank = |value: Value| wanted.get(value.index()).copied().unwrap_or(0);
        let ranked = empty().map(|value| (rank(value), value)).collect();
        Pick::Empty { listing, pins: self.pins(of.key, ranked) }
    }
}
