//! From the state at the end of a run to a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use kerf_model::catalogue::satisfies_min_values;
use kerf_model::labels::{INITIALIZED, REGISTERED};
use kerf_model::{MinValuesPolicy, Pod, Price, Resources};

use rustc_hash::FxHashMap;

use super::{Engine, PodOutcome};
use crate::algebra::id;
use crate::class::ClassId;
use crate::lanes::Lanes;
use crate::plan::{BufferRoom, Origin, Placement, Plan, PlannedClaim, PodFailure, Stopped};
use crate::refusal::Refusal;

impl Engine<'_> {
    pub(super) fn finish(
        &mut self,
        outcomes: &[PodOutcome],
        left_behind: &[Result<ClassId, Refusal>],
    ) -> Plan {
        let pending = Arc::clone(&self.pending);
        let mut refusals: BTreeMap<u32, Refusal> = BTreeMap::new();
        let mut explained: FxHashMap<ClassId, Refusal> = FxHashMap::default();
        for (at, judged) in pending.classes.iter().chain(left_behind).enumerate() {
            let refusal = match (judged, outcomes[at]) {
                (Err(refusal), _) => refusal.clone(),
                (_, PodOutcome::Settled) => continue,
                (_, PodOutcome::WaitsForReservation) => Refusal::WaitsForReservation,
                (_, PodOutcome::Nowhere(_)) if self.is_aside(at) => Refusal::NotAsked,
                (_, PodOutcome::Nowhere(class)) => {
                    explained.entry(class).or_insert_with(|| self.explain(class)).clone()
                }
            };
            refusals.insert(id(at), refusal);
        }
        let mut claims = Vec::with_capacity(self.claims.len());
        for index in 0..self.claims.len() {
            let claim = self.planned(index);
            let flexible = match self.options.min_values {
                MinValuesPolicy::BestEffort => Ok(0),
                MinValuesPolicy::Strict => {
                    satisfies_min_values(&claim.instance_types, &claim.requirements)
                }
            };
            match flexible {
                Ok(_) => claims.push(claim),
                Err(source) => {
                    for pod in &self.claims.all[index].pods {
                        let pool = claim.pool.name.clone();
                        let source = source.clone();
                        refusals.insert(*pod, Refusal::TooFewInstanceTypes { pool, source });
                    }
                }
            }
        }
        if let Some(below) = self.stop.price_below.filter(|_| !claims.is_empty()) {
            let at_least = claims.iter().map(|claim| claim.price).sum();
            if at_least >= below {
                return Plan {
                    stopped: Some(Stopped::Price { at_least, below }),
                    ..Plan::default()
                };
            }
        }
        let mut placements = Vec::new();
        let mut buffers = BufferRoom::default();
        for changed in self.existing.changed() {
            let node = self.existing.nodes[changed.node].node;
            if !node.initialized {
                for pod in changed.placed.iter().filter(|pod| self.is_about_leaving(**pod)) {
                    let node = node.name.clone();
                    refusals.insert(*pod, Refusal::UninitializedNode { node });
                }
            }
            let (pods, of_buffers) = self.named(&changed.placed);
            for (pods, placements) in
                [(pods, &mut placements), (of_buffers, &mut buffers.placements)]
            {
                if !pods.is_empty() {
                    placements.push(Placement { node: Arc::clone(node), pods });
                }
            }
        }
        let mut failures = Vec::new();
        for (at, refusal) in refusals {
            let origin = self.origin(at as usize);
            let to = if origin == Origin::Buffer { &mut buffers.failures } else { &mut failures };
            to.push(PodFailure { pod: Arc::clone(self.pod(at)), origin, refusal });
        }
        let unusable_pools = self.unusable.clone();
        Plan { claims, placements, failures, buffers, unusable_pools, stopped: None }
    }

    /// Whether a probe asks what becomes of the pod when nodes leave. A virtual pod may have had its room on one of them.
    fn is_about_leaving(&self, at: u32) -> bool {
        self.probing && matches!(self.origin(at as usize), Origin::Leaving | Origin::Buffer)
    }

    fn origin(&self, at: usize) -> Origin {
        match self.snapshot.pods.get(at) {
            None if self.is_virtual(id(at)) => Origin::Buffer,
            None => Origin::Leaving,
            Some(pod) if self.is_on_deleting_node(pod) => Origin::Deleting,
            Some(_) => Origin::Pending,
        }
    }

    /// Whether the pod is none of those that a probe is about. Explaining takes longer than placing, and a cluster
    /// may have many pods that wait for something else.
    fn is_aside(&self, at: usize) -> bool {
        self.probing && self.origin(at) == Origin::Pending
    }

    /// The lowest price of a claim as it stands, before it is pinned to its reservations: it may yet lose those.
    pub(super) fn least_price(&mut self, index: usize) -> Price {
        let claim = &self.claims.all[index];
        let template = &mut self.templates[claim.template];
        let by_price = template.by_price(claim.set, &mut self.algebra);
        let alive = template.types_of(&claim.rows);
        let cheapest = by_price.iter().find(|(_, at)| alive.contains(*at as usize));
        cheapest.map_or(Price::MAX, |(price, _)| *price)
    }

    fn planned(&mut self, index: usize) -> PlannedClaim {
        let (set, rows) = self.final_choice(index);
        let claim = &self.claims.all[index];
        let template = &mut self.templates[claim.template];
        let by_price = template.by_price(set, &mut self.algebra);
        let alive = template.types_of(&rows);
        let pool = Arc::clone(&template.pool);
        let types = by_price.iter().filter(|(_, at)| alive.contains(*at as usize));
        let instance_types: Vec<_> = types
            .clone()
            .take(self.options.max_instance_types)
            .map(|(_, at)| Arc::clone(&pool.instance_types[*at as usize]))
            .collect();
        let price = types.map(|(price, _)| *price).next().unwrap_or(Price::MAX);
        let mut requirements = self.algebra.requirements(set);
        for simulated in [REGISTERED, INITIALIZED] {
            requirements.remove(simulated);
        }
        let (pods, virtual_pods) = self.named(&claim.pods);
        PlannedClaim {
            pods,
            virtual_pods,
            instance_types,
            requirements,
            requests: self.requests_with_daemons(index),
            price,
            min_values_relaxed: claim.min_values_relaxed,
            pool,
        }
    }

    /// Daemons differ between the types that are left; what runs on all of them is certain.
    fn requests_with_daemons(&self, index: usize) -> Resources {
        let claim = &self.claims.all[index];
        let groups = self.templates[claim.template].daemon_groups.iter();
        let least: Option<Lanes> = groups
            .filter(|group| group.rows.meets(&claim.rows))
            .map(|group| group.overhead.clone())
            .reduce(|mut least, overhead| {
                for (own, other) in least.iter_mut().zip(&overhead) {
                    *own = (*own).min(*other);
                }
                least
            });
        let mut total = claim.requests.clone();
        if let Some(least) = least {
            crate::lanes::add(&mut total, &least);
        }
        self.lanes.resources(&total)
    }

    /// The pods, and apart from them those of buffers.
    fn named(&self, pods: &[u32]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
        let (of_buffers, pods): (Vec<_>, Vec<_>) =
            pods.iter().partition::<Vec<u32>, _>(|at| self.is_virtual(**at));
        let named = |pods: Vec<u32>| pods.into_iter().map(|at| Arc::clone(self.pod(at))).collect();
        (named(pods), named(of_buffers))
    }
}
