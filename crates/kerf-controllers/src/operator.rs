//! All controllers together.

use std::{fmt, sync::Arc};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, ReplicaSet, StatefulSet},
    core::v1::{
        Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
        Service,
    },
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass, VolumeAttachment},
};
use kerf_api::{NodeClaim, NodePool};
use kerf_cluster::{Kind, NodeClass, Ownership};
use kerf_provider::{CloudProvider, NodeClassKind};
use kerf_runtime::{Clock, Fence, Metrics, Queue, events::Recorder};
use kube::{
    Api, Client,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    claim_conditions::ClaimConditions,
    claim_creation::Unsettled,
    claim_writes::Turns,
    consistency::Consistency,
    context::Context,
    controller::Controllers,
    disruption::{Commands, Disruption, Execution},
    expiration::Expiration,
    garbage_collection,
    hydration::Hydration,
    index::Index,
    lifecycle::Lifecycle,
    metrics::{
        ControllerMetrics,
        provider::GuardedProvider,
        state::{Prices, State},
    },
    pod_events::PodEvents,
    pool::{Pools, registration_health::RegistrationHealth},
    provisioning::{self, Batcher, Promises},
    repair::Repair,
    settings::Settings,
    static_capacity::StaticCapacity,
    termination::{Termination, eviction::Evictions},
    transitions::Transitions,
};

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
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("a part of the operator ended unexpectedly: {0}")]
    PartEnded(String),
}

/// Runs until `stop`. The watches run from the start, the controllers from the moment `elected` is over, so that an
/// operator that waits for the lease knows the cluster when it gets it.
pub async fn run(
    operator: Operator,
    elected: impl Future<Output = ()> + Send,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let metrics = ControllerMetrics::register(&operator.metrics);
    let (recorder, publisher) =
        Recorder::new(operator.client.clone(), operator.clock.clone(), EVENT_SOURCE, stop.clone());
    let (mut controllers, unsettled) = controllers(&operator, &metrics);
    let class_labels = operator.provider.node_classes().iter().map(NodeClassKind::label).collect();
    let transitions = Transitions::register(
        &operator.metrics,
        operator.clock.clone(),
        recorder.clone(),
        class_labels,
    );
    if operator.settings.observability {
        let transitions = transitions.clone();
        controllers.on_change(move |change, _| transitions.notice(change));
    }
    let classes = operator.provider.node_classes().iter();
    let ownership = Ownership::of_kinds(classes.map(|one| (&*one.group, &*one.kind)));
    let context = Arc::new(Context {
        client: operator.client,
        clock: operator.clock,
        index: Index::new(controllers.take_triggers(), &operator.settings, ownership),
        settings: operator.settings,
        provider: Arc::new(GuardedProvider::register(
            &operator.metrics,
            operator.provider,
            operator.fence,
        )),
        recorder,
        metrics,
        prices: Prices::default(),
        promises: Promises::default(),
        unsettled,
        turns: Turns::default(),
    });
    if context.settings.observability {
        let state = Box::new(State(Arc::downgrade(&context)));
        operator.metrics.register(|registry| registry.register_collector(state));
    }
    let mut parts = Parts { tasks: JoinSet::new(), stop: stop.clone() };
    parts.start("events", publisher);
    start_watches(&mut parts, &context);

    parts.until(stop.clone(), listed(&context)).await?;
    // First true, then told: whoever reads the line may ask at once.
    operator.ready.send_replace(true);
    info!("caches are synced");
    parts.until(stop.clone(), elected).await?;
    if !stop.is_cancelled() {
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

/// Every controller there is, and the queue of those claims that may or may not have been created.
fn controllers(operator: &Operator, metrics: &ControllerMetrics) -> (Controllers, Queue<String>) {
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
    if operator.settings.gates.node_repair && !operator.provider.repair_policies().is_empty() {
        controllers.add(Repair);
    }
    if operator.settings.gates.static_capacity {
        controllers.add(StaticCapacity::new(operator.clock.clone()));
    }
    controllers.add_task(garbage_collection::CONTROLLER, garbage_collection::run);
    let evictions = Evictions::default();
    controllers.add(Termination { evictions: evictions.clone() });
    controllers.add_task("eviction-queue", |context, stop| evictions.run(context, stop));
    let batcher = Batcher::default();
    controllers.on_change({
        let batcher = batcher.clone();
        move |change, _| provisioning::notice(&batcher, change)
    });
    let commands = Commands::default();
    let started = controllers.add(Execution { commands: commands.clone() });
    let disruption = Disruption { commands, started, batcher: batcher.clone() };
    controllers.add_task("disruption", |context, stop| disruption.run(context, stop));
    controllers.add_task("provisioner", |context, stop| provisioning::run(context, batcher, stop));
    (controllers, unsettled)
}

/// The tasks of the operator. One that ends before it is told to takes the others with it: half an operator is worse
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
        while self.tasks.join_next().await.is_some() {}
    }
}

fn start_watches(parts: &mut Parts, context: &Arc<Context>) {
    watch_kind::<NodePool>(parts, context, "watch of NodePools");
    watch_kind::<NodeClaim>(parts, context, "watch of NodeClaims");
    watch_kind::<Node>(parts, context, "watch of Nodes");
    watch_kind::<Pod>(parts, context, "watch of Pods");
    watch_kind::<DaemonSet>(parts, context, "watch of DaemonSets");
    watch_kind::<PodDisruptionBudget>(parts, context, "watch of PodDisruptionBudgets");
    watch_kind::<Namespace>(parts, context, "watch of Namespaces");
    watch_kind::<PersistentVolume>(parts, context, "watch of PersistentVolumes");
    watch_kind::<PersistentVolumeClaim>(parts, context, "watch of PersistentVolumeClaims");
    watch_kind::<StorageClass>(parts, context, "watch of StorageClasses");
    watch_kind::<CSINode>(parts, context, "watch of CSINodes");
    watch_kind::<VolumeAttachment>(parts, context, "watch of VolumeAttachments");
    if context.index.read().spreads_by_default() {
        watch_workloads(parts, context);
    }
    for class in context.provider.node_classes() {
        let gvk = GroupVersionKind::gvk(&class.group, &class.version, &class.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &class.plural);
        let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &resource);
        let (context, stop, class) = (Arc::clone(context), parts.stop.clone(), class.clone());
        parts.start("watch of NodeClasses", async move {
            let convert =
                |object: DynamicObject| NodeClass::from_object(&class.group, &class.kind, &object);
            context.index.follow(api, convert, stop).await;
        });
    }
}

/// What pods belong to.
fn watch_workloads(parts: &mut Parts, context: &Arc<Context>) {
    watch_kind::<Service>(parts, context, "watch of Services");
    watch_kind::<ReplicationController>(parts, context, "watch of ReplicationControllers");
    watch_kind::<ReplicaSet>(parts, context, "watch of ReplicaSets");
    watch_kind::<StatefulSet>(parts, context, "watch of StatefulSets");
}

fn watch_kind<K>(parts: &mut Parts, context: &Arc<Context>, name: &'static str)
where
    K: Kind
        + kube::Resource<DynamicType = ()>
        + Clone
        + DeserializeOwned
        + fmt::Debug
        + Send
        + 'static,
{
    let (context, stop) = (Arc::clone(context), parts.stop.clone());
    let api: Api<K> = Api::all(context.client.clone());
    parts.start(name, async move { context.index.follow(api, |object| object, stop).await });
}

/// Waits until every kind has been listed.
async fn listed(context: &Context) {
    let mut poll = tokio::time::interval(std::time::Duration::from_millis(50));
    while !context.index.read().listed() {
        poll.tick().await;
    }
}
