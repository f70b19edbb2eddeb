//! The search: depth first through claims, requests, alternatives and devices, in their order. The first solution is the answer.
//!
//! Three things keep it short, and none of them changes the answer. A request that a node has not enough devices for ends it before it
//! starts. Where everything else failed with one device, it fails with its twins: devices that no selector, constraint, capacity,
//! counter or taint tells apart. And of two requests that ask for the same, the later one takes later devices: if it were the other way
//! round, exchanging them would give a solution that comes earlier.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::constraint::Checked;
use super::fit::{Board, Match, Obstacle, Taken, share};
use super::symmetry::{Symmetry, Twins};
use super::{Allocation, Allocator, Ask, CLAIMS_LIMIT, DEVICES_LIMIT, Demand, Nodes};
use crate::claim::standing::AllocatedDevice;
use crate::claim::{Mode, RequestName};
use crate::inventory::{Inventory, KindId, Seen};
use crate::reach::{NodeSelector, Reach, Term};
use crate::refusal::{Refusal, SelectorPlace, Shortage, Tally};
use crate::usage::Usage;

pub(super) fn run<'a>(
    allocator: &'a mut Allocator,
    inventory: &'a Inventory,
    usage: &'a [&'a Usage],
    demands: &'a [&'a Demand],
) -> Result<Vec<Allocation>, Box<Refusal>> {
    if demands.len() > CLAIMS_LIMIT {
        let claims = demands.len();
        return Err(Box::new(Refusal::TooManyClaims { claims, limit: CLAIMS_LIMIT }));
    }
    let board = Board::new(allocator, inventory, usage);
    let mut search = Search::new(board, demands);
    search.plan()?;
    search.check_each_request()?;
    if search.request(0)? {
        return Ok(search.allocations());
    }
    let (claim, request) = search.order[search.deepest];
    let name = &demands[claim].requests[request][0].name;
    Err(Box::new(Refusal::NoCombination {
        claim: demands[claim].claim.clone(),
        request: RequestName { request: name.request.clone(), alternative: None },
        steps: search.steps,
    }))
}

struct Search<'a> {
    board: Board<'a>,
    demands: &'a [&'a Demand],
    /// Claim and request, in the order of the search.
    order: Vec<(usize, usize)>,
    /// By position: the first device of the request.
    firsts: Vec<usize>,
    /// The devices of requests for all, by claim, request and alternative.
    all: BTreeMap<(usize, usize, usize), Rc<[usize]>>,
    /// The constraints of each claim.
    constraints: Vec<Vec<Checked<'a>>>,
    /// The devices of each claim so far.
    chosen: Vec<Vec<Choice<'a>>>,
    steps: u64,
    deepest: usize,
    symmetry: Symmetry<'a>,
}

struct Choice<'a> {
    ask: &'a Ask,
    device: usize,
    taken: Taken,
}

/// A request at work.
#[derive(Clone, Copy)]
struct Place<'a> {
    position: usize,
    claim: usize,
    ask: &'a Ask,
    needed: usize,
    is_at_start: bool,
}

impl<'a> Search<'a> {
    fn new(board: Board<'a>, demands: &'a [&'a Demand]) -> Self {
        let order = demands.iter().enumerate().flat_map(|(claim, demand)| {
            (0..demand.requests.len()).map(move |request| (claim, request))
        });
        let order: Vec<_> = order.collect();
        let constraints =
            demands.iter().map(|demand| demand.constraints.iter().map(Checked::new).collect());
        Self {
            symmetry: Symmetry::new(demands, &order, board.inventory.devices.len()),
            firsts: vec![0; order.len()],
            order,
            all: BTreeMap::new(),
            constraints: constraints.collect(),
            chosen: demands.iter().map(|_| Vec::new()).collect(),
            steps: 0,
            deepest: 0,
            board,
            demands,
        }
    }

    /// Finds what requests for all devices stand for, and whether claims can have as many devices as they ask for.
    fn plan(&mut self) -> Result<(), Box<Refusal>> {
        let demands = self.demands;
        for (claim, demand) in demands.iter().enumerate() {
            let mut devices: u64 = 0;
            for (request, asks) in demand.requests.iter().enumerate() {
                let mut least = u64::MAX;
                for (alternative, ask) in asks.iter().enumerate() {
                    least = least.min(match ask.wanted.mode {
                        Mode::Count(count) => u64::from(count.get()),
                        Mode::All => {
                            let all = self.all_of(claim, ask)?;
                            let count = all.len() as u64;
                            self.all.insert((claim, request, alternative), all.into());
                            count
                        }
                    });
                }
                devices = devices.saturating_add(least);
            }
            if devices > DEVICES_LIMIT as u64 {
                let claim = demand.claim.clone();
                return Err(Box::new(Refusal::TooManyDevices {
                    claim,
                    devices,
                    limit: DEVICES_LIMIT,
                }));
            }
        }
        Ok(())
    }

    fn all_of(&mut self, claim: usize, ask: &'a Ask) -> Result<Vec<usize>, Box<Refusal>> {
        if let Some((pool, why)) = self.board.inventory.unusable.first() {
            return Err(Box::new(Refusal::AllOfUnusablePool {
                claim: self.demands[claim].claim.clone(),
                request: ask.name.clone(),
                pool: pool.clone(),
                why: why.clone(),
            }));
        }
        let mut all = Vec::new();
        for device in 0..self.board.inventory.devices.len() {
            let selected = self.is_selected(claim, ask, device)?;
            if selected && share(ask, &self.board.inventory.devices[device]).is_ok() {
                all.push(device);
            }
        }
        Ok(all)
    }

    fn is_selected(
        &mut self,
        claim: usize,
        ask: &'a Ask,
        device: usize,
    ) -> Result<bool, Box<Refusal>> {
        match self.board.matches(ask, device) {
            Match::Yes => Ok(true),
            Match::No(_) => Ok(false),
            Match::Failed(place, failure) => Err(Box::new(Refusal::SelectorFailed {
                claim: self.demands[claim].claim.clone(),
                request: ask.name.clone(),
                place: place.clone(),
                device: self.board.inventory.devices[device].id.clone(),
                failure: *failure,
            })),
        }
    }

    /// Refuses claims with a request that could not be served even if it were the only one.
    fn check_each_request(&mut self) -> Result<(), Box<Refusal>> {
        let demands = self.demands;
        for (claim, demand) in demands.iter().enumerate() {
            for (request, asks) in demand.requests.iter().enumerate() {
                let mut shortages = Vec::new();
                for (alternative, ask) in asks.iter().enumerate() {
                    let all = self.all.get(&(claim, request, alternative)).map(|all| all.len());
                    match self.shortage(claim, ask, all) {
                        Some(shortage) => shortages.push(shortage),
                        None => break,
                    }
                }
                if shortages.len() == asks.len() {
                    return Err(Box::new(Refusal::TooFewDevices {
                        claim: demand.claim.clone(),
                        shortages,
                        unusable: self.board.inventory.unusable.clone(),
                    }));
                }
            }
        }
        Ok(())
    }

    /// None if there are enough devices for a request. `all` says how many a request for all stands for.
    fn shortage(&mut self, claim: usize, ask: &'a Ask, all: Option<usize>) -> Option<Shortage> {
        let needed = match ask.wanted.mode {
            Mode::Count(count) => count.get(),
            // None is not all.
            Mode::All => match all {
                None | Some(0) => u32::MAX,
                Some(all) => u32::try_from(all).unwrap_or(u32::MAX),
            },
        };
        let mut tally = Tally::default();
        let inventory = self.board.inventory;
        // Devices of one kind mostly stand together.
        let mut unmatched: Option<(KindId, &SelectorPlace)> = None;
        for (device, seen) in inventory.devices.iter().enumerate() {
            tally.devices += 1;
            if let Some((kind, place)) = unmatched
                && kind == seen.kind
            {
                tally.note_unmatched(place);
                continue;
            }
            match self.board.matches(ask, device) {
                Match::Yes => {}
                Match::No(place) => {
                    unmatched = Some((seen.kind, place));
                    tally.note_unmatched(place);
                    continue;
                }
                Match::Failed(..) if self.board.in_use(ask, claim, device) => {}
                // The search decides whether it gets that far.
                Match::Failed(..) => return None,
            }
            match self.board.obstacle(ask, claim, device) {
                None => tally.usable += 1,
                Some(Obstacle::InUse) => tally.in_use += 1,
                Some(Obstacle::TooSmall) => tally.too_small += 1,
                Some(Obstacle::CapacityInUse) => tally.capacity_in_use += 1,
                Some(Obstacle::CountersInUse) => tally.counters_in_use += 1,
                Some(Obstacle::Tainted) => tally.tainted += 1,
            }
            if tally.usable == needed {
                return None;
            }
        }
        Some(Shortage { request: ask.name.clone(), mode: ask.wanted.mode, tally })
    }

    fn request(&mut self, position: usize) -> Result<bool, Box<Refusal>> {
        let Some(&(claim, request)) = self.order.get(position) else { return Ok(true) };
        self.deepest = self.deepest.max(position);
        let demands = self.demands;
        for (alternative, ask) in demands[claim].requests[request].iter().enumerate() {
            let all = self.all.get(&(claim, request, alternative)).cloned();
            let needed = match (ask.wanted.mode, &all) {
                (Mode::Count(count), _) => count.get() as usize,
                (Mode::All, Some(all)) if !all.is_empty() => all.len(),
                (Mode::All, _) => continue,
            };
            if self.chosen[claim].len() + needed > DEVICES_LIMIT {
                continue;
            }
            let place = Place { position, claim, ask, needed, is_at_start: true };
            let found = match all {
                Some(all) => self.all_devices(place, &all)?,
                None => self.some_devices(place, self.start(position, ask))?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn start(&self, position: usize, ask: &Ask) -> usize {
        let Some(like) = self.symmetry.like(position) else { return 0 };
        let first = self.firsts[like];
        let kind = &self.board.inventory.devices[first].device.kind;
        let can_be_of_both = kind.allows_multiple || ask.wanted.admin_access;
        first + usize::from(!can_be_of_both)
    }

    fn step(&mut self) -> Result<(), Box<Refusal>> {
        if self.steps >= self.board.budget() {
            return Err(Box::new(Refusal::SearchEnded { steps: self.steps }));
        }
        self.steps += 1;
        Ok(())
    }

    fn all_devices(&mut self, place: Place<'a>, all: &[usize]) -> Result<bool, Box<Refusal>> {
        let [device, others @ ..] = all else { return self.request(place.position + 1) };
        self.step()?;
        if !self.choose(place, *device)? {
            return Ok(false);
        }
        let found = self.all_devices(place, others)?;
        if !found {
            self.drop_last(place.claim);
        }
        Ok(found)
    }

    /// Chooses the devices that a request still needs among those from `start` on. So no set of devices is tried twice.
    fn some_devices(&mut self, place: Place<'a>, start: usize) -> Result<bool, Box<Refusal>> {
        if place.needed == 0 {
            return self.request(place.position + 1);
        }
        let end = (self.board.inventory.devices.len() + 1).saturating_sub(place.needed);
        let mut failed: Vec<Twins> = Vec::new();
        for device in start..end {
            self.step()?;
            if !failed.is_empty() && !self.board.is_held(device) {
                let twins = self.symmetry.twins_of(&mut self.board, device);
                if failed.contains(&twins) {
                    continue;
                }
            }
            let could_be_twin = !self.board.is_held(device);
            if !self.choose(place, device)? {
                continue;
            }
            if place.is_at_start {
                self.firsts[place.position] = device;
            }
            let rest = Place { needed: place.needed - 1, is_at_start: false, ..place };
            if self.some_devices(rest, device + 1)? {
                return Ok(true);
            }
            self.drop_last(place.claim);
            let twins = self.symmetry.twins_of(&mut self.board, device);
            if could_be_twin && twins != Twins::None {
                failed.push(twins);
            }
        }
        Ok(false)
    }

    /// Takes a device for a request, if it will do.
    fn choose(&mut self, place: Place<'a>, device: usize) -> Result<bool, Box<Refusal>> {
        let Place { claim, ask, .. } = place;
        if self.board.in_use(ask, claim, device)
            || !self.is_selected(claim, ask, device)?
            || self.board.obstacle(ask, claim, device).is_some()
        {
            return Ok(false);
        }
        let inventory = self.board.inventory;
        let kind = &inventory.devices[device].device.kind;
        for number in 0..self.constraints[claim].len() {
            if self.constraints[claim][number].add(&ask.name, kind) {
                continue;
            }
            if ask.wanted.mode == Mode::All {
                return Err(Box::new(Refusal::AllAgainstConstraint {
                    claim: self.demands[claim].claim.clone(),
                    request: ask.name.clone(),
                    constraint: number + 1,
                    rule: self.constraints[claim][number].rule().clone(),
                    device: inventory.devices[device].id.clone(),
                }));
            }
            for noted in &mut self.constraints[claim][..number] {
                noted.remove(&ask.name);
            }
            return Ok(false);
        }
        let taken = self.board.take(ask, claim, device);
        self.chosen[claim].push(Choice { ask, device, taken });
        Ok(true)
    }

    fn drop_last(&mut self, claim: usize) {
        let Some(Choice { ask, device, taken }) = self.chosen[claim].pop() else { return };
        self.board.give_back(ask, device, &taken);
        for constraint in &mut self.constraints[claim] {
            constraint.remove(&ask.name);
        }
    }

    fn allocations(self) -> Vec<Allocation> {
        let Self { board, demands, chosen, .. } = self;
        let allocations = demands.iter().zip(chosen).map(|(demand, chosen)| {
            let nodes = nodes(chosen.iter().map(|one| &board.inventory.devices[one.device]));
            let devices = chosen.into_iter().map(|choice| AllocatedDevice {
                request: choice.ask.name.clone(),
                device: board.inventory.devices[choice.device].id.clone(),
                admin_access: choice.ask.wanted.admin_access,
                share: choice.taken.share,
            });
            Allocation { claim: demand.claim.clone(), devices: devices.collect(), nodes }
        });
        allocations.collect()
    }
}

/// From where all of some devices can be used.
fn nodes<'a>(devices: impl Iterator<Item = &'a Seen>) -> Nodes {
    let mut common = Term::default();
    for seen in devices {
        let selector = match &seen.reach {
            _ if seen.device.binds_to_node => return Nodes::This,
            Reach::Node(_) => return Nodes::This,
            Reach::AllNodes => continue,
            Reach::Nodes(selector) => selector,
        };
        // Kubernetes allows one term. Of several, no single term says where all devices are.
        let [term] = selector.terms.as_slice() else { return Nodes::This };
        for one in &term.labels {
            if !common.labels.contains(one) {
                common.labels.push(one.clone());
            }
        }
        for one in &term.fields {
            if !common.fields.contains(one) {
                common.fields.push(one.clone());
            }
        }
    }
    if common == Term::default() {
        Nodes::All
    } else {
        Nodes::Selected(NodeSelector { terms: vec![common] })
    }
}
