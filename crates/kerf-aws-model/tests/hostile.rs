//! What users write into an EC2NodeClass and what stands on a queue: read or refused, whatever it is.
//!
//! `PROPTEST_CASES` says how many cases are tried; 256 without it.

#[path = "../../kerf-cluster/tests/support/damage.rs"]
mod damage;

use kerf_api::NodeClaim;
use kerf_aws_api::Ec2NodeClass;
use kerf_aws_model::{
    errors::{LaunchReason, Meaning},
    messages::Message,
    user_data::{BindPaths, ClusterAccess, Form, NodeSettings, UserData},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use damage::{damage, damages, hostile_text, in_time, is_a_sentence};

const FORMS: [Form; 6] = [
    Form::Nodeadm,
    Form::BootstrapScript,
    Form::Bottlerocket(BindPaths::Default),
    Form::Bottlerocket(BindPaths::Explicit),
    Form::PowerShell,
    Form::Verbatim,
];

/// What EC2 takes.
const MAX_BYTES: usize = 16_384;

/// Beginnings of everything that is taken apart, in any order and cut anywhere.
fn user_data() -> impl Strategy<Value = String> {
    const PIECES: [&str; 26] = [
        "MIME-Version: 1.0\n",
        "Content-Type: multipart/mixed; boundary=\"//\"\n",
        "Content-Type: multipart/mixed; boundary=\n",
        "Content-Type: multipart/mixed; boundary=\"\"\n",
        "Content-Type: multipart/mixed;;; boundary=\"a;b\"; boundary=c\n",
        "Content-Type: text/x-shellscript; charset=\"us-ascii\"\n",
        "Content-Type: application/node.eks.aws\n",
        "Content-Transfer-Encoding: base64\n",
        "\n",
        "\r\n",
        "--//\n",
        "--//--\n",
        "--\n",
        "#!/bin/bash\nexec > /dev/null\n",
        "/etc/eks/bootstrap.sh 'demo' --kubelet-extra-args '--node-labels=a=b",
        "<powershell>\n",
        "</powershell>",
        "<persist>true</persist>",
        "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {flags: [--a]}}\n",
        "kind: &a [*a, *a]\n",
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n",
        "[settings.kubernetes]\nmax-pods = 7\n",
        "[settings.kubernetes.node-labels]\n\"a\" = \"b\"\n",
        "settings = 1\n",
        "[[settings]]\n",
        "\u{feff}",
    ];
    let piece = prop_oneof![
        8 => prop::sample::select(PIECES.as_slice()).prop_map(str::to_owned),
        1 => hostile_text(),
        1 => (1_usize..400).prop_map(|depth| "[".repeat(depth)),
        1 => (1_usize..400).prop_map(|depth| "a.".repeat(depth) + "b = 1\n"),
    ];
    (prop::collection::vec(piece, 0..7), any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(pieces, cut, whole)| {
            let mut text = pieces.concat();
            let mut at = cut.index(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            text.truncate(if whole { text.len() } else { at });
            text
        },
    )
}

fn cluster() -> ClusterAccess {
    ClusterAccess {
        name: "demo".to_owned(),
        endpoint: "https://demo.example".to_owned(),
        ca_bundle: Some("Y2EtYnVuZGxl".to_owned()),
        service_cidr: Some("10.100.0.0/16".to_owned()),
    }
}

fn class() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": "bottlerocket@v1.46.0"}], "amiFamily": "Bottlerocket", "role": "r",
            "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "kubelet": {
                "clusterDNS": ["10.100.0.10"], "maxPods": 29, "podsPerCore": 4,
                "systemReserved": {"cpu": "100m"}, "kubeReserved": {"memory": "300Mi"},
                "evictionHard": {"memory.available": "5%"}, "evictionSoft": {"memory.available": "500Mi"},
                "evictionSoftGracePeriod": {"memory.available": "90s"}, "evictionMaxPodGracePeriod": 60,
                "imageGCHighThresholdPercent": 80, "cpuCFSQuota": false,
            },
            "instanceStorePolicy": "RAID0", "userData": "#!/bin/sh\n",
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": true, "ebs": {"volumeSize": "20Gi", "volumeType": "gp3"}}],
        },
    })
}

fn claim() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "p", "team": "a"}, "annotations": {"x": "y"}},
        "spec": {
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "taints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "boot", "effect": "NoExecute"}],
        },
    })
}

fn messages() -> Vec<Value> {
    let envelope = |source: &str, kind: &str, detail: Value| {
        json!({
            "version": "0", "id": "1", "source": source, "detail-type": kind, "account": "1", "region": "r",
            "time": "2026-01-01T00:00:00Z", "resources": ["arn:aws:ec2:r:1:instance/i-1"], "detail": detail,
        })
    };
    vec![
        envelope(
            "aws.ec2",
            "EC2 Spot Instance Interruption Warning",
            json!({"instance-id": "i-1", "instance-action": "terminate"}),
        ),
        envelope("aws.ec2", "EC2 Instance Rebalance Recommendation", json!({"instance-id": "i-1"})),
        envelope(
            "aws.ec2",
            "EC2 Instance State-change Notification",
            json!({"instance-id": "i-1", "state": "stopping"}),
        ),
        envelope(
            "aws.health",
            "AWS Health Event",
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange",
            "affectedEntities": [{"entityValue": "i-1"}, {"entityValue": "i-2"}]}),
        ),
        envelope(
            "aws.ec2",
            "EC2 Capacity Reservation Instance Interruption Warning",
            json!({"instance-id": "i-1"}),
        ),
    ]
}

proptest! {
    #[test]
    fn user_data_of_any_text_is_merged_or_refused(custom in user_data()) {
        let class: Ec2NodeClass = serde_json::from_value(class()).expect("a class");
        let claim: NodeClaim = serde_json::from_value(claim()).expect("a claim");
        let settings = NodeSettings::of_claim(&class, &claim, &cluster(), None, "spot", 29);
        for form in FORMS {
            match in_time(|| UserData::render(form, &settings, Some(&custom))) {
                // What nodes would read of it is read, or named; and EC2 takes it.
                Ok(rendered) => {
                    prop_assert!(rendered.text().len() <= MAX_BYTES);
                    if let Err(error) = in_time(|| NodeSettings::read(rendered.text())) {
                        prop_assert!(is_a_sentence(&error.to_string()), "{}", error);
                    }
                }
                Err(refusal) => prop_assert!(is_a_sentence(&refusal.to_string()), "{:?}: {}", form, refusal),
            }
        }
    }

    #[test]
    fn user_data_of_any_class_and_claim_is_rendered_or_refused(damages in damages(), custom in user_data()) {
        let mut objects = [class(), claim()];
        damage(&mut objects, damages);
        let [class, claim] = objects;
        let (Ok(class), Ok(claim)) = (
            serde_json::from_value::<Ec2NodeClass>(class),
            serde_json::from_value::<NodeClaim>(claim),
        ) else {
            return Ok(());
        };
        let settings = NodeSettings::of_claim(&class, &claim, &cluster(), Some("10.100.0.10"), "spot", 29);
        let form = Form::of(&class);
        if let Err(refusal) = in_time(|| UserData::render(form, &settings, Some(&custom))) {
            prop_assert!(is_a_sentence(&refusal.to_string()), "{:?}: {}", form, refusal);
        }
    }

    #[test]
    fn messages_of_any_shape_are_read_or_named(damages in damages(), which in any::<prop::sample::Index>()) {
        let mut all = messages();
        damage(&mut all, damages);
        let text = which.get(&all).to_string();
        match in_time(|| Message::read(&text)) {
            Ok(message) => {
                let _ = message.notice.response();
                prop_assert!(!message.notice.kind().is_empty());
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn texts_on_the_queue_are_read_or_named(
        text in prop_oneof![hostile_text(), "[{}\\[\\]\",:a-z0-9]{0,40}", (1_usize..5_000).prop_map(|depth| "[".repeat(depth))],
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let _ = in_time(|| Message::read(&text));
        let all = messages();
        let whole = which.get(&all).to_string();
        let cut = &whole[..cut.index(whole.len())];
        prop_assert_eq!(Message::read(cut).is_ok(), cut.is_empty(), "{}", cut);
    }

    #[test]
    fn errors_of_any_text_mean_something(code in hostile_text(), message in hostile_text()) {
        let _ = in_time(|| (Meaning::of(&code, &message), LaunchReason::of(&code, &message)));
    }
}
