//! Controllers of a provider's own: its NodeClasses' status, interruptions, tags, prices.
//!
//! They run like the operator's own: on its index, which watches each kind once, by its clock, with its recorder, queues and
//! metrics, and only while this process leads.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, RwLockReadGuard},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodeClass};
use kerf_cluster::{Change, Cluster};
use kerf_runtime::{Clock, Fence, Metrics, Outcome, Queue, Workers, events::Recorder};
use kube::{Client, api::DynamicObject};
use tokio_util::sync::CancellationToken;

/// Why a reconcile failed; logged, and tried again. A conflict and a "not found" of the API server are no failures: they are
/// tried again in silence, so that a `kube::Error` should come as it is.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the operator shares with a provider.
#[async_trait]
pub trait ControllerContext: Send + Sync {
    /// Its writes need the lease.
    fn client(&self) -> &Client;

    fn clock(&self) -> &Clock;

    /// To be checked before each call that changes something in the cloud: a process that was suspended may have lost the lease.
    fn fence(&self) -> &Fence;

    fn recorder(&self) -> &Recorder;

    /// Where its own metrics go, each once.
    fn metrics(&self) -> &Metrics;

    /// The cluster as last seen. To be read quickly and never across an await: the watches write here.
    fn cluster(&self) -> RwLockReadGuard<'_, Cluster>;

    /// Deletes a claim for a cause of the provider's own, such as `spot_interrupted`, and counts it under that name. Its pods
    /// get other places before they are evicted.
    async fn disrupt(&self, claim: &NodeClaim, cause: &'static str) -> Result<(), BoxError>;

    /// Cuts the drain of a claim's node short, whether it has begun or not: budgets and grace periods are over now. For
    /// machines on which pods are in trouble already.
    async fn end_patience(&self, claim: &NodeClaim) -> Result<(), BoxError>;

    /// Writes what changed between the two, metadata and status, on top of what others wrote meanwhile.
    async fn write_claim(&self, before: &NodeClaim, after: NodeClaim) -> Result<(), BoxError>;

    /// Writes what changed between the two.
    async fn write_node(&self, before: &Node, after: Node) -> Result<(), BoxError>;

    /// Writes what is different in `changed`, metadata and status, unless another writer wrote the NodeClass first. The next
    /// reconcile sees it even if the watch is late.
    async fn write_node_class(
        &self,
        class: &NodeClass,
        changed: DynamicObject,
    ) -> Result<(), BoxError>;
}

/// A controller of a provider.
#[async_trait]
pub trait Reconciler: Send + Sync {
    /// Its name in metrics and logs, and how much it does at once.
    fn workers(&self) -> Workers;

    /// Adds the keys that a change concerns. Called with the index locked: quick, and without waiting.
    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>);

    /// Brings what `key` names a step further. It may have been stopped before at any point, and may be again.
    async fn reconcile(
        &self,
        context: &dyn ControllerContext,
        key: &str,
    ) -> Result<Outcome, BoxError>;
}

type Context = Arc<dyn ControllerContext>;
type Running<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Pass = Box<dyn Fn(Context) -> Running<Result<(), BoxError>> + Send + Sync>;
type Run = Box<dyn FnOnce(Context, CancellationToken) -> Running<()> + Send>;

/// Something that is done beside the controllers.
pub enum Task {
    /// Again and again, with pauses.
    Periodic { every: Duration, pass: Pass },
    /// Until `stop` is cancelled; it must not end before.
    Lasting(Run),
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Periodic { every, .. } => write!(f, "every {every:?}"),
            Self::Lasting(_) => f.write_str("lasting"),
        }
    }
}

/// What a provider wants to run.
#[derive(Default)]
pub struct Registry {
    pub reconcilers: Vec<Arc<dyn Reconciler>>,
    /// By their names in metrics and logs.
    pub tasks: Vec<(&'static str, Task)>,
}

impl Registry {
    pub fn add(&mut self, reconciler: impl Reconciler + 'static) {
        self.reconcilers.push(Arc::new(reconciler));
    }

    /// Makes a pass at once and then again `every` so often after the last. A pass that fails is logged.
    pub fn add_periodic<F>(
        &mut self,
        name: &'static str,
        every: Duration,
        pass: impl Fn(Arc<dyn ControllerContext>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let pass = Box::new(move |context| Box::pin(pass(context)) as Running<_>);
        self.tasks.push((name, Task::Periodic { every, pass }));
    }

    /// Runs until `stop` is cancelled, such as a queue that is listened to.
    pub fn add_lasting<F>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(Arc<dyn ControllerContext>, CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let run = Box::new(move |context, stop| Box::pin(run(context, stop)) as Running<_>);
        self.tasks.push((name, Task::Lasting(run)));
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reconcilers = self.reconcilers.iter().map(|one| one.workers().controller);
        let tasks = self.tasks.iter().map(|(name, _)| *name);
        f.debug_list().entries(reconcilers.chain(tasks)).finish()
    }
}
