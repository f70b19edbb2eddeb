//! Small problems whose cheapest plan is found by trying all.

use super::*;

fn sort(requests: Amounts, count: u32) -> Sort {
    Sort { requests, count, ..Sort::default() }
}

fn offer(room: Amounts, price: f64) -> Offer {
    Offer { room, price, zone: 0 }
}

/// The price of the cheapest plan: the first pod that is left goes on some machine, with every set of others that fits.
fn cheapest(problem: &Problem, left: &[u32]) -> f64 {
    let Some(first) = left.iter().position(|count| *count > 0) else { return 0.0 };
    let mut best = f64::INFINITY;
    for offer in &problem.offers {
        let mut taken = vec![0; left.len()];
        fillings(problem, offer, left, 0, &mut taken, &mut |taken| {
            if taken[first] > 0 {
                let rest: Vec<_> =
                    left.iter().zip(taken).map(|(left, taken)| left - taken).collect();
                best = best.min(offer.price + cheapest(problem, &rest));
            }
        });
    }
    best
}

fn fillings(
    problem: &Problem,
    offer: &Offer,
    left: &[u32],
    at: usize,
    taken: &mut Vec<u32>,
    seen: &mut impl FnMut(&[u32]),
) {
    if at == left.len() {
        return seen(taken);
    }
    let sort = &problem.sorts[at];
    let most = left[at].min(sort.most_per_machine.unwrap_or(u32::MAX));
    let here = sort.zone.is_none_or(|zone| zone == offer.zone);
    for count in 0..=if here { most } else { 0 } {
        taken[at] = count;
        let used = |lane: usize| -> u64 {
            let each = problem.sorts.iter().zip(taken.iter());
            each.map(|(sort, count)| sort.requests[lane] * u64::from(*count)).sum()
        };
        if (0..3).all(|lane| used(lane) <= offer.room[lane]) {
            fillings(problem, offer, left, at + 1, taken, seen);
        }
    }
    taken[at] = 0;
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn no_plan_is_cheaper_than_the_bounds() {
    let (mut tight, mut between) = (0, 0);
    for seed in 0..300 {
        let mut state = seed;
        let mut draw = |below| random(&mut state, below);
        let sorts = (0..2 + draw(2))
            .map(|_| Sort {
                requests: [500 + 100 * draw(40), 500 + 100 * draw(80), 1],
                count: u32::try_from(1 + draw(3)).unwrap(),
                most_per_machine: (draw(4) == 0).then(|| u32::try_from(1 + draw(2)).unwrap()),
                zone: (draw(4) == 0).then(|| usize::try_from(draw(2)).unwrap()),
            })
            .collect();
        let mut offers: Vec<_> = (0..2 + draw(3))
            .map(|_| {
                let cores = 1 + draw(8);
                let room = [1000 * cores, 1000 * cores * (1 + draw(4)), 2 + draw(8)];
                let price = (room[0] + room[1] / 4) as f64 * (80 + draw(40)) as f64 / 1e5;
                Offer { room, price, zone: usize::try_from(draw(2)).unwrap() }
            })
            .collect();
        offers.extend([0, 1].map(|zone| Offer { zone, ..offer([9000, 9000, 9], 14.0) }));
        let problem = Problem { sorts, offers };
        let counts: Vec<_> = problem.sorts.iter().map(|sort| sort.count).collect();
        let optimum = cheapest(&problem, &counts);
        let fractions = problem.fractions().unwrap();
        let patterns = problem.patterns(200).unwrap();
        assert!(fractions <= optimum + 1e-6, "seed {seed}: {fractions} above {optimum}");
        assert!(patterns <= optimum + 1e-6, "seed {seed}: {patterns} above {optimum}");
        assert!(
            patterns >= fractions * 0.999
                || problem.sorts.iter().any(|it| it.most_per_machine.is_some())
        );
        tight += usize::from(patterns > 0.98 * optimum);
        between += usize::from(patterns > 1.02 * fractions);
    }
    // A bound of nothing would pass as well.
    assert!(tight > 100 && between > 200, "{tight} tight, {between} better than fractions");
}

#[test]
fn no_rounds_are_needed_for_a_bound() {
    let sorts = vec![sort([3000, 4000, 1], 16), sort([1000, 12_000, 1], 16)];
    let offers = vec![offer([8000, 32_000, 50], 1.0), offer([16_000, 64_000, 50], 2.0)];
    let problem = Problem { sorts, offers };
    // Two of each fill a machine of the small kind.
    for rounds in [0, 1, 5, 100] {
        let bound = problem.patterns(rounds).unwrap();
        assert!(bound <= 8.0 + 1e-9 && bound > 7.9, "{rounds} rounds: {bound}");
    }
}

#[test]
fn whole_pods_cost_more_than_fractions() {
    // One fits, and a third of the machine is left over.
    let offers = vec![offer([6000, 6000, 10], 1.0)];
    let problem = Problem { sorts: vec![sort([4000, 4000, 1], 9)], offers };
    assert!((problem.fractions().unwrap() - 6.0).abs() < 1e-9);
    let bound = problem.bound(10).unwrap();
    assert_eq!(bound.kind, Kind::Patterns);
    assert!((bound.price - 9.0).abs() < 1e-6, "{bound:?}");
}

#[test]
fn apart_and_in_zones_costs_more() {
    let cheap_and_dear = || {
        let one = offer([8000, 8000, 10], 1.0);
        vec![one.clone(), Offer { price: 3.0, zone: 1, ..one }]
    };
    let check = |sorts: Vec<Sort>, expect: f64| {
        let problem = Problem { sorts, offers: cheap_and_dear() };
        let bound = problem.patterns(100).unwrap();
        assert!((bound - expect).abs() < 1e-3, "{bound}, not {expect}: {:?}", problem.sorts);
    };
    let plain = sort([1000, 1000, 1], 8);
    check(vec![plain.clone()], 1.0);
    check(vec![Sort { zone: Some(1), ..plain.clone() }], 3.0);
    check(vec![Sort { most_per_machine: Some(1), ..plain.clone() }], 8.0);
    check(vec![Sort { most_per_machine: Some(2), zone: Some(1), ..plain }], 12.0);
}

#[test]
fn a_pod_that_fits_no_machine_has_no_bound() {
    let problem =
        Problem { sorts: vec![sort([9000, 1, 1], 1)], offers: vec![offer([8000, 8000, 9], 1.0)] };
    assert_eq!(problem.bound(10), None);
}
