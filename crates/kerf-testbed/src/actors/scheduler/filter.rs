//! Which nodes can take a pod, and why the others cannot: the scheduler's filters, in their order.

use super::super::fitness::{self, NodeFacts, UNSCHEDULABLE};
use super::demand::{Demand, Lanes, PODS_LANE, PodTerm, Spread};
use super::domains::Census;
use super::floor::{Floor, Place, Slot, Sort};
use super::volumes::Volumes;
use kerf_model::{Effect, Taint};
use std::borrow::Cow;

/// Why a node cannot take a pod, in kube-scheduler's words.
pub(super) type Reason = Cow<'static, str>;

const CORDONED: &str = "node(s) were unschedulable";
const TAINTED: &str = "node(s) had untolerated taint(s)";
const NOT_SELECTED: &str = "node(s) didn't match Pod's node affinity/selector";
const PORTS_TAKEN: &str = "node(s) didn't have free ports for the requested pod ports";
const INSUFFICIENT: &str = "Insufficient ";
const TOO_MANY_PODS: &str = "Too many pods";
const SKEWED: &str = "node(s) didn't match pod topology spread constraints";
const NO_DOMAIN: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";
const NOT_TOGETHER: &str = "node(s) didn't match pod affinity rules";
const NOT_APART: &str = "node(s) didn't match pod anti-affinity rules";
const REPELLED: &str = "node(s) didn't satisfy existing pods anti-affinity rules";
pub(super) const NOT_NAMED: &str = "node(s) didn't satisfy plugin(s) [NodeAffinity]";

/// Whether the node could take the pod if others were not on it. What keeps it from being with those it wants to be with is
/// not cured by fewer pods.
pub(super) fn is_curable(reasons: &[Reason]) -> bool {
    let curable = [TOO_MANY_PODS, PORTS_TAKEN, SKEWED, NOT_APART, REPELLED];
    reasons.iter().all(|why| curable.contains(&&**why) || why.starts_with(INSUFFICIENT))
}

/// What the other pods mean for one pod, worked out once before all nodes are looked at.
#[derive(Debug)]
pub(super) struct Outlook<'a> {
    floor: &'a Floor,
    demand: &'a Demand,
    volumes: &'a Volumes,
    /// How many of its sort a domain may hold without being too far ahead of the others.
    spread: Vec<(i64, Census)>,
    affinity: Vec<Census>,
    /// Nobody it wants to be with exists, but it is such a one itself: it may be the first.
    is_first: bool,
    apart: Vec<Census>,
    repelled: Vec<Census>,
}

/// Whether a constraint looks at what is on this node.
pub(super) fn includes(constraint: &Spread, demand: &Demand, facts: &NodeFacts) -> bool {
    (!constraint.honors_affinity || demand.nodes.allow(facts))
        && (!constraint.honors_taints || fitness::keeps_away(facts, &demand.tolerations).is_none())
}

/// The sort of pods a term is about.
pub(super) fn sort_of(term: &PodTerm) -> Sort {
    Sort { scopes: vec![term.scope.clone()], staying_only: false }
}

fn together(demand: &Demand) -> Sort {
    let scopes = demand.affinity.iter().map(|term| term.scope.clone()).collect();
    Sort { scopes, staying_only: false }
}

/// Has everything counted that looking at this pod needs.
pub(super) fn prepare(floor: &mut Floor, demand: &Demand) {
    floor.trim();
    for spread in demand.spread.iter().chain(&demand.soft_spread) {
        floor.prepare(&Sort { scopes: vec![spread.scope.clone()], staying_only: true });
    }
    if !demand.affinity.is_empty() {
        floor.prepare(&together(demand));
    }
    let preferred = demand.preferred.iter().map(|(_, term)| term);
    for term in demand.anti_affinity.iter().chain(preferred) {
        floor.prepare(&sort_of(term));
    }
}

impl<'a> Outlook<'a> {
    pub(super) fn new(
        floor: &'a Floor,
        demand: &'a Demand,
        volumes: &'a Volumes,
        order: &[Slot],
    ) -> Self {
        let all = || order.iter().copied();
        let domains: Vec<_> = demand.spread.iter().map(|s| floor.domains(&s.key)).collect();
        let spread = demand.spread.iter().map(|constraint| {
            let eligible = all().filter(|slot| {
                let Some(facts) = &floor.place(*slot).facts else { return false };
                let has_domains = domains.iter().all(|domains| domains.has(*slot));
                has_domains && includes(constraint, demand, facts)
            });
            let sort = Sort { scopes: vec![constraint.scope.clone()], staying_only: true };
            let census = floor.census(&sort, &constraint.key, eligible);
            let least = if census.each().count() < constraint.min_domains {
                0
            } else {
                census.each().min().unwrap_or(0)
            };
            let itself = i64::from(floor.covers(demand, std::iter::once(&constraint.scope)));
            (constraint.max_skew + least - itself, census)
        });
        let affinity: Vec<_> = if demand.affinity.is_empty() {
            Vec::new()
        } else {
            let sort = together(demand);
            demand.affinity.iter().map(|term| floor.census(&sort, &term.key, all())).collect()
        };
        let apart =
            demand.anti_affinity.iter().map(|term| floor.census(&sort_of(term), &term.key, all()));
        let repelled = floor
            .repelled_by(demand)
            .into_iter()
            .map(|(key, counts)| Census::new(floor.domains(key), counts, all()));
        let nobody = affinity.iter().all(|census| census.each().all(|count| count == 0));
        Self {
            is_first: nobody && floor.covers(demand, demand.affinity.iter().map(|t| &t.scope)),
            spread: spread.collect(),
            affinity,
            apart: apart.collect(),
            repelled: repelled.collect(),
            floor,
            demand,
            volumes,
        }
    }

    /// `Ok` when the node can take the pod, else what is in the way.
    pub(super) fn judge(&self, slot: Slot, lanes: &Lanes) -> Result<(), Vec<Reason>> {
        let place = self.floor.place(slot);
        let Some(facts) = &place.facts else { return Err(Vec::new()) };
        let no = |reason: &'static str| Err(vec![Cow::Borrowed(reason)]);
        if facts.unschedulable && !tolerates_cordon(self.demand) {
            return no(CORDONED);
        }
        if fitness::keeps_away(facts, &self.demand.tolerations).is_some() {
            return no(TAINTED);
        }
        if !self.demand.nodes.allow(facts) {
            return no(NOT_SELECTED);
        }
        let wanted = &self.demand.ports;
        if wanted.iter().any(|port| place.ports.iter().any(|taken| taken.conflicts_with(port))) {
            return no(PORTS_TAKEN);
        }
        let short = shortages(place, self.demand, lanes);
        if !short.is_empty() {
            return Err(short);
        }
        let elsewhere = self.volumes.judge(facts);
        elsewhere.or_else(|| self.judge_neighbours(slot)).map_or(Ok(()), no)
    }

    fn judge_neighbours(&self, slot: Slot) -> Option<&'static str> {
        for (most, census) in &self.spread {
            if !census.domains.has(slot) {
                return Some(NO_DOMAIN);
            }
            if census.around(slot) > *most {
                return Some(SKEWED);
            }
        }
        let inhabited = |census: &Census| census.around(slot) > 0;
        let has_domains = self.affinity.iter().all(|census| census.domains.has(slot));
        let joined = self.affinity.iter().all(inhabited);
        if !(joined || (self.is_first && has_domains)) {
            return Some(NOT_TOGETHER);
        }
        if self.apart.iter().any(inhabited) {
            return Some(NOT_APART);
        }
        self.repelled.iter().any(inhabited).then_some(REPELLED)
    }
}

fn tolerates_cordon(demand: &Demand) -> bool {
    let cordon = Taint::new(UNSCHEDULABLE, "", Effect::NoSchedule);
    fitness::tolerated(&cordon, &demand.tolerations)
}

fn shortages(place: &Place, demand: &Demand, lanes: &Lanes) -> Vec<Reason> {
    let mut short = Vec::new();
    for (lane, wanted) in demand.room.iter().enumerate().filter(|(_, wanted)| **wanted > 0) {
        let total = place.allocatable.get(lane).copied().unwrap_or(0);
        let used = place.used.get(lane).copied().unwrap_or(0);
        if *wanted > total - used {
            short.push(if lane == PODS_LANE {
                Cow::Borrowed(TOO_MANY_PODS)
            } else {
                Cow::Owned(format!("{INSUFFICIENT}{}", lanes.name(lane)))
            });
        }
    }
    short
}
