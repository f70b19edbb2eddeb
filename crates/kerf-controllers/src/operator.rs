//! All controllers together.

use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{
        Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate,
        ReplicationController, Service,
    },
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass, VolumeAttachment},
};
use kerf_api::{CapacityBuffer, NodeClaim, NodeClass, NodeOverlay, NodePool};
use kerf_cluster::{
    Kind, Ownership,
    owners::{CreatesPods, Owner},
};
use kerf_model::repair::BadPolicies;
use kerf_provider::{CloudProvider, NodeClassKind, Registry};
use kerf_runtime::{
    Clock, Fence, Jitter, Metrics, Queue,
    events::{Notice, Recorder, Severity},
};
use kube::{Api, Client, api::DynamicObject};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    buffer::{Buffers, Rooms},
    claim::{
        conditions::ClaimConditions, consistency::Consistency, creation::Unsettled,
        expiration::Expiration, garbage_collection, hydration::Hydration, lifecycle::Lifecycle,
        reboot::Rebooting, writes::Turns,
    },
    context::Context,
    controller::Controllers,
    definitions::Definitions,
    disruption::{Commands, Disruption, Execution},
    index::{
        Index,
        follow::{Follower, Report},
        sight::Sight,
        watch::Source,
    },
    metrics::{
        ControllerMetrics,
        provider::GuardedProvider,
        state::{Prices, State},
    },
    node::{
        repair::Repair,
        termination::{Termination, eviction::Evictions},
    },
    overlay::Overlays,
    pod::{
        deletion_cost::{self, DeletionCosts, Writes},
        last_event::PodEvents,
    },
    pool::{
        registration_health::RegistrationHealth, static_capacity::StaticCapacity, status::Pools,
    },
    provisioning::{self, Batcher, Promises},
    settings::Settings,
    transitions::Transitions,
    window::Window,
};

pub use crate::index::follow::{Freshness, Timing};

/// The name under which events are published; Karpenter's, because dashboards and alerts look for it.
const EVENT_SOURCE: &str = "karpenter";

/// An operator that has not started yet.
pub struct Operator {
    /// Its writes need the right that `fence` gives.
    pub client: Client,
    pub clock: Clock,
    /// Says whether the cluster and the cloud may be changed now.
    pub fence: Fence,
    pub settings: Settings,
    pub provider: Arc<dyn CloudProvider>,
    pub metrics: Metrics,
    /// Becomes true when the cluster is known.
    pub ready: watch::Sender<bool>,
    /// Tells how old that knowledge is.
    pub freshness: Freshness,
    /// Shows what it knows and does to whoever wants to look.
    pub window: Window,
    pub timing: Timing,
    /// Where the jitter of retries comes from.
    pub seed: u64,
}

/// How long what is under way may take to end after the operator was asked to stop. Everything may be cut off at any point
/// and is taken up again; over a connection that hangs, nothing would ever end.
const GRACE: Duration = Duration::from_secs(5);

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("a part of the operator ended unexpectedly: {0}")]
    PartEnded(String),
    #[error(transparent)]
    RepairPolicies(#[from] BadPolicies),
}

/// Runs until `stop`. The watches run from the start, the controllers from the moment `elected` is over, so that an
/// operator that waits for the lease knows the cluster when it gets it.
///
/// The provider starts before all else: its controllers are part of the operator, and a cloud that is away has none.
pub async fn run(
    mut operator: Operator,
    elected: impl Future<Output = ()> + Send,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    operator.provider = Arc::new(GuardedProvider::register(
        &operator.metrics,
        operator.provider,
        operator.fence.clone(),
    ));
    let repair = operator.settings.repair_rules(&operator.provider.facts().repair_policies)?;
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = started(&*operator.provider) => {}
    }
    let metrics = ControllerMetrics::register(&operator.metrics);
    let (recorder, publisher) =
        Recorder::new(operator.client.clone(), operator.clock.clone(), EVENT_SOURCE, stop.clone());
    let (mut controllers, Queues { unsettled, buffers }) = controllers(&operator, &metrics);
    let class_labels =
        operator.provider.facts().node_classes.iter().map(NodeClassKind::label).collect();
    let transitions = Transitions::register(
        &operator.metrics,
        operator.clock.clone(),
        recorder.clone(),
        class_labels,
    );
    // Not before: that a condition changed is no decision.
    let recorder = operator.window.attach(recorder);
    if operator.settings.observability {
        let transitions = transitions.clone();
        controllers.on_change(move |change, _| transitions.notice(change));
    }
    let classes = operator.provider.facts().node_classes.iter();
    let ownership = Ownership::of_kinds(classes.map(|one| (&*one.group, &*one.kind)));
    let context = Arc::new(Context {
        definitions: Definitions::new(operator.client.clone(), &*operator.provider),
        client: operator.client,
        clock: operator.clock,
        fence: operator.fence,
        index: Index::new(
            controllers.take_triggers(),
            &operator.settings,
            repair,
            ownership,
            report(recorder.clone()),
        ),
        sight: Sight::new(operator.freshness.clone(), operator.timing),
        settings: operator.settings,
        provider: operator.provider,
        recorder,
        metrics,
        prices: Prices::default(),
        promises: Promises::default(),
        rooms: Rooms::new(buffers),
        unsettled,
        turns: Turns::default(),
        window: operator.window.clone(),
    });
    operator.window.open(&context);
    if context.settings.observability {
        let state = State(Arc::downgrade(&context));
        operator.metrics.register(|registry| registry.register_collector(|_| state));
    }
    let mut parts = Parts { tasks: JoinSet::new(), stop: stop.clone() };
    parts.start("events", publisher);
    let following =
        Following { timing: operator.timing, freshness: operator.freshness, seed: operator.seed };
    start_watches(&mut parts, &context, &following);

    parts.until(stop.clone(), context.index.listed()).await?;
    // First ready, then the line: a reader of the line may probe at once.
    operator.ready.send_replace(true);
    info!("caches are synced");
    parts.until(stop.clone(), elected).await?;
    if !stop.is_cancelled() {
        if let Err(error) = context.provider.lead(&*context).await {
            // What it leaves behind is found by the controllers, later.
            warn!(%error, "the provider cannot resume the work of the last leader");
        }
        info!("starting controllers");
        // What is there already is no transition.
        context.index.lead();
        transitions.lead();
        for (name, start) in controllers.into_tasks() {
            parts.start(name, start(Arc::clone(&context), stop.clone()));
        }
    }
    parts.until(stop.clone(), stop.cancelled()).await?;
    parts.join().await;
    Ok(())
}

/// Queues that others than their own controllers add to.
struct Queues {
    /// Claims that may or may not have been created.
    unsettled: Queue<String>,
    /// Buffers, by namespace and name.
    buffers: Queue<String>,
}

/// Every controller there is.
fn controllers(operator: &Operator, metrics: &ControllerMetrics) -> (Controllers, Queues) {
    let mut controllers = Controllers::default();
    controllers.on_change({
        let (times, clock) = (metrics.pods.clone(), operator.clock.clone());
        move |change, _| times.notice(change, clock.now())
    });
    let health = RegistrationHealth::default();
    let pools = controllers.add(Pools { health: health.clone() });
    controllers.add(Lifecycle::new(health, pools));
    let unsettled = controllers.add(Unsettled);
    controllers.add(Hydration);
    controllers.add(PodEvents::new(operator.clock.clone()));
    controllers.add(ClaimConditions::default());
    controllers.add(Expiration);
    controllers.add(Consistency);
    let policies = &operator.provider.facts().repair_policies;
    if operator.settings.gates.node_repair
        && operator.settings.repair.legacy
        && !policies.is_empty()
    {
        controllers.add(Repair::by(policies));
    }
    if operator.settings.gates.node_overlay {
        controllers.add(Overlays);
    }
    if operator.settings.gates.static_capacity {
        controllers.add(StaticCapacity::new(operator.clock.clone()));
    }
    controllers.add_task(garbage_collection::CONTROLLER, garbage_collection::run);
    let evictions = Evictions::default();
    controllers.add(Termination { evictions: evictions.clone() });
    controllers.add(Rebooting { evictions: evictions.clone() });
    controllers.add_task("eviction-queue", |context, stop| evictions.run(context, stop));
    let buffers = if operator.settings.gates.capacity_buffer {
        controllers.add(Buffers)
    } else {
        Queue::new()
    };
    let batcher = Batcher::default();
    controllers.on_change({
        let batcher = batcher.clone();
        move |change, cluster| provisioning::notice(&batcher, change, cluster)
    });
    let commands = Commands::default();
    operator.window.follow(commands.clone());
    let started = controllers.add(Execution { commands: commands.clone() });
    let writes = Writes::default();
    let wishes = writes.wishes();
    let queue = controllers.add(writes);
    let costs = DeletionCosts::new(wishes, queue, commands.clone());
    controllers.add_task(deletion_cost::CONTROLLER, |context, stop| costs.run(context, stop));
    let disruption = Disruption { commands, started, batcher: batcher.clone() };
    if let Some(changes) = operator.provider.changes() {
        let batcher = batcher.clone();
        controllers.add_task("provider.changes", |context, stop| {
            look_again(context, batcher, changes, stop)
        });
    }
    controllers.add_task("disruption", |context, stop| disruption.run(context, stop));
    controllers.add_task("provisioner", |context, stop| provisioning::run(context, batcher, stop));
    let mut registry = Registry::default();
    Arc::clone(&operator.provider).controllers(&mut registry);
    controllers.add_provider(registry);
    (controllers, Queues { unsettled, buffers })
}

/// Instance types that change are no change of the cluster, and may be what a pod waits for or what makes a node too dear.
async fn look_again(
    context: Arc<Context>,
    batcher: Batcher,
    mut changes: watch::Receiver<u64>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            result = changes.changed() => if result.is_err() {
                // There will be no more.
                return stop.cancelled().await;
            },
        }
        context.index.look_again();
        batcher.trigger("instance types".to_owned());
    }
}

/// The tasks of the operator. One that ends early ends the others with it: half an operator is worse
/// than none, which is restarted.
struct Parts {
    tasks: JoinSet<&'static str>,
    stop: CancellationToken,
}

impl Parts {
    fn start(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            part.await;
            name
        });
    }

    /// Waits for `event` or for `stop`, and meanwhile for a part that fails.
    async fn until(
        &mut self,
        stop: CancellationToken,
        event: impl Future<Output = ()>,
    ) -> Result<(), OperatorError> {
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            Some(ended) = self.tasks.join_next() => {
                self.stop.cancel();
                self.join().await;
                Err(OperatorError::PartEnded(match ended {
                    Ok(name) => name.to_owned(),
                    Err(panic) => panic.to_string(),
                }))
            }
            () = event => Ok(()),
        }
    }

    async fn join(&mut self) {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, ended).await.is_err() {
            warn!(parts = self.tasks.len(), "stopping tasks that have not ended within {GRACE:?}");
            self.tasks.shutdown().await;
        }
    }
}

/// Names an object that cannot be read: once in the log, and for its owner by an event.
fn report(recorder: Recorder) -> Report {
    Box::new(move |unreadable, about| {
        warn!(
            kind = unreadable.kind,
            namespace = unreadable.namespace,
            name = unreadable.name,
            field = unreadable.field,
            reason = unreadable.reason,
            "cannot read an object; Kerf leaves it and what depends on it alone until the field is changed"
        );
        let Some(about) = about else { return };
        let message = format!(
            "Field {} cannot be read: {}; Kerf leaves this object alone until it is changed",
            unreadable.field, unreadable.reason
        );
        recorder.record(Notice {
            same_if: vec![unreadable.kind.clone(), unreadable.key(), unreadable.field.clone()],
            about,
            severity: Severity::Warning,
            reason: "Unreadable".into(),
            message,
            repeat_after: Duration::from_hours(1),
            sparingly: true,
        });
    })
}

/// How the watches are followed.
struct Following {
    timing: Timing,
    freshness: Freshness,
    seed: u64,
}

impl Following {
    /// Each kind has its own sequence of waiting times.
    fn of(&self, resource: &str) -> (Timing, Freshness, Jitter) {
        let seed =
            resource.bytes().fold(self.seed, |seed, byte| seed.rotate_left(7) ^ u64::from(byte));
        (self.timing, self.freshness.clone(), Jitter::seeded(seed))
    }
}

fn start_watches(parts: &mut Parts, context: &Arc<Context>, following: &Following) {
    watch_kind::<NodePool>(parts, context, following, "watch of NodePools");
    watch_kind::<NodeClaim>(parts, context, following, "watch of NodeClaims");
    watch_kind::<Node>(parts, context, following, "watch of Nodes");
    watch_kind::<Pod>(parts, context, following, "watch of Pods");
    watch_kind::<DaemonSet>(parts, context, following, "watch of DaemonSets");
    watch_kind::<PodDisruptionBudget>(parts, context, following, "watch of PodDisruptionBudgets");
    watch_kind::<Namespace>(parts, context, following, "watch of Namespaces");
    watch_kind::<PersistentVolume>(parts, context, following, "watch of PersistentVolumes");
    watch_kind::<PersistentVolumeClaim>(
        parts,
        context,
        following,
        "watch of PersistentVolumeClaims",
    );
    watch_kind::<StorageClass>(parts, context, following, "watch of StorageClasses");
    watch_kind::<CSINode>(parts, context, following, "watch of CSINodes");
    watch_kind::<VolumeAttachment>(parts, context, following, "watch of VolumeAttachments");
    let (spreads_by_default, keeps_buffers) = {
        let cluster = context.index.read();
        (cluster.spreads_by_default(), cluster.keeps_buffers())
    };
    // What pods belong to.
    if spreads_by_default {
        watch_kind::<Service>(parts, context, following, "watch of Services");
        watch_kind::<ReplicationController>(
            parts,
            context,
            following,
            "watch of ReplicationControllers",
        );
    }
    if spreads_by_default || keeps_buffers {
        watch_kind::<ReplicaSet>(parts, context, following, "watch of ReplicaSets");
        watch_kind::<StatefulSet>(parts, context, following, "watch of StatefulSets");
    }
    if context.settings.batching.by_owner {
        if !spreads_by_default && !keeps_buffers {
            watch_owners::<ReplicaSet>(parts, context, following, "watch of ReplicaSets");
            watch_owners::<StatefulSet>(parts, context, following, "watch of StatefulSets");
        }
        watch_owners::<Job>(parts, context, following, "watch of Jobs");
    }
    if context.settings.gates.node_overlay {
        watch_if_served::<NodeOverlay>(parts, context, following, "watch of NodeOverlays");
    }
    if keeps_buffers {
        watch_if_served::<CapacityBuffer>(parts, context, following, "watch of CapacityBuffers");
        watch_kind::<PodTemplate>(parts, context, following, "watch of PodTemplates");
        watch_kind::<Deployment>(parts, context, following, "watch of Deployments");
    }
    for class in &context.provider.facts().node_classes {
        let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &class.resource());
        let class = class.clone();
        let names = (class.kind.clone(), format!("{}.{}", class.plural, class.group));
        let convert =
            move |object: DynamicObject| NodeClass::from_object(&class.group, &class.kind, object);
        let source = source_of(context, &api, names);
        follow(parts, context, following, (api, source), convert, "watch of NodeClasses");
    }
}

/// A kind that the index holds, as watches bring it.
trait Watched:
    Kind
    + kube::Resource<DynamicType = ()>
    + Clone
    + DeserializeOwned
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Watched for K where
    K: Kind
        + kube::Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + fmt::Debug
        + Send
        + Sync
        + 'static
{
}

fn watch_kind<K: Watched>(
    parts: &mut Parts,
    context: &Arc<Context>,
    following: &Following,
    name: &'static str,
) {
    let api: Api<K> = Api::all(context.client.clone());
    let source = source_of(context, &api, names_of::<K>());
    follow(parts, context, following, (api, source), |object: K| object, name);
}

/// The same for a kind that the API server may not know. It may be installed later.
fn watch_if_served<K: Watched>(
    parts: &mut Parts,
    context: &Arc<Context>,
    following: &Following,
    name: &'static str,
) {
    let api: Api<K> = Api::all(context.client.clone());
    let source = source_of(context, &api, names_of::<K>()).that_may_be_missing();
    follow(parts, context, following, (api, source), |object: K| object, name);
}

/// The same for what creates pods. Of each object a number is kept. Nothing depends on these watches but when batches of pods are
/// closed, so the operator is ready without them.
fn watch_owners<W>(
    parts: &mut Parts,
    context: &Arc<Context>,
    following: &Following,
    name: &'static str,
) where
    W: CreatesPods + Clone + DeserializeOwned + fmt::Debug + Send + Sync,
{
    let api: Api<W> = Api::all(context.client.clone());
    let source = source_of(context, &api, names_of::<W>());
    let source = source.that_may_be_forbidden(
        "pods that it owns are collected for --batch-idle-duration, as without --owner-aware-batching",
    );
    let apart = Following { freshness: Freshness::default(), ..*following };
    follow(parts, context, &apart, (api, source), |object: W| Owner::of(&object), name);
}

/// Its kind, and its plural and group as in a Role.
fn names_of<K: kube::Resource<DynamicType = ()>>() -> (String, String) {
    let (plural, group) = (K::plural(&()), K::group(&()));
    let resource = if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") };
    (K::kind(&()).into_owned(), resource)
}

fn source_of<W: kube::Resource>(
    context: &Context,
    api: &Api<W>,
    (kind, resource): (String, String),
) -> Source {
    Source::new(context.client.clone(), api, kind, resource)
}

fn follow<W, K>(
    parts: &mut Parts,
    context: &Arc<Context>,
    following: &Following,
    (api, source): (Api<W>, Source),
    convert: impl Fn(W) -> K + Send + Sync + 'static,
    name: &'static str,
) where
    W: kube::Resource + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
    K: Kind + Send + 'static,
{
    let how = following.of(&source.resource);
    let (context, stop) = (Arc::clone(context), parts.stop.clone());
    parts.start(name, async move {
        Follower::new(&context.index, (api, source), convert, how).run(stop).await;
    });
}

const START_AGAIN_FIRST: Duration = Duration::from_secs(1);
const START_AGAIN_MOST: Duration = Duration::from_secs(30);

/// Waits until the provider can work. Clouds are away at times, and an operator that ends for that only begins anew.
async fn started(provider: &dyn CloudProvider) {
    let mut wait = START_AGAIN_FIRST;
    while let Err(error) = provider.start().await {
        warn!(%error, retry_in = ?wait, "the provider cannot start yet");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(START_AGAIN_MOST);
    }
}
