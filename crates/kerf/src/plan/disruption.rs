//! `kerf plan --disruption`: which nodes would go next, and why not more.

use std::{collections::BTreeMap, fmt::Write, process::ExitCode};

use kerf_disruption::{
    Candidate, Command, Memory, Pass, pass,
    terminate_first::{Drain, GoesFirst},
};
use kerf_model::{KnownLabels, Price};
use serde::Serialize;

use super::{Moment, Objects, PlanError, notes, print, report::Claim, table::count};
use crate::{
    cli::{Output, PlanOptions},
    columns::section,
    output::Answer,
};

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    #[serde(flatten)]
    moment: Moment,
    commands: Vec<CommandReport>,
    /// Nodes that were looked at and stay, by reason.
    left_alone: Vec<LeftAlone>,
    notes: Vec<String>,
}

/// One step of disruption, as it is shown.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandReport {
    pub(crate) method: String,
    pub(crate) reason: &'static str,
    pub(crate) decision: &'static str,
    /// The nodes go first, and what takes their place comes after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) terminate_first: Option<TerminateFirstReport>,
    pub(crate) nodes: Vec<NodeReport>,
    pub(crate) replacements: Vec<Claim>,
    /// Pods that would go to nodes that are there.
    pub(crate) moves: Vec<Move>,
    /// Pods that would be evicted.
    pub(crate) evictions: usize,
    /// Missing where it is not known what comes in its place.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) savings_per_hour: Option<Price>,
}

/// Why nothing can come first, and how long there may be nothing.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct TerminateFirstReport {
    /// `no-reserved-capacity` or `static-at-limit`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Seconds after which pods that still run on the node are deleted. Missing where none has to move.
    pub(crate) drain_bound_seconds: Option<u64>,
    /// `NodeClaim` or `NodePool`: whose `terminationGracePeriod` that is.
    pub(crate) drain_bound_of: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeReport {
    pub(crate) node: String,
    pub(crate) pool: String,
    pub(crate) instance_type: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) capacity_type: Option<String>,
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) price_per_hour: Price,
    pub(crate) pods: usize,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Move {
    pub(crate) pod: String,
    pub(crate) node: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct LeftAlone {
    reason: &'static str,
    nodes: Vec<String>,
    /// Of the first of them.
    message: String,
}

pub(super) fn plan(options: &PlanOptions) -> Result<ExitCode, PlanError> {
    let sources = &options.sources;
    let objects = Objects::gather(sources)?;
    let taken = objects.seen.snapshot()?;
    let settings = kerf_disruption::Settings {
        // There is nobody else who waits.
        looks_per_pass: usize::MAX,
        ..sources.settings.disruption()
    };
    let found = pass(&taken.snapshot, &settings, &mut Memory::default());
    let mut report = Report::new(objects.moment, &found, &taken.snapshot.labels);
    report.notes = notes(&objects.seen, &taken.left_out);
    report.notes.extend(objects.drift_notes());
    report.notes.extend(objects.warnings.iter().chain(&sources.warnings).cloned());
    print(&report, options.output, render)?;
    Ok(ExitCode::SUCCESS)
}

impl Answer for Report {
    const KIND: &'static str = "DisruptionPlan";
}

impl Report {
    fn new(moment: Moment, found: &Pass, labels: &KnownLabels) -> Self {
        let taken = |node: &str| {
            let mut nodes = found.commands.iter().flat_map(|command| &command.candidates);
            nodes.any(|candidate| candidate.node.name == node)
        };
        let mut reasons: BTreeMap<&'static str, LeftAlone> = BTreeMap::new();
        for refused in found.refused.iter().filter(|refused| !taken(&refused.node)) {
            let reason = refused.why.name();
            let entry = reasons.entry(reason).or_insert_with(|| LeftAlone {
                reason,
                nodes: Vec::new(),
                message: refused.why.to_string(),
            });
            if !entry.nodes.contains(&refused.node) {
                entry.nodes.push(refused.node.clone());
            }
        }
        Self {
            moment,
            commands: found.commands.iter().map(|it| CommandReport::new(it, labels)).collect(),
            left_alone: reasons.into_values().collect(),
            notes: Vec::new(),
        }
    }
}

impl CommandReport {
    pub(crate) fn new(command: &Command, labels: &KnownLabels) -> Self {
        let own = |uid: &str| {
            let mut pods = command.candidates.iter().flat_map(Candidate::reschedulable_pods);
            pods.any(|pod| pod.uid == uid)
        };
        let moves = command.placements.iter().flat_map(|placement| {
            placement
                .pods
                .iter()
                .filter(|pod| own(&pod.uid))
                .map(|pod| Move { pod: pod.key(), node: placement.node.name.clone() })
        });
        let nodes = command.candidates.iter().map(|candidate| NodeReport {
            node: candidate.node.name.clone(),
            pool: candidate.pool.clone(),
            instance_type: candidate.instance_type.as_ref().map(|it| it.name().to_owned()),
            zone: candidate.zone.clone(),
            capacity_type: candidate.capacity_type.clone(),
            price_per_hour: candidate.price,
            pods: candidate.pods.len(),
        });
        Self {
            method: format!("{:?}", command.method),
            reason: command.reason().as_str(),
            decision: command.decision().as_str(),
            terminate_first: command.goes_first.map(TerminateFirstReport::new),
            nodes: nodes.collect(),
            replacements: command.replacements.iter().map(|it| Claim::of(it, labels)).collect(),
            moves: moves.collect(),
            evictions: command.evictions(),
            savings_per_hour: command.savings,
        }
    }

    /// What would be done, in one line.
    pub(crate) fn title(&self) -> String {
        let (nodes, pods) = (count(self.nodes.len(), "node"), count(self.evictions, "pod"));
        let what = match (&self.terminate_first, self.decision) {
            (Some(_), _) => {
                format!(
                    "Terminate {nodes} first and replace it after ({}), moving {pods}",
                    self.reason
                )
            }
            (None, "delete") => format!("Remove {nodes} ({}), moving {pods}", self.reason),
            (None, "reboot") => {
                return format!("Reboot {nodes} ({}), evicting {pods}", self.reason);
            }
            (None, _) => format!("Replace {nodes} ({}), moving {pods}", self.reason),
        };
        match self.savings_per_hour {
            Some(savings) => format!("{what}, saving {savings}"),
            None => what,
        }
    }
}

impl TerminateFirstReport {
    fn new(first: GoesFirst) -> Self {
        let (bound, of) = match first.drain {
            Drain::Nothing => (None, None),
            Drain::ByPolicy(bound) => (Some(bound), Some("repair policy")),
            Drain::Bounded(bound) => (Some(bound), Some("NodeClaim")),
            Drain::Supplied(bound) => (Some(bound), Some("NodePool")),
        };
        Self {
            reason: first.because.as_str(),
            message: first.because.to_string(),
            drain_bound_seconds: bound.map(|bound| bound.as_secs()),
            drain_bound_of: of,
        }
    }

    /// What that means for who waits.
    pub(crate) fn shown(&self) -> String {
        let drain = match (self.drain_bound_seconds, self.drain_bound_of) {
            (Some(seconds), Some(of)) => format!(
                "its pods are deleted after {seconds} s at the latest (terminationGracePeriod of its {of})"
            ),
            _ => "no pod has to move".to_owned(),
        };
        format!("goes first, its replacement comes after: {}; {drain}", self.message)
    }
}

fn render(report: &Report, _: Output) -> String {
    let mut sections: Vec<String> = report.commands.iter().map(command).collect();
    if report.commands.is_empty() {
        sections.push("No node would be removed or replaced.\n".to_owned());
    }
    if !report.left_alone.is_empty() {
        let row = |it: &LeftAlone| {
            [
                it.reason.to_owned(),
                it.nodes.len().to_string(),
                it.nodes[0].clone(),
                it.message.clone(),
            ]
        };
        let header = ["REASON", "NODES", "FOR INSTANCE", "BECAUSE"];
        sections.push(section("Left alone", &header, report.left_alone.iter().map(row)));
    }
    let moment = report.moment.shown();
    let notes: Vec<_> =
        moment.iter().chain(&report.notes).map(|note| format!("Note: {note}\n")).collect();
    if !notes.is_empty() {
        sections.push(notes.concat());
    }
    sections.join("\n")
}

fn command(command: &CommandReport) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let header = ["NODE", "POOL", "TYPE", "ZONE", "CAPACITY", "PRICE", "PODS"];
    let rows = command.nodes.iter().map(|node| {
        [
            node.node.clone(),
            node.pool.clone(),
            or_none(&node.instance_type),
            or_none(&node.zone),
            or_none(&node.capacity_type),
            node.price_per_hour.to_string(),
            node.pods.to_string(),
        ]
    });
    let mut text = section(&command.title(), &header, rows);
    if let Some(first) = &command.terminate_first {
        let _ = writeln!(text, "  {}", first.shown());
    }
    for claim in &command.replacements {
        let _ = match (&claim.cheapest, claim.instance_types.len()) {
            (Some(cheapest), types) => writeln!(
                text,
                "  by a new node of pool {} for {}: one of {}, from {} ({})",
                claim.pool,
                count(claim.pods.len(), "pod"),
                count(types, "type"),
                cheapest.price_per_hour,
                cheapest.instance_type,
            ),
            (None, _) => writeln!(text, "  by a new node of pool {}, of its template", claim.pool),
        };
    }
    for one in &command.moves {
        let _ = writeln!(text, "  {} goes to {}", one.pod, one.node);
    }
    text
}
