//! What a cluster adds to objects that are handed to it, done for objects that only stand in a file.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{
            Affinity, Namespace, PersistentVolumeClaim, Pod, PodAffinityTerm, PodCondition,
        },
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement,
};
use kerf_api::{
    NodePool, ObjectExt,
    conditions::{Conditioned, READY, VALIDATION_SUCCEEDED},
    labels::LabelRules,
    validation::validate_node_pool,
};
use kerf_model::pod::with_limits_as_requests;
use kube_core::ResourceExt;

use kerf_cluster::Cluster;

/// On the storage class that claims get when they name none.
pub(super) const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// A pool that no operator has looked at gets the verdict that ours would give. Its NodeClass is taken for granted.
pub(super) fn pool(pool: &NodePool, rules: &LabelRules, now: Timestamp) -> Option<NodePool> {
    if pool.condition(READY).is_some() {
        return None;
    }
    let mut judged = pool.clone();
    let mut conditions = judged.condition_set(now);
    match validate_node_pool(pool, rules) {
        Ok(()) => conditions.set_true(READY),
        Err(invalid) => {
            let message = invalid.to_string();
            conditions.set_false(VALIDATION_SUCCEEDED, "NodePoolValidationFailed", &message);
            conditions.set_false(READY, "NodePoolValidationFailed", &message)
        }
    };
    Some(judged)
}

/// Requests follow from limits, and affinity terms take values from the pod's own labels. A pending pod that
/// kube-scheduler has not looked at counts as one that it found no place for.
pub(super) fn pod(pod: &mut Pod) {
    let labels = pod.labels().clone();
    if let Some(spec) = &mut pod.spec {
        with_limits_as_requests(spec);
        for term in spec.affinity.iter_mut().flat_map(terms) {
            with_own_values(term, &labels);
        }
    }
    if awaits_a_verdict(pod) {
        let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions.push(PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("Unschedulable".to_owned()),
            ..PodCondition::default()
        });
    }
}

fn terms(affinity: &mut Affinity) -> impl Iterator<Item = &mut PodAffinityTerm> {
    let together = affinity.pod_affinity.iter_mut().map(|affinity| {
        let required = &mut affinity.required_during_scheduling_ignored_during_execution;
        (required, &mut affinity.preferred_during_scheduling_ignored_during_execution)
    });
    let apart = affinity.pod_anti_affinity.iter_mut().map(|affinity| {
        let required = &mut affinity.required_during_scheduling_ignored_during_execution;
        (required, &mut affinity.preferred_during_scheduling_ignored_during_execution)
    });
    together.chain(apart).flat_map(|(required, preferred)| {
        let preferred = preferred.iter_mut().flatten().map(|it| &mut it.pod_affinity_term);
        required.iter_mut().flatten().chain(preferred)
    })
}

/// `matchLabelKeys` and `mismatchLabelKeys` become part of the selector. In a pod that has been through an API server
/// they are already.
fn with_own_values(term: &mut PodAffinityTerm, labels: &BTreeMap<String, String>) {
    let same = term.match_label_keys.iter().flatten().map(|key| (key, "In"));
    let other = term.mismatch_label_keys.iter().flatten().map(|key| (key, "NotIn"));
    let Some(selector) = &mut term.label_selector else { return };
    for (key, operator) in same.chain(other) {
        let Some(value) = labels.get(key) else { continue };
        let expression = LabelSelectorRequirement {
            key: key.clone(),
            operator: operator.to_owned(),
            values: Some(vec![value.clone()]),
        };
        let expressions = selector.match_expressions.get_or_insert_default();
        if !expressions.contains(&expression) {
            expressions.push(expression);
        }
    }
}

/// Gated pods wait for somebody to open the gate, and nobody plans for them before.
fn awaits_a_verdict(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|g| !g.is_empty());
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let judged = conditions.into_iter().any(|condition| condition.type_ == "PodScheduled");
    !gates
        && !judged
        && spec.and_then(|spec| spec.node_name.as_deref()).is_none_or(str::is_empty)
        && !pod.is_deleting()
        && phase.is_none_or(|phase| phase == "Pending")
}

/// Claims without a class get the default one, where there is one.
pub(super) fn storage_classes(cluster: &mut Cluster) {
    let is_default = |class: &StorageClass| {
        class.annotations().get(IS_DEFAULT_CLASS).is_some_and(|value| value == "true")
    };
    // Of several the newest is the default.
    let default = cluster.storage_classes().values().filter(|class| is_default(class));
    let default = default.max_by_key(|class| class.creation_timestamp()).map(|it| it.name_any());
    let Some(default) = default else { return };
    let bare = |claim: &PersistentVolumeClaim| {
        let spec = claim.spec.as_ref();
        spec.is_none_or(|it| it.storage_class_name.is_none() && it.volume_name.is_none())
    };
    let bare: Vec<_> =
        cluster.volume_claims().values().filter(|claim| bare(claim)).cloned().collect();
    for claim in bare {
        let mut claim = PersistentVolumeClaim::clone(&claim);
        claim.spec.get_or_insert_default().storage_class_name = Some(default.clone());
        cluster.apply(claim);
    }
}

/// A claim that nobody has looked at gets the volume that it names, if that is there.
pub(super) fn bind_claims(cluster: &mut Cluster) {
    let is_new = |claim: &PersistentVolumeClaim| {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
        claim.status.is_none() && volume.is_some_and(|it| cluster.volumes().named(it).is_some())
    };
    let new: Vec<_> = cluster.volume_claims().values().filter(|it| is_new(it)).cloned().collect();
    for claim in new {
        let mut claim = PersistentVolumeClaim::clone(&claim);
        claim.status.get_or_insert_default().phase = Some("Bound".to_owned());
        cluster.apply(claim);
    }
}

/// Every namespace carries its name as a label, and pods do not exist outside of one.
pub(super) fn namespaces(cluster: &mut Cluster) {
    let written = cluster.namespaces().iter().map(|(key, _)| key.name.clone());
    let lived_in = cluster.pods().iter().map(|(key, _)| key.namespace.clone());
    let names: BTreeSet<String> = written.chain(lived_in).collect();
    for name in names {
        let known = cluster.namespaces().named(&name);
        let mut namespace = known.map_or_else(Namespace::default, |it| Namespace::clone(it));
        namespace.metadata.name = Some(name.clone());
        namespace.labels_mut().insert("kubernetes.io/metadata.name".to_owned(), name);
        cluster.apply(namespace);
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use kerf_cluster::pods;
    use serde_json::{Value, json};

    fn completed(spec: &Value, status: &Value) -> Pod {
        let metadata = json!({"name": "p", "namespace": "ns", "labels": {"app": "a"}});
        let mut completed =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
                .unwrap();
        pod(&mut completed);
        completed
    }

    #[test]
    fn pending_pods_that_nobody_has_looked_at_are_to_be_placed() {
        let scheduled = |reason: &str| json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}]});
        let cases = [
            (json!({}), json!({}), true),
            (json!({}), json!({"phase": "Pending"}), true),
            (json!({}), scheduled("Unschedulable"), true),
            (json!({}), scheduled("SchedulingGated"), false),
            (json!({"schedulingGates": [{"name": "wait"}]}), json!({}), false),
            (json!({"nodeName": "n"}), json!({"phase": "Pending"}), false),
            (json!({}), json!({"phase": "Succeeded"}), false),
        ];
        for (spec, status, expected) in cases {
            let pod = completed(&spec, &status);
            assert_eq!(pods::is_provisionable(&pod.into()), expected, "{spec} {status}");
        }
    }

    #[test]
    fn limits_become_requests() {
        let spec = json!({"containers": [{"name": "c", "resources":
            {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}]});
        let pod = completed(&spec, &json!({}));
        let requests = pod.spec.unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
        assert_eq!((requests["cpu"].0.as_str(), requests["memory"].0.as_str()), ("1", "1Gi"));
    }

    #[test]
    fn affinity_terms_take_values_from_the_pod_once() {
        let term =
            json!({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["app", "none"]});
        let spec = json!({"affinity": {"podAntiAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        let mut once = completed(&spec, &json!({}));
        let twice = once.clone();
        pod(&mut once);
        assert_eq!(once, twice);
        let spec = serde_json::to_value(once.spec.unwrap()).unwrap();
        let selector = &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            [0]["labelSelector"];
        let own = json!({"key": "app", "operator": "In", "values": ["a"]});
        assert_eq!(selector, &json!({"matchExpressions": [own]}));
    }
}
