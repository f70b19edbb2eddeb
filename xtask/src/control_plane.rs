//! `cargo xtask control-plane`

use std::env;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use kerf_control_plane::detached::{self, Detached};
use kerf_control_plane::{Binaries, BinariesError, ControlPlane, Program, Source};
use serde_json::json;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Build etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kwok and kubectl with Go,
    /// unless they are built already
    Build,
    /// Start a cluster that keeps running until `down`
    Up(Name),
    /// Stop a cluster and delete its data
    Down(Name),
    /// List the clusters that are running
    Status {
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

#[derive(Args)]
pub(crate) struct Name {
    /// Which cluster; several can run at once
    #[arg(long, default_value = "default")]
    name: String,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Build => {
            let binaries = Binaries::build(progress)?;
            println!("{}", binaries.path(Program::Kubectl).with_file_name("").display());
        }
        Command::Up(Name { name }) => up(&name).await?,
        Command::Down(Name { name }) => {
            let stopped = detached::down(&name)?;
            println!("{name}: {}", if stopped { "stopped" } else { "was not running" });
        }
        Command::Status { output } => status(output)?,
    }
    Ok(())
}

/// The binaries to use, built first if there are none.
pub(crate) fn binaries() -> Result<Binaries, BinariesError> {
    let binaries = Binaries::find_or_build(progress)?;
    if binaries.source() != Source::Cache {
        progress(&format!("taken from {}", binaries.source()));
    } else if env::var_os("KUBEBUILDER_ASSETS").is_some_and(|dir| !dir.is_empty()) {
        progress(&format!("taken from {}: {}", binaries.source(), binaries.passed_over()));
    }
    Ok(binaries)
}

/// What kubectl prints, if it succeeds.
pub(crate) async fn kubectl(
    cluster: &ControlPlane,
    arguments: &[&str],
    input: impl Into<Vec<u8>>,
) -> Result<String> {
    let output = cluster.kubectl_with_input(arguments, input).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {}: {said}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn up(name: &str) -> Result<()> {
    let binaries = binaries()?;
    let started = Instant::now();
    let cluster = detached::up(&binaries, name).await?;
    progress(&format!("{name}: ready after {:.1} s", started.elapsed().as_secs_f32()));
    println!("export KUBECONFIG={}", cluster.kubeconfig.display());
    Ok(())
}

fn status(output: Output) -> Result<()> {
    let running = detached::running()?;
    match output {
        Output::Json => {
            let describe = |cluster: &Detached| json!({"name": cluster.name, "kubeconfig": cluster.kubeconfig});
            println!("{:#}", json!(running.iter().map(describe).collect::<Vec<_>>()));
        }
        Output::Text if running.is_empty() => println!("no cluster is running"),
        Output::Text => {
            for Detached { name, kubeconfig } in running {
                println!("{name}\t{}", kubeconfig.display());
            }
        }
    }
    Ok(())
}

fn progress(line: &str) {
    eprintln!("control plane: {line}");
}
