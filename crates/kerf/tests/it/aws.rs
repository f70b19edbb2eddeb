//! `kerf plan` with the AWS provider, as its users meet it.

use std::fs;

use serde_json::Value;

use crate::kerf::{ROOT, kerf, printed};

const OBJECTS: &str = "examples/aws/plan.yaml";

#[test]
fn pools_with_an_ec2_node_class_are_planned_for() {
    let (code, plan, stderr) = kerf(&["plan", "--provider=aws", "-f", OBJECTS]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(plan.starts_with("Launch 1 node for 5 pods, from $0.2720/h"), "{plan}");
    assert!(plan.contains("c6g.2xlarge"), "{plan}");
    assert!(plan.contains("Note: no subnet says in which AWS region the nodes are"), "{plan}");
}

#[test]
fn another_provider_says_which_one_to_choose() {
    let (code, plan, _) = kerf(&["plan", "-f", OBJECTS]);
    assert_eq!(code, Some(0));
    let said = "its NodeClass is of kind EC2NodeClass; choose its provider with --provider=aws";
    assert!(plan.contains(said), "{plan}");
}

#[test]
fn an_ec2_node_class_is_judged_as_an_api_server_would() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("class.yaml");
    let class = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: a}\nspec:\n  \
                 amiSelectorTerms: [{alias: al2023@latest}]\n  subnetSelectorTerms: [{id: subnet-1}]\n  \
                 securityGroupSelectorTerms: [{id: sg-1}]\n";
    std::fs::write(&path, class).unwrap();
    let path = path.display().to_string();
    let (code, _, stderr) = kerf(&["plan", "--provider=aws", "-f", OBJECTS, "-f", &path]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("set exactly one of role and instanceProfile"), "{stderr}");
}

#[test]
fn flags_of_aws_are_checked() {
    let (code, _, stderr) = kerf(&["plan", "--provider=aws", "--reserved-enis=x", "-f", OBJECTS]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("invalid value \"x\" for --reserved-enis"), "{stderr}");
}

#[test]
fn run_needs_the_name_of_the_cluster() {
    let ports = ["--metrics-port=0", "--health-probe-port=0"];
    let (code, log, _) = kerf(&["run", "--provider=aws", ports[0], ports[1]]);
    assert_eq!(code, Some(2));
    let said = "cannot set up the provider aws: the name of the cluster is missing; set --cluster-name or CLUSTER_NAME";
    assert!(log.contains(said), "{log}");
    let (_, help, _) = kerf(&["run", "--help"]);
    assert!(
        help.contains("AWS (--provider=aws)") && help.contains("--interruption-queue"),
        "{help}"
    );
}

/// The example of the documentation, and that the document is one that IAM would take.
#[test]
fn the_policy_is_that_of_the_cluster() {
    let arguments = ["aws", "policy", "--cluster-name=sawmill", "--aws-region=cn-north-1"];
    let policy: Value = serde_json::from_str(&printed(&arguments)).unwrap();
    assert_eq!(policy["Version"], "2012-10-17");
    let text = policy.to_string();
    assert!(text.contains("arn:aws-cn:iam::*:role/KarpenterNodeRole-sawmill"), "{text}");
    assert!(text.contains(r#""aws:RequestTag/kubernetes.io/cluster/sawmill":"owned""#), "{text}");
    assert!(!text.contains("sqs:"), "{text}");

    let (code, _, stderr) = kerf(&["aws", "policy", "--aws-region=eu-west-1"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--cluster-name"), "{stderr}");
}

/// The example, with something replaced, in a file of its own.
fn changed(from: &str, to: &str) -> (tempfile::TempDir, String) {
    let text = fs::read_to_string(format!("{ROOT}/examples/aws/drift.yaml")).unwrap();
    assert!(text.contains(from), "{from}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster.yaml");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let path = path.display().to_string();
    (directory, path)
}

#[test]
fn a_change_of_the_class_shows_what_would_drift() {
    let explain = |from: &str, to: &str, flags: &[&str]| {
        let (_directory, path) = changed(from, to);
        let mut arguments = vec!["explain", "node/web", "--provider=aws", "-f", &path];
        arguments.extend(flags);
        let (code, printed, errors) = kerf(&arguments);
        assert_eq!(code, Some(0), "{errors}");
        (printed, errors)
    };
    let drifted = "  drifted       from its NodeClass as it is here: ";
    let ca = &["--cluster-ca-bundle=Y2VydGlmaWNhdGU="][..];
    let (printed, _) = explain("al2023@latest", "al2023@latest", ca);
    assert!(!printed.contains("as it is here"), "{printed}");
    let (printed, errors) = explain("al2023@latest", "al2023@v20261001", &[]);
    let because = "AMIDrift, the AMI is al2023@v20261001, the instance was launched with ami-0a1b2c3d4e5f60718\n";
    assert!(printed.contains(&format!("{drifted}{because}")), "{printed}");
    assert!(errors.contains("the CA of the cluster is not known"), "{errors}");
    let (printed, _) = explain("echo one", "echo two", ca);
    assert!(printed.contains(&format!("{drifted}NodeClassDrift, ")), "{printed}");
    // As long as the CA is not known, user data is not compared.
    let (printed, _) = explain("echo one", "echo two", &[]);
    assert!(!printed.contains("as it is here"), "{printed}");
    let (_directory, path) = changed("al2023@latest", "al2023@v20261001");
    let (_, plan, _) = kerf(&["plan", "--disruption", "--provider=aws", "-f", &path]);
    assert!(plan.contains("Drifted"), "{plan}");
}

#[test]
fn a_snapshot_of_a_cluster_on_aws_is_simulated_with_its_own_types() {
    let arguments = ["simulate", "examples/aws/cluster.json", "--policy=as-is", "--length=1h"];
    let table = printed(&arguments);
    assert!(
        table.starts_with("cluster: 1 hours, seed 0")
            || table.starts_with("cluster: 1 hour, seed 0"),
        "{table}"
    );
    assert!(table.contains("Note: spot prices are not known here"), "{table}");
    assert!(!table.contains("is not known;"), "{table}");
    // Another region has other prices, and its zones are not those of the nodes.
    let (code, _, stderr) = kerf(&[&arguments[..], &["--aws-region=mars-north-1"]].concat());
    assert_eq!(code, Some(2));
    assert!(stderr.starts_with("kerf: there is no region mars-north-1"), "{stderr}");
}
