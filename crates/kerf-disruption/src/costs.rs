//! What a node costs, and what it costs to disturb it.

use jiff::Timestamp;
use kerf_model::{
    InstanceType, Price,
    estate::{Cost, Standing},
};

use crate::controls::Lifetime;

/// One for the node, and what each pod that has to move costs, as far as it is not negative.
pub(crate) fn rescheduling_cost(standing: &Standing) -> Cost {
    let tenants = standing.tenants.iter().filter(|tenant| tenant.reschedulable);
    tenants.fold(Cost::ONE, |sum, tenant| sum.plus(tenant.eviction_cost.at_least_zero()))
}

/// The same of a node that nobody may touch now: what is already leaving it and what cannot leave count as well.
pub(crate) fn standing_cost(standing: &Standing) -> Cost {
    let tenants = standing.tenants.iter().filter(|tenant| tenant.counted);
    tenants.fold(Cost::ONE, |sum, tenant| sum.plus(tenant.eviction_cost.at_least_zero()))
}

/// What the pods cost together, less as the node nears its end.
pub(crate) fn disruption_cost(standing: &Standing, now: Timestamp) -> Cost {
    let tenants = standing.tenants.iter().filter(|tenant| tenant.reschedulable);
    let sum = tenants.fold(Cost(0), |sum, tenant| sum.plus(tenant.eviction_cost));
    Lifetime::remaining(standing, now).of(sum.at_least_zero())
}

/// What a running node costs: whether the offering can still be bought does not matter. Zero when nobody knows.
pub(crate) fn price(
    instance_type: Option<&InstanceType>,
    zone: Option<&str>,
    capacity_type: Option<&str>,
) -> Price {
    let known = || instance_type?.offering_price(zone?, capacity_type?);
    known().filter(|price| *price < Price::MAX).unwrap_or(Price::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::estate::Tenant;
    use std::time::Duration;

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T{time}Z").parse().unwrap()
    }

    fn standing(costs: &[i64], expire_after: Option<Duration>) -> Standing {
        let tenant = |cost: &i64| Tenant {
            reschedulable: true,
            eviction_cost: Cost(*cost),
            ..Tenant::default()
        };
        let mut tenants: Vec<_> = costs.iter().map(tenant).collect();
        tenants.push(Tenant { eviction_cost: Cost::ONE, ..Tenant::default() });
        Standing { tenants, expire_after, created: Some(at("00:00:00")), ..Standing::default() }
    }

    #[test]
    fn costs_add_up() {
        let one = Cost::ONE.0;
        let hour = Some(Duration::from_hours(1));
        let cases = [
            // pods, lifetime, now, rescheduling, disruption
            (vec![], None, "12:00:00", one, 0),
            (vec![one, one], None, "12:00:00", 3 * one, 2 * one),
            (vec![one, -one / 2], None, "12:00:00", 2 * one, one / 2),
            (vec![-one, -one], None, "12:00:00", one, 0),
            (vec![one, one], hour, "00:00:00", 3 * one, 2 * one),
            (vec![one, one], hour, "00:30:00", 3 * one, one),
            (vec![one, one], hour, "01:30:00", 3 * one, 0),
            (vec![one], Some(Duration::ZERO), "00:00:00", 2 * one, 0),
        ];
        for (pods, lifetime, now, rescheduling, disruption) in cases {
            let standing = standing(&pods, lifetime);
            assert_eq!(rescheduling_cost(&standing), Cost(rescheduling), "{pods:?}");
            let got = disruption_cost(&standing, at(now));
            assert_eq!(got, Cost(disruption), "{pods:?} {lifetime:?} {now}");
        }
    }
}
