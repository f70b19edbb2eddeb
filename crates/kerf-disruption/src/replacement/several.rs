//! Several replacements for one move: each has its share of what all of them may cost.

use kerf_model::{KnownLabels, Price};
use kerf_scheduler::PlannedClaim;

use super::{refusal, within};
use crate::{Blocked, Candidate, Promise, controls::Stakes};

/// Replacements that are worth it together, whichever of its types the provider picks for each.
#[derive(Clone, Debug)]
pub(crate) struct Purchases {
    /// The price of each is that of its cheapest offer.
    pub(crate) claims: Vec<PlannedClaim>,
    pub(crate) promise: Promise,
}

/// A node more has to save one cent per hour, as in any packing.
const PER_NODE: Price = Price::from_ten_billionths(100_000_000);

/// What the nodes that come have to save because they are more than go.
pub(crate) fn charge(go: usize, come: usize) -> Price {
    PER_NODE.times(i64::try_from(come.saturating_sub(go)).unwrap_or(i64::MAX), 1)
}

impl Purchases {
    pub(crate) fn price(&self) -> Price {
        self.claims.iter().map(|claim| claim.price).sum()
    }
}

/// Narrows the claims that would take the candidates' pods down to what costs no more than this together.
pub(crate) fn purchase_several(
    candidates: &[&Candidate],
    stakes: &Stakes,
    planned: &[PlannedClaim],
    at_most: Price,
    labels: &KnownLabels,
    spot_to_spot: bool,
) -> Result<Purchases, Blocked> {
    let least: Vec<Price> = planned.iter().map(|claim| least_to_expect(claim, labels)).collect();
    let Some(shares) = shares(&least, at_most) else {
        return Err(refusal(stakes, least.iter().fold(Price::ZERO, |sum, one| plus(sum, *one))));
    };
    let mut purchases = Purchases { claims: Vec::new(), promise: Promise { at_most: Price::ZERO } };
    for (claim, share) in planned.iter().zip(shares) {
        let one = within(candidates, stakes, claim, share, labels, spot_to_spot)?;
        purchases.promise.at_most += one.promise.at_most;
        purchases.claims.push(one.claim);
    }
    Ok(purchases)
}

/// What the claim costs when its most harmless type is bought as badly as it can be.
fn least_to_expect(claim: &PlannedClaim, labels: &KnownLabels) -> Price {
    let types = claim.instance_types.iter();
    let prices = types.map(|one| one.worst_launch_price(&claim.requirements, labels));
    prices.min().unwrap_or(Price::MAX)
}

/// Divides what may be paid in proportion to what has to be. `None`: it is not enough.
fn shares(least: &[Price], at_most: Price) -> Option<Vec<Price>> {
    let whole = least.iter().fold(Price::ZERO, |sum, one| plus(sum, *one));
    if whole > at_most {
        return None;
    }
    let share = |one: &Price| match whole.ten_billionths() {
        ..=0 => *one,
        // Rounded down, so that they never add up to more.
        whole => at_most.times(one.ten_billionths(), whole),
    };
    Some(least.iter().map(share).collect())
}

/// What cannot be bought stays so, however much is added.
fn plus(sum: Price, one: Price) -> Price {
    Price::from_ten_billionths(sum.ten_billionths().saturating_add(one.ten_billionths()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_paid_is_divided() {
        let price = |text: &str| -> Price { text.parse().unwrap() };
        let check = |least: &[&str], at_most: &str, expect: Option<&[&str]>| {
            let least: Vec<_> = least.iter().map(|text| price(text)).collect();
            let expect = expect.map(|all| all.iter().map(|text| price(text)).collect::<Vec<_>>());
            assert_eq!(shares(&least, price(at_most)), expect, "{least:?} {at_most}");
        };
        check(&["0.1", "0.3"], "0.4", Some(&["0.1", "0.3"]));
        check(&["0.1", "0.3"], "0.8", Some(&["0.2", "0.6"]));
        check(&["0.1", "0.3"], "0.3999999999", None);
        check(&["0.1", "0.1", "0.1"], "0.4", Some(&["0.1333333333"; 3]));
        check(&["0", "0"], "0.4", Some(&["0", "0"]));
        check(&["0", "0.1"], "0.4", Some(&["0", "0.4"]));
        assert_eq!(shares(&[Price::MAX, Price::MAX], price("1")), None);
    }
}
