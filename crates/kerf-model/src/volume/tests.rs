use super::*;
use crate::labels::ZONE;
use crate::pod::PodVolume;
use k8s_openapi::serde_json::{Value, from_value, json};

fn zones(values: &[&str]) -> Requirements {
    [Requirement::is_in(ZONE, values.iter().copied())].into_iter().collect()
}

fn pod(claims: &[&str]) -> Pod {
    Pod {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        volumes: claims
            .iter()
            .map(|claim| PodVolume {
                name: (*claim).to_owned(),
                claim: (*claim).to_owned(),
                ephemeral: false,
            })
            .collect(),
        ..Pod::default()
    }
}

fn storage(classes: &[(&str, Vec<Requirements>)]) -> Volumes {
    let mut volumes = Volumes::default();
    for (name, terms) in classes {
        let class = StorageClass {
            provisioner: "kubernetes.io/aws-ebs".to_owned(),
            terms: terms.clone(),
            immediate: false,
        };
        volumes.classes.insert((*name).to_owned(), class);
        let claim = VolumeClaim { class: Some((*name).to_owned()), ..VolumeClaim::default() };
        volumes.claims.insert(("default".to_owned(), (*name).to_owned()), claim);
    }
    volumes
}

#[test]
fn alternatives_are_the_combinations_that_meet() {
    let storage = storage(&[
        ("free", vec![]),
        ("ab", vec![zones(&["a"]), zones(&["b"])]),
        ("bc", vec![zones(&["b"]), zones(&["c"])]),
        ("z", vec![zones(&["z"])]),
    ]);
    for (claims, expect) in [
        (&[][..], vec![]),
        (&["free"], vec![]),
        (&["ab"], vec!["topology.kubernetes.io/zone In [a]", "topology.kubernetes.io/zone In [b]"]),
        (&["free", "ab", "bc"], vec!["topology.kubernetes.io/zone In [b]"]),
        (&["ab", "z"], vec!["topology.kubernetes.io/zone In []"; 2]),
    ] {
        let got: Vec<_> =
            storage.alternatives(&pod(claims)).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(got, expect, "{claims:?}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let mut storage = storage(&[("ab", vec![])]);
    let claim = |volume: Option<&str>, class: Option<&str>| VolumeClaim {
        volume: volume.map(str::to_owned),
        class: class.map(str::to_owned),
        ..VolumeClaim::default()
    };
    storage.claims.insert(("default".to_owned(), "bound".to_owned()), claim(Some("gone"), None));
    storage
        .claims
        .insert(("default".to_owned(), "classless".to_owned()), claim(None, Some("gone")));
    let error = |name: &str| storage.alternatives(&pod(&[name])).unwrap_err().to_string();
    assert!(
        error("nothing").starts_with("pod default/web mounts claim nothing, which does not exist")
    );
    assert_eq!(error("bound"), "claim bound is bound to volume gone, which does not exist");
    assert_eq!(
        error("classless"),
        "claim classless asks for storage class gone, which does not exist"
    );
}

fn volume(spec: &Value) -> Volume {
    let volume = from_value(json!({"spec": spec})).unwrap();
    Volume::from_api(&volume, &KnownLabels::default()).unwrap()
}

#[test]
fn local_volumes_do_not_pin_to_a_host() {
    let affinity = |terms: Value| json!({"required": {"nodeSelectorTerms": terms}});
    let hostname = || json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]});
    let zone = || json!({"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In", "values": ["a"]});
    let terms = |volume: Volume| volume.terms.iter().map(ToString::to_string).collect::<Vec<_>>();
    let zone_text = "topology.kubernetes.io/zone In [a]".to_owned();
    let both = || {
        affinity(
            json!([{"matchExpressions": [hostname(), zone()]}, {"matchExpressions": [hostname()]}, {}]),
        )
    };
    for kind in ["local", "hostPath"] {
        let local = volume(&json!({kind: {"path": "/"}, "nodeAffinity": both()}));
        assert_eq!(terms(local), [zone_text.clone(), String::new()], "{kind}");
    }
    let remote =
        volume(&json!({"csi": {"driver": "d", "volumeHandle": "h"}, "nodeAffinity": both()}));
    assert_eq!(remote.driver.as_deref(), Some("d"));
    assert_eq!(remote.terms[0].len(), 2);
    assert!(remote.terms[1].has(HOSTNAME));
}

#[test]
fn attachments_are_counted_by_driver() {
    let storage = storage(&[("a", vec![]), ("b", vec![])]);
    let attached = storage.attachments(&pod(&["a", "b", "a", "unknown"]));
    assert_eq!(attached.len(), 1);
    assert_eq!(attached["ebs.csi.aws.com"].len(), 2);
}

/// What is wrong with a pod that mounts a claim as it stands in the API, beside these volumes and classes.
fn problems(claim: &Value) -> Vec<String> {
    let known = KnownLabels::default();
    let mut storage = Volumes::default();
    for (name, mode) in [
        ("waits", json!("WaitForFirstConsumer")),
        ("at-once", json!("Immediate")),
        ("unsaid", Value::Null),
    ] {
        let class =
            json!({"metadata": {"name": name}, "provisioner": "d", "volumeBindingMode": mode});
        let class = StorageClass::from_api(&from_value(class).unwrap(), &known);
        storage.classes.insert(name.to_owned(), class);
    }
    for (name, deleted) in [("there", None), ("going", Some("2026-01-01T00:00:00Z"))] {
        let volume = json!({"metadata": {"deletionTimestamp": deleted}, "spec": {}});
        let volume = Volume::from_api(&from_value(volume).unwrap(), &known).unwrap();
        storage.volumes.insert(name.to_owned(), volume);
    }
    let claim: k8s::PersistentVolumeClaim = from_value(claim.clone()).unwrap();
    storage.claims.insert(("default".to_owned(), "data".to_owned()), VolumeClaim::from(&claim));
    let problems = storage.problems(&pod(&["data"]));
    problems
        .iter()
        .map(|problem| format!("{problem:?}").split(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_pod_waits_until_its_claims_are_in_order() {
    let completed = || json!({"pv.kubernetes.io/bind-completed": "yes"});
    for (claim, expect) in [
        (json!({"spec": {"storageClassName": "waits"}}), None),
        (json!({"spec": {"storageClassName": "waits"}, "status": {"phase": "Pending"}}), None),
        (json!({"spec": {"storageClassName": "at-once"}}), Some("AwaitsVolume")),
        // Kubernetes makes volumes at once where a class does not say otherwise.
        (json!({"spec": {"storageClassName": "unsaid"}}), Some("AwaitsVolume")),
        (json!({"spec": {"storageClassName": "none-such"}}), Some("MissingClass")),
        (json!({"spec": {"storageClassName": ""}}), Some("NoClass")),
        (json!({"spec": {}}), Some("NoClass")),
        (json!({}), Some("NoClass")),
        (json!({"spec": {"volumeName": "there"}}), Some("NotBound")),
        (
            json!({"spec": {"volumeName": "there"}, "status": {"phase": "Pending"}}),
            Some("NotBound"),
        ),
        (json!({"metadata": {"annotations": completed()}, "spec": {"volumeName": "there"}}), None),
        (json!({"spec": {"volumeName": "there"}, "status": {"phase": "Bound"}}), None),
        // A class that went away, or never was, matters no more when the volume is there.
        (
            json!({"spec": {"volumeName": "there", "storageClassName": "none-such"}, "status": {"phase": "Bound"}}),
            None,
        ),
        (
            json!({"spec": {"volumeName": "there", "storageClassName": "at-once"}, "status": {"phase": "Bound"}}),
            None,
        ),
        (
            json!({"spec": {"volumeName": "none-such"}, "status": {"phase": "Bound"}}),
            Some("MissingVolume"),
        ),
        (
            json!({"spec": {"volumeName": "going"}, "status": {"phase": "Bound"}}),
            Some("VolumeDeleting"),
        ),
        (json!({"spec": {"volumeName": "there"}, "status": {"phase": "Lost"}}), Some("ClaimLost")),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"storageClassName": "waits"}}),
            Some("ClaimDeleting"),
        ),
    ] {
        assert_eq!(problems(&claim), Vec::from_iter(expect), "{claim}");
    }
}

#[test]
fn every_volume_of_a_pod_is_checked() {
    let storage = storage(&[("a", vec![])]);
    let problems = storage.problems(&pod(&["none", "a", "nothing"]));
    let missing = |claim: &str| VolumeError::MissingClaim {
        pod: "default/web".to_owned(),
        claim: claim.to_owned(),
    };
    assert_eq!(problems, [missing("none"), missing("nothing")]);
}
