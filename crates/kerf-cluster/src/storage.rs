//! Volumes: what placing pods and draining nodes needs to know of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kerf_model::{
    KnownLabels,
    requirement::UnknownOperator,
    volume::{StorageClass, Volume, VolumeClaim, Volumes},
};

use crate::{Cluster, Key, Pod, pods};

impl Cluster {
    pub fn volumes_view(&self, known: &KnownLabels) -> Result<Volumes, UnknownOperator> {
        let claims = self.volume_claims.iter();
        let classes = self.storage_classes.iter();
        let volumes = self.volumes.iter();
        Ok(Volumes {
            claims: claims
                .map(|(key, claim)| {
                    ((key.namespace.clone(), key.name.clone()), VolumeClaim::from(&**claim))
                })
                .collect(),
            volumes: volumes
                .map(|(key, volume)| Ok((key.name.clone(), Volume::from_api(volume, known)?)))
                .collect::<Result<_, _>>()?,
            classes: classes
                .map(|(key, class)| (key.name.clone(), StorageClass::from_api(class, known)))
                .collect(),
        })
    }

    /// How many volumes of each driver a node can have attached; `None` where its driver names no limit.
    pub(crate) fn volume_limits(&self, node: &str) -> BTreeMap<String, Option<u32>> {
        let drivers = self.csi_nodes.named(node).map(|node| &node.spec.drivers);
        let limits = drivers.into_iter().flatten().map(|driver| {
            let count = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
            (driver.name.clone(), count.and_then(|count| u32::try_from(count).ok()))
        });
        limits.collect()
    }

    /// The attachments that must be gone before the node's instance may go: those of pods that were drained. Volumes of
    /// pods that stay to the end stay with them.
    pub fn attachments_to_await(&self, node: &str, now: Timestamp) -> Vec<Arc<VolumeAttachment>> {
        let staying = self.pods_on(node).filter(|pod| !pods::is_drainable(pod, now));
        let kept: BTreeSet<&str> = staying.flat_map(|pod| self.volume_names(pod)).collect();
        let keys = self.attachments_by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.attachments.get(key))
            .filter(|attachment| {
                let volume = attachment.spec.source.persistent_volume_name.as_deref();
                volume.is_some_and(|volume| !kept.contains(volume))
            })
            .cloned()
            .collect()
    }

    fn volume_names<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a str> {
        pod.spec().volumes.iter().flatten().filter_map(move |volume| {
            let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(source), _) => source.claim_name.clone(),
                (None, Some(_)) => format!("{}-{}", pod.name(), volume.name),
                (None, None) => return None,
            };
            let claim = self.volume_claims.get(&Key::namespaced(pod.namespace(), claim))?;
            claim.spec.as_ref()?.volume_name.as_deref()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{self as core, PersistentVolumeClaim};
    use k8s_openapi::api::storage::v1::CSINode;
    use kube_core::ResourceExt;
    use serde_json::{Value, json};

    #[test]
    fn a_drain_awaits_the_volumes_of_pods_that_leave() {
        let attachment = |name: &str, volume: Option<&str>| -> VolumeAttachment {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"attacher": "csi", "nodeName": "n", "source": {"persistentVolumeName": volume}},
            }))
            .unwrap()
        };
        let claim = |name: &str, volume: &str| -> PersistentVolumeClaim {
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "ns"}, "spec": {"volumeName": volume},
            }))
            .unwrap()
        };
        let pod = |name: &str, claim: &str, tolerations: Value| -> core::Pod {
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "ns"},
                "spec": {"nodeName": "n", "containers": [], "tolerations": tolerations,
                    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]},
            }))
            .unwrap()
        };
        let mut cluster = Cluster::default();
        cluster.apply(attachment("of-leaving", Some("pv-a")));
        cluster.apply(attachment("of-staying", Some("pv-b")));
        cluster.apply(attachment("of-nobody", Some("pv-c")));
        cluster.apply(attachment("inline", None));
        cluster.apply(claim("a", "pv-a"));
        cluster.apply(claim("b", "pv-b"));
        cluster.apply(pod("leaving", "a", json!([])));
        cluster.apply(pod("staying", "b", json!([{"operator": "Exists"}])));
        let awaited = cluster.attachments_to_await("n", Timestamp::UNIX_EPOCH);
        let names: Vec<_> = awaited.iter().map(|attachment| attachment.name_any()).collect();
        assert_eq!(names, ["of-leaving", "of-nobody"]);
        assert!(cluster.attachments_to_await("other", Timestamp::UNIX_EPOCH).is_empty());
    }

    #[test]
    fn a_driver_without_a_count_is_there_all_the_same() {
        let driver = |name: &str, allocatable: Value| json!({"name": name, "nodeID": "i", "topologyKeys": null, "allocatable": allocatable});
        let node: CSINode = serde_json::from_value(json!({
            "metadata": {"name": "n"},
            "spec": {"drivers": [
                driver("counted", json!({"count": 3})),
                driver("uncounted", json!({})),
                driver("silent", json!(null)),
            ]},
        }))
        .unwrap();
        let mut cluster = Cluster::default();
        cluster.apply(node);
        let limits = cluster.volume_limits("n");
        let limits: Vec<_> = limits.iter().map(|(name, limit)| (name.as_str(), *limit)).collect();
        assert_eq!(limits, [("counted", Some(3)), ("silent", None), ("uncounted", None)]);
        assert!(cluster.volume_limits("other").is_empty());
    }
}
