//! `kerf explain` and `kerf plan --disruption` as their users meet them.

use std::fs;

use crate::kerf::{ROOT, kerf};

/// Every example of the page, run again.
#[test]
fn the_documentation_shows_what_is_printed() {
    let page = fs::read_to_string(format!("{ROOT}/docs/explain.md")).unwrap();
    let examples: Vec<_> = page.split("    $ kerf ").skip(1).collect();
    assert_eq!(examples.len(), 5);
    for example in examples {
        let (line, shown) = example.split_once('\n').unwrap();
        let arguments: Vec<_> = line.split_whitespace().collect();
        let (code, printed, errors) = kerf(&arguments);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{line}");
        let indented = printed.lines().map(|line| match line {
            "" => "\n".to_owned(),
            line => format!("    {line}\n"),
        });
        assert!(shown.starts_with(&indented.collect::<String>()), "{line}:\n{printed}");
    }
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let cluster = ["-f", "examples/explain/cluster.yaml"];
    for (what, message) in [
        ("node/nope", "kerf: there is no node nope; there are: guarded, quiet, roomy\n"),
        ("nodepool/nope", "kerf: there is no nodepool nope; there are: general\n"),
        ("node/", "kerf: cannot explain \"node/\": expected node/NAME or nodepool/NAME\n"),
        ("pod/x", "kerf: cannot explain \"pod/x\": expected node/NAME or nodepool/NAME\n"),
    ] {
        let arguments = [&["explain", what][..], &cluster].concat();
        assert_eq!(kerf(&arguments), (Some(2), String::new(), message.to_owned()), "{what}");
    }
}

#[test]
fn nodes_of_static_pools_are_explained() {
    let cluster = ["-f", "examples/explain/static.yaml"];
    let explained = |arguments: &[&str]| {
        let (code, printed, errors) = kerf(&[arguments, &cluster].concat());
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{arguments:?}");
        printed
    };
    let waits = "replacing it failed 2 times, and is not tried again before 2100-01-01T00:00:00Z \
                 (its replacement edge-x7d2k is gone)";
    let one = explained(&["explain", "node/one"]);
    for line in [
        "\nDrift of static NodePools asks\n".to_owned(),
        "  yes  its NodePool has room for its replacement\n".to_owned(),
        format!("  NO   no replacement for it has just failed: {waits}\n"),
        format!("  => no (setback): {waits}\n"),
    ] {
        assert!(one.contains(&line), "{line}{one}");
    }
    for absent in ["Emptiness asks", "Consolidation asks"] {
        assert!(!one.contains(absent), "{one}");
    }
    let two = explained(&["explain", "node/two"]);
    assert!(two.ends_with("  => Replace 1 node (Drifted), moving 0 pods\n"), "{two}");
    let off = ["explain", "nodepool/edge", "--feature-gates=StaticCapacity=false"];
    let stays = "stays (static_pool): its NodePool is static and keeps its nodes\n";
    assert_eq!(explained(&off).matches(stays).count(), 2);

    let json = explained(&["plan", "--disruption", "-o", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
    let [command] = &plan["commands"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!(command["method"], "StaticDrift");
    assert_eq!(command["replacements"][0]["pool"], "edge");
    assert_eq!(command["savingsPerHour"], serde_json::Value::Null);
    // For programs every digit counts.
    assert_eq!(command["nodes"][0]["pricePerHour"], "0.0542949673");
}

/// The example, with something replaced, at its first place, in a file of its own.
fn changed(from: &str, to: &str) -> (tempfile::TempDir, String) {
    let text = fs::read_to_string(format!("{ROOT}/examples/explain/cluster.yaml")).unwrap();
    assert!(text.contains(from), "{from}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster.yaml");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

fn printed(arguments: &[&str]) -> String {
    let (code, printed, errors) = kerf(arguments);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{arguments:?}");
    printed
}

/// The NodePool of the other file is of another zone.
#[test]
fn a_changed_pool_says_which_nodes_drift() {
    let files = ["-f", "examples/explain/cluster.yaml", "-f", "examples/explain/zone-b.yaml"];
    let node = printed(&[&["explain", "node/quiet"][..], &files].concat());
    let drift = "  it has drifted from its NodePool as it is here: RequirementsDrifted\n";
    assert!(node.contains(drift), "{node}");
    assert!(node.contains("  yes  it is no longer as its NodePool wants it\n"), "{node}");
    let json = printed(&[&["explain", "node/quiet", "-o", "json"][..], &files].concat());
    let node: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(node["newDrift"], "RequirementsDrifted");
    let pool = printed(&[&["explain", "nodepool/general"][..], &files].concat());
    assert!(pool.contains("  quiet     $0.2172/h   2      delete (Drifted), saves"), "{pool}");
}

/// Node quiet waits for its replacement, and the budget is one node.
#[test]
fn commands_that_are_under_way_count() {
    let consolidatable = "  - {type: Consolidatable,";
    let going = "  - {type: DisruptionReason, status: \"True\", reason: Underutilized, message: \"\", \
                 lastTransitionTime: \"2026-01-01T00:10:30Z\"}\n";
    let (_directory, file) = changed(consolidatable, &format!("{going}{consolidatable}"));
    let plan = printed(&["plan", "--disruption", "-f", &file]);
    assert!(plan.starts_with("No node would be removed or replaced.\n"), "{plan}");
    assert!(plan.contains("allowed=1, disrupting=1"), "{plan}");
    let pool = printed(&["explain", "nodepool/general", "-f", &file]);
    assert!(pool.contains("  Underutilized   3       1         1\n"), "{pool}");
    let stays = "  quiet     $0.2172/h   2      stays (already_disrupted): candidate is already being disrupted\n";
    assert!(pool.contains(stays), "{pool}");
    let node = printed(&["explain", "node/quiet", "-f", &file]);
    assert!(node.contains("  NO   no command is under way for it: candidate is already"), "{node}");
}

/// From one to two at night nothing may go; the example is of eleven minutes past midnight.
#[test]
fn files_are_judged_at_their_own_time() {
    let night = r#"budgets: [{nodes: "0", schedule: "0 1 * * *", duration: 1h}]"#;
    let (directory, file) = changed(r#"budgets: [{nodes: "1"}]"#, night);
    let plan = |more: &[&str]| -> (String, bool) {
        let arguments = [&["plan", "--disruption", "-o", "json", "-f", &file][..], more].concat();
        let plan: serde_json::Value = serde_json::from_str(&printed(&arguments)).unwrap();
        let acts = !plan["commands"].as_array().unwrap().is_empty();
        (plan["judgedAt"].as_str().unwrap().to_owned(), acts)
    };
    assert_eq!(plan(&[]), ("2026-01-01T00:11:00Z".to_owned(), true));
    let at_night = ("2026-01-01T01:30:00Z".to_owned(), false);
    assert_eq!(plan(&["--now=2026-01-01T01:30:00Z"]), at_night);
    // As `kerf snapshot` says it.
    let taken = directory.path().join("taken.json");
    let list =
        r#"{"apiVersion": "v1", "kind": "List", "takenAt": "2026-01-01T01:30:00Z", "items": []}"#;
    fs::write(&taken, list).unwrap();
    assert_eq!(plan(&["-f", taken.to_str().unwrap()]), at_night);

    for what in ["node/quiet", "nodepool/general"] {
        let now = "--now=2026-01-01T01:30:00Z";
        let told = printed(&["explain", what, "-f", &file, now]);
        assert!(told.contains("  judged as of 2026-01-01T01:30:00Z\n"), "{told}");
        let json = printed(&["explain", what, "-f", &file, now, "-o", "json"]);
        let told: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(told["judgedAt"], "2026-01-01T01:30:00Z");
    }
    let refused = kerf(&["explain", "node/quiet", "-f", &file, "--now=soon"]);
    let message =
        "kerf: invalid value \"soon\" for --now: expected a time such as 2026-01-05T12:00:00Z\n";
    assert_eq!(refused, (Some(2), String::new(), message.to_owned()));
}

#[test]
fn nodes_of_unknown_types_are_shown_with_the_reason() {
    let (_directory, file) = changed("kind: KWOKNodeClass", "kind: EC2NodeClass");
    let pool = printed(&["explain", "nodepool/general", "-f", &file]);
    let unknown = "  its instance types are unknown: its NodeClass is of kind EC2NodeClass; \
                   give them with --instance-types-file-path\n";
    assert!(pool.contains(unknown), "{pool}");
    for (node, pods) in [("guarded", 1), ("quiet  ", 2), ("roomy  ", 2)] {
        let stays = "stays (unknown_instance_types): the instance types of its NodePool are unknown (NodePool=general)";
        assert!(pool.contains(&format!("  {node}   unknown   {pods}      {stays}\n")), "{pool}");
    }
    let node = printed(&["explain", "node/quiet", "-f", &file]);
    assert!(node.starts_with("Node quiet (NodeClaim general-quiet)\n"), "{node}");
    assert!(node.contains(unknown.trim_start()), "{node}");
    let json = printed(&["explain", "nodepool/general", "-f", &file, "-o", "json"]);
    let pool: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(pool["nodes"][0]["pricePerHour"], serde_json::Value::Null);
    assert_eq!(pool["nodes"][0]["refusal"]["reason"], "unknown_instance_types");
}
