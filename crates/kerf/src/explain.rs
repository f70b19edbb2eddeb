//! `kerf explain`: why a node is left alone, or what would become of it.

use std::process::ExitCode;

use kerf_disruption::explain::Explainer;

use crate::{
    cli::{ExplainOptions, Explained},
    plan::{Objects, PlanError, print},
};

mod node;
mod pool;

pub(crate) fn explain(options: &ExplainOptions) -> ExitCode {
    match explained(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

fn explained(options: &ExplainOptions) -> Result<(), PlanError> {
    let objects =
        Objects::gather(&options.files, options.now, &options.settings, &options.provider)?;
    let snapshot = &objects.seen.snapshot()?.snapshot;
    let settings = options.settings.disruption();
    for warning in objects.warnings.iter().chain(&options.warnings) {
        eprintln!("kerf: {warning}");
    }
    let explainer = Explainer::new(snapshot, &settings);
    let not_there = |kind, name: &String, known: Vec<&str>| PlanError::NotThere {
        kind,
        name: name.clone(),
        known: shown(&known),
    };
    let unknown_types = |pool: Option<&str>| {
        let pool = objects.seen.loaded.cluster.pools().named(pool?)?;
        objects.unknown_types(pool).map(|why| why.to_string())
    };
    match &options.what {
        Explained::Node(name) => {
            let known = || snapshot.nodes.iter().map(|node| node.name.as_str()).collect();
            let found = explainer.node(name).ok_or_else(|| not_there("node", name, known()))?;
            let unknown_types = unknown_types(found.node.pool.as_deref());
            let labels = &snapshot.labels;
            let claim = found.node.claim.as_ref();
            let of_pool = claim.and_then(|claim| objects.seen.drift.get(claim));
            let of_class = claim.and_then(|claim| objects.cloud_drift.get(claim));
            let drift = of_pool.map(|drift| node::NewDrift::of_pool(drift.reason()));
            let drift = drift.or_else(|| of_class.map(node::NewDrift::of_class));
            let report = node::Report::new(&found, objects.moment, unknown_types, drift, labels);
            print(&report, options.format, node::render)
        }
        Explained::Pool(name) => {
            let known = || snapshot.pools.keys().map(String::as_str).collect();
            let found = explainer.pool(name).ok_or_else(|| not_there("nodepool", name, known()))?;
            let report = pool::Report::new(&found, objects.moment, unknown_types(Some(name)));
            print(&report, options.format, pool::render)
        }
    }
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
