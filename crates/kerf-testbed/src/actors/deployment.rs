//! `Deployment`s: one `ReplicaSet` per template, and the way from one to the next.

use super::Controller;
use super::desk::{DEPLOYMENTS, Deletion, Desk, REPLICA_SETS, Refusal};
use super::pods::{self, Children};
use super::queue::Queue;
use crate::api::{Object, Seen, meta};
use serde_json::{Value, json};
use std::sync::Arc;

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

#[derive(Debug, Default)]
pub(super) struct Deployments {
    sets: Children,
    pods: Children,
}

impl Controller for Deployments {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[("apps", "deployments"), ("apps", "replicasets"), ("", "pods")]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        if seen.is("apps", "deployments") {
            queue.add(seen.key.clone());
        } else if seen.is("apps", "replicasets") {
            let owners = self.sets.see(seen).into_iter();
            owners.filter(|(kind, _)| kind == DEPLOYMENTS.name).for_each(|(_, key)| queue.add(key));
        } else {
            self.pods.see(seen);
            // Recreate waits for the last old pod to go; all else is told by the sets.
            if seen.gone
                && let Some((_, set, _)) = pods::controller(&seen.object.value)
                && let Some((deployment, _)) = set.rsplit_once('-')
            {
                queue.add(format!("{}/{deployment}", meta::namespace(&seen.object.value)));
            }
        }
    }

    fn reconcile(&mut self, key: &str, _: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let Some(deployment) = desk.get(DEPLOYMENTS, key) else { return Ok(()) };
        if meta::is_deleting(&deployment.value) {
            return Ok(());
        }
        let mut rollout = Rollout::new(&deployment, self.sets.of(&deployment.value));
        if deployment.value["spec"]["paused"] != true {
            if deployment.value["spec"]["strategy"]["type"] == "Recreate" {
                rollout.recreate(&self.pods, desk)?;
            } else {
                rollout.roll(desk)?;
            }
            rollout.forget_old(desk)?;
        } else if rollout.is_scaling() {
            rollout.scale_current(desk)?;
        }
        rollout.note_revision(desk)?;
        let Some(deployment) = desk.get(DEPLOYMENTS, key) else { return Ok(()) };
        let now = desk.timestamp();
        desk.change_status(DEPLOYMENTS, &deployment, |status| rollout.report(status, &now))
    }
}

/// A deployment on its way.
struct Rollout<'a> {
    deployment: &'a Value,
    wanted: i64,
    /// The set of the present template.
    new: Option<Arc<Object>>,
    /// Sets of former templates, oldest first.
    old: Vec<Arc<Object>>,
}

impl<'a> Rollout<'a> {
    fn new(deployment: &'a Object, mut sets: Vec<Arc<Object>>) -> Self {
        let deployment = &deployment.value;
        sets.sort_by_key(|set| (revision(&set.value), meta::name(&set.value).to_owned()));
        let template = &deployment["spec"]["template"];
        let at =
            sets.iter().position(|set| same_template(&set.value["spec"]["template"], template));
        let new = at.map(|at| sets.remove(at));
        let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
        Self { deployment, wanted, new, old: sets }
    }

    /// Pods over and above what is wanted, and pods that may be missing, while rolling.
    fn allowances(&self) -> (i64, i64) {
        let rolling = &self.deployment["spec"]["strategy"]["rollingUpdate"];
        let surge = share(&rolling["maxSurge"], self.wanted, true);
        let missing = share(&rolling["maxUnavailable"], self.wanted, false);
        if surge == 0 && missing == 0 { (0, 1) } else { (surge, missing) }
    }

    fn roll(&mut self, desk: &Desk) -> Result<(), Refusal> {
        let (surge, missing) = self.allowances();
        let mut new = if let Some(new) = self.new.clone() {
            new
        } else {
            let room = self.wanted + surge - total(&self.old);
            self.create(room.clamp(0, self.wanted), desk)?
        };
        if self.is_scaling() {
            return self.scale_current(desk);
        }
        let size = replicas(&new.value);
        if size > self.wanted {
            new = self.resize(&new, self.wanted, desk)?;
        } else if size < self.wanted {
            let room = self.wanted + surge - size - total(&self.old);
            if room > 0 {
                new = self.resize(&new, size + room.min(self.wanted - size), desk)?;
            }
        }
        let least = self.wanted - missing;
        let new_missing = replicas(&new.value) - count(&new.value, "availableReplicas");
        self.new = Some(new.clone());
        let mut spare = replicas(&new.value) + total(&self.old) - least - new_missing;
        // Pods that serve nobody go first: taking them away costs nothing.
        for set in self.old.clone() {
            let size = replicas(&set.value);
            let idle = (size - count(&set.value, "availableReplicas")).min(spare);
            if idle > 0 {
                let set = self.resize(&set, size - idle, desk)?;
                self.replace_old(set);
                spare -= idle;
            }
        }
        let available: i64 = self.all().map(|set| count(&set.value, "availableReplicas")).sum();
        let mut spare = spare.min(available - least);
        for set in self.old.clone() {
            let size = replicas(&set.value);
            let less = size.min(spare);
            if less > 0 {
                let set = self.resize(&set, size - less, desk)?;
                self.replace_old(set);
                spare -= less;
            }
        }
        Ok(())
    }

    fn recreate(&mut self, pods: &Children, desk: &Desk) -> Result<(), Refusal> {
        for set in self.old.clone().iter().filter(|set| replicas(&set.value) > 0) {
            let set = self.resize(set, 0, desk)?;
            self.replace_old(set);
        }
        let lingering = self
            .old
            .iter()
            .flat_map(|set| pods.of(&set.value))
            .any(|pod| !pods::is_finished(&pod.value));
        if lingering {
            return Ok(());
        }
        match self.new.clone() {
            None => self.create(self.wanted, desk).map(|_| ()),
            Some(new) if replicas(&new.value) != self.wanted => {
                self.resize(&new, self.wanted, desk).map(|_| ())
            }
            Some(_) => Ok(()),
        }
    }

    /// Someone changed the number of replicas while no set has heard of it.
    fn is_scaling(&self) -> bool {
        let noted = |set: &Arc<Object>| {
            let text = meta::text(
                &set.value,
                &["metadata", "annotations", "deployment.kubernetes.io/desired-replicas"],
            );
            text.parse::<i64>().ok()
        };
        let active = self.all().filter(|set| replicas(&set.value) > 0);
        active.filter_map(noted).any(|noted| noted != self.wanted)
    }

    /// Spreads the new number of replicas over the sets that have any, by their size.
    fn scale_current(&mut self, desk: &Desk) -> Result<(), Refusal> {
        let active: Vec<_> = self.all().filter(|set| replicas(&set.value) > 0).cloned().collect();
        let surge = if active.len() > 1 { self.allowances().0 } else { 0 };
        let allowed = if self.wanted == 0 { 0 } else { self.wanted + surge };
        let total = total(&active);
        let mut left = allowed - total;
        // The largest takes what rounding leaves over.
        let mut by_size = active;
        by_size.sort_by_key(|set| std::cmp::Reverse(replicas(&set.value)));
        let mut sizes: Vec<i64> = Vec::new();
        for set in &by_size {
            let size = replicas(&set.value);
            let part = ((size * allowed + total / 2) / total.max(1) - size)
                .clamp(left.min(0), left.max(0));
            left -= part;
            sizes.push(size + part);
        }
        if let Some(first) = sizes.first_mut() {
            *first = (*first + left).max(0);
        }
        for (set, size) in by_size.iter().zip(sizes) {
            let set = self.resize(set, size, desk)?;
            self.replace_old(set);
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.old.iter().chain(&self.new)
    }

    fn replace_old(&mut self, set: Arc<Object>) {
        let same = |known: &&mut Arc<Object>| meta::uid(&known.value) == meta::uid(&set.value);
        if let Some(known) = self.old.iter_mut().chain(&mut self.new).find(same) {
            *known = set;
        }
    }

    fn create(&mut self, size: i64, desk: &Desk) -> Result<Arc<Object>, Refusal> {
        let deployment = self.deployment;
        let hash = pods::template_hash(&deployment["spec"]["template"]);
        let mut template = deployment["spec"]["template"].clone();
        let mut selector = deployment["spec"]["selector"].clone();
        let metadata = meta::map_mut(&mut template).entry("metadata").or_insert(Value::Null);
        meta::object_mut(metadata, "labels").insert(HASH.into(), hash.clone().into());
        meta::object_mut(&mut selector, "matchLabels").insert(HASH.into(), hash.clone().into());
        let newest = self.old.last().map_or(0, |set| revision(&set.value));
        let set = json!({
            "metadata": {
                "name": format!("{}-{hash}", meta::name(deployment)),
                "labels": template["metadata"]["labels"],
                "annotations": {
                    REVISION: (newest + 1).to_string(),
                    "deployment.kubernetes.io/desired-replicas": self.wanted.to_string(),
                },
                "ownerReferences": [pods::owner_reference(DEPLOYMENTS, deployment)],
            },
            "spec": {
                "replicas": size, "selector": selector, "template": template,
                "minReadySeconds": deployment["spec"]["minReadySeconds"],
            },
        });
        let namespace = meta::namespace(deployment);
        let created = desk.create(REPLICA_SETS, namespace, &set)?;
        let key = format!("{namespace}/{}", meta::name(&created));
        let object = desk.get(REPLICA_SETS, &key);
        let object = object.unwrap_or_else(|| Arc::new(Object::detached(created, 0)));
        self.new = Some(object.clone());
        Ok(object)
    }

    fn resize(&self, set: &Object, size: i64, desk: &Desk) -> Result<Arc<Object>, Refusal> {
        let mut value = set.value.clone();
        meta::object_mut(&mut value, "spec").insert("replicas".into(), size.into());
        let metadata = meta::map_mut(&mut value).entry("metadata").or_insert(Value::Null);
        meta::object_mut(metadata, "annotations").insert(
            "deployment.kubernetes.io/desired-replicas".into(),
            self.wanted.to_string().into(),
        );
        desk.update(REPLICA_SETS, &value)?;
        let key = format!("{}/{}", meta::namespace(&value), meta::name(&value));
        Ok(desk.get(REPLICA_SETS, &key).unwrap_or_else(|| Arc::new(Object::detached(value, 0))))
    }

    /// Old sets beyond the history limit go, oldest first.
    fn forget_old(&mut self, desk: &Desk) -> Result<(), Refusal> {
        let limit = self.deployment["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let empty = |set: &&Arc<Object>| {
            replicas(&set.value) == 0
                && count(&set.value, "replicas") == 0
                && !meta::is_deleting(&set.value)
        };
        let surplus = self.old.len().saturating_sub(limit);
        for set in self.old.iter().filter(empty).take(surplus) {
            desk.delete(REPLICA_SETS, &set.value, Deletion::Background)?;
        }
        Ok(())
    }

    /// The deployment carries the revision of its present set.
    fn note_revision(&self, desk: &Desk) -> Result<(), Refusal> {
        let path = ["metadata", "annotations", REVISION];
        let Some(new) = &self.new else { return Ok(()) };
        let revision = meta::text(&new.value, &path);
        if revision.is_empty() || meta::text(self.deployment, &path) == revision {
            return Ok(());
        }
        let mut changed = self.deployment.clone();
        let annotations = meta::object_mut(&mut changed["metadata"], "annotations");
        annotations.insert(REVISION.into(), revision.into());
        desk.update(DEPLOYMENTS, &changed).map(|_| ())
    }

    fn report(&self, status: &mut Value, now: &str) {
        let sum = |field: &str| -> i64 { self.all().map(|set| count(&set.value, field)).sum() };
        let (total, available) = (sum("replicas"), sum("availableReplicas"));
        let updated = self.new.as_ref().map_or(0, |set| count(&set.value, "replicas"));
        let updated_available =
            self.new.as_ref().map_or(0, |set| count(&set.value, "availableReplicas"));
        let map = meta::map_mut(status);
        map.insert("observedGeneration".into(), meta::field(self.deployment, "generation").clone());
        for (name, count) in [
            ("replicas", total),
            ("updatedReplicas", updated),
            ("readyReplicas", sum("readyReplicas")),
            ("availableReplicas", available),
            ("unavailableReplicas", (self.wanted.max(total) - available).max(0)),
        ] {
            if count > 0 {
                map.insert(name.into(), count.into());
            } else {
                map.remove(name);
            }
        }
        let least = self.wanted - self.allowances().1;
        let condition = if available >= least {
            json!({ "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability." })
        } else {
            json!({ "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "Deployment does not have minimum availability." })
        };
        set_condition(status, condition, now);
        let done =
            updated == self.wanted && total == self.wanted && updated_available == self.wanted;
        let name = self.new.as_ref().map_or("", |set| meta::name(&set.value));
        let condition = if done {
            json!({ "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": format!("ReplicaSet {name:?} has successfully progressed.") })
        } else {
            json!({ "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": format!("ReplicaSet {name:?} is progressing.") })
        };
        set_condition(status, condition, now);
    }
}

fn total(sets: &[Arc<Object>]) -> i64 {
    sets.iter().map(|set| replicas(&set.value)).sum()
}

/// Times move only when the condition says something new.
fn set_condition(status: &mut Value, mut condition: Value, now: &str) {
    let list = status["conditions"].as_array().into_iter().flatten();
    let known = list.into_iter().find(|known| known["type"] == condition["type"]);
    let unchanged = known.is_some_and(|known| {
        ["status", "reason", "message"].iter().all(|key| known[key] == condition[key])
    });
    if !unchanged {
        condition["lastUpdateTime"] = now.into();
        pods::set_condition(status, condition, now);
    }
}

fn replicas(set: &Value) -> i64 {
    set["spec"]["replicas"].as_i64().unwrap_or(0)
}

fn count(set: &Value, field: &str) -> i64 {
    set["status"][field].as_i64().unwrap_or(0)
}

fn revision(set: &Value) -> i64 {
    meta::text(set, &["metadata", "annotations", REVISION]).parse().unwrap_or(0)
}

fn same_template(of_set: &Value, wanted: &Value) -> bool {
    let mut of_set = of_set.clone();
    let mut wanted = wanted.clone();
    for template in [&mut of_set, &mut wanted] {
        let metadata = meta::map_mut(template).entry("metadata").or_insert(Value::Null);
        meta::object_mut(metadata, "labels").remove(HASH);
        meta::map_mut(metadata).remove("creationTimestamp");
    }
    of_set == wanted
}

/// A number, or a percentage of `whole`.
pub(super) fn share(value: &Value, whole: i64, round_up: bool) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let text = value.as_str().unwrap_or_default();
    let Some(percent) = text.strip_suffix('%').and_then(|text| text.parse::<i64>().ok()) else {
        return text.parse().unwrap_or(0);
    };
    let product = percent * whole;
    if round_up { (product + 99).div_euclid(100) } else { product.div_euclid(100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_round_up_for_surge_and_down_for_absence() {
        for (value, whole, up, down) in [
            (json!(2), 10, 2, 2),
            (json!("25%"), 10, 3, 2),
            (json!("25%"), 1, 1, 0),
            (json!("0%"), 10, 0, 0),
            (json!("100%"), 3, 3, 3),
            (json!("2"), 10, 2, 2),
            (json!(null), 10, 0, 0),
        ] {
            assert_eq!(share(&value, whole, true), up, "{value} of {whole}, up");
            assert_eq!(share(&value, whole, false), down, "{value} of {whole}, down");
        }
    }
}
