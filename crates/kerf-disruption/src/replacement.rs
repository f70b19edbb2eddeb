//! What may be launched to replace nodes, and up to which price.

mod several;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use kerf_model::{
    InstanceType, KnownLabels, Price, Requirement,
    catalogue::{order_by_price, satisfies_min_values},
    labels::{CAPACITY_TYPE, ON_DEMAND, SPOT},
};
use kerf_scheduler::PlannedClaim;

use crate::{Blocked, Candidate, Promise, Removed, controls::Stakes};

pub(crate) use several::{charge, purchase_several};

/// A spot node gives way to another only where this many types are cheaper, and only those are bought: the one that
/// comes is then among the cheapest, and not in turn replaced by the next cheaper one.
const SPOT_FLEXIBILITY: usize = 15;

/// A replacement that is worth it, whichever of its types the provider picks.
#[derive(Clone, Debug)]
pub struct Purchase {
    /// Its price is that of the cheapest offer.
    pub claim: PlannedClaim,
    pub promise: Promise,
    /// How many types the choice has to keep.
    least: usize,
}

/// Narrows the one claim that would take the candidates' pods down to what is worth it, by every rule about prices.
pub fn purchase(
    candidates: &[&Candidate],
    stakes: &Stakes,
    planned: &PlannedClaim,
    labels: &KnownLabels,
    spot_to_spot: bool,
) -> Result<Purchase, Blocked> {
    within(candidates, stakes, planned, stakes.at_most(), labels, spot_to_spot)
}

/// The same where it may cost no more than this.
fn within(
    candidates: &[&Candidate],
    stakes: &Stakes,
    planned: &PlannedClaim,
    at_most: Price,
    labels: &KnownLabels,
    spot_to_spot: bool,
) -> Result<Purchase, Blocked> {
    // A pending pod may get relaxed minValues. A running pod is never moved to a node with less than the pool asks for.
    if planned.min_values_relaxed {
        let detail = "minValues requirement is not met without lowering it".to_owned();
        return Err(Blocked::MinValues { detail });
    }
    let from_spot =
        candidates.iter().all(|candidate| candidate.capacity_type.as_deref() == Some(SPOT));
    let stays_spot = from_spot && admits(planned, SPOT);
    if stays_spot && !spot_to_spot {
        return Err(Blocked::SpotToSpotDisabled);
    }
    if planned.price > at_most {
        return Err(refusal(stakes, planned.price));
    }
    let (mut claim, dearer) = split(planned, at_most, labels);
    if stays_spot {
        insist_on_spot(&mut claim, labels);
    }
    let cheapest = keep_up_to(&mut claim, at_most, labels)?;
    if claim.instance_types.is_empty() {
        let prices = dearer.iter().map(|one| one.worst_launch_price(&claim.requirements, labels));
        return Err(refusal(stakes, prices.fold(cheapest, Price::min)));
    }
    // The prices so far are those of spot wherever there is any. Without spot the launch has to fail rather than
    // take what costs more.
    if !stays_spot
        && admits(&claim, SPOT)
        && admits(&claim, ON_DEMAND)
        && claim.instance_types.iter().any(|one| has_spot(one, &claim, labels))
    {
        insist_on_spot(&mut claim, labels);
        // Types that are not sold as spot are no alternatives any more, and must not count as such.
        keep_up_to(&mut claim, at_most, labels)?;
    }
    let mut promise = Promise { at_most };
    if candidates.len() > 1 {
        promise.at_most = at_most.min(below_same_type(candidates, &claim));
        keep_up_to(&mut claim, promise.at_most, labels)?;
        if claim.instance_types.is_empty() {
            return Err(Blocked::SameType);
        }
    } else if stays_spot {
        let removed = |claim: &PlannedClaim| removed(planned, claim, stakes, labels);
        keep_cheapest(&mut claim, removed)?;
    }
    let least = if stays_spot && candidates.len() == 1 { SPOT_FLEXIBILITY } else { 1 };
    claim.price = cheapest_offer(&claim, labels);
    Ok(Purchase { claim, promise, least })
}

impl Purchase {
    /// Promises to pay no more than this, and asks for nothing else where that leaves enough to choose from.
    ///
    /// `Balanced` weighs a move by the cheapest offer, and not every provider buys that one: among types of which any
    /// would do it may take one that breaks the promise, again and again.
    pub(crate) fn keep_to(&mut self, at_most: Price, labels: &KnownLabels) {
        if at_most >= self.promise.at_most {
            return;
        }
        self.promise.at_most = at_most;
        let mut sure = self.claim.clone();
        let kept = keep_up_to(&mut sure, at_most, labels);
        if kept.is_ok() && sure.instance_types.len() >= self.least {
            sure.price = cheapest_offer(&sure, labels);
            self.claim = sure;
        }
    }
}

/// The claim without the types that cost more than this even at their cheapest, and those: most of a cloud's types are far too
/// large, and need not be looked at offer by offer.
fn split<'a>(
    planned: &'a PlannedClaim,
    at_most: Price,
    labels: &KnownLabels,
) -> (PlannedClaim, &'a [Arc<InstanceType>]) {
    let cheapest = |one: &Arc<InstanceType>| one.cheapest_price(&planned.requirements, labels);
    // They are in the order of that price.
    let within = planned.instance_types.partition_point(|one| cheapest(one) <= at_most);
    let (within, dearer) = planned.instance_types.split_at(within);
    let claim = PlannedClaim {
        instance_types: within.to_vec(),
        pool: Arc::clone(&planned.pool),
        pods: planned.pods.clone(),
        virtual_pods: planned.virtual_pods.clone(),
        requirements: planned.requirements.clone(),
        requests: planned.requests.clone(),
        price: planned.price,
        min_values_relaxed: planned.min_values_relaxed,
    };
    (claim, dearer)
}

fn cheapest_offer(claim: &PlannedClaim, labels: &KnownLabels) -> Price {
    let offers = claim.instance_types.iter();
    let prices = offers.map(|one| one.cheapest_price(&claim.requirements, labels));
    prices.min().unwrap_or(Price::MAX)
}

fn refusal(stakes: &Stakes, cheapest: Price) -> Blocked {
    let cheapest_known = (cheapest < Price::MAX).then_some(cheapest);
    stakes
        .allow_replacement(cheapest)
        .err()
        .unwrap_or(Blocked::NotCheaper { price: stakes.price(), cheapest: cheapest_known })
}

fn admits(claim: &PlannedClaim, capacity_type: &str) -> bool {
    claim.requirements.get(CAPACITY_TYPE).is_none_or(|wanted| wanted.has(capacity_type))
}

fn has_spot(instance_type: &InstanceType, claim: &PlannedClaim, labels: &KnownLabels) -> bool {
    instance_type.available_offerings().any(|offering| {
        offering.capacity_type() == Some(SPOT) && offering.serves(&claim.requirements, labels)
    })
}

fn insist_on_spot(claim: &mut PlannedClaim, labels: &KnownLabels) {
    claim.requirements.add(Requirement::is_in(CAPACITY_TYPE, [SPOT]));
    order_by_price(&mut claim.instance_types, &claim.requirements, labels);
}

/// Keeps the types that cost no more than this, however badly the provider chooses among their offerings, and says
/// what the cheapest of all would cost so.
fn keep_up_to(
    claim: &mut PlannedClaim,
    at_most: Price,
    labels: &KnownLabels,
) -> Result<Price, Blocked> {
    let mut cheapest = Price::MAX;
    claim.instance_types.retain(|instance_type| {
        let price = instance_type.worst_launch_price(&claim.requirements, labels);
        cheapest = cheapest.min(price);
        price <= at_most
    });
    satisfies_min_values(&claim.instance_types, &claim.requirements)
        .map_err(|short| Blocked::MinValues { detail: short.to_string() })?;
    Ok(cheapest)
}

/// The highest price below that of the nodes whose very type could come back.
///
/// Merging nodes into one of their own type is a detour: to keep that one and remove the others moves fewer pods.
fn below_same_type(candidates: &[&Candidate], claim: &PlannedClaim) -> Price {
    let mut sources: BTreeMap<&str, Price> = BTreeMap::new();
    for candidate in candidates {
        let Some(instance_type) = &candidate.instance_type else { continue };
        let known = if candidate.price > Price::ZERO { candidate.price } else { Price::MAX };
        let price = sources.entry(instance_type.name()).or_insert(Price::MAX);
        *price = known.min(*price);
    }
    let returning = claim.instance_types.iter().filter_map(|one| sources.get(one.name()));
    // No replacement is cheaper than an unknown price.
    let undercut = |price: &Price| if *price == Price::MAX { Price::ZERO } else { *price };
    returning.map(undercut).min().map_or(Price::MAX, |price| price - Price::from_ten_billionths(1))
}

/// How many of the types that are cheaper each control left out.
fn removed(
    planned: &PlannedClaim,
    claim: &PlannedClaim,
    stakes: &Stakes,
    labels: &KnownLabels,
) -> Removed {
    let mut removed = Removed::default();
    if !stakes.controls_bind() {
        return removed;
    }
    // They are in the order of their cheapest price, and what is not cheaper was not left out by a control.
    let cheapest = |one: &Arc<InstanceType>| one.cheapest_price(&planned.requirements, labels);
    let cheaper = planned.instance_types.partition_point(|one| cheapest(one) < stakes.price());
    for instance_type in &planned.instance_types[..cheaper] {
        let price = instance_type.worst_launch_price(&claim.requirements, labels);
        match stakes.allow_replacement(price) {
            Err(Blocked::PriceFactor { .. }) => removed.by_price_factor += 1,
            Err(Blocked::SavingsThreshold { .. }) => removed.by_savings_threshold += 1,
            _ => {}
        }
    }
    removed
}

fn keep_cheapest(
    claim: &mut PlannedClaim,
    removed: impl Fn(&PlannedClaim) -> Removed,
) -> Result<(), Blocked> {
    let have = claim.instance_types.len();
    if have < SPOT_FLEXIBILITY {
        let removed = removed(claim);
        return Err(Blocked::SpotFlexibility { have, need: SPOT_FLEXIBILITY, removed });
    }
    let needed = satisfies_min_values(&claim.instance_types, &claim.requirements)
        .map_err(|short| Blocked::MinValues { detail: short.to_string() })?;
    claim.instance_types.truncate(needed.max(SPOT_FLEXIBILITY));
    Ok(())
}
