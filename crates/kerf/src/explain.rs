//! `kerf explain`: why a node is left alone, or what would become of it; why a pod is pending, or where it would go.
//!
//! An answer is a value ([`node::Report`], [`pool::Report`], [`pod::Report`]): a verdict, facts and refusals. It is printed as
//! it is for programs; `text` beside each makes it readable.

use std::{process::ExitCode, sync::Arc};

use kerf_cluster::Key;
use kerf_controllers::Settings;
use kerf_dashboard::Explain;
use kerf_disruption::explain::Explainer;
use kerf_model::Snapshot;

use crate::{
    cli::{ExplainOptions, Explained},
    plan::{Moment, Objects, PlanError, print},
};

pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod pool;
pub(crate) mod verdict;

pub(crate) fn explain(options: &ExplainOptions) -> ExitCode {
    match explained(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

fn explained(options: &ExplainOptions) -> Result<(), PlanError> {
    let (sources, output) = (&options.sources, options.output);
    let objects = Objects::gather(sources)?;
    let taken = &objects.seen.snapshot()?;
    let snapshot = &taken.snapshot;
    let settings = sources.settings.disruption();
    for warning in objects.warnings.iter().chain(&sources.warnings) {
        eprintln!("kerf: {warning}");
    }
    let seated = kerf_disruption::seated(snapshot, &settings);
    let explainer = &Explainer::new(&seated, &settings);
    let not_there = |kind, name: &String, known: Vec<&str>| PlanError::NotThere {
        kind,
        name: name.clone(),
        known: shown(&known),
    };
    match &options.what {
        Explained::Node(name) => {
            let known = || snapshot.nodes.iter().map(|node| node.name.as_str()).collect();
            let report = node_report(&objects, snapshot, explainer, name);
            let report = report.ok_or_else(|| not_there("node", name, known()))?;
            print(&report, output, |report, _| node::text::render(report))
        }
        Explained::Pool(name) => {
            let known = || snapshot.pools.keys().map(String::as_str).collect();
            let found = explainer.pool(name).ok_or_else(|| not_there("nodepool", name, known()))?;
            let unknown_types = unknown_types(&objects, Some(name));
            let effects = objects.seen.overlaid().effects.remove(name).unwrap_or_default();
            let report = pool::Report::new(&found, objects.moment, unknown_types, &effects);
            print(&report, output, |report, _| pool::text::render(report))
        }
        Explained::Pod { namespace, name } => {
            let namespace = namespace.as_ref().unwrap_or(&objects.namespace);
            let key = Key::namespaced(namespace, name);
            let scheduling = &sources.settings.scheduling();
            let question = pod::Question { objects: &objects, taken, explainer, scheduling };
            let report = pod::Report::new(&question, &key)?;
            print(&report, output, |report, output| pod::text::render(report, output.verbose))
        }
    }
}

/// What is printed about one node, by its own name or that of its claim.
pub(crate) fn node_text(objects: &Objects, settings: &Settings, name: &str) -> Option<String> {
    let taken = objects.seen.snapshot().ok()?;
    let settings = settings.disruption();
    let seated = kerf_disruption::seated(&taken.snapshot, &settings);
    let explainer = Explainer::new(&seated, &settings);
    let report = node_report(objects, &taken.snapshot, &explainer, name)?;
    Some(node::text::render(&report))
}

/// Everything about one node, by its own name or that of its claim.
fn node_report(
    objects: &Objects,
    snapshot: &Snapshot,
    explainer: &Explainer<'_>,
    name: &str,
) -> Option<node::Report> {
    let found = explainer.node(name)?;
    let unknown_types = unknown_types(objects, found.node.pool.as_deref());
    let claim = found.node.claim.as_ref();
    let of_pool = claim.and_then(|claim| objects.seen.drift.get(claim));
    let of_class = claim.and_then(|claim| objects.cloud_drift.get(claim));
    let drift = of_pool.map(|drift| node::NewDrift::of_pool(drift.reason()));
    let drift = drift.or_else(|| of_class.map(node::NewDrift::of_class));
    Some(node::Report::new(&found, objects.moment, unknown_types, drift, &snapshot.labels))
}

fn unknown_types(objects: &Objects, pool: Option<&str>) -> Option<String> {
    let pool = objects.seen.loaded.cluster.pools().named(pool?)?;
    objects.unknown_types(pool).map(|why| why.to_string())
}

/// What this command says of a node, for the page of an operator with these settings.
pub(crate) fn of_snapshot(settings: &Settings) -> Explain {
    let settings = settings.disruption();
    Arc::new(move |snapshot, name| {
        let seated = kerf_disruption::seated(snapshot, &settings);
        let found = Explainer::new(&seated, &settings).node(name)?;
        let moment = Moment::live(snapshot.now);
        let report = node::Report::new(&found, moment, None, None, &snapshot.labels);
        Some(node::text::render(&report))
    })
}

/// What there is instead, in a line: nobody reads the names of a thousand nodes.
fn shown(names: &[&str]) -> String {
    const SHOWN: usize = 10;
    match (names, names.len().saturating_sub(SHOWN)) {
        ([], _) => "none".to_owned(),
        (_, 0) => names.join(", "),
        (_, more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_some_of_many_names_are_shown() {
        let names: Vec<String> = (1..=12).map(|number| format!("n{number}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for (count, expected) in [
            (0, "none"),
            (2, "n1, n2"),
            (10, "n1, n2, n3, n4, n5, n6, n7, n8, n9, n10"),
            (12, "n1, n2, n3, n4, n5, n6, n7, n8, n9, n10 and 2 more"),
        ] {
            assert_eq!(super::shown(&names[..count]), expected);
        }
    }
}
