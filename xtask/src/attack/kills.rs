//! SIGKILL at any moment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::Common;
use super::api::{self, CLAIMS, NODES, text};
use super::audit::{self, Entry, Trespass};
use super::churn::Churn;
use super::random::Random;
use super::replica::Replica;
use super::report::Report;
use super::stage::{LEASE_NAME, Stage, progress};
use super::witness::Witness;

/// Longer than a lease lasts and a debug build takes to start on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);

#[derive(Args)]
pub(crate) struct Kills {
    /// How many times a replica is killed
    #[arg(long = "kills", value_name = "COUNT", default_value_t = 60)]
    count: u32,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Kills {
    pub(super) async fn run(&self) -> Result<Report> {
        let stage = Stage::start("kills", &self.common).await?;
        let mut random = Random::new(self.common.seed);
        let mut replicas =
            [Replica::start(&stage, "kerf-a", None)?, Replica::start(&stage, "kerf-b", None)?];
        stage.next_leader(&mut replicas, &[], PATIENCE).await?;
        let witness = Witness::start(&stage.api);
        let churn = Churn::start(&stage, self.common.seed).await?;
        let begin = Instant::now();
        let mut leaders_killed = 0;
        for kill in 1..=self.count {
            let leader = stage.next_leader(&mut replicas, &[], PATIENCE).await?;
            tokio::time::sleep(Duration::from_millis(random.between(0, 5_000))).await;
            let leads = random.chance(75);
            let victim = &mut replicas[if leads { leader } else { 1 - leader }];
            victim.signal("KILL")?;
            victim.end(PATIENCE).await?;
            victim.restart(&stage)?;
            leaders_killed += u32::from(leads);
            let role = if leads { "the leader" } else { "the standby" };
            progress(&format!("kill {kill} of {}: {}, {role}", self.count, victim.user));
        }
        let lasted = begin.elapsed().as_secs_f64();
        churn.rest(&stage).await?;
        stage.next_leader(&mut replicas, &[], PATIENCE).await?;
        let pending = stage.pending(Duration::from_mins(5)).await?;
        let rest = Instant::now();
        let mismatches = matched(&stage, Duration::from_mins(3)).await?;

        let mut report = Report::new("kills", self.common.seed, stage.logs());
        report.figure("kills", f64::from(self.count), "");
        report.figure("of them of the leader", f64::from(leaders_killed), "");
        report.figure("time of the kills", lasted, "s");
        report.figure("time until claims and instances matched", rest.elapsed().as_secs_f64(), "s");
        witness.tell(&mut report);
        report.never("pods without a node at the end", &pending);
        report.never("claims and instances that do not match at the end", &mismatches);
        tell_audit(&mut report, &stage, &replicas)?;
        Ok(report)
    }
}

/// What the audit log says about leadership and launches.
pub(super) fn tell_audit(report: &mut Report, stage: &Stage, replicas: &[Replica]) -> Result<()> {
    let entries = stage.audit()?;
    let users: Vec<_> = replicas.iter().map(|replica| replica.user.clone()).collect();
    let terms = audit::terms(&entries, LEASE_NAME);
    let by_us = || entries.iter().filter(|entry| users.contains(&entry.user) && entry.is_write());
    report.figure("times that the lease changed hands", terms.len().saturating_sub(1) as f64, "");
    report.figure("writes by the replicas", by_us().count() as f64, "");
    report.figure("conflicts", by_us().filter(|entry| entry.code == 409).count() as f64, "");
    let launched = created(&entries, "nodes");
    report.figure("instances launched", launched.len() as f64, "");
    report.figure("claims created", created(&entries, "nodeclaims").len() as f64, "");
    let twice: Vec<_> =
        launched.iter().filter(|(_, times)| **times > 1).map(|(name, _)| *name).collect();
    report.never("instances launched twice", &twice);
    let trespasses = audit::trespasses(&entries, &terms, &users);
    let mut kinds = BTreeMap::<_, u32>::new();
    for Trespass { entry, .. } in &trespasses {
        *kinds.entry((&entry.verb, &entry.resource)).or_default() += 1;
    }
    report.never("writes while another held the lease", &trespasses);
    for ((verb, resource), times) in kinds {
        report.figure(format!("  of them {verb} {resource}"), f64::from(times), "");
    }
    Ok(())
}

/// How many times each object of a kind was created.
fn created<'a>(entries: &'a [Entry], resource: &str) -> BTreeMap<&'a str, usize> {
    let mut times = BTreeMap::new();
    for entry in entries {
        if entry.verb == "create" && entry.resource == resource && entry.code < 300 {
            *times.entry(entry.name.as_str()).or_default() += 1;
        }
    }
    times
}

/// Waits until each claim has its instance and each instance its claim; else what does not match.
async fn matched(stage: &Stage, patience: Duration) -> Result<Vec<String>> {
    let begin = Instant::now();
    loop {
        let (claims, nodes) = (stage.api.list(CLAIMS).await?, stage.api.list(NODES).await?);
        let problems = mismatches(&claims, &nodes);
        if problems.is_empty() || begin.elapsed() > patience {
            return Ok(problems);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn mismatches(claims: &[Value], nodes: &[Value]) -> Vec<String> {
    let mut by_id = BTreeMap::<&str, (Vec<&str>, Vec<&str>)>::new();
    for claim in claims {
        by_id.entry(text(claim, "/status/providerID")).or_default().0.push(api::name(claim));
    }
    for node in nodes {
        by_id.entry(text(node, "/spec/providerID")).or_default().1.push(api::name(node));
    }
    let mut problems: Vec<_> = by_id
        .into_iter()
        .filter_map(|(id, (claims, nodes))| match (claims.as_slice(), nodes.as_slice()) {
            ([_], [_]) if !id.is_empty() => None,
            _ => Some(format!("{id:?} is of the claims {claims:?} and of the nodes {nodes:?}")),
        })
        .collect();
    let going = claims.iter().chain(nodes).filter(|object| api::is_deleting(object));
    problems.extend(going.map(|object| format!("{} is being deleted", api::name(object))));
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_and_instances_match_one_to_one() {
        let claim = |name: &str, id: &str| json!({"metadata": {"name": name}, "status": {"providerID": id}});
        let node =
            |name: &str, id: &str| json!({"metadata": {"name": name}, "spec": {"providerID": id}});
        assert_eq!(mismatches(&[claim("c", "1")], &[node("n", "1")]), [""; 0]);
        let cases = [
            (vec![claim("c", "1")], vec![], r#""1" is of the claims ["c"] and of the nodes []"#),
            (vec![], vec![node("n", "1")], r#""1" is of the claims [] and of the nodes ["n"]"#),
            (
                vec![claim("c", "1")],
                vec![node("m", "1"), node("n", "1")],
                r#""1" is of the claims ["c"] and of the nodes ["m", "n"]"#,
            ),
            (vec![claim("c", "")], vec![], r#""" is of the claims ["c"] and of the nodes []"#),
        ];
        for (claims, nodes, expect) in cases {
            assert_eq!(mismatches(&claims, &nodes), [expect]);
        }
    }
}
