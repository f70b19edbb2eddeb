//! What the controllers have in common: a queue of names, changes that fill it, and a reconcile that empties it.

use kerf_api::NodeExt;
use std::{pin::Pin, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kerf_cluster::{Change, Cluster, Delta};
use kerf_provider::{Registry, Task};
use kerf_runtime::{Outcome, Queue, Workers};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{
    context::Context,
    error::{Error, Result, unless_outdated},
    index::Trigger,
};

/// A controller of objects that have no namespace.
pub(crate) trait Reconciler: Send + Sync + 'static {
    const WORKERS: Workers;

    /// Adds the names that a change concerns. Called with the index locked: quick, and without waiting.
    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>);

    /// Brings what is called `name` a step further. It may have been stopped before at any point, and may be again.
    fn reconcile(
        &self,
        context: &Context,
        name: &str,
    ) -> impl Future<Output = Result<Outcome>> + Send;
}

/// Adds the claim behind a node that changed; of several that share it, all.
pub(crate) fn add_claim_of(delta: &Delta<Node>, cluster: &Cluster, queue: &Queue<String>) {
    let provider_id = delta.either().map_or("", |node| node.provider_id());
    for claim in cluster.claims_of(provider_id) {
        queue.add(claim.name_any());
    }
}

/// Makes a pass at once, and another each time that `every` has gone by since the last.
pub(crate) async fn periodically<E, F>(
    name: &'static str,
    every: Duration,
    context: &Context,
    stop: CancellationToken,
    pass: impl Fn() -> F,
) where
    E: std::fmt::Display,
    F: Future<Output = std::result::Result<(), E>>,
{
    loop {
        if let Err(error) = context.metrics.work.pass(name, pass()).await {
            error!(controller = name, %error, "a periodic task failed");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;
type Start = Box<dyn FnOnce(Arc<Context>, CancellationToken) -> Running + Send>;

/// Controllers that have been put together and not started.
#[derive(Default)]
pub(crate) struct Controllers {
    triggers: Vec<Trigger>,
    starts: Vec<(&'static str, Start)>,
}

impl Controllers {
    /// Adds a controller; others can add names to the queue that is returned.
    pub(crate) fn add<R: Reconciler>(&mut self, reconciler: R) -> Queue<String> {
        let queue = Queue::new();
        let reconciler = Arc::new(reconciler);
        self.on_change({
            let (queue, reconciler) = (queue.clone(), Arc::clone(&reconciler));
            move |change, cluster| reconciler.concerns(change, cluster, &queue)
        });
        let work = queue.clone();
        self.add_task(R::WORKERS.controller, move |context, stop| async move {
            let (context, reconciler) = (&*context, &*reconciler);
            let reconcile = |name: String| async move {
                context.index.listed().await;
                unless_outdated(reconciler.reconcile(context, &name).await)
            };
            let workers = context.settings.cpu.scaled(R::WORKERS);
            work.run(workers, &context.metrics.work, stop, reconcile).await;
        });
        queue
    }

    /// Adds what the provider wants to run. It runs as our own controllers do.
    pub(crate) fn add_provider(&mut self, registry: Registry) {
        for reconciler in registry.reconcilers {
            let queue = Queue::new();
            self.on_change({
                let (queue, reconciler) = (queue.clone(), Arc::clone(&reconciler));
                move |change, cluster| reconciler.concerns(change, cluster, &queue)
            });
            let workers = reconciler.workers();
            self.add_task(workers.controller, move |context, stop| async move {
                let (context, reconciler) = (&*context, &*reconciler);
                let reconcile = |key: String| async move {
                    context.index.listed().await;
                    let outcome = reconciler.reconcile(context, &key).await;
                    unless_outdated(outcome.map_err(Error::OfProvider))
                };
                let workers = context.settings.cpu.scaled(workers);
                queue.run(workers, &context.metrics.work, stop, reconcile).await;
            });
        }
        for (name, task) in registry.tasks {
            self.add_task(name, move |context, stop| async move {
                match task {
                    Task::Lasting(run) => run(context, stop).await,
                    Task::Periodic { every, pass } => {
                        let pass = || async {
                            context.index.listed().await;
                            pass(context.clone()).await
                        };
                        periodically(name, every, &context, stop, pass).await;
                    }
                }
            });
        }
    }

    /// Something that runs beside the controllers and ends with them.
    pub(crate) fn add_task<F>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(Arc<Context>, CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.starts.push((name, Box::new(move |context, stop| Box::pin(run(context, stop)))));
    }

    pub(crate) fn on_change(
        &mut self,
        trigger: impl Fn(&Change, &Cluster) + Send + Sync + 'static,
    ) {
        self.triggers.push(Box::new(trigger));
    }

    pub(crate) fn take_triggers(&mut self) -> Vec<Trigger> {
        std::mem::take(&mut self.triggers)
    }

    pub(crate) fn into_tasks(self) -> Vec<(&'static str, Start)> {
        self.starts
    }
}
