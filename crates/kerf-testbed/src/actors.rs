//! The rest of a cluster, as independent actors on the API: kubelets, a scheduler, the workload controllers, and the
//! collectors of garbage.
//!
//! Each actor sees the cluster through a feed of changes and changes it through requests, as the real ones do. It
//! sleeps until something happens that concerns it or until a time it has set itself: nothing polls, so a quiet month
//! costs nothing. Order everywhere is by key or by revision, and chance comes from the testbed's seed.

mod client;
mod cron_job;
mod daemon_set;
mod deployment;
mod desk;
mod disruption_budget;
mod event_expiry;
mod fitness;
mod garbage;
mod job;
mod kubelet;
mod node_lifecycle;
mod outage;
mod pod_collection;
mod pods;
mod queue;
mod replica_set;
mod scheduler;
mod stateful_set;
mod taint_eviction;
mod volume_attachment;
mod volume_binding;

pub use client::{ClientPace, Pause};
pub use kubelet::{EXIT_CODE, KubeletSettings, NEVER_ENDS, NEVER_READY, RUNS_FOR};
pub use volume_attachment::NEVER_DETACHES;

use crate::api::{Feed, Seen, Wanted};
use crate::random::Random;
use crate::testbed::Testbed;
use client::{LimitedClient, Turn};
use desk::{Desk, Refusal};
use jiff::Timestamp;
use outage::Outages;
use queue::Queue;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::AbortHandle;

/// Which parts of a cluster are there.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a part of its own that a cluster has or has not"
)]
pub struct Actors {
    /// `None`: nodes and pods stay as they are written.
    pub kubelets: Option<KubeletSettings>,
    pub scheduler: bool,
    /// Whether the scheduler ends pods to make room for those of higher priority.
    pub preemption: bool,
    /// Controllers of workloads: deployments and the like, jobs, the status of disruption budgets, and volumes.
    pub workloads: bool,
    /// How fast those that create pods send requests. `None`: all at once.
    pub pace: Option<ClientPace>,
    /// Taints by condition, eviction by taint, and the collection of what has lost its
    /// node, its owner or its news value.
    pub upkeep: bool,
}

impl Default for Actors {
    /// A whole cluster, in which no pod is ended for another.
    fn default() -> Self {
        Self {
            kubelets: Some(KubeletSettings::default()),
            scheduler: true,
            preemption: false,
            workloads: true,
            pace: None,
            upkeep: true,
        }
    }
}

/// The actors of a testbed. They stop when this is dropped.
#[derive(Debug)]
#[must_use = "the actors stop when this is dropped"]
pub struct Running {
    desk: Desk,
    tasks: Vec<AbortHandle>,
}

impl Running {
    /// The machine under a node stops: its kubelet says nothing any more, and its pods neither start nor end.
    pub fn kill_node(&self, name: &str) {
        self.desk.outages.begin(name, self.desk.now());
    }

    /// The machine comes back, with the pods it had.
    pub fn revive_node(&self, name: &str) {
        self.desk.outages.end(name);
    }

    fn start(&mut self, actor: impl Actor) {
        self.start_at(actor, self.desk.clone());
    }

    fn start_at(&mut self, actor: impl Actor, desk: Desk) {
        self.tasks.push(tokio::spawn(live(actor, desk)).abort_handle());
    }

    fn control(&mut self, controller: impl Controller) {
        self.start(Controlling(controller, Queue::default()));
    }

    /// A controller with a client of its own that is limited, if there is a pace.
    fn control_at(&mut self, pace: Option<ClientPace>, controller: impl Controller) {
        let client = pace.map(|pace| Arc::new(Mutex::new(LimitedClient::new(pace))));
        let desk = Desk { client, ..self.desk.clone() };
        self.start_at(Controlling(controller, Queue::default()), desk);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Testbed {
    /// Brings the rest of a cluster to life. Needs a tokio runtime.
    pub fn start_actors(&self, actors: Actors) -> Running {
        let desk = Desk {
            api: self.api().clone(),
            clock: self.clock().clone(),
            outages: Outages::default(),
            client: None,
        };
        let mut running = Running { desk, tasks: Vec::new() };
        if let Some(settings) = actors.kubelets {
            running.start(kubelet::Kubelets::new(settings));
        }
        if actors.scheduler {
            // A stream of its own, whatever else draws from the seed.
            let random = Random::seeded(self.seed() ^ 0x5c4e_d01e);
            running.start(scheduler::Scheduler::new(random, actors.preemption));
        }
        if actors.workloads {
            running.control_at(actors.pace, deployment::Deployments::default());
            running.control_at(actors.pace, replica_set::ReplicaSets::default());
            running.control_at(actors.pace, stateful_set::StatefulSets::default());
            running.control(daemon_set::DaemonSets::default());
            running.control_at(actors.pace, job::Jobs::default());
            running.control(cron_job::CronJobs::default());
            running.control(disruption_budget::DisruptionBudgets::default());
            running.control(volume_binding::VolumeBinding::default());
            running.control(volume_attachment::Attaching::default());
        }
        if actors.upkeep {
            running.start(node_lifecycle::NodeLifecycle::default());
            running.start(taint_eviction::TaintEviction::default());
            running.start(pod_collection::PodCollection::default());
            running.start(garbage::Garbage::default());
            running.control(event_expiry::EventExpiry::default());
        }
        running
    }
}

/// Someone who lives in the cluster.
trait Actor: Send + 'static {
    fn watches(&self) -> Wanted;

    /// Takes note of a change.
    fn see(&mut self, seen: &Seen, desk: &Desk);

    /// Does what there is to do, once all changes are known; says when to be asked again if nothing happens before.
    fn act(&mut self, desk: &Desk) -> Option<Timestamp>;
}

/// An actor that brings objects of one kind, one by one, to where they should be.
trait Controller: Send + 'static {
    fn watches(&self) -> &'static [(&'static str, &'static str)];

    /// Puts the keys that a change concerns into the queue.
    fn see(&mut self, seen: &Seen, queue: &mut Queue);

    fn reconcile(&mut self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal>;
}

/// A controller and its queue.
struct Controlling<C>(C, Queue);

impl<C: Controller> Actor for Controlling<C> {
    fn watches(&self) -> Wanted {
        Wanted::These(self.0.watches())
    }

    fn see(&mut self, seen: &Seen, _: &Desk) {
        self.0.see(seen, &mut self.1);
    }

    fn act(&mut self, desk: &Desk) -> Option<Timestamp> {
        let Self(controller, queue) = self;
        let mut look =
            |key: Arc<str>, queue: &mut Queue| match controller.reconcile(&key, queue, desk) {
                Ok(()) => queue.succeeded(&key),
                Err(_) => queue.retry(desk.now(), key),
            };
        while let Some(turn) = desk.next_turn() {
            match turn {
                Turn::Look(key) => look(key, queue),
                Turn::Ended(key, None) => queue.add(key),
                Turn::Ended(key, Some(_)) => queue.retry(desk.now(), key),
            }
        }
        for key in queue.take(desk.now()) {
            if desk.takes(&key) {
                look(key, queue);
            }
        }
        [queue.next(desk.now()), desk.due()].into_iter().flatten().min()
    }
}

async fn live(mut actor: impl Actor, desk: Desk) {
    let mut feed = Feed::new(desk.api.clone(), actor.watches());
    loop {
        let outage = desk.outages.changed();
        let wait = match actor.act(&desk) {
            // No timer of tokio's reaches further; the actor is asked again then.
            None => Duration::from_hours(365 * 24),
            Some(due) => due.duration_since(desk.now()).try_into().unwrap_or(Duration::ZERO),
        };
        let changes = tokio::select! {
            biased;
            changes = poll_fn(|context| feed.poll_changes(context)) => changes,
            () = outage => Vec::new(),
            () = tokio::time::sleep(wait) => Vec::new(),
        };
        for seen in &changes {
            actor.see(seen, &desk);
        }
        // Everyone has a turn before this one goes on, however much there is to do.
        tokio::task::yield_now().await;
    }
}
