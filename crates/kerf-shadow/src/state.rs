//! What is known of a cluster: by it, changes are told from repetitions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    entry::{ObjectKey, Pod, What, Workload},
    slim::{self, Owner, SeenPod},
};

/// The size of it is that of the cluster: what is gone is forgotten.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    objects: BTreeMap<ObjectKey, Value>,
    pods: BTreeMap<String, Pod>,
    workloads: BTreeMap<u32, Workload>,
    /// By owner and what its pods look like.
    known: BTreeMap<(Owner, String), u32>,
    last_workload: u32,
}

impl State {
    /// Takes note of a pod; says what is to be written down.
    pub(crate) fn see_pod(&mut self, seen: SeenPod) -> Vec<What> {
        let mut news = Vec::new();
        // What a pod is does not change, and one that is known is not compared with all others.
        let of = match self.pods.get(&seen.id) {
            Some(known) => known.of,
            None => self.workload(seen.owner, seen.pod, &mut news),
        };
        let SeenPod { id, node, phase, leaves, evicted, .. } = seen;
        let pod = Pod { id, of, node, phase, leaves, evicted };
        if self.pods.get(&pod.id) != Some(&pod) {
            self.pods.insert(pod.id.clone(), pod.clone());
            news.push(What::Pod(pod));
        }
        news
    }

    pub(crate) fn lose_pod(&mut self, id: &str) -> Option<What> {
        self.pods.remove(id).map(|pod| What::PodGone(pod.id))
    }

    pub(crate) fn see_object(&mut self, object: Value) -> Option<What> {
        let key = ObjectKey::of(&object);
        let differs = self.objects.get(&key).is_none_or(|before| slim::differ(before, &object));
        if !differs {
            return None;
        }
        self.objects.insert(key, object.clone());
        Some(What::Object(object))
    }

    pub(crate) fn lose_object(&mut self, key: &ObjectKey) -> Option<What> {
        self.objects.remove(key).map(|_| What::ObjectGone(key.clone()))
    }

    /// The pods that are not among these.
    pub(crate) fn pods_beside(&self, listed: &BTreeSet<String>) -> Vec<String> {
        self.pods.keys().filter(|id| !listed.contains(*id)).cloned().collect()
    }

    /// The objects of a kind that are not among these.
    pub(crate) fn objects_beside(
        &self,
        kind: &str,
        listed: &BTreeSet<ObjectKey>,
    ) -> Vec<ObjectKey> {
        let of_kind = self.objects.keys().filter(|key| key.kind == kind);
        of_kind.filter(|key| !listed.contains(*key)).cloned().collect()
    }

    /// Everything there is, in an order in which it can be read. Workloads without pods are forgotten.
    pub(crate) fn base(&mut self) -> Vec<What> {
        let used: BTreeSet<u32> = self.pods.values().map(|pod| pod.of).collect();
        self.workloads.retain(|id, _| used.contains(id));
        self.known.retain(|_, id| used.contains(id));
        let objects = self.objects.values().cloned().map(What::Object);
        let workloads = self.workloads.values().cloned().map(What::Workload);
        let pods = self.pods.values().cloned().map(What::Pod);
        let all = objects.chain(workloads).chain(pods);
        [What::BaseBegins].into_iter().chain(all).chain([What::BaseEnds]).collect()
    }

    /// Takes over what a record says.
    pub(crate) fn apply(&mut self, what: What) {
        match what {
            What::Workload(workload) => {
                let owner = Owner {
                    namespace: workload.namespace.clone(),
                    kind: workload.kind.clone(),
                    name: workload.name.clone(),
                };
                self.known.insert((owner, workload.pod.to_string()), workload.id);
                self.last_workload = self.last_workload.max(workload.id);
                self.workloads.insert(workload.id, workload);
            }
            What::Pod(pod) => drop(self.pods.insert(pod.id.clone(), pod)),
            What::PodGone(id) => drop(self.pods.remove(&id)),
            What::Object(object) => drop(self.objects.insert(ObjectKey::of(&object), object)),
            What::ObjectGone(key) => drop(self.objects.remove(&key)),
            What::BaseBegins | What::BaseEnds | What::Alive | What::Blind(_) => {}
        }
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.pods.len(), self.objects.len())
    }

    fn workload(&mut self, owner: Owner, pod: Value, news: &mut Vec<What>) -> u32 {
        // Objects are ordered by key, so that pods that are alike look alike.
        let key = (owner, pod.to_string());
        if let Some(id) = self.known.get(&key) {
            return *id;
        }
        self.last_workload += 1;
        let Owner { namespace, kind, name } = key.0.clone();
        let workload = Workload { id: self.last_workload, namespace, kind, name, pod };
        self.known.insert(key, workload.id);
        self.workloads.insert(workload.id, workload.clone());
        news.push(What::Workload(workload));
        self.last_workload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Phase;
    use serde_json::json;

    fn pod(id: &str, owner: &str, cpu: &str, phase: Phase) -> SeenPod {
        SeenPod {
            id: id.into(),
            owner: Owner { namespace: "d".into(), kind: "ReplicaSet".into(), name: owner.into() },
            pod: json!({"spec": {"cpu": cpu}}),
            node: String::new(),
            phase,
            leaves: false,
            evicted: None,
        }
    }

    #[test]
    fn only_what_is_new_is_written_down() {
        let mut state = State::default();
        let written = |news: Vec<What>| {
            news.iter()
                .map(|what| match what {
                    What::Workload(one) => format!("workload {}", one.id),
                    What::Pod(one) => format!("pod {} of {}", one.id, one.of),
                    other => format!("{other:?}"),
                })
                .collect::<Vec<_>>()
                .join(", ")
        };
        for (seen, expected) in [
            (pod("a", "web", "1", Phase::Pending), "workload 1, pod a of 1"),
            (pod("a", "web", "1", Phase::Pending), ""),
            (pod("a", "web", "1", Phase::Running), "pod a of 1"),
            (pod("b", "web", "1", Phase::Pending), "pod b of 1"),
            (pod("c", "web", "2", Phase::Pending), "workload 2, pod c of 2"),
            (pod("a", "web", "9", Phase::Running), ""),
        ] {
            assert_eq!(written(state.see_pod(seen.clone())), expected, "{seen:?}");
        }
        assert_eq!(state.lose_pod("c"), Some(What::PodGone("c".into())));
        assert_eq!(state.lose_pod("c"), None);
        assert_eq!(state.pods_beside(&BTreeSet::from(["a".to_owned()])), ["b"]);
    }

    #[test]
    fn a_base_says_all_and_forgets_what_has_no_pods() {
        let mut state = State::default();
        state.see_pod(pod("a", "web", "1", Phase::Running));
        state.see_pod(pod("b", "api", "1", Phase::Running));
        state.see_object(json!({"kind": "NodePool", "metadata": {"name": "p"}}));
        state.lose_pod("b");
        let base = state.base();
        assert_eq!(base.len(), 5, "{base:?}");
        let mut read = State::default();
        for what in base {
            read.apply(what);
        }
        // An identity that is free again may be given again.
        assert_eq!(State { last_workload: 2, ..read }, state);
    }
}
