//! `cargo xtask generate`

mod aws;
mod aws_shapes;

use anyhow::{Result, ensure};

use crate::cargo::cargo;

pub(crate) use aws::run as aws;

/// The crate that knows the custom resources, the flags, the rights, the metrics and the answers of commands has tests which
/// compare what they generate with what the charts ship and the documentation has, and which can write instead.
pub(crate) fn run(check: bool) -> Result<()> {
    // From the whole workspace: one package alone has other features, and most of its dependencies would be compiled again.
    let mut command = cargo(&["test", "--quiet", "--workspace", "--features", "kerf/aws"]);
    command.args(["--bin", "kerf", "--", "generated_from_what_kerf_is", "the_schemas_are_those"]);
    if !check {
        command.env("KERF_WRITE_GENERATED", "1");
    }
    ensure!(command.status()?.success(), "generated files are stale, or cannot be written");
    aws(check)?.or_say("the types of AWS in crates/kerf-aws-wire")
}
