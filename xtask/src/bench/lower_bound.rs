//! What the pods of upstream's benchmark must cost at least.

use bench_bound::{Offer, fractions};

use super::problem::{Problem, catalogue};

/// The price of the cheapest mix of machines, cut to any fraction, that has the resources of all pods together and a
/// machine for each pod that must be alone among its kind. No plan can be cheaper, and few can be as cheap: pods and
/// machines are whole, and other constraints cost more.
pub(crate) fn lower_bound(problem: &Problem) -> Option<f64> {
    let pods = || problem.pods.iter().chain(&problem.virtual_pods);
    let wanted = [
        pods().map(|pod| f64::from(pod.millicores)).sum(),
        pods().map(|pod| f64::from(pod.mebibytes)).sum(),
        pods().count() as f64,
    ];
    let offers: Vec<_> = catalogue()
        .map(|machine| Offer { room: machine.allocatable(), price: machine.price(), zone: 0 })
        .collect();
    fractions(&offers, wanted, problem.hosts() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pays_the_overhead_of_each_machine_that_anti_affinity_forces() {
        // 663.35 cores in all, on at least 200 machines that keep a tenth of a core each.
        let problem = Problem::diverse(1000);
        let bound = lower_bound(&problem).expect("a bound");
        let per_core = catalogue().next().map_or(0.0, |machine| machine.price());
        assert!((bound - (663.35 + 200.0 * 0.1) * per_core).abs() < 1e-6, "{bound}");
    }

    #[test]
    fn buys_fractions_of_the_machine_with_the_least_overhead() {
        let problem = Problem::generic(100);
        let Some(largest) = catalogue().last() else { panic!("no catalogue") };
        let [millicores, mebibytes, pods] = largest.allocatable().map(|amount| amount as f64);
        let sum = |amount: fn(&crate::bench::problem::Pending) -> u32| {
            problem.pods.iter().map(|pod| f64::from(amount(pod))).sum::<f64>()
        };
        let fraction = (sum(|pod| pod.millicores) / millicores)
            .max(sum(|pod| pod.mebibytes) / mebibytes)
            .max(100.0 / pods);
        let bound = lower_bound(&problem).expect("a bound");
        assert!((bound - fraction * largest.price()).abs() < 1e-6, "{bound}");
    }
}
