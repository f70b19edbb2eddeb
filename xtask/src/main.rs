//! Developer commands: `cargo xtask --help`.

mod attack;
mod aws;
mod bench;
mod cache;
mod cargo;
mod chaos;
mod charts;
mod control_plane;
mod dist;
mod generate;
mod go;
mod karpenter;
mod page;
mod process;
mod python;
mod recording;
mod shadow;
mod take_over;
mod test;
mod try_out;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// How a command prints what it found.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of Kerf")]
struct Xtask {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Real Kubernetes control planes on this machine
    #[command(subcommand)]
    ControlPlane(control_plane::Command),
    /// Check everything: format, lints, unit tests, tests against a real control plane
    Test(test::Testing),
    /// Show the operator at work on a real control plane, and stop everything afterwards
    Try,
    /// Lint, render and install the charts, and follow docs/install.md on a real control plane
    Charts {
        /// The binary to install; built if not given
        #[arg(long)]
        kerf: Option<String>,
    },
    /// Check and try out the alerts of the chart, and rules made for Karpenter, with promtool
    Rules,
    /// Build a release: static binaries, archives, an image, an SBOM and checksums
    Dist(dist::Dist),
    /// Cause failures of production, and count violations of what must always hold
    #[command(subcommand)]
    Attack(attack::Command),
    /// Run two replicas on a real control plane under one fault after the other, and measure what they use
    ///
    /// Workloads scale and nodes drift while users drain and delete nodes, replicas are killed, the API server and etcd go away
    /// and come back, and proxies stall, cut and swallow connections. What must always hold is checked by watches and by the
    /// audit log. Printed are CPU seconds, most memory and API calls by verb of each replica, for each kind of fault.
    Soak(attack::Soak),
    /// Run the whole operator under random workloads, users and faults in virtual time, and check what must always hold
    Chaos(chaos::Chaos),
    /// Facts about AWS, and tests against simulations of it
    #[command(subcommand)]
    Aws(aws::Command),
    /// Measure Kerf against upstream
    #[command(subcommand)]
    Bench(bench::Command),
    /// Open the operator's page and a report in Chromium, use them, and check that they ask nowhere else
    Page(page::Looking),
    /// Draw the pictures of the documents again: the demo and kerf top, as SVG
    Recording,
    /// Run kerf shadow beside Karpenter on a real control plane, and print its report
    Shadow(shadow::Shadowing),
    /// Hand a real control plane from Karpenter over to Kerf and back, and say what was seen
    TakeOver(take_over::TakeOver),
    /// Write the generated files again: definitions, values and rights of the charts, the types of AWS
    Generate {
        /// Only check whether they are current
        #[arg(long)]
        check: bool,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = match Xtask::parse().command {
        Command::ControlPlane(command) => control_plane::run(command).await,
        Command::Test(testing) => return test::run(&testing).await,
        Command::Try => try_out::run().await,
        Command::Charts { kerf } => {
            charts::run(kerf).await.and_then(|done| done.or_say("the charts"))
        }
        Command::Rules => charts::rules::run().and_then(|done| done.or_say("the rules")),
        Command::Dist(dist) => dist::run(&dist),
        Command::Attack(command) => attack::run(command).await,
        Command::Soak(soak) => attack::soak(&soak).await,
        Command::Chaos(with) => chaos::run(&with),
        Command::Aws(command) => aws::run(command),
        Command::Bench(command) => bench::run(command),
        Command::Page(looking) => {
            page::run(&looking).and_then(|done| done.or_say("the page in a browser"))
        }
        Command::Recording => recording::run(),
        Command::Shadow(shadowing) => shadow::run(&shadowing).await,
        Command::TakeOver(options) => take_over::run(&options).await,
        Command::Generate { check } => generate::run(check),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether this is the machine that must not skip anything.
fn ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::error::ErrorKind;

    use super::*;
    use crate::cargo::workspace;

    /// `cargo xtask …` wherever it stands in a page, in blocks and in sentences.
    fn commands(text: &str) -> Vec<Vec<String>> {
        let after = text.split("cargo xtask ").skip(1);
        after
            .map(|rest| {
                let end = rest.find(['`', '\n', '#', ',', ';', ')', ':']).unwrap_or(rest.len());
                rest[..end].split_whitespace().map(str::to_owned).collect()
            })
            .collect()
    }

    #[test]
    fn the_commands_of_the_pages_exist() {
        let mut pages: Vec<_> = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"]
            .map(|page| workspace().join(page))
            .into();
        let docs = fs::read_dir(workspace().join("docs")).unwrap();
        pages.extend(docs.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()));
        let mut tried = 0;
        for page in pages {
            for command in commands(&fs::read_to_string(&page).unwrap()) {
                let program = std::iter::once("cargo xtask".to_owned());
                tried += 1;
                match Xtask::try_parse_from(program.chain(command.clone())) {
                    Ok(_) => {}
                    // A group of commands is named.
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::DisplayHelp
                                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                        ) => {}
                    Err(error) => panic!("{}: {command:?}: {error}", page.display()),
                }
            }
        }
        assert!(tried > 30, "only {tried} commands are found");
    }
}
