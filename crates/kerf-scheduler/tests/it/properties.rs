//! What holds for every cluster.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::checker::violations;
use crate::random::{Dice, snapshot};
use kerf_model::{MinValuesPolicy, Pool, Snapshot};
use kerf_scheduler::{Options, Plan, PreferencePolicy, schedule};

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
        ..Options::default()
    }
}

#[test]
fn no_plan_breaks_a_rule() {
    let mut broken = Vec::new();
    let (mut placed, mut failed) = (0, 0);
    for seed in seeds() {
        let snapshot = snapshot(seed);
        let plan = schedule(&snapshot, &options(seed));
        placed += snapshot.pods.len() - plan.failures.len();
        failed += plan.failures.len();
        let wrong = violations(&snapshot, &options(seed), &plan);
        if !wrong.is_empty() {
            broken.push(format!("seed {seed}: {wrong:#?}"));
        }
    }
    assert!(broken.is_empty(), "{} problems broken, the first:\n{}", broken.len(), broken[0]);
    // Problems that place nothing, or everything, would prove little.
    assert!(placed > failed && failed > placed / 50, "{placed} placed, {failed} not");
}

#[test]
fn the_order_of_the_input_does_not_matter() {
    for seed in seeds().step_by(4) {
        let original = snapshot(seed);
        let expect = printed(&schedule(&original, &options(seed)));
        for turn in 0..3 {
            let shuffled = shuffled(&original, seed * 31 + turn);
            assert_eq!(printed(&schedule(&shuffled, &options(seed))), expect, "seed {seed}");
        }
    }
}

fn shuffled(snapshot: &Snapshot, seed: u64) -> Snapshot {
    let mut dice = Dice(seed);
    let mut shuffled = snapshot.clone();
    dice.shuffle(&mut shuffled.pods);
    dice.shuffle(&mut shuffled.daemons);
    dice.shuffle(&mut shuffled.nodes);
    shuffled.pools = snapshot
        .pools
        .iter()
        .map(|pool| {
            let mut instance_types = pool.instance_types.clone();
            dice.shuffle(&mut instance_types);
            Arc::new(Pool { instance_types, ..(**pool).clone() })
        })
        .collect();
    dice.shuffle(&mut shuffled.pools);
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
        .map(|failure| format!("{} {}", failure.pod.name, failure.refusal))
        .collect();
    failures.sort();
    text + &failures.join("\n")
}
