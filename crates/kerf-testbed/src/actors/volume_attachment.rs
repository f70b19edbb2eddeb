//! Volumes on nodes: attached where a pod needs them, detached once none does.

use super::Controller;
use super::desk::{ATTACHMENTS, CLAIMS, Deletion, Desk, Refusal, VOLUMES};
use super::pods;
use super::queue::Queue;
use super::volume_binding::claims_of;
use crate::api::{Object, Seen, meta};
use crate::log::digest;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// On a `VolumeAttachment` or a `PersistentVolume`: it does not come off its node.
pub const NEVER_DETACHES: &str = "testbed.kerf.sh/never-detaches";

/// From the end of the last pod that needs it until a volume is off its node.
const DETACHING: SignedDuration = SignedDuration::from_secs(1);

/// By node: its attachments and the pods that need volumes there.
#[derive(Debug, Default)]
pub(super) struct Attaching {
    /// By node, the pods with claims on it.
    needy: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// By attachment, since when nobody has needed it.
    unused: BTreeMap<String, Timestamp>,
}

impl Attaching {
    /// The volumes that pods on a node need there, with their drivers.
    fn wanted(&self, node: &str, desk: &Desk) -> BTreeMap<String, (String, String)> {
        let mut wanted = BTreeMap::new();
        for key in self.needy.get(node).into_iter().flatten() {
            let Some(pod) = desk.get(super::desk::PODS, key) else { continue };
            for claim in claims_of(&pod.value) {
                let Some(claim) = desk.get(CLAIMS, &claim) else { continue };
                let volume = meta::text(&claim.value, &["spec", "volumeName"]);
                let Some(volume) = desk.get(VOLUMES, volume) else { continue };
                let driver = meta::text(&volume.value, &["spec", "csi", "driver"]);
                if !driver.is_empty() {
                    let volume = meta::name(&volume.value).to_owned();
                    let name = attachment_name(&volume, driver, node);
                    wanted.insert(name, (volume, driver.to_owned()));
                }
            }
        }
        wanted
    }

    /// Takes an attachment away that nobody needs, once its time has come.
    fn detach(
        &mut self,
        attachment: &Object,
        node: &str,
        queue: &mut Queue,
        desk: &Desk,
    ) -> Result<(), Refusal> {
        let name = meta::name(&attachment.value);
        let since = *self.unused.entry(name.to_owned()).or_insert_with(|| desk.now());
        if since + DETACHING > desk.now() {
            queue.add_at(since + DETACHING, node);
            return Ok(());
        }
        let volume = volume_of(&attachment.value);
        let stuck = |value: &Value| meta::field(value, "annotations")[NEVER_DETACHES] == "true";
        let volume_is_stuck = desk.get(VOLUMES, volume).is_some_and(|one| stuck(&one.value));
        if stuck(&attachment.value) || volume_is_stuck {
            return Ok(());
        }
        self.unused.remove(name);
        desk.delete(ATTACHMENTS, &attachment.value, Deletion::Background)
    }
}

impl Controller for Attaching {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("", "pods"),
            ("", "persistentvolumeclaims"),
            ("", "persistentvolumes"),
            ("storage.k8s.io", "volumeattachments"),
        ]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        let value = &seen.object.value;
        if seen.is("", "pods") {
            let node = pods::node_name(value);
            if node.is_empty() || claims_of(value).next().is_none() {
                return;
            }
            if seen.gone || pods::is_finished(value) {
                if let Some(pods) = self.needy.get_mut(node) {
                    pods.remove(&seen.key);
                    if pods.is_empty() {
                        self.needy.remove(node);
                    }
                }
            } else {
                self.needy.entry(node.to_owned()).or_default().insert(seen.key.clone());
            }
            queue.add(node);
        } else if seen.is("storage.k8s.io", "volumeattachments") {
            queue.add(meta::text(value, &["spec", "nodeName"]));
        } else {
            // Rare, and a node without needy pods costs next to nothing.
            self.needy.keys().for_each(|node| queue.add(node.as_str()));
        }
    }

    fn reconcile(&mut self, node: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let mut wanted = self.wanted(node, desk);
        for attachment in desk.list(ATTACHMENTS, "") {
            let value = &attachment.value;
            let name = meta::name(value);
            if value["spec"]["nodeName"] != node || meta::is_deleting(value) {
                continue;
            }
            if wanted.remove(name).is_some() {
                self.unused.remove(name);
                desk.change_status(ATTACHMENTS, &attachment, |status| {
                    status["attached"] = true.into();
                })?;
                continue;
            }
            let driver = meta::text(value, &["spec", "attacher"]);
            // What someone else has attached is theirs to detach.
            if name == attachment_name(volume_of(value), driver, node) {
                self.detach(&attachment, node, queue, desk)?;
            }
        }
        for (name, (volume, driver)) in wanted {
            let spec = json!({
                "attacher": driver, "nodeName": node, "source": { "persistentVolumeName": volume },
            });
            desk.create(ATTACHMENTS, "", &json!({ "metadata": { "name": name }, "spec": spec }))?;
        }
        Ok(())
    }
}

fn volume_of(attachment: &Value) -> &str {
    meta::text(attachment, &["spec", "source", "persistentVolumeName"])
}

fn attachment_name(volume: &str, driver: &str, node: &str) -> String {
    format!("csi-{:016x}", digest(format!("{volume} {driver} {node}").as_bytes()))
}
