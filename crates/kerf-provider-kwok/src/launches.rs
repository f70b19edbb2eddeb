//! Instances whose Node has yet to appear.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::PostParams};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use tracing::{debug, warn};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Launches in progress, by the name of their Node.
#[derive(Debug, Default)]
pub(super) struct Launches {
    by_name: Arc<Mutex<BTreeMap<String, Launch>>>,
}

#[derive(Debug)]
struct Launch {
    node: Node,
    /// Dropping it calls the launch off.
    wanted: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Launches {
    /// Creates the Node after a while. One launch per name: a second one changes nothing.
    pub(super) fn start(&self, nodes: Api<Node>, node: Node, delay: Duration) {
        let name = node.name_any();
        let mut launches = lock(&self.by_name);
        if launches.contains_key(&name) {
            return;
        }
        let (wanted, mut called_off) = oneshot::channel();
        let (created, by_name, key) = (node.clone(), Arc::clone(&self.by_name), name.clone());
        let task = tokio::spawn(async move {
            if timeout(delay, &mut called_off).await.is_err() {
                create(&nodes, &created, called_off).await;
            }
            lock(&by_name).remove(&key);
        });
        launches.insert(name, Launch { node, wanted, task });
    }

    /// Calls a launch off. When this returns, its Node exists already or never will.
    pub(super) async fn stop(&self, name: &str) {
        let launch = lock(&self.by_name).remove(name);
        if let Some(Launch { wanted, task, .. }) = launch {
            drop(wanted);
            // Not aborted: a request that is on its way would create the Node after its instance
            // was declared gone.
            if let Err(error) = task.await {
                debug!(node = name, %error, "launch ended early");
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Node> {
        lock(&self.by_name).get(name).map(|launch| launch.node.clone())
    }

    pub(super) fn all(&self) -> Vec<Node> {
        lock(&self.by_name).values().map(|launch| launch.node.clone()).collect()
    }
}

impl Drop for Launches {
    /// The launches of a provider that is gone do not go on behind the back of the next one.
    fn drop(&mut self) {
        for launch in lock(&self.by_name).values() {
            launch.task.abort();
        }
    }
}

/// Tries until it succeeds, because the launch was promised, or until it is called off.
async fn create(nodes: &Api<Node>, node: &Node, mut called_off: oneshot::Receiver<()>) {
    let mut pause = FIRST_PAUSE;
    loop {
        match nodes.create(&PostParams::default(), node).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                debug!(node = node.name_any(), "node exists already");
                return;
            }
            Err(error) => warn!(node = node.name_any(), %error, "cannot create node, trying again"),
        }
        if timeout(pause, &mut called_off).await.is_ok() {
            return;
        }
        pause = (pause * 5).min(LONGEST_PAUSE);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
