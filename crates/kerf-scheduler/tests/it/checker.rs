//! Is a plan right? A second opinion: slow, simple, and knowing nothing of how plans are made. It works
//! on strings and exact amounts, and looks at every pair of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use crate::build::known_labels;
use kerf_model::catalogue::satisfies_min_values;
use kerf_model::labels::HOSTNAME;
use kerf_model::pod::{NodePolicy, PodTerm, SpreadConstraint, WhenUnsatisfiable};
use kerf_model::taint::{Effect, Taint, tolerates_all};
use kerf_model::{
    Constraints, KnownLabels, MinValuesPolicy, Node, Pod, Pool, Requirement, Requirements,
    Resources, Selector, Snapshot, Undefined,
};
use kerf_scheduler::{Options, Plan, PlannedClaim};

/// Everything that is wrong with the plan.
pub(crate) fn violations(snapshot: &Snapshot, options: &Options, plan: &Plan) -> Vec<String> {
    let world = World::new(snapshot, plan);
    let mut wrong = Vec::new();
    every_pod_once(snapshot, plan, &mut wrong);
    for placement in &plan.placements {
        check_node(snapshot, &placement.node, &placement.pods, &mut wrong);
    }
    for claim in &plan.claims {
        check_claim(snapshot, options, claim, &mut wrong);
    }
    check_limits(snapshot, plan, &mut wrong);
    for spot in &world.spots {
        for pod in &spot.new {
            world.check_anti_affinity(pod, spot, &mut wrong);
            world.check_affinity(pod, spot, &mut wrong);
            world.check_spread(pod, spot, &mut wrong);
        }
    }
    wrong
}

fn every_pod_once(snapshot: &Snapshot, plan: &Plan, wrong: &mut Vec<String>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let claimed = plan.claims.iter().flat_map(|claim| &claim.pods);
    let placed = plan.placements.iter().flat_map(|placement| &placement.pods);
    let failed = plan.failures.iter().map(|failure| &failure.pod);
    for pod in claimed.chain(placed).chain(failed) {
        *seen.entry(&pod.uid).or_default() += 1;
    }
    for pod in &snapshot.pods {
        if seen.get(pod.uid.as_str()) != Some(&1) {
            wrong.push(format!(
                "{} is mentioned {:?} times",
                pod.key(),
                seen.get(pod.uid.as_str())
            ));
        }
    }
}

fn sum<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> Resources {
    let mut total = Resources::new();
    for pod in pods {
        total.add(&pod.requests);
    }
    total
}

fn hard(taints: &[Taint]) -> Vec<Taint> {
    taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule).cloned().collect()
}

/// The pod's selector with each of its required terms; any one must hold.
fn terms(constraints: &Constraints) -> Vec<Requirements> {
    if constraints.required_terms.is_empty() {
        return vec![constraints.node_selector.clone()];
    }
    constraints.required_terms.iter().map(|term| constraints.node_selector.merged(term)).collect()
}

fn node_requirements(node: &Node) -> Requirements {
    let mut requirements = Requirements::from_labels(&node.labels);
    requirements.replace(Requirement::is_in(HOSTNAME, [node.hostname()]));
    requirements
}

fn node_meets_any(node: &Node, terms: &[Requirements]) -> bool {
    let own = node_requirements(node);
    terms.iter().any(|term| own.compatible(term, Undefined::Refused).is_ok())
}

/// Whether a new pod wants a port that another pod has. Pods that run already are not ours to judge.
fn conflicting_ports(staying: &[&Arc<Pod>], new: &[Arc<Pod>]) -> bool {
    new.iter().enumerate().any(|(at, pod)| {
        let others = staying.iter().copied().chain(&new[at + 1..]);
        others
            .flat_map(|other| &other.constraints.host_ports)
            .any(|theirs| pod.constraints.host_ports.iter().any(|port| port.conflicts_with(theirs)))
    })
}

fn check_node(snapshot: &Snapshot, node: &Node, placed: &[Arc<Pod>], wrong: &mut Vec<String>) {
    let name = &node.name;
    let staying: Vec<_> = node
        .pods
        .iter()
        .filter(|pod| !snapshot.pods.iter().any(|moving| moving.uid == pod.uid))
        .collect();
    if node.deleting {
        wrong.push(format!("{name} goes away but gets pods"));
    }
    let total = sum(node.pods.iter().chain(placed));
    if !total.fits_in(&node.allocatable) {
        wrong.push(format!("{name} is overcommitted: {total} of {}", node.allocatable));
    }
    if conflicting_ports(&staying, placed) {
        wrong.push(format!("host ports conflict on {name}"));
    }
    for pod in placed {
        if !tolerates_all(&hard(&node.taints), &pod.constraints.tolerations) {
            wrong.push(format!("{} does not tolerate {name}", pod.key()));
        }
        if !node_meets_any(node, &terms(&pod.constraints)) {
            wrong.push(format!("{} does not select {name}", pod.key()));
        }
        let alternatives = snapshot.volumes.alternatives(pod).unwrap_or_default();
        if !alternatives.is_empty() && !node_meets_any(node, &alternatives) {
            wrong.push(format!("a volume of {} is out of reach of {name}", pod.key()));
        }
    }
    for (driver, limit) in &node.volume_limits {
        let Some(limit) = limit else { continue };
        let of = |pod: &Arc<Pod>| {
            snapshot.volumes.attachments(pod).remove(driver.as_str()).unwrap_or_default()
        };
        // A node that is over its limit already may still get pods without volumes.
        if placed.iter().all(|pod| of(pod).is_empty()) {
            continue;
        }
        let attached: BTreeSet<_> = node.pods.iter().chain(placed).flat_map(of).collect();
        if attached.len() > *limit as usize {
            wrong.push(format!(
                "{name} attaches {} volumes of {driver}, {limit} are allowed",
                attached.len()
            ));
        }
    }
}

/// Whether whatever the first allows, the second allows.
fn implies(narrow: &Requirements, wide: &Requirements) -> bool {
    wide.iter().all(|wanted| match narrow.get(wanted.key()) {
        Some(own) => {
            let mut both = own.intersection(wanted);
            both.set_min_values(own.min_values());
            both == *own
        }
        None => wanted.key() == HOSTNAME && wanted.has("any-new-host") || wanted.allows_absence(),
    })
}

fn check_claim(
    snapshot: &Snapshot,
    options: &Options,
    claim: &PlannedClaim,
    wrong: &mut Vec<String>,
) {
    let label = format!("claim of {} with {}", claim.pool.name, claim.pods[0].name);
    if conflicting_ports(&[], &claim.pods) {
        wrong.push(format!("host ports conflict on {label}"));
    }
    if claim.instance_types.is_empty() || claim.instance_types.len() > options.max_instance_types {
        wrong.push(format!("{label} has {} instance types", claim.instance_types.len()));
    }
    if options.min_values == MinValuesPolicy::Strict
        && satisfies_min_values(&claim.instance_types, &claim.requirements).is_err()
    {
        wrong.push(format!("{label} is not flexible enough"));
    }
    for pod in &claim.pods {
        if !tolerates_all(&hard(&claim.pool.taints), &pod.constraints.tolerations) {
            wrong.push(format!("{} does not tolerate {label}", pod.key()));
        }
        let alternatives = snapshot.volumes.alternatives(pod).unwrap_or_default();
        let served = |options: &[Requirements]| {
            options.iter().any(|term| implies(&claim.requirements, term))
        };
        if !served(&terms(&pod.constraints)) {
            wrong.push(format!("{} is not served by {label}: {}", pod.key(), claim.requirements));
        }
        if !alternatives.is_empty() && !served(&alternatives) {
            wrong.push(format!("a volume of {} is out of reach of {label}", pod.key()));
        }
    }
    let pods = sum(claim.pods.iter());
    for instance_type in &claim.instance_types {
        for (driver, limit) in instance_type.volume_limits() {
            let attached: BTreeSet<_> = claim
                .pods
                .iter()
                .filter_map(|pod| snapshot.volumes.attachments(pod).remove(driver.as_str()))
                .flatten()
                .collect();
            if attached.len() > *limit as usize {
                let (name, volumes) = (instance_type.name(), attached.len());
                wrong.push(format!("{label} needs {volumes} volumes, {name} attaches {limit}"));
            }
        }
        let mut total = pods.clone();
        for daemon in &snapshot.daemons {
            if daemon_runs(daemon, &claim.pool, instance_type.requirements(), snapshot) {
                total.add(&daemon.requests);
            }
        }
        let sold = |at: &usize| {
            let offering = &instance_type.offerings()[*at];
            offering.available && offering.serves(&claim.requirements, &snapshot.labels)
        };
        let fits = instance_type
            .groups()
            .iter()
            .any(|group| total.fits_in(&group.allocatable) && group.offerings.iter().any(sold));
        if !fits || instance_type.requirements().intersects(&claim.requirements).is_err() {
            wrong.push(format!(
                "{label} cannot be a {}: {total}, {}",
                instance_type.name(),
                claim.requirements
            ));
        }
    }
}

fn daemon_runs(daemon: &Pod, pool: &Pool, of_type: &Requirements, snapshot: &Snapshot) -> bool {
    let template = pool.template_requirements();
    tolerates_all(&hard(&pool.taints), &daemon.constraints.tolerations)
        && terms(&daemon.constraints).iter().any(|term| {
            template.compatible(term, Undefined::WellKnown(&snapshot.labels)).is_ok()
                && of_type.intersects(term).is_ok()
        })
}

fn check_limits(snapshot: &Snapshot, plan: &Plan, wrong: &mut Vec<String>) {
    for pool in snapshot.launching_pools() {
        let claims: Vec<_> =
            plan.claims.iter().filter(|claim| claim.pool.name == pool.name).collect();
        if claims.is_empty() {
            continue;
        }
        let present = snapshot.nodes.iter().filter(|node| node.pool.as_ref() == Some(&pool.name));
        let nodes = present.clone().filter(|node| !node.deleting);
        for (name, limit) in pool.limits.iter() {
            let used: kerf_model::Quantity = if name == "nodes" {
                kerf_model::Quantity::from_units(
                    (present.clone().count() + claims.len()).try_into().expect("few"),
                )
            } else {
                let largest = |claim: &&PlannedClaim| {
                    claim
                        .instance_types
                        .iter()
                        .map(|one| one.capacity().amount(name))
                        .max()
                        .unwrap_or_default()
                };
                nodes
                    .clone()
                    .map(|node| node.capacity.amount(name))
                    .chain(claims.iter().map(largest))
                    .sum()
            };
            if used > limit {
                wrong.push(format!("pool {} uses {used} of {limit} {name}", pool.name));
            }
        }
    }
}

/// Nodes and claims with all pods that are or will be there.
struct World<'a> {
    snapshot: &'a Snapshot,
    spots: Vec<Spot<'a>>,
}

struct Spot<'a> {
    node: Option<&'a Node>,
    claim: Option<&'a PlannedClaim>,
    bound: Vec<&'a Arc<Pod>>,
    new: Vec<&'a Arc<Pod>>,
}

impl<'a> World<'a> {
    fn new(snapshot: &'a Snapshot, plan: &'a Plan) -> Self {
        let moving: BTreeSet<_> = snapshot.pods.iter().map(|pod| &pod.uid).collect();
        let mut spots: Vec<_> = snapshot
            .nodes
            .iter()
            .map(|node| Spot {
                node: Some(node),
                claim: None,
                bound: node.pods.iter().filter(|pod| !moving.contains(&pod.uid)).collect(),
                new: Vec::new(),
            })
            .collect();
        for placement in &plan.placements {
            let at = snapshot
                .nodes
                .iter()
                .position(|node| node.name == placement.node.name)
                .expect("a node");
            spots[at].new.extend(&placement.pods);
        }
        spots.extend(plan.claims.iter().map(|claim| Spot {
            node: None,
            claim: Some(claim),
            bound: Vec::new(),
            new: claim.pods.iter().collect(),
        }));
        Self { snapshot, spots }
    }

    fn selects(&self, carrier: &Pod, term: &PodTerm, other: &Pod) -> bool {
        let in_namespace = match &term.namespace_selector {
            None if term.namespaces.is_empty() => other.namespace == carrier.namespace,
            None => term.namespaces.contains(&other.namespace),
            Some(selector) => {
                *selector == Selector::everything()
                    || term.namespaces.contains(&other.namespace)
                    || self
                        .snapshot
                        .namespaces
                        .get(&other.namespace)
                        .is_some_and(|labels| selector.selects(labels))
            }
        };
        in_namespace && term.selector.selects(&other.labels)
    }

    fn check_anti_affinity(&self, pod: &Arc<Pod>, spot: &Spot<'_>, wrong: &mut Vec<String>) {
        for other_spot in &self.spots {
            let same = std::ptr::eq(spot, other_spot);
            for other in other_spot.bound.iter().chain(&other_spot.new) {
                if other.uid == pod.uid {
                    continue;
                }
                let own = pod
                    .constraints
                    .anti_affinity
                    .required
                    .iter()
                    .filter(|term| self.selects(pod, term, other));
                let theirs = other
                    .constraints
                    .anti_affinity
                    .required
                    .iter()
                    .filter(|term| self.selects(other, term, pod));
                // Whoever is bound to a node that does not exist yet, or is on its way out, still keeps others away;
                // as a target it counts only while it runs.
                let counts = other_spot.node.is_none_or(|node| node.exists && !other.deleting)
                    || other_spot.new.iter().any(|new| new.uid == other.uid);
                for term in own.filter(|_| counts).chain(theirs) {
                    if spot.may_share(other_spot, &term.topology_key, same) {
                        wrong.push(format!(
                            "{} and {} may share {}",
                            pod.key(),
                            other.key(),
                            term.topology_key
                        ));
                    }
                }
            }
        }
    }

    fn check_affinity(&self, pod: &Arc<Pod>, spot: &Spot<'_>, wrong: &mut Vec<String>) {
        for term in &pod.constraints.affinity.required {
            if self.selects(pod, term, pod) {
                continue;
            }
            let selected = |other_spot: &Spot<'_>| {
                let mut others = other_spot.bound.iter().chain(&other_spot.new);
                others.any(|other| other.uid != pod.uid && self.selects(pod, term, other))
            };
            // Wherever the pod may end up, somebody must certainly be.
            let followed = |domain: &str| {
                let mut spots = self.spots.iter().enumerate();
                spots.any(|(at, other_spot)| {
                    other_spot.domain(&term.topology_key, at).as_deref() == Some(domain)
                        && selected(other_spot)
                })
            };
            let possible = spot.possible(&term.topology_key);
            let listed = possible.as_ref().and_then(Requirement::listed);
            let everywhere = term.topology_key != HOSTNAME
                && listed.is_some_and(|values| {
                    !values.is_empty() && values.iter().all(|value| followed(value))
                });
            let together = selected(spot) || everywhere;
            if !together {
                wrong.push(format!(
                    "{} is not with whom it follows over {}",
                    pod.key(),
                    term.topology_key
                ));
            }
        }
    }

    /// Exact only where every new pod that counts carries the same constraint: others may have come later. Pods with
    /// alternative terms are left out, because which of them take part depends on the term that was used.
    fn check_spread(&self, pod: &Arc<Pod>, spot: &Spot<'_>, wrong: &mut Vec<String>) {
        for spread in &pod.constraints.spread {
            if spread.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway
                || pod.constraints.required_terms.len() > 1
            {
                continue;
            }
            let counted = |other: &Pod| {
                other.namespace == pod.namespace && spread.selector.selects(&other.labels)
            };
            let mut all_new = self.spots.iter().flat_map(|spot| &spot.new);
            let alike =
                all_new.all(|other| !counted(other) || other.constraints == pod.constraints);
            if !alike || !counted(pod) {
                continue;
            }
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            for domain in self.launchable_domains(spread, pod) {
                counts.entry(domain).or_default();
            }
            for (at, other_spot) in self.spots.iter().enumerate() {
                let Some(domain) = other_spot.domain(&spread.topology_key, at) else { continue };
                let part = other_spot.node.is_none_or(|node| takes_part(node, spread, pod));
                let exists = other_spot.node.is_some_and(|node| node.exists);
                if part && exists {
                    let running = other_spot
                        .bound
                        .iter()
                        .filter(|other| counted(other) && !other.deleting && !other.is_terminal());
                    *counts.entry(domain.clone()).or_default() += running.count();
                }
                let new = other_spot.new.iter().filter(|other| counted(other)).count();
                if part && new > 0 {
                    *counts.entry(domain).or_default() += new;
                }
            }
            let own = self
                .spots
                .iter()
                .position(|other| std::ptr::eq(other, spot))
                .expect("its own spot");
            let Some(domain) = spot.domain(&spread.topology_key, own) else {
                wrong.push(format!(
                    "{} is in no certain domain of {}",
                    pod.key(),
                    spread.topology_key
                ));
                continue;
            };
            let here = counts.get(&domain).copied().unwrap_or(0);
            let eligible = |value: &String| {
                pod.constraints.required_terms.len() > 1
                    || pod
                        .constraints
                        .strict_requirements()
                        .get(&spread.topology_key)
                        .is_none_or(|own| own.has(value))
            };
            let eligible: Vec<_> = counts.iter().filter(|(value, _)| eligible(value)).collect();
            let mut least = eligible.iter().map(|(_, count)| **count).min().unwrap_or(0);
            let too_few = spread.min_domains.is_some_and(|wanted| eligible.len() < wanted as usize);
            if too_few || spread.topology_key == HOSTNAME {
                least = 0;
            }
            if here > least + spread.max_skew as usize {
                wrong.push(format!(
                    "{} breaks its spread over {}: {counts:?}",
                    pod.key(),
                    spread.topology_key
                ));
            }
        }
    }

    fn launchable_domains(&self, spread: &SpreadConstraint, pod: &Pod) -> BTreeSet<String> {
        let mut domains = BTreeSet::new();
        let reachable = |pool: &&Arc<Pool>| {
            spread.node_taints_policy == NodePolicy::Ignore
                || tolerates_all(&hard(&pool.taints), &pod.constraints.tolerations)
        };
        for pool in self.snapshot.launching_pools().filter(reachable) {
            for instance_type in &pool.instance_types {
                let both = pool.template_requirements().merged(instance_type.requirements());
                let listed = both.get(&spread.topology_key).and_then(|one| one.listed());
                domains.extend(listed.into_iter().flatten().cloned());
            }
        }
        domains
    }
}

fn takes_part(node: &Node, spread: &SpreadConstraint, pod: &Pod) -> bool {
    let affinity = spread.node_affinity_policy == NodePolicy::Ignore
        || node_meets_any(node, &terms(&pod.constraints));
    let taints = spread.node_taints_policy == NodePolicy::Ignore
        || tolerates_all(&hard(&node.taints), &pod.constraints.tolerations);
    affinity && taints
}

impl Spot<'_> {
    /// The domain that it will certainly be in.
    fn domain(&self, key: &str, own_position: usize) -> Option<String> {
        if key == HOSTNAME {
            return Some(self.node.map_or_else(
                || format!("claim {own_position}"),
                |node| node.hostname().to_owned(),
            ));
        }
        match (self.node, self.claim) {
            (Some(node), _) => node.labels.get(key).cloned(),
            (None, claim) => claim?.requirements.get(key)?.only_value().map(str::to_owned),
        }
    }

    fn possible(&self, key: &str) -> Option<Requirement> {
        match (self.node, self.claim) {
            (Some(node), _) => node.labels.get(key).map(|value| Requirement::is_in(key, [value])),
            (None, claim) => {
                let wanted = claim?.requirements.get(key).cloned();
                // A label that no provider sets is on a new node only if its pool says so.
                wanted.or_else(|| is_well_known(key).then(|| Requirement::exists(key)))
            }
        }
    }

    fn may_share(&self, other: &Self, key: &str, same: bool) -> bool {
        if key == HOSTNAME {
            return same;
        }
        match (self.possible(key), other.possible(key)) {
            (Some(own), Some(theirs)) => same || own.intersects(&theirs),
            _ => false,
        }
    }
}

fn is_well_known(key: &str) -> bool {
    static KNOWN: LazyLock<KnownLabels> = LazyLock::new(known_labels);
    KNOWN.well_known.contains(key)
}
