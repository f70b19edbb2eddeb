//! `cargo xtask take-over`: docs/from-karpenter.md with both operators on one real control plane. Karpenter, with its KWOK provider,
//! hands a cluster over to Kerf and takes it back: while nothing happens, and in the middle of a drift.

mod cluster;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use kerf_control_plane::{ControlPlane, Helm, Profile};

use self::cluster::{Cluster, WORKLOADS};
use crate::cargo::workspace;
use crate::charts::operator::{Operator, add_system_node};
use crate::charts::{CRDS, KERF, succeed};
use crate::control_plane::{self, kubectl};
use crate::karpenter::{Elections, Karpenter, NAMESPACE};
use crate::process::Process;
use crate::try_out::build_kerf;

const OBJECTS: &str = include_str!("../shadow/cluster.yaml");
/// Longer than `consolidateAfter` of the pool and the second look of either operator together: what they would do, they do within.
const QUIET: Duration = Duration::from_mins(2);
const ACCOUNT: &str = "system:serviceaccount:kube-system:kerf";

#[derive(Args)]
pub(crate) struct TakeOver {
    /// The binary of Kerf; built if not given
    #[arg(long)]
    kerf: Option<String>,
    /// Where the logs go
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

pub(crate) async fn run(options: &TakeOver) -> Result<()> {
    let karpenter = Karpenter::build()?;
    let helm = Helm::find_or_build(|line| eprintln!("helm: {line}"))?;
    let kerf = match &options.kerf {
        Some(kerf) => std::path::absolute(kerf)?,
        None => build_kerf(&[])?.into(),
    };
    control_plane::binaries()?;
    let out = options.output_dir.clone();
    let out = out.unwrap_or_else(|| workspace().join("target/take-over"));
    fs::create_dir_all(&out)?;
    std::env::set_current_dir(workspace())?;

    let control_plane = ControlPlane::start_with(Profile::Full.audited()).await?;
    let scene = Scene { karpenter, helm, kerf, out, cluster: Cluster::of(&control_plane) };
    let played = scene.play(&control_plane).await;
    if let Some(log) = control_plane.audit_log() {
        fs::copy(log, scene.out.join("audit.log"))?;
    }
    println!("\nlogs are in {}", scene.out.display());
    played
}

struct Scene<'c> {
    karpenter: Karpenter,
    helm: Helm,
    kerf: PathBuf,
    out: PathBuf,
    cluster: Cluster<'c>,
}

impl Scene<'_> {
    async fn play(&self, control_plane: &ControlPlane) -> Result<()> {
        let cluster = &self.cluster;
        say("Karpenter leads, with its own definitions");
        for file in Karpenter::definitions()? {
            kubectl(control_plane, &["apply", "-f", &file.display().to_string()], "").await?;
        }
        let served = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        kubectl(control_plane, &served, "").await?;
        add_system_node(control_plane).await?;
        let karpenter = self.start_karpenter(control_plane, 1)?;
        kubectl(control_plane, &["apply", "-f", "-"], OBJECTS).await?;
        for (name, replicas) in WORKLOADS {
            cluster.scale(name, replicas).await?;
        }
        cluster.until_all_pods_run().await?;
        let settled = cluster.settle().await?;
        println!("   {} NodeClaims, {} pods", settled.claims.len(), settled.pods.len());

        say("Kerf's definitions in place of Karpenter's, and Kerf beside it");
        let set = "providers={kwok}";
        let crds = ["install", "kerf-crds", CRDS, "--take-ownership", "--set", set];
        succeed(&mut self.helm.command_on(control_plane, &crds))?;
        let controls =
            "settings.scaledownUtilizationThreshold=1,settings.consolidationSavingsThreshold=0";
        let chart = ["install", "kerf", KERF, "--namespace", NAMESPACE, "--set", controls];
        let image = ["--set", "image.repository=registry.example.com/kerf"];
        succeed(self.helm.command_on(control_plane, &chart).args(image))?;
        let mut kerf = self.start_kerf(control_plane, 1).await?;
        // Karpenter may still find something to consolidate; what comes to rest now is what Kerf has to keep.
        let before = cluster.settle().await.context("while Kerf stood by")?;
        let writes = writes(control_plane)?;
        ensure!(writes.is_empty(), "Kerf wrote while Karpenter led: {writes:?}");
        println!("   the cluster is at rest, and Kerf wrote nothing");

        say("Karpenter stops, Kerf leads");
        let kerfs = cluster.hand_over(|| karpenter.ask_to_end()).await?;
        drop(karpenter);
        println!("   the lease is Kerf's after {:.1} s", kerfs.as_secs_f64());
        cluster.unchanged_for(QUIET, &before).await.context("after Kerf took over")?;
        cluster.nothing_drifts().await?;
        println!("   in {} s no NodeClaim and no pod changed", QUIET.as_secs());
        self.grow_and_shrink("Kerf").await?;
        let before = cluster.settle().await?;

        say("Kerf stops, Karpenter leads again");
        // A control of Kerf's, which Karpenter has to live with.
        let control = r#"{"spec":{"disruption":{"consolidationGracePeriod":"1m"}}}"#;
        let patch = ["patch", "nodepool", "general", "--type=merge", "-p", control];
        kubectl(control_plane, &patch, "").await?;
        let karpenter = self.start_karpenter(control_plane, 2)?;
        cluster.unchanged_for(Duration::from_secs(20), &before).await?;
        let karpenters = cluster.hand_over(|| kerf.process().ask_to_end()).await?;
        println!("   the lease is Karpenter's after {:.1} s", karpenters.as_secs_f64());
        kerf_is_content(kerf)?;
        cluster.unchanged_for(QUIET, &before).await.context("after Karpenter took over")?;
        cluster.nothing_drifts().await?;
        println!("   in {} s no NodeClaim and no pod changed", QUIET.as_secs());
        self.grow_and_shrink("Karpenter").await?;
        cluster.settle().await?;

        say("a drift begins under Karpenter and ends under Kerf");
        let mut kerf = self.start_kerf(control_plane, 2).await?;
        let begun = cluster.begin_drift("one").await?;
        let took = cluster.hand_over(|| karpenter.ask_to_end()).await?;
        println!("   at the hand-over (after {:.1} s): {begun}", took.as_secs_f64());
        drop(karpenter);
        println!("   {}", cluster.until_drift_is_over("one").await?);

        say("a drift begins under Kerf and ends under Karpenter");
        let mut karpenter = self.start_karpenter(control_plane, 3)?;
        let begun = cluster.begin_drift("two").await?;
        let took = cluster.hand_over(|| kerf.process().ask_to_end()).await?;
        println!("   at the hand-over (after {:.1} s): {begun}", took.as_secs_f64());
        kerf_is_content(kerf)?;
        println!("   {}", cluster.until_drift_is_over("two").await?);

        say("everything goes");
        karpenter.check()?;
        for (name, _) in WORKLOADS {
            cluster.scale(name, 0).await?;
        }
        let gone = cluster.until_no_claims().await?;
        println!("   no NodeClaim and no Node of a pool is left after {:.0} s", gone.as_secs_f64());
        Ok(())
    }

    fn start_karpenter(&self, control_plane: &ControlPlane, number: u32) -> Result<Process> {
        let log = self.out.join(format!("karpenter-{number}.log"));
        self.karpenter.start(control_plane, Elections::On, &log)
    }

    async fn start_kerf(&self, control_plane: &ControlPlane, number: u32) -> Result<Operator> {
        let log = self.out.join(format!("kerf-{number}.log"));
        Operator::start(control_plane, &self.kerf, NAMESPACE, &log).await
    }

    /// More pods get nodes, and fewer pods give some back.
    async fn grow_and_shrink(&self, who: &str) -> Result<()> {
        let cluster = &self.cluster;
        let (name, usual) = WORKLOADS[0];
        let before = cluster.claims().await?.len();
        cluster.scale(name, usual * 2).await?;
        let took = cluster.until_all_pods_run().await?;
        let grown = cluster.settle().await?.claims.len();
        ensure!(grown > before, "{who} launched nothing: {before} and {grown} NodeClaims");
        cluster.scale(name, usual).await?;
        let shrunk = cluster.settle().await?.claims.len();
        println!(
            "   {who} launches for {usual} more pods (all run after {:.1} s) and consolidates without them: {before}, {grown}, {shrunk} NodeClaims",
            took.as_secs_f64()
        );
        ensure!(shrunk < grown, "{who} consolidated nothing");
        Ok(())
    }
}

/// What Kerf's account changed, but for the lease that it competes for.
fn writes(control_plane: &ControlPlane) -> Result<Vec<String>> {
    let log = control_plane.audit_log().context("no audit log")?;
    let log = fs::read_to_string(log)?;
    let events = log.lines().filter_map(|line| serde_json::from_str(line).ok());
    let own = events.filter(|event: &serde_json::Value| event["user"]["username"] == ACCOUNT);
    let own = own.filter(|event| event["objectRef"]["resource"] != "leases");
    let own = own.filter(|event| !["get", "list", "watch"].iter().any(|it| event["verb"] == *it));
    Ok(own.map(|event| format!("{} {}", event["verb"], event["requestURI"])).collect())
}

/// It ended when it was asked to, and lacked no right before.
fn kerf_is_content(mut kerf: Operator) -> Result<()> {
    kerf.process().wait()?;
    kerf.check_rights()
}

fn say(what: &str) {
    println!("\n==> {what}");
}
