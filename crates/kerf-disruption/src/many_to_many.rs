//! Many-to-many consolidation: some nodes give way to as many others as are cheapest.
//!
//! Multi-node and single-node consolidation buy one node at most. What only two or three cheaper ones could replace stays as it
//! is. Here the search for cheap machines (`kerf-scheduler/src/packing.rs`) says what would be bought for the pods of a set of
//! nodes. What such a move has to save is what any consolidation has to save, and of the moves that were found the one is made
//! that saves most beyond it.
//!
//! It is asked last: nodes that are filled to the brim by it are of little use to pods that come, and moves that need fewer new nodes
//! are to be made first.
//!
//! The work is counted: so many sets of at most so many nodes and pods, and so much work for the machines of each.

use std::cmp::Ordering;

use kerf_model::{Price, Snapshot, churn::Fraction};

use crate::{
    blocked::Blocked,
    command::{Candidate, Command, Method},
    consolidation::Consolidation,
    controls::utilization_of,
    pass::{Look, graceful, spend},
    search::every,
    settings::Settings,
    validation::{Invalid, Validated, still_candidates},
};

const METHOD: Method = Method::ManyToMany;
/// Under this name the memory has the search as a whole.
pub(crate) const SEARCH: &str = "";
/// Sets are made of so many nodes: those that waste most for what it costs to disturb them.
const NODES: usize = 48;
/// And of so many of the first of these.
const SIZES: [usize; 10] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48];
/// A plan for more pods takes too long to make some dozens of them.
const PODS: usize = 1_000;
/// Of the best set so many nodes are tried to be left alone.
const SPARED: usize = 12;
/// For the machines of one set, in looks at sorts of pods: some milliseconds.
const WORK: u64 = 200_000;

pub(crate) fn look(look: &mut Look<'_>, consolidation: &Consolidation<'_>) {
    look.found.eligible.insert(METHOD, consolidation.candidates.len());
    look.memory.begin_pass(METHOD, look.fingerprint, look.snapshot.now);
    if look.memory.round(METHOD).is_known(SEARCH) {
        return;
    }
    let mut nodes: Vec<&Candidate> = consolidation.candidates.iter().collect();
    nodes.retain(|node| consolidation.set_back(node).is_ok());
    nodes.sort_by(|a, b| waste(a, b).then_with(|| a.node.name.cmp(&b.node.name)));
    let mut allowances = look.allowances(METHOD);
    nodes.retain(|node| spend(&mut allowances, node, METHOD).is_ok());
    nodes.truncate(NODES);
    let search = Search { consolidation, threads: look.settings.threads };
    match search.best(&nodes) {
        Some(found) => look.found.commands.push(found.command),
        None => look.memory.round(METHOD).looked_at(SEARCH),
    }
}

/// What is bought for the pods of this node alone.
pub(crate) fn alone(
    consolidation: &Consolidation<'_>,
    candidate: &Candidate,
) -> Result<Command, Blocked> {
    consolidation.repack(&[candidate], METHOD, WORK)
}

/// Plans the same nodes anew: what is bought now may be something else, and has to be worth it by the same rules.
pub(crate) fn still_worth_it(
    command: &Command,
    snapshot: &Snapshot,
    settings: &Settings,
) -> Result<Validated, Invalid> {
    let fresh = still_candidates(command, snapshot)?;
    let failed = |_| Invalid { why: Blocked::ValidationSchedule, failures: fresh.len() };
    let consolidation = Consolidation::new(snapshot, settings, &graceful(snapshot), Vec::new());
    let nodes: Vec<_> = fresh.iter().collect();
    let command = consolidation.repack(&nodes, METHOD, WORK).map_err(failed)?;
    Ok(Validated { command, dropped: Vec::new() })
}

struct Search<'c, 'e> {
    consolidation: &'c Consolidation<'e>,
    threads: std::num::NonZero<usize>,
}

/// A move that is worth it.
struct Found {
    command: Command,
    /// What it saves beyond what it has to.
    gain: Price,
}

impl Search<'_, '_> {
    fn best(&self, nodes: &[&Candidate]) -> Option<Found> {
        let alone = every(self.threads, nodes, |node| self.repack(&[node]));
        // One whose pods have no place stands in the way of every set that it is in.
        let stuck = |alone: &Result<_, _>| matches!(alone, Err(Blocked::NoFeasibleSchedule { .. }));
        let movable = nodes.iter().zip(&alone).filter(|(_, alone)| !stuck(alone));
        let movable: Vec<&Candidate> = movable.map(|(node, _)| *node).collect();
        let sets = sets(&movable);
        let together = every(self.threads, &sets, |set| self.repack(set));
        let found = alone.into_iter().chain(together).flatten();
        let best = found.reduce(|best, other| if other.beats(&best) { other } else { best })?;
        Some(self.spare(best))
    }

    /// Leaves out nodes that hardly add to what is saved: their pods need not be evicted.
    fn spare(&self, mut best: Found) -> Found {
        let nodes = best.command.candidates.clone();
        for node in nodes.iter().rev().take(SPARED) {
            let others = best.command.candidates.iter();
            let others: Vec<_> = others.filter(|other| other.index != node.index).collect();
            if others.is_empty() {
                break;
            }
            if let Ok(smaller) = self.repack(&others)
                && !best.beats(&smaller)
            {
                best = smaller;
            }
        }
        best
    }

    fn repack(&self, nodes: &[&Candidate]) -> Result<Found, Blocked> {
        let command = self.consolidation.repack(nodes, METHOD, WORK)?;
        let gain = self.consolidation.gain(&command);
        Ok(Found { command, gain })
    }
}

impl Found {
    /// It saves more, or as much with fewer evictions.
    fn beats(&self, other: &Self) -> bool {
        let evictions = |found: &Self| found.command.evictions();
        match self.gain.cmp(&other.gain) {
            Ordering::Greater => true,
            Ordering::Equal => evictions(self) < evictions(other),
            Ordering::Less => false,
        }
    }
}

/// The first few, and the first few more.
fn sets<'n, 'c>(nodes: &'n [&'c Candidate]) -> Vec<&'n [&'c Candidate]> {
    let pods = |set: &[&Candidate]| set.iter().map(|node| node.moving.len()).sum::<usize>();
    let most = nodes.len();
    let mut sizes: Vec<_> = SIZES.into_iter().filter(|size| *size < most).collect();
    sizes.extend((most > 1).then_some(most));
    let sets = sizes.into_iter().map(|size| &nodes[..size]);
    sets.filter(|set| pods(set) <= PODS).collect()
}

/// What is paid for and not used, for what it costs to disturb the node. More comes first.
fn waste(a: &Candidate, b: &Candidate) -> Ordering {
    let unused = |one: &Candidate| {
        let used = utilization_of(&one.node).min(Fraction::ONE);
        let part = Fraction::ONE.billionths() - used.billionths();
        one.price.times(part.into(), 1_000_000_000)
    };
    let product = |one: &Candidate, other: &Candidate| {
        i128::from(unused(one).ten_billionths()) * i128::from(other.rescheduling_cost.0)
    };
    product(b, a).cmp(&product(a, b))
}
