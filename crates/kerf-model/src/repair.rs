//! Repair policies: which conditions of a node say that it is broken, and what to do about it.
//!
//! A provider has one constant set of them. It is checked and compiled once ([`RepairRules::new`]) and then compared with nodes
//! ([`RepairRules::matches`]). That depends on no clock: what follows from a match and when is a matter of disruption.

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kerf_api::conditions::Status;
use regex::Regex;

/// What to do with a node when one of its conditions has had this status for this long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPolicy {
    pub condition: &'static str,
    pub status: Status,
    /// A regular expression that has to find something in the condition's reason. The empty text makes the policy the fallback:
    /// it counts for every condition of the set that no other policy is about.
    pub reason: &'static str,
    /// From when the condition turned on.
    pub toleration: Duration,
    /// How long the drain may take. `None` is as long as the NodeClaim says, zero is no drain.
    pub termination_grace_period: Option<Duration>,
    /// From 0 to 100; higher goes first.
    pub priority: u8,
    pub action: RepairAction,
}

/// How a node is repaired. The greater is the more disruptive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RepairAction {
    Reboot,
    Replace,
}

impl RepairAction {
    /// As Karpenter's policies have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reboot => "RebootNode",
            Self::Replace => "ReplaceNode",
        }
    }
}

impl RepairPolicy {
    /// A fallback that replaces the node.
    pub const fn new(condition: &'static str, status: Status, toleration: Duration) -> Self {
        Self {
            condition,
            status,
            reason: "",
            toleration,
            termination_grace_period: None,
            priority: 0,
            action: RepairAction::Replace,
        }
    }

    fn is_about(&self, condition: &str, status: &str) -> bool {
        self.condition == condition && self.status.as_str() == status
    }
}

impl fmt::Display for RepairPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, reason, action, .. } = self;
        write!(f, "{condition}={}", self.status.as_str())?;
        if !reason.is_empty() {
            write!(f, " with a reason like {reason:?}")?;
        }
        write!(f, " ({})", action.as_str())
    }
}

/// Why policies cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    #[error("repair policy {place} has an empty condition type")]
    NoCondition { place: usize },
    #[error("repair policy {place}, {policy}, has priority {priority} outside the supported range [0, 100]", priority = policy.priority)]
    Priority { place: usize, policy: Box<RepairPolicy> },
    #[error("repair policy {place}, {policy}, has an invalid reason regex: {problem}")]
    Reason { place: usize, policy: Box<RepairPolicy>, problem: String },
    #[error(
        "node repair requires the cloud provider to define repair policies, but it defines none"
    )]
    None,
    #[error("the repair policies must define one default fallback: one with an empty reason")]
    NoFallback,
    #[error("the repair policies have multiple default fallbacks: {first} and {second}")]
    Fallbacks { first: Box<RepairPolicy>, second: Box<RepairPolicy> },
    #[error("the default fallback policy {policy} must use action \"ReplaceNode\"")]
    FallbackReboots { policy: Box<RepairPolicy> },
}

/// All that is wrong with a set of policies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct BadPolicies(pub Vec<BadPolicy>);

/// The expression that a policy has for the reason of a condition.
#[derive(Clone, Debug)]
pub struct Reason(Option<Regex>);

impl Reason {
    /// The empty one is about every reason.
    pub fn new(expression: &str) -> Result<Self, regex::Error> {
        if expression.is_empty() {
            Ok(Self(None))
        } else {
            Regex::new(expression).map(Some).map(Self)
        }
    }

    pub fn suits(&self, reason: &str) -> bool {
        self.0.as_ref().is_none_or(|expression| expression.is_match(reason))
    }

    fn is_any(&self) -> bool {
        self.0.is_none()
    }
}

/// A set of policies that can be used.
#[derive(Clone, Debug)]
pub struct RepairRules {
    policies: Vec<Rule>,
    fallback: Rule,
    /// The part of a NodePool's nodes, in percent, that may be unhealthy. Where more are, something else than the nodes is broken.
    pub most_unhealthy_percent: u8,
}

#[derive(Clone, Debug)]
struct Rule {
    policy: Arc<RepairPolicy>,
    reason: Reason,
    rank: u32,
}

/// A condition of a node, and a policy that is about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairMatch {
    pub policy: Arc<RepairPolicy>,
    /// The policy is the fallback, and may name another condition.
    pub is_fallback: bool,
    pub condition: String,
    pub status: String,
    pub reason: String,
    /// The place of the policy's priority among those of the set.
    pub rank: u32,
    /// When the condition turned, or when the node was created if that was later.
    pub since: Timestamp,
}

impl RepairMatch {
    /// From when on something is to be done. A node that was rebooted begins anew.
    pub fn eligible_at(&self, not_before: Option<Timestamp>) -> Timestamp {
        let since = not_before.map_or(self.since, |not_before| not_before.max(self.since));
        since.checked_add(self.policy.toleration).unwrap_or(Timestamp::MAX)
    }
}

impl RepairRules {
    /// Checks the policies and compiles what they look for. All that is wrong comes back.
    pub fn new(policies: &[RepairPolicy], most_unhealthy_percent: u8) -> Result<Self, BadPolicies> {
        if policies.is_empty() {
            return Err(BadPolicies(vec![BadPolicy::None]));
        }
        let mut bad = Vec::new();
        let mut priorities: Vec<u8> = policies.iter().map(|policy| policy.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let mut rules = Vec::new();
        for (place, policy) in policies.iter().enumerate() {
            let boxed = || Box::new(policy.clone());
            if policy.condition.is_empty() {
                bad.push(BadPolicy::NoCondition { place });
            }
            if policy.priority > 100 {
                bad.push(BadPolicy::Priority { place, policy: boxed() });
            }
            let rank = priorities.partition_point(|priority| *priority < policy.priority);
            let rank = u32::try_from(rank).unwrap_or(u32::MAX);
            match Reason::new(policy.reason) {
                Ok(reason) => rules.push(Rule { policy: Arc::new(policy.clone()), reason, rank }),
                Err(problem) => {
                    let problem = last_line(&problem.to_string());
                    bad.push(BadPolicy::Reason { place, policy: boxed(), problem });
                }
            }
        }
        let mut fallbacks = rules.iter().filter(|rule| rule.reason.is_any());
        let boxed = |rule: &Rule| Box::new(RepairPolicy::clone(&rule.policy));
        let fallback = fallbacks.next();
        match (fallback, fallbacks.next()) {
            (None, _) => bad.push(BadPolicy::NoFallback),
            (Some(first), Some(second)) => {
                bad.push(BadPolicy::Fallbacks { first: boxed(first), second: boxed(second) });
            }
            (Some(only), None) if only.policy.action != RepairAction::Replace => {
                bad.push(BadPolicy::FallbackReboots { policy: boxed(only) });
            }
            _ => {}
        }
        match fallback.cloned() {
            Some(fallback) if bad.is_empty() => {
                Ok(Self { policies: rules, fallback, most_unhealthy_percent })
            }
            _ => Err(BadPolicies(bad)),
        }
    }

    /// What the policies say of a node, in the order of its conditions. A node without a match is healthy.
    pub fn matches(&self, node: &Node) -> Vec<RepairMatch> {
        let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut found = Vec::new();
        for condition in conditions.into_iter().flatten() {
            let (kind, status) = (condition.type_.as_str(), condition.status.as_str());
            let reason = condition.reason.as_deref().unwrap_or_default();
            let of_group = self.policies.iter().filter(|rule| rule.policy.is_about(kind, status));
            let mut of_group = of_group.peekable();
            if of_group.peek().is_none() {
                continue;
            }
            let turned = condition.last_transition_time.as_ref().map(|time| time.0);
            let since = turned.max(created).unwrap_or(Timestamp::UNIX_EPOCH);
            let before = found.len();
            let matched = |rule: &Rule, is_fallback| RepairMatch {
                policy: Arc::clone(&rule.policy),
                is_fallback,
                condition: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                rank: rule.rank,
                since,
            };
            let specific =
                of_group.filter(|rule| !rule.reason.is_any() && rule.reason.suits(reason));
            found.extend(specific.map(|rule| matched(rule, false)));
            if found.len() == before {
                found.push(matched(&self.fallback, true));
            }
        }
        found
    }
}

/// An error in an expression is drawn over several lines; the last says what it is.
fn last_line(text: &str) -> String {
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}
