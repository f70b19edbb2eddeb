//! The stand-in in process: the calls, and what a test can do to the cloud behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use kerf_aws_client::{Aws, AwsError, Failure};
use kerf_aws_model::catalogue::Catalogue;
use kerf_aws_model::messages::Notice;
use kerf_aws_wire::{Operation, Protocol, arc_zonal_shift, ec2, eks, iam, pricing, sqs, ssm};
use kerf_model::Price;
use kerf_runtime::Clock;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::cloud::{Answer, Cloud, Due};
use crate::faults::{Fault, FaultRates};
use crate::images::Release;
use crate::instances::{End, Impairment, Instance, Life};
use crate::pools::{Depth, PoolSelector};
use crate::refused::Refused;
use crate::requests::Count;
use crate::reservations::{PlacementGroup, Reservation, ReservationKind};
use crate::settings::Settings;

/// An account of AWS that exists in this process alone. Clones are the same account.
#[derive(Clone, Debug)]
pub struct FakeAws {
    shared: Arc<Shared>,
    gate: Option<Arc<dyn Gate>>,
    policy: Option<Arc<Value>>,
}

/// Stands between a caller and the services.
#[async_trait]
pub trait Gate: Debug + Send + Sync {
    /// Asked before a call reaches its service, and again before its answer reaches the caller. A process that ends there never
    /// gets past it.
    async fn pass(&self, operation: &'static str);
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    cloud: Mutex<Cloud>,
    version: watch::Sender<u64>,
}

/// A capacity block takes its instances back so long before it ends.
const BLOCK_ENDS_EARLY: jiff::SignedDuration = jiff::SignedDuration::from_mins(30);

impl FakeAws {
    pub fn new(settings: Settings, catalogue: Arc<Catalogue>, clock: Clock) -> Self {
        let cloud = Mutex::new(Cloud::new(settings, catalogue, clock.now()));
        let shared = Arc::new(Shared { clock, cloud, version: watch::Sender::new(0) });
        Self { shared, gate: None, policy: None }
    }

    /// The same account for a caller behind a gate.
    pub fn behind(&self, gate: Arc<dyn Gate>) -> Self {
        Self { gate: Some(gate), ..self.clone() }
    }

    /// The same account for a caller who has this IAM policy and no other.
    #[must_use]
    pub fn limited_to(&self, policy: Value) -> Self {
        Self { policy: Some(Arc::new(policy)), ..self.clone() }
    }

    /// The rights that calls needed so far, by the name of the statement and the action: where no other statement of the policy
    /// allowed the same, a policy without it would have refused the call.
    pub fn needed_rights(&self) -> BTreeSet<(String, String)> {
        self.with(|cloud| cloud.requests.needed_rights())
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Looks at the cloud or changes it, after all has happened that was due.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Cloud) -> T) -> T {
        let mut cloud = self.shared.cloud.lock().unwrap_or_else(PoisonError::into_inner);
        cloud.advance(self.shared.clock.now());
        let result = act(&mut cloud);
        let version = cloud.version();
        drop(cloud);
        self.shared.version.send_if_modified(|known| {
            let changed = *known != version;
            *known = version;
            changed
        });
        result
    }

    async fn call<O: Answer>(&self, request: &O) -> Result<O::Response, AwsError> {
        let Some(gate) = &self.gate else { return self.answer(request).await };
        gate.pass(O::NAME).await;
        let answer = self.answer(request).await;
        gate.pass(O::NAME).await;
        answer
    }

    async fn answer<O: Answer>(&self, request: &O) -> Result<O::Response, AwsError> {
        let deadline = Instant::now() + request.patience();
        let mut versions = self.shared.version.subscribe();
        let delay = self.with(|cloud| {
            cloud.requests.note(O::NAME, request, cloud.now);
            answer_time::<O>(cloud)
        });
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let (fault, mut result) =
            self.with(|cloud| cloud.take_call(request, self.policy.as_deref()));
        while let Ok(response) = &result
            && O::is_empty(response)
            && Instant::now() < deadline
        {
            let next = self.with(|cloud| {
                cloud.next_due().into_iter().chain(cloud.queue.next_visible(cloud.now)).min()
            });
            let wake = next.map_or(deadline, |next| deadline.min(self.instant_of(next)));
            // Either something changed, or it is time to look again.
            let _ = timeout_at(wake, versions.changed()).await;
            result = self.with(|cloud| request.answer(cloud));
        }
        if matches!(fault, Some(Fault::NoAnswer | Fault::LostAnswer)) {
            let after = self.with(|cloud| {
                cloud.requests.refused(O::NAME, "NoAnswer");
                cloud.settings.delays.no_answer
            });
            if !crate::server::hang_up() {
                sleep(after).await;
            }
            return Err(AwsError::new::<O>(Failure::TimedOut { after }, 1));
        }
        result.map_err(|refused| {
            self.with(|cloud| cloud.requests.refused(O::NAME, &refused.code));
            refused.error::<O>()
        })
    }

    fn instant_of(&self, time: Timestamp) -> Instant {
        let wait = Duration::try_from(time.duration_since(self.shared.clock.now()));
        // At least a moment: a clock that is behind its timers must not make this a busy loop.
        Instant::now() + wait.unwrap_or(Duration::ZERO).max(Duration::from_millis(1))
    }

    /// Grows with everything that someone may wait for.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.version.subscribe()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.with(|cloud| cloud.now)
    }

    /// When something happens by itself next.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.with(|cloud| cloud.next_due())
    }

    pub(crate) fn until(&self, time: Timestamp) -> Duration {
        self.instant_of(time).saturating_duration_since(Instant::now())
    }

    /// How often each call was made.
    pub fn calls(&self) -> BTreeMap<&'static str, Count> {
        self.with(|cloud| cloud.requests.counts())
    }

    /// How often one call was made.
    pub fn count(&self, operation: &str) -> u32 {
        self.calls().get(operation).map_or(0, |count| count.made)
    }

    /// The requests of one kind with their time, the oldest first.
    pub fn requests<O: Operation + Clone + 'static>(&self) -> Vec<(Timestamp, O)> {
        self.with(|cloud| cloud.requests.of::<O>())
    }

    pub fn forget_requests(&self) {
        self.with(|cloud| cloud.requests.forget());
    }

    /// All instances as they are, also those that no call knows of yet.
    pub fn instances(&self) -> Vec<ec2::Instance> {
        self.with(|cloud| cloud.instances.values().map(|one| one.describe(cloud)).collect())
    }

    /// Ids of instances that are pending or running.
    pub fn alive(&self) -> Vec<String> {
        self.with(|cloud| {
            let alive = cloud.instances.values().filter(|one| one.state.is_alive());
            alive.map(|one| one.id.clone()).collect()
        })
    }

    pub fn lives(&self) -> Vec<Life> {
        self.with(|cloud| cloud.instances.values().map(Instance::life).collect())
    }

    pub fn launch_template_count(&self) -> usize {
        self.with(|cloud| cloud.templates.by_name.len())
    }

    pub fn instance_profile_count(&self) -> usize {
        self.with(|cloud| cloud.profiles.by_name.len())
    }

    /// The zones that have a subnet, sorted.
    pub fn zones(&self) -> Vec<String> {
        let mut zones: Vec<_> = self.with(|cloud| {
            cloud.network.subnets.values().map(|subnet| subnet.zone.clone()).collect()
        });
        zones.sort_unstable();
        zones.dedup();
        zones
    }

    /// Ids of the subnets in a zone.
    pub fn subnets_of(&self, zone: &str) -> Vec<String> {
        self.with(|cloud| {
            let subnets = cloud.network.subnets.values().filter(|subnet| subnet.zone == zone);
            subnets.map(|subnet| subnet.id.clone()).collect()
        })
    }

    /// How much pools have from now on.
    pub fn set_pools(&self, selector: PoolSelector, depth: Depth) {
        self.with(|cloud| cloud.pools.set(selector, depth));
    }

    pub fn set_spot_price(&self, instance_type: &str, zone: &str, price: Price) {
        let key = (instance_type.to_owned(), zone.to_owned());
        self.with(|cloud| cloud.spot_prices.set.insert(key, price));
    }

    /// Adds a subnet, and gives its id.
    pub fn add_subnet(
        &self,
        zone: &str,
        name: &str,
        free_addresses: u32,
        tags: BTreeMap<String, String>,
    ) -> String {
        self.with(|cloud| {
            let settings = cloud.settings.clone();
            cloud.network.add_subnet(&settings, zone, name, free_addresses, tags)
        })
    }

    /// Adds a security group, and gives its id.
    pub fn add_security_group(&self, name: &str, tags: BTreeMap<String, String>) -> String {
        self.with(|cloud| {
            let settings = cloud.settings.clone();
            cloud.network.add_group(&settings, name, tags)
        })
    }

    pub fn set_free_addresses(&self, subnet: &str, free: u32) {
        self.with(|cloud| {
            if let Some(subnet) = cloud.network.subnets.get_mut(subnet) {
                subnet.free_addresses = free;
            }
        });
    }

    pub fn add_role(&self, name: &str) {
        self.with(|cloud| cloud.profiles.roles.insert(name.to_owned()));
    }

    pub fn add_reservation(&self, reservation: Reservation) {
        self.with(|cloud| {
            let id = reservation.id.clone();
            match (reservation.kind, reservation.end) {
                (_, None) => {}
                (ReservationKind::CapacityBlock, Some(end)) => {
                    cloud.schedule_at(end - BLOCK_ENDS_EARLY, Due::BlockEnds(id.clone()));
                }
                (_, Some(end)) => cloud.schedule_at(end, Due::ReservationEnds(id.clone())),
            }
            cloud.reservations.insert(id, reservation);
        });
    }

    pub fn add_placement_group(&self, group: PlacementGroup) {
        self.with(|cloud| cloud.placement_groups.push(group));
    }

    /// Publishes images; parameters for the newest release name them from now on.
    pub fn publish(&self, release: Release<'_>) {
        self.with(|cloud| {
            let (settings, now) = (cloud.settings.clone(), cloud.now);
            cloud.images.publish(&settings, release, now);
        });
    }

    /// Adds an image of the account's own, and gives its id. The architecture is `x86_64` or `arm64`.
    pub fn add_image(
        &self,
        name: &str,
        architecture: &'static str,
        tags: BTreeMap<String, String>,
    ) -> String {
        self.with(|cloud| {
            let (settings, now) = (cloud.settings.clone(), cloud.now);
            cloud.images.add_own(&settings, name, architecture, tags, now)
        })
    }

    /// From this time on an image is deprecated.
    pub fn deprecate_image(&self, id: &str, at: Timestamp) {
        self.with(|cloud| {
            if let Some(image) = cloud.images.by_id.get_mut(id) {
                image.deprecated = at;
            }
        });
    }

    /// Shifts traffic away from a zone, by its id, or back to it.
    pub fn shift_zone(&self, zone_id: &str, away: bool) {
        self.with(|cloud| {
            if away {
                cloud.shifted_zones.insert(zone_id.to_owned());
            } else {
                cloud.shifted_zones.remove(zone_id);
            }
        });
    }

    /// What the role may not do, as IAM writes it: `ec2:CreateFleet`
    pub fn deny(&self, action: &str) {
        self.with(|cloud| cloud.faults.denied.insert(action.to_owned()));
    }

    pub fn allow(&self, action: &str) {
        self.with(|cloud| cloud.faults.denied.remove(action));
    }

    /// The next so many calls of an operation go wrong. Several of these follow one another.
    pub fn fail_next(&self, operation: &str, times: u32, fault: Fault) {
        self.with(|cloud| cloud.faults.fail_next(operation, times, fault));
    }

    pub fn set_fault_rates(&self, rates: FaultRates) {
        self.with(|cloud| cloud.faults.rates = rates);
    }

    /// Warns that a spot instance is taken, and takes it two minutes later.
    pub fn interrupt_spot(&self, id: &str) {
        self.with(|cloud| cloud.warn_spot(id));
    }

    /// Warns that the owner of an interruptible reservation takes it back, and ends the instance two minutes later.
    pub fn interrupt_reservation(&self, id: &str) {
        let notice = Notice::CapacityReservationInterruption { instance: id.to_owned() };
        self.with(|cloud| {
            let ahead = cloud.settings.delays.spot_warning;
            cloud.warn(id, notice, ahead, End::ReservationTaken);
        });
    }

    /// Puts a message on the queue as it is, whatever it says.
    pub fn send_message(&self, body: &str) {
        self.with(|cloud| cloud.send(body.to_owned()));
    }

    pub fn recommend_rebalance(&self, id: &str) {
        let notice = Notice::RebalanceRecommendation { instance: id.to_owned() };
        self.with(|cloud| cloud.notify(notice));
    }

    /// AWS Health announces maintenance of instances.
    pub fn schedule_change(&self, ids: &[String]) {
        let notice = Notice::ScheduledChange { instances: ids.to_vec() };
        self.with(|cloud| cloud.notify(notice));
    }

    /// EC2 lists an event of an instance for the next day, such as `instance-retirement`. The description of one that is over
    /// begins with `[Completed]`.
    pub fn schedule_event(&self, id: &str, code: &str, description: &str) {
        self.with(|cloud| {
            let event = ec2::InstanceStatusEvent {
                code: Some(code.to_owned()),
                description: Some(description.to_owned()),
                not_before: Some(cloud.now + jiff::SignedDuration::from_hours(24)),
                ..ec2::InstanceStatusEvent::default()
            };
            if let Some(instance) = cloud.instances.get_mut(id) {
                instance.scheduled.push(event);
            }
        });
    }

    /// Ends an instance without a call.
    pub fn fail_instance(&self, id: &str) {
        self.with(|cloud| cloud.end(id, End::Failed));
    }

    /// Makes a check of an instance fail, or all pass.
    pub fn impair(&self, id: &str, impairment: Option<Impairment>) {
        self.with(|cloud| {
            let now = cloud.now;
            if let Some(instance) = cloud.instances.get_mut(id) {
                instance.impaired = impairment.map(|impairment| (impairment, now));
            }
        });
    }
}

/// How long a service takes for an answer.
fn answer_time<O: Operation>(cloud: &Cloud) -> Duration {
    let delays = &cloud.settings.delays;
    let reads = ["Describe", "Get", "List", "Receive"];
    match O::NAME {
        "CreateFleet" => delays.fleet,
        name if reads.iter().any(|read| name.starts_with(read)) => delays.read,
        _ => delays.write,
    }
}

impl Cloud {
    /// One call: whether it is allowed and not one too many, what goes wrong with it, and what it does.
    fn take_call<O: Answer>(
        &mut self,
        request: &O,
        policy: Option<&Value>,
    ) -> (Option<Fault>, Result<O::Response, Refused>) {
        if self.settings.throttle
            && let Err(refused) = self.faults.throttle(O::SERVICE, O::NAME)
        {
            return (None, Err(refused));
        }
        let fault = self.faults.draw(O::NAME, self.settings.seed);
        match &fault {
            Some(Fault::Refuse(refused)) => return (fault.clone(), Err(refused.clone())),
            Some(Fault::NoAnswer) => return (fault, Ok(O::Response::default())),
            Some(Fault::LostAnswer) | None => {}
        }
        let allowed = self.faults.check_policy(O::SERVICE, O::NAME);
        let allowed =
            allowed.and_then(|()| policy.map_or(Ok(()), |policy| self.authorize(request, policy)));
        let result = allowed.and_then(|()| {
            // A request with a known token is not looked at again: its template may be gone by now.
            if !self.is_repeated(request) {
                request.check(self)?;
            }
            if request.is_dry_run() && matches!(O::SERVICE.protocol, Protocol::Ec2 { .. }) {
                return Err(Refused::dry_run());
            }
            request.answer(self)
        });
        (fault, result)
    }

    fn is_repeated<O: Answer>(&self, request: &O) -> bool {
        let request: &dyn std::any::Any = request;
        let fleet = request.downcast_ref::<ec2::CreateFleetRequest>();
        let token = fleet.and_then(|fleet| fleet.client_token.as_ref());
        token.is_some_and(|token| self.fleets.contains_key(token))
    }
}

macro_rules! implement {
    ($($method:ident: $request:ty,)*) => {
        #[async_trait]
        impl Aws for FakeAws {
            $(async fn $method(
                &self,
                request: &$request,
            ) -> Result<<$request as Operation>::Response, AwsError> {
                self.call(request).await
            })*
        }
    };
}

implement! {
    create_fleet: ec2::CreateFleetRequest,
    create_launch_template: ec2::CreateLaunchTemplateRequest,
    delete_launch_template: ec2::DeleteLaunchTemplateRequest,
    describe_launch_templates: ec2::DescribeLaunchTemplatesRequest,
    run_instances: ec2::RunInstancesRequest,
    create_tags: ec2::CreateTagsRequest,
    terminate_instances: ec2::TerminateInstancesRequest,
    describe_instances: ec2::DescribeInstancesRequest,
    describe_instance_status: ec2::DescribeInstanceStatusRequest,
    get_console_output: ec2::GetConsoleOutputRequest,
    describe_instance_types: ec2::DescribeInstanceTypesRequest,
    describe_instance_type_offerings: ec2::DescribeInstanceTypeOfferingsRequest,
    describe_subnets: ec2::DescribeSubnetsRequest,
    describe_security_groups: ec2::DescribeSecurityGroupsRequest,
    describe_images: ec2::DescribeImagesRequest,
    describe_availability_zones: ec2::DescribeAvailabilityZonesRequest,
    describe_spot_price_history: ec2::DescribeSpotPriceHistoryRequest,
    describe_capacity_reservations: ec2::DescribeCapacityReservationsRequest,
    describe_placement_groups: ec2::DescribePlacementGroupsRequest,
    get_instance_profile: iam::GetInstanceProfileRequest,
    create_instance_profile: iam::CreateInstanceProfileRequest,
    delete_instance_profile: iam::DeleteInstanceProfileRequest,
    list_instance_profiles: iam::ListInstanceProfilesRequest,
    tag_instance_profile: iam::TagInstanceProfileRequest,
    add_role_to_instance_profile: iam::AddRoleToInstanceProfileRequest,
    remove_role_from_instance_profile: iam::RemoveRoleFromInstanceProfileRequest,
    get_parameter: ssm::GetParameterRequest,
    get_products: pricing::GetProductsRequest,
    get_queue_url: sqs::GetQueueUrlRequest,
    receive_message: sqs::ReceiveMessageRequest,
    delete_message: sqs::DeleteMessageRequest,
    describe_cluster: eks::DescribeClusterRequest,
    get_managed_resource: arc_zonal_shift::GetManagedResourceRequest,
}
