//! `kerf plan` on files: the examples, and wrong input as docs/plan.md shows it.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Output, Stdio},
};

use serde_json::{Value, json};

use crate::kerf::{Printed, command, kerf, printed};

/// `kerf plan` without a cluster.
fn plan(arguments: &[&str]) -> Printed {
    kerf(&[&["plan"], arguments].concat())
}

/// What is printed when there is a plan.
fn planned(arguments: &[&str]) -> String {
    printed(&[&["plan"], arguments].concat())
}

fn planned_json(arguments: &[&str]) -> Value {
    let arguments: Vec<_> = arguments.iter().chain(&["-o", "json"]).copied().collect();
    serde_json::from_str(&planned(&arguments)).unwrap()
}

const POOL: &str = "examples/plan/nodepool.yaml";
const DEPLOYMENT: &str = "examples/plan/deployment.yaml";
const MISFITS: &str = "examples/plan/misfits.yaml";
const CLUSTER: &str = "examples/plan/cluster.json";

#[test]
fn a_deployment_is_shown_with_the_nodes_it_needs() {
    insta::assert_snapshot!(planned(&["-f", POOL, "-f", DEPLOYMENT]));
}

#[test]
fn pods_that_fit_nowhere_are_shown_with_the_reasons() {
    insta::assert_snapshot!(planned(&["-f", POOL, "-f", MISFITS]));
}

#[test]
fn a_limit_is_named_as_the_cause() {
    let plan = planned_json(&["-f", "examples/limited.yaml"]);
    assert_eq!(plan["unschedulable"][0]["pools"][0]["constraint"], "Limits");
}

#[test]
fn a_pod_that_only_static_or_unknown_pools_could_take_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pools.yaml");
    let text = fs::read_to_string(format!("../../{POOL}")).unwrap();
    let check = |from: &str, to: &str, reason: &str, message: &str| {
        assert!(text.contains(from), "{from}");
        fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let plan = planned_json(&["-f", file.to_str().unwrap(), "-f", DEPLOYMENT]);
        let pod = &plan["unschedulable"][0];
        assert_eq!(
            (pod["reason"].as_str(), pod["message"].as_str()),
            (Some(reason), Some(message))
        );
    };
    check(
        "  limits:\n    cpu: 100\n",
        "  replicas: 2\n",
        "OnlyStaticPools",
        "every NodePool is static (general) and keeps its replicas whatever pods need: add one without replicas",
    );
    check(
        "kind: KWOKNodeClass",
        "kind: EC2NodeClass",
        "Pools",
        "pool general: its instance types are unknown: its NodeClass is of kind EC2NodeClass; \
         give them with --instance-types-file-path",
    );
}

#[test]
fn pods_that_no_node_could_help_are_told_apart_from_those_that_want_none() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pods.json");
    let none = json!([{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]);
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": none}]});
    let pod = |name: &str, field: &str, value: Value| {
        let spec = json!({"containers": [{"name": "c"}], field: value});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    };
    let pods = json!({"apiVersion": "v1", "kind": "List", "items": [
        pod("good", "nodeSelector", json!({})),
        pod("named", "nodeSelector", json!({"kubernetes.io/hostname": "mine"})),
        pod("elsewhere", "affinity", json!({"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": required}})),
    ]});
    fs::write(&file, pods.to_string()).unwrap();
    let plan = planned_json(&["-f", POOL, "-f", file.to_str().unwrap()]);
    let [unschedulable] = &plan["unschedulable"].as_array().unwrap()[..] else { panic!("{plan}") };
    assert_eq!(unschedulable["pod"], "default/named");
    assert_eq!(unschedulable["reason"], "NodeSelector");
    assert_eq!(plan["summary"]["pods"], 2);
    assert_eq!(plan["summary"]["onNewClaims"], 1);
    let notes = plan["notes"].as_array().unwrap();
    assert!(
        notes.iter().any(|note| note.as_str().unwrap().contains("default/elsewhere")),
        "{plan}"
    );
}

#[test]
fn a_dump_is_read_as_it_is_and_its_nodes_are_used_first() {
    insta::assert_snapshot!(planned(&["-f", POOL, "-f", CLUSTER]));
}

#[test]
fn overlays_count_with_their_gate_and_say_why_they_do_not() {
    const GATE: &str = "--feature-gates=NodeOverlay=true";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("overlays.json");
    let overlays = |names: &[&str]| {
        let spec = json!({"requirements": [], "priceAdjustment": "-50%"});
        let overlay = |name: &&str| {
            json!({
                "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
                "metadata": {"name": name}, "spec": spec,
            })
        };
        let items: Vec<_> = names.iter().map(overlay).collect();
        fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
            .unwrap();
    };
    let plan = |arguments: &[&str]| {
        let file = file.to_str().unwrap();
        let files = ["-f", POOL, "-f", DEPLOYMENT, "-f", file];
        let plan = planned_json(&[&files[..], arguments].concat());
        let price = plan["summary"]["pricePerHour"].as_str().unwrap().parse::<f64>().unwrap();
        (price, plan["notes"].to_string())
    };
    overlays(&["a"]);
    let (list_price, notes) = plan(&[]);
    assert!(notes.contains("1 NodeOverlay left out, because the feature gate NodeOverlay is off"));
    let (half, notes) = plan(&[GATE]);
    assert!((half * 2.0 - list_price).abs() < 1e-6, "{half} {list_price}");
    assert!(!notes.contains("NodeOverlay"), "{notes}");
    overlays(&["a", "b"]);
    let (half, notes) = plan(&[GATE]);
    assert!((half * 2.0 - list_price).abs() < 1e-6, "{half} {list_price}");
    let why = "NodeOverlay a is left out: conflict with another overlay: b has the same weight";
    assert!(notes.contains(why), "{notes}");
}

#[test]
fn without_a_pool_the_nodes_are_still_used() {
    insta::assert_snapshot!(planned(&["-f", CLUSTER]));
}

#[test]
fn all_of_it_is_printed_for_programs() {
    let arguments = ["-f", POOL, "-f", CLUSTER, "-f", MISFITS];
    insta::assert_snapshot!(planned(&[&arguments[..], &["-o", "json"]].concat()));
    insta::assert_snapshot!(planned(&[&arguments[..], &["-o", "yaml"]].concat()));
}

#[test]
fn files_directories_and_standard_input_come_to_the_same() {
    let files = planned(&["-f", CLUSTER, "-f", DEPLOYMENT, "-f", MISFITS, "-f", POOL]);
    assert_eq!(planned(&["-f", "examples/plan"]), files);

    let mut command = command(Path::new("/nonexistent"), &["plan", "-f", "-", "--filename", POOL]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let manifests = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DEPLOYMENT));
    process.stdin.take().unwrap().write_all(&manifests.unwrap()).unwrap();
    let Output { status, stdout, .. } = process.wait_with_output().unwrap();
    assert!(status.success());
    assert_eq!(String::from_utf8(stdout).unwrap(), planned(&["-f", POOL, "-f", DEPLOYMENT]));
}

/// By the names that the volume drivers of the large clouds have for the zone.
#[test]
fn volumes_of_any_cloud_bring_their_zone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("volumes.json");
    for key in [
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.ebs.csi.aws.com/zone",
        "topology.gke.io/zone",
        "topology.disk.csi.azure.com/zone",
        "topology.diskplugin.csi.alibabacloud.com/zone",
        "topology.cinder.csi.openstack.org/zone",
        "topology.com.tencent.cloud.csi.cbs/zone",
    ] {
        let zone = json!({"key": key, "operator": "In", "values": ["test-zone-b"]});
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
            "spec": {"csi": {"driver": "d", "volumeHandle": "h"}, "nodeAffinity": {"required":
                {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}},
        });
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
            "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": key, "values": ["test-zone-b"]}]}],
        });
        let claim = |name: &str, spec: Value| {
            let done = json!({"pv.kubernetes.io/bind-completed": "yes"});
            let metadata = json!({"name": name, "annotations": done});
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
        };
        let pod = |name: &str| {
            let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
            let spec = json!({"containers": [{"name": "c"}], "volumes": [volume]});
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        };
        for (name, claim) in [
            ("bound", claim("bound", json!({"volumeName": "disk"}))),
            ("to-come", claim("to-come", json!({"storageClassName": "fast"}))),
        ] {
            let items = [volume.clone(), class.clone(), claim, pod(name)];
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            fs::write(&file, list.to_string()).unwrap();
            let plan = planned_json(&["-f", POOL, "-f", file.to_str().unwrap()]);
            assert_eq!(plan["claims"][0]["cheapest"]["zone"], "test-zone-b", "{key} {name} {plan}");
        }
    }
}

#[test]
fn pods_without_constraints_are_spread_by_default() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plain.json");
    let template =
        json!({"metadata": {"labels": {"app": "plain"}}, "spec": {"containers": [{"name": "c"}]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "plain"},
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "plain"}}, "template": template},
    });
    fs::write(&file, deployment.to_string()).unwrap();
    let config = r#"{"podTopologySpread": {"defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}}"#;
    let claims = |more: &[&str]| {
        let files = ["-f", POOL, "-f", file.to_str().unwrap()];
        let arguments: Vec<_> = files.iter().chain(more).copied().collect();
        let plan = planned_json(&arguments);
        let claims = plan["claims"].as_array().unwrap().iter();
        claims.map(|claim| claim["pods"].as_array().unwrap().len()).collect::<Vec<_>>()
    };
    assert_eq!(claims(&[]), [4]);
    assert_eq!(claims(&["--scheduler-config", config]), [2, 2]);
}

#[test]
fn nothing_to_place_is_a_plan() {
    assert_eq!(planned(&["-f", POOL]), "No pod needs a place.\n");
}

#[test]
fn pods_without_a_place_fail_the_command_only_if_asked() {
    let (code, stdout, _) = plan(&["-f", POOL, "-f", MISFITS, "--fail-on-unschedulable"]);
    assert_eq!(code, Some(3));
    assert!(stdout.contains("No place for 3 pods"), "{stdout}");
    assert_eq!(plan(&["-f", POOL, "-f", DEPLOYMENT, "--fail-on-unschedulable"]).0, Some(0));
}

#[test]
fn wrong_input_is_refused_with_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let pool = |spec: &str| {
        format!(
            "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: p}}\nspec: {spec}\n"
        )
    };
    let no_object = file("no-object.yaml", "replicas: 3\n");
    let replicas = file("replicas.yaml", &pool("{weight: heavy}"));
    let second = file(
        "second.yaml",
        &(fs::read_to_string(format!("../../{DEPLOYMENT}")).unwrap() + &pool("{}")),
    );
    let cpu = file(
        "cpu.yaml",
        &pool(
            "{limits: {cpu: many}, template: {spec: {nodeClassRef: \
        {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: d}, requirements: []}}}",
        ),
    );
    let syntax = file("syntax.yaml", "a: [1\n");
    let twice = file("twice.yaml", "kind: Pod\nmetadata: {name: a}\n\nkind: Pod\n");
    let scenario = file("scenario.yaml", "length: 1h\npools: []\nworkloads: []\n");
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let empty = empty.display().to_string();
    for (arguments, expected) in [
        (&["-f", "/nonexistent/a.yaml"][..], "cannot read /nonexistent/a.yaml: No such file or directory".to_owned()),
        (&["-f", &empty], format!("the directory {empty} has no files that end with .yaml, .yml or .json")),
        (&["-f", &no_object], format!("{no_object}:1: it is not a Kubernetes object: apiVersion and kind are missing")),
        (&["-f", &replicas], format!("{replicas}:5: NodePool p: spec.template: Required value\n{replicas}:5: NodePool p: spec.weight: Invalid value: \"string\": ")),
        (&["-f", &second], format!("{second}:63: NodePool p: spec.template: Required value")),
        (&["-f", &cpu], format!("{cpu}:5: NodePool p: spec.limits.cpu: Invalid value: ")),
        (&["-f", &syntax], format!("{syntax}:1: it is neither YAML nor JSON: unclosed bracket")),
        (&["-f", &twice], format!("{twice}:4: it is neither YAML nor JSON: kind is given twice; if another object begins here, write --- above it")),
        (&["-f", &scenario], format!("{scenario}:1: it is a scenario of kerf simulate, not a Kubernetes object; run kerf simulate with it")),
        (&["-f", DEPLOYMENT], "there is neither a NodePool nor a Node among the objects, so no pod can be placed; \
            add a NodePool, for instance with -f nodepool.yaml".to_owned()),
        (&["-f", POOL, "--instance-types-file-path", &no_object], format!("cannot use the instance types file {no_object}: ")),
        (&["-o", "xml"], "invalid value \"xml\" for --output <FORMAT>: expected table, json, yaml".to_owned()),
        (&["--file", POOL], "unknown argument --file (did you mean --filename?); see kerf plan --help for all flags".to_owned()),
        (&["--preference-policy=Sometimes"], "invalid value \"Sometimes\" for --preference-policy: expected Respect or Ignore".to_owned()),
    ] {
        let (code, stdout, stderr) = plan(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with(&format!("kerf: {expected}")), "{stderr}\n{expected}");
        assert_eq!(stderr.lines().count(), expected.lines().count(), "{stderr}");
    }
}

/// What `kubectl apply` would refuse is refused, with its place; what a cluster has is taken as it is, with a note.
#[test]
fn pools_are_validated_as_an_api_server_would() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pool.yaml");
    let path = file.to_str().unwrap();
    let text = fs::read_to_string(format!("../../{POOL}")).unwrap();
    let limits = "  limits:\n    cpu: 100\n";
    let line = 1 + text.lines().position(|line| line == "  limits:").unwrap();
    let misspelt = "  disruption:\n    consolidationSavingsTreshold: 0.5\n";
    for (from, to, expected) in [
        (
            limits,
            misspelt,
            vec![format!(
                "{path}:{}: NodePool general: unknown field \"spec.disruption.consolidationSavingsTreshold\"",
                line + 1
            )],
        ),
        (
            limits,
            "  weight: 1000\n  limit:\n    cpu: 1\n",
            vec![
                format!("{path}:{}: NodePool general: unknown field \"spec.limit\"", line + 1),
                format!("{path}:{line}: NodePool general: spec.weight: Invalid value: 1000: "),
            ],
        ),
        (
            limits,
            "  replicas: -5\n",
            vec![format!("{path}:{line}: NodePool general: spec.replicas: Invalid value: -5: ")],
        ),
        // A rule of the definition.
        (
            limits,
            "  replicas: 1\n  weight: 1\n",
            vec![format!(
                "{path}:6: NodePool general: spec: Invalid value: \"object\": 'weight' is not supported"
            )],
        ),
        (
            "key: kubernetes.io/os",
            "key: karpenter.sh/mine",
            vec![format!("{path}:14: NodePool general: spec.template.spec.requirements[0].key: ")],
        ),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let commands: [&[&str]; 3] =
            [&["plan"], &["plan", "--disruption"], &["explain", "nodepool/general"]];
        for command in commands {
            let arguments = [command, &["-f", path]].concat();
            let (code, stdout, stderr) = kerf(&arguments);
            assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}: {stderr}");
            let lines: Vec<_> = stderr.strip_prefix("kerf: ").unwrap().lines().collect();
            assert_eq!(lines.len(), expected.len(), "{stderr}");
            for (line, expected) in lines.iter().zip(&expected) {
                assert!(line.starts_with(expected.as_str()), "{line}\n{expected}");
            }
        }
    }
    let stored = text.replacen(limits, misspelt, 1).replacen(
        "  name: general",
        "  name: general\n  uid: u",
        1,
    );
    fs::write(&file, stored).unwrap();
    let note =
        "Note: NodePool general: unknown field \"spec.disruption.consolidationSavingsTreshold\"\n";
    assert_eq!(planned(&["-f", path]), format!("No pod needs a place.\n\n{note}"));
}

#[test]
fn absurd_numbers_of_replicas_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("deployment.yaml");
    let path = file.to_str().unwrap();
    let text = fs::read_to_string(format!("../../{DEPLOYMENT}")).unwrap();
    fs::write(&file, text.replacen("replicas: 10", "replicas: -5", 1)).unwrap();
    let (code, _, stderr) = plan(&["-f", POOL, "-f", path]);
    let refused =
        "Deployment shop/web: spec.replicas: Invalid value: -5: must be greater than or equal to 0";
    assert_eq!((code, stderr), (Some(2), format!("kerf: {path}:8: {refused}\n")));
    let pool = fs::read_to_string(format!("../../{POOL}")).unwrap();
    fs::write(&file, pool.replacen("  limits:\n    cpu: 100\n", "  replicas: 2000000000\n", 1))
        .unwrap();
    assert!(planned(&["-f", path]).contains("general: it has replicas"));
}

#[test]
fn pools_that_launch_nothing_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pools.yaml");
    let pool = |name: &str, kind: &str, spec: &str, key: &str| {
        format!(
            "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}, uid: u}}\nspec: {{{spec} template: \
             {{spec: {{nodeClassRef: {{group: g, kind: {kind}, name: d}}, requirements: [{{key: {key}, operator: Exists}}]}}}}}}\n"
        )
    };
    let texts = [
        pool("aws", "EC2NodeClass", "", "a"),
        pool("fixed", "KWOKNodeClass", "replicas: 2,", "a"),
        pool("wrong", "KWOKNodeClass", "", "karpenter.sh/mine"),
    ];
    fs::write(&path, texts.concat()).unwrap();
    let path = path.display().to_string();
    let plan = planned_json(&["-f", &path]);
    let idle: Vec<_> = plan["idlePools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|idle| (idle["pool"].as_str().unwrap(), idle["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        idle[0],
        (
            "aws",
            "its instance types are unknown: its NodeClass is of kind EC2NodeClass; \
        give them with --instance-types-file-path"
        )
    );
    assert_eq!(
        idle[1],
        ("fixed", "it has replicas, and keeps that number of nodes whatever pods need")
    );
    assert!(
        idle[2].1.starts_with("it is not ready: invalid value: using label karpenter.sh/mine"),
        "{idle:?}"
    );

    let types = directory.path().join("types.json");
    let requirement =
        |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let zone = requirement("topology.kubernetes.io/zone", "z");
    let capacity_type = requirement("karpenter.sh/capacity-type", "spot");
    let catalogue = json!([{
        "name": "tiny", "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": "64", "memory": "128Gi"},
        "offerings": [{"Price": 0.1, "Available": true, "Requirements": [zone, capacity_type]}],
    }]);
    fs::write(&types, catalogue.to_string()).unwrap();
    let types = types.display().to_string();
    let plan = planned_json(&["-f", &path, "-f", DEPLOYMENT, "--instance-types-file-path", &types]);
    let claim = &plan["claims"][0];
    assert_eq!(
        (&claim["pool"], &claim["cheapest"]["pricePerHour"]),
        (&json!("aws"), &json!("0.1"))
    );
}
