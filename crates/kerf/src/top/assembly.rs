//! From objects to what is shown of them, by the decisions that `kerf explain` prints.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kerf_api::conditions::{Conditioned, DISRUPTION_REASON};
use kerf_cluster::Cluster;
use kerf_disruption::{
    Blocked,
    explain::{Explainer, NodeVerdict},
};
use kerf_model::{
    Node, Snapshot,
    labels::{CAPACITY_TYPE, INSTANCE_TYPE, ZONE},
    pod::Phase,
    resources::{CPU, MEMORY},
};
use kerf_view::{Fate, Fill, NodeRow, View};

use super::{Seen, follow::Following};
use crate::{
    cli::TopOptions,
    plan::{Objects, PlanError},
};

/// The cluster now, or the files.
pub(super) fn look(options: &TopOptions, following: Option<&Following>) -> Result<Seen, PlanError> {
    let (objects, mut view) = if let Some(following) = following {
        let (objects, notes) = following.objects();
        let view = View { subject: following.subject().to_owned(), notes, ..View::default() };
        (Objects::of_cluster(objects, &options.sources), view)
    } else {
        let names: Vec<_> =
            options.sources.files.iter().map(|file| file.display().to_string()).collect();
        let view = View { subject: names.join(", "), ..View::default() };
        (Objects::gather(&options.sources), view)
    };
    let objects = match objects {
        // A cluster of which nothing is there yet is one to watch all the same.
        Err(PlanError::NowhereToGo) if following.is_some() => {
            view.now = kerf_runtime::Clock::system().now();
            return Ok(Seen { view, objects: None });
        }
        objects => objects?,
    };
    view.notes.extend(objects.moment.shown());
    view.notes.extend(objects.warnings.iter().cloned());
    let snapshot = objects.seen.snapshot()?.snapshot;
    fill_in(&mut view, &objects, &snapshot, options);
    Ok(Seen { view, objects: Some(objects) })
}

fn fill_in(view: &mut View, objects: &Objects, snapshot: &Snapshot, options: &TopOptions) {
    let cluster = &objects.seen.loaded.cluster;
    let settings = options.sources.settings.disruption();
    let seated = kerf_disruption::seated(snapshot, &settings);
    let explainer = Explainer::new(&seated, &settings);
    let mut verdicts: BTreeMap<String, NodeVerdict> = BTreeMap::new();
    for (name, pool) in &snapshot.pools {
        let found = explainer.pool(name).into_iter().flat_map(|pool| pool.nodes);
        verdicts.extend(found.map(|verdict| (verdict.node.clone(), verdict)));
        let unknown = cluster.pools().named(&pool.name).and_then(|it| objects.unknown_types(it));
        let note = unknown.map(|why| format!("NodePool {name}: {why}"));
        view.notes.extend(note.filter(|note| !view.notes.contains(note)));
    }
    view.now = objects.moment.judged_at;
    view.pods = snapshot.nodes.iter().map(|node| node.pods.len()).sum();
    view.pending = pending(cluster);
    let rows = snapshot.nodes.iter().map(|node| {
        let verdict = verdicts.remove(&node.name);
        let price = verdict.as_ref().and_then(|verdict| verdict.price);
        let fate = fate(node, cluster, || match verdict {
            Some(verdict) => verdict.verdict.map(|command| Fate::WouldGo {
                decision: command.decision().as_str(),
                reason: command.reason().as_str().to_owned(),
                saves: command.savings,
            }),
            // It is of no pool that is here: the first thing against it says so.
            None => match explainer.node(&node.name).map(|found| found.checks) {
                Some(checks) => checks
                    .into_iter()
                    .find_map(|check| check.outcome.err())
                    .map_or(Ok(Fate::Unknown), Err),
                None => Ok(Fate::Unknown),
            },
        });
        let label = |label: &str| node.labels.get(label).cloned();
        NodeRow {
            name: node.name.clone(),
            pool: node.pool.clone(),
            instance_type: label(INSTANCE_TYPE),
            capacity_type: label(CAPACITY_TYPE),
            zone: label(ZONE),
            price,
            cpu: fill_of(node, CPU),
            memory: fill_of(node, MEMORY),
            pods: node.pods.len(),
            created: node.disruption.created.or_else(|| created(cluster, &node.name)),
            fate,
        }
    });
    view.nodes = rows.collect();
}

fn fill_of(node: &Node, resource: &str) -> Fill {
    Fill {
        requested: node.pods.iter().map(|pod| pod.requests.amount(resource)).sum(),
        allocatable: node.allocatable.amount(resource),
    }
}

/// Of a node that has no claim.
fn created(cluster: &Cluster, node: &str) -> Option<Timestamp> {
    let node = cluster.nodes().named(node)?;
    node.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn pending(cluster: &Cluster) -> usize {
    let waits = |pod: &kerf_cluster::Pod| {
        pod.node_name().is_none()
            && pod.phase().unwrap_or_default() == Phase::Pending
            && pod.deletion().is_none()
    };
    cluster.pods().values().filter(|pod| waits(pod)).count()
}

/// What has been decided comes first, and what Kerf would decide after it.
fn fate(node: &Node, cluster: &Cluster, verdict: impl FnOnce() -> Result<Fate, Blocked>) -> Fate {
    let claim = node.claim.as_ref().and_then(|claim| cluster.claims().named(claim));
    let claim = claim.filter(|_| !node.disruption.reboots.is_under_way());
    let decided = claim.and_then(|claim| {
        claim.condition(DISRUPTION_REASON).filter(|_| claim.is_true(DISRUPTION_REASON))
    });
    match decided {
        Some(decided) => Fate::Leaving { reason: decided.reason.clone() },
        None if node.deleting => Fate::Leaving { reason: "deleted".to_owned() },
        None if claim.is_some() && !(node.exists && node.initialized) => Fate::Starting,
        // A node that is rebooted is one that stays.
        None => verdict().unwrap_or_else(|blocked| Fate::Stays {
            reason: blocked.name(),
            message: blocked.to_string(),
        }),
    }
}
