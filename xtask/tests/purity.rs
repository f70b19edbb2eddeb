//! Decisions are pure: the crates that decide have no client, no runtime, no clock and no randomness.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that decide; one that does not exist yet is passed over.
const PURE: [&str; 7] = [
    "kerf-model",
    "kerf-devices",
    "kerf-scheduler",
    "kerf-disruption",
    "kerf-aws-api",
    "kerf-aws-model",
    "kerf-aws-wire",
];

/// What does I/O, waits, reads a clock or throws dice.
const FORBIDDEN: [&str; 18] = [
    "async-std",
    "chrono",
    "fastrand",
    "getrandom",
    "hyper",
    "hyper-util",
    "kube",
    "kube-client",
    "kube-runtime",
    "mio",
    "rand",
    "rand_core",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "time",
    "tokio",
];

/// What reads the machine's clock or seeds from its entropy, as it is written in source.
const IMPURE: [&str; 7] = [
    "Instant::now",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "RandomState",
    "std::env",
    "std::thread::sleep",
];

#[test]
fn the_crates_that_decide_depend_on_no_client_runtime_clock_or_dice() {
    let mut found = Vec::new();
    for name in pure_crates() {
        for path in dependency_paths(&tree(name)) {
            if FORBIDDEN.contains(path.last().expect("a path has an end")) {
                found.push(path.join(" -> "));
            }
        }
    }
    assert!(found.is_empty(), "pure crates must not depend on these:\n{}", found.join("\n"));
}

#[test]
fn the_crates_that_decide_read_no_clock_and_no_environment() {
    let mut found = Vec::new();
    for name in pure_crates() {
        for file in rust_files(&crates().join(name).join("src")) {
            let text = fs::read_to_string(&file).expect("a source file is text");
            for (number, line) in text.lines().enumerate() {
                if let Some(impure) = impurity(line) {
                    found.push(format!("{}:{}: {impure}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "pure crates get the time and the settings as arguments, they do not read them:\n{}",
        found.join("\n")
    );
}

/// The crates that serve every provider.
const CORE: [&str; 8] = [
    "kerf-api",
    "kerf-model",
    "kerf-scheduler",
    "kerf-disruption",
    "kerf-cluster",
    "kerf-controllers",
    "kerf-provider",
    "kerf-runtime",
];

/// A provider is one crate and one line in the binary.
#[test]
fn the_core_does_not_name_kwok() {
    let mut found = Vec::new();
    for name in CORE {
        let home = crates().join(name);
        for file in rust_files(&home).into_iter().chain([home.join("Cargo.toml")]) {
            let text = fs::read_to_string(&file).expect("a source file is text");
            let lines = text.lines().enumerate();
            let naming = lines.filter(|(_, line)| line.to_lowercase().contains("kwok"));
            found.extend(naming.map(|(number, _)| format!("{}:{}", file.display(), number + 1)));
        }
    }
    assert!(found.is_empty(), "these belong into kerf-provider-kwok:\n{}", found.join("\n"));
}

#[test]
fn follows_a_dependency_to_its_origin() {
    let tree = "0kerf-model v0.1.0 (/src)\n1serde v1.0.0\n2serde_core v1.0.0\n1k8s-openapi v0.29.0\n2tokio v1.0.0 (*)\n";
    let paths = dependency_paths(tree);
    let to_tokio = paths.iter().find(|path| path.last() == Some(&"tokio"));
    assert_eq!(to_tokio, Some(&vec!["kerf-model", "k8s-openapi", "tokio"]));
}

#[test]
fn tells_impure_lines_from_pure_ones() {
    let cases = [
        ("let now = Instant::now();", Some("Instant::now")),
        ("// not Instant::now, but what we are told", None),
        ("use std::collections::{BTreeMap, HashMap};", Some("std's randomly seeded hash order")),
        ("use std::collections::BTreeMap;", None),
        ("use rustc_hash::FxHashMap;", None),
    ];
    for (line, expect) in cases {
        assert_eq!(impurity(line), expect, "{line}");
    }
}

fn impurity(line: &str) -> Option<&'static str> {
    if line.trim_start().starts_with("//") {
        return None;
    }
    if line.contains("std::collections") && (line.contains("HashMap") || line.contains("HashSet")) {
        return Some("std's randomly seeded hash order");
    }
    IMPURE.into_iter().find(|impure| line.contains(impure))
}

fn pure_crates() -> impl Iterator<Item = &'static str> {
    let exists = |name: &&str| crates().join(name).join("Cargo.toml").exists();
    assert!(PURE.iter().any(exists), "none of {PURE:?} is in {}", crates().display());
    PURE.into_iter().filter(exists)
}

/// What a crate needs at run time, with the features that it asks for itself: those that some other
/// crate of the workspace switches on in a shared dependency do not make it less pure. Macros run at
/// compile time and do not count.
fn tree(name: &str) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--edges", "normal,no-proc-macro", "--prefix", "depth"])
        .args(["--package", name])
        .current_dir(crates())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes text")
}

/// Each line of `cargo tree --prefix depth` as the names from the root down to it.
fn dependency_paths(tree: &str) -> Vec<Vec<&str>> {
    let mut path = Vec::new();
    let mut paths = Vec::new();
    for line in tree.lines() {
        let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (depth, rest) = line.split_at(digits);
        let (Ok(depth), Some(name)) = (depth.parse::<usize>(), rest.split(' ').next()) else {
            continue;
        };
        path.truncate(depth);
        path.push(name);
        paths.push(path.clone());
    }
    paths
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a crate has sources") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")
}
