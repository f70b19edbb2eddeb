//! What the pods must cost at least.

use microlp::{ComparisonOp, OptimizationDirection, Problem as LinearProgram, SolveOutcome};

use super::problem::{Problem, catalogue};

/// The price of the cheapest mix of machines, cut to any fraction, that has the resources of all pods together.
/// No plan can be cheaper, and few can be as cheap: pods and machines are whole, and constraints cost more.
pub(crate) fn lower_bound(problem: &Problem) -> Option<f64> {
    let pods = || problem.pods.iter();
    let wanted = [
        pods().map(|pod| f64::from(pod.millicores)).sum(),
        pods().map(|pod| f64::from(pod.mebibytes)).sum(),
        pods().count() as f64,
    ];
    let mut program = LinearProgram::new(OptimizationDirection::Minimize);
    let machines: Vec<_> = catalogue()
        .map(|machine| {
            let number = program.add_var(machine.price(), (0.0, f64::INFINITY));
            (number, machine.allocatable())
        })
        .collect();
    for (resource, amount) in wanted.into_iter().enumerate() {
        let given = machines.iter().map(|(number, allocatable)| (*number, allocatable[resource]));
        program.add_constraint(given.collect::<Vec<_>>(), ComparisonOp::Ge, amount);
    }
    match program.solve().ok()? {
        SolveOutcome::Solution(solution) => Some(solution.objective()),
        SolveOutcome::Interrupted(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buys_fractions_of_the_machine_with_the_least_overhead() {
        let problem = Problem::generic(100);
        let Some(largest) = catalogue().last() else { panic!("no catalogue") };
        let [millicores, mebibytes, pods] = largest.allocatable();
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
