//! What holds for every cluster.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::build::{settling, with_nodes};
use crate::checker::violations;
use crate::random::{Dice, busy_snapshot, snapshot};
use kerf_model::{MinValuesPolicy, Node, Price, Quantity, Snapshot};
use kerf_scheduler::{
    Leaving, Options, Origin, Plan, PodFailure, PreferencePolicy, Prober, Refusal, Stop, schedule,
    schedule_cheaply,
};

/// More in a long run: `KERF_RANDOM_PROBLEMS=10000 cargo test`.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("KERF_RANDOM_PROBLEMS").ok().and_then(|text| text.parse().ok());
    0..count.unwrap_or(400)
}

fn options(seed: u64) -> Options {
    Options {
        preferences: if seed.is_multiple_of(3) {
            PreferencePolicy::Ignore
        } else {
            PreferencePolicy::Respect
        },
        min_values: if seed.is_multiple_of(5) {
            MinValuesPolicy::BestEffort
        } else {
            MinValuesPolicy::Strict
        },
        // With more or less work.
        packing: 1 << (seed % 22),
        ..Options::default()
    }
}

#[test]
fn no_plan_breaks_a_rule() {
    let mut broken = Vec::new();
    let (mut placed, mut failed, mut cheaper) = (0, 0, 0);
    let rank = |plan: &Plan| (plan.failures.len(), plan.price());
    for seed in seeds() {
        let snapshot = snapshot(seed);
        let plan = schedule(&snapshot, &options(seed));
        placed += snapshot.pods.len() - plan.failures.len();
        failed += plan.failures.len();
        let cheap = schedule_cheaply(&snapshot, &Options { packing: 0, ..options(seed) });
        assert!(rank(&cheap) <= rank(&plan), "seed {seed}");
        let packed = schedule_cheaply(&snapshot, &options(seed));
        assert!(rank(&packed) <= rank(&cheap), "seed {seed}");
        cheaper += usize::from(packed.price() < cheap.price());
        for plan in [plan, cheap, packed] {
            let wrong = violations(&snapshot, &options(seed), &plan);
            if !wrong.is_empty() {
                broken.push(format!("seed {seed}: {wrong:#?}"));
            }
        }
    }
    assert!(broken.is_empty(), "{} problems broken, the first:\n{}", broken.len(), broken[0]);
    // Problems that place nothing, or everything, would prove little.
    assert!(placed > failed && failed > placed / 50, "{placed} placed, {failed} not");
    assert!(cheaper > 0, "the search for cheaper machines found nothing");
}

#[test]
fn the_order_of_the_input_does_not_matter() {
    for seed in seeds().step_by(4) {
        let original = snapshot(seed);
        for make in [schedule, schedule_cheaply] {
            let expect = printed(&make(&original, &options(seed)));
            for turn in 0..3 {
                let shuffled = shuffled(&original, seed * 31 + turn);
                assert_eq!(printed(&make(&shuffled, &options(seed))), expect, "seed {seed}");
            }
        }
    }
}

/// A probe must not differ from a run without the nodes, whatever was asked before and on which thread.
#[test]
fn a_probe_is_a_plan_without_the_nodes() {
    let (mut moved, mut bought, mut lost, mut stopped) = (0, 0, 0, 0);
    for seed in seeds().step_by(4) {
        let snapshot = busy_snapshot(seed);
        let mut dice = Dice(seed ^ 0x5EED);
        let options = Options { honor_settling: dice.roll(2) == 0, ..options(seed) };
        let nodes = snapshot.nodes.iter().map(|node| Node::clone(node));
        let settle = |node| if dice.roll(5) == 0 { settling(node) } else { node };
        let nodes = nodes.map(settle).collect();
        let snapshot = with_nodes(snapshot, nodes);
        let prober = Prober::new(&snapshot, &options);
        let questions: Vec<_> = (0..6).map(|_| question(&snapshot, &mut dice)).collect();
        let ask = |question: &Vec<(usize, Vec<usize>)>, stop: &Stop| {
            let leaving: Vec<_> = question
                .iter()
                .map(|(node, pods)| Leaving { node: *node, pods, frees: None })
                .collect();
            prober.probe(&leaving, stop)
        };
        let answers: Vec<Plan> = if seed.is_multiple_of(8) {
            std::thread::scope(|scope| {
                let threads: Vec<_> = questions
                    .iter()
                    .map(|question| scope.spawn(|| ask(question, &Stop::default())))
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            })
        } else {
            questions.iter().map(|question| ask(question, &Stop::default())).collect()
        };
        for (question, answer) in questions.iter().zip(&answers) {
            let mut rest = snapshot.clone();
            let gone = |at: &usize| question.iter().any(|(node, _)| node == at);
            for (node, pods) in question {
                rest.pods.extend(pods.iter().map(|at| snapshot.nodes[*node].pods[*at].clone()));
            }
            rest.nodes = (0..snapshot.nodes.len())
                .filter(|at| !gone(at))
                .map(|at| snapshot.nodes[at].clone())
                .collect();
            // Nodes that leave are still there while others start, so they count against limits of nodes.
            for pool in rest.pools.values_mut() {
                let leaves = |(node, _): &&(usize, Vec<usize>)| {
                    snapshot.nodes[*node].pool.as_ref() == Some(&pool.name)
                };
                let leaving = question.iter().filter(leaves).count();
                let leaving = Quantity::from_units(i64::try_from(leaving).unwrap());
                Arc::make_mut(pool).launching.set("nodes", leaving);
            }
            let plan = as_probe(schedule(&rest, &options), snapshot.pods.len(), &rest);
            assert_eq!(printed(answer), printed(&plan), "seed {seed}, without {question:?}");
            moved += usize::from(!answer.placements.is_empty());
            bought += usize::from(!answer.claims.is_empty());
            lost += usize::from(answer.losses().next().is_some());
            for stop in stops(&plan) {
                let bounded = ask(question, &stop);
                let over = stop.max_new_claims.is_some_and(|most| plan.claims.len() > most)
                    || stop.price_below.is_some_and(|below| plan.price() >= below);
                if over && !plan.claims.is_empty() {
                    assert!(bounded.stopped.is_some(), "seed {seed}, {stop:?}");
                    stopped += 1;
                } else if bounded.stopped.is_none() {
                    assert_eq!(printed(&bounded), printed(&plan), "seed {seed}, {stop:?}");
                } else {
                    // Only claims that are dropped at the very end excuse a stop.
                    let dropped = |failure: &PodFailure| {
                        matches!(failure.refusal, Refusal::TooFewInstanceTypes { .. })
                    };
                    assert!(plan.failures.iter().any(dropped), "seed {seed}, {stop:?}");
                }
            }
        }
    }
    assert!(
        moved > 0 && bought > 0 && lost > 0 && stopped > 0,
        "{moved} {bought} {lost} {stopped}"
    );
}

/// What is found for other machines keeps every rule, costs no more, and does not depend on what was asked before.
#[test]
fn a_packed_probe_is_a_cheaper_plan_without_the_nodes() {
    let (mut cheaper, mut several) = (0, 0);
    for seed in seeds().step_by(4) {
        let snapshot = busy_snapshot(seed);
        let mut dice = Dice(seed ^ 0xFACE);
        let options = options(seed);
        let prober = Prober::new(&snapshot, &options);
        for _ in 0..4 {
            let question = question(&snapshot, &mut dice);
            let leaving: Vec<_> = question
                .iter()
                .map(|(node, pods)| Leaving { node: *node, pods, frees: None })
                .collect();
            let plain = prober.probe(&leaving, &Stop::default());
            let packed = prober.probe_packed(&leaving, 200_000);
            let fresh = Prober::new(&snapshot, &options).probe_packed(&leaving, 200_000);
            assert_eq!(printed(&packed), printed(&fresh), "seed {seed}, without {question:?}");
            let again = prober.probe(&leaving, &Stop::default());
            assert_eq!(printed(&again), printed(&plain), "seed {seed}, without {question:?}");
            assert!(packed.failures.len() <= plain.failures.len(), "seed {seed}");
            assert!(
                packed.failures.len() < plain.failures.len() || packed.price() <= plain.price(),
                "seed {seed}, without {question:?}"
            );
            cheaper += usize::from(packed.price() < plain.price());
            several += usize::from(packed.claims.len() > 1);
        }
    }
    assert!(cheaper > 0 && several > 0, "{cheaper} {several}");
}

/// Some nodes that stay, if need be by themselves, and some of their pods.
fn question(snapshot: &Snapshot, dice: &mut Dice) -> Vec<(usize, Vec<usize>)> {
    (0..snapshot.nodes.len())
        .filter(|at| !snapshot.nodes[*at].deleting && dice.roll(3) == 0)
        .collect::<Vec<_>>()
        .into_iter()
        .map(|node| {
            let pods = 0..snapshot.nodes[node].pods.len();
            (node, pods.filter(|_| dice.roll(5) > 0).collect())
        })
        .collect()
}

fn stops(plan: &Plan) -> [Stop; 4] {
    let step = Price::from_ten_billionths(1);
    let fewer = plan.claims.len().checked_sub(1);
    [
        Stop { max_new_claims: Some(plan.claims.len()), price_below: Some(plan.price() + step) },
        Stop { max_new_claims: fewer, price_below: None },
        Stop { max_new_claims: None, price_below: Some(plan.price()) },
        Stop { max_new_claims: None, price_below: Some(plan.price().times(1, 2)) },
    ]
}

/// What a probe says otherwise than a plan.
fn as_probe(mut plan: Plan, own: usize, snapshot: &Snapshot) -> Plan {
    let leaves: Vec<_> = snapshot.pods[own..].iter().map(|pod| &pod.uid).collect();
    let doomed = |name: &Option<String>| {
        let on = |node: &&Arc<kerf_model::Node>| Some(&node.name) == name.as_ref();
        snapshot.nodes.iter().find(on).is_some_and(|node| node.deleting)
    };
    for failure in &mut plan.failures {
        failure.origin = match &failure.pod {
            pod if leaves.contains(&&pod.uid) => Origin::Leaving,
            pod if doomed(&pod.node_name) => Origin::Deleting,
            _ => Origin::Pending,
        };
        let explained = matches!(failure.refusal, Refusal::Pools(_) | Refusal::NoPools);
        if explained && failure.origin == Origin::Pending {
            failure.refusal = Refusal::NotAsked;
        }
    }
    for placement in plan.placements.iter().filter(|placement| !placement.node.initialized) {
        for pod in placement.pods.iter().filter(|pod| leaves.contains(&&pod.uid)) {
            plan.failures.push(PodFailure {
                pod: pod.clone(),
                origin: Origin::Leaving,
                refusal: Refusal::UninitializedNode { node: placement.node.name.clone() },
            });
        }
    }
    plan
}

fn shuffled(snapshot: &Snapshot, seed: u64) -> Snapshot {
    let mut dice = Dice(seed);
    let mut shuffled = snapshot.clone();
    dice.shuffle(&mut shuffled.pods);
    dice.shuffle(&mut shuffled.daemons);
    dice.shuffle(&mut shuffled.nodes);
    for pool in shuffled.pools.values_mut() {
        dice.shuffle(&mut Arc::make_mut(pool).instance_types);
    }
    shuffled
}

fn printed(plan: &Plan) -> String {
    let mut text = String::new();
    for claim in &plan.claims {
        let pods: Vec<_> = claim.pods.iter().map(|pod| &pod.name).collect();
        let types: Vec<_> = claim.instance_types.iter().map(|one| one.name()).collect();
        let _ = writeln!(
            text,
            "{} {pods:?} {types:?} {} | {} | {} {}",
            claim.pool.name,
            claim.requirements,
            claim.requests,
            claim.price,
            claim.min_values_relaxed
        );
    }
    for placement in &plan.placements {
        let pods: Vec<_> = placement.pods.iter().map(|pod| &pod.name).collect();
        let _ = writeln!(text, "{} {pods:?}", placement.node.name);
    }
    let mut failures: Vec<_> = plan
        .failures
        .iter()
        .map(|failure| format!("{} {:?} {}", failure.pod.name, failure.origin, failure.refusal))
        .collect();
    failures.sort();
    text + &failures.join("\n")
}
