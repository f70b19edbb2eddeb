//! A cheap set of machines for many pods, planned machine by machine.
//!
//! Placing pods one by one looks at prices when a claim is full. Here machines are looked at first: what each offer would hold
//! for its price. The result is a proposal and nothing more. The engine places every pod by its own checks
//! (`engine/guide.rs`), and a plan that turns out dearer is thrown away. So this may leave out what is hard to say in numbers.
//!
//! The work is counted, not timed, and ties break by position: the same problem has the same answer everywhere.

mod fill;
mod search;
mod values;

/// What is to be packed. Amounts are in units of lanes; prices in dollars per hour.
#[derive(Debug, Default)]
pub(crate) struct Problem {
    pub(crate) sorts: Vec<Sort>,
    pub(crate) realms: Vec<Realm>,
    /// How many groups there are that sorts are limited by.
    pub(crate) groups: usize,
}

/// Pods that are alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sort {
    pub(crate) requests: Vec<f64>,
    pub(crate) count: u32,
    /// Where it may go: positions of realms. The first is its own, which asks for nothing that it does not.
    pub(crate) realms: Vec<usize>,
    /// It goes to machines that have at most so many pods of the group.
    pub(crate) limits: Vec<(usize, u32)>,
    /// The groups that it counts in.
    pub(crate) counts_in: Vec<usize>,
}

/// Machines of one pool under the same requirements, such as a zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Realm {
    /// None of them has as much of everything for less.
    pub(crate) offers: Vec<Offer>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    pub(crate) room: Vec<f64>,
    pub(crate) price: f64,
}

/// A machine with its pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Packed {
    pub(crate) realm: usize,
    pub(crate) offer: usize,
    /// Sorts with how many of each.
    pub(crate) pods: Vec<(usize, u32)>,
}

/// A machine costs this much more than its price, or a thousand tiny ones would be as good as ten. It is what starting one is
/// worth, in dollars per hour.
pub(crate) const PER_MACHINE: f64 = 0.01;

impl Problem {
    /// Machines for all pods, or for as many as can be done with a multiple of the budget. Nothing where some sort fits no offer.
    pub(crate) fn pack(&self, budget: u64) -> Option<Vec<Packed>> {
        let values = self.values()?;
        // Few resources are asked for as a rule: cores, memory and the number of pods.
        match self.sorts.first().map_or(0, |sort| sort.requests.len()) {
            0..=4 => Some(search::Search::<4>::new(self, values, budget).run()),
            5..=8 => Some(search::Search::<8>::new(self, values, budget).run()),
            9..=32 => Some(search::Search::<32>::new(self, values, budget).run()),
            _ => None,
        }
    }

    fn offer(&self, realm: usize, offer: usize) -> &Offer {
        &self.realms[realm].offers[offer]
    }

    fn cost(&self, packed: &Packed) -> f64 {
        self.offer(packed.realm, packed.offer).price + PER_MACHINE
    }
}

impl Realm {
    /// Leaves out what has no more of anything than another offer that costs no more.
    pub(crate) fn new(mut offers: Vec<Offer>) -> Self {
        let has_all = |one: &Offer, other: &Offer| {
            one.room.iter().zip(&other.room).all(|(one, other)| one >= other)
        };
        offers.sort_by(|a, b| a.price.total_cmp(&b.price));
        let mut kept: Vec<Offer> = Vec::new();
        for offer in offers {
            if !kept.iter().any(|cheaper| has_all(cheaper, &offer)) {
                kept.retain(|other| other.price < offer.price || !has_all(&offer, other));
                kept.push(offer);
            }
        }
        Self { offers: kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(cores: f64, memory: f64, price: f64) -> Offer {
        Offer { room: vec![cores, memory], price }
    }

    fn sort(cores: f64, memory: f64, count: u32) -> Sort {
        Sort { requests: vec![cores, memory], count, realms: vec![0], ..Sort::default() }
    }

    fn price(problem: &Problem, packed: &[Packed]) -> f64 {
        packed.iter().map(|one| problem.offer(one.realm, one.offer).price).sum()
    }

    /// Every pod once, no machine overdrawn.
    fn check(problem: &Problem, packed: &[Packed]) {
        let mut placed = vec![0; problem.sorts.len()];
        for machine in packed {
            let mut used = [0.0; 2];
            for (sort, count) in &machine.pods {
                placed[*sort] += count;
                for (used, request) in used.iter_mut().zip(&problem.sorts[*sort].requests) {
                    *used += request * f64::from(*count);
                }
                assert!(problem.sorts[*sort].realms.contains(&machine.realm));
            }
            let room = &problem.offer(machine.realm, machine.offer).room;
            assert!(used.iter().zip(room).all(|(used, room)| used <= room), "{machine:?}");
        }
        let wanted: Vec<_> = problem.sorts.iter().map(|sort| sort.count).collect();
        assert_eq!(placed, wanted);
    }

    #[test]
    fn what_costs_as_much_and_has_less_is_no_offer() {
        let cases = [
            (vec![offer(1.0, 1.0, 1.0), offer(2.0, 2.0, 1.0)], vec![offer(2.0, 2.0, 1.0)]),
            (vec![offer(2.0, 2.0, 1.0), offer(1.0, 1.0, 1.0)], vec![offer(2.0, 2.0, 1.0)]),
            (vec![offer(1.0, 1.0, 1.0), offer(1.0, 1.0, 1.0)], vec![offer(1.0, 1.0, 1.0)]),
            (vec![offer(4.0, 4.0, 3.0), offer(2.0, 4.0, 3.5)], vec![offer(4.0, 4.0, 3.0)]),
            (
                vec![offer(2.0, 8.0, 2.0), offer(2.0, 4.0, 1.0)],
                vec![offer(2.0, 4.0, 1.0), offer(2.0, 8.0, 2.0)],
            ),
        ];
        for (offers, expect) in cases {
            assert_eq!(Realm::new(offers.clone()).offers, expect, "{offers:?}");
        }
    }

    #[test]
    fn pods_rich_in_cores_go_with_pods_rich_in_memory() {
        let realm = Realm::new(vec![offer(8.0, 32.0, 1.0), offer(16.0, 64.0, 2.0)]);
        let sorts = vec![sort(3.0, 4.0, 16), sort(1.0, 12.0, 16)];
        let problem = Problem { sorts, realms: vec![realm], groups: 0 };
        let packed = problem.pack(1_000_000).unwrap();
        check(&problem, &packed);
        // Two of each fill a machine of the small kind; kept apart they would need more.
        assert!((price(&problem, &packed) - 8.0).abs() < 1e-9, "{packed:?}");
    }

    #[test]
    fn the_size_with_the_best_price_is_bought_several_times() {
        let realm = Realm::new(vec![offer(4.0, 16.0, 1.0), offer(64.0, 256.0, 20.0)]);
        let problem = Problem { sorts: vec![sort(2.0, 8.0, 32)], realms: vec![realm], groups: 0 };
        let packed = problem.pack(1_000_000).unwrap();
        check(&problem, &packed);
        assert_eq!(packed.len(), 16);
    }

    #[test]
    fn groups_keep_pods_apart() {
        let realm = Realm::new(vec![offer(16.0, 64.0, 1.0)]);
        let mut apart = sort(1.0, 1.0, 5);
        (apart.limits, apart.counts_in) = (vec![(0, 0)], vec![0]);
        let mut pairs = sort(1.0, 1.0, 6);
        (pairs.limits, pairs.counts_in) = (vec![(1, 1)], vec![1]);
        let problem = Problem { sorts: vec![apart, pairs], realms: vec![realm], groups: 2 };
        let packed = problem.pack(1_000_000).unwrap();
        check(&problem, &packed);
        assert_eq!(packed.len(), 5);
        for machine in &packed {
            let count = |sort| machine.pods.iter().find(|(at, _)| *at == sort).map_or(0, |it| it.1);
            assert!(count(0) <= 1 && count(1) <= 2, "{machine:?}");
        }
    }

    #[test]
    fn a_sort_that_fits_nowhere_ends_it() {
        let realm = Realm::new(vec![offer(4.0, 16.0, 1.0)]);
        let problem = Problem { sorts: vec![sort(8.0, 1.0, 1)], realms: vec![realm], groups: 0 };
        assert_eq!(problem.pack(1_000_000), None);
    }

    #[test]
    fn an_answer_that_would_take_too_long_is_cut_short() {
        let realm = Realm::new(vec![offer(40.0, 40.0, 1.0)]);
        let sorts = (0..4000).map(|at| sort(3.0 + 1e-4 * f64::from(at), 3.0, 1)).collect();
        let problem = Problem { sorts, realms: vec![realm], groups: 0 };
        let placed = |budget| -> usize {
            problem.pack(budget).unwrap().iter().map(|machine| machine.pods.len()).sum()
        };
        let in_a_hurry = placed(0);
        assert!((100..3000).contains(&in_a_hurry), "{in_a_hurry} pods of 4000");
        assert_eq!(placed(10_000_000), 4000);
    }

    #[test]
    fn with_no_budget_there_is_still_an_answer() {
        let realm = Realm::new(vec![offer(8.0, 32.0, 1.0), offer(4.0, 8.0, 0.6)]);
        let sorts = vec![sort(3.0, 4.0, 7), sort(1.0, 12.0, 5), sort(0.5, 0.5, 40)];
        let problem = Problem { sorts, realms: vec![realm], groups: 0 };
        let quick = problem.pack(0).unwrap();
        check(&problem, &quick);
        let thorough = problem.pack(10_000_000).unwrap();
        check(&problem, &thorough);
        assert!(price(&problem, &thorough) <= price(&problem, &quick));
    }
}
