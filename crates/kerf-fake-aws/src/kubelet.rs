//! Kubelets: a running instance becomes a Node by what its user data says, or it does not.

mod node;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use crate::FakeAws;
use crate::filters::Tags;
use crate::instances::State;

/// A tag of instances: how long they take from running until their Node is there, as a Go duration.
pub const BOOT: &str = "fake-aws/boot";

/// The kubelets of all instances of an account, and the controller of its cluster that removes Nodes without an instance.
#[derive(Debug)]
pub struct Kubelets {
    aws: FakeAws,
    nodes: Api<Node>,
    settings: KubeletSettings,
    machines: BTreeMap<String, Machine>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KubeletSettings {
    /// From running until the Node is there.
    pub boot: Duration,
    /// From the end of an instance until its Node is deleted, if nothing else did it.
    pub node_deleted: Duration,
    /// The share of a machine's memory that its operating system does not see.
    pub memory_lost: f64,
}

impl Default for KubeletSettings {
    fn default() -> Self {
        Self {
            boot: Duration::from_secs(20),
            node_deleted: Duration::from_secs(10),
            memory_lost: 0.06,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Machine {
    Boots {
        at: Timestamp,
    },
    /// Its user data makes no node of this cluster.
    Stuck,
    Joined {
        node: String,
    },
    /// It shuts down, and its kubelet has not said so yet.
    Stops {
        node: String,
    },
    Stopped {
        node: String,
    },
    Ended {
        node: String,
        delete_at: Timestamp,
    },
}

/// After a write that failed.
const AGAIN: SignedDuration = SignedDuration::from_secs(1);

impl Kubelets {
    pub fn new(aws: FakeAws, client: Client, settings: KubeletSettings) -> Self {
        Self { aws, nodes: Api::all(client), settings, machines: BTreeMap::new() }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut changes = self.aws.changes();
        loop {
            changes.mark_unchanged();
            let next = self.step().await;
            let wait = next.map_or(Duration::from_hours(1), |next| self.aws.until(next));
            // Either something changed, or it is time to look again.
            let _ = timeout(wait, changes.changed()).await;
        }
    }

    /// Does what is due, and says when something is due next.
    async fn step(&mut self) -> Option<Timestamp> {
        let now = self.look();
        for (id, machine) in self.machines.clone() {
            match machine {
                Machine::Boots { at } if at <= now => self.boot(&id, now).await,
                Machine::Stops { node } => self.stop(&id, node).await,
                Machine::Ended { node, delete_at } if delete_at <= now => {
                    self.remove(&id, &node, now).await;
                }
                _ => {}
            }
        }
        let own = self.machines.values().filter_map(|machine| match machine {
            Machine::Boots { at } => Some(*at),
            Machine::Ended { delete_at, .. } => Some(*delete_at),
            Machine::Stops { .. } => Some(now + AGAIN),
            Machine::Stuck | Machine::Joined { .. } | Machine::Stopped { .. } => None,
        });
        own.chain(self.aws.next_due()).min()
    }

    /// Takes note of instances that run and of those that ended.
    fn look(&mut self) -> Timestamp {
        let (now, states) = self.aws.with(|cloud| {
            let boot = |tags: &Tags| tags.get(BOOT)?.parse::<kube::core::Duration>().ok();
            let states = cloud.instances.values();
            let states = states.map(|one| (one.id.clone(), (one.state, boot(&one.tags))));
            (cloud.now, states.collect::<BTreeMap<_, _>>())
        });
        let after = |delay: Duration| {
            let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
            now.checked_add(delay).unwrap_or(Timestamp::MAX)
        };
        for (id, (state, boot)) in &states {
            if *state == State::Running && !self.machines.contains_key(id) {
                let boot = boot.map_or(self.settings.boot, Duration::from);
                self.machines.insert(id.clone(), Machine::Boots { at: after(boot) });
            }
        }
        let delete_at = after(self.settings.node_deleted);
        self.machines.retain(|id, machine| {
            let state = states.get(id).map_or(State::Terminated, |(state, _)| *state);
            match (&mut *machine, state) {
                (
                    Machine::Joined { node } | Machine::Stops { node } | Machine::Stopped { node },
                    State::Terminated,
                ) => {
                    *machine = Machine::Ended { node: std::mem::take(node), delete_at };
                    true
                }
                (Machine::Joined { node }, State::ShuttingDown) => {
                    *machine = Machine::Stops { node: std::mem::take(node) };
                    true
                }
                (Machine::Boots { .. } | Machine::Stuck, state) => state.is_alive(),
                _ => true,
            }
        });
        now
    }

    async fn boot(&mut self, id: &str, now: Timestamp) {
        let memory_lost = self.settings.memory_lost;
        let made = self.aws.with(|cloud| {
            let instance = cloud.instances.get(id)?;
            let node = node::of(instance, cloud, memory_lost);
            if let Err(reason) = &node {
                let text = format!("the node does not start: {reason}\n");
                cloud.instances.get_mut(id)?.console.push_str(&text);
            }
            Some(node)
        });
        let machine = match made {
            None => return,
            Some(Err(_)) => Machine::Stuck,
            Some(Ok(node)) => match self.nodes.create(&PostParams::default(), &node).await {
                Ok(_) => Machine::Joined { node: node.name_any() },
                // The answer to an earlier attempt was lost.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    Machine::Joined { node: node.name_any() }
                }
                Err(_) => Machine::Boots { at: now + AGAIN },
            },
        };
        self.machines.insert(id.to_owned(), machine);
    }

    /// A kubelet that shuts down says so, and nothing more: what its pods are told to do no one does.
    async fn stop(&mut self, id: &str, node: String) {
        let now = self.aws.now().to_string();
        let ready = json!({
            "type": "Ready", "status": "False", "reason": "KubeletNotReady",
            "message": "node is shutting down", "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let last_words = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
        let silence =
            Patch::Merge(json!({"metadata": {"annotations": {node::RUN_BY_KWOK.0: null}}}));
        let params = PatchParams::default();
        let said = async {
            self.nodes.patch(&node, &params, &silence).await?;
            self.nodes.patch_status(&node, &params, &last_words).await
        };
        match said.await {
            Ok(_) => {
                self.machines.insert(id.to_owned(), Machine::Stopped { node });
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.machines.insert(id.to_owned(), Machine::Stopped { node });
            }
            // It is tried again.
            Err(_) => {}
        }
    }

    async fn remove(&mut self, id: &str, node: &str, now: Timestamp) {
        match self.nodes.delete(node, &DeleteParams::default()).await {
            Ok(_) => {
                self.machines.remove(id);
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.machines.remove(id);
            }
            Err(_) => {
                let ended = Machine::Ended { node: node.to_owned(), delete_at: now + AGAIN };
                self.machines.insert(id.to_owned(), ended);
            }
        }
    }
}
