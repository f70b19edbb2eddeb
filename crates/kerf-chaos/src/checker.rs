//! What must never be, judged by a model of its own.
//!
//! Nothing of the operator is used here: objects are read from their JSON, amounts and budgets have an arithmetic of their own. A test
//! holds that. Each rule is Karpenter's own:
//!
//! - A limit counts what stays: claims that are deleted or being replaced have no part in it, because the replacement comes first.
//! - A budget counts initialized nodes that are marked, deleted or not ready, until their instance is told to end.
//! - A cloud that launches another type than the claim asks for may exceed a limit; the next launch has to know it.
//! - An operator acts on what it has heard. A change counts against it when it is older than [`LAG`].

mod calm;
mod history;
mod instances;
mod objects;
mod quantity;
#[cfg(test)]
mod tests;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

pub use history::Millis;
pub use instances::Instance;
use instances::Orphans;
use objects::{Claim, Node, Pod, Pool, allowed, amounts, budgets, list, text};

/// A watch may be late or silent for 30 s, and a decision is looked at a second time after 15 s.
pub const LAG: Millis = 60_000;
/// The same while nothing comes between the operators and the API server: what has changed is heard of at once, and the second look
/// is at the cluster as it is then.
const SHORT_LAG: Millis = 5_000;
/// A write is seen a moment after it was sent.
const MOMENT: Millis = 2_000;
/// Objects of another operator are named so.
pub const FOREIGN: &str = "theirs";
/// Claims made by hand that say they have the instance of another.
pub const PRETENDER: &str = "pretender";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    NoPanic,
    NoUnexpectedEnd,
    OneInstancePerClaim,
    FinalizerBeforeInstance,
    LimitsKept,
    BudgetsKept,
    EvictionsThroughTheApi,
    DoNotDisruptKept,
    TaintBeforeEviction,
    TaintBeforeDisruption,
    OneWriter,
    ForeignUntouched,
    RefusalsNamed,
    InstancesHaveClaims,
    ClaimsEnd,
    TaintsEnd,
    PodsRun,
    Settles,
    WritesEnd,
}

impl Invariant {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoPanic => "nothing panics",
            Self::NoUnexpectedEnd => "an operator ends only when it is ended or loses its lease",
            Self::OneInstancePerClaim => "a claim has one instance at most",
            Self::FinalizerBeforeInstance => "no instance before the finalizer of its claim",
            Self::LimitsKept => "no launch exceeds the limits of its pool",
            Self::BudgetsKept => "no disruption exceeds the budgets of its pool",
            Self::EvictionsThroughTheApi => {
                "pods are deleted past the eviction API only for terminationGracePeriod"
            }
            Self::DoNotDisruptKept => "do-not-disrupt pods are not disrupted voluntarily",
            Self::TaintBeforeEviction => "a node is tainted before its pods are evicted",
            Self::TaintBeforeDisruption => "a node is tainted before its claim is disrupted",
            Self::OneWriter => "no replica writes while another holds the lease",
            Self::ForeignUntouched => "objects of other operators are left alone",
            Self::RefusalsNamed => "conditions and events have a reason",
            Self::InstancesHaveClaims => "no instance without a claim",
            Self::ClaimsEnd => "every claim gets its node, and every deleted claim goes",
            Self::TaintsEnd => "no node is tainted for ever",
            Self::PodsRun => "every pod that can run does",
            Self::Settles => "no command for 30 minutes once nothing changes",
            Self::WritesEnd => "objects are not written again and again once nothing changes",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub at: Millis,
    pub invariant: Invariant,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", clock(self.at), self.invariant, self.what)
    }
}

/// Hours, minutes and seconds since the start.
pub fn clock(at: Millis) -> String {
    let seconds = at / 1_000;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// One call of an operator.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    pub who: &'a str,
    pub verb: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// `namespace/name`, or `name`.
    pub key: &'a str,
    /// The API server refuses the call for an object of that name with another uid.
    pub uid: Option<&'a str>,
}

/// An eviction that is looked at a moment later, when all that was written before it has been seen.
#[derive(Debug)]
struct Eviction {
    at: Millis,
    pod: String,
    node: String,
}

#[derive(Debug, Default)]
pub struct Checker {
    now: Millis,
    claims: BTreeMap<String, Claim>,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    pools: BTreeMap<String, Pool>,
    /// What PodDisruptionBudgets select, and whether they let a pod go now.
    pod_budgets: BTreeMap<String, (BTreeMap<String, String>, bool)>,
    /// Those that are no Nodes, as the cloud had them when it was looked at last.
    instances: BTreeMap<String, Instance>,
    orphans: Orphans,
    holder: Option<String>,
    /// When something last came between an operator and the API server, or stopped one.
    troubled: Option<Millis>,
    evictions: Vec<Eviction>,
    last_command: Option<(Millis, String)>,
    /// What was changed since all is well.
    written: Vec<(Millis, String)>,
    commands: u64,
    violations: Vec<Violation>,
}

impl Checker {
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub fn has_failed(&self) -> bool {
        !self.violations.is_empty()
    }

    /// How many nodes were disrupted.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    pub fn note(&mut self, invariant: Invariant, what: String) {
        // The same thing may be seen in many states one after the other.
        let is_new = |it: &Violation| it.invariant != invariant || it.what != what;
        if self.violations.iter().all(is_new) {
            self.violations.push(Violation { at: self.now, invariant, what });
        }
    }

    /// Something comes between an operator and the API server, or stops one.
    pub fn is_troubled(&mut self, now: Millis) {
        self.tick(now);
        self.troubled = Some(self.now);
    }

    /// How old a change has to be to count against an operator that decides what to disrupt.
    fn lag(&self) -> Millis {
        if self.troubled.is_some_and(|at| at + LAG > self.now) { LAG } else { SHORT_LAG }
    }

    pub fn tick(&mut self, now: Millis) {
        self.now = self.now.max(now);
        let now = self.now;
        let due = self.evictions.extract_if(.., |it| it.at + MOMENT <= now).collect::<Vec<_>>();
        for Eviction { pod, node, .. } in due {
            let is_ours = |claim: &Claim| claim.node == node;
            if self.nodes.get(&node).is_some_and(|it| !it.is_disrupted)
                && self.claims.values().any(is_ours)
            {
                let what = format!("pod {pod} was evicted from node {node}, which has no taint");
                self.note(Invariant::TaintBeforeEviction, what);
            }
        }
    }

    /// An object has changed.
    pub fn saw(&mut self, now: Millis, resource: &str, key: &str, object: &Value, gone: bool) {
        self.tick(now);
        match resource {
            "nodeclaims" => self.saw_claim(key, object, gone),
            "nodes" => self.saw_node(key, object, gone),
            "nodepools" => self.saw_pool(key, object, gone),
            "pods" if gone => drop(self.pods.remove(key)),
            "pods" => {
                let pod = Pod::read(object, self.now, self.pods.get(key));
                self.pods.insert(key.to_owned(), pod);
            }
            "poddisruptionbudgets" if gone => drop(self.pod_budgets.remove(key)),
            "poddisruptionbudgets" => {
                let selector = object.pointer("/spec/selector/matchLabels");
                let selector = selector.and_then(Value::as_object).into_iter().flatten();
                let selector =
                    selector.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()));
                let allows = object["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) > 0;
                self.pod_budgets.insert(key.to_owned(), (selector.collect(), allows));
            }
            "events"
                if !gone
                    && text(object, "/source/component") == "karpenter"
                    && (text(object, "/reason").is_empty()
                        || text(object, "/message").is_empty()) =>
            {
                self.note(Invariant::RefusalsNamed, format!("event {key} says nothing"));
            }
            _ => {}
        }
    }

    /// An operator has sent a call.
    pub fn sent(&mut self, now: Millis, call: &Sent<'_>) {
        self.tick(now);
        let writes = !matches!(call.verb, "get" | "list" | "watch");
        if !writes || call.resource == "leases" {
            return;
        }
        let what = || format!("{} sent {} {} {}", call.who, call.verb, call.resource, call.key);
        if let Some(holder) = self.holder.clone()
            && !holder.is_empty()
            && holder != call.who
        {
            let what = format!("{} while {holder} held the lease", what());
            self.note(Invariant::OneWriter, what);
        }
        self.keeps_writing(call);
        let of_another = matches!(call.resource, "nodes" | "nodeclaims" | "nodepools")
            && call.key.starts_with(FOREIGN);
        let on_foreign_node = call.resource == "pods"
            && self.pods.get(call.key).is_some_and(|pod| pod.node.starts_with(FOREIGN));
        if of_another || on_foreign_node {
            self.note(Invariant::ForeignUntouched, what());
        }
        // A pod of a StatefulSet has the name of the one before it. Whoever means that one does this one no harm.
        let means_another = call.resource == "pods"
            && self
                .pods
                .get(call.key)
                .is_some_and(|pod| call.uid.is_some_and(|uid| uid != pod.uid));
        match (call.verb, call.resource, call.subresource) {
            _ if means_another => {}
            ("create", "pods", "eviction") => self.evicts(call),
            ("delete", "pods", "") => {
                let node = self.pods.get(call.key).map(|pod| pod.node.clone()).unwrap_or_default();
                let claim = self.claims.values().find(|claim| claim.node == node);
                if claim.is_some_and(|claim| !claim.has_grace_period) {
                    self.note(Invariant::EvictionsThroughTheApi, what());
                }
            }
            _ => {}
        }
    }

    /// The API server has given the lease to this one.
    pub fn leads(&mut self, now: Millis, who: &str) {
        self.tick(now);
        self.holder = Some(who.to_owned());
    }

    fn evicts(&mut self, call: &Sent<'_>) {
        let Some(pod) = self.pods.get(call.key) else { return };
        let (node, protects) = (pod.node.clone(), pod.protects);
        if protects.is_some_and(|since| since + LAG <= self.now) {
            let what = format!("pod {} was evicted from node {node}", call.key);
            self.note(Invariant::DoNotDisruptKept, what);
        }
        self.evictions.push(Eviction { at: self.now, pod: call.key.to_owned(), node });
    }

    fn saw_claim(&mut self, name: &str, object: &Value, gone: bool) {
        if name.starts_with(FOREIGN) || name.starts_with(PRETENDER) {
            return;
        }
        let before = self.claims.remove(name);
        let claim = Claim::read(object, self.now, before.as_ref());
        let (pool, is_new) = (claim.pool.clone(), before.is_none());
        self.has_reasons("NodeClaim", name, object);
        let is_launched = |it: &Claim| it.is_launched;
        let launches = claim.is_launched && !before.as_ref().is_some_and(is_launched);
        let marks = claim.marked.is_some()
            && before.as_ref().is_none_or(|it| it.marked.is_none())
            && claim.deleting.is_none();
        if gone {
            self.count_nodes(&pool);
            return;
        }
        self.claims.insert(name.to_owned(), claim);
        if is_new || launches {
            self.keeps_limits(name, &pool);
        }
        self.count_nodes(&pool);
        if marks {
            self.may_disrupt(name);
        }
    }

    /// A launch may have been decided on with any limit since then; the largest counts.
    fn keeps_limits(&mut self, name: &str, pool: &str) {
        let (Some(claim), Some(of_pool)) = (self.claims.get(name), self.pools.get(pool)) else {
            return;
        };
        if claim.is_going() || claim.surprised.is_some() {
            return;
        }
        let created = claim.created;
        // What the operator could not know of when it decided on this claim.
        let is_surprise = |it: &Claim| it.surprised.is_some_and(|at| at + LAG > created);
        let mut used = BTreeMap::<&str, i128>::new();
        for other in self.claims.values() {
            if other.pool == pool && other.stays_since(created) && !is_surprise(other) {
                *used.entry("nodes").or_default() += 1_000;
                for (resource, amount) in &other.capacity {
                    *used.entry(resource).or_default() += amount;
                }
            }
        }
        let over: Vec<_> = used
            .into_iter()
            .filter_map(|(resource, used)| {
                let limits = of_pool.limits.since(created - LAG).map(|it| it.get(resource));
                // Without a limit at any of these times there was none.
                let limit = limits.collect::<Option<Vec<_>>>()?.into_iter().max()?;
                (used > *limit).then(|| format!("{resource} {used}m of {limit}m"))
            })
            .collect();
        if !over.is_empty() {
            let what = format!("NodeClaim {name} of NodePool {pool}: {}", over.join(", "));
            self.note(Invariant::LimitsKept, what);
        }
    }

    /// Remembers what a percentage of the pool is of.
    fn count_nodes(&mut self, pool: &str) {
        let counts = |it: &&Claim| it.pool == pool && it.is_initialized && !it.is_terminating;
        let total = self.claims.values().filter(counts).count();
        let (now, horizon) = (self.now, self.now - 2 * LAG);
        if let Some(of_pool) = self.pools.get_mut(pool)
            && let Some((budgets, _)) = of_pool.budgets.since(now).last().cloned()
        {
            of_pool.budgets.push(now, (budgets, total), horizon);
        }
    }

    fn may_disrupt(&mut self, name: &str) {
        let Some(claim) = self.claims.get(name).cloned() else { return };
        let Some((_, reason)) = claim.marked else { return };
        self.last_command = Some((self.now, format!("{reason} {name}")));
        self.commands += 1;
        let heard = self.now - self.lag();
        let known = |since: Millis| since <= heard;
        // A reboot stands on the claim before the node is tainted: nothing else can be lost with the operator then.
        if !claim.is_rebooting && self.nodes.get(&claim.node).is_some_and(|it| !it.is_disrupted) {
            let what =
                format!("NodeClaim {name} is disrupted, and its node {} has no taint", claim.node);
            self.note(Invariant::TaintBeforeDisruption, what);
        }
        // Drift goes on in spite of such pods where there is a time by which they have to go, and they ride through a reboot.
        let is_forced = claim.has_grace_period && reason == "Drifted" || claim.is_rebooting;
        let mut on_node = self.pods.iter().filter(|(_, pod)| pod.node == claim.node);
        if !claim.node.is_empty()
            && !is_forced
            && let Some((pod, _)) = on_node.find(|(_, pod)| pod.protects.is_some_and(known))
        {
            let what = format!("NodeClaim {name} is disrupted ({reason}), and pod {pod} is on it");
            self.note(Invariant::DoNotDisruptKept, what);
        }
        let counts = |it: &&Claim| {
            let unready = self.nodes.get(&it.node).and_then(|node| node.unready);
            it.pool == claim.pool
                && it.is_initialized
                && !it.is_terminating
                && (it.marked.is_some()
                    || it.deleting.is_some_and(known)
                    || unready.is_some_and(known))
        };
        let disrupted = self.claims.values().filter(counts).count();
        let Some(pool) = self.pools.get(&claim.pool) else { return };
        let most = pool.budgets.since(heard);
        let most = most.map(|(budgets, total)| allowed(budgets, *total, &reason)).max();
        if most.is_some_and(|most| disrupted > most) {
            let what = format!(
                "NodeClaim {name} of NodePool {} ({reason}): {disrupted} nodes at once, {} allowed",
                claim.pool,
                most.unwrap_or_default()
            );
            self.note(Invariant::BudgetsKept, what);
        }
    }

    fn saw_node(&mut self, name: &str, object: &Value, gone: bool) {
        if gone {
            self.nodes.remove(name);
            return;
        }
        let node = Node::read(object, self.now, self.nodes.get(name));
        let uid = node.claim_uid.clone();
        let is_new = self.nodes.insert(name.to_owned(), node).is_none();
        if uid.is_empty() || !is_new {
            return;
        }
        let same = self.nodes.iter().filter(|(_, it)| it.claim_uid == uid);
        let same: Vec<_> = same.map(|(name, _)| name.as_str()).collect();
        if same.len() > 1 {
            let what = format!("claim {uid} has the nodes {}", same.join(", "));
            self.note(Invariant::OneInstancePerClaim, what);
        }
        let claim = self.claims.iter().find(|(_, it)| it.uid == uid);
        if let Some((claim, _)) = claim.filter(|(_, it)| !it.has_finalizer) {
            let what = format!("NodeClaim {claim} has the instance {name} and no finalizer");
            self.note(Invariant::FinalizerBeforeInstance, what);
        }
    }

    fn saw_pool(&mut self, name: &str, object: &Value, gone: bool) {
        if gone {
            self.pools.remove(name);
            return;
        }
        self.has_reasons("NodePool", name, object);
        let (now, horizon) = (self.now, self.now - 2 * LAG);
        let pool = self.pools.entry(name.to_owned()).or_default();
        // Claims may be older than what is remembered otherwise.
        pool.limits.push(now, amounts(object, "/spec/limits"), now - 20 * LAG);
        let total = pool.budgets.since(now).last().map_or(0, |(_, total)| *total);
        pool.budgets.push(now, (budgets(object), total), horizon);
        self.count_nodes(name);
    }

    fn has_reasons(&mut self, kind: &str, name: &str, object: &Value) {
        let nameless = list(object, "/status/conditions")
            .find(|it| it["status"] != "True" && text(it, "/reason").is_empty());
        if let Some(condition) = nameless {
            let what = format!("{kind} {name}: {} has no reason", text(condition, "/type"));
            self.note(Invariant::RefusalsNamed, what);
        }
    }
}
