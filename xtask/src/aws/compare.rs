//! Karpenter's AWS provider beside Kerf's: the two programs are built here, and run by `xtask/aws-compare`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::Output;
use crate::cache::cache;
use crate::cargo::{cargo, workspace};
use crate::control_plane;
use crate::try_out::build_kerf;

/// In the tool directive of xtask/aws-compare/upstream/go.mod.
const CONTROLLER: &str = "github.com/aws/karpenter-provider-aws/cmd/controller";

#[derive(Args)]
pub(crate) struct Comparing {
    /// Only the cases with this in their name
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// Only show what this side does: upstream or kerf
    #[arg(long, value_name = "SIDE")]
    show: Option<String>,
    /// Instead: give both sides so many claims at once, on a cloud with the delays and limits of the real one
    #[arg(long, value_name = "CLAIMS", conflicts_with_all = ["only", "show"])]
    burst: Option<usize>,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(crate) fn run(comparing: &Comparing) -> Result<()> {
    let upstream = build_upstream()?;
    let kerf = build_kerf(&["--features=aws"])?;
    control_plane::binaries()?;
    let mut command = cargo(&["run", "--quiet", "--package", "aws-compare", "--"]);
    command.arg("--upstream").arg(upstream).arg("--kerf").arg(kerf);
    command.arg("--logs").arg(workspace().join("target/aws-compare"));
    for (flag, value) in [("--only", &comparing.only), ("--show", &comparing.show)] {
        command.args(value.iter().flat_map(|value| [flag, value]));
    }
    if let Some(count) = comparing.burst {
        command.arg(format!("--burst={count}"));
    }
    if comparing.output == Output::Json {
        command.arg("--output=json");
    }
    ensure!(command.status()?.success(), "the comparison failed");
    Ok(())
}

/// Where the controller is. The directory is named after its module file, so that it is built once per version.
fn build_upstream() -> Result<PathBuf> {
    let module = workspace().join("xtask/aws-compare/upstream");
    let recipe = fs::read(module.join("go.sum")).context("upstream/go.sum")?;
    let home = cache().join("aws-compare");
    let program = home.join(format!("controller-{:016x}", crate::python::fnv(&recipe)));
    if program.exists() {
        return Ok(program);
    }
    eprintln!("building Karpenter's controller for AWS (ten minutes the first time)");
    fs::create_dir_all(&home)?;
    crate::go::build(&module, CONTROLLER, &program)?;
    Ok(program)
}
