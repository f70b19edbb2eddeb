//! What a claim is launched with: types, capacity type, tenancy.

mod filters;

use std::sync::Arc;

use kerf_api::labels::{
    CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT,
};
use kerf_aws_api::labels::{INSTANCE_TENANCY, TENANCY_DEDICATED, TENANCY_DEFAULT};
use kerf_model::{
    InstanceType, KnownLabels, MinValuesPolicy, Requirements, Resources, TooFewValues, catalogue,
};

pub use filters::{Filter, ReservationKind};

/// A request for a fleet names at most so many types.
const MAX_TYPES: usize = 60;
/// With fewer types than this, spot capacity is often not to be had.
const FLEXIBLE_TYPES: usize = 5;

/// What a claim asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    pub requirements: &'a Requirements,
    pub requests: &'a Resources,
    pub labels: &'a KnownLabels,
    pub min_values: MinValuesPolicy,
}

/// What to ask EC2 for.
#[derive(Clone, Debug)]
pub struct LaunchPlan {
    /// The cheapest first, each with those offerings alone that may be used.
    pub types: Vec<Arc<InstanceType>>,
    pub terms: Terms,
    /// The value of the label `karpenter.k8s.aws/instance-tenancy`.
    pub tenancy: &'static str,
    /// Types that could have been launched and were left out, by the filter that did it.
    pub left_out: Vec<(Filter, Vec<String>)>,
    /// Spot was allowed and is not to be had, with so few types.
    pub inflexible: Option<usize>,
}

/// The terms that EC2 is asked for; a fleet has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    Reserved(ReservationKind),
    Spot,
    OnDemand,
}

/// Why nothing can be launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NothingToLaunch {
    #[error("all requested instance types were unavailable during launch ({after})")]
    Unavailable { after: Filter },
    #[error("the {MAX_TYPES} cheapest instance types are too few: {0}")]
    TooFewValues(#[from] TooFewValues),
}

/// Chooses among the types of a class.
pub fn plan(types: &[Arc<InstanceType>], wish: Wish<'_>) -> Result<LaunchPlan, NothingToLaunch> {
    let mut types = types.to_vec();
    let mut left_out = Vec::new();
    for filter in Filter::IN_ORDER {
        let before = types.clone();
        types = filter.keep(types, wish);
        if types.is_empty() {
            return Err(NothingToLaunch::Unavailable { after: filter });
        }
        // That most types do not suit a claim is no news.
        if filter != Filter::CompatibleAndAvailable && types.len() < before.len() {
            left_out.push((filter, missing(&before, &types)));
        }
    }
    catalogue::truncate(&mut types, wish.requirements, wish.labels, MAX_TYPES, wish.min_values)?;
    let terms = terms(&types, wish);
    let falls_back = terms == Terms::OnDemand && wish.allows(CAPACITY_TYPE_SPOT);
    let count = types.len();
    Ok(LaunchPlan {
        terms,
        tenancy: tenancy(wish.requirements),
        left_out,
        inflexible: (falls_back && count < FLEXIBLE_TYPES).then_some(count),
        types,
    })
}

impl Terms {
    /// The value of the label `karpenter.sh/capacity-type`.
    pub fn capacity_type(self) -> &'static str {
        match self {
            Self::Reserved(_) => CAPACITY_TYPE_RESERVED,
            Self::Spot => CAPACITY_TYPE_SPOT,
            Self::OnDemand => CAPACITY_TYPE_ON_DEMAND,
        }
    }
}

impl Wish<'_> {
    fn allows(&self, capacity_type: &str) -> bool {
        self.requirements.get(CAPACITY_TYPE).is_none_or(|one| one.has(capacity_type))
    }
}

/// The names of those that are not among the kept ones. Filters keep the order.
fn missing(before: &[Arc<InstanceType>], kept: &[Arc<InstanceType>]) -> Vec<String> {
    let mut kept = kept.iter().map(|one| one.name()).peekable();
    let names = before.iter().map(|one| one.name());
    names.filter(|name| kept.next_if_eq(name).is_none()).map(str::to_owned).collect()
}

/// Reserved before spot before on demand.
fn terms(types: &[Arc<InstanceType>], wish: Wish<'_>) -> Terms {
    let offered = |capacity_type: &str| {
        let launchable = types.iter().flat_map(|one| one.launchable_offerings());
        let mut serving = launchable.filter(|one| one.serves(wish.requirements, wish.labels));
        serving.find(|one| one.capacity_type() == Some(capacity_type))
    };
    match offered(CAPACITY_TYPE_RESERVED).and_then(ReservationKind::of) {
        Some(kind) => Terms::Reserved(kind),
        None if offered(CAPACITY_TYPE_SPOT).is_some() => Terms::Spot,
        None => Terms::OnDemand,
    }
}

fn tenancy(requirements: &Requirements) -> &'static str {
    let shared = requirements.get(INSTANCE_TENANCY).is_none_or(|one| one.has(TENANCY_DEFAULT));
    if shared { TENANCY_DEFAULT } else { TENANCY_DEDICATED }
}

#[cfg(test)]
mod tests;
