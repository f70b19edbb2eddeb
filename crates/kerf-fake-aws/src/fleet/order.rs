//! In which order the pools of a fleet are tried.

use std::cmp::Reverse;
use std::sync::Arc;

use kerf_aws_wire::ec2;
use kerf_model::Price;

use super::Capacity;
use crate::refused::Refused;
use crate::templates::Template;

/// An override, with what is known of its pool.
#[derive(Clone, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) template: Arc<Template>,
    pub(super) wanted: &'a ec2::FleetLaunchTemplateOverridesRequest,
    /// `None` for a type that there is not; it comes last.
    pub(super) price: Option<Price>,
    pub(super) free: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    LowestPrice,
    Prioritized,
    PriceCapacityOptimized,
    CapacityOptimized,
    CapacityOptimizedPrioritized,
}

impl Strategy {
    pub(super) fn of(
        request: &ec2::CreateFleetRequest,
        capacity: Capacity,
    ) -> Result<Self, Refused> {
        let spot = request.spot_options.as_ref();
        let on_demand = request.on_demand_options.as_ref();
        let named = match capacity {
            Capacity::Spot => spot.and_then(|options| options.allocation_strategy.as_deref()),
            _ => on_demand.and_then(|options| options.allocation_strategy.as_deref()),
        };
        match (capacity, named.unwrap_or("lowest-price")) {
            (_, "lowest-price") => Ok(Self::LowestPrice),
            (Capacity::Spot, "price-capacity-optimized") => Ok(Self::PriceCapacityOptimized),
            (Capacity::Spot, "capacity-optimized") => Ok(Self::CapacityOptimized),
            (Capacity::Spot, "capacity-optimized-prioritized") => {
                Ok(Self::CapacityOptimizedPrioritized)
            }
            (Capacity::OnDemand | Capacity::Block | Capacity::Reserved, "prioritized") => {
                Ok(Self::Prioritized)
            }
            (_, other) => {
                Err(Refused::invalid_value(format!("AllocationStrategy '{other}' is not valid")))
            }
        }
    }

    /// The first is tried first. Equal ones keep the order of the request.
    pub(super) fn sort(self, candidates: &mut [Candidate<'_>]) {
        // How EC2 weighs depth against price it does not say. Here pools with at least half of what the deepest has are deep.
        let deepest = candidates.iter().map(|one| one.free).max().unwrap_or(0);
        let is_shallow = |one: &Candidate<'_>| one.free < deepest.div_ceil(2);
        let price = |one: &Candidate<'_>| (one.price.is_none(), one.price);
        // A lower number is a higher priority, and none is the lowest.
        let priority = |one: &Candidate<'_>| {
            let priority = one.wanted.priority.unwrap_or(f64::MAX);
            // Whole billionths: floats have no total order.
            #[expect(clippy::cast_possible_truncation, reason = "float casts saturate")]
            let comparable = (priority * 1e9) as i64;
            comparable
        };
        match self {
            Self::LowestPrice => candidates.sort_by_key(price),
            Self::Prioritized => candidates.sort_by_key(priority),
            Self::PriceCapacityOptimized => {
                candidates.sort_by_key(|one| (is_shallow(one), price(one)));
            }
            Self::CapacityOptimized => candidates.sort_by_key(|one| Reverse(one.free)),
            Self::CapacityOptimizedPrioritized => {
                candidates.sort_by_key(|one| (is_shallow(one), priority(one)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_has_its_order() {
        let template = Arc::new(Template {
            id: String::new(),
            name: String::new(),
            created: jiff::Timestamp::UNIX_EPOCH,
            tags: crate::filters::Tags::new(),
            data: Arc::default(),
        });
        // Name, price, free, priority.
        let rows = [
            ("cheap", Some("0.1"), 3, Some(4.0)),
            ("fair", Some("0.2"), 60, Some(3.0)),
            ("deep", Some("0.3"), 100, Some(2.5)),
            ("dear", Some("0.4"), 10, Some(1.0)),
            ("unknown", None, 100, None),
        ];
        let overrides =
            rows.map(|(name, _, _, priority)| ec2::FleetLaunchTemplateOverridesRequest {
                instance_type: Some(name.to_owned()),
                priority,
                ..Default::default()
            });
        for (strategy, expect) in [
            (Strategy::LowestPrice, "cheap fair deep dear unknown"),
            (Strategy::Prioritized, "dear deep fair cheap unknown"),
            (Strategy::PriceCapacityOptimized, "fair deep unknown cheap dear"),
            (Strategy::CapacityOptimized, "deep unknown fair dear cheap"),
            (Strategy::CapacityOptimizedPrioritized, "deep fair unknown dear cheap"),
        ] {
            let mut candidates: Vec<_> = rows
                .iter()
                .zip(&overrides)
                .map(|((_, price, free, _), wanted)| Candidate {
                    template: Arc::clone(&template),
                    wanted,
                    price: price.map(|price| price.parse().unwrap()),
                    free: *free,
                })
                .collect();
            strategy.sort(&mut candidates);
            let names: Vec<_> = candidates
                .iter()
                .filter_map(|candidate| candidate.wanted.instance_type.as_deref())
                .collect();
            assert_eq!(names.join(" "), expect, "{strategy:?}");
        }
    }
}
