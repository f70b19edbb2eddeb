//! `cargo xtask aws seeds`: days in an account in which everything goes wrong that can.

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::Output;
use crate::cargo::cargo;

#[derive(Args)]
pub(crate) struct Days {
    /// How many days are lived; each follows from its number
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The number of the first day
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The profile that they are built with
    #[arg(long, default_value = "play")]
    profile: String,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(crate) fn run(with: &Days) -> Result<()> {
    let mut days =
        cargo(&["run", "--quiet", "--package", "kerf-stories-aws", "--example", "seeds"]);
    days.args(["--profile", &with.profile, "--"]);
    days.args([with.seeds.to_string(), with.first.to_string()]);
    // How far it has come it says on standard error.
    let lived = days.stderr(std::process::Stdio::inherit()).output()?;
    let result: Value =
        serde_json::from_slice(&lived.stdout).context("the days were not lived to their end")?;
    match with.output {
        Output::Json => println!("{result:#}"),
        Output::Table => {
            for (what, figure) in result.as_object().into_iter().flatten() {
                println!("{what:<20} {figure}");
            }
        }
    }
    let failed = result["failed"].as_array().map_or(0, Vec::len);
    ensure!(failed == 0, "{failed} of {} days went wrong", with.seeds);
    Ok(())
}
