//! What disruption reports: events on nodes, claims and pools, counters, and the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{DisruptionReason, NodeClaim, ObjectExt};
use kerf_disruption::{
    Blocked, Command, Decision, Invalid, Method, Pass, Refused, Unmerged,
    balanced::{K, Score},
    budgets::BudgetError,
    setback::{PoolRest, Rests},
};
use kerf_model::Snapshot;
use kerf_runtime::{
    events::{Notice, Severity},
    journal::Subject,
};
use kube::ResourceExt;
use tracing::{error, info};

use crate::context::Context;

/// A node that cannot be consolidated rarely can be a minute later.
const UNCONSOLIDATABLE_EVERY: Duration = Duration::from_mins(15);
const REPAIR_BLOCKED_EVERY: Duration = Duration::from_mins(15);
const BUDGET_EVERY: Duration = Duration::from_mins(1);

/// A node is broken and will be repaired.
const REPAIR_TO_COME: &str = "NodeRepairScheduled";
const REPAIR_BLOCKED: &str = "NodeRepairBlocked";

/// What was said last, so that only changes are counted and logged.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// By node and method, the name of the reason: what one method says of a node is no change of what another does.
    said: BTreeMap<(String, Option<Method>), &'static str>,
    /// By pool and name of the reason, the nodes that were not merged for it.
    unmerged: BTreeMap<(String, &'static str), Vec<String>>,
    unreadable_budgets: BTreeMap<String, BudgetError>,
    /// By pool, until when its drifted nodes are left alone.
    drift_rests: BTreeMap<String, Timestamp>,
}

/// Which kind of event reports a refusal.
fn event(refused: &Refused) -> Option<&'static str> {
    match (&refused.why, refused.method) {
        // Nothing is wrong with these nodes, or another event reports it.
        (
            Blocked::InQueue
            | Blocked::NotManaged
            | Blocked::StaticPool
            | Blocked::NotEmpty { .. }
            | Blocked::NotDrifted
            | Blocked::Healthy
            | Blocked::Empty
            | Blocked::NotConsolidatable
            | Blocked::Budget { .. },
            _,
        ) => None,
        (Blocked::Tolerated { .. }, _) => Some(REPAIR_TO_COME),
        (Blocked::TooManyUnhealthy(_), _) => Some(REPAIR_BLOCKED),
        (_, None) => Some("DisruptionBlocked"),
        (_, Some(method)) => Some(method.event()),
    }
}

impl Reports {
    /// Tells what a pass found, apart from its commands.
    pub(super) fn pass(&mut self, context: &Context, snapshot: &Snapshot, pass: &Pass) {
        for (method, nodes) in &pass.eligible {
            context.metrics.disruption.eligible(method.reason(), *nodes);
        }
        for (reason, allowances) in &pass.allowances {
            for (pool, allowance) in allowances {
                let (nodes, allowed) = (allowance.nodes, allowance.allowed);
                let consuming = allowance.disrupting;
                context.metrics.disruption.budget(pool, *reason, allowed, consuming);
                if nodes > 0 && allowed == 0 {
                    nothing_allowed(context, pool, *reason);
                }
            }
        }
        for (pool, wrong) in self.newly_unreadable(&pass.unreadable_budgets) {
            error!(
                controller = "disruption", pool, error = %wrong,
                "no node of the NodePool is disrupted until its spec.disruption.budgets is corrected"
            );
        }
        self.drift_rests(context, &pass.drift_rests);
        for unmerged in &pass.unmerged {
            self.unmerged(context, unmerged);
        }
        for refused in &pass.refused {
            self.refused(context, refused);
        }
        let here: BTreeSet<&str> = snapshot.nodes.iter().map(|node| node.name.as_str()).collect();
        self.said.retain(|(node, _), _| here.contains(node.as_str()));
        self.unmerged.retain(|(pool, _), _| snapshot.pools.contains_key(pool));
    }

    /// Pools whose drifted nodes are left alone for a while. Another end of that is news: one more of them has failed.
    fn drift_rests(&mut self, context: &Context, rests: &Rests) {
        for (pool, rest) in newly_resting(&mut self.drift_rests, rests) {
            context.metrics.disruption.drift_rests(pool);
            info!(controller = "disruption", pool, reason = %rest, "drifted nodes are left alone");
            let Some(pool) = context.managed_pool(pool) else { continue };
            let message = sentence(&rest.to_string());
            let notice = Notice::about(&*pool, Severity::Warning, "DisruptionBackoff", message);
            context.recorder.record(notice);
        }
    }

    /// Nodes that stay because merging them is not worth it. It is news when they are others than before.
    fn unmerged(&mut self, context: &Context, unmerged: &Unmerged) {
        let Unmerged { pool, nodes, why } = unmerged;
        let before = self.unmerged.insert((pool.clone(), why.name()), nodes.clone());
        let is_news = before.as_ref() != Some(nodes);
        context.metrics.disruption.unmerged(unmerged, is_news);
        if is_news {
            let (count, nodes) = (nodes.len(), first_of(nodes));
            info!(controller = "disruption", pool, count, nodes, reason = %why, "nodes are not merged");
        }
    }

    /// The budgets that were not wrong, or not in this way, in the last pass.
    fn newly_unreadable<'a>(
        &mut self,
        found: &'a BTreeMap<String, BudgetError>,
    ) -> Vec<(&'a String, &'a BudgetError)> {
        let known = std::mem::replace(&mut self.unreadable_budgets, found.clone());
        found.iter().filter(|(pool, wrong)| known.get(*pool) != Some(*wrong)).collect()
    }

    /// An event on each node of a command that was decided and failed, with the reason.
    pub(super) fn not_started(&mut self, context: &Context, command: &Command, why: &Blocked) {
        for candidate in &command.candidates {
            let refused = Refused {
                node: candidate.node.name.clone(),
                claim: candidate.node.claim.clone(),
                pool: Some(candidate.pool.clone()),
                method: Some(command.method),
                why: why.clone(),
            };
            self.refused(context, &refused);
        }
    }

    fn refused(&mut self, context: &Context, refused: &Refused) {
        let Refused { node, claim, pool, why, .. } = refused;
        let Some(claim) = claim else { return };
        let kind = event(refused);
        match kind {
            Some(REPAIR_BLOCKED) => repair_blocked(context, claim, why),
            Some(kind) if refused.method == Some(Method::Repair) => {
                // In lower case, as Karpenter has these.
                let finish = |notice| and_same_if(notice, [why.to_string().as_str()]);
                on_node_and_claim(context, claim, finish, kind, &why.to_string());
            }
            Some(kind) => tell(context, claim, kind, why),
            None => {}
        }
        if !self.is_news(refused) {
            return;
        }
        context.metrics.disruption.blocked(pool.as_deref().unwrap_or_default(), why);
        if kind.is_some() {
            info!(controller = "disruption", node, reason = %why, "node is not disrupted");
        }
        if let Blocked::Score { score, .. } = why {
            let pool = pool.as_deref().unwrap_or_default();
            context.metrics.disruption.judged(pool, "Balanced", false, Some(*score));
        }
    }

    fn is_news(&mut self, refused: &Refused) -> bool {
        let name = refused.why.name();
        self.said.insert((refused.node.clone(), refused.method), name) != Some(name)
    }
}

/// The pools that did not rest, or not until then, when they were looked at last.
fn newly_resting<'a>(
    known: &mut BTreeMap<String, Timestamp>,
    rests: &'a Rests,
) -> Vec<(&'a str, &'a PoolRest)> {
    let until = rests.iter().filter_map(|(pool, rest)| Some((pool.clone(), rest.until?)));
    let known = std::mem::replace(known, until.collect());
    let is_new = |(pool, rest): &(&String, &PoolRest)| {
        rest.until.is_some_and(|until| known.get(*pool) != Some(&until))
    };
    rests.iter().filter(is_new).map(|(pool, rest)| (pool.as_str(), rest)).collect()
}

/// A few names, as examples.
fn first_of(nodes: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = nodes[..nodes.len().min(SHOWN)].join(", ");
    if nodes.len() > SHOWN { format!("{shown}, ...") } else { shown }
}

fn nothing_allowed(context: &Context, pool: &str, reason: DisruptionReason) {
    let Some(pool) = context.managed_pool(pool) else { return };
    let reason = reason.as_str();
    let message =
        format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
    let notice = Notice::about(&*pool, Severity::Normal, "DisruptionBlocked", message)
        .same_if(vec![pool.uid().unwrap_or_default(), reason.to_owned()])
        .repeat_after(BUDGET_EVERY);
    context.recorder.record(notice);
}

/// Says on a node and its claim why it is not consolidated, and counts it.
pub(super) fn unconsolidatable(context: &Context, claim: &str, why: &Blocked) {
    let Some(found) = context.index.read().claims().named(claim).cloned() else { return };
    let pool = found.node_pool().unwrap_or_default();
    context.metrics.disruption.blocked(pool, why);
    tell(context, claim, "Unconsolidatable", why);
}

fn tell(context: &Context, claim: &str, kind: &'static str, why: &Blocked) {
    let message = sentence(&why.to_string());
    on_node_and_claim(
        context,
        claim,
        |notice| {
            // Another reason than before is news.
            let notice = and_same_if(notice, [why.name()]);
            if kind == "Unconsolidatable" {
                notice.repeat_after(UNCONSOLIDATABLE_EVERY)
            } else {
                notice
            }
        },
        kind,
        &message,
    );
}

/// A warning on each node that is not repaired, on its claim, and once on the pool.
fn repair_blocked(context: &Context, claim: &str, why: &Blocked) {
    let Some(claim) = context.index.read().claims().named(claim).cloned() else { return };
    let message = why.to_string();
    let tell = |notice: Notice, uid: Option<String>| {
        let same_if = vec![uid.unwrap_or_default()];
        context.recorder.record(notice.same_if(same_if).repeat_after(REPAIR_BLOCKED_EVERY));
    };
    let warning = Severity::Warning;
    if let Some(node) = node_of(context, &claim) {
        let notice = Notice::about(&*node, warning, REPAIR_BLOCKED, message.clone());
        tell(notice, node.uid());
    }
    tell(Notice::about(&*claim, warning, REPAIR_BLOCKED, message.clone()), claim.uid());
    if let Some(pool) = claim.node_pool().and_then(|pool| context.managed_pool(pool)) {
        tell(Notice::about(&*pool, warning, REPAIR_BLOCKED, message), pool.uid());
    }
}

/// Logs which policy chose the node of a command.
pub(super) fn repair(command: &Command) {
    let Some(remedy) = &command.remedy else { return };
    let node = command.candidates.first().map(|candidate| candidate.node.name.as_str());
    info!(
        controller = "disruption",
        node,
        condition = remedy.condition,
        status = remedy.status,
        reason = remedy.reason,
        regex = remedy.policy.reason,
        fallback = remedy.is_fallback,
        action = remedy.action.as_str(),
        reboot_escalated = remedy.instead.map(|why| why.to_string()),
        since = %remedy.since,
        drain = ?remedy.drain,
        "selected repair policy"
    );
}

fn on_node_and_claim(
    context: &Context,
    claim: &str,
    finish: impl Fn(Notice) -> Notice,
    kind: &'static str,
    message: &str,
) {
    let Some(claim) = context.index.read().claims().named(claim).cloned() else { return };
    if let Some(node) = node_of(context, &claim) {
        let notice = Notice::about(&*node, Severity::Normal, kind, message.to_owned());
        context.recorder.record(finish(notice));
    }
    let notice = Notice::about(&*claim, Severity::Normal, kind, message.to_owned());
    context.recorder.record(finish(notice));
}

/// An event on each node that is about to be replaced. Nodes that are only removed get theirs when it happens.
pub(super) fn candidates(context: &Context, commands: &[Command]) {
    for command in commands {
        if command.decision() == Decision::Replace {
            let message =
                |text: &str| format!("Consolidation candidate: {text} ({})", savings(command));
            on_each(context, command, "ConsolidationCandidate", message, &[]);
        }
        if command.reason() == DisruptionReason::Underutilized {
            approved(context, command);
        }
    }
}

/// Counts a consolidation for each of its pools, and tells how it was weighed where the policy is `Balanced`.
fn approved(context: &Context, command: &Command) {
    let pools: BTreeSet<&String> = command.candidates.iter().map(|one| &one.pool).collect();
    for pool in pools {
        let Some(pool) = context.managed_pool(pool) else { continue };
        let score = command.scores.iter().find(|score| score.pool == pool.name_any());
        let policy = pool.spec.disruption.consolidation_policy.as_str();
        let value = score.map(Score::value);
        context.metrics.disruption.judged(&pool.name_any(), policy, true, value);
        let Some(score) = score else { continue };
        let message = format!(
            "score {:.2} >= threshold {:.2} (k: {K}, savings {:.1}%, disruption {:.1}%)",
            score.value(),
            Score::threshold(),
            score.savings_fraction * 100.0,
            score.disruption_fraction * 100.0,
        );
        let kind = "ConsolidationApproved";
        if let [candidate] = &command.candidates[..] {
            let claim = candidate.node.claim.as_deref().unwrap_or_default();
            on_node_and_claim(context, claim, |notice| notice, kind, &message);
        } else {
            context.recorder.record(Notice::about(&*pool, Severity::Normal, kind, message));
        }
    }
}

/// Tells each node of a command why it did not come to it after all.
pub(super) fn rejected(context: &Context, command: &Command, invalid: &Invalid) {
    context.metrics.disruption.failed_validation(command.method, invalid.failures);
    for candidate in &command.candidates {
        context.metrics.disruption.blocked(&candidate.pool, &invalid.why);
    }
    if command.reason() == DisruptionReason::Empty {
        return;
    }
    let reason = match invalid.why {
        Blocked::ValidationBudget => "budget",
        Blocked::ValidationSchedule => "scheduling",
        Blocked::ValidationChurn => "churn",
        _ => "unknown",
    };
    let message = |text: &str| {
        format!("Consolidation rejected: {text}, reason: {reason} ({})", savings(command))
    };
    on_each(context, command, "ConsolidationRejected", message, &[reason]);
}

fn on_each(
    context: &Context,
    command: &Command,
    kind: &'static str,
    message: impl Fn(&str) -> String,
    same_if: &[&str],
) {
    for candidate in &command.candidates {
        let Some(claim) = &candidate.node.claim else { continue };
        let text = text_for_node(command, &candidate.node.name);
        let told = [text.as_str()].into_iter().chain(same_if.iter().copied());
        let finish = |notice: Notice| and_same_if(notice, told.clone());
        on_node_and_claim(context, claim, finish, kind, &message(&text));
    }
}

/// The notice, which is not repeated only as long as these are the same as well.
fn and_same_if<'a>(notice: Notice, more: impl IntoIterator<Item = &'a str>) -> Notice {
    let mut values = notice.same_if.clone();
    values.extend(more.into_iter().map(str::to_owned));
    notice.same_if(values)
}

/// Writes into the journal what happens to a command.
pub(super) fn write_down(context: &Context, reason: &str, command: &Command, message: &str) {
    let node = command.candidates.first().map(|candidate| candidate.node.name.clone());
    let about =
        Subject { kind: "Node".into(), name: node.unwrap_or_default(), ..Subject::default() };
    context.window.write(context.now(), reason, about, message);
}

/// `Underutilized/replace: nodepools=[a,b]: [n1, n2] -> [1 replacement] (savings: $0.1200/h)`.
pub(super) fn text(command: &Command) -> String {
    let pools: BTreeSet<&str> =
        command.candidates.iter().map(|candidate| candidate.pool.as_str()).collect();
    let pools: Vec<&str> = pools.into_iter().collect();
    let nodes: Vec<&str> =
        command.candidates.iter().map(|candidate| candidate.node.name.as_str()).collect();
    format!(
        "{}/{}: nodepools=[{}]: [{}]{} ({})",
        command.reason().as_str(),
        command.decision().as_str(),
        pools.join(","),
        nodes.join(", "),
        replacements(command),
        savings(command),
    )
}

/// A command in the words of an event on one of its nodes.
fn text_for_node(command: &Command, node: &str) -> String {
    let decision = command.decision().as_str();
    match command.candidates.len() {
        1 => format!("{decision}: [{node}]{}", replacements(command)),
        several => format!("{decision}: [{node}] (part of {several}-node consolidation)"),
    }
}

fn replacements(command: &Command) -> String {
    match command.replacements.len() {
        0 => String::new(),
        1 => " -> [1 replacement]".into(),
        several => format!(" -> [{several} replacements]"),
    }
}

fn savings(command: &Command) -> String {
    match command.savings {
        Some(savings) => format!("savings: {savings}"),
        None => "savings: unknown".to_owned(),
    }
}

/// With its first letter in upper case.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

pub(super) fn node_of(context: &Context, claim: &NodeClaim) -> Option<Arc<Node>> {
    context.index.read().node_of(claim.provider_id()).ok().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_news_when_it_changes_and_not_when_another_method_has_another() {
        let mut reports = Reports::default();
        let mut is_news = |node: &str, method, why| {
            let (node, claim, pool) = (node.to_owned(), None, None);
            reports.is_news(&Refused { node, claim, pool, method, why })
        };
        let (drift, single) = (Some(Method::Drift), Some(Method::SingleNode));
        assert!(is_news("a", drift, Blocked::NotDrifted));
        assert!(is_news("a", single, Blocked::NotConsolidatable));
        assert!(!is_news("a", drift, Blocked::NotDrifted));
        assert!(!is_news("a", single, Blocked::NotConsolidatable));
        assert!(is_news("b", single, Blocked::NotConsolidatable));
        assert!(is_news("a", single, Blocked::UnknownPrice));
        assert!(is_news("a", single, Blocked::NotConsolidatable));
    }

    #[test]
    fn a_pool_that_rests_is_news_when_its_end_changes() {
        let mut known = BTreeMap::new();
        let mut news = |rests: &[(&str, i64)]| {
            let rest = |second: i64| PoolRest {
                nodes: 3,
                until: Some(Timestamp::from_second(second).unwrap()),
                message: String::new(),
            };
            let rests: Rests =
                rests.iter().map(|(pool, until)| ((*pool).to_owned(), rest(*until))).collect();
            let told = newly_resting(&mut known, &rests).into_iter();
            told.map(|(pool, _)| pool.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(news(&[("p", 60)]), ["p"]);
        assert_eq!(news(&[("p", 60), ("q", 60)]), ["q"]);
        assert_eq!(news(&[("p", 120), ("q", 60)]), ["p"]);
        assert!(news(&[]).is_empty());
        assert_eq!(news(&[("q", 60)]), ["q"]);
    }

    #[test]
    fn budgets_that_cannot_be_read_are_told_of_when_that_changes() {
        let wrong = |nodes: &str| BudgetError::Nodes(nodes.to_owned());
        let mut reports = Reports::default();
        let mut check = |found: &[(&str, &str)], expect: &[&str]| {
            let found =
                found.iter().map(|(pool, nodes)| ((*pool).to_owned(), wrong(nodes))).collect();
            let told = reports.newly_unreadable(&found).into_iter();
            let told: Vec<&str> = told.map(|(pool, _)| pool.as_str()).collect();
            assert_eq!(told, expect, "{found:?}");
        };
        check(&[("a", "x")], &["a"]);
        check(&[("a", "x"), ("b", "x")], &["b"]);
        check(&[("a", "y"), ("b", "x")], &["a"]);
        check(&[("b", "x")], &[]);
        check(&[("a", "y"), ("b", "x")], &["a"]);
    }
}
