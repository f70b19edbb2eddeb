//! Commands whose operator has ended, or that failed to start: they are resumed if that is possible,
//! and otherwise withdrawn.

use kerf_api::ObjectExt;
use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kerf_api::conditions::{Conditioned, DISRUPTION_REASON, REBOOTING};
use kerf_cluster::Cluster;
use kerf_runtime::Queue;
use kube::ResourceExt;
use tracing::info;

use super::{
    commands::{Commands, Underway, is_here},
    execution, marking,
    record::Record,
};
use crate::{context::Context, error::Result};

/// What was found of commands that are not under way.
#[derive(Debug, Default)]
struct Leftovers {
    /// Everything is there to go on.
    resumable: Vec<Underway>,
    /// Replacements of commands that cannot be carried out.
    void: Vec<String>,
    /// Claims that are marked for no reason.
    marked: Vec<String>,
}

/// Clears up, and adds the names of the commands that are taken up again to `started`.
pub(super) async fn recover(
    context: &Context,
    commands: &Commands,
    started: &Queue<String>,
) -> Result<()> {
    let found = {
        let limit = commands.time_limit();
        find(&context.index.read(), commands, context.now(), limit)
    };
    // In this order: a candidate is freed only when no replacement names it any more.
    for name in &found.void {
        let claim = context.index.read().claims().named(name).cloned();
        if let Some(claim) = claim {
            execution::strike(context, &claim).await?;
        }
    }
    for claim in &found.marked {
        info!(claim, "removing the marks of an earlier disruption");
    }
    marking::unmark_all(context, &found.marked).await?;
    let mut failure = Ok(());
    for command in found.resumable {
        // One that cannot be taken up now is found again, and keeps none of the others.
        match mark_again(context, &command.record).await {
            Ok(()) => {
                let name = command.record.command.clone();
                info!(command = name, "resuming a disruption command");
                commands.insert(command);
                started.add(name);
            }
            Err(error) => failure = Err(error),
        }
    }
    failure
}

async fn mark_again(context: &Context, record: &Record) -> Result<()> {
    let here = |name: &&String| is_here(&context.index.read(), name);
    for claim in record.candidates.iter().filter(here) {
        marking::mark(context, claim, record.method.reason()).await?;
        context.index.alter(|cluster| cluster.mark_for_deletion(claim));
    }
    Ok(())
}

fn find(cluster: &Cluster, commands: &Commands, now: Timestamp, limit: Duration) -> Leftovers {
    let mut found = Leftovers::default();
    let (underway, mut spoken_for) = (commands.names(), commands.candidates());
    for (record, replacements, since) in recorded(cluster) {
        // With no candidate left the command is over, and its record is history.
        let over = !record.candidates.iter().any(|name| is_here(cluster, name));
        if over || underway.contains(&record.command) {
            continue;
        }
        let complete = replacements.len() == record.replacements;
        let claimed = record.candidates.iter().any(|name| spoken_for.contains(name));
        // An answer that came very late may bring a command that has been cleared away before.
        let cleared = record.candidates.iter().any(|name| is_unmarked(cluster, name));
        let command = Underway::new(record, replacements, since);
        if complete && !claimed && !cleared && !command.is_older_than(limit, now) {
            spoken_for.extend(command.record.candidates.iter().cloned());
            found.resumable.push(command);
        } else {
            found.void.extend(command.replacements);
        }
    }
    for machine in cluster.state_nodes() {
        let Some(claim) = machine.claim.filter(|_| !machine.is_leaving()) else { continue };
        let tainted =
            machine.node.is_some_and(|node| marking::is_tainted(node) && !node.is_deleting());
        let name = claim.name_any();
        // It says why the node is rebooted.
        let reason = claim.is_true(DISRUPTION_REASON) && !claim.is_true(REBOOTING);
        if (tainted || reason) && !spoken_for.contains(&name) {
            found.marked.push(name);
        }
    }
    found
}

/// Whether the claim is here to stay, and nothing on it says otherwise.
fn is_unmarked(cluster: &Cluster, name: &str) -> bool {
    let claim = cluster.claims().named(name).filter(|_| is_here(cluster, name));
    claim.is_some_and(|claim| !claim.is_true(DISRUPTION_REASON))
}

/// The commands that stand on claims which are here to stay, with these claims and the time of the first.
fn recorded(cluster: &Cluster) -> Vec<(Record, Vec<String>, Timestamp)> {
    let mut by_command = BTreeMap::<String, (Record, Vec<String>, Timestamp)>::new();
    for claim in cluster.claims().values() {
        if claim.is_deleting() {
            continue;
        }
        let Some(record) = Record::read(claim) else { continue };
        let created = claim.metadata.creation_timestamp.as_ref();
        let created = created.map_or(Timestamp::UNIX_EPOCH, |created| created.0);
        let (_, names, since) = by_command
            .entry(record.command.clone())
            .or_insert_with(|| (record, Vec::new(), created));
        names.push(claim.name_any());
        *since = created.min(*since);
    }
    by_command.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use kerf_api::NodeClaim;
    use kerf_disruption::Method;
    use serde_json::json;

    const LIMIT: Duration = Duration::from_mins(10);

    fn claim(name: &str, deleted: bool) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": name, "creationTimestamp": "1970-01-01T00:00:00Z",
                "deletionTimestamp": deleted.then_some("1970-01-01T00:00:00Z"),
            },
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": name},
        }))
        .unwrap()
    }

    fn tainted_node(name: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"providerID": name, "taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
        }))
        .unwrap()
    }

    /// A candidate `a`, tainted, and of two replacements those that are named here.
    fn cluster(candidate_deleted: bool, replacements: &[(&str, bool)]) -> Cluster {
        let mut cluster = Cluster::default();
        let mut candidate = claim("a", candidate_deleted);
        candidate.condition_set(Timestamp::UNIX_EPOCH).set_true(DISRUPTION_REASON);
        cluster.apply(candidate);
        cluster.apply(tainted_node("a"));
        let record = Record {
            command: "a.0".into(),
            method: Method::Drift,
            candidates: vec!["a".into()],
            replacements: 2,
            promise: None,
            repair: None,
        };
        for (name, deleted) in replacements {
            let mut claim = claim(name, *deleted);
            record.write(&mut claim);
            cluster.apply(claim);
        }
        cluster
    }

    fn check(cluster: &Cluster, minutes: i64, resumed: bool, struck: &[&str], unmarked: &[&str]) {
        let now = Timestamp::from_second(minutes * 60).unwrap();
        let found = find(cluster, &Commands::default(), now, LIMIT);
        assert_eq!(found.resumable.len(), usize::from(resumed), "{found:?}");
        assert_eq!(found.void, struck, "{found:?}");
        assert_eq!(found.marked, unmarked, "{found:?}");
    }

    #[test]
    fn a_command_is_taken_up_when_everything_of_it_is_there() {
        let both = [("r", false), ("s", false)];
        check(&cluster(false, &both), 10, true, &[], &[]);
        check(&cluster(false, &both), 11, false, &["r", "s"], &["a"]);
        check(&cluster(false, &[("r", false)]), 0, false, &["r"], &["a"]);
        check(&cluster(false, &[("r", false), ("s", true)]), 0, false, &["r"], &["a"]);
        check(&cluster(false, &[]), 0, false, &[], &["a"]);
    }

    #[test]
    fn what_is_on_its_way_out_is_left_alone() {
        check(&cluster(true, &[("r", false), ("s", false)]), 99, false, &[], &[]);
        check(&cluster(true, &[]), 0, false, &[], &[]);
    }

    #[test]
    fn what_was_cleared_away_does_not_come_back() {
        let mut late = cluster(false, &[("r", false), ("s", false)]);
        late.apply(claim("a", false));
        check(&late, 0, false, &["r", "s"], &["a"]);
    }

    #[test]
    fn what_is_under_way_is_left_alone() {
        let cluster = cluster(false, &[("r", false), ("s", false)]);
        let commands = Commands::default();
        let (record, replacements, since) = recorded(&cluster).remove(0);
        commands.insert(Underway::new(record, replacements, since));
        let found = find(&cluster, &commands, Timestamp::UNIX_EPOCH, LIMIT);
        assert!(found.resumable.is_empty() && found.void.is_empty() && found.marked.is_empty());
    }
}
