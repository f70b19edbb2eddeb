//! Keeping a promise: what was bought may cost no more than the move was approved for.

use std::sync::Arc;

use kerf_model::{InstanceType, Price};

use crate::{Blocked, Promise};

/// What a provider bought, as the claim's labels tell.
#[derive(Clone, Copy, Debug)]
pub struct Launched<'a> {
    pub instance_type: &'a str,
    pub zone: &'a str,
    pub capacity_type: &'a str,
}

impl Promise {
    /// Whether the move is still worth it now that its replacement has a price.
    ///
    /// A price that nobody knows is no reason to undo anything.
    pub fn is_kept_by(
        self,
        launched: Launched<'_>,
        catalogue: &[Arc<InstanceType>],
    ) -> Result<(), Blocked> {
        let price = catalogue
            .iter()
            .find(|instance_type| instance_type.name() == launched.instance_type)
            .and_then(|one| one.offering_price(launched.zone, launched.capacity_type))
            .filter(|price| *price < Price::MAX);
        match price {
            Some(price) if price > self.at_most => {
                Err(Blocked::PromisedSavingsLost { price, at_most: self.at_most })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kerf_model::{
        Offering, Overhead, Requirement, Requirements, Resources,
        labels::{CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE},
    };

    use super::*;

    fn price(text: &str) -> Price {
        text.parse().unwrap()
    }

    #[test]
    fn a_replacement_that_costs_more_than_promised_is_undone() {
        let offering = |capacity_type: &str, zone: &str, value: &str| Offering {
            requirements: Requirements::new([
                Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
                Requirement::is_in(ZONE, [zone]),
            ]),
            price: price(value),
            // What has just been bought may well be sold out.
            available: false,
            ..Offering::default()
        };
        let catalogue = [Arc::new(InstanceType::new(
            "m",
            Requirements::default(),
            vec![
                offering(SPOT, "a", "0.3"),
                offering(SPOT, "b", "0.5"),
                offering(ON_DEMAND, "a", "1"),
            ],
            Resources::new(),
            Overhead::default(),
        ))];
        let promise = Promise { at_most: price("0.4") };
        for (instance_type, zone, capacity_type, lost) in [
            ("m", "a", SPOT, None),
            ("m", "b", SPOT, Some("0.5")),
            ("m", "a", ON_DEMAND, Some("1")),
            ("m", "b", ON_DEMAND, None),
            ("n", "a", SPOT, None),
        ] {
            let launched = Launched { instance_type, zone, capacity_type };
            let expect = lost.map_or(Ok(()), |lost| {
                let (price, at_most) = (price(lost), promise.at_most);
                Err(Blocked::PromisedSavingsLost { price, at_most })
            });
            assert_eq!(promise.is_kept_by(launched, &catalogue), expect, "{launched:?}");
        }
        let exact = Promise { at_most: price("0.3") };
        let launched = Launched { instance_type: "m", zone: "a", capacity_type: SPOT };
        assert_eq!(exact.is_kept_by(launched, &catalogue), Ok(()));
    }
}
