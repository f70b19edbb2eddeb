//! One look at the whole cluster: what to do next, and why not more.

use std::collections::BTreeMap;

use kerf_api::DisruptionReason;
use kerf_model::{Node, Snapshot};

use crate::{
    blocked::Blocked,
    budgets::{self, Allowance, BudgetError},
    candidates,
    command::{Candidate, Command, Method},
    fingerprint::Fingerprint,
    memory::Memory,
    methods::Shared,
    seats::seated,
    setback::{self, Rests},
    settings::Settings,
};

/// What a pass found.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// Of the first method that found something, independent of each other.
    pub commands: Vec<Command>,
    /// Nodes that were looked at and left alone. Those that a method has no business with are not listed.
    pub refused: Vec<Refused>,
    /// How many candidates each method had that was asked.
    pub eligible: BTreeMap<Method, usize>,
    /// For every pool and every reason that was asked for.
    pub allowances: BTreeMap<DisruptionReason, BTreeMap<String, Allowance>>,
    /// Pools whose drifted nodes are not replaced for a while.
    pub drift_rests: Rests,
    /// What is wrong with the budgets of pools, of which nothing is disrupted for that reason.
    pub unreadable_budgets: BTreeMap<String, BudgetError>,
    /// What spoke against merging nodes where nothing was found to merge: the savings threshold, the price factor and the
    /// score, once for each pool that they are about. What speaks against single nodes is among the refused.
    pub unmerged: Vec<Unmerged>,
    /// Whether every candidate was looked at; otherwise the next pass goes on.
    pub complete: bool,
}

/// A node that is left alone.
#[derive(Clone, Debug)]
pub struct Refused {
    pub node: String,
    pub claim: Option<String>,
    pub pool: Option<String>,
    /// `None`: it is no candidate for any method.
    pub method: Option<Method>,
    pub why: Blocked,
}

/// Nodes that could give way to fewer, if that were worth it to one of their pools.
#[derive(Clone, Debug, PartialEq)]
pub struct Unmerged {
    pub pool: String,
    pub nodes: Vec<String>,
    pub why: Blocked,
}

/// Asks the methods in their order; the first that finds something ends the pass.
pub fn pass(snapshot: &Snapshot, settings: &Settings, memory: &mut Memory) -> Pass {
    pass_with(snapshot, settings, memory, |_| {})
}

/// The same, and tells when each of the methods has answered: who has a clock can say how long that took.
pub fn pass_with(
    snapshot: &Snapshot,
    settings: &Settings,
    memory: &mut Memory,
    mut answered: impl FnMut(Method),
) -> Pass {
    let snapshot = &*seated(snapshot, settings);
    let skip = memory.take_rejected();
    let mut found = Pass { complete: skip.is_none(), ..Pass::default() };
    let graceful = found.survey(snapshot);
    for reason in Method::reasons(snapshot) {
        found.allowances.insert(reason, budgets::allowances(snapshot, reason));
    }
    found.drift_rests = setback::rests(snapshot, DisruptionReason::Drifted);
    found.unreadable_budgets = budgets::unreadable(snapshot);
    let allowances = found.allowances.values().flatten();
    let fingerprint = Fingerprint::of(snapshot, allowances);
    let mut look = Look { snapshot, settings, memory, fingerprint, found: &mut found };
    let mut shared = Shared { graceful, consolidation: None };
    let asked = |method: &Method| Some(*method) > skip && method.is_on(snapshot, settings);
    for method in Method::ALL.into_iter().filter(asked) {
        (method.row().look)(&mut look, &mut shared);
        answered(method);
        if !look.found.commands.is_empty() {
            break;
        }
    }
    found
}

/// What a method works with.
pub(crate) struct Look<'p> {
    pub(crate) snapshot: &'p Snapshot,
    pub(crate) settings: &'p Settings,
    pub(crate) memory: &'p mut Memory,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) found: &'p mut Pass,
}

impl Look<'_> {
    /// What the budgets leave for the method, by pool. Taking from it is up to the caller.
    pub(crate) fn allowances(&self, method: Method) -> BTreeMap<String, Allowance> {
        self.found.allowances[&method.reason()].clone()
    }

    pub(crate) fn refuse(&mut self, candidate: &Candidate, method: Method, why: Blocked) {
        self.refuse_node(&candidate.node, method, why);
    }

    pub(crate) fn refuse_node(&mut self, node: &Node, method: Method, why: Blocked) {
        self.found.refused.push(Refused {
            node: node.name.clone(),
            claim: node.claim.clone(),
            pool: node.pool.clone(),
            method: Some(method),
            why,
        });
    }
}

impl Pass {
    /// The candidates of the methods that wait for every pod.
    fn survey(&mut self, snapshot: &Snapshot) -> Vec<Candidate> {
        let mut survey = Vec::new();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            match candidates::candidate(snapshot, index, Method::Emptiness) {
                Ok(candidate) => survey.push(candidate),
                Err(why) => self.refused.push(Refused {
                    node: node.name.clone(),
                    claim: node.claim.clone(),
                    pool: node.pool.clone(),
                    method: None,
                    why,
                }),
            }
        }
        survey
    }
}

/// The same without the reasons of the others.
pub(crate) fn graceful(snapshot: &Snapshot) -> Vec<Candidate> {
    Pass::default().survey(snapshot)
}

/// Whether the budgets of its pool leave room for one more.
pub(crate) fn afford(
    allowances: &BTreeMap<String, Allowance>,
    candidate: &Candidate,
    method: Method,
) -> Result<(), Blocked> {
    let allowance = allowances.get(&candidate.pool).copied().unwrap_or_default();
    if allowance.left() > 0 {
        return Ok(());
    }
    Err(Blocked::Budget { pool: candidate.pool.clone(), reason: method.reason(), allowance })
}

/// Takes one node from what the budgets of its pool leave.
pub(crate) fn spend(
    allowances: &mut BTreeMap<String, Allowance>,
    candidate: &Candidate,
    method: Method,
) -> Result<(), Blocked> {
    afford(allowances, candidate, method)?;
    if let Some(allowance) = allowances.get_mut(&candidate.pool) {
        allowance.disrupting += 1;
    }
    Ok(())
}
