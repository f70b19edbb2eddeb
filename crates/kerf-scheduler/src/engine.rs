//! One run: each pod of a snapshot goes to the first place that takes it.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use kerf_model::{MinValuesPolicy, Node, Pod, Snapshot, Taint};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::algebra::{Algebra, Key, Value, id};
use crate::bits::Bits;
use crate::claims::{Claims, Ties};
use crate::class::{Class, ClassId, ClassKey};
use crate::daemons::daemons;
use crate::existing::ExistingNodes;
use crate::lanes::{CPU_LANE, LaneTable, MEMORY_LANE};
use crate::limits::Limits;
use crate::options::Options;
use crate::plan::{Plan, Stopped};
use crate::probe::Stop;
use crate::queue::Queue;
use crate::refusal::{PoolRefusal, Refusal};
use crate::reserved::ReservationManager;
use crate::template::Template;
use crate::topology::{GroupId, PodLabelsId, Topology};

mod classes;
mod commit;
mod constraints;
mod explain;
mod finish;
mod groups;
mod guide;
mod leave;
mod search;
mod self_anti_affinity;

use constraints::min_values::short_of_values;
use guide::Guided;

#[derive(Clone, Debug)]
pub(crate) struct Engine<'s> {
    pub(crate) snapshot: &'s Snapshot,
    pub(crate) options: Options,
    pub(crate) lanes: Arc<LaneTable>,
    pub(crate) algebra: Algebra,
    pub(crate) templates: Vec<Template>,
    pub(crate) limits: Vec<Limits>,
    pub(crate) unusable: Vec<PoolRefusal>,
    pub(crate) existing: ExistingNodes<'s>,
    pub(crate) claims: Claims,
    pub(crate) reservations: ReservationManager,
    pub(crate) topology: Topology<'s>,
    pub(crate) classes: Vec<Class>,
    pub(crate) class_ids: FxHashMap<ClassKey, ClassId>,
    /// By class and step what it relaxes to.
    pub(crate) relaxed_ids: FxHashMap<(ClassId, u32), ClassId>,
    /// Where pods went, for groups that are made when pods have already been placed.
    pub(crate) placed: Vec<(ClassId, Place)>,
    pub(crate) soft_taints: bool,
    /// Names of nodes that are being deleted.
    deleting_nodes: Arc<FxHashSet<&'s str>>,
    bound: Arc<Bound>,
    pub(crate) pending: Arc<Pending>,
    self_anti_affinity: Arc<self_anti_affinity::SelfAntiAffinity>,
    /// What [`Engine::wanted_domains`] has found in this run.
    wanted: FxHashMap<GroupId, Arc<[u32]>>,
    /// Counts the runs, so that what was learnt in one is not believed in the next.
    run_number: u64,
    /// Per key the domains that pools could launch nodes in, once per pool.
    pub(crate) launchable: FxHashMap<Key, Arc<[Value]>>,
    pub(crate) stop: Stop,
    probing: bool,
    /// Nodes that are not there in this run, and the pods that they leave behind.
    leaving: Vec<usize>,
    left_behind: Vec<&'s Arc<Pod>>,
    pub(crate) scratch: Scratch,
    /// Machines that were proposed for pods, and the claims that were opened for them.
    guide: Option<Arc<guide::Guide>>,
    proposed_claims: FxHashMap<usize, usize>,
}

/// Bound pods as topology counts them, by node.
#[derive(Debug, Default)]
struct Bound {
    pod_labels: Vec<Vec<PodLabelsId>>,
    inverse: FxHashMap<u32, Vec<GroupId>>,
}

/// The snapshot's own pods, the same in every run.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Of the pods, then of the virtual pods.
    pub(crate) classes: Vec<Result<ClassId, Refusal>>,
    /// Those that have a class, in the order in which they are tried.
    real: Turns,
    /// Their turn comes when every real pod has had its own.
    of_buffers: Turns,
}

/// Pods that are tried together.
#[derive(Debug, Default)]
struct Turns {
    order: Vec<u32>,
    self_anti_affinity: Arc<self_anti_affinity::SelfAntiAffinity>,
}

/// A place that took a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Node(usize),
    Claim(usize),
}

/// Buffers that would otherwise be allocated per candidate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) base: Bits,
    pub(crate) rows: Bits,
}

/// How a pod of a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodOutcome {
    /// Placed, or still in the queue, or not to be placed at all.
    Settled,
    /// Nothing takes it; the last class that was tried.
    Nowhere(ClassId),
    WaitsForReservation,
}

/// Why one try of one class ended without a place.
enum Stuck {
    /// Nothing takes it, and nothing will before so many steps of relaxation were taken.
    Nowhere {
        until: u32,
    },
    WaitsForReservation,
    Stopped(Stopped),
}

const NOWHERE: Stuck = Stuck::Nowhere { until: 0 };

impl<'s> Engine<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot, options: &Options) -> Self {
        let lanes = LaneTable::covering(what_there_is(snapshot));
        let mut algebra = Algebra::new(&snapshot.labels);
        let daemons = daemons(snapshot, &lanes, &mut algebra);
        let mut pools: Vec<_> = snapshot.launching_pools().collect();
        pools.sort_by(|a, b| (b.weight, &b.name).cmp(&(a.weight, &a.name)));
        let templates: Vec<_> =
            pools.iter().map(|pool| Template::new(pool, &lanes, &daemons, &mut algebra)).collect();
        let existing = ExistingNodes::new(snapshot, options, &lanes, &daemons);
        let reservations = ReservationManager::new(&templates);
        let soft = |taint: &Taint| taint.effect == kerf_model::Effect::PreferNoSchedule;
        let deleting_nodes = snapshot.nodes.iter().filter(|node| node.deleting);
        let mut engine = Self {
            snapshot,
            options: options.clone(),
            lanes: Arc::new(lanes),
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
            relaxed_ids: FxHashMap::default(),
            placed: Vec::new(),
            deleting_nodes: Arc::new(deleting_nodes.map(|node| node.name.as_str()).collect()),
            bound: Arc::default(),
            pending: Arc::default(),
            self_anti_affinity: Arc::default(),
            wanted: FxHashMap::default(),
            run_number: 1,
            launchable: FxHashMap::default(),
            stop: Stop::default(),
            probing: false,
            leaving: Vec::new(),
            left_behind: Vec::new(),
            scratch: Scratch::default(),
            guide: None,
            proposed_claims: FxHashMap::default(),
        };
        engine.drop_unusable_pools();
        engine.charge_limits_for_nodes();
        for (limits, template) in engine.limits.iter_mut().zip(&engine.templates) {
            limits.allowed(template);
        }
        engine.count_bound_pods();
        engine.sort_pending_pods();
        engine
    }

    /// The same run with another choice among equal claims. For an engine that has not run yet.
    pub(crate) fn with_ties(&self, ties: Ties) -> Self {
        Self { claims: Claims::new(ties), ..self.clone() }
    }

    /// The same run with machines that are tried first, for an engine that has not run yet. The guide is of one that has: it
    /// knows more sets of requirements, and those that both know have the same numbers.
    pub(crate) fn with_guide(&self, guide: guide::Guide, ran: Self) -> Self {
        Self { guide: Some(Arc::new(guide)), algebra: ran.algebra, ..self.clone() }
    }

    fn sort_pending_pods(&mut self) {
        let snapshot = self.snapshot;
        let pods = snapshot.pods.iter().chain(&snapshot.virtual_pods);
        let classes: Vec<_> = pods.map(|pod| self.judge(pod)).collect();
        let real = self.turns(&classes, 0..snapshot.pods.len());
        let of_buffers = self.turns(&classes, snapshot.pods.len()..classes.len());
        self.pending = Arc::new(Pending { classes, real, of_buffers });
    }

    fn turns(&self, classes: &[Result<ClassId, Refusal>], of: Range<usize>) -> Turns {
        let class = |at: u32| classes[at as usize].as_ref().ok().copied();
        let mut order: Vec<_> =
            (id(of.start)..id(of.end)).filter(|at| class(*at).is_some()).collect();
        order.sort_by_cached_key(|at| self.turn(*at, class(*at)));
        let mut self_anti_affinity = self_anti_affinity::SelfAntiAffinity::default();
        self.add_self_anti_affinity(&mut self_anti_affinity, classes[of].iter());
        Turns { order, self_anti_affinity: Arc::new(self_anti_affinity) }
    }

    /// The pod's class, unless nothing can be done for it.
    pub(crate) fn judge(&mut self, pod: &'s Pod) -> Result<ClassId, Refusal> {
        if pod.claims_devices {
            return Err(Refusal::ClaimsDevices);
        }
        self.lanes.check(&pod.requests)?;
        self.class_of(pod)
    }

    /// The largest pods first, because small ones fill gaps; then the oldest.
    fn turn(&self, at: u32, class: Option<ClassId>) -> impl Ord + use<'s> {
        let size = class.map(|class| {
            let requests = &self.classes[class.index()].spec.base.key.requests;
            (requests[CPU_LANE], requests[MEMORY_LANE])
        });
        let pod = self.pod(at);
        (Reverse(size), pod.created, &pod.uid)
    }

    /// The snapshot's own pods come first, then the virtual ones, then those that leave their nodes.
    pub(crate) fn pod(&self, at: u32) -> &'s Arc<Pod> {
        let (at, real, of_buffers) =
            (at as usize, &self.snapshot.pods, &self.snapshot.virtual_pods);
        let behind_real = || {
            let at = at - real.len();
            of_buffers.get(at).unwrap_or_else(|| self.left_behind[at - of_buffers.len()])
        };
        real.get(at).unwrap_or_else(behind_real)
    }

    /// Whether the pod stands for the room of a buffer.
    pub(crate) fn is_virtual(&self, at: u32) -> bool {
        let (at, real) = (at as usize, self.snapshot.pods.len());
        (real..real + self.snapshot.virtual_pods.len()).contains(&at)
    }

    /// Places the snapshot's own pods and those that were left behind, whose classes these are. Then the virtual pods take
    /// what is left: so no real pod ever waits for a buffer, or gets another place because of it.
    pub(crate) fn run(&mut self, left_behind: &[Result<ClassId, Refusal>]) -> Plan {
        self.begin_self_anti_affinity(left_behind);
        let pending = Arc::clone(&self.pending);
        let own = pending.classes.len();
        let class = |at: u32| {
            let at = at as usize;
            pending.classes.get(at).unwrap_or_else(|| &left_behind[at - own]).as_ref().ok().copied()
        };
        let mut order = pending.real.order.clone();
        order.extend((id(own)..id(own + left_behind.len())).filter(|at| class(*at).is_some()));
        if !left_behind.is_empty() {
            order.sort_by_cached_key(|at| self.turn(*at, class(*at)));
        }
        let mut outcomes = vec![PodOutcome::Settled; own + left_behind.len()];
        let mut placed = self.place_all(order, class, &mut outcomes);
        if placed.is_ok() && !pending.of_buffers.order.is_empty() {
            self.begin_self_anti_affinity_of_buffers();
            placed = self.place_all(pending.of_buffers.order.clone(), class, &mut outcomes);
        }
        match placed {
            Ok(()) => self.finish(&outcomes, left_behind),
            Err(why) => Plan { stopped: Some(why), ..Plan::default() },
        }
    }

    /// Gives each pod its turn, and another as long as others find a place.
    fn place_all(
        &mut self,
        order: Vec<u32>,
        class: impl Fn(u32) -> Option<ClassId>,
        outcomes: &mut [PodOutcome],
    ) -> Result<(), Stopped> {
        let mut queue = Queue::new(order, outcomes.len());
        while let Some(pod) = queue.pop() {
            let Some(class) = class(pod) else { continue };
            outcomes[pod as usize] = match self.place(pod, class) {
                Ok(()) => PodOutcome::Settled,
                Err((Stuck::Stopped(why), _)) => return Err(why),
                Err((Stuck::WaitsForReservation, _)) => {
                    queue.push_back(pod);
                    PodOutcome::WaitsForReservation
                }
                Err((Stuck::Nowhere { .. }, last)) => {
                    queue.push_back(pod);
                    PodOutcome::Nowhere(last)
                }
            };
        }
        Ok(())
    }

    /// Tries the class, then the class with one constraint less, and so on.
    fn place(&mut self, pod: u32, class: ClassId) -> Result<(), (Stuck, ClassId)> {
        // Every placement changes what later pods find, so their number names the state.
        let state = self.placed.len();
        self.begin(class);
        if let Some((failed_in, last)) = self.classes[class.index()].run.failed
            && failed_in == state
        {
            return Err((NOWHERE, last));
        }
        let mut trying = class;
        loop {
            match self.try_class(pod, trying) {
                Ok(()) => return Ok(()),
                Err(Stuck::Nowhere { until }) => {
                    let Some(relaxed) = self.relaxed(trying, until) else {
                        self.classes[class.index()].run.failed = Some((state, trying));
                        return Err((NOWHERE, trying));
                    };
                    trying = relaxed;
                }
                Err(stuck) => return Err((stuck, trying)),
            }
        }
    }

    /// Clears what the class has learnt in an earlier run.
    fn begin(&mut self, class: ClassId) {
        let class = &mut self.classes[class.index()];
        if class.run.number == self.run_number {
            return;
        }
        let barred = class
            .barred_nodes
            .get_or_insert_with(|| self.existing.without_room(&class.spec.base.key.requests));
        class.run.dead_nodes.copy_from(barred);
        class.run.dead_nodes.union_with(&self.existing.gone);
        class.run.dead_claims.clear();
        class.run.dead_templates.clear();
        class.run.failed = None;
        class.run.number = self.run_number;
    }

    fn try_class(&mut self, pod: u32, class: ClassId) -> Result<(), Stuck> {
        self.begin(class);
        let attempt = self.attempt(class);
        if attempt.unsatisfiable_until > 0 {
            return Err(Stuck::Nowhere { until: attempt.unsatisfiable_until });
        }
        if let Guided::Placed = self.place_as_proposed(pod, class, &attempt) {
            return Ok(());
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

    pub(crate) fn host_of_claim(&self, claim: usize) -> usize {
        self.existing.nodes.len() + claim
    }

    pub(crate) fn relaxes_min_values(&self) -> bool {
        self.options.min_values == MinValuesPolicy::BestEffort
    }

    /// Pools of which nothing could ever be launched are left out, with the reason.
    fn drop_unusable_pools(&mut self) {
        let relax = self.relaxes_min_values();
        let mut kept = Vec::new();
        for at in 0..self.templates.len() {
            let set = self.templates[at].set;
            let rows = self.templates[at].serving(set, &mut self.algebra).clone();
            let short = short_of_values(&self.templates[at], set, &rows, &mut self.algebra);
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
        for node in &self.snapshot.nodes {
            let Some(template) = self.template_of(node) else { continue };
            if node.deleting {
                self.limits[template].take_node();
            } else {
                self.limits[template].take(&self.lanes.request(&node.capacity));
            }
        }
    }

    fn template_of(&self, node: &Node) -> Option<usize> {
        let pool = node.pool.as_ref()?;
        self.templates.iter().position(|template| template.pool.name == *pool)
    }

    /// Bound pods count where they are, except those that are to be placed anew.
    fn count_bound_pods(&mut self) {
        let snapshot = self.snapshot;
        let moving: FxHashSet<&str> = snapshot.pods.iter().map(|pod| pod.uid.as_str()).collect();
        let mut by_node = Vec::with_capacity(self.existing.nodes.len());
        for at in 0..self.existing.nodes.len() {
            let node = self.existing.nodes[at].node;
            let counted = node.pods.iter().filter(|pod| {
                let moves = moving.contains(pod.uid.as_str());
                node.exists && !moves && !pod.is_terminal() && !pod.deleting
            });
            let here: Vec<_> =
                counted.map(|pod| self.topology.pod_labels(&pod.namespace, &pod.labels)).collect();
            for pod_labels in &here {
                self.topology.bind(*pod_labels, at);
            }
            by_node.push(here);
        }
        let inverse = self.count_bound_inverse(&moving);
        self.bound = Arc::new(Bound { pod_labels: by_node, inverse });
    }
}

fn what_there_is(snapshot: &Snapshot) -> impl Iterator<Item = &kerf_model::Resources> {
    let nodes = snapshot.nodes.iter().flat_map(|node| [&node.allocatable, &node.capacity]);
    let pools = snapshot.launching_pools().flat_map(|pool| {
        let types = pool.instance_types.iter().flat_map(|instance_type| {
            let groups = instance_type.groups().iter().map(|group| &group.allocatable);
            groups.chain([instance_type.capacity()])
        });
        types.chain([&pool.limits, &pool.launching])
    });
    nodes.chain(pools)
}
