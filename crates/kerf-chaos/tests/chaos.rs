//! A short form of `cargo xtask chaos`, and every plan that ever failed.

use std::fs;
use std::path::{Path, PathBuf};

use kerf_chaos::plan::Provider;
use kerf_chaos::{Outcome, Plan, run};

const HOURS: u64 = 3;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn holds(what: &str, outcome: &Outcome) {
    let violations: Vec<_> = outcome.violations.iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "{what}: {}\n{}", violations.join("\n"), outcome.log.join("\n"));
}

#[test]
fn a_few_seeds_hold_and_a_seed_is_repeated_to_the_last_write() {
    let [first, again] = [1, 1].map(|seed| run(&Plan::of(seed, HOURS, Provider::Kwok)));
    holds("seed 1", &first);
    assert!(first.launched > 0 && first.writes > 100, "{first:?}");
    assert_eq!((first.digest, first.writes), (again.digest, again.writes));
    assert_eq!(first.coverage, again.coverage);
    holds("seed 2", &run(&Plan::of(2, HOURS, Provider::Kwok)));
}

#[test]
fn what_failed_once_holds_now() {
    for file in fs::read_dir(here().join("found")).expect("the directory exists") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a file is text");
        let found: serde_json::Value = serde_json::from_str(&text).expect("a file is JSON");
        let plan: Plan = serde_json::from_value(found["plan"].clone()).expect("it holds a plan");
        let what = format!("{} ({})", path.display(), found["found"]);
        holds(&what, &run(&plan));
    }
}

/// The model that judges the operator must not be wrong in the same way.
#[test]
fn the_checker_shares_no_code_with_the_operator() {
    let src = here().join("src");
    let files = fs::read_dir(src.join("checker")).expect("the directory exists");
    let files = files.map(|file| file.expect("a file").path());
    let files: Vec<PathBuf> = files.chain([src.join("checker.rs")]).collect();
    assert!(files.len() > 3);
    for file in files {
        let text = fs::read_to_string(&file).expect("source is text");
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for word in ["kerf_", "crate::", "kube::"] {
                assert!(!line.contains(word), "{}: {line}", file.display());
            }
        }
    }
}
