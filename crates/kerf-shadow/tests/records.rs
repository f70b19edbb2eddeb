//! A cluster on the testbed, with an operator at work in it, that is recorded while it lives; and what the report makes of it.

use std::{path::Path, time::Duration};

use kerf_shadow::{Limits, Recorder, Report, Terms, Trust, report};
use kerf_simulation::{Cloud, DEFAULTS, Play, Policy, Scenario, Summary};
use kerf_testbed::Testbed;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A load that shrinks and never quite rests: what makes Karpenter's consolidation cascade.
const SHRINKS: &str = "
length: 2h
seed: 7146
start: 2026-01-05T17:00:00Z
pools:
- name: workload
  spec:
    disruption: {consolidateAfter: 30s, consolidationPolicy: WhenEmptyOrUnderutilized, budgets: [{nodes: 20%}]}
    template: {spec: {requirements: [
      {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]},
      {key: kubernetes.io/arch, operator: In, values: [amd64]},
      {key: node.kubernetes.io/instance-type, operator: In, values: [c-2x-amd64-linux, s-4x-amd64-linux, m-4x-amd64-linux]}]}}
workloads:
- {name: web, daily: {low: 12, high: 30, peak: 14h, every: 5m, noise: 10}, pod: {cpu: 400m, memory: 1Gi}, budget: {maxUnavailable: 25%}}
- {name: api, daily: {low: 6, high: 16, peak: 15h, every: 5m, noise: 10}, pod: {cpu: 500m, memory: 2Gi}}
- {name: queue, replicas: 5, pod: {cpu: 600m, memory: 3Gi}, budget: {maxUnavailable: 1}}
- {name: report, cron: {schedule: '5,25,45 * * * *', runsFor: 2m}, pod: {cpu: 500m, memory: 256Mi}}
- {name: agent, daemon: true, pod: {cpu: 80m, memory: 128Mi}}
";

fn policy(name: &str) -> Policy {
    Policy::named(&[name.to_owned()], &[]).expect("it is built in").remove(0)
}

struct Shadow {
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Shadow {
    async fn start(play: &Play, dir: &Path, limits: Limits) -> Self {
        let (client, clock) = (play.testbed().client(), play.testbed().clock().clone());
        let recorder =
            Recorder::start(client, &[], clock, dir, limits).await.expect("it can be read");
        let stop = CancellationToken::new();
        let run = recorder.run(stop.clone());
        let running = tokio::spawn(async move { run.await.expect("it can be written") });
        Self { stop, running }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.expect("it does not panic");
    }

    /// As a crash would.
    async fn kill(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}

fn terms(policies: &[&str]) -> Terms {
    let names: Vec<_> = policies.iter().map(|name| (*name).to_owned()).collect();
    let policies = kerf_shadow::by_name(&names).expect("they are built in");
    Terms { policies, instance_types_file: None, seed: 1 }
}

/// The report, in KWOK's cloud.
fn made(dir: &Path, terms: &Terms) -> Report {
    report(dir, terms, |_| Ok(Cloud::default()), |_| {}).expect("it can be played")
}

/// All that both sides count. What only an operator knows of itself is left out, and what is measured against other runs.
fn counted(summary: &Summary) -> Summary {
    Summary {
        name: String::new(),
        blocked: std::collections::BTreeMap::new(),
        savings: None,
        savings_per_eviction: None,
        ..summary.clone()
    }
}

#[test]
fn the_accounts_are_those_of_the_play_and_the_replay_is_close() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = Scenario::from_yaml(SHRINKS, "test").unwrap();
    let played = Testbed::in_virtual_time(async {
        let mut play = Play::start(&scenario, &policy("parity")).await.unwrap();
        let shadow = Shadow::start(&play, dir.path(), Limits::default()).await;
        play.until(scenario.length.as_duration()).await.unwrap();
        shadow.stop().await;
        Summary::of(&play)
    })
    .unwrap();
    assert!(played.evictions >= 20, "there is a cascade: {played:?}");

    let Report { verdict, calibration, running, policies, caveats, bytes, pods, hours, .. } =
        made(dir.path(), &terms(&[DEFAULTS]));
    println!("{verdict}\n{}\n{}", calibration.text, caveats.join("\n"));
    println!("{pods} pods, {bytes} bytes, {hours} h");
    for one in &policies {
        println!("{one:?}");
    }
    assert_eq!(counted(&running), counted(&played));
    assert!(calibration.trust <= Trust::Rough, "{calibration:?}\n{running:?}\n{policies:?}");
    assert!(verdict.starts_with("In 2 h the running autoscaler spent $"), "{verdict}");
    let defaults = policies.iter().find(|policy| policy.name == DEFAULTS).unwrap();
    assert!(defaults.evictions < running.evictions, "{defaults:?}\n{running:?}");
    assert_eq!(defaults.pending_at_end, 0, "{defaults:?}");
}

#[test]
fn a_restart_in_the_middle_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut scenario = Scenario::from_yaml(SHRINKS, "test").unwrap();
    scenario.length = "50m".parse().unwrap();
    // Small files, so that it also begins new ones.
    let limits = Limits { file: 20_000, ..Limits::default() };
    let played = Testbed::in_virtual_time(async {
        let mut play = Play::start(&scenario, &policy("parity")).await.unwrap();
        let mut shadow = Shadow::start(&play, dir.path(), limits).await;
        for minutes in [7, 21, 33] {
            play.until(Duration::from_mins(minutes)).await.unwrap();
            shadow.kill().await;
            shadow = Shadow::start(&play, dir.path(), limits).await;
        }
        play.until(scenario.length.as_duration()).await.unwrap();
        shadow.stop().await;
        Summary::of(&play)
    })
    .unwrap();
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert!(files > 3, "{files} files with the lock");
    let found = made(dir.path(), &terms(&["when-empty"]));
    assert_eq!(found.gaps, 3);
    assert_eq!(counted(&found.running), counted(&played));
}

#[test]
fn a_record_of_a_cluster_that_stands_begins_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut scenario = Scenario::from_yaml(SHRINKS, "test").unwrap();
    scenario.length = "1h".parse().unwrap();
    // What the summaries round is compared before it is rounded.
    let so_far = |play: &Play| (Summary::of(play), play.ledger().totals().cost());
    let ((before, cost_before), (after, cost_after)) = Testbed::in_virtual_time(async {
        let mut play = Play::start(&scenario, &policy("parity")).await.unwrap();
        play.until(Duration::from_mins(30)).await.unwrap();
        let before = so_far(&play);
        let shadow = Shadow::start(&play, dir.path(), Limits::default()).await;
        play.until(scenario.length.as_duration()).await.unwrap();
        shadow.stop().await;
        (before, so_far(&play))
    })
    .unwrap();
    let found = made(dir.path(), &terms(&[DEFAULTS]));
    let running = &found.running;
    assert_eq!(running.evictions, after.evictions - before.evictions);
    assert_eq!(running.launched, after.launched - before.launched);
    assert_eq!(running.terminated, after.terminated - before.terminated);
    // Only the report's figure is rounded, to four decimals.
    let apart = running.cost - (cost_after - cost_before);
    assert!(apart.abs() <= 0.5e-4, "{apart}: {running:?}");
    let replay = &found.policies[0];
    assert!(found.calibration.cost_percent.abs() < 10.0, "{running:?}\n{replay:?}");
    assert_eq!(replay.pending_at_end, 0, "{replay:?}");
}
