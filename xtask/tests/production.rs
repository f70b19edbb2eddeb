//! What runs in production has no testbed in it, and no tokio whose clock can be stopped.

use std::path::Path;
use std::process::Command;

/// The lines of `cargo tree` that a production build must not have.
const FORBIDDEN: [&str; 3] = ["kerf-testbed ", "kerf-simulation ", "tokio feature \"test-util\""];

#[test]
fn a_production_build_has_neither_the_testbed_nor_virtual_time() {
    let tree = tree(&["--no-default-features"]);
    let found = forbidden(&tree);
    assert!(found.is_empty(), "a build without the feature simulate has:\n{}", found.join("\n"));
}

#[test]
fn the_build_of_the_demo_has_both() {
    let tree = tree(&[]);
    let found = forbidden(&tree);
    for forbidden in FORBIDDEN {
        assert!(found.iter().any(|line| line.starts_with(forbidden)), "{forbidden} not in {tree}");
    }
}

fn forbidden(tree: &str) -> Vec<&str> {
    let is_forbidden = |line: &&str| FORBIDDEN.iter().any(|name| line.starts_with(name));
    tree.lines().filter(is_forbidden).collect()
}

/// What the binary is built from, with the features that are switched on.
fn tree(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--package", "kerf", "--edges", "normal,features"])
        .args(["--prefix", "none"])
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes text")
}
