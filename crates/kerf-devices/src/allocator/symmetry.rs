//! What can be left out of a search because it is the same as something that was tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Demand;
use super::fit::{Board, Match};
use crate::claim::{Mode, Rule};
use crate::device::{Attribute, Capacity, Taint};
use crate::inventory::{Consumption, Seen};

/// Requests that could be exchanged, and devices that could.
pub(super) struct Symmetry<'a> {
    demands: &'a [&'a Demand],
    like: Vec<Option<usize>>,
    twins: Vec<Option<Twins>>,
    signatures: BTreeMap<Signature<'a>, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twins {
    None,
    Class(u32),
}

/// Devices with the same one can stand in for each other.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Signature<'a> {
    pool: usize,
    is_used: bool,
    allows_multiple: bool,
    matches: Vec<bool>,
    attributes: Vec<Option<&'a Attribute>>,
    capacity: &'a BTreeMap<Arc<str>, Capacity>,
    consumes: &'a Consumption,
    taints: &'a [Taint],
}

impl<'a> Symmetry<'a> {
    pub(super) fn new(demands: &'a [&'a Demand], order: &[(usize, usize)], devices: usize) -> Self {
        let like = (0..order.len()).map(|position| like(demands, order, position));
        Self {
            demands,
            like: like.collect(),
            twins: vec![None; devices],
            signatures: BTreeMap::new(),
        }
    }

    /// An earlier request that asks for the same, and could be exchanged with the one at this position.
    pub(super) fn like(&self, position: usize) -> Option<usize> {
        self.like[position]
    }

    /// The class of devices that could stand in for this one, as long as the search holds none of them.
    pub(super) fn twins_of(&mut self, board: &mut Board<'a>, device: usize) -> Twins {
        if let Some(twins) = self.twins[device] {
            return twins;
        }
        let twins = match self.signature(board, device) {
            None => Twins::None,
            Some(signature) => {
                let next = u32::try_from(self.signatures.len()).unwrap_or(u32::MAX);
                Twins::Class(*self.signatures.entry(signature).or_insert(next))
            }
        };
        self.twins[device] = Some(twins);
        twins
    }

    /// None if the device has no twins that are known to be: parts of it are in use, or a selector fails for it.
    fn signature(&self, board: &mut Board<'a>, device: usize) -> Option<Signature<'a>> {
        let demands = self.demands;
        let inventory = board.inventory;
        let Seen { device: seen, pool, consumes, .. } = &inventory.devices[device];
        let is_used = board.is_used(device);
        if is_used && seen.kind.allows_multiple {
            return None;
        }
        let mut matches = Vec::new();
        for ask in demands.iter().flat_map(|demand| demand.requests.iter().flatten()) {
            matches.push(match board.matches(ask, device) {
                Match::Yes => true,
                Match::No(_) => false,
                Match::Failed(..) => return None,
            });
        }
        let constraints = demands.iter().flat_map(|demand| &demand.constraints);
        let attributes = constraints.map(|constraint| {
            let (Rule::MatchAttribute(name) | Rule::DistinctAttribute(name)) = &constraint.rule;
            seen.kind.attribute(name)
        });
        Some(Signature {
            pool: *pool,
            is_used,
            allows_multiple: seen.kind.allows_multiple,
            matches,
            attributes: attributes.collect(),
            capacity: &seen.kind.capacity,
            consumes,
            taints: &seen.taints,
        })
    }
}

/// The last request before this one that asks for the same, if the two could be exchanged: they are in one claim, or the only ones of
/// their claims, and no constraint concerns them.
fn like(demands: &[&Demand], order: &[(usize, usize)], position: usize) -> Option<usize> {
    let only_ask = |position: usize| {
        let (claim, request) = order[position];
        let [ask] = demands[claim].requests[request].as_slice() else { return None };
        (matches!(ask.wanted.mode, Mode::Count(_)) && demands[claim].constraints.is_empty())
            .then_some((claim, ask))
    };
    let (claim, ask) = only_ask(position)?;
    (0..position).rev().find(|earlier| {
        only_ask(*earlier).is_some_and(|(other, same)| {
            let alone = demands[claim].requests.len() == 1 && demands[other].requests.len() == 1;
            (other == claim || alone)
                && same.wanted == ask.wanted
                && same.selectors.iter().map(|one| one.0).eq(ask.selectors.iter().map(|one| one.0))
        })
    })
}
