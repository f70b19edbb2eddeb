//! Finding devices for the claims of a pod on one node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::claim::standing::{AllocatedDevice, Standing};
use crate::claim::{Claim, ClaimId, DeviceClasses, Request, RequestName, Wanted, Wish};
use crate::device::Kind;
use crate::inventory::{Inventory, KindId, Kinds};
use crate::pool::Pools;
use crate::reach::{NodeSelector, Reach};
use crate::refusal::{Refusal, SelectorPlace};
use crate::selector::{Failure, Selector};
use crate::usage::Usage;

mod constraint;
mod fit;
mod search;
mod symmetry;

/// The most devices that one claim can have: Kubernetes' limit.
pub const DEVICES_LIMIT: usize = 32;

/// The most claims that are allocated at once. The search calls itself once for each device of each claim.
pub const CLAIMS_LIMIT: usize = 32;

/// How many devices a search may try before it gives up.
pub const DEFAULT_BUDGET: u64 = 100_000;

/// What is worth keeping from one search to the next: compiled selectors, and which kinds of devices they match.
///
/// Inventories and demands belong to the allocator that made them. It grows with every selector and every kind of device that it sees,
/// so it lives as long as a snapshot, not as long as the operator.
#[derive(Clone, Debug)]
pub struct Allocator {
    budget: u64,
    selectors: Vec<Selector>,
    by_source: BTreeMap<Arc<str>, SelectorId>,
    kinds: Kinds,
    /// By selector, then by kind.
    answers: Vec<Vec<Option<Answer>>>,
}

/// What a selector says of a kind of devices.
#[derive(Clone, Debug)]
enum Answer {
    Yes,
    No,
    Failed(Box<Failure>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SelectorId(usize);

/// A claim that is ready to be allocated: its classes are found, its selectors compiled.
#[derive(Clone, Debug)]
pub struct Demand {
    claim: ClaimId,
    requests: Vec<Vec<Ask>>,
    constraints: Vec<crate::claim::Constraint>,
}

/// A request, or one of its alternatives.
#[derive(Clone, Debug)]
struct Ask {
    name: RequestName,
    selectors: Vec<(SelectorId, SelectorPlace)>,
    wanted: Wanted,
}

/// What a claim gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub claim: ClaimId,
    pub devices: Vec<AllocatedDevice>,
    pub nodes: Nodes,
}

/// From where the devices of an allocation can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    All,
    /// Only from the node that it was made for.
    This,
    Selected(NodeSelector),
}

impl Default for Allocator {
    fn default() -> Self {
        Self::with_budget(DEFAULT_BUDGET)
    }
}

impl Allocator {
    pub fn with_budget(budget: u64) -> Self {
        Self {
            budget,
            selectors: Vec::new(),
            by_source: BTreeMap::new(),
            kinds: Kinds::default(),
            answers: Vec::new(),
        }
    }

    /// The devices of a node: those whose reach includes it.
    pub fn inventory(&mut self, pools: &Pools, reaches: impl Fn(&Reach) -> bool) -> Inventory {
        Inventory::new(pools, reaches, &mut self.kinds)
    }

    /// Prepares a claim.
    pub fn demand(
        &mut self,
        claim: &Claim,
        classes: &DeviceClasses,
    ) -> Result<Demand, Box<Refusal>> {
        let requests = claim.requests.iter().map(|request| self.asks(claim, request, classes));
        Ok(Demand {
            claim: claim.id.clone(),
            requests: requests.collect::<Result<_, _>>()?,
            constraints: claim.constraints.clone(),
        })
    }

    /// Finds devices for all claims at once, or says why there are none. `usage` is what others have: of the cluster, of this run.
    ///
    /// The answer is the first allocation in this order: claims and their requests as they stand, alternatives as they stand,
    /// devices in the order of the inventory.
    pub fn allocate(
        &mut self,
        inventory: &Inventory,
        usage: &[&Usage],
        demands: &[&Demand],
    ) -> Result<Vec<Allocation>, Box<Refusal>> {
        search::run(self, inventory, usage, demands)
    }

    fn asks(
        &mut self,
        claim: &Claim,
        request: &Request,
        classes: &DeviceClasses,
    ) -> Result<Vec<Ask>, Box<Refusal>> {
        let name = |alternative: Option<&Arc<str>>| RequestName {
            request: request.name.clone(),
            alternative: alternative.cloned(),
        };
        match &request.wish {
            Wish::Exactly(wanted) => Ok(vec![self.ask(claim, name(None), wanted, classes)?]),
            Wish::FirstAvailable(all) => {
                let asks = all
                    .iter()
                    .map(|(one, wanted)| self.ask(claim, name(Some(one)), wanted, classes));
                asks.collect()
            }
        }
    }

    fn ask(
        &mut self,
        claim: &Claim,
        name: RequestName,
        wanted: &Wanted,
        classes: &DeviceClasses,
    ) -> Result<Ask, Box<Refusal>> {
        let class = &wanted.class;
        let Some(known) = classes.get(class) else {
            let (claim, class) = (claim.id.clone(), class.clone());
            return Err(Box::new(Refusal::NoDeviceClass { claim, request: name, class }));
        };
        let of_class = known.selectors.iter().zip(1..).map(|(source, selector)| {
            (source, SelectorPlace::Class { class: class.clone(), selector })
        });
        let of_request = wanted
            .selectors
            .iter()
            .zip(1..)
            .map(|(source, selector)| (source, SelectorPlace::Request { selector }));
        let mut selectors = Vec::new();
        for (source, place) in of_class.chain(of_request) {
            match self.selector(source) {
                Ok(id) => selectors.push((id, place)),
                Err(invalid) => {
                    let (claim, request) = (claim.id.clone(), name);
                    let refusal = Refusal::InvalidSelector { claim, request, place, invalid };
                    return Err(Box::new(refusal));
                }
            }
        }
        Ok(Ask { name, selectors, wanted: wanted.clone() })
    }

    fn selector(&mut self, source: &Arc<str>) -> Result<SelectorId, crate::selector::Invalid> {
        if let Some(id) = self.by_source.get(source) {
            return Ok(*id);
        }
        let id = SelectorId(self.selectors.len());
        self.selectors.push(Selector::compile(source)?);
        self.by_source.insert(source.clone(), id);
        Ok(id)
    }

    /// What a selector says of a kind of devices. Each pair is evaluated once.
    fn answer(&mut self, selector: SelectorId, id: KindId, kind: &Kind) -> &Answer {
        if self.answers.len() <= selector.0 {
            self.answers.resize(selector.0 + 1, Vec::new());
        }
        let answers = &mut self.answers[selector.0];
        if answers.len() <= id.place() {
            answers.resize(id.place() + 1, None);
        }
        let selectors = &self.selectors;
        answers[id.place()].get_or_insert_with(|| {
            // A demand of another allocator could name a selector that is not known here. It matches nothing.
            match selectors.get(selector.0).map(|selector| selector.matches(kind)) {
                Some(Ok(true)) => Answer::Yes,
                Some(Ok(false)) | None => Answer::No,
                Some(Err(failure)) => Answer::Failed(Box::new(failure)),
            }
        })
    }
}

impl Allocation {
    /// What the claim has when this is carried out on a node, for a pod.
    pub fn standing(&self, node: &Arc<str>, pod: &Arc<str>) -> Standing {
        let nodes = match &self.nodes {
            Nodes::All => None,
            Nodes::This => Some(NodeSelector::node(node)),
            Nodes::Selected(selector) => Some(selector.clone()),
        };
        Standing {
            devices: self.devices.clone(),
            nodes,
            pods: Some(std::iter::once(pod.clone()).collect()),
        }
    }
}
