//! Whether one device will do for one request, while others are chosen.

use crate::amount::Amount;
use crate::capacity::{Amounts, Misfit, portions};
use crate::inventory::{Inventory, Seen};
use crate::refusal::SelectorPlace;
use crate::selector::Failure;
use crate::usage::Usage;

use super::{Allocator, Answer, Ask};

/// The devices of a node, with what is taken of them: before the search, and by the choices of the search so far.
pub(super) struct Board<'a> {
    allocator: &'a mut Allocator,
    pub(super) inventory: &'a Inventory,
    usage: &'a [&'a Usage],
    /// Empty until something is taken.
    held: Vec<Held>,
    /// What is left of the counters of each pool, once something asked.
    left: Vec<Option<Vec<Amount>>>,
}

/// What the search holds of a device. Claims are counted in the order in which they are allocated.
#[derive(Clone, Debug, Default)]
struct Held {
    owner: Option<usize>,
    watchers: Vec<usize>,
    shares: u32,
    amounts: Amounts,
}

/// What taking a device changed.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) share: Option<Amounts>,
    counted: bool,
}

/// Why a device that matches cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    InUse,
    TooSmall,
    CapacityInUse,
    CountersInUse,
    Tainted,
}

/// What the selectors of a request say of a device.
#[derive(Debug)]
pub(super) enum Match<'a> {
    Yes,
    No(&'a SelectorPlace),
    Failed(&'a SelectorPlace, Box<Failure>),
}

impl<'a> Board<'a> {
    pub(super) fn new(
        allocator: &'a mut Allocator,
        inventory: &'a Inventory,
        usage: &'a [&'a Usage],
    ) -> Self {
        let left = vec![None; inventory.pools.len()];
        Self { allocator, inventory, usage, held: Vec::new(), left }
    }

    pub(super) fn budget(&self) -> u64 {
        self.allocator.budget
    }

    pub(super) fn matches(&mut self, ask: &'a Ask, device: usize) -> Match<'a> {
        let seen = &self.inventory.devices[device];
        for (selector, place) in &ask.selectors {
            match self.allocator.answer(*selector, seen.kind, &seen.device.kind) {
                Answer::Yes => {}
                Answer::No => return Match::No(place),
                Answer::Failed(failure) => return Match::Failed(place, failure.clone()),
            }
        }
        Match::Yes
    }

    /// Whether somebody has the whole device, or shares of it, before the search.
    pub(super) fn is_used(&self, device: usize) -> bool {
        let id = &self.inventory.devices[device].id;
        self.usage.iter().any(|usage| usage.is_used(id))
    }

    pub(super) fn is_held(&self, device: usize) -> bool {
        self.held.get(device).is_some_and(|held| {
            held.owner.is_some() || held.shares > 0 || !held.watchers.is_empty()
        })
    }

    /// A claim gets a device once at most, unless the device allows several allocations. Who only watches is in nobody's way.
    pub(super) fn in_use(&self, ask: &Ask, claim: usize, device: usize) -> bool {
        let seen = &self.inventory.devices[device];
        let held = self.held.get(device);
        let has = |claim| held.is_some_and(|held| held.owner == Some(claim));
        let watches = |claim| held.is_some_and(|held| held.watchers.contains(&claim));
        if ask.wanted.admin_access {
            return (has(claim) || watches(claim)) && !seen.device.kind.allows_multiple;
        }
        held.is_some_and(|held| held.owner.is_some())
            || watches(claim) && !seen.device.kind.allows_multiple
            || self.usage.iter().any(|usage| usage.is_whole(&seen.id))
    }

    /// What is in the way beside selectors and constraints.
    pub(super) fn obstacle(&mut self, ask: &Ask, claim: usize, device: usize) -> Option<Obstacle> {
        if self.in_use(ask, claim, device) {
            return Some(Obstacle::InUse);
        }
        let seen = &self.inventory.devices[device];
        match share(ask, seen) {
            Err(_) => return Some(Obstacle::TooSmall),
            Ok(Some(amounts)) if !self.has_left(seen, device, &amounts) => {
                return Some(Obstacle::CapacityInUse);
            }
            Ok(_) => {}
        }
        if self.counts(ask, device) {
            let left = self.left(seen.pool);
            let enough = |(place, amount): &(usize, Amount)| left[*place] >= *amount;
            if !seen.consumes.iter().all(enough) {
                return Some(Obstacle::CountersInUse);
            }
        }
        seen.device.repels(&ask.wanted.tolerations).map(|_| Obstacle::Tainted)
    }

    fn has_left(&self, seen: &Seen, device: usize, amounts: &Amounts) -> bool {
        amounts.iter().all(|(name, amount)| {
            let held = self.held.get(device).and_then(|held| held.amounts.get(name).copied());
            let held = held.unwrap_or_default();
            let used = self
                .usage
                .iter()
                .fold(held, |sum, usage| sum.plus(usage.of_capacity(&seen.id, name)));
            let total = seen.device.kind.capacity.get(name).map_or(Amount::ZERO, |one| one.value);
            used.plus(*amount) <= total
        })
    }

    /// Whether taking the device consumes its counters. Of several shares the first one does.
    fn counts(&self, ask: &Ask, device: usize) -> bool {
        let seen = &self.inventory.devices[device];
        !seen.consumes.is_empty()
            && !ask.wanted.admin_access
            && !(seen.device.kind.allows_multiple
                && (self.held.get(device).is_some_and(|held| held.shares > 0)
                    || self.is_used(device)))
    }

    fn left(&mut self, pool: usize) -> &mut Vec<Amount> {
        let counters = &self.inventory.pools[pool];
        let usage = self.usage;
        self.left[pool].get_or_insert_with(|| {
            let mut left = counters.totals.clone();
            for (id, consumes) in &counters.consumers {
                if usage.iter().any(|usage| usage.is_used(id)) {
                    for (place, amount) in consumes {
                        left[*place] = left[*place].minus(*amount);
                    }
                }
            }
            left
        })
    }

    /// Takes a device that nothing is in the way of.
    pub(super) fn take(&mut self, ask: &Ask, claim: usize, device: usize) -> Taken {
        self.held.resize(self.inventory.devices.len(), Held::default());
        if ask.wanted.admin_access {
            self.held[device].watchers.push(claim);
            return Taken { share: None, counted: false };
        }
        let seen = &self.inventory.devices[device];
        let counted = self.counts(ask, device);
        if counted {
            let left = self.left(seen.pool);
            for (place, amount) in &seen.consumes {
                left[*place] = left[*place].minus(*amount);
            }
        }
        let share = share(ask, seen).ok().flatten();
        let held = &mut self.held[device];
        match &share {
            None => held.owner = Some(claim),
            Some(amounts) => {
                held.shares += 1;
                for (name, amount) in amounts {
                    let sum = held.amounts.entry(name.clone()).or_default();
                    *sum = sum.plus(*amount);
                }
            }
        }
        Taken { share, counted }
    }

    /// Undoes [`take`](Self::take).
    pub(super) fn give_back(&mut self, ask: &Ask, device: usize, taken: &Taken) {
        let seen = &self.inventory.devices[device];
        if taken.counted {
            let left = self.left(seen.pool);
            for (place, amount) in &seen.consumes {
                left[*place] = left[*place].plus(*amount);
            }
        }
        let held = &mut self.held[device];
        if ask.wanted.admin_access {
            held.watchers.pop();
            return;
        }
        match &taken.share {
            None => held.owner = None,
            Some(amounts) => {
                held.shares -= 1;
                for (name, amount) in amounts {
                    if let Some(sum) = held.amounts.get_mut(name) {
                        *sum = sum.minus(*amount);
                    }
                }
            }
        }
    }
}

/// What a request takes of the capacity of a device that allows several allocations. Of other devices it takes all, but they have to
/// have as much as it asks for.
pub(super) fn share(ask: &Ask, seen: &Seen) -> Result<Option<Amounts>, Misfit> {
    let kind = &seen.device.kind;
    if !kind.allows_multiple && ask.wanted.capacity.is_empty() {
        return Ok(None);
    }
    let portions = portions(kind, &ask.wanted.capacity)?;
    let shares = kind.allows_multiple && !ask.wanted.admin_access;
    Ok(shares.then_some(portions))
}
