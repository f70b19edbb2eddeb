//! What holds for every cluster.

use std::{collections::BTreeMap, num::NonZero, sync::Arc};

use kerf_disruption::{Command, Memory, Method, Replacement, Settings, pass, validate};
use kerf_model::disruption::{NodeDisruption, PodDisruption};
use kerf_model::labels::{CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ON_DEMAND, SPOT, ZONE};
use kerf_model::{Price, Snapshot};
use kerf_scheduler::{Options, Origin, Plan, PodFailure, Refusal};

use crate::build::ZONES;
use crate::checker::violations;
use crate::places::{ago, now, pool as ordinary_pool, told};
use crate::random::{Dice, busy_snapshot};

/// A random cluster whose nodes are of the pools' types, some of them drifted.
fn random_snapshot(seed: u64) -> Snapshot {
    let mut snapshot = busy_snapshot(seed);
    let mut dice = Dice(seed ^ 0xE57A);
    for pool in snapshot.pools.values_mut() {
        Arc::make_mut(pool).disruption = ordinary_pool("").disruption;
    }
    snapshot.now = now();
    let pools: Vec<_> = snapshot.pools.values().cloned().collect();
    for node in &mut snapshot.nodes {
        let node = Arc::make_mut(node);
        let pool = &pools[dice.roll(pools.len())];
        let of_type = &pool.instance_types[dice.roll(pool.instance_types.len())];
        let mut label = |key: &str, value: &str| {
            node.labels.insert(key.to_owned(), value.to_owned());
        };
        label(NODE_POOL, &pool.name);
        label(INSTANCE_TYPE, of_type.name());
        let offering = &of_type.offerings()[dice.roll(of_type.offerings().len())];
        label(CAPACITY_TYPE, offering.capacity_type().unwrap_or(ON_DEMAND));
        label(ZONE, offering.zone().unwrap_or(ZONES[0]));
        node.pool = Some(pool.name.clone());
        node.claim = Some(format!("claim-{}", node.name));
        node.disruption = NodeDisruption {
            last_pod_event: (dice.roll(6) == 0).then(now),
            provider_id: node.name.clone(),
            ready: true,
            consolidatable: dice.roll(8) > 0,
            drifted_since: (dice.roll(6) == 0).then(|| ago(10)),
            created: Some(ago(600)),
            initialized_at: node.initialized.then(|| ago(500)),
            ..NodeDisruption::default()
        };
        for pod in &mut node.pods {
            let moves = !pod.is_daemon();
            Arc::make_mut(pod).disruption =
                PodDisruption { reschedulable: moves, counted: moves, ..PodDisruption::movable() };
        }
    }
    snapshot
}

fn settings(threads: usize) -> Settings {
    let threads = NonZero::new(threads).expect("a thread");
    Settings { spot_to_spot: true, many_to_many: true, threads, ..Settings::default() }
}

/// What each method finds that finds something.
fn all_commands(snapshot: &Snapshot, settings: &Settings) -> Vec<Command> {
    let mut memory = Memory::default();
    let mut commands = Vec::new();
    loop {
        let found = pass(snapshot, settings, &mut memory).commands;
        let Some(last) = found.last() else { return commands };
        memory.reject(last);
        let last_method = last.method == Method::ManyToMany;
        commands.extend(found);
        if last_method {
            return commands;
        }
    }
}

/// The cluster after the command: without its nodes, and with their pods to be placed.
fn without(snapshot: &Snapshot, command: &Command) -> Snapshot {
    let mut rest = snapshot.clone();
    for candidate in &command.candidates {
        let pods = candidate.moving.iter().map(|place| &candidate.node.pods[*place]);
        rest.pods.extend(pods.cloned());
    }
    let gone = |name: &str| command.candidates.iter().any(|one| one.node.name == name);
    rest.nodes.retain(|node| !gone(&node.name));
    rest
}

/// The command as a plan. Pods of the cluster that it does not mention were pending before.
fn as_plan(rest: &Snapshot, command: &Command) -> Plan {
    let claims: Vec<_> = command
        .replacements
        .iter()
        .map(|replacement| match replacement {
            Replacement::Planned(claim) => claim.clone(),
            Replacement::OfTemplate(pool) => panic!("{} is not static", pool.name),
        })
        .collect();
    let placements = command.placements.clone();
    let mentioned: Vec<&str> = placements
        .iter()
        .flat_map(|placement| &placement.pods)
        .chain(claims.iter().flat_map(|claim| &claim.pods))
        .map(|pod| pod.uid.as_str())
        .collect();
    let failures = rest
        .pods
        .iter()
        .filter(|pod| !mentioned.contains(&pod.uid.as_str()))
        .map(|pod| PodFailure {
            pod: Arc::clone(pod),
            origin: Origin::Pending,
            refusal: Refusal::NoPools,
        })
        .collect();
    Plan { claims, placements, failures, ..Plan::default() }
}

#[test]
fn no_command_leaves_a_pod_without_a_place() {
    let mut found: BTreeMap<Method, [usize; 2]> = BTreeMap::new();
    for seed in 0..600 {
        let snapshot = random_snapshot(seed);
        let settings = settings(2);
        for command in all_commands(&snapshot, &settings) {
            let replaced = usize::from(!command.replacements.is_empty());
            found.entry(command.method).or_default()[replaced] += 1;
            if command.method == Method::Emptiness {
                let moving = command.candidates.iter().map(|one| one.pods.len()).sum::<usize>();
                assert_eq!(moving, 0, "seed {seed}");
                continue;
            }
            let rest = without(&snapshot, &command);
            let plan = as_plan(&rest, &command);
            // The provisioner looks after pods that waited before, those of nodes that go already among them.
            let is_moved = |failure: &&PodFailure| {
                let mut moved = command.candidates.iter().flat_map(|one| &one.node.pods);
                moved.any(|pod| pod.uid == failure.pod.uid)
            };
            let homeless = plan.failures.iter().find(is_moved);
            assert!(homeless.is_none(), "seed {seed}: {} loses {homeless:?}", told(&command));
            let options =
                Options { honor_settling: command.method != Method::Drift, ..Options::default() };
            let wrong = violations(&rest, &options, &plan);
            assert!(wrong.is_empty(), "seed {seed}: {}: {wrong:#?}", told(&command));
            check_prices(&snapshot, &command, seed);
            let again = validate(&command, &snapshot, &settings);
            assert!(again.is_ok(), "seed {seed}: {} is not found again", told(&command));
        }
    }
    // Clusters in which nothing is found would prove little.
    for (method, counts) in [
        (Method::Emptiness, [30, 0]),
        (Method::Drift, [10, 10]),
        (Method::MultiNode, [10, 10]),
        (Method::SingleNode, [20, 20]),
        (Method::ManyToMany, [10, 10]),
    ] {
        let have = found.get(&method).copied().unwrap_or_default();
        assert!(have[0] >= counts[0] && have[1] >= counts[1], "{found:?}");
    }
}

/// Whatever the provider picks, consolidation saves what it said it would at least.
fn check_prices(snapshot: &Snapshot, command: &Command, seed: u64) {
    if command.method == Method::Drift {
        return;
    }
    let whole: Price = command.candidates.iter().map(|candidate| candidate.price).sum();
    if command.replacements.is_empty() {
        assert_eq!(command.savings, Some(whole), "seed {seed}");
        return;
    }
    let promise = command.promise.expect("a promise");
    let mut worst = Price::ZERO;
    for replacement in &command.replacements {
        let Replacement::Planned(claim) = replacement else { panic!("{}", told(command)) };
        let types = claim.instance_types.iter();
        let prices = types.map(|one| one.worst_launch_price(&claim.requirements, &snapshot.labels));
        worst += prices.max().expect("a type");
        let stays_spot = |one: &kerf_disruption::Candidate| {
            one.capacity_type.as_deref() == Some(SPOT)
                && claim.requirements.get(CAPACITY_TYPE).is_none_or(|wanted| wanted.has(SPOT))
        };
        let needs_choice = command.candidates.len() == 1 && stays_spot(&command.candidates[0]);
        let types = claim.instance_types.len();
        assert!(!needs_choice || types >= 15, "seed {seed}: {}", told(command));
    }
    assert!(worst < whole && worst <= promise.at_most, "seed {seed}: {}", told(command));
}

#[test]
fn the_number_of_threads_does_not_matter() {
    for seed in 0..100 {
        let snapshot = random_snapshot(seed);
        let of = |threads: usize| {
            let settings = Settings { looks_per_pass: 4, ..settings(threads) };
            let mut memory = Memory::default();
            let passes = (0..4).map(|_| {
                let pass = pass(&snapshot, &settings, &mut memory);
                format!("{:?} {:?} {:?}", pass.commands, pass.refused, pass.complete)
            });
            passes.collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(5), "seed {seed}");
    }
}
