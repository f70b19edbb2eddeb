//! From a plan to a proposal of cheaper machines, and from the proposal to a plan.
//!
//! A run shows which pods need new machines, from which pool and, where topology decides, in which domain. The packer
//! (`packing.rs`) proposes machines for them. A second run offers each pod to its proposed machine first. Every check is the
//! engine's own, and a pod that is refused there takes the usual way.

use kerf_model::Price;
use rustc_hash::FxHashMap;

use super::{Engine, Place};
use crate::algebra::{Key, SetId, id};
use crate::attempt::Attempt;
use crate::class::ClassId;
use crate::packing::{Offer, Problem, Realm, Sort};
use crate::refusal::TopologyKind;
use crate::topology::{GroupId, Side, TopologyKey};

/// Which pods are to share new machines.
#[derive(Debug)]
pub(crate) struct Guide {
    machines: Vec<Machine>,
    /// By pod, the position of its machine.
    of_pod: FxHashMap<u32, usize>,
}

#[derive(Debug)]
struct Machine {
    template: usize,
    /// What its claim asks for from the start.
    set: SetId,
    /// Pods for which it was not proposed must not make it dearer than this.
    ceiling: Price,
}

/// Pods that packing treats alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SortKey {
    class: ClassId,
    template: usize,
    /// The requirements of pool and pod, with the domains that the pod was given.
    set: SetId,
}

/// What becomes of a pod that has a proposed machine.
pub(super) enum Guided {
    Placed,
    /// There is none, or it refuses.
    Unplaced,
}

impl Engine<'_> {
    /// Proposes machines for the pods that got new claims in the run that this engine has made.
    pub(crate) fn guide(&mut self, budget: u64) -> Option<Guide> {
        let mut keys: Vec<SortKey> = Vec::new();
        let mut pods: Vec<Vec<u32>> = Vec::new();
        let mut known: FxHashMap<SortKey, usize> = FxHashMap::default();
        // Virtual pods take what the real ones leave, and must not decide which machines those get.
        let real = |(pod, ..): &(u32, ClassId, usize)| !self.is_virtual(*pod);
        let on_new_claims: Vec<_> = self.on_new_claims().into_iter().filter(real).collect();
        for (pod, class, claim) in on_new_claims {
            let Some(key) = self.sort_key(class, claim) else { continue };
            let at = *known.entry(key).or_insert_with(|| {
                keys.push(key);
                pods.push(Vec::new());
                keys.len() - 1
            });
            pods[at].push(pod);
        }
        let (problem, places) = self.problem(&keys, &pods)?;
        let (problem, pods, first) = merged(problem, pods);
        let packed = problem.pack(budget)?;
        let mut next = vec![0; pods.len()];
        let mut of_pod = FxHashMap::default();
        let mut machines = Vec::with_capacity(packed.len());
        for machine in packed {
            for (sort, count) in &machine.pods {
                let from = next[*sort];
                next[*sort] += *count as usize;
                of_pod.extend(
                    pods[*sort][from..next[*sort]].iter().map(|pod| (*pod, machines.len())),
                );
            }
            let (template, realm) = places[machine.realm];
            // Pods that may go anywhere are not kept to the zone in which the machine was looked at.
            let mut sets = machine.pods.iter().map(|(sort, _)| keys[first[*sort]].set);
            let set = sets
                .try_fold(self.templates[template].set, |all, set| self.algebra.merge(all, set));
            let set = set.unwrap_or(realm);
            let offer = &problem.realms[machine.realm].offers[machine.offer];
            machines.push(Machine { template, set, ceiling: Price::from_f64(offer.price) });
        }
        Some(Guide { machines, of_pod })
    }

    /// Pods on claims of this run, with the class by which each was placed, in that order.
    fn on_new_claims(&self) -> Vec<(u32, ClassId, usize)> {
        let mut next = vec![0; self.claims.len()];
        let placed = self.placed.iter().filter_map(|(class, place)| match place {
            Place::Node(_) => None,
            Place::Claim(claim) => {
                let pod = *self.claims.all[*claim].pods.get(next[*claim])?;
                next[*claim] += 1;
                Some((pod, *class, *claim))
            }
        });
        placed.collect()
    }

    /// None for pods that are left to the usual way: those that must be with others on a node, and those of pools with
    /// reservations, whose price says nothing.
    fn sort_key(&mut self, class: ClassId, claim: usize) -> Option<SortKey> {
        let (template, claim_set) = (self.claims.all[claim].template, self.claims.all[claim].set);
        if !self.templates[template].reserved.is_empty() {
            return None;
        }
        let spec = std::sync::Arc::clone(&self.classes[class.index()].spec);
        let mut keys: Vec<Key> = Vec::new();
        for owned in spec.base.owned.iter().filter(|owned| owned.is_left(spec.step)) {
            let identity = &self.topology.groups[owned.group.index()].identity;
            match (identity.topology_key, identity.kind) {
                (TopologyKey::Hostname, TopologyKind::Affinity) => return None,
                (TopologyKey::Hostname, _) => {}
                (TopologyKey::Label(key), _) => keys.push(key),
            }
        }
        for group in self.topology.selecting(spec.base.key.pod_labels) {
            let identity = &self.topology.groups[group.index()].identity;
            if let (Side::Inverse, TopologyKey::Label(key)) = (identity.side, identity.topology_key)
            {
                keys.push(key);
            }
        }
        for asked in &spec.base.volume_requirements {
            keys.extend(self.algebra.entries(asked.set).iter().map(|(key, _)| *key));
        }
        let mut set = self.algebra.merge_pod(self.templates[template].set, &spec.requirements)?;
        for key in keys {
            if let Some(rule) = self.algebra.get(claim_set, key) {
                let domain = self.algebra.only(key, rule);
                set = self.algebra.merge(set, domain)?;
            }
        }
        Some(SortKey { class, template, set })
    }

    /// What is to be packed, and which template and requirements each of its realms stands for.
    fn problem(
        &mut self,
        keys: &[SortKey],
        pods: &[Vec<u32>],
    ) -> Option<(Problem, Vec<(usize, SetId)>)> {
        let lanes = self.asked_lanes(keys);
        let mut places: Vec<(usize, SetId)> = Vec::new();
        for key in keys {
            if !places.contains(&(key.template, key.set)) {
                places.push((key.template, key.set));
            }
        }
        let mut realms = Vec::with_capacity(places.len());
        for (template, set) in &places {
            realms.push(self.realm(*template, *set, &lanes)?);
        }
        let mut groups: Vec<GroupId> = Vec::new();
        let mut sorts = Vec::with_capacity(keys.len());
        for (key, pods) in keys.iter().zip(pods) {
            let own = places.iter().position(|place| *place == (key.template, key.set))?;
            let mut admitted = vec![own];
            for (at, (template, set)) in places.iter().enumerate() {
                // A realm that asks for all that the sort asks for, and for more.
                if at != own
                    && *template == key.template
                    && self.algebra.merge(*set, key.set) == Some(*set)
                {
                    admitted.push(at);
                }
            }
            let asked = &self.classes[key.class.index()].spec.base.key.requests;
            let mut sort = Sort {
                requests: lanes.iter().map(|lane| asked[*lane] as f64).collect(),
                count: id(pods.len()),
                realms: admitted,
                limits: Vec::new(),
                counts_in: Vec::new(),
            };
            self.add_groups(key.class, &mut sort, &mut groups);
            sorts.push(sort);
        }
        let ports = self.add_ports(keys, &mut sorts, groups.len());
        Some((Problem { sorts, realms, groups: groups.len() + ports }, places))
    }

    /// Lanes of which any pod asks for something.
    fn asked_lanes(&self, keys: &[SortKey]) -> Vec<usize> {
        let asks = |lane: &usize| {
            let asked =
                |key: &SortKey| self.classes[key.class.index()].spec.base.key.requests[*lane] > 0;
            keys.iter().any(asked)
        };
        (0..self.lanes.len()).filter(asks).collect()
    }

    fn realm(&mut self, template: usize, set: SetId, lanes: &[usize]) -> Option<Realm> {
        let mut rows = self.limits[template].allowed(&self.templates[template]).clone();
        let template = &mut self.templates[template];
        rows.intersect_with(template.serving(set, &mut self.algebra));
        let prices = template.row_prices(set, &mut self.algebra);
        let offer = |row: usize| Offer {
            room: lanes.iter().map(|lane| template.room_of(row)[*lane] as f64).collect(),
            price: prices[row].as_f64(),
        };
        let offers: Vec<_> =
            rows.iter().filter(|row| prices[*row] < Price::MAX).map(offer).collect();
        // What costs nothing has no price to plan by.
        let all_cost = !offers.is_empty() && offers.iter().all(|offer| offer.price > 0.0);
        all_cost.then(|| Realm::new(offers))
    }

    /// How many pods of which groups a machine may have for this sort.
    fn add_groups(&self, class: ClassId, sort: &mut Sort, groups: &mut Vec<GroupId>) {
        let spec = &self.classes[class.index()].spec;
        let mut number = |group: GroupId| {
            groups.iter().position(|known| *known == group).unwrap_or_else(|| {
                groups.push(group);
                groups.len() - 1
            })
        };
        let identity = |group: GroupId| &self.topology.groups[group.index()].identity;
        let by_host = |group: GroupId| identity(group).topology_key == TopologyKey::Hostname;
        for owned in &spec.base.owned {
            if by_host(owned.group) && owned.is_left(spec.step) {
                let most = match identity(owned.group).kind {
                    TopologyKind::Spread => {
                        identity(owned.group).max_skew.saturating_sub(u32::from(owned.selects_self))
                    }
                    TopologyKind::AntiAffinity | TopologyKind::Affinity => 0,
                };
                sort.limits.push((number(owned.group), most));
            }
        }
        for group in self.topology.selecting(spec.base.key.pod_labels) {
            if by_host(*group) {
                match identity(*group).side {
                    Side::Selected => sort.counts_in.push(number(*group)),
                    Side::Inverse => sort.limits.push((number(*group), 0)),
                }
            }
        }
        for group in spec.base.inverse.iter().filter(|group| by_host(**group)) {
            sort.counts_in.push(number(*group));
        }
    }

    /// A port of the host is there once: it is a group of which a machine has one pod. Says how many ports there are.
    fn add_ports(&self, keys: &[SortKey], sorts: &mut [Sort], groups: usize) -> usize {
        let mut ports = Vec::new();
        for (key, sort) in keys.iter().zip(sorts) {
            for port in self.classes[key.class.index()].spec.ports() {
                let at = ports.iter().position(|known| *known == port.port).unwrap_or_else(|| {
                    ports.push(port.port);
                    ports.len() - 1
                });
                if !sort.counts_in.contains(&(groups + at)) {
                    sort.counts_in.push(groups + at);
                    sort.limits.push((groups + at, 0));
                }
            }
        }
        ports.len()
    }

    /// Offers the pod to the machine that was proposed for it.
    pub(super) fn place_as_proposed(
        &mut self,
        pod: u32,
        class: ClassId,
        attempt: &Attempt,
    ) -> Guided {
        let Some(guide) = self.guide.clone() else { return Guided::Unplaced };
        let Some(at) = guide.of_pod.get(&pod).copied() else { return Guided::Unplaced };
        if let Some(claim) = self.proposed_claims.get(&at).copied() {
            return match self.evaluate_claim(attempt, claim) {
                Ok(accepted) => {
                    self.commit_to_claim(pod, class, claim, accepted);
                    Guided::Placed
                }
                Err(_) => Guided::Unplaced,
            };
        }
        let machine = &guide.machines[at];
        match self.evaluate_template_as(attempt, machine.template, machine.set) {
            Ok(accepted) => {
                let claim = self.commit_to_new_claim(pod, class, machine.template, accepted);
                self.claims.all[claim].ceiling = Some(machine.ceiling);
                self.proposed_claims.insert(at, claim);
                Guided::Placed
            }
            Err(_) => Guided::Unplaced,
        }
    }

    /// Whether what is left of the claim in the scratch buffer is within its ceiling.
    pub(super) fn is_within_ceiling(&mut self, claim: usize, set: SetId) -> bool {
        let Some(ceiling) = self.claims.all[claim].ceiling else { return true };
        let template = &mut self.templates[self.claims.all[claim].template];
        let by_price = template.by_price(set, &mut self.algebra);
        let mut within = by_price.iter().take_while(|(price, _)| *price <= ceiling);
        within.any(|(_, at)| template.rows_of(*at).any(|row| self.scratch.rows.contains(row)))
    }
}

/// The problem with what it cannot tell apart as one sort, such as pods of two Deployments of the same size; the pods of each sort; and
/// which sort each was made of first.
fn merged(mut problem: Problem, pods: Vec<Vec<u32>>) -> (Problem, Vec<Vec<u32>>, Vec<usize>) {
    let mut limited = vec![false; problem.groups];
    for (group, _) in problem.sorts.iter().flat_map(|sort| &sort.limits) {
        limited[*group] = true;
    }
    let mut known: FxHashMap<_, usize> = FxHashMap::default();
    let (mut sorts, mut pods_of, mut first) = (Vec::<Sort>::new(), Vec::<Vec<u32>>::new(), vec![]);
    let all = std::mem::take(&mut problem.sorts).into_iter().zip(pods);
    for (at, (mut sort, pods)) in all.enumerate() {
        sort.counts_in.retain(|group| limited[*group]);
        let requests: Vec<u64> = sort.requests.iter().map(|amount| amount.to_bits()).collect();
        let key = (requests, sort.realms.clone(), sort.limits.clone(), sort.counts_in.clone());
        let same = *known.entry(key).or_insert(sorts.len());
        if let Some(known) = sorts.get_mut(same) {
            known.count += sort.count;
            pods_of[same].extend(pods);
        } else {
            sorts.push(sort);
            pods_of.push(pods);
            first.push(at);
        }
    }
    (Problem { sorts, ..problem }, pods_of, first)
}
