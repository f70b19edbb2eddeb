//! From a claim to an instance.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{NodeClaim, NodeClass, NotReady, annotations, labels};
use kerf_aws_api::labels as aws_labels;
use kerf_aws_model::{
    errors::{LaunchReason, Meaning},
    fleet::{Fleet, FleetAnswer, FleetFailure, FleetInstance, Mark},
    instance::Instance,
    launch::{LaunchPlan, Wish, plan},
    launch_template::{Cluster, Launch, LaunchTemplate},
    subnets::Chosen,
    unavailable::{Placement, Source},
};
use kerf_aws_wire::ec2::CreateFleetRequest;
use kerf_model::{InstanceType, MinValuesPolicy, Offering, Requirements, Resources};
use kerf_provider::{InstanceTypes, Launched, ProviderError, UnavailableOffering};
use kube::ResourceExt;
use tracing::{info, warn};

use crate::{
    cloud::AwsCloud,
    errors::{launch_failed, named},
    instances::OfClaim,
    metrics::LaunchFailure,
    offers::{Market, OfClass},
};

/// How often one claim asks for other offerings before it is given up. Each answer teaches what not to ask for.
const TRIES: u32 = 4;
/// An instance of a try whose answer was lost may be unknown to other calls for so long.
const MAY_BE_UNKNOWN: SignedDuration = SignedDuration::from_secs(30);
/// EC2's word for a token that it has seen with another request.
const TOKEN_OF_ANOTHER_REQUEST: &str = "IdempotentParameterMismatch";

/// What claims have tried, by UID.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<HashMap<String, Attempt>>);

#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    /// The number of the next try. It stays while an answer is missing: EC2 then answers with what it did.
    next: u32,
    /// Since when it is known that somebody tried otherwise under that number.
    taken_since: Option<Timestamp>,
}

impl Attempts {
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn number(&self, uid: &str) -> u32 {
        self.lock().entry(uid.to_owned()).or_default().next
    }

    fn answered(&self, uid: &str) {
        self.lock().entry(uid.to_owned()).or_default().next += 1;
    }

    /// An operator before this one tried something else under the number. Whether that can be passed over by now.
    fn is_taken(&self, uid: &str, now: Timestamp) -> bool {
        let mut all = self.lock();
        let attempt = all.entry(uid.to_owned()).or_default();
        let since = *attempt.taken_since.get_or_insert(now);
        let passed = now.duration_since(since) >= MAY_BE_UNKNOWN;
        if passed {
            *attempt = Attempt { next: attempt.next + 1, taken_since: None };
        }
        passed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Attempt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one claim asks for.
struct Order<'a> {
    claim: &'a NodeClaim,
    uid: String,
    requirements: Requirements,
    requests: Resources,
}

impl<'a> Order<'a> {
    fn read(claim: &'a NodeClaim, cloud: &AwsCloud) -> Result<Self, ProviderError> {
        let unreadable = |what: &str, error: &dyn std::fmt::Display| {
            ProviderError::Other(format!("{what} of NodeClaim {}: {error}", claim.name_any()))
        };
        let mut requirements = Requirements::default();
        for written in &claim.spec.requirements {
            let operator = written.operator.as_str().parse();
            let operator = operator.map_err(|error| unreadable("the requirements", &error))?;
            let mut one = cloud.labels().requirement(&written.key, operator, &written.values);
            one.set_min_values(written.min_values);
            requirements.add(one);
        }
        let requests = Resources::from_api(&claim.spec.resources.requests);
        let requests = requests.map_err(|error| unreadable("the requests", &error))?;
        let uid = claim.uid().unwrap_or_default();
        Ok(Self { claim, uid, requirements, requests })
    }

    fn wish<'b>(&'b self, cloud: &'b AwsCloud) -> Wish<'b> {
        let relaxed = self.claim.annotations().get(annotations::MIN_VALUES_RELAXED);
        let min_values = match relaxed.map(String::as_str) {
            Some("true") => MinValuesPolicy::BestEffort,
            _ => MinValuesPolicy::Strict,
        };
        Wish {
            requirements: &self.requirements,
            requests: &self.requests,
            labels: cloud.labels(),
            min_values,
        }
    }

    /// Whether EC2 has to follow other prices than its own.
    fn is_price_overlaid(&self) -> bool {
        self.claim.annotations().contains_key(annotations::PRICE_OVERLAY_APPLIED)
    }

    /// The partition, where the claim leaves one only.
    fn partition(&self) -> Option<u32> {
        let partition = self.requirements.get(aws_labels::PLACEMENT_GROUP_PARTITION);
        partition.and_then(|one| one.only_value()?.parse().ok())
    }

    fn placement<'b>(&self, of_class: &'b OfClass) -> Placement<'b> {
        let Some(group) = &of_class.placement else { return Placement::Anywhere };
        match self.partition() {
            Some(partition) => Placement::Partition(&group.id, partition),
            None => Placement::Group(&group.id),
        }
    }
}

/// What there is now, at the prices and with the capacity that overlays gave it when the launch began. Since then offerings may have run
/// out.
fn overlaid_by(now: &InstanceTypes, overlaid: &InstanceTypes) -> InstanceTypes {
    let of_type = |one: &Arc<InstanceType>| {
        let same = |other: &&Arc<InstanceType>| {
            other.name() == one.name() && other.offerings().len() == one.offerings().len()
        };
        let Some(other) = overlaid.iter().find(same) else { return Arc::clone(one) };
        if !other.is_price_overlaid() && !other.is_capacity_overlaid() {
            return Arc::clone(one);
        }
        let offerings = one.offerings().iter().zip(other.offerings()).map(|(now, then)| {
            // Where the prices moved meanwhile, the plan's count.
            Offering { price: then.price, base_price: then.base_price, ..now.clone() }
        });
        let (requirements, overhead) = (one.requirements().clone(), one.overhead().clone());
        let capacity = other.capacity().clone();
        let changed =
            InstanceType::new(one.name(), requirements, offerings.collect(), capacity, overhead);
        let changed = changed.with_overlaid_capacity(other.is_capacity_overlaid());
        Arc::new(changed.with_volume_limits(one.volume_limits().clone()))
    };
    now.iter().map(of_type).collect()
}

/// A fleet that was asked for, and what is to be put right when its answer is there.
struct Asked<'a> {
    plan: LaunchPlan,
    templates: Vec<LaunchTemplate>,
    subnets: Chosen,
    request: CreateFleetRequest,
    placement: Placement<'a>,
    at: Timestamp,
}

impl AwsCloud {
    pub(crate) async fn launch(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        overlaid: Option<&InstanceTypes>,
    ) -> Result<Launched, ProviderError> {
        usable(class)?;
        let order = Order::read(claim, self)?;
        // The launch may have been made by a leader before this one, or its answer may have been lost.
        let OfClaim { living, ended } = self.instances().find(&order.uid).await?;
        if let Some(instance) = living {
            self.attempts().forget(&order.uid);
            let mut of_class = self.offers().of(class)?;
            if let Some(overlaid) = overlaid {
                of_class.types = overlaid_by(&of_class.types, overlaid);
            }
            return Ok(self.describe(&instance, Some(&of_class), order.partition()));
        }
        let mut unavailable = Vec::new();
        for _ in 0..TRIES {
            let mut of_class = self.offers().of(class)?;
            if let Some(overlaid) = overlaid {
                of_class.types = overlaid_by(&of_class.types, overlaid);
            }
            let asked = match self.prepare(&order, &of_class).await {
                Err(ProviderError::InsufficientCapacity { message, .. }) => {
                    self.attempts().forget(&order.uid);
                    return Err(ProviderError::InsufficientCapacity { unavailable, message });
                }
                asked => asked?,
            };
            let answer = self.ask(&order, &asked).await?;
            self.attempts().answered(&order.uid);
            if answer.instance.as_ref().is_some_and(|one| ended.contains(&one.id)) {
                // EC2 says what it did when it was asked by this token before. That instance is over.
                self.give_back(&asked.subnets, &BTreeSet::new());
                continue;
            }
            self.learn(&asked, &answer);
            self.count_refusals(&asked, &answer, &of_class);
            match answer.outcome() {
                Ok(fleet) => {
                    let instance = self.launched(&asked, fleet);
                    self.attempts().forget(&order.uid);
                    return Ok(self.describe(&instance, Some(&of_class), order.partition()));
                }
                Err(FleetFailure::NoCapacity) => unavailable.extend(short(&asked, &answer)),
                Err(FleetFailure::Failed { reason, message }) => {
                    return Err(named(reason, &message));
                }
            }
        }
        self.attempts().forget(&order.uid);
        let message = format!("EC2 had none of what was asked for, {TRIES} times");
        Err(ProviderError::InsufficientCapacity { unavailable, message })
    }

    /// Chooses what to ask for and makes the launch templates that it takes.
    async fn prepare<'a>(
        &self,
        order: &Order<'_>,
        of_class: &'a OfClass,
    ) -> Result<Asked<'a>, ProviderError> {
        let plan = plan(&of_class.types, order.wish(self))
            .map_err(|error| ProviderError::insufficient_capacity(error.to_string()))?;
        if let Some(types) = plan.inflexible {
            let claim = order.claim.name_any();
            warn!(claim, types, "launching on demand, few instance types may be had as spot");
        }
        let placement = order.placement(of_class);
        let cluster = self.cluster();
        let launch = self.launch_of(order, of_class, &plan, placement, &cluster);
        let templates = launch.templates(&plan.types, self.labels());
        let templates =
            templates.map_err(|error| named(LaunchReason::LaunchFailed, &error.to_string()))?;
        let now = self.clock().now();
        let made = self.templates().ensure(self.aws(), &templates, now).await;
        made.map_err(|error| launch_failed(&error))?;
        let subnets = of_class.class.status.as_ref().map(|status| status.subnets.as_slice());
        let subnets = self.offers().note(|market, now| {
            let capacity_type = plan.terms.capacity_type();
            let subnets = subnets.unwrap_or_default();
            market.addresses.choose(subnets, &plan.types, capacity_type, self.labels(), now)
        });
        let by_zone: BTreeMap<_, _> =
            subnets.subnets.iter().map(|(zone, one)| (zone.clone(), one.id.clone())).collect();
        let fleet = Fleet {
            launch,
            templates: &templates,
            subnets: &by_zone,
            attempt: self.attempts().number(&order.uid),
            prioritized: order.is_price_overlaid(),
        };
        match fleet.request(self.labels()) {
            Ok(request) => Ok(Asked { plan, templates, subnets, request, placement, at: now }),
            Err(none) => {
                self.give_back(&subnets, &BTreeSet::new());
                Err(ProviderError::insufficient_capacity(none.to_string()))
            }
        }
    }

    fn launch_of<'a>(
        &self,
        order: &'a Order<'_>,
        of_class: &'a OfClass,
        plan: &LaunchPlan,
        placement: Placement<'a>,
        cluster: &'a Cluster,
    ) -> Launch<'a> {
        Launch {
            class: &of_class.class,
            claim: order.claim,
            requirements: &order.requirements,
            cluster,
            capacity_type: plan.terms.capacity_type(),
            tenancy: plan.tenancy,
            placement,
            reserved_capacity: self.offers().settings().reserved_capacity,
        }
    }

    /// Asks EC2, a second time if a launch template was gone.
    async fn ask(
        &self,
        order: &Order<'_>,
        asked: &Asked<'_>,
    ) -> Result<FleetAnswer, ProviderError> {
        let mut answer = self.aws().create_fleet(&asked.request).await;
        if let Err(error) = &answer
            && error.meaning() == Meaning::LaunchTemplateGone
        {
            info!(claim = order.claim.name_any(), "a launch template is gone and is made anew");
            self.templates().forget(&asked.templates);
            let made = self.templates().ensure(self.aws(), &asked.templates, asked.at).await;
            made.map_err(|error| launch_failed(&error))?;
            answer = self.aws().create_fleet(&asked.request).await;
        }
        match answer {
            Ok(response) => Ok(FleetAnswer::read(response)),
            Err(error) => {
                self.give_back(&asked.subnets, &BTreeSet::new());
                if error.code() == Some(TOKEN_OF_ANOTHER_REQUEST) {
                    self.attempts().is_taken(&order.uid, self.clock().now());
                }
                Err(launch_failed(&error))
            }
        }
    }

    /// What the answer says of the next launches.
    fn learn(&self, asked: &Asked<'_>, answer: &FleetAnswer) {
        let used: BTreeSet<&str> =
            answer.instance.iter().filter_map(|one| one.subnet.as_deref()).collect();
        self.give_back(&asked.subnets, &used);
        let capacity_type = asked.plan.terms.capacity_type();
        let marks = answer.marks(capacity_type, &asked.templates, self.labels());
        if marks.is_empty() && answer.instance.is_some() {
            return;
        }
        self.offers().change(|market, now| {
            let known = marks.iter().filter(|mark| market.mark(mark, asked, now)).count();
            // EC2 launched nothing and did not say of what it has none: then it has none of all that.
            if answer.instance.is_none() && known == 0 {
                for (instance_type, zone) in overrides(&asked.request) {
                    market.mark_offering(&instance_type, &zone, asked, now);
                }
            }
        });
    }

    fn count_refusals(&self, asked: &Asked<'_>, answer: &FleetAnswer, of_class: &OfClass) {
        for short in &answer.shortfalls {
            self.metrics().launch_failed(&LaunchFailure {
                zone: short.zone.clone(),
                zone_id: of_class.zone_id(&short.zone).unwrap_or_default().to_owned(),
                capacity_type: asked.plan.terms.capacity_type().to_owned(),
                reason: short.code.clone(),
            });
        }
    }

    fn launched(&self, asked: &Asked<'_>, fleet: &FleetInstance) -> Instance {
        let capacity_type = asked.plan.terms.capacity_type();
        let of_type = |template: &&LaunchTemplate| {
            template.types.iter().any(|one| one.name() == fleet.instance_type)
        };
        let template = asked.templates.iter().find(of_type);
        let reservation = template.and_then(|template| template.reservation.clone());
        let efa_interfaces = template.map_or(0, LaunchTemplate::efa_interfaces);
        let of_instance = asked.request.tag_specifications.iter();
        let of_instance =
            of_instance.filter(|one| one.resource_type.as_deref() == Some("instance"));
        let tags = of_instance.flat_map(|one| &one.tags);
        let tags = tags.filter_map(|tag| Some((tag.key.clone()?, tag.value.clone()?))).collect();
        self.offers().note(|market, _| {
            if let Some(facts) = market.facts(&fleet.instance_type) {
                let source =
                    Source { capacity_type, zone: &fleet.zone, placement: asked.placement };
                market.unavailable.launched(&facts, source);
            }
            if let Some(reservation) = &reservation {
                market.reservations.launched(&reservation.id, asked.at);
            }
        });
        let instance = Instance::launched(
            fleet,
            capacity_type,
            asked.plan.tenancy,
            reservation,
            efa_interfaces,
            tags,
            self.clock().now(),
        );
        self.instances().launched(instance.clone());
        instance
    }

    fn give_back(&self, subnets: &Chosen, used: &BTreeSet<&str>) {
        self.offers().note(|market, _| market.addresses.give_back(subnets, used));
    }
}

impl Market {
    /// Whether the mark names something that is known.
    fn mark(&mut self, mark: &Mark, asked: &Asked<'_>, now: Timestamp) -> bool {
        match mark {
            Mark::Offering { instance_type, zone } => {
                return self.mark_offering(instance_type, zone, asked, now);
            }
            Mark::ZoneOfGroup { zone } => {
                for one in &asked.plan.types {
                    self.mark_offering(one.name(), zone, asked, now);
                }
            }
            Mark::Subnet { id } => {
                self.unavailable.mark_subnet(id, now);
                self.addresses.exhausted(id, now);
            }
            Mark::Spot => self.unavailable.mark_capacity_type(labels::CAPACITY_TYPE_SPOT, now),
            Mark::Reservation { id } => self.reservations.exhausted(id, now),
        }
        true
    }

    fn mark_offering(
        &mut self,
        instance_type: &str,
        zone: &str,
        asked: &Asked<'_>,
        now: Timestamp,
    ) -> bool {
        let Some(facts) = self.facts(instance_type).filter(|_| !zone.is_empty()) else {
            return false;
        };
        let capacity_type = asked.plan.terms.capacity_type();
        let source = Source { capacity_type, zone, placement: asked.placement };
        self.unavailable.mark(&facts, source, now);
        true
    }
}

/// Types and zones of a request.
fn overrides(request: &CreateFleetRequest) -> Vec<(String, String)> {
    let all = request.launch_template_configs.iter().flat_map(|config| &config.overrides);
    all.filter_map(|one| Some((one.instance_type.clone()?, one.availability_zone.clone()?)))
        .collect()
}

fn short(asked: &Asked<'_>, answer: &FleetAnswer) -> Vec<UnavailableOffering> {
    let capacity_type = asked.plan.terms.capacity_type();
    let offering = |one: &kerf_aws_model::fleet::Shortfall| UnavailableOffering {
        instance_type: one.instance_type.clone(),
        zone: one.zone.clone(),
        capacity_type: capacity_type.to_owned(),
        code: one.code.clone(),
    };
    answer.shortfalls.iter().map(offering).collect()
}

/// Whether anything may be launched with the class.
fn usable(class: &NodeClass) -> Result<(), ProviderError> {
    let reference = &class.reference;
    let told = |why: &NotReady| format!("{} {}: {why}", reference.kind, reference.name);
    class.readiness().map_err(|why| match &why {
        NotReady::Terminating => ProviderError::insufficient_capacity(told(&why)),
        NotReady::Unknown => named(LaunchReason::NodeClassReadinessUnknown, &told(&why)),
        NotReady::Refused { .. } | NotReady::NotReconciled { .. } => {
            ProviderError::NodeClassNotReady(told(&why))
        }
    })
}
