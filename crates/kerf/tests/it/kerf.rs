//! The binary, started at the root of the repository in an environment that holds nothing of this machine.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::json;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Exit code, standard output and standard error.
pub(crate) type Printed = (Option<i32>, String, String);

/// `kerf` with this directory as `HOME`.
pub(crate) fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kerf"));
    command.env_clear().env("HOME", home).current_dir(ROOT).args(arguments);
    command
}

pub(crate) fn output(mut command: Command) -> Printed {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// `kerf` without a cluster.
pub(crate) fn kerf(arguments: &[&str]) -> Printed {
    output(command(Path::new("/nonexistent"), arguments))
}

/// What is printed when all is well.
pub(crate) fn printed(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = kerf(arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
    stdout
}

/// Makes the API server at this address the cluster of whoever has this `HOME`.
pub(crate) fn write_kubeconfig(home: &Path, server: &str) {
    fs::create_dir(home.join(".kube")).unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
    });
    fs::write(home.join(".kube/config"), config.to_string()).unwrap();
}
