//! `cargo xtask generate`

mod aws;
mod aws_shapes;

use anyhow::{Result, ensure};

use crate::cargo::cargo;

pub(crate) use aws::run as aws;

/// The crate that knows the custom resources has a test which compares what it generates with what
/// the chart ships, and which can write instead.
pub(crate) fn run(check: bool) -> Result<()> {
    let mut command =
        cargo(&["test", "--quiet", "--package", "kerf-provider-kwok", "--test", "crds"]);
    if !check {
        command.env("KERF_WRITE_CRDS", "1");
    }
    ensure!(command.status()?.success(), "generated files are stale, or cannot be written");
    aws(check)?.or_say("the types of AWS in crates/kerf-aws-wire")
}
