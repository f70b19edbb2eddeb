//! The promise of a consolidation: its replacement may cost no more than the price at which it was approved.

use kerf_model::Price;

use crate::{Blocked, Promise};

impl Promise {
    /// Whether the move is still worth it now that its replacements have launched, at these prices.
    ///
    /// An unknown price breaks no promise: the node is there, and taking it back on a guess would be churn of
    /// our own making.
    pub fn check(self, prices: impl IntoIterator<Item = Option<Price>>) -> Result<(), Blocked> {
        let known = |price: Option<Price>| price.filter(|price| *price < Price::MAX);
        match prices.into_iter().map(known).sum::<Option<Price>>() {
            Some(price) if price > self.at_most => {
                Err(Blocked::PromisedSavingsLost { price, at_most: self.at_most })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_that_cost_more_than_promised_are_named() {
        let promise = Promise { at_most: "0.4".parse().unwrap() };
        let check = |prices: &[&str], lost: Option<&str>| {
            let prices = prices.iter().map(|text| match *text {
                "unknown" => None,
                "not for sale" => Some(Price::MAX),
                text => Some(text.parse().unwrap()),
            });
            let expect = lost.map_or(Ok(()), |lost| {
                let (price, at_most) = (lost.parse().unwrap(), promise.at_most);
                Err(Blocked::PromisedSavingsLost { price, at_most })
            });
            assert_eq!(promise.check(prices), expect, "{lost:?}");
        };
        check(&["0.3"], None);
        check(&["0.4"], None);
        check(&["0.4000000001"], Some("0.4000000001"));
        check(&["0.3", "0.2"], Some("0.5"));
        check(&["0.3", "0.1"], None);
        check(&["unknown"], None);
        check(&["0.5", "unknown"], None);
        check(&["not for sale"], None);
        check(&[], None);
    }
}
