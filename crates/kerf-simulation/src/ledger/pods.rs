//! Pods, and what they went through.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use kerf_model::{Resources, pod};
use serde_json::Value;

use super::{condition, text};

/// Two restarts within this time are once too often.
const TOO_SOON_MS: i64 = 60 * 60 * 1000;

#[derive(Clone, Debug, Default)]
pub(super) struct Pods {
    all: BTreeMap<String, Pod>,
    /// By node, its pods.
    bound: BTreeMap<String, BTreeSet<String>>,
    /// By owner, the stories of evicted pods whose successors are still to come.
    orphaned: BTreeMap<String, VecDeque<Story>>,
    pending: usize,
    running: usize,
    /// By how many milliseconds it took from the creation of a pod until it ran.
    waits: BTreeMap<i64, u64>,
}

#[derive(Clone, Debug)]
struct Pod {
    uid: String,
    created: Timestamp,
    owner: String,
    /// Pods of daemons come and go with their node, so what happens to them says nothing.
    is_daemon: bool,
    node: String,
    requests: Resources,
    phase: Phase,
    evicted: bool,
    story: Story,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Pending,
    Running,
    Ended,
}

/// What a pod has been through, together with those whose place it took.
#[derive(Clone, Copy, Debug, Default)]
struct Story {
    restarted: Option<Timestamp>,
    too_often: bool,
}

/// What a change of a pod means to others.
#[derive(Debug, Default)]
pub(super) struct PodChange {
    /// On which of them something is different.
    pub(super) nodes: Vec<String>,
    pub(super) started: bool,
    pub(super) evicted: bool,
    pub(super) restarted_often: bool,
}

impl Pods {
    pub(super) fn running(&self) -> usize {
        self.running
    }

    pub(super) fn waits(&self) -> &BTreeMap<i64, u64> {
        &self.waits
    }

    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// What the pods on a node ask for, and how many they are, those of daemons not counted.
    pub(super) fn on(&self, node: &str) -> (Resources, usize) {
        let (mut requested, mut count) = (Resources::new(), 0);
        for pod in self.bound.get(node).into_iter().flatten().filter_map(|key| self.all.get(key)) {
            requested.add(&pod.requests);
            count += usize::from(!pod.is_daemon);
        }
        (requested, count)
    }

    pub(super) fn see(
        &mut self,
        key: &str,
        object: &Value,
        gone: bool,
        now: Timestamp,
    ) -> PodChange {
        let mut change = PodChange::default();
        if self.all.get(key).is_some_and(|known| known.uid != text(object, "/metadata/uid")) {
            self.forget(key, &mut change);
        }
        if !self.all.contains_key(key) {
            let pod = self.meet(object, now);
            self.all.insert(key.to_owned(), pod);
        }
        self.update(key, object, now, &mut change);
        if gone {
            self.forget(key, &mut change);
        }
        change
    }

    /// A pod that was not there before, which may take the place of one that was evicted.
    fn meet(&mut self, object: &Value, now: Timestamp) -> Pod {
        let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        let owner_text = |field: &str| {
            owner.and_then(|owner| owner[field].as_str()).unwrap_or_default().to_owned()
        };
        let uid = owner_text("uid");
        let story = self.orphaned.get_mut(&uid).and_then(VecDeque::pop_front).unwrap_or_default();
        let spec = object.get("spec").cloned().map(serde_json::from_value::<PodSpec>);
        let requests = spec.and_then(Result::ok).map(|spec| pod::requests(&spec, None));
        let pod = Pod {
            uid: text(object, "/metadata/uid").to_owned(),
            created: now,
            owner: uid,
            is_daemon: owner_text("kind") == "DaemonSet",
            node: String::new(),
            requests: requests.and_then(Result::ok).unwrap_or_default(),
            phase: Phase::Pending,
            evicted: false,
            story,
        };
        self.pending += usize::from(!pod.is_daemon);
        pod
    }

    fn update(&mut self, key: &str, object: &Value, now: Timestamp, change: &mut PodChange) {
        let Some(pod) = self.all.get_mut(key) else { return };
        let node = text(object, "/spec/nodeName");
        if pod.node.is_empty() && !node.is_empty() && pod.phase != Phase::Ended {
            node.clone_into(&mut pod.node);
            self.bound.entry(node.to_owned()).or_default().insert(key.to_owned());
            change.nodes.push(node.to_owned());
        }
        let evicted = condition(object, "DisruptionTarget").is_some();
        if evicted && !pod.evicted && !pod.is_daemon {
            pod.evicted = true;
            change.evicted = true;
            // When it is seen may be a millisecond later, and then what is on the edge is once in and once out.
            let now = evicted_at(object).unwrap_or(now);
            let soon =
                |then: Timestamp| now.as_millisecond() - then.as_millisecond() <= TOO_SOON_MS;
            if pod.story.restarted.is_some_and(soon) && !pod.story.too_often {
                pod.story.too_often = true;
                change.restarted_often = true;
            }
            pod.story.restarted = Some(now);
            self.orphaned.entry(pod.owner.clone()).or_default().push_back(pod.story);
        }
        let phase = match text(object, "/status/phase") {
            "Running" => Phase::Running,
            "Succeeded" | "Failed" => Phase::Ended,
            _ if !text(object, "/metadata/deletionTimestamp").is_empty() => Phase::Ended,
            _ => Phase::Pending,
        };
        if phase != pod.phase {
            change.started = phase == Phase::Running && !pod.is_daemon;
            if change.started {
                let waited = now.as_millisecond() - pod.created.as_millisecond();
                *self.waits.entry(waited).or_default() += 1;
            }
            if !pod.is_daemon {
                self.pending -= usize::from(pod.phase == Phase::Pending);
                self.running -= usize::from(pod.phase == Phase::Running);
                self.pending += usize::from(phase == Phase::Pending);
                self.running += usize::from(phase == Phase::Running);
            }
            pod.phase = phase;
            if phase == Phase::Ended {
                self.unbind(key, change);
            }
        }
    }

    fn forget(&mut self, key: &str, change: &mut PodChange) {
        self.unbind(key, change);
        let Some(pod) = self.all.remove(key).filter(|pod| !pod.is_daemon) else { return };
        self.pending -= usize::from(pod.phase == Phase::Pending);
        self.running -= usize::from(pod.phase == Phase::Running);
    }

    fn unbind(&mut self, key: &str, change: &mut PodChange) {
        let Some(pod) = self.all.get_mut(key) else { return };
        let node = std::mem::take(&mut pod.node);
        if let Some(bound) = self.bound.get_mut(&node) {
            bound.remove(key);
            if bound.is_empty() {
                self.bound.remove(&node);
            }
            change.nodes.push(node);
        }
    }
}

fn evicted_at(pod: &Value) -> Option<Timestamp> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    let target = conditions.iter().find(|one| one["type"] == "DisruptionTarget")?;
    target["lastTransitionTime"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, node: &str, phase: &str, evicted: bool) -> Value {
        let conditions = if evicted {
            json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}])
        } else {
            json!([])
        };
        json!({
            "metadata": {"uid": uid, "ownerReferences": [{"kind": "ReplicaSet", "uid": "r", "controller": true}]},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}],
            },
            "status": {"phase": phase, "conditions": conditions},
        })
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    #[test]
    fn a_pod_counts_where_it_is_and_as_what_it_is() {
        let mut pods = Pods::default();
        pods.see("d/a", &pod("1", "", "Pending", false), false, at(0));
        assert_eq!((pods.pending(), pods.running()), (1, 0));
        let change = pods.see("d/a", &pod("1", "n", "Running", false), false, at(1));
        assert_eq!((change.started, change.nodes), (true, vec!["n".to_owned()]));
        assert_eq!(pods.waits, [(60_000, 1)].into());
        let (requested, count) = pods.on("n");
        assert_eq!((requested.amount("cpu").to_string(), count), ("500m".into(), 1));
        pods.see("d/a", &pod("1", "n", "Succeeded", false), false, at(2));
        assert_eq!((pods.pending(), pods.running(), pods.on("n").1), (0, 0, 0));
        pods.see("d/a", &pod("1", "n", "Succeeded", false), true, at(3));
        assert!(pods.all.is_empty() && pods.bound.is_empty());
    }

    #[test]
    fn a_pod_whose_predecessor_was_just_evicted_is_restarted_too_often() {
        for (minutes, often) in [(30, true), (60, true), (61, false)] {
            let mut pods = Pods::default();
            pods.see("d/a", &pod("1", "n", "Running", false), false, at(0));
            let first = pods.see("d/a", &pod("1", "n", "Running", true), false, at(10));
            assert_eq!((first.evicted, first.restarted_often), (true, false));
            pods.see("d/a", &pod("1", "n", "Running", true), true, at(10));
            pods.see("d/b", &pod("2", "m", "Running", false), false, at(10));
            let second = pods.see("d/b", &pod("2", "m", "Running", true), false, at(10 + minutes));
            assert_eq!(
                (second.evicted, second.restarted_often),
                (true, often),
                "{minutes} minutes"
            );
            let again = pods.see("d/b", &pod("2", "m", "Running", true), false, at(11 + minutes));
            assert!(!again.evicted, "an eviction is counted once");
        }
    }
}
