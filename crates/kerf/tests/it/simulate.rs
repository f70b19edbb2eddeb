//! `kerf simulate` as its users meet it.

use std::{fs, path::Path};

use serde_json::Value;

use crate::kerf::{Printed, command, output, printed};

/// Half an hour of a few pods, with something to consolidate.
const SMALL: &str = "
length: 40m
seed: 3
pools:
- name: default
  spec:
    disruption: {consolidateAfter: 0s}
    template: {spec: {requirements: [
      {key: kubernetes.io/os, operator: In, values: [linux]},
      {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]}}
workloads:
- {name: web, replicas: 9, steps: [{at: 10m, replicas: 2}], pod: {cpu: 900m, memory: 1Gi}}
";

/// `kerf simulate` on a scenario of this text, with a directory for files beside it.
fn simulate(scenario: &str, arguments: &[&str]) -> Printed {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("scenario.yaml"), scenario).unwrap();
    in_directory(directory.path(), &[&["scenario.yaml"], arguments].concat())
}

fn in_directory(directory: &Path, arguments: &[&str]) -> Printed {
    let mut command = command(directory, &[&["simulate"], arguments].concat());
    command.current_dir(directory);
    output(command)
}

#[test]
fn the_json_report_has_the_promised_fields() {
    let arguments = ["--compare=when-empty,parity", "-o", "json"];
    let (code, stdout, stderr) = simulate(SMALL, &arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let policies = report["policies"].as_array().unwrap();
    let names: Vec<_> = policies.iter().map(|policy| policy["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["when-empty", "parity"]);
    for policy in policies {
        assert!(policy["cost"].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "{policy}");
        for count in ["evictions", "launched", "terminated", "shortLived"] {
            assert!(policy[count].is_u64(), "{count}: {policy}");
        }
        let blocked = policy["blocked"].as_object().unwrap();
        assert!(blocked.values().all(Value::is_u64), "{policy}");
    }
    assert_eq!(policies[0]["evictions"], 0);
    assert!(policies[1]["evictions"].as_u64().unwrap() > 0, "{report}");
    assert!(policies[1]["savings"].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "{report}");
    assert_eq!(
        (&report["apiVersion"], &report["kind"]),
        (&"kerf.sh/v1alpha1".into(), &"SimulationReport".into())
    );
}

#[test]
fn a_sweep_is_a_table_with_a_row_for_each_value() {
    let arguments = ["--sweep=consolidationSavingsThreshold=0,0.005,10", "--seeds=2"];
    let (code, stdout, stderr) = simulate(SMALL, &arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "no progress bar without a terminal");
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines[0], "scenario: 0.67 hours, means of 2 seeds (3 to 4)");
    for (line, value) in lines[2..].iter().zip(["0", "0.005", "10"]) {
        assert!(line.starts_with(&format!("  consolidationSavingsThreshold={value} ")), "{line}");
    }
    assert!(lines[4].contains(" 0 (0-0) "), "nothing saves 10 dollars per hour: {}", lines[4]);
}

/// A pool that asks for a dollar per hour and pod, which no move brings.
#[test]
fn what_a_pool_says_about_itself_counts_for_as_is_only() {
    let scenario = SMALL.replace("0s}", "0s, consolidationSavingsThreshold: 1}");
    let evictions = |arguments: &[&str]| -> Vec<(String, bool)> {
        let (code, stdout, stderr) = simulate(&scenario, &[arguments, &["-o", "json"]].concat());
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        let report: Value = serde_json::from_str(&stdout).unwrap();
        let policies = report["policies"].as_array().unwrap();
        let row = |policy: &Value| {
            let evicts = policy["evictions"].as_u64().unwrap() > 0;
            (policy["name"].as_str().unwrap().to_owned(), evicts)
        };
        policies.iter().map(row).collect()
    };
    let expected = |rows: [(&str, bool); 2]| rows.map(|(name, evicts)| (name.to_owned(), evicts));
    assert_eq!(
        evictions(&["--compare=as-is,parity"]),
        expected([("as-is", false), ("parity", true)])
    );
    let flag = "consolidation-savings-threshold";
    assert_eq!(
        evictions(&["--policy=as-is", &format!("--sweep={flag}=0,1")]),
        expected([(&format!("{flag}=0"), true), (&format!("{flag}=1"), false)])
    );
}

#[test]
fn the_html_report_needs_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("s.yaml"), SMALL).unwrap();
    let arguments = ["s.yaml", "--policy=parity", "--html=report.html"];
    let (code, _, stderr) = in_directory(directory.path(), &arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let page = fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(!page.contains("http") && !page.contains(" src="), "it loads something");
    assert!(page.contains("<h1>In 0.67 hours, parity costs $"), "the verdict comes first");
}

/// A cluster on AWS. A build without AWS's provider takes types and prices from the nodes.
const CLUSTER: &str = "examples/aws/cluster.json";

/// Of the first policy.
fn cost(report: &Value) -> f64 {
    report["policies"][0]["cost"].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_constant_load_is_named_and_the_flag_that_changes_it_changes_it() {
    let run = |arguments: &[&str]| {
        let always = ["simulate", CLUSTER, "--policy=when-empty", "--length=3h", "-o", "json"];
        let report: Value = serde_json::from_str(&printed(&[&always, arguments].concat())).unwrap();
        let constant = report["notes"]
            .to_string()
            .contains("the load is constant, so policies differ only in");
        (constant, cost(&report))
    };
    let (constant, before) = run(&[]);
    assert!(constant && before > 0.0);
    // In three hours from 14:00 on a tenth of the pods goes, which empties no node: the price is that of before.
    let (constant, by_day) = run(&["--load=daily:0.4..1.0"]);
    assert!(!constant && by_day <= before, "{by_day} {before}");
}

#[test]
fn printed_instance_types_can_be_read_back() {
    let sample = printed(&["simulate", CLUSTER, "--print-instance-types"]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("types.json");
    fs::write(&path, sample.replace("\"Price\":", "\"Price\":1")).unwrap();
    let types = format!("--instance-types={}", path.display());
    let arguments =
        ["simulate", CLUSTER, &types, "--policy=when-empty", "--length=1h", "-o", "json"];
    let report: Value = serde_json::from_str(&printed(&arguments)).unwrap();
    assert!(cost(&report) > 100.0, "the new prices count: {report}");
    let names: Value = serde_json::from_str(&sample).unwrap();
    let names: Vec<_> =
        names.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["c6i.4xlarge", "m5.2xlarge", "r6i.xlarge"]);
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let own = format!("{SMALL}policies: [{{name: calm, disruption: {{calmness: 1}}}}]\n");
    let flag = format!("{SMALL}policies: [{{name: calm, operator: {{calmness: 1}}}}]\n");
    let cheap = format!("{SMALL}instanceTypes: [{{name: a, cpu: 1, memory: 1Gi, price: -1}}]\n");
    let never = SMALL.replace("replicas: 9", "cron: {schedule: '0 0 31 2 *', runsFor: 1m}");
    let never = never.replace(" steps: [{at: 10m, replicas: 2}],", "");
    for (scenario, arguments, message) in [
        ("", &[][..], "kerf: scenario.yaml is empty; write a scenario"),
        (
            "apiVersion: karpenter.sh/v1\nkind: NodePool\n",
            &[],
            "kerf: scenario.yaml:2: it is a Kubernetes object (NodePool), not a scenario; write a scenario",
        ),
        (
            "kind: NodePool\napiVersion: karpenter.sh/v1\n---\nkind: Pod\napiVersion: v1\n",
            &[],
            "kerf: scenario.yaml:1: it is a Kubernetes object (NodePool), not a scenario; write a scenario",
        ),
        (
            "length: 1h\npools: []\npools: []\n",
            &[],
            "kerf: scenario.yaml:3: it is not YAML: the key pools is given twice",
        ),
        ("seeed: 3\n", &[], "kerf: scenario.yaml:1, at seeed: unknown field `seeed`"),
        (
            &cheap,
            &[],
            "kerf: scenario.yaml:13, at instanceTypes[0].price: write dollars per hour above 0",
        ),
        (
            &never,
            &[],
            "kerf: scenario.yaml:12, at workloads[0].cron.schedule: \"0 0 31 2 *\" never occurs",
        ),
        (
            SMALL,
            &["--compare=calm"],
            "kerf: there is no policy \"calm\"; there are when-empty, parity",
        ),
        (SMALL, &["--sweep=calmness=1"], "kerf: cannot sweep \"calmness\": it is neither a field"),
        (
            SMALL,
            &["--sweep=consolidateAfter"],
            "kerf: cannot sweep \"consolidateAfter\": write a setting",
        ),
        (
            SMALL,
            &["--sweep=consolidationSavingsThreshold=lots"],
            "kerf: the API server refuses NodePool default under policy consolidationSavingsThreshold=lots: ",
        ),
        (
            SMALL,
            &["--sweep=consolidation-savings-threshold=-1"],
            "kerf: policy consolidation-savings-threshold=-1: invalid value -1 for the operator setting",
        ),
        (
            &own,
            &["--compare=calm"],
            "kerf: policy calm: spec.disruption of a NodePool has no field \"calmness\"",
        ),
        (&flag, &["--compare=calm"], "kerf: policy calm: the operator has no setting \"calmness\""),
        (
            SMALL,
            &["--seed=-1"],
            "kerf: invalid value '-1' for '--seed <NUMBER>': expected a whole number, 0 or more",
        ),
        (SMALL, &["--compare=none.yaml"], "kerf: cannot read none.yaml: No such file"),
        (
            SMALL,
            &["--seed=18446744073709551615", "--seeds=2"],
            "kerf: there are not 2 seeds from 18446744073709551615 on; give a smaller --seed, or fewer --seeds",
        ),
        (
            SMALL,
            &["--instance-types-file-path=none.json"],
            "kerf: cannot read the instance types file none.json",
        ),
        (
            SMALL,
            &["--instance-types=none.json"],
            "kerf: cannot read the instance types file none.json",
        ),
        (SMALL, &["--load=weekly"], "kerf: --load=weekly is not understood: write daily:0.4..1.0"),
        (
            SMALL,
            &["--print-instance-types"],
            "kerf: scenario.yaml has no nodes of pools, so there are no instance types to print",
        ),
        (SMALL, &["--provider=moon"], "kerf: invalid value \"moon\" for --provider: expected kwok"),
    ] {
        let (code, stdout, stderr) = simulate(scenario, arguments);
        assert!(stderr.starts_with(message), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
    }
    let (code, _, stderr) = in_directory(Path::new("/"), &[]);
    let missing = "kerf: <SCENARIO> is missing; see kerf simulate --help for all flags\n";
    assert_eq!((code, stderr.as_str()), (Some(2), missing));
}
