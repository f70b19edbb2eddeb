//! `kerf explain` and `kerf plan --disruption` as their users meet them.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{fs, process::Command};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn kerf(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kerf"));
    let output = command.env_clear().current_dir(ROOT).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Every example of the page, run again.
#[test]
fn the_documentation_shows_what_is_printed() {
    let page = fs::read_to_string(format!("{ROOT}/docs/explain.md")).unwrap();
    let examples: Vec<_> = page.split("    $ kerf ").skip(1).collect();
    assert_eq!(examples.len(), 4);
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
