//! `cargo xtask recording`: the pictures of the documents, made by the commands that they show.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, workspace};

/// Each command draws its own frames; no terminal is involved, and the same code gives the same files.
const DRAWN: [&[&str]; 2] = [&["demo"], &["top", "-f", "examples/explain/cluster.yaml"]];

pub(crate) fn run() -> Result<()> {
    let directory = workspace().join("docs/images");
    fs::create_dir_all(&directory).context("cannot make docs/images")?;
    let directory = directory.display().to_string();
    for arguments in DRAWN {
        let mut command =
            cargo(&["run", "--quiet", "--profile", "demo", "--package", "kerf", "--"]);
        let status = command.args(arguments).args(["--pictures", &directory]).status()?;
        ensure!(status.success(), "kerf {} has drawn nothing", arguments.join(" "));
    }
    println!("The pictures are in {directory}. Look at them before you commit them.");
    Ok(())
}
