//! What an operator says about the cluster that it finds: definitions of another version, objects of another operator.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use kerf_api::crd;
use kerf_control_plane::Profile;
use kerf_e2e::{apply, install, operator::Operator, start};

const CONTROLS: [&str; 2] = ["consolidationGracePeriod", "consolidationSavingsThreshold"];

/// As Karpenter's NodePool is.
fn without_controls() -> String {
    let mut crds = kerf_provider_kwok::crds();
    let pools = crd::root(&mut crds[0]).unwrap();
    let disruption = crd::at(pools, &["spec", "disruption"]).unwrap();
    for control in CONTROLS {
        assert!(disruption.properties.as_mut().unwrap().remove(control).is_some(), "{control}");
    }
    kerf_api::crds_yaml(crds).unwrap()
}

const FOREIGN: &str = r"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: foreign}
spec:
  template:
    spec:
      nodeClassRef: {group: example.com, kind: Other, name: o}
      requirements: []
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: foreign-1, labels: {karpenter.sh/nodepool: foreign}}
spec:
  nodeClassRef: {group: example.com, kind: Other, name: o}
  requirements: []
";

#[tokio::test]
async fn missing_fields_and_objects_of_others_are_named_once() {
    let cluster = start(Profile::ApiOnly).await;
    install(&cluster, &without_controls()).await;
    apply(&cluster, FOREIGN).await;
    let operator = Operator::start(&cluster);
    let named = operator.line(|line| line.get("definition").is_some());
    assert_eq!(
        (&named["level"], &named["definition"]),
        (&"WARN".into(), &"nodepools.karpenter.sh".into())
    );
    assert_eq!(
        named["fields"],
        CONTROLS.map(|control| format!("spec.disruption.{control}")).join(", ")
    );
    let message = named["message"].as_str().unwrap();
    assert!(message.ends_with("run: kerf crds | kubectl apply -f -"), "{message}");

    // Whatever is written to an object of another operator, it is named once.
    for weight in 1..=3 {
        let patch = format!(r#"{{"spec": {{"weight": {weight}}}}}"#);
        let patch = ["patch", "nodepool", "foreign", "--type=merge", "-p", &patch];
        assert!(cluster.kubectl(&patch).await.unwrap().status.success());
    }
    apply(&cluster, &FOREIGN.replace("foreign", "late")).await;
    operator.line(|line| line["name"] == "late-1" && line.get("class").is_some());
    let lines = operator.so_far();
    let ignored = lines.iter().filter(|line| line.get("class").is_some());
    let mut ignored: Vec<_> = ignored
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            [text("level"), text("kind"), text("name"), text("class")].join(" ")
        })
        .collect();
    ignored.sort();
    assert_eq!(
        ignored,
        [
            "INFO NodeClaim foreign-1 Other.example.com/o",
            "INFO NodeClaim late-1 Other.example.com/o",
            "INFO NodePool foreign Other.example.com/o",
            "INFO NodePool late Other.example.com/o",
        ]
    );
    let definitions = lines.iter().filter(|line| line.get("definition").is_some());
    assert_eq!(definitions.count(), 1);
}
