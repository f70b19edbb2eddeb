//! From the state at the end of a run to a plan.

use std::sync::Arc;

use kerf_model::catalogue::satisfies_min_values;
use kerf_model::labels::{INITIALIZED, REGISTERED};
use kerf_model::{MinValuesPolicy, Pod, Price, Resources};

use super::Engine;
use crate::class::ClassId;
use crate::lanes::Lanes;
use crate::plan::{Origin, Placement, Plan, PlannedClaim, PodFailure, Stopped};
use crate::refusal::Refusal;

impl Engine<'_> {
    /// `stuck` names, for pods that found no place, the last class that was tried.
    pub(super) fn finish(
        mut self,
        mut refusals: Vec<Option<Refusal>>,
        stuck: &[Option<ClassId>],
        leaving: usize,
    ) -> Plan {
        let mut explained = rustc_hash::FxHashMap::default();
        for (refusal, class) in refusals.iter_mut().zip(stuck) {
            if let Some(class) = class {
                let explanation = explained.entry(*class).or_insert_with(|| self.explain(*class));
                *refusal = Some(explanation.clone());
            }
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
                    for pod in &self.claims.claims[index].pods {
                        refusals[*pod as usize] = Some(Refusal::TooFewInstanceTypes {
                            pool: claim.pool.name.clone(),
                            source: source.clone(),
                        });
                    }
                }
            }
        }
        if let Some(below) = self.stop.price_below {
            let at_least = claims.iter().map(|claim| claim.price).sum();
            if at_least >= below && !claims.is_empty() {
                return Plan {
                    stopped: Some(Stopped::Price { at_least, below }),
                    ..Plan::default()
                };
            }
        }
        for node in self.existing.nodes.iter().filter(|node| !node.node.initialized) {
            for pod in node.placed.iter().filter(|pod| **pod as usize >= leaving) {
                let node = node.node.name.clone();
                refusals[*pod as usize] = Some(Refusal::UninitializedNode { node });
            }
        }
        let pods = &self.snapshot.pods;
        let placements = self
            .existing
            .nodes
            .iter()
            .filter(|node| !node.placed.is_empty())
            .map(|node| Placement { node: Arc::clone(node.node), pods: named(&node.placed, pods) })
            .collect();
        let failures = refusals
            .into_iter()
            .enumerate()
            .filter_map(|(at, refusal)| {
                let origin = match &pods[at] {
                    _ if at >= leaving => Origin::Leaving,
                    pod if self.is_on_deleting_node(pod) => Origin::Deleting,
                    _ => Origin::Pending,
                };
                Some(PodFailure { pod: Arc::clone(&pods[at]), origin, refusal: refusal? })
            })
            .collect();
        Plan { claims, placements, failures, unusable_pools: self.unusable, stopped: None }
    }

    /// The lowest price of a claim as it stands, before it is pinned to its reservations: it may yet lose those.
    pub(super) fn least_price(&mut self, index: usize) -> Price {
        let claim = &self.claims.claims[index];
        let template = &mut self.templates[claim.template];
        let by_price = template.by_price(claim.set, &mut self.algebra);
        let alive = template.types_of(&claim.rows);
        let cheapest = by_price.iter().find(|(_, at)| alive.contains(*at as usize));
        cheapest.map_or(Price::MAX, |(price, _)| *price)
    }

    fn planned(&mut self, index: usize) -> PlannedClaim {
        let set = self.final_set(index);
        let claim = &self.claims.claims[index];
        let template = &mut self.templates[claim.template];
        let by_price = template.by_price(set, &mut self.algebra);
        let alive = template.types_of(&claim.rows);
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
        PlannedClaim {
            pods: named(&claim.pods, &self.snapshot.pods),
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
        let claim = &self.claims.claims[index];
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
}

fn named(indices: &[u32], pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    indices.iter().map(|at| Arc::clone(&pods[*at as usize])).collect()
}
