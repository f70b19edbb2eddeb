//! Upstream's programs, built from the Go module registry.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds a package that a module names as its tool, under another name until it is complete.
pub(crate) fn build(module: &Path, package: &str, program: &Path) -> Result<()> {
    let partial = program.with_extension("partial");
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
        .args([&partial, Path::new(package)])
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .status()
        .with_context(|| format!("running go to build {package}: install Go"))?;
    ensure!(status.success(), "{package} does not build: it needs a Go module registry");
    fs::rename(&partial, program)?;
    Ok(())
}
