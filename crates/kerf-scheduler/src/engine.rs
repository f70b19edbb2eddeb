//! One run: the pods of a snapshot, one by one, to the first place that takes them.

use kerf_model::taint::tolerates_all;
use kerf_model::{MinValuesPolicy, Snapshot, Taint};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::algebra::Algebra;
use crate::attempt::Attempt;
use crate::bits::Bits;
use crate::claims::Claims;
use crate::class::{Class, ClassId, ClassKey};
use crate::daemons::daemons;
use crate::existing::ExistingNodes;
use crate::lanes::LaneTable;
use crate::limits::Limits;
use crate::options::Options;
use crate::plan::{Plan, Stopped};
use crate::probe::Stop;
use crate::queue::Queue;
use crate::refusal::{PoolRefusal, Refusal};
use crate::reserved::Reservations;
use crate::template::Template;
use crate::topology::Topology;

mod classes;
mod evaluate;
mod explain;
mod finish;
mod groups;
mod nodes;

pub(crate) struct Engine<'s> {
    pub(crate) snapshot: &'s Snapshot,
    pub(crate) options: &'s Options,
    pub(crate) lanes: LaneTable,
    pub(crate) algebra: Algebra,
    pub(crate) templates: Vec<Template>,
    pub(crate) limits: Vec<Limits>,
    pub(crate) unusable: Vec<PoolRefusal>,
    pub(crate) existing: ExistingNodes<'s>,
    pub(crate) claims: Claims,
    pub(crate) reservations: Reservations,
    pub(crate) topology: Topology<'s>,
    pub(crate) classes: Vec<Class>,
    pub(crate) class_ids: FxHashMap<ClassKey, ClassId>,
    /// Who went where, for groups that are made when pods have already been placed.
    pub(crate) placed: Vec<(ClassId, Spot)>,
    pub(crate) soft_taints: bool,
    pub(crate) stop: Stop,
    pub(crate) scratch: Scratch,
}

/// A place that took a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spot {
    Node(usize),
    Claim(usize),
}

/// Buffers that would otherwise be allocated per candidate.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) base: Bits,
    pub(crate) rows: Bits,
}

/// Why one try of one class ended without a place.
enum Stuck {
    Nowhere,
    WaitsForReservation,
    Stopped(Stopped),
}

impl<'s> Engine<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot, options: &'s Options) -> Self {
        let lanes = LaneTable::covering(all_amounts(snapshot));
        let mut algebra = Algebra::new(&snapshot.labels);
        let daemons = daemons(snapshot, &lanes, &mut algebra);
        let mut pools: Vec<_> = snapshot.pools.iter().collect();
        pools.sort_by(|a, b| (b.weight, &b.name).cmp(&(a.weight, &a.name)));
        let templates: Vec<_> =
            pools.iter().map(|pool| Template::new(pool, &lanes, &daemons, &mut algebra)).collect();
        let existing = ExistingNodes::new(snapshot, &lanes, &daemons);
        let reservations = Reservations::new(&templates);
        let soft = |taint: &Taint| taint.effect == kerf_model::Effect::PreferNoSchedule;
        let mut engine = Self {
            snapshot,
            options,
            lanes,
            algebra,
            soft_taints: pools.iter().any(|pool| pool.taints.iter().any(soft)),
            templates,
            limits: Vec::new(),
            unusable: Vec::new(),
            existing,
            claims: Claims::default(),
            reservations,
            topology: Topology::default(),
            classes: Vec::new(),
            class_ids: FxHashMap::default(),
            placed: Vec::new(),
            stop: Stop::default(),
            scratch: Scratch::default(),
        };
        engine.drop_unusable_pools();
        engine.charge_limits_for_nodes();
        engine.count_bound_pods();
        engine
    }

    /// The snapshot's pods from `leaving` on are those of nodes that would go away.
    pub(crate) fn run(mut self, stop: &Stop, leaving: usize) -> Plan {
        self.stop = *stop;
        let snapshot = self.snapshot;
        let mut refusals: Vec<Option<Refusal>> = vec![None; snapshot.pods.len()];
        let mut stuck: Vec<Option<ClassId>> = vec![None; snapshot.pods.len()];
        let mut classes: Vec<Option<ClassId>> = Vec::with_capacity(snapshot.pods.len());
        for (at, pod) in snapshot.pods.iter().enumerate() {
            let class = if pod.claims_devices {
                Err(Refusal::ClaimsDevices)
            } else {
                self.class_of(pod).map_err(Refusal::from)
            };
            classes.push(class.map_err(|refusal| refusals[at] = Some(refusal)).ok());
        }
        let requests = |pod: u32| {
            let class: ClassId = classes[pod as usize]?;
            Some(self.classes[class.index()].spec.key.requests.clone())
        };
        let mut queue = Queue::new(&snapshot.pods, requests);
        while let Some(pod) = queue.pop() {
            let Some(class) = classes[pod as usize] else { continue };
            refusals[pod as usize] = None;
            stuck[pod as usize] = None;
            match self.place(pod, class) {
                Ok(()) => {}
                Err((Stuck::Stopped(why), _)) => {
                    return Plan { stopped: Some(why), ..Plan::default() };
                }
                Err((Stuck::WaitsForReservation, _)) => {
                    refusals[pod as usize] = Some(Refusal::WaitsForReservation);
                    queue.push_back(pod);
                }
                Err((Stuck::Nowhere, last)) => {
                    stuck[pod as usize] = Some(last);
                    queue.push_back(pod);
                }
            }
        }
        self.finish(refusals, &stuck, leaving)
    }

    /// Tries the class, then the class with one wish less, and so on.
    fn place(&mut self, pod: u32, class: ClassId) -> Result<(), (Stuck, ClassId)> {
        let state = self.state();
        if let Some((failed_in, last)) = self.classes[class.index()].failed
            && failed_in == state
        {
            return Err((Stuck::Nowhere, last));
        }
        let mut trying = class;
        loop {
            match self.try_class(pod, trying) {
                Ok(()) => return Ok(()),
                Err(Stuck::Nowhere) => {
                    let Some(relaxed) = self.relaxed(trying) else {
                        self.classes[class.index()].failed = Some((state, trying));
                        return Err((Stuck::Nowhere, trying));
                    };
                    trying = relaxed;
                }
                Err(stuck) => return Err((stuck, trying)),
            }
        }
    }

    /// Every placement changes what later pods find, so their number names the state.
    fn state(&self) -> u64 {
        self.placed.len() as u64
    }

    fn try_class(&mut self, pod: u32, class: ClassId) -> Result<(), Stuck> {
        let attempt = self.attempt(class);
        if attempt.is_hopeless() {
            return Err(Stuck::Nowhere);
        }
        if let Some(node) = self.first_accepting_node(class, &attempt) {
            self.commit_to_node(pod, class, node);
            return Ok(());
        }
        if let Some((claim, accepted)) = self.first_accepting_claim(class, &attempt) {
            self.commit_to_claim(pod, class, claim, accepted);
            return self.stop_when_too_dear();
        }
        self.open_claim(pod, class, &attempt)
    }

    /// Claims only narrow, so what they cost at least only grows.
    fn stop_when_too_dear(&mut self) -> Result<(), Stuck> {
        let Some(below) = self.stop.price_below else { return Ok(()) };
        let at_least = (0..self.claims.len()).map(|claim| self.least_price(claim)).sum();
        if at_least < below {
            return Ok(());
        }
        Err(Stuck::Stopped(Stopped::Price { at_least, below }))
    }

    fn first_accepting_claim(
        &mut self,
        class: ClassId,
        attempt: &Attempt,
    ) -> Option<(usize, evaluate::Accepted)> {
        let mut dead = std::mem::take(&mut self.classes[class.index()].dead_claims);
        let mut found = None;
        for position in 0..self.claims.len() {
            let claim = self.claims.at(position);
            if dead.contains(claim) {
                continue;
            }
            match self.evaluate_claim(attempt, claim) {
                Ok(accepted) => {
                    found = Some((claim, accepted));
                    break;
                }
                Err(rejected) if rejected.is_final => dead.insert(claim),
                Err(_) => {}
            }
        }
        self.classes[class.index()].dead_claims = dead;
        found
    }

    fn open_claim(&mut self, pod: u32, class: ClassId, attempt: &Attempt) -> Result<(), Stuck> {
        for template in 0..self.templates.len() {
            if self.limits[template].node_limit_reached()
                || self.classes[class.index()].dead_templates.contains(template)
            {
                continue;
            }
            match self.evaluate_template(attempt, template) {
                Ok(accepted) => {
                    if let Some(most) =
                        self.stop.max_new_claims.filter(|most| self.claims.len() >= *most)
                    {
                        return Err(Stuck::Stopped(Stopped::NewClaims { most }));
                    }
                    self.commit_to_new_claim(pod, class, template, accepted);
                    return self.stop_when_too_dear();
                }
                Err(rejected) if rejected.waits_for_reservation => {
                    return Err(Stuck::WaitsForReservation);
                }
                Err(rejected) if rejected.is_final => {
                    self.classes[class.index()].dead_templates.insert(template);
                }
                Err(_) => {}
            }
        }
        Err(Stuck::Nowhere)
    }

    pub(crate) fn tolerates(&self, class: ClassId, taints: &[Taint]) -> bool {
        taints.is_empty() || tolerates_all(taints, self.classes[class.index()].spec.tolerations())
    }

    pub(crate) fn host_of_claim(&self, claim: usize) -> usize {
        self.existing.nodes.len() + claim
    }

    /// Pools of which nothing could ever be launched are left out, with the reason.
    fn drop_unusable_pools(&mut self) {
        let relax = self.options.min_values == MinValuesPolicy::BestEffort;
        let mut kept = Vec::new();
        for at in 0..self.templates.len() {
            let set = self.templates[at].set;
            let rows = self.templates[at].serving(set, &mut self.algebra).clone();
            let short = self.short_of_values(at, set, &rows);
            if rows.is_empty() || (!short.is_empty() && !relax) {
                let refusal = self.explain_unusable(at, &short);
                self.unusable.push(refusal);
            } else {
                kept.push(at);
            }
        }
        let mut position = 0;
        self.templates.retain(|_| {
            position += 1;
            kept.contains(&(position - 1))
        });
        let templates = &self.templates;
        self.limits = templates.iter().map(|t| Limits::new(&t.pool, &self.lanes)).collect();
    }

    fn charge_limits_for_nodes(&mut self) {
        let by_name: FxHashMap<_, _> = self
            .templates
            .iter()
            .enumerate()
            .map(|(at, template)| (template.pool.name.clone(), at))
            .collect();
        for node in &self.snapshot.nodes {
            let Some(template) = node.pool.as_ref().and_then(|pool| by_name.get(pool)) else {
                continue;
            };
            if node.deleting {
                self.limits[*template].take_node();
            } else {
                self.limits[*template].take(&self.lanes.request(&node.capacity));
            }
        }
    }

    /// Bound pods count where they are, except those that are to be placed anew.
    fn count_bound_pods(&mut self) {
        let snapshot = self.snapshot;
        let moving: FxHashSet<&str> = snapshot.pods.iter().map(|pod| pod.uid.as_str()).collect();
        for at in 0..self.existing.nodes.len() {
            let node = self.existing.nodes[at].node;
            for pod in &node.pods {
                if moving.contains(pod.uid.as_str()) || pod.is_terminal() {
                    continue;
                }
                if node.exists && !pod.deleting {
                    let audience = self.topology.audience(&pod.namespace, &pod.labels);
                    self.topology.bind(audience, at);
                }
            }
        }
        self.count_bound_carriers(&moving);
    }
}

fn all_amounts(snapshot: &Snapshot) -> impl Iterator<Item = &kerf_model::Resources> {
    let pods = snapshot.pods.iter().chain(&snapshot.daemons).map(|pod| &pod.requests);
    let nodes = snapshot.nodes.iter().flat_map(|node| {
        let bound = node.pods.iter().map(|pod| &pod.requests);
        bound.chain([&node.allocatable, &node.capacity])
    });
    let pools = snapshot.pools.iter().flat_map(|pool| {
        let types = pool.instance_types.iter().flat_map(|instance_type| {
            let groups = instance_type.groups().iter().map(|group| &group.allocatable);
            groups.chain([instance_type.capacity()])
        });
        types.chain([&pool.limits])
    });
    pods.chain(nodes).chain(pools)
}
