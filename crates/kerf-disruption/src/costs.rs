//! The price of a node, and its disruption cost.

use jiff::Timestamp;
use kerf_model::{
    InstanceType, Node, Price,
    disruption::{Cost, PodDisruption},
};

use crate::controls::Lifetime;

/// One for the node, and what each pod that has to move costs, as far as it is not negative.
pub(crate) fn rescheduling_cost(node: &Node) -> Cost {
    of_pods(node, |pod| pod.reschedulable)
        .fold(Cost::ONE, |sum, pod| sum.plus(pod.eviction_cost.at_least_zero()))
}

/// The same of a node that is no candidate now: what is already leaving it and what cannot leave count as well.
pub(crate) fn whole_cost(node: &Node) -> Cost {
    of_pods(node, |pod| pod.counted)
        .fold(Cost::ONE, |sum, pod| sum.plus(pod.eviction_cost.at_least_zero()))
}

/// What the pods cost together, less as the node nears its end.
pub(crate) fn disruption_cost(node: &Node, now: Timestamp) -> Cost {
    let moving = of_pods(node, |pod| pod.reschedulable);
    let sum = moving.fold(Cost(0), |sum, pod| sum.plus(pod.eviction_cost));
    Lifetime::remaining(node, now).of(sum.at_least_zero())
}

fn of_pods(node: &Node, which: fn(&PodDisruption) -> bool) -> impl Iterator<Item = &PodDisruption> {
    node.pods.iter().map(|pod| &pod.disruption).filter(move |pod| which(pod))
}

/// What a running node costs: whether the offering can still be bought does not matter. Zero if unknown.
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
    use kerf_model::{Pod, disruption::NodeDisruption};
    use std::sync::Arc;
    use std::time::Duration;

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T{time}Z").parse().unwrap()
    }

    fn node(costs: &[i64], expire_after: Option<Duration>) -> Node {
        let pod = |reschedulable, cost| {
            let eviction_cost = Cost(cost);
            let disruption =
                PodDisruption { reschedulable, eviction_cost, ..PodDisruption::default() };
            Arc::new(Pod { disruption, ..Pod::default() })
        };
        let daemon = pod(false, Cost::ONE.0);
        let created = Some(at("00:00:00"));
        Node {
            pods: costs.iter().map(|cost| pod(true, *cost)).chain([daemon]).collect(),
            disruption: NodeDisruption { expire_after, created, ..NodeDisruption::default() },
            ..Node::default()
        }
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
            let node = node(&pods, lifetime);
            assert_eq!(rescheduling_cost(&node), Cost(rescheduling), "{pods:?}");
            let got = disruption_cost(&node, at(now));
            assert_eq!(got, Cost(disruption), "{pods:?} {lifetime:?} {now}");
        }
    }
}
