//! Random small problems, solved by trying everything. What is tried is checked from scratch, as a whole: no code and no idea is shared
//! with the search of the allocator.

use proptest::prelude::*;
use proptest::sample::subsequence;

use kerf_devices::allocator::{Allocation, Allocator};
use kerf_devices::claim::standing::AllocatedDevice;
use kerf_devices::claim::{Claim, Constraint, Request, RequestName, Wish};
use kerf_devices::device::{Device, DeviceId, Toleration};
use kerf_devices::pool::Pools;
use kerf_devices::refusal::Refusal;
use kerf_devices::slice::Slice;
use kerf_devices::usage::Usage;

use crate::builders::{
    Asking, Constrained, DRIVER, With, all, allocate, amount, claim, classes, count, counters,
    device, distinct, exactly, local, matching, slice, told,
};

/// A problem in terms of small numbers.
#[derive(Clone, Debug)]
struct Problem {
    devices: Vec<Gadget>,
    /// What each of the two pools has of its two counters.
    totals: [[i64; 2]; 2],
    claims: Vec<Ticket>,
}

#[derive(Clone, Debug)]
struct Gadget {
    pool: usize,
    size: i64,
    numa: Option<i64>,
    takes: [Option<i64>; 2],
    shared: bool,
    memory: Option<i64>,
    tainted: bool,
    /// Taken before; of a shared device, so much of its memory.
    used: Option<i64>,
}

#[derive(Clone, Debug)]
struct Ticket {
    /// Alternatives of each request. One alone is asked for exactly.
    requests: Vec<Vec<Need>>,
    rules: Vec<Together>,
}

#[derive(Clone, Debug)]
struct Need {
    /// None: all.
    count: Option<usize>,
    size: Option<i64>,
    memory: Option<i64>,
    admin: bool,
    tolerates: bool,
}

#[derive(Clone, Debug)]
struct Together {
    equal: bool,
    /// By `numa`, or by `size`.
    by_numa: bool,
    requests: Vec<usize>,
}

/// For each claim and request: which alternative, and which devices.
type Choice = Vec<Vec<(usize, Vec<usize>)>>;

impl Problem {
    /// The first choice that is valid, in the order in which requests, alternatives and devices stand.
    fn first_valid(&self) -> Option<Choice> {
        let options: Vec<Vec<_>> = self
            .claims
            .iter()
            .flat_map(|ticket| &ticket.requests)
            .map(|needs| self.options(needs))
            .collect();
        let mut places = vec![0; options.len()];
        loop {
            if places.iter().zip(&options).all(|(place, options)| *place < options.len()) {
                let flat: Vec<_> =
                    places.iter().zip(&options).map(|(place, all)| all[*place].clone()).collect();
                let choice = self.by_claim(flat);
                if self.is_valid(&choice) {
                    return Some(choice);
                }
            } else {
                return None;
            }
            // Counts up, the last request first.
            let mut at = places.len();
            loop {
                if at == 0 {
                    return None;
                }
                at -= 1;
                places[at] += 1;
                if places[at] < options[at].len() {
                    break;
                }
                places[at] = 0;
            }
        }
    }

    fn by_claim(&self, flat: Vec<(usize, Vec<usize>)>) -> Choice {
        let mut rest = flat.into_iter();
        self.claims
            .iter()
            .map(|ticket| rest.by_ref().take(ticket.requests.len()).collect())
            .collect()
    }

    /// Every alternative with every set of devices of its size.
    fn options(&self, needs: &[Need]) -> Vec<(usize, Vec<usize>)> {
        let mut options = Vec::new();
        for (alternative, need) in needs.iter().enumerate() {
            let Some(count) = need.count else {
                let all: Vec<_> =
                    (0..self.devices.len()).filter(|one| self.suits(need, *one)).collect();
                if !all.is_empty() {
                    options.push((alternative, all));
                }
                continue;
            };
            let mut sets = sets_of(count, self.devices.len());
            sets.sort();
            options.extend(sets.into_iter().map(|set| (alternative, set)));
        }
        options
    }

    fn suits(&self, need: &Need, device: usize) -> bool {
        let gadget = &self.devices[device];
        need.size.is_none_or(|size| size == gadget.size)
            && need.memory.is_none_or(|memory| gadget.memory.is_some_and(|has| has >= memory))
    }

    fn is_valid(&self, choice: &Choice) -> bool {
        let picks = || {
            choice.iter().enumerate().flat_map(move |(claim, requests)| {
                requests.iter().enumerate().flat_map(move |(request, (alternative, devices))| {
                    let need = &self.claims[claim].requests[request][*alternative];
                    devices.iter().map(move |device| (claim, request, need, *device))
                })
            })
        };
        let each = picks().all(|(_, _, need, device)| {
            self.suits(need, device) && (need.tolerates || !self.devices[device].tainted)
        });
        let devices = 0..self.devices.len();
        each && devices.clone().all(|device| {
            let gadget = &self.devices[device];
            let owners: Vec<_> = picks().filter(|one| one.3 == device && !one.2.admin).collect();
            if gadget.shared {
                let taken: i64 = owners
                    .iter()
                    .map(|one| one.2.memory.or(gadget.memory).unwrap_or(0))
                    .chain(gadget.used)
                    .sum();
                return owners.is_empty() || gadget.memory.is_none_or(|memory| taken <= memory);
            }
            let in_claim = |claim| picks().filter(|one| one.3 == device && one.0 == claim).count();
            (0..choice.len()).all(|claim| in_claim(claim) <= 1)
                && owners.len() + usize::from(gadget.used.is_some() && !owners.is_empty()) <= 1
        }) && (0..2).all(|pool| {
            (0..2).all(|counter| {
                let consumers = devices.clone().filter(|one| self.devices[*one].pool == pool);
                let mut before = 0;
                let mut new = 0;
                for device in consumers {
                    let gadget = &self.devices[device];
                    let amount = gadget.takes[counter].unwrap_or(0);
                    if gadget.used.is_some() {
                        before += amount;
                    } else if picks().any(|one| one.3 == device && !one.2.admin) {
                        new += amount;
                    }
                }
                new == 0 || before + new <= self.totals[pool][counter]
            })
        }) && choice.iter().enumerate().all(|(claim, _)| {
            self.claims[claim].rules.iter().all(|rule| {
                let concerned = picks().filter(|one| {
                    one.0 == claim && (rule.requests.is_empty() || rule.requests.contains(&one.1))
                });
                let values: Vec<_> = concerned
                    .map(|one| {
                        let gadget = &self.devices[one.3];
                        if rule.by_numa { gadget.numa } else { Some(gadget.size) }
                    })
                    .collect();
                let mut known: Vec<_> = values.iter().flatten().collect();
                known.sort();
                known.dedup();
                let all_known = values.iter().all(Option::is_some);
                all_known && if rule.equal { known.len() <= 1 } else { known.len() == values.len() }
            })
        })
    }

    /// Whether a request for all is under a constraint: there kube-scheduler stops instead of going back.
    fn may_stop(&self) -> bool {
        self.claims.iter().any(|ticket| {
            !ticket.rules.is_empty()
                && ticket.requests.iter().flatten().any(|need| need.count.is_none())
        })
    }

    fn told(&self, choice: &Choice) -> String {
        let claims = choice.iter().enumerate().map(|(claim, requests)| {
            let requests =
                requests.iter().enumerate().flat_map(|(request, (alternative, devices))| {
                    let one = self.claims[claim].requests[request].len() == 1;
                    let name = if one {
                        format!("r{request}")
                    } else {
                        format!("r{request}/a{alternative}")
                    };
                    devices.iter().map(move |device| format!("{name}: d{device}"))
                });
            requests.collect::<Vec<_>>().join(", ")
        });
        claims.collect::<Vec<_>>().join(" | ")
    }

    fn slices(&self) -> Vec<Slice> {
        let mut slices = Vec::new();
        for pool in 0..2 {
            let of_pool = self.devices.iter().enumerate().filter(|(_, one)| one.pool == pool);
            let [first, second] = self.totals[pool];
            let name = format!("p{pool}");
            let of_pool = of_pool.map(|(number, one)| one.device(number)).collect();
            slices.push(slice(&name, "devices", 2, local(of_pool)));
            let totals = counters([("c0", first), ("c1", second)]);
            slices.push(slice(&name, "counters", 2, totals));
        }
        slices
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for (number, gadget) in self.devices.iter().enumerate() {
            let Some(memory) = gadget.used else { continue };
            let has_memory = gadget.memory.is_some();
            let share = has_memory.then(|| ("memory".into(), amount(&memory.to_string())));
            usage.take(&AllocatedDevice {
                request: RequestName { request: "before".into(), alternative: None },
                device: DeviceId {
                    driver: DRIVER.into(),
                    pool: format!("p{}", gadget.pool).into(),
                    device: format!("d{number}").into(),
                },
                admin_access: false,
                share: gadget.shared.then(|| share.into_iter().collect()),
            });
        }
        usage
    }

    fn claims(&self) -> Vec<Claim> {
        self.claims.iter().enumerate().map(|(number, ticket)| ticket.claim(number)).collect()
    }
}

fn sets_of(count: usize, devices: usize) -> Vec<Vec<usize>> {
    let members = |bits: u32| (0..devices).filter(|one| bits >> one & 1 == 1).collect::<Vec<_>>();
    (0..1_u32 << devices).map(members).filter(|set| set.len() == count).collect()
}

impl Gadget {
    fn device(&self, number: usize) -> Device {
        let mut one = device(&format!("d{number}")).int("size", self.size);
        if let Some(numa) = self.numa {
            one = one.int("numa", numa);
        }
        if let Some(memory) = self.memory {
            one = one.capacity("memory", &memory.to_string());
        }
        for (counter, takes) in self.takes.iter().enumerate() {
            if let Some(takes) = takes {
                one = one.consumes(&format!("c{counter}"), *takes);
            }
        }
        if self.tainted {
            one = one.tainted("odd");
        }
        if self.shared { one.shared() } else { one }
    }
}

impl Ticket {
    fn claim(&self, number: usize) -> Claim {
        let mut made = claim(&format!("claim-{number}"), []);
        for (request, needs) in self.requests.iter().enumerate() {
            let name = format!("r{request}");
            made.requests.push(match needs.as_slice() {
                [need] => exactly(&name, need.wanted()),
                needs => {
                    let needs = needs.iter().enumerate();
                    let all = needs.map(|(one, need)| (format!("a{one}").into(), need.wanted()));
                    Request {
                        name: name.as_str().into(),
                        wish: Wish::FirstAvailable(all.collect()),
                    }
                }
            });
        }
        self.rules.iter().fold(made, |made, rule| made.constrained(rule.constraint()))
    }
}

impl Need {
    fn wanted(&self) -> kerf_devices::claim::Wanted {
        let mut wanted = match self.count {
            Some(some) => count(u32::try_from(some).expect("a small number")),
            None => all(),
        };
        if let Some(size) = self.size {
            wanted = wanted
                .selecting(&format!(r#"device.attributes["gpu.example.com"].size == {size}"#));
        }
        if let Some(memory) = self.memory {
            wanted = wanted.asking("memory", &memory.to_string());
        }
        if self.tolerates {
            wanted.tolerations.push(Toleration {
                key: Some("odd".into()),
                value: None,
                effect: None,
            });
        }
        if self.admin { wanted.admin() } else { wanted }
    }
}

impl Together {
    fn constraint(&self) -> Constraint {
        let attribute = if self.by_numa { "numa" } else { "size" };
        let mut made = if self.equal { matching(attribute, []) } else { distinct(attribute, []) };
        made.requests = self.requests.iter().map(|one| format!("r{one}").into()).collect();
        made
    }
}

fn gadget() -> impl Strategy<Value = Gadget> {
    let takes = || prop::option::weighted(0.4, 1..4_i64);
    let rest = (
        prop::bool::weighted(0.2),
        prop::option::weighted(0.4, 1..5_i64),
        prop::bool::weighted(0.15),
    );
    (
        0..2_usize,
        0..2_i64,
        prop::option::weighted(0.8, 0..3_i64),
        [takes(), takes()],
        rest,
        prop::option::weighted(0.2, 0..3_i64),
    )
        .prop_map(|(pool, size, numa, takes, (shared, memory, tainted), used)| Gadget {
            pool,
            size,
            numa,
            takes,
            shared,
            memory,
            tainted,
            used,
        })
}

fn need(admin: bool) -> impl Strategy<Value = Need> {
    let count = prop_oneof![5 => Just(Some(1)), 3 => Just(Some(2)), 1 => Just(None)];
    let memory = prop::option::weighted(0.25, 1..4_i64);
    (
        count,
        prop::option::weighted(0.4, 0..2_i64),
        memory,
        prop::bool::weighted(0.15),
        prop::bool::ANY,
    )
        .prop_map(move |(count, size, memory, watches, tolerates)| Need {
            count,
            size,
            memory,
            admin: admin && watches,
            tolerates,
        })
}

fn ticket(requests: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Ticket> {
    let request = prop_oneof![
        3 => need(true).prop_map(|one| vec![one]),
        1 => prop::collection::vec(need(false), 2),
    ];
    let rule = (prop::bool::ANY, prop::bool::ANY, subsequence(vec![0, 1], 0..=2))
        .prop_map(|(equal, by_numa, requests)| Together { equal, by_numa, requests });
    let rules = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(rule, 1..3)];
    (prop::collection::vec(request, requests), rules)
        .prop_map(|(requests, rules)| Ticket { requests, rules })
}

fn problem() -> impl Strategy<Value = Problem> {
    let claims = prop_oneof![
        prop::collection::vec(ticket(1..=2), 1),
        prop::collection::vec(ticket(1), 2),
        (ticket(1), ticket(2)).prop_map(|(one, two)| vec![one, two]),
    ];
    (prop::collection::vec(gadget(), 1..6), [[1..8_i64, 1..8_i64], [1..8_i64, 1..8_i64]], claims)
        .prop_map(|(mut devices, totals, claims)| {
            devices.sort_by_key(|one| one.pool);
            Problem { devices, totals, claims }
        })
}

fn compare(problem: &Problem, found: &Result<Vec<Allocation>, Box<Refusal>>) {
    let expected = problem.first_valid();
    match (found.as_deref().map_err(Box::as_ref), expected) {
        (Ok(found), Some(expected)) => assert_eq!(told(found), problem.told(&expected)),
        (Ok(found), None) => panic!("found {}, and there is no solution", told(found)),
        (Err(Refusal::AllAgainstConstraint { .. }), _) => assert!(problem.may_stop()),
        (Err(refusal), Some(expected)) => {
            panic!("refused as {refusal}, and there is {}", problem.told(&expected));
        }
        (Err(refusal), None) => assert!(
            matches!(refusal.name(), "TooFewDevices" | "NoCombination"),
            "no reason to say {refusal}"
        ),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_answer_is_the_first_of_all_solutions(problem in problem()) {
        let pools = Pools::gather(problem.slices());
        let found = allocate(&pools, &problem.usage(), &problem.claims());
        compare(&problem, &found);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_answer_depends_on_nothing_else(problem in problem(), other in problem()) {
        let fresh = allocate(&Pools::gather(problem.slices()), &problem.usage(), &problem.claims());
        let mut slices = problem.slices();
        slices.reverse();
        let pools = Pools::gather(slices);
        let mut allocator = Allocator::default();
        // The allocator has seen other devices and other claims before, and the usage comes in two parts.
        let usage = problem.usage();
        let mut again = |pools: &Pools, claims: &[Claim]| {
            let inventory = allocator.inventory(pools, |_| true);
            let demands: Vec<_> =
                claims.iter().map(|claim| allocator.demand(claim, &classes()).unwrap()).collect();
            let demands: Vec<_> = demands.iter().collect();
            allocator.allocate(&inventory, &[&Usage::default(), &usage], &demands)
        };
        let _ = again(&Pools::gather(other.slices()), &other.claims());
        prop_assert_eq!(again(&pools, &problem.claims()), fresh);
    }

    #[test]
    fn what_is_taken_can_be_given_back(problem in problem()) {
        let pools = Pools::gather(problem.slices());
        let mut usage = problem.usage();
        let claims = problem.claims();
        let before = allocate(&pools, &usage, &claims);
        if let Ok(found) = &before {
            let devices: Vec<_> = found.iter().flat_map(|one| &one.devices).collect();
            for device in &devices {
                usage.take(device);
            }
            for device in &devices {
                usage.release(device);
            }
            prop_assert_eq!(&allocate(&pools, &usage, &claims), &before);
        }
    }
}

/// The partitions of a GPU with seven slices of compute and eight of memory: compute, memory, and where their memory may start.
const PROFILES: [(&str, i64, usize, &[usize]); 5] = [
    ("1g", 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    ("2g", 2, 2, &[0, 2, 4]),
    ("3g", 3, 4, &[0, 4]),
    ("4g", 4, 4, &[0]),
    ("7g", 7, 8, &[0]),
];

fn partitioned(gpus: usize) -> Pools {
    let mut partitions = Vec::new();
    let mut totals = Vec::new();
    for gpu in 0..gpus {
        totals.push((format!("{gpu}/compute"), 7));
        totals.extend((0..8).map(|memory| (format!("{gpu}/memory{memory}"), 1)));
        for (profile, compute, memory, starts) in PROFILES {
            for start in starts {
                let mut one = device(&format!("{gpu}-{profile}-{start}"))
                    .text("profile", profile)
                    .text("uuid", &format!("{gpu}-{profile}-{start}"))
                    .consumes(&format!("{gpu}/compute"), compute);
                for slice in *start..start + memory {
                    one = one.consumes(&format!("{gpu}/memory{slice}"), 1);
                }
                partitions.push(one);
            }
        }
    }
    let totals = kerf_devices::slice::Content::Counters(
        totals
            .iter()
            .map(|(name, total)| {
                let (set, counter) = name.split_once('/').expect("a set and a counter");
                let name =
                    kerf_devices::device::CounterName { set: set.into(), counter: counter.into() };
                (name, amount(&total.to_string()))
            })
            .collect(),
    );
    Pools::gather([slice("pool", "1", 2, local(partitions)), slice("pool", "2", 2, totals)])
}

/// Whether the profiles fit onto the GPUs, by trying all places. Of each GPU, `free` has its memory as bits, and its compute.
fn fits(profiles: &[usize], free: &mut [(u32, i64)]) -> bool {
    let [profile, rest @ ..] = profiles else { return true };
    let (_, compute, memory, starts) = PROFILES[*profile];
    for gpu in 0..free.len() {
        for start in starts {
            let bits = ((1 << memory) - 1) << start;
            let before = free[gpu];
            if before.0 & bits == bits && before.1 >= compute {
                free[gpu] = (before.0 & !bits, before.1 - compute);
                if fits(rest, free) {
                    return true;
                }
                free[gpu] = before;
            }
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn partitions_are_packed_wherever_they_fit(
        gpus in 1..3_usize,
        profiles in prop::collection::vec(0..PROFILES.len(), 1..8),
    ) {
        let claims = profiles.iter().enumerate().map(|(number, profile)| {
            let name = PROFILES[*profile].0;
            let selector = format!(r#"device.attributes["gpu.example.com"].profile == "{name}""#);
            claim(&format!("claim-{number}"), [exactly("r", count(1).selecting(&selector))])
        });
        let found = allocate(&partitioned(gpus), &Usage::default(), &claims.collect::<Vec<_>>());
        prop_assert_eq!(found.is_ok(), fits(&profiles, &mut vec![(255, 7); gpus]), "{:?}", found);
    }
}

#[test]
fn seven_slices_of_one_gpu_serve_seven_pods() {
    let slices = |number: usize| {
        let one = || count(1).selecting(r#"device.attributes["gpu.example.com"].profile == "1g""#);
        (0..number)
            .map(|pod| claim(&format!("pod-{pod}"), [exactly("r", one())]))
            .collect::<Vec<_>>()
    };
    assert_eq!(allocate(&partitioned(1), &Usage::default(), &slices(7)).unwrap().len(), 7);
    let refused = allocate(&partitioned(1), &Usage::default(), &slices(8)).unwrap_err();
    assert_eq!(refused.name(), "NoCombination");
}
