//! Volumes for claims: what kube-controller-manager's binder does, and the provisioner of a CSI driver that can make
//! a volume of any size wherever a node is.

use super::Controller;
use super::desk::{CLAIMS, Deletion, Desk, NODES, Refusal, STORAGE_CLASSES, VOLUMES};
use super::pods;
use super::queue::Queue;
use crate::api::{Object, Seen, meta};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kerf_model::Resources;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where the scheduler wants a volume to be made.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const ZONE: &str = "topology.kubernetes.io/zone";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// The provisioner of classes whose volumes someone makes by hand.
const BY_HAND: &str = "kubernetes.io/no-provisioner";

/// Keys with a slash are claims, the others volumes.
#[derive(Debug, Default)]
pub(super) struct VolumeBinding {
    unbound: BTreeSet<Arc<str>>,
    /// By claim, the pods that have it mounted.
    users: BTreeMap<String, BTreeSet<Arc<str>>>,
}

impl Controller for VolumeBinding {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("", "persistentvolumeclaims"),
            ("", "persistentvolumes"),
            ("", "pods"),
            ("storage.k8s.io", "storageclasses"),
        ]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        let value = &seen.object.value;
        if seen.is("", "pods") {
            for claim in claims_of(value) {
                let users = self.users.entry(claim.clone()).or_default();
                if seen.gone || pods::is_finished(value) {
                    users.remove(&seen.key);
                    if users.is_empty() {
                        self.users.remove(&claim);
                        queue.add(claim);
                    }
                } else {
                    users.insert(seen.key.clone());
                }
            }
        } else if seen.is("", "persistentvolumeclaims") {
            let volume = meta::text(value, &["spec", "volumeName"]);
            if !volume.is_empty() {
                queue.add(volume);
            }
            let is_bound = value["status"]["phase"] == "Bound";
            if seen.gone || is_bound {
                self.unbound.remove(&seen.key);
            } else {
                self.unbound.insert(seen.key.clone());
            }
            queue.add(seen.key.clone());
        } else {
            if seen.is("", "persistentvolumes") {
                queue.add(seen.key.clone());
            }
            self.unbound.iter().for_each(|claim| queue.add(claim.clone()));
        }
    }

    fn reconcile(&mut self, key: &str, _: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        if !key.contains('/') {
            return desk.get(VOLUMES, key).map_or(Ok(()), |volume| settle(&volume, desk));
        }
        let Some(claim) = desk.get(CLAIMS, key) else { return Ok(()) };
        if meta::is_deleting(&claim.value) {
            if self.users.contains_key(key) {
                return Ok(());
            }
            return release(&claim, CLAIM_PROTECTION, CLAIMS, desk);
        }
        if claim.value["status"]["phase"] == "Bound" {
            return Ok(());
        }
        match find(&claim, desk).or_else(|| provision(&claim, desk)) {
            Some(volume) => bind(&claim, &volume, desk),
            None => desk.change_status(CLAIMS, &claim, |status| status["phase"] = "Pending".into()),
        }
    }
}

/// The claims that a pod's volumes name, as keys.
pub(super) fn claims_of(pod: &Value) -> impl Iterator<Item = String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let names = volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
    names.map(|name| format!("{}/{name}", meta::namespace(pod)))
}

pub(super) fn class_of(claim: &Value, desk: &Desk) -> Option<Arc<Object>> {
    desk.get(STORAGE_CLASSES, meta::text(claim, &["spec", "storageClassName"]))
}

/// The volume is made where the first pod goes, and not before.
pub(super) fn waits_for_pod(class: Option<&Arc<Object>>) -> bool {
    class.is_some_and(|class| class.value["volumeBindingMode"] == "WaitForFirstConsumer")
}

pub(super) fn is_made_on_demand(class: &Object) -> bool {
    class.value["provisioner"] != BY_HAND
}

/// Whether a volume belongs to a claim already, or was set aside for it.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    let uid = meta::text(reference, &["uid"]);
    reference["namespace"] == meta::namespace(claim)
        && reference["name"] == meta::name(claim)
        && (uid.is_empty() || uid == meta::uid(claim))
}

/// Whether a volume that nobody has would do for a claim.
pub(super) fn would_do(volume: &Value, claim: &Value) -> bool {
    let class = |value: &Value| meta::text(value, &["spec", "storageClassName"]).to_owned();
    let modes = volume["spec"]["accessModes"].as_array();
    let has_modes = claim["spec"]["accessModes"].as_array().into_iter().flatten();
    volume["spec"]["claimRef"].is_null()
        && !meta::is_deleting(volume)
        && class(volume) == class(claim)
        && has_modes.into_iter().all(|mode| modes.is_some_and(|modes| modes.contains(mode)))
        && storage(&claim["spec"]["resources"]["requests"])
            .fits_in(&storage(&volume["spec"]["capacity"]))
}

fn storage(amounts: &Value) -> Resources {
    let amount = Quantity(meta::text(amounts, &["storage"]).to_owned());
    let amounts = BTreeMap::from([("storage".to_owned(), amount)]);
    Resources::from_api(&amounts).unwrap_or_default()
}

/// The volume that is there for a claim: the one it names, one that was set aside, or the smallest that would do.
fn find(claim: &Object, desk: &Desk) -> Option<Arc<Object>> {
    let claim = &claim.value;
    let named = meta::text(claim, &["spec", "volumeName"]);
    if !named.is_empty() {
        let volume = desk.get(VOLUMES, named)?;
        let free = volume.value["spec"]["claimRef"].is_null();
        return (free || is_for(&volume.value, claim)).then_some(volume);
    }
    let all = desk.list(VOLUMES, "");
    if let Some(volume) = all.iter().find(|volume| is_for(&volume.value, claim)) {
        return Some(volume.clone());
    }
    if waits_for_pod(class_of(claim, desk).as_ref()) {
        return None;
    }
    let mut fitting: Vec<_> =
        all.into_iter().filter(|volume| would_do(&volume.value, claim)).collect();
    fitting.sort_by_key(|volume| {
        let size = storage(&volume.value["spec"]["capacity"]);
        (size.get("storage"), meta::name(&volume.value).to_owned())
    });
    fitting.into_iter().next()
}

/// A new volume for a claim, if its class makes volumes and the time has come.
fn provision(claim: &Object, desk: &Desk) -> Option<Arc<Object>> {
    let claim = &claim.value;
    if !meta::text(claim, &["spec", "volumeName"]).is_empty() {
        return None;
    }
    let class = class_of(claim, desk).filter(|class| is_made_on_demand(class))?;
    let node = meta::text(claim, &["metadata", "annotations", SELECTED_NODE]);
    if node.is_empty() && waits_for_pod(Some(&class)) {
        return None;
    }
    let name = format!("pvc-{}", meta::uid(claim));
    let mut spec = json!({
        "capacity": claim["spec"]["resources"]["requests"], "accessModes": claim["spec"]["accessModes"],
        "persistentVolumeReclaimPolicy": class.value["reclaimPolicy"], "volumeMode": "Filesystem",
        "storageClassName": meta::name(&class.value), "claimRef": reference(claim),
        "csi": { "driver": class.value["provisioner"], "volumeHandle": name },
    });
    let node = desk.get(NODES, node);
    let zone = node.as_ref().and_then(|node| node.value["metadata"]["labels"][ZONE].as_str());
    if let Some(zone) = zone {
        let here = json!({ "key": ZONE, "operator": "In", "values": [zone] });
        spec["nodeAffinity"] =
            json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [here] }] } });
    }
    let annotations = json!({ "pv.kubernetes.io/provisioned-by": class.value["provisioner"] });
    let volume = json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec });
    // One that is there already was made a moment ago.
    let _ = desk.create(VOLUMES, "", &volume);
    desk.get(VOLUMES, &name)
}

fn reference(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta::namespace(claim),
        "name": meta::name(claim), "uid": meta::uid(claim),
    })
}

/// Gives a volume to a claim: first the volume says so, then the claim.
fn bind(claim: &Object, volume: &Object, desk: &Desk) -> Result<(), Refusal> {
    let name = meta::name(&volume.value);
    if volume.value["spec"]["claimRef"]["uid"] != meta::uid(&claim.value) {
        reserve(&claim.value, volume, desk)?;
    }
    if let Some(volume) = desk.get(VOLUMES, name) {
        desk.change_status(VOLUMES, &volume, |status| status["phase"] = "Bound".into())?;
    }
    if claim.value["spec"]["volumeName"] != name {
        let mut changed = claim.value.clone();
        changed["spec"]["volumeName"] = name.into();
        let annotations = meta::object_mut(&mut changed["metadata"], "annotations");
        annotations.insert("pv.kubernetes.io/bind-completed".into(), "yes".into());
        desk.update(CLAIMS, &changed)?;
    }
    let key = format!("{}/{}", meta::namespace(&claim.value), meta::name(&claim.value));
    let Some(claim) = desk.get(CLAIMS, &key) else { return Ok(()) };
    desk.change_status(CLAIMS, &claim, |status| {
        *status = json!({
            "phase": "Bound", "accessModes": volume.value["spec"]["accessModes"],
            "capacity": volume.value["spec"]["capacity"],
        });
    })
}

/// Sets a volume aside for a claim.
pub(super) fn reserve(claim: &Value, volume: &Object, desk: &Desk) -> Result<(), Refusal> {
    let mut changed = volume.value.clone();
    changed["spec"]["claimRef"] = reference(claim);
    desk.update(VOLUMES, &changed).map(|_| ())
}

/// Brings a volume to where it belongs: free for a claim, or gone with the one it had.
fn settle(volume: &Object, desk: &Desk) -> Result<(), Refusal> {
    let value = &volume.value;
    let reference = &value["spec"]["claimRef"];
    let claim =
        format!("{}/{}", meta::text(reference, &["namespace"]), meta::text(reference, &["name"]));
    let claim = desk.get(CLAIMS, &claim).filter(|claim| is_for(value, &claim.value));
    if claim.is_some() {
        return Ok(());
    }
    if meta::is_deleting(value) {
        return release(volume, VOLUME_PROTECTION, VOLUMES, desk);
    }
    let was_bound = value["status"]["phase"] == "Bound";
    let phase = if reference.is_null() { "Available" } else { "Released" };
    // One that is set aside for a claim to come is neither.
    if reference.is_null() || was_bound {
        desk.change_status(VOLUMES, volume, |status| status["phase"] = phase.into())?;
    }
    if was_bound && value["spec"]["persistentVolumeReclaimPolicy"] == "Delete" {
        return desk.delete(VOLUMES, value, Deletion::Background);
    }
    Ok(())
}

fn release(
    object: &Object,
    finalizer: &str,
    kind: super::desk::Kind,
    desk: &Desk,
) -> Result<(), Refusal> {
    let kept: Vec<&str> =
        meta::finalizers(&object.value).into_iter().filter(|one| *one != finalizer).collect();
    if kept.len() == meta::finalizers(&object.value).len() {
        return Ok(());
    }
    let mut changed = object.value.clone();
    meta::set(&mut changed, "finalizers", json!(kept));
    match desk.update(kind, &changed) {
        Err(refusal) if !refusal.is_overtaken() => Err(refusal),
        _ => Ok(()),
    }
}
