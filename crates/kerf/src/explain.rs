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
    let objects = Objects::gather(&options.files, &options.settings)?;
    let taken = objects.estate(&options.settings)?;
    let estate = &taken.estate;
    let settings = options.settings.disruption();
    for warning in &options.warnings {
        eprintln!("kerf: {warning}");
    }
    let explainer = Explainer::new(estate, &settings);
    let not_there = |kind, name: &String, known: Vec<&str>| PlanError::NotThere {
        kind,
        name: name.clone(),
        known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
    };
    match &options.what {
        Explained::Node(name) => {
            let known = || estate.snapshot.nodes.iter().map(|node| node.name.as_str()).collect();
            let found = explainer.node(name).ok_or_else(|| not_there("node", name, known()))?;
            let report = node::Report::new(name, &found, &estate.snapshot.labels);
            print(&report, options.format, node::render)
        }
        Explained::Pool(name) => {
            let known = || estate.pools.keys().map(String::as_str).collect();
            let found = explainer.pool(name).ok_or_else(|| not_there("nodepool", name, known()))?;
            print(&pool::Report::new(&found), options.format, pool::render)
        }
    }
}
