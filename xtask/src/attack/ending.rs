//! What must hold at the end, and in the API server's account of everything that was written.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use super::api::{self, CLAIMS, NODES, text};
use super::audit::{self, Entry, Trespass};
use super::replica::Replica;
use super::report::Report;
use super::stage::{LEASE_NAME, Stage};

/// The name of a node that nobody of ours made.
pub(super) const FOREIGN: &str = "foreign";

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
pub(super) async fn matched(stage: &Stage, patience: Duration) -> Result<Vec<String>> {
    let begin = Instant::now();
    loop {
        let problems = unmatched(stage).await?;
        if problems.is_empty() || begin.elapsed() > patience {
            return Ok(problems);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Which claims have no instance or several, which instances no claim, and what is still being deleted.
pub(super) async fn unmatched(stage: &Stage) -> Result<Vec<String>> {
    let claims = stage.api.list(CLAIMS).await?;
    let mut nodes = stage.api.list(NODES).await?;
    nodes.retain(|node| api::name(node) != FOREIGN);
    Ok(mismatches(&claims, &nodes))
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
