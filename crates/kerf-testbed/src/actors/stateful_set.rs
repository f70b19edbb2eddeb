//! `StatefulSet`s: pods with names, one after the other.

use super::Controller;
use super::desk::{CLAIMS, Deletion, Desk, PODS, Refusal, STATEFUL_SETS};
use super::pods::{self, Children};
use super::queue::Queue;
use crate::api::{Object, Seen, meta};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const HASH: &str = "controller-revision-hash";

#[derive(Debug, Default)]
pub(super) struct StatefulSets {
    pods: Children,
}

impl Controller for StatefulSets {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[("apps", "statefulsets"), ("", "pods")]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        if seen.is("apps", "statefulsets") {
            queue.add(seen.key.clone());
            return;
        }
        let owners = self.pods.see(seen).into_iter();
        owners.filter(|(kind, _)| kind == STATEFUL_SETS.name).for_each(|(_, key)| queue.add(key));
    }

    fn reconcile(&mut self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let Some(set) = desk.get(STATEFUL_SETS, key) else { return Ok(()) };
        let row = Row::new(&set.value, self.pods.of(&set.value));
        let mut failure = None;
        if !meta::is_deleting(&set.value) {
            failure = row.advance(key, queue, desk).err();
        }
        desk.change_status(STATEFUL_SETS, &set, |status| row.report(status, desk))?;
        failure.map_or(Ok(()), Err)
    }
}

/// The pods of a set, by ordinal.
struct Row<'a> {
    set: &'a Value,
    first: i64,
    wanted: i64,
    revision: String,
    pods: BTreeMap<i64, Arc<Object>>,
}

impl<'a> Row<'a> {
    fn new(set: &'a Value, pods: Vec<Arc<Object>>) -> Self {
        let ordinal = |pod: &Arc<Object>| -> Option<i64> {
            let name = meta::name(&pod.value);
            name.strip_prefix(meta::name(set))?.strip_prefix('-')?.parse().ok()
        };
        Self {
            set,
            first: meta::at(set, &["spec", "ordinals", "start"]).as_i64().unwrap_or(0),
            wanted: set["spec"]["replicas"].as_i64().unwrap_or(1),
            revision: format!(
                "{}-{}",
                meta::name(set),
                pods::template_hash(&set["spec"]["template"])
            ),
            pods: pods.into_iter().filter_map(|pod| Some((ordinal(&pod)?, pod))).collect(),
        }
    }

    fn least(&self) -> i64 {
        self.set["spec"]["minReadySeconds"].as_i64().unwrap_or(0)
    }

    fn advance(&self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let in_order = self.set["spec"]["podManagementPolicy"] != "Parallel";
        let ordinals = self.first..self.first + self.wanted;
        for ordinal in ordinals.clone() {
            let Some(pod) = self.pods.get(&ordinal) else {
                self.create(key, ordinal, desk)?;
                if in_order {
                    return Ok(());
                }
                continue;
            };
            if pods::is_finished(&pod.value) {
                if !meta::is_deleting(&pod.value) {
                    desk.delete(PODS, &pod.value, Deletion::Background)?;
                }
                return Ok(());
            }
            if in_order && !self.serves(&pod.value, key, queue, desk) {
                return Ok(());
            }
        }
        // From the end: those that are too many, each once the one before it is gone.
        let surplus = self.pods.iter().rev().filter(|(ordinal, _)| !ordinals.contains(ordinal));
        for (_, pod) in surplus {
            if meta::is_deleting(&pod.value) {
                if in_order {
                    return Ok(());
                }
                continue;
            }
            desk.delete(PODS, &pod.value, Deletion::Background)?;
            if in_order {
                return Ok(());
            }
        }
        self.update(key, queue, desk)
    }

    /// Replaces the last pod of a former template, once all after it serve.
    fn update(&self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let strategy = &self.set["spec"]["updateStrategy"];
        if strategy["type"] == "OnDelete" {
            return Ok(());
        }
        let partition = strategy["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
        let from = self.first + partition;
        for (_, pod) in self.pods.range(from..).rev() {
            if !self.is_current(&pod.value) && !meta::is_deleting(&pod.value) {
                return desk.delete(PODS, &pod.value, Deletion::Background);
            }
            if !self.serves(&pod.value, key, queue, desk) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn serves(&self, pod: &Value, key: &str, queue: &mut Queue, desk: &Desk) -> bool {
        if meta::is_deleting(pod) || pods::phase(pod) != "Running" {
            return false;
        }
        match pods::available_from(pod, self.least()) {
            Some(from) if from > desk.now() => {
                queue.add_at(from, key);
                false
            }
            from => from.is_some(),
        }
    }

    fn is_current(&self, pod: &Value) -> bool {
        meta::at(pod, &["metadata", "labels", HASH]) == self.revision.as_str()
    }

    fn create(&self, key: &str, ordinal: i64, desk: &Desk) -> Result<(), Refusal> {
        let (namespace, set) = (meta::namespace(self.set), meta::name(self.set));
        let name = format!("{set}-{ordinal}");
        let mut pod = pods::from_template(STATEFUL_SETS, self.set, &self.set["spec"]["template"]);
        meta::set(&mut pod, "name", name.clone());
        let metadata = meta::map_mut(&mut pod).entry("metadata").or_insert(Value::Null);
        let labels = meta::object_mut(metadata, "labels");
        labels.insert(HASH.into(), self.revision.clone().into());
        labels.insert("statefulset.kubernetes.io/pod-name".into(), name.clone().into());
        labels.insert("apps.kubernetes.io/pod-index".into(), ordinal.to_string().into());
        let spec = meta::object_mut(&mut pod, "spec");
        spec.insert("hostname".into(), name.clone().into());
        if let Some(service) = self.set["spec"]["serviceName"].as_str() {
            spec.insert("subdomain".into(), service.into());
        }
        for template in self.set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
            let volume = meta::name(template);
            let claim = format!("{volume}-{name}");
            let mut made = json!({ "metadata": template["metadata"], "spec": template["spec"] });
            meta::set(&mut made, "name", claim.clone());
            match desk.create(CLAIMS, namespace, &made) {
                Err(refusal) if !refusal.is_overtaken() => return Err(refusal),
                _ => {}
            }
            let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
            if let Some(volumes) = volumes.as_array_mut() {
                volumes.retain(|known| known["name"] != volume);
                volumes.push(
                    json!({ "name": volume, "persistentVolumeClaim": { "claimName": claim } }),
                );
            }
        }
        match desk.create_pods(key, [pod]) {
            // The pod of that name is not gone yet, or not ours: its end will be heard of.
            Err(refusal) if !refusal.is_overtaken() => Err(refusal),
            _ => Ok(()),
        }
    }

    fn report(&self, status: &mut Value, desk: &Desk) {
        let number = |test: &dyn Fn(&Value) -> bool| {
            self.pods.values().filter(|pod| test(&pod.value)).count()
        };
        let least = self.least();
        let (now, total) = (desk.now(), self.pods.len());
        let updated = number(&|pod| self.is_current(pod) && pods::is_active(pod));
        let map = meta::map_mut(status);
        map.insert("observedGeneration".into(), meta::field(self.set, "generation").clone());
        map.insert("replicas".into(), total.into());
        let available =
            number(&|pod| pods::available_from(pod, least).is_some_and(|from| from <= now));
        map.insert("availableReplicas".into(), available.into());
        let ready = number(&|pod| pods::is_ready(pod));
        let settled = updated == total && ready == total;
        let former = map.get("currentRevision").and_then(Value::as_str).map(str::to_owned);
        let former = former.filter(|_| !settled).unwrap_or_else(|| self.revision.clone());
        let current = number(&|pod| {
            meta::at(pod, &["metadata", "labels", HASH]) == former.as_str() && pods::is_active(pod)
        });
        for (name, count) in
            [("readyReplicas", ready), ("updatedReplicas", updated), ("currentReplicas", current)]
        {
            if count > 0 {
                map.insert(name.into(), count.into());
            } else {
                map.remove(name);
            }
        }
        map.insert("updateRevision".into(), self.revision.clone().into());
        map.entry("collisionCount").or_insert_with(|| 0.into());
        map.insert("currentRevision".into(), former.into());
    }
}
