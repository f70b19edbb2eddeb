//! Why no pool takes a pod. Runs once per class that is left over, at the end, when nothing moves any more;
//! so it may take its time and speak in words.

use kerf_model::snapshot::Idle;
use kerf_model::{Incompatible, Requirements, TooFewValues, Undefined};

use super::Engine;
use crate::algebra::{Key, SetId, Wish};
use crate::attempt::{Attempt, Pick};
use crate::bits::Bits;
use crate::class::ClassId;
use crate::lanes::Lanes;
use crate::refusal::{FilterCause, FilterRefusal, PoolRefusal, Reason, Refusal, TopologyRefusal};
use crate::topology::{GroupId, Place};

impl Engine<'_> {
    pub(super) fn explain(&mut self, class: ClassId) -> Refusal {
        let mut attempt = self.attempt(class);
        self.sort_for_reading(&mut attempt);
        let mut refusals: Vec<_> = (0..self.templates.len())
            .map(|template| PoolRefusal {
                pool: self.templates[template].pool.name.clone(),
                reason: self.explain_template(&attempt, template),
            })
            .collect();
        refusals.extend_from_slice(&self.unusable);
        let mut idle: Vec<_> = self.snapshot.idle_pools.iter().collect();
        idle.sort_by(|a, b| a.pool.cmp(&b.pool));
        // Static pools are none of the pod's business, unless there are no others.
        let (fixed, idle): (Vec<_>, Vec<_>) =
            idle.into_iter().partition(|idle| idle.why == Idle::Static);
        refusals.extend(idle.into_iter().map(|idle| PoolRefusal {
            pool: idle.pool.clone(),
            reason: Reason::Idle(idle.why.clone()),
        }));
        match (refusals.is_empty(), fixed.is_empty()) {
            (false, _) => Refusal::Pools(refusals),
            (true, true) => Refusal::NoPools,
            (true, false) => Refusal::OnlyStaticPools {
                pools: fixed.into_iter().map(|idle| idle.pool.clone()).collect(),
            },
        }
    }

    /// Groups that keep a pod away come in the order in which they were made, which is that of the input; what is
    /// said about them must not depend on it.
    fn sort_for_reading(&self, attempt: &mut Attempt) {
        let rank = |group: GroupId| {
            let identity = &self.topology.groups[group.index()].identity;
            let key = match identity.place {
                Place::Host => kerf_model::labels::HOSTNAME,
                Place::Label(key) => self.algebra.key_name(key),
            };
            (key.to_owned(), identity.kind, identity.selector.clone(), identity.namespaces.clone())
        };
        attempt.hosts.sort_by_cached_key(|check| rank(check.group));
        let chooses = |pick: &Pick| matches!(pick, Pick::First(_));
        attempt.domains.sort_by_cached_key(|check| (chooses(&check.pick), rank(check.group)));
    }

    /// Walks the checks in the order in which a pod meets them and names the first that fails. Limits come last: they are
    /// the cause where nothing else is, and raising one must help.
    fn explain_template(&mut self, attempt: &Attempt, template: usize) -> Reason {
        let spec = &attempt.spec;
        let pool = &self.templates[template].pool;
        if let Some(taint) = spec.first_untolerated(&pool.taints) {
            return Reason::Taint(taint.clone());
        }
        let own = self.algebra.requirements(self.templates[template].set);
        let wish = self.spoken(&spec.wish);
        if let Err(incompatible) = self.compatible(&own, &wish) {
            return Reason::Requirements(incompatible);
        }
        let wished = own.merged(&wish);
        let mut narrowed = wished.clone();
        let mut volume_conflict = None;
        for alternative in &spec.base.alternatives {
            let alternative = self.spoken(alternative);
            match self.compatible(&wished, &alternative) {
                Ok(()) => {
                    narrowed = wished.merged(&alternative);
                    volume_conflict = None;
                    break;
                }
                Err(incompatible) => volume_conflict = Some(incompatible),
            }
        }
        if let Some(incompatible) = volume_conflict {
            return Reason::Volumes(incompatible);
        }
        if let Some(check) = attempt.hosts.iter().find(|check| !check.rule.accepts(0)) {
            return Reason::Topology(self.topology_refusal(check.group, attempt, &narrowed));
        }
        let mut set = self.algebra.set(&narrowed);
        for check in &attempt.domains {
            let next = match &check.pick {
                Pick::Empty { listing, .. } => {
                    listing.and_then(|listing| self.algebra.merge(set, listing))
                }
                Pick::Any { listing, .. } => self.algebra.merge(set, *listing),
                Pick::First(domains) => {
                    domains.iter().find_map(|(_, pin)| self.algebra.merge(set, *pin))
                }
            };
            let Some(next) = next else {
                let narrowed = self.algebra.requirements(set);
                return Reason::Topology(self.topology_refusal(check.group, attempt, &narrowed));
            };
            set = next;
        }
        self.explain_filter(attempt, template, set)
    }

    fn explain_filter(&mut self, attempt: &Attempt, template: usize, set: SetId) -> Reason {
        let mut rows = self.templates[template].usable.clone();
        let serving = self.templates[template].serving(set, &mut self.algebra);
        rows.intersect_with(serving);
        let requests = attempt.spec.base.key.requests.clone();
        self.templates[template].keep_fitting(&mut rows, &requests);
        self.templates[template].keep_free_ports(&mut rows, attempt.spec.ports());
        if rows.is_empty() {
            let cause = self.filter_cause(attempt, template, set);
            return self.filter_refusal(template, set, &requests, cause);
        }
        let short = self.short_of_values(template, set, &rows);
        if !short.is_empty() && !self.relaxes_min_values() {
            let cause = FilterCause::MinValues(self.too_few(&short));
            return self.filter_refusal(template, set, &requests, cause);
        }
        self.explain_limits(template, set, &rows).unwrap_or(Reason::Reserved)
    }

    /// Whether limits alone keep these rows from the pod, and which.
    fn explain_limits(&mut self, template: usize, set: SetId, rows: &Bits) -> Option<Reason> {
        if let Some(usage) = self.limits[template].nodes_reached() {
            return Some(Reason::NodeLimit(usage));
        }
        let mut within = rows.clone();
        within.intersect_with(self.limits[template].allowed(&self.templates[template]));
        let enough =
            self.relaxes_min_values() || self.short_of_values(template, set, &within).is_empty();
        if !within.is_empty() && enough {
            return None;
        }
        let limits = &self.limits[template];
        Some(Reason::Limits(limits.reached(&self.templates[template], rows, &self.lanes)))
    }

    pub(super) fn explain_unusable(
        &mut self,
        template: usize,
        short: &[(Key, u32)],
    ) -> PoolRefusal {
        let set = self.templates[template].set;
        let requirements = self.algebra.requirements(set);
        let mut types = self.templates[template].pool.instance_types.iter();
        let cause = if !short.is_empty() {
            FilterCause::MinValues(self.too_few(short))
        } else if types.any(|it| it.requirements().intersects(&requirements).is_ok()) {
            FilterCause::NoOffering
        } else {
            FilterCause::NoRequirements
        };
        PoolRefusal {
            pool: self.templates[template].pool.name.clone(),
            reason: self.filter_refusal(template, set, &self.lanes.zero(), cause),
        }
    }

    fn filter_refusal(
        &self,
        template: usize,
        set: SetId,
        requests: &Lanes,
        cause: FilterCause,
    ) -> Reason {
        let overheads =
            || self.templates[template].daemon_groups.iter().map(|group| &group.overhead);
        let extreme = |pick: fn(i64, i64) -> i64| {
            let combined = overheads().cloned().reduce(|mut a, b| {
                a.iter_mut().zip(&b).for_each(|(a, b)| *a = pick(*a, *b));
                a
            });
            self.lanes.resources(&combined.unwrap_or_default())
        };
        Reason::InstanceTypes(Box::new(FilterRefusal {
            requirements: self.algebra.requirements(set),
            requests: self.lanes.resources(requests),
            daemons: (extreme(i64::min), extreme(i64::max)),
            cause,
        }))
    }

    /// Holds every type against each of the three checks by itself.
    fn filter_cause(&mut self, attempt: &Attempt, template: usize, set: SetId) -> FilterCause {
        let requirements = self.algebra.requirements(set);
        let labels = self.algebra.labels().clone();
        let requests = &attempt.spec.base.key.requests;
        let mut fitting = self.templates[template].usable.clone();
        self.templates[template].keep_fitting(&mut fitting, requests);
        self.templates[template].keep_free_ports(&mut fitting, attempt.spec.ports());
        let fitting = self.templates[template].types_of(&fitting);
        let usable = self.templates[template].types_of(&self.templates[template].usable);
        let pool = &self.templates[template].pool;
        let (mut any, mut pairs) = ([false; 3], [false; 3]);
        for at in usable.iter() {
            let instance_type = &pool.instance_types[at];
            let compatible = instance_type.requirements().intersects(&requirements).is_ok();
            let offered = instance_type.is_offered(&requirements, &labels);
            let fits = fitting.contains(at);
            any = [any[0] || compatible, any[1] || fits, any[2] || offered];
            pairs = [
                pairs[0] || (compatible && fits && !offered),
                pairs[1] || (fits && offered && !compatible),
                pairs[2] || (compatible && offered && !fits),
            ];
        }
        let cpu = self.lanes.resources(requests).amount(kerf_model::resources::CPU);
        match any {
            [false, false, false] => FilterCause::Nothing,
            [false, false, true] => FilterCause::NoRequirementsNorRoom,
            [false, true, false] => FilterCause::NoRequirementsNorOffering,
            [true, false, false] => FilterCause::NoRoomNorOffering,
            [false, true, true] => FilterCause::NoRequirements,
            [true, false, true] => {
                FilterCause::NoRoom { cpu_is_absurd: cpu >= FilterCause::ABSURD_CPU }
            }
            [true, true, false] => FilterCause::NoOffering,
            [true, true, true] => match pairs {
                [true, _, _] => FilterCause::RequirementsAndRoomButNoOffering,
                [_, true, _] => FilterCause::RoomAndOfferingButNoRequirements,
                [_, _, true] => FilterCause::RequirementsAndOfferingButNoRoom,
                _ => FilterCause::NotAllAtOnce,
            },
        }
    }

    fn topology_refusal(
        &self,
        group: GroupId,
        attempt: &Attempt,
        node: &Requirements,
    ) -> TopologyRefusal {
        let group = &self.topology.groups[group.index()];
        let (key, counts) = match group.identity.place {
            Place::Host => {
                let host = |at: usize| match self.existing.nodes.get(at) {
                    Some(node) => node.node.hostname().to_owned(),
                    None => format!("new node {}", at - self.existing.nodes.len() + 1),
                };
                let counts = group.domains().map(|(at, count)| (host(at), count)).collect();
                (kerf_model::labels::HOSTNAME, counts)
            }
            Place::Label(key) => {
                let name = |value| self.algebra.value_name(key, value).to_owned();
                let mut counts: Vec<_> =
                    group.values().map(|(value, count)| (name(value), count)).collect();
                counts.sort();
                (self.algebra.key_name(key), counts)
            }
        };
        let mut counts: Vec<(String, u32)> = counts;
        counts.truncate(TopologyRefusal::SHOWN);
        let strict = self.spoken(&attempt.spec.strict);
        TopologyRefusal {
            constraint: group.identity.kind,
            counts,
            pod_domains: strict.get(key).cloned(),
            node_domains: node.get(key).cloned(),
            key: key.to_owned(),
        }
    }

    fn too_few(&self, short: &[(Key, u32)]) -> TooFewValues {
        let named = |(key, left): &(Key, u32)| (self.algebra.key_name(*key).to_owned(), *left);
        TooFewValues(short.iter().map(named).collect())
    }

    fn compatible(&self, own: &Requirements, incoming: &Requirements) -> Result<(), Incompatible> {
        own.compatible(incoming, Undefined::WellKnown(self.algebra.labels()))
    }

    fn spoken(&self, wish: &Wish) -> Requirements {
        let mut requirements = self.algebra.requirements(wish.set);
        requirements.extend(wish.hostname.as_deref().cloned());
        requirements
    }
}
