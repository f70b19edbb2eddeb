//! The answer: one sentence for people, and the same as values.

use std::collections::BTreeMap;

use kerf_disruption::{Blocked, Command, Decision, explain::PoolExplanation};
use kerf_model::Price;
use serde::Serialize;

use super::shown;
use crate::plan::count;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verdict {
    pub(crate) sentence: String,
    pub(crate) outcome: Outcome,
    /// Why a node would go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) savings_per_hour: Option<Price>,
    /// Why a node stays, or a pod has no place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    /// Of a node or a pool: nothing would be done.
    Stays,
    /// Of a node, or of some nodes of a pool.
    Removed,
    Replaced,
    /// Of a node: its machine is restarted in place.
    Rebooted,
    /// Of a pod: it has a node, and may be moved.
    Runs,
    /// Of a pod: it has a node, and the node cannot go because of it.
    HoldsItsNode,
    /// Of a pod without a node.
    GoesToNode,
    GoesToNewNode,
    NoPlace,
    /// Of a pod: no place is looked for.
    NotLookedAt,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refusal {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(why: &Blocked) -> Self {
        Self { reason: why.name(), message: why.to_string() }
    }
}

impl Verdict {
    pub(super) fn new(outcome: Outcome, sentence: String) -> Self {
        Self { sentence, outcome, reason: None, savings_per_hour: None, refusal: None }
    }

    pub(super) fn refused(outcome: Outcome, sentence: String, refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..Self::new(outcome, sentence) }
    }

    /// About a node by itself.
    pub(crate) fn of_node(node: &str, verdict: Result<&Command, &Blocked>) -> Self {
        match verdict {
            Ok(command) => Self::of_command(node, command),
            Err(why) => {
                let refusal = Refusal::new(why);
                let sentence = format!("Kerf leaves node {node} alone: {}.", refusal.message);
                Self::refused(Outcome::Stays, sentence, refusal)
            }
        }
    }

    fn of_command(node: &str, command: &Command) -> Self {
        let reason = command.reason().as_str();
        let (verb, outcome) = match command.decision() {
            Decision::TerminateFirst => ("terminate", Outcome::Replaced),
            Decision::Replace => ("replace", Outcome::Replaced),
            Decision::Delete => ("remove", Outcome::Removed),
            Decision::Reboot => ("reboot", Outcome::Rebooted),
        };
        let after = command
            .goes_first
            .map(|first| format!(" first and replace it after, because {}", first.because));
        let after = after.unwrap_or_default();
        let reboots = outcome == Outcome::Rebooted;
        let pods = match command.evictions() {
            0 => String::new(),
            pods if reboots => format!(", evicting {}", count(pods, "pod")),
            pods => format!(", moving {}", count(pods, "pod")),
        };
        let saves = command.savings.filter(|_| !reboots);
        let saves = saves.map(|savings| format!(", which saves {savings}")).unwrap_or_default();
        let sentence = format!("Kerf would {verb} node {node}{after} ({reason}){pods}{saves}.");
        let savings_per_hour = command.savings;
        Self { reason: Some(reason), savings_per_hour, ..Self::new(outcome, sentence) }
    }

    /// About a pool: each of its nodes by itself.
    pub(crate) fn of_pool(found: &PoolExplanation) -> Self {
        let (pool, all) = (&found.pool, found.nodes.len());
        let go = found.nodes.iter().filter(|node| node.verdict.is_ok());
        let names: Vec<_> = go.map(|node| node.node.as_str()).collect();
        if all == 0 {
            return Self::new(Outcome::Stays, format!("NodePool {pool} has no nodes."));
        }
        if !names.is_empty() {
            let sentence = format!(
                "Kerf would remove or replace {} of {} of NodePool {pool} as its budgets allow: {}.",
                names.len(),
                count(all, "node"),
                shown(&names)
            );
            return Self::new(Outcome::Removed, sentence);
        }
        let mut reasons: BTreeMap<&'static str, usize> = BTreeMap::new();
        for why in found.nodes.iter().filter_map(|node| node.verdict.as_ref().err()) {
            *reasons.entry(why.name()).or_default() += 1;
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let reasons: Vec<_> =
            reasons.into_iter().map(|(name, count)| format!("{name} ({count})")).collect();
        let nodes = count(all, "node");
        let sentence =
            format!("Kerf leaves {nodes} of NodePool {pool} alone: {}.", reasons.join(", "));
        Self::new(Outcome::Stays, sentence)
    }
}
