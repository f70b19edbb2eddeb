//! `cargo xtask shadow`: `kerf shadow` beside Karpenter on a real control plane, and its report.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use kerf_control_plane::{ControlPlane, Profile};

use crate::cargo::workspace;
use crate::control_plane::{self, kubectl};
use crate::karpenter::{Elections, Karpenter};
use crate::process::Process;
use crate::try_out::build_kerf;

const CLUSTER: &str = include_str!("../shadow/cluster.yaml");
/// The account that examples/shadow/rbac.yaml makes.
const ACCOUNT: &str = "kerf-shadow";
/// How often workloads are scaled. In between, nodes rest for the `consolidateAfter` of 30 s.
const TICK: Duration = Duration::from_mins(1);

#[derive(Args)]
pub(crate) struct Shadowing {
    /// How long Karpenter works and is recorded
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    minutes: u64,
    /// The binary of Kerf; built if not given
    #[arg(long)]
    kerf: Option<String>,
    /// Where record, report and logs go
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

/// A workload of cluster.yaml, and how its load goes from high to low and back: once in the whole time for the slow ones, and
/// several times for the quick ones, with a little noise, as an autoscaler of pods has it.
struct Load {
    name: &'static str,
    low: u32,
    high: u32,
    waves: f64,
}

const LOADS: [Load; 4] = [
    Load { name: "web", low: 10, high: 40, waves: 1.0 },
    Load { name: "api", low: 6, high: 22, waves: 1.5 },
    Load { name: "worker", low: 2, high: 16, waves: 3.0 },
    Load { name: "queue", low: 5, high: 5, waves: 1.0 },
];

impl Load {
    /// The number of pods at a share of the whole time.
    fn at(&self, share: f64, tick: u32) -> u32 {
        let wave = f64::midpoint(1.0, (share * self.waves * std::f64::consts::TAU).cos());
        let span = f64::from(self.high - self.low);
        // The same each time: a fifth of the span at most, up or down.
        let noise = f64::from((tick * 7919 + self.high * 104_729) % 201) / 100.0 - 1.0;
        let replicas = f64::from(self.low) + span * wave + span * 0.1 * noise;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and a few dozen"
        )]
        let replicas = replicas.round().clamp(f64::from(self.low), f64::from(self.high)) as u32;
        replicas
    }
}

pub(crate) async fn run(shadowing: &Shadowing) -> Result<()> {
    let karpenter = Karpenter::build()?;
    let kerf = match &shadowing.kerf {
        Some(kerf) => std::path::absolute(kerf)?.display().to_string(),
        None => build_kerf(&[])?,
    };
    control_plane::binaries()?;
    let out = shadowing.output_dir.clone();
    let out = out.unwrap_or_else(|| workspace().join("target/shadow"));
    let record = out.join("record");
    if record.exists() {
        fs::remove_dir_all(&record).with_context(|| record.display().to_string())?;
    }
    fs::create_dir_all(&out)?;

    let cluster = ControlPlane::start_with(Profile::Full.audited()).await?;
    let crds = Command::new(&kerf).arg("crds").output().context("kerf crds")?;
    ensure!(crds.status.success(), "kerf crds: {}", String::from_utf8_lossy(&crds.stderr));
    kubectl(&cluster, &["apply", "-f", "-"], crds.stdout).await?;
    let served = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    kubectl(&cluster, &served, "").await?;
    let rbac = fs::read(workspace().join("examples/shadow/rbac.yaml"))?;
    kubectl(&cluster, &["apply", "-f", "-"], rbac).await?;
    let account = cluster.kubeconfig_of_service_account(ACCOUNT, ACCOUNT).await?;

    let mut karpenter = karpenter.start(&cluster, Elections::Off, &out.join("karpenter.log"))?;
    kubectl(&cluster, &["apply", "-f", "-"], CLUSTER).await?;
    // As users have it, the record begins with a cluster that stands.
    scale(&cluster, 0.0, 0).await?;
    for Load { name, .. } in &LOADS {
        kubectl(&cluster, &["rollout", "status", "deployment", name, "--timeout=300s"], "").await?;
    }
    let port = cluster.spare_port();
    let mut command = cluster.command(&kerf);
    command.env("KUBECONFIG", &account).args(["shadow", "--record"]).arg(&record);
    command.arg(format!("--serve={port}"));
    let mut shadow = Process::start(&mut command, &out.join("shadow.log"))?;
    println!("Karpenter and kerf shadow are at work for {} minutes", shadowing.minutes);
    println!("the report so far: http://127.0.0.1:{port}");
    let lived = live(&cluster, shadowing.minutes, &mut [&mut karpenter, &mut shadow]).await;
    if let Some(log) = cluster.audit_log() {
        fs::copy(log, out.join("audit.log"))?;
    }
    lived?;
    shadow.stop()?;
    drop(karpenter);
    let writes = writes(&fs::read_to_string(out.join("audit.log"))?);
    ensure!(writes.is_empty(), "kerf shadow tried to write: {}", writes.join(", "));
    println!("kerf shadow wrote nothing, by the audit log of the API server");

    let report = Command::new(&kerf)
        .args(["shadow", "report"])
        .arg(&record)
        .arg("--html")
        .arg(out.join("report.html"))
        .output()?;
    ensure!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    fs::write(out.join("report.txt"), &report.stdout)?;
    println!("\n{}", String::from_utf8_lossy(&report.stdout));
    println!("record, report and logs are in {}", out.display());
    Ok(())
}

/// Scales the workloads until the time is over.
async fn live(cluster: &ControlPlane, minutes: u64, processes: &mut [&mut Process]) -> Result<()> {
    let (begun, length) = (Instant::now(), Duration::from_mins(minutes));
    let mut tick = 0;
    while begun.elapsed() < length {
        for process in &mut *processes {
            process.check()?;
        }
        let share = begun.elapsed().as_secs_f64() / length.as_secs_f64();
        scale(cluster, share, tick).await?;
        if tick % 5 == 0 {
            let nodes = kubectl(cluster, &["get", "nodes", "-o", "name"], "").await?;
            let pods = kubectl(cluster, &["get", "pods", "-o", "name"], "").await?;
            let (nodes, pods) = (nodes.lines().count(), pods.lines().count());
            println!("{:>3} min: {nodes} nodes, {pods} pods", begun.elapsed().as_secs() / 60);
        }
        tick += 1;
        let next = TICK * tick;
        tokio::time::sleep(next.saturating_sub(begun.elapsed()).min(length)).await;
    }
    Ok(())
}

/// Gives each workload the pods that it has at a share of the whole time.
async fn scale(cluster: &ControlPlane, share: f64, tick: u32) -> Result<()> {
    for load in &LOADS {
        let replicas = format!("--replicas={}", load.at(share, tick));
        kubectl(cluster, &["scale", "deployment", load.name, &replicas], "").await?;
    }
    Ok(())
}

/// What the account of the shadow tried to change. The audit log has every write, and no reads of service accounts.
fn writes(log: &str) -> Vec<String> {
    let user = format!("system:serviceaccount:{ACCOUNT}:{ACCOUNT}");
    let events = log.lines().filter_map(|line| serde_json::from_str(line).ok());
    let own = events.filter(|event: &serde_json::Value| event["user"]["username"] == *user);
    own.filter_map(|event| event["verb"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_go_down_and_come_back() {
        let web = &LOADS[0];
        let (first, middle, last) = (web.at(0.0, 0), web.at(0.5, 1), web.at(1.0, 2));
        assert!(first > 34 && last > 34 && middle < 16, "{first} {middle} {last}");
        assert!(LOADS.iter().all(|load| {
            (0..200).all(|tick| {
                (load.low..=load.high).contains(&load.at(f64::from(tick) / 200.0, tick))
            })
        }));
    }

    #[test]
    fn a_write_of_the_shadow_is_found_among_those_of_others() {
        let line = |user: &str| format!(r#"{{"user":{{"username":"{user}"}},"verb":"create"}}"#);
        let own = "system:serviceaccount:kerf-shadow:kerf-shadow";
        assert_eq!(writes(&[line("admin"), line(own)].join("\n")), ["create"]);
        assert!(writes(&line("admin")).is_empty());
    }
}
