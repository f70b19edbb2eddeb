//! The same mistake ends every command with the same code. docs/json.md has the table.

use std::{fs, path::Path};

use crate::kerf::{command, kerf, output};

/// The commands that take no action by themselves, each with what it needs to get as far as its input.
const COMMANDS: [&[&str]; 10] = [
    &["plan"],
    &["plan", "--disruption"],
    &["explain", "node/a"],
    &["snapshot"],
    &["crds"],
    &["run"],
    &["simulate", "scenario.yaml"],
    &["shadow", "--record", "shadow"],
    &["shadow", "report", "shadow"],
    &["demo"],
];

#[test]
fn wrong_usage_is_code_2_everywhere() {
    for of in COMMANDS {
        let (code, stdout, stderr) = kerf(&[of, &["--no-such-flag"]].concat());
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{of:?}: {stderr}");
        assert!(stderr.starts_with("kerf: unknown argument --no-such-flag"), "{stderr}");
    }
    for arguments in [
        &["explain", "job/x"][..],
        &["plan", "-o", "xml"],
        &["plan", "--disruption", "-n", "shop"],
        &["snapshot", "-n", "shop"],
        &["nope"],
        &["simulate"],
        &["shadow"],
        &["shadow", "report"],
    ] {
        assert_eq!(kerf(arguments).0, Some(2), "{arguments:?}");
    }
}

#[test]
fn input_that_is_wrong_or_cannot_be_read_is_code_2_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join("broken.yaml");
    fs::write(&broken, "a: [1\n").unwrap();
    let broken = broken.to_str().unwrap();
    for file in [broken, "/nonexistent.yaml"] {
        let types = format!("--instance-types-file-path={file}");
        let scenario = "examples/simulate/off-peak-cascade.yaml";
        for arguments in [
            &["plan", "-f", file][..],
            &["plan", "--disruption", "-f", file],
            &["explain", "node/a", "-f", file],
            &["simulate", file],
            &["shadow", "report", file],
            &["simulate", scenario, "--compare", file],
            &["simulate", scenario, &types],
            &["plan", "-f", "examples/plan", &types],
            &["explain", "node/a", "-f", "examples/plan", &types],
            &["run", &types, "--metrics-port=0", "--health-probe-port=0"],
        ] {
            let (code, _, stderr) = kerf(arguments);
            assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        }
    }
    for arguments in [
        &["explain", "node/nope", "-f", "examples/explain/cluster.yaml"][..],
        &["explain", "pod/nope", "-f", "examples/explain/cluster.yaml"],
        &["demo", "--policy=nope", "-o", "json"],
        &["simulate", "examples/simulate/off-peak-cascade.yaml", "--policy=nope"],
        &["shadow", "report", "x", "--compare=nope"],
    ] {
        assert_eq!(kerf(arguments).0, Some(2), "{arguments:?}");
    }
}

#[test]
fn a_cluster_that_cannot_be_read_is_code_1_everywhere() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config");
    let contexts =
        "contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n";
    let cluster =
        "clusters: [{name: a, cluster: {server: \"http://127.0.0.1:1\"}}]\ncurrent-context: a\n";
    fs::write(&config, format!("apiVersion: v1\nkind: Config\n{cluster}{contexts}")).unwrap();
    let config = config.to_str().unwrap();
    let record = home.path().join("record");
    let shadow = ["shadow", "--record", record.to_str().unwrap()];
    for of in [&["plan"][..], &["explain", "node/a"], &["snapshot"], &shadow] {
        for (more, expected) in [
            (&[][..], "kerf: no Kubernetes cluster to connect to: "),
            (
                &["--kubeconfig", "/nonexistent"],
                "kerf: cannot read the kubeconfig /nonexistent: no such file; ",
            ),
            (&["--kubeconfig", config, "--context", "b"], "has no context b; it has: a\n"),
            (&["--kubeconfig", config, "--context", "a"], "kerf: cannot list "),
        ] {
            let arguments = [of, more].concat();
            let (code, stdout, stderr) = output(command(Path::new("/nonexistent"), &arguments));
            assert_eq!((code, stdout.as_str()), (Some(1), ""), "{arguments:?}: {stderr}");
            assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        }
    }
}

/// Nothing is begun for an output that cannot be written.
#[test]
fn an_output_that_cannot_be_written_is_found_first() {
    let directory = tempfile::tempdir().unwrap();
    for path in ["/nonexistent/report.html", directory.path().to_str().unwrap()] {
        let (code, stdout, stderr) = kerf(&[
            "simulate",
            "examples/simulate/off-peak-cascade.yaml",
            "--compare=all",
            "--html",
            path,
        ]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        assert!(stderr.starts_with(&format!("kerf: cannot write {path}: ")), "{stderr}");
        let (code, _, stderr) = kerf(&["shadow", "report", "nonexistent", "--html", path]);
        assert_eq!(code, Some(1));
        assert!(stderr.starts_with(&format!("kerf: cannot write {path}: ")), "{stderr}");
        // There is no cluster either, and that would be found next.
        let (code, _, stderr) = kerf(&["snapshot", "--output-file", path]);
        assert_eq!(code, Some(1));
        assert!(stderr.starts_with(&format!("kerf: cannot write {path}: ")), "{stderr}");
    }
}
