//! One NodePool as a value: the verdict, its settings, its budgets, and a line for each of its nodes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use kerf_disruption::{
    Allowance,
    explain::{BudgetExplanation, NodeVerdict, PoolExplanation},
};
use kerf_model::{Price, churn::GracePeriod, overlay::Effect};
use serde::Serialize;

use super::verdict::{Refusal, Verdict};
use crate::{output::Answer, plan::Moment};

pub(super) mod text;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) verdict: Verdict,
    pub(crate) pool: String,
    policy: &'static str,
    consolidate_after: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<u64>,
    utilization_threshold: String,
    price_improvement_factor: String,
    savings_threshold: String,
    /// `off`, or a number of seconds.
    grace_period: String,
    #[serde(flatten)]
    moment: Moment,
    /// Why nothing is known about its machines, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_types: Option<String>,
    /// NodeOverlays that change something in this pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overlays: Vec<OverlayReport>,
    /// Drifted nodes are not replaced for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    drift_rests: Option<RestReport>,
    budgets: Vec<BudgetReport>,
    allowances: Vec<AllowanceReport>,
    nodes: Vec<NodeReport>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct BudgetReport {
    nodes: String,
    schedule: Option<String>,
    duration: Option<String>,
    reasons: Option<Vec<&'static str>>,
    active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What a NodeOverlay changes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct OverlayReport {
    overlay: String,
    /// Offerings whose price is as it says.
    priced_offerings: usize,
    /// Instance types that have a resource from it.
    types_with_capacity: usize,
}

/// Replacing drifted nodes failed again and again.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct RestReport {
    /// Nodes that could not be replaced.
    nodes: usize,
    /// Missing while one of them is being tried again.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    until: Option<Timestamp>,
    /// What happened to the last of them.
    message: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct AllowanceReport {
    reason: &'static str,
    nodes: u32,
    /// Missing: as many as there are.
    allowed: Option<u32>,
    disrupting: u32,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct NodeReport {
    node: String,
    /// Missing where it is not known.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    price_per_hour: Option<Price>,
    pods: usize,
    /// `delete`, `replace` or `terminate-first`, if it would go.
    decision: Option<&'static str>,
    /// Why it would go.
    reason: Option<&'static str>,
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    savings_per_hour: Option<Price>,
    refusal: Option<Refusal>,
}

impl Answer for Report {
    const KIND: &'static str = "NodePoolExplanation";
}

impl Report {
    pub(crate) fn new(
        found: &PoolExplanation,
        moment: Moment,
        unknown_types: Option<String>,
        effects: &BTreeMap<String, Effect>,
    ) -> Self {
        Self {
            verdict: Verdict::of_pool(found),
            pool: found.pool.clone(),
            policy: found.policy.as_str(),
            consolidate_after: found.consolidate_after.clone(),
            replicas: found.replicas,
            utilization_threshold: found.controls.utilization_threshold.to_string(),
            price_improvement_factor: found.controls.price_improvement_factor.to_string(),
            savings_threshold: found.controls.savings_threshold.to_string(),
            grace_period: match found.controls.grace_period {
                GracePeriod::Off => "off".to_owned(),
                GracePeriod::For(length) => format!("{}s", length.as_secs()),
            },
            moment,
            unknown_types,
            overlays: effects
                .iter()
                .map(|(overlay, effect)| OverlayReport {
                    overlay: overlay.clone(),
                    priced_offerings: effect.priced_offerings,
                    types_with_capacity: effect.types_with_capacity,
                })
                .collect(),
            drift_rests: found.drift_rests.as_ref().map(|rest| RestReport {
                nodes: rest.nodes,
                until: rest.until,
                message: rest.message.clone(),
            }),
            budgets: found.budgets.iter().map(BudgetReport::new).collect(),
            allowances: found
                .allowances
                .iter()
                .map(|(reason, allowance)| AllowanceReport {
                    reason: reason.as_str(),
                    nodes: allowance.nodes,
                    allowed: Some(allowance.allowed).filter(|it| *it < Allowance::UNLIMITED),
                    disrupting: allowance.disrupting,
                })
                .collect(),
            nodes: found.nodes.iter().map(NodeReport::new).collect(),
        }
    }
}

impl BudgetReport {
    fn new(found: &BudgetExplanation) -> Self {
        let budget = &found.budget;
        let reasons = |list: &Vec<kerf_api::DisruptionReason>| {
            list.iter().map(|reason| reason.as_str()).collect()
        };
        Self {
            nodes: budget.nodes.clone(),
            schedule: budget.schedule.clone(),
            duration: budget.duration.as_ref().map(|it| it.as_str().to_owned()),
            reasons: budget.reasons.as_ref().map(reasons),
            active: found.is_active == Ok(true),
            error: found.is_active.as_ref().err().map(ToString::to_string),
        }
    }
}

impl NodeReport {
    fn new(found: &NodeVerdict) -> Self {
        let command = found.verdict.as_ref().ok();
        Self {
            node: found.node.clone(),
            price_per_hour: found.price,
            pods: found.pods,
            decision: command.map(|command| command.decision().as_str()),
            reason: command.map(|command| command.reason().as_str()),
            savings_per_hour: command.and_then(|command| command.savings),
            refusal: found.verdict.as_ref().err().map(Refusal::new),
        }
    }
}
