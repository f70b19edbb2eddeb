//! `DaemonSet`s: one pod on each node that it may be on.

use super::Controller;
use super::deployment::share;
use super::desk::{DAEMON_SETS, Deletion, Desk, PODS, Refusal};
use super::fitness::{self, NodeFacts, NodeRules};
use super::pods::{self, Children};
use super::queue::Queue;
use crate::api::{Object, Seen, meta};
use kerf_model::Effect;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const HASH: &str = "controller-revision-hash";

#[derive(Debug, Default)]
pub(super) struct DaemonSets {
    pods: Children,
    nodes: BTreeMap<Arc<str>, NodeFacts>,
    /// All sets: a change of a node concerns each of them.
    sets: std::collections::BTreeSet<Arc<str>>,
}

impl Controller for DaemonSets {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[("apps", "daemonsets"), ("", "nodes"), ("", "pods")]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        if seen.is("apps", "daemonsets") {
            if seen.gone {
                self.sets.remove(&seen.key);
            } else {
                self.sets.insert(seen.key.clone());
            }
            queue.add(seen.key.clone());
        } else if seen.is("", "pods") {
            let owners = self.pods.see(seen).into_iter();
            owners.filter(|(kind, _)| kind == DAEMON_SETS.name).for_each(|(_, key)| queue.add(key));
        } else {
            let facts = (!seen.gone).then(|| NodeFacts::of(&seen.object.value));
            let before = match facts.clone() {
                Some(facts) => self.nodes.insert(seen.key.clone(), facts),
                None => self.nodes.remove(&seen.key),
            };
            if before != facts {
                self.sets.iter().for_each(|set| queue.add(set.clone()));
            }
        }
    }

    fn reconcile(&mut self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let Some(set) = desk.get(DAEMON_SETS, key) else { return Ok(()) };
        let watch = Watch::new(&set.value, self.pods.of(&set.value), &self.nodes);
        let mut failure = None;
        if !meta::is_deleting(&set.value) {
            failure = watch.advance(key, queue, desk).err();
        }
        desk.change_status(DAEMON_SETS, &set, |status| watch.report(status, desk))?;
        failure.map_or(Ok(()), Err)
    }
}

/// The pods of a set, by the node they are on or meant for.
struct Watch<'a> {
    set: &'a Value,
    template: Value,
    revision: String,
    nodes: &'a BTreeMap<Arc<str>, NodeFacts>,
    pods: BTreeMap<String, Vec<Arc<Object>>>,
}

impl<'a> Watch<'a> {
    fn new(
        set: &'a Value,
        pods: Vec<Arc<Object>>,
        nodes: &'a BTreeMap<Arc<str>, NodeFacts>,
    ) -> Self {
        let mut by_node: BTreeMap<String, Vec<Arc<Object>>> = BTreeMap::new();
        for pod in pods {
            by_node.entry(target(&pod.value).to_owned()).or_default().push(pod);
        }
        let mut template = set["spec"]["template"].clone();
        let revision = pods::template_hash(&template);
        add_tolerations(&mut template);
        Self { set, template, revision, nodes, pods: by_node }
    }

    fn advance(&self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let rules = NodeRules::of_spec(&self.template["spec"]);
        let tolerations = fitness::tolerations(&self.template["spec"]);
        for (name, facts) in self.nodes {
            let pods = self.pods.get(&**name).map(Vec::as_slice).unwrap_or_default();
            let suits = rules.allow(facts);
            let wants = suits && fitness::keeps_away(facts, &tolerations).is_none();
            // A pod that is there stays unless the node drives it out or is none of ours any more.
            let keeps = suits
                && facts
                    .taints
                    .iter()
                    .filter(|taint| taint.effect == Effect::NoExecute)
                    .all(|taint| fitness::tolerated(taint, &tolerations));
            let mut alive = Vec::new();
            for pod in pods.iter().filter(|pod| !meta::is_deleting(&pod.value)) {
                if pods::phase(&pod.value) == "Failed" || !keeps {
                    desk.delete(PODS, &pod.value, Deletion::Background)?;
                } else {
                    alive.push(pod);
                }
            }
            if pods.is_empty() && wants {
                self.create(name, desk)?;
            }
            for pod in alive.iter().skip(1) {
                desk.delete(PODS, &pod.value, Deletion::Background)?;
            }
        }
        // Pods that were meant for nodes that are gone will never be placed.
        for (name, pods) in &self.pods {
            for pod in pods.iter().filter(|_| !self.nodes.contains_key(name.as_str())) {
                if pods::node_name(&pod.value).is_empty() && !meta::is_deleting(&pod.value) {
                    desk.delete(PODS, &pod.value, Deletion::Background)?;
                }
            }
        }
        self.update(key, queue, desk)
    }

    /// Replaces pods of former templates, no more at a time than may be missing.
    fn update(&self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let strategy = &self.set["spec"]["updateStrategy"];
        if strategy["type"] == "OnDelete" {
            return Ok(());
        }
        let all: Vec<_> = self.pods.values().flatten().collect();
        let most = share(
            &strategy["rollingUpdate"]["maxUnavailable"],
            i64::try_from(self.pods.len()).unwrap_or(i64::MAX),
            true,
        );
        let missing = all.iter().filter(|pod| !self.serves(&pod.value, key, queue, desk)).count();
        let mut room = most.max(1) - i64::try_from(missing).unwrap_or(i64::MAX);
        for pod in all.iter().filter(|pod| pods::is_active(&pod.value)) {
            if self.is_current(&pod.value) {
                continue;
            }
            let is_idle = !pods::is_ready(&pod.value);
            if is_idle || room > 0 {
                desk.delete(PODS, &pod.value, Deletion::Background)?;
                room -= i64::from(!is_idle);
            }
        }
        Ok(())
    }

    fn serves(&self, pod: &Value, key: &str, queue: &mut Queue, desk: &Desk) -> bool {
        let least = self.set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
        match pods::available_from(pod, least) {
            Some(from) if from > desk.now() => {
                queue.add_at(from, key);
                false
            }
            from => from.is_some() && !meta::is_deleting(pod),
        }
    }

    fn is_current(&self, pod: &Value) -> bool {
        meta::at(pod, &["metadata", "labels", HASH]) == self.revision.as_str()
    }

    fn create(&self, node: &str, desk: &Desk) -> Result<(), Refusal> {
        let mut pod = pods::from_template(DAEMON_SETS, self.set, &self.template);
        meta::set(&mut pod, "generateName", pods::generate_name(self.set));
        let metadata = meta::map_mut(&mut pod).entry("metadata").or_insert(Value::Null);
        let labels = meta::object_mut(metadata, "labels");
        labels.insert(HASH.into(), self.revision.clone().into());
        let generation = meta::field(self.set, "generation").to_string();
        labels.insert("pod-template-generation".into(), generation.into());
        let spec = meta::object_mut(&mut pod, "spec");
        let affinity = spec.entry("affinity").or_insert_with(|| json!({}));
        let affinity = meta::object_mut(affinity, "nodeAffinity");
        affinity.insert(
            "requiredDuringSchedulingIgnoredDuringExecution".into(),
            json!({ "nodeSelectorTerms": [{
                "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }],
            }]}),
        );
        desk.create(PODS, meta::namespace(self.set), &pod).map(|_| ())
    }

    fn report(&self, status: &mut Value, desk: &Desk) {
        let rules = NodeRules::of_spec(&self.template["spec"]);
        let tolerations = fitness::tolerations(&self.template["spec"]);
        let least = self.set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
        let (mut desired, mut current, mut astray, mut ready, mut available, mut updated) =
            (0, 0, 0, 0, 0, 0);
        for (name, facts) in self.nodes {
            let pods = self.pods.get(&**name).map(Vec::as_slice).unwrap_or_default();
            let oldest = pods.first().map(|pod| &pod.value);
            if !(rules.allow(facts) && fitness::keeps_away(facts, &tolerations).is_none()) {
                astray += i64::from(oldest.is_some());
                continue;
            }
            desired += 1;
            let Some(pod) = oldest else { continue };
            current += 1;
            let from = pods::available_from(pod, least);
            ready += i64::from(from.is_some());
            available += i64::from(from.is_some_and(|from| from <= desk.now()));
            updated += i64::from(self.is_current(pod));
        }
        let map = meta::map_mut(status);
        map.insert("observedGeneration".into(), meta::field(self.set, "generation").clone());
        for (name, count) in [
            ("desiredNumberScheduled", desired),
            ("currentNumberScheduled", current),
            ("numberMisscheduled", astray),
            ("numberReady", ready),
        ] {
            map.insert(name.into(), count.into());
        }
        for (name, count) in [
            ("updatedNumberScheduled", updated),
            ("numberAvailable", available),
            ("numberUnavailable", desired - available),
        ] {
            if count > 0 {
                map.insert(name.into(), count.into());
            } else {
                map.remove(name);
            }
        }
    }
}

/// The node a pod is on, or the one its affinity names.
fn target(pod: &Value) -> &str {
    let node = pods::node_name(pod);
    if !node.is_empty() {
        return node;
    }
    let terms = meta::at(
        pod,
        &[
            "spec",
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        ],
    );
    terms[0]["matchFields"][0]["values"][0].as_str().unwrap_or_default()
}

/// Daemons stay where others are driven out: what the real controller adds to each of their pods.
fn add_tolerations(template: &mut Value) {
    let host_network = template["spec"]["hostNetwork"] == true;
    let spec = meta::object_mut(template, "spec");
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for (key, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ] {
        if key == "network-unavailable" && !host_network {
            continue;
        }
        let toleration = json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect });
        if !list.contains(&toleration) {
            list.push(toleration);
        }
    }
}
