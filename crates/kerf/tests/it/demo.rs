//! `kerf demo` as its users meet it, where there is no terminal.

use std::fs;

use serde_json::Value;

use crate::kerf::{ROOT, kerf, printed};

/// The story that the README opens with, played again. How long it took to compute is the machine's.
#[test]
fn the_documentation_shows_what_is_printed() {
    let played = printed(&["demo"]);
    let (story, took) = played.split_once("(Computed in ").unwrap();
    assert!(took.ends_with(" s.)\n"), "{took}");
    let shown: Vec<_> =
        story.lines().map(|line| format!("    {line}").trim_end().to_owned()).collect();
    let shown = shown.join("\n");
    for file in ["README.md", "docs/demo.md"] {
        let page = fs::read_to_string(format!("{ROOT}/{file}")).unwrap();
        assert!(page.contains(&shown), "{file} does not have\n{shown}");
    }
}

#[test]
fn the_figures_are_those_of_the_sentence() {
    let arguments = ["demo", "cascade", "--length=10m", "--seed=1", "-o", "json"];
    let report: Value = serde_json::from_str(&printed(&arguments)).unwrap();
    let policies = report["policies"].as_array().unwrap();
    let names: Vec<_> = policies.iter().map(|policy| policy["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["parity", "kerf-defaults"]);
    let evicted = |at: usize| policies[at]["evictions"].as_u64().unwrap();
    let sentence = report["verdict"].as_str().unwrap();
    let expected = format!(
        "In 10 minutes of the same load Karpenter's policy evicted {} pods and Kerf's defaults {}, for ",
        evicted(0),
        evicted(1)
    );
    assert!(sentence.starts_with(&expected), "{sentence}");
    assert_eq!(report["seed"], 1);
}

#[test]
fn the_shop_is_one_cluster_under_one_policy() {
    let told = printed(&["demo", "shop", "--length=3m"]);
    let first = told.lines().next().unwrap();
    assert_eq!(first, "08:00:00  > web starts with 6 replicas");
    assert!(told.contains("0h03m of a cluster under the policy kerf-defaults, in "), "{told}");
    let told = printed(&["demo", "--policy=parity", "--length=3m"]);
    assert!(told.contains("under the policy parity"), "a policy is about one cluster: {told}");
    let expected = "kerf: --serve is about one cluster, and the story cascade has two; use kerf demo shop --serve\n";
    assert_eq!(
        kerf(&["demo", "cascade", "--serve"]),
        (Some(2), String::new(), expected.to_owned())
    );
}
