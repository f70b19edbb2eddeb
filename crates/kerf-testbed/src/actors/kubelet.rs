//! The kubelets of all fake nodes: nodes become ready, pods start, end and go, each after its delay.

mod report;

use super::desk::{Deletion, Desk, NODES, PODS, Refusal};
use super::{Actor, pods};
use crate::api::{Object, Seen, Wanted, meta};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Marks the nodes that have no machine, as KWOK has it.
const FAKE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
/// How long a pod runs until it is done: seconds, or a Go duration.
pub const RUNS_FOR: &str = "testbed.kerf.sh/runs-for";
/// With what code a pod that is done exits: `0` unless it says otherwise.
pub const EXIT_CODE: &str = "testbed.kerf.sh/exit-code";
/// On a pod: it does not end when it is deleted.
pub const NEVER_ENDS: &str = "testbed.kerf.sh/never-terminates";
/// On a node: its kubelet never reports.
pub const NEVER_READY: &str = "testbed.kerf.sh/never-ready";

/// How long things take on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletSettings {
    /// From the node's creation until it is ready.
    pub node_ready: Duration,
    /// From binding until a pod runs.
    pub pod_start: Duration,
    /// From running until a pod is ready.
    pub pod_ready: Duration,
    /// From deletion until a pod is gone, where its grace period is not shorter.
    pub pod_terminate: Duration,
    /// How long the pods of jobs run that do not say so themselves.
    pub job_runs_for: Duration,
}

impl Default for KubeletSettings {
    fn default() -> Self {
        Self {
            node_ready: Duration::from_secs(1),
            pod_start: Duration::from_secs(1),
            pod_ready: Duration::ZERO,
            pod_terminate: Duration::from_secs(1),
            job_runs_for: Duration::from_secs(10),
        }
    }
}

#[derive(Debug)]
pub(super) struct Kubelets {
    settings: KubeletSettings,
    nodes: BTreeMap<Arc<str>, Machine>,
    /// By node, the pods bound to it, whether there is such a node or not.
    bound: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// What is to happen next with each pod; the time is when it was planned for.
    plans: BTreeMap<Arc<str>, (Arc<str>, Step)>,
    due: BTreeSet<(Timestamp, Task)>,
    /// Addresses that were given out.
    addresses: u32,
}

#[derive(Debug)]
struct Machine {
    address: String,
    is_up: bool,
    is_dead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Start,
    BecomeReady,
    Finish,
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    ReportNode(Arc<str>),
    Pod(Arc<str>, Arc<str>, Step),
}

impl Kubelets {
    pub(super) fn new(settings: KubeletSettings) -> Self {
        Self {
            settings,
            nodes: BTreeMap::new(),
            bound: BTreeMap::new(),
            plans: BTreeMap::new(),
            due: BTreeSet::new(),
            addresses: 0,
        }
    }

    fn see_node(&mut self, seen: &Seen, desk: &Desk) {
        if seen.gone {
            self.nodes.remove(&seen.key);
            // A node of the same name would be another machine.
            desk.outages.end(&seen.key);
            return;
        }
        let value = &seen.object.value;
        let annotations = meta::field(value, "annotations");
        if annotations[FAKE.0] != FAKE.1 {
            // One that loses the mark has no kubelet any more.
            self.nodes.remove(&seen.key);
            return;
        }
        if annotations[NEVER_READY] == "true" {
            return;
        }
        if self.nodes.contains_key(&seen.key) {
            return;
        }
        self.addresses += 1;
        let [_, a, b, c] = self.addresses.to_be_bytes();
        let machine = Machine {
            address: format!("172.{}.{b}.{c}", 16 + a % 16),
            is_up: false,
            is_dead: false,
        };
        self.nodes.insert(seen.key.clone(), machine);
        if !self.settings.node_ready.is_zero() && !pods::is_ready(value) {
            // A kubelet registers its node as one that is not ready yet.
            let _ = self.report_node(&seen.key, false, desk);
        }
        let due = desk.now() + signed(self.settings.node_ready);
        self.due.insert((due, Task::ReportNode(seen.key.clone())));
    }

    fn report_node(&mut self, name: &str, ready: bool, desk: &Desk) -> Result<(), Refusal> {
        let Some(node) = desk.get(NODES, name) else { return Ok(()) };
        let Some(machine) = self.nodes.get(name) else { return Ok(()) };
        let now = desk.timestamp();
        desk.change_status(NODES, &node, |status| {
            report::node(status, name, &machine.address, ready, &now);
        })
    }

    fn see_pod(&mut self, seen: &Seen, desk: &Desk) {
        let pod = &seen.object.value;
        let node = pods::node_name(pod);
        if node.is_empty() {
            return;
        }
        if seen.gone {
            self.plans.remove(&seen.key);
            if let Some(bound) = self.bound.get_mut(node) {
                bound.remove(&seen.key);
                if bound.is_empty() {
                    self.bound.remove(node);
                }
            }
            return;
        }
        let bound = match self.bound.get_mut(node) {
            Some(bound) => bound,
            None => self.bound.entry(node.into()).or_default(),
        };
        bound.insert(seen.key.clone());
        self.plan(&seen.key, pod, desk.now());
    }

    /// Decides what happens next with a pod, unless that is decided already.
    fn plan(&mut self, key: &Arc<str>, pod: &Value, now: Timestamp) {
        let alive = |machine: &Machine| machine.is_up && !machine.is_dead;
        if !self.nodes.get(pods::node_name(pod)).is_some_and(alive) {
            return;
        }
        let Some((step, delay)) = self.next_step(pod) else {
            self.plans.remove(key);
            return;
        };
        let uid = meta::uid(pod);
        if self.plans.get(key).is_some_and(|(known, planned)| &**known == uid && *planned == step) {
            return;
        }
        let uid: Arc<str> = uid.into();
        self.plans.insert(key.clone(), (uid.clone(), step));
        self.due.insert((now + delay, Task::Pod(key.clone(), uid, step)));
    }

    fn next_step(&self, pod: &Value) -> Option<(Step, SignedDuration)> {
        let settings = &self.settings;
        if meta::is_deleting(pod) {
            if annotation(pod, NEVER_ENDS) == "true" {
                return None;
            }
            let grace = meta::field(pod, "deletionGracePeriodSeconds").as_i64().unwrap_or(0);
            let grace = SignedDuration::from_secs(grace);
            return Some((Step::Remove, grace.min(signed(settings.pod_terminate))));
        }
        match pods::phase(pod) {
            "Pending" => Some((Step::Start, signed(settings.pod_start))),
            "Running" if !pods::is_ready(pod) => {
                Some((Step::BecomeReady, signed(settings.pod_ready)))
            }
            "Running" => Some((Step::Finish, signed(runs_for(pod, settings)?))),
            _ => None,
        }
    }

    fn take_step(
        &mut self,
        pod: &Object,
        node: &str,
        step: Step,
        desk: &Desk,
    ) -> Result<(), Refusal> {
        let now = desk.timestamp();
        match step {
            Step::Start => {
                self.addresses += 1;
                let [_, a, b, c] = self.addresses.to_be_bytes();
                let address = format!("10.{a}.{b}.{c}");
                let host = self.nodes.get(node).map_or("", |machine| machine.address.as_str());
                let ready = self.settings.pod_ready.is_zero();
                desk.change_status(PODS, pod, |status| {
                    report::running(status, &pod.value, host, &address, ready, &now);
                })
            }
            Step::BecomeReady => {
                desk.change_status(PODS, pod, |status| report::ready(status, true, &now))
            }
            Step::Finish => {
                let code = annotation(&pod.value, EXIT_CODE).parse().unwrap_or(0);
                desk.change_status(PODS, pod, |status| report::finished(status, code, &now))
            }
            Step::Remove => desk.delete(PODS, &pod.value, Deletion::Forced),
        }
    }

    fn do_task(&mut self, task: Task, desk: &Desk) {
        match task {
            Task::ReportNode(name) => {
                if self.nodes.get(&name).is_none_or(|machine| machine.is_dead) {
                    return;
                }
                if self.report_node(&name, true, desk).is_err() {
                    let again = desk.now() + SignedDuration::from_secs(1);
                    self.due.insert((again, Task::ReportNode(name)));
                    return;
                }
                if let Some(machine) = self.nodes.get_mut(&name) {
                    machine.is_up = true;
                }
                self.plan_all(&name, desk);
            }
            Task::Pod(key, uid, step) => {
                let Some(pod) = desk.get(PODS, &key) else { return };
                let node = pods::node_name(&pod.value);
                let current = self.plans.get(&key).is_some_and(|(u, s)| *u == uid && *s == step);
                let alive = self.nodes.get(node).is_some_and(|m| m.is_up && !m.is_dead);
                let applies = self.next_step(&pod.value).is_some_and(|(next, _)| next == step);
                if !current || !alive || !applies || meta::uid(&pod.value) != &*uid {
                    return;
                }
                if self.take_step(&pod, node, step, desk).is_err() {
                    let again = desk.now() + SignedDuration::from_secs(1);
                    self.due.insert((again, Task::Pod(key, uid, step)));
                }
            }
        }
    }

    /// Plans for all pods of a node that has just come up.
    fn plan_all(&mut self, node: &str, desk: &Desk) {
        for key in self.bound.get(node).cloned().unwrap_or_default() {
            self.plans.remove(&key);
            if let Some(pod) = desk.get(PODS, &key) {
                self.plan(&key, &pod.value, desk.now());
            }
        }
    }

    fn follow_outages(&mut self, desk: &Desk) {
        let dead = desk.outages.all();
        let mut revived = Vec::new();
        for (name, machine) in &mut self.nodes {
            let is_dead = dead.contains_key(&**name);
            if machine.is_dead && !is_dead {
                revived.push(name.clone());
            }
            machine.is_dead = is_dead;
        }
        for name in revived {
            self.due.insert((desk.now(), Task::ReportNode(name)));
        }
    }
}

impl Actor for Kubelets {
    fn watches(&self) -> Wanted {
        Wanted::These(&[("", "nodes"), ("", "pods")])
    }

    fn see(&mut self, seen: &Seen, desk: &Desk) {
        if seen.is("", "nodes") {
            self.see_node(seen, desk);
        } else {
            self.see_pod(seen, desk);
        }
    }

    fn act(&mut self, desk: &Desk) -> Option<Timestamp> {
        self.follow_outages(desk);
        while let Some((time, _)) = self.due.first()
            && *time <= desk.now()
        {
            if let Some((_, task)) = self.due.pop_first() {
                self.do_task(task, desk);
            }
        }
        self.due.first().map(|(time, _)| *time)
    }
}

fn annotation<'a>(pod: &'a Value, key: &str) -> &'a str {
    meta::text(pod, &["metadata", "annotations", key])
}

/// `None`: until it is deleted.
fn runs_for(pod: &Value, settings: &KubeletSettings) -> Option<Duration> {
    let said = annotation(pod, RUNS_FOR);
    if let Ok(seconds) = said.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // An empty text would be read as no time at all.
    if let Some(Ok(duration)) = (!said.is_empty()).then(|| said.parse::<kube::core::Duration>()) {
        return Some(duration.into());
    }
    let is_job = pods::controller(pod).is_some_and(|(kind, _, _)| kind == "Job");
    is_job.then_some(settings.job_runs_for)
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
