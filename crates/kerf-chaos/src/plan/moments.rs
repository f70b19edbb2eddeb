//! Faults at the worst moment. What goes wrong at any time mostly finds operators that wait; here it comes while the leader is about
//! to launch, to disrupt, or to look at a decision a second time.
//!
//! They come from a stream of their own, as features do, and are over when all is well again.

use kerf_testbed::Random;
use serde_json::{Value, json};

use super::weather::{ApiFault, ApiRule, CloudKind, CloudRule};
use super::{Action, Crowd, MINUTE, NEVER_DETACHES, choose};

const SECOND: u64 = 1_000;
const POOLS: [&str; 3] = ["p0", "p1", "p2"];
/// Nobody edits it, so that what happens to its nodes follows from what happens here.
const HAVEN: &str = "haven";

type Moment = Vec<(u64, Action)>;

/// What happens between two calms, each with its time.
pub(super) fn storm(
    random: &mut Random,
    from: u64,
    until: u64,
    short_watches: bool,
) -> Vec<(u64, Action)> {
    let (mut now, mut all) = (from + random.below(30 * MINUTE), Vec::new());
    while now < until {
        let actions = moment(random, short_watches);
        all.extend(actions.into_iter().map(|(later, it)| ((now + later).min(until - 1), it)));
        now += 5 * MINUTE + random.below(60 * MINUTE);
    }
    all
}

fn moment(random: &mut Random, short_watches: bool) -> Moment {
    match random.below(12) {
        0 | 1 => handover(random),
        2 => lost_launches(random),
        4 => wave(random),
        5 => second_look(random),
        6 | 7 => failed_replacement(random),
        8 => stuck_volume(random),
        // With long watches an operator is blind for minutes before it can know.
        9 if short_watches => missing_right(random),
        3 | 9 => lost_writes(random),
        10 => vec![(0, Action::Plant { which: random.next_u64() })],
        _ => late_cloud(random),
    }
}

/// Pods that come at once and stay for a while, each on a node of its own where `apart`.
struct Rush {
    name: String,
    replicas: u64,
    pool: &'static str,
    apart: bool,
    cpu: &'static str,
}

impl Rush {
    fn new(random: &mut Random, pool: &'static str, apart: bool) -> Self {
        Self {
            name: format!("rush-{}", random.below(100_000)),
            replicas: 4 + random.below(6),
            pool,
            apart,
            cpu: *choose(random, &["700m", "1500m", "3"]),
        }
    }

    fn comes(&self) -> Action {
        let labels = json!({"app": self.name});
        let mut spec = json!({
            "terminationGracePeriodSeconds": 1, "nodeSelector": {"karpenter.sh/nodepool": self.pool},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "containers": [{
                "name": "main", "image": "main",
                "resources": {"requests": {"cpu": self.cpu, "memory": "256Mi"}},
            }],
        });
        if self.apart {
            let term = json!({
                "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels},
            });
            spec["affinity"] = json!({"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
            }});
        }
        Action::Create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "replicas": self.replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }))
    }

    fn shrinks_to(&self, replicas: u64) -> Action {
        let patch = json!({"spec": {"replicas": replicas}});
        Action::Patch { kind: "Deployment".to_owned(), name: self.name.clone(), patch }
    }

    fn goes(&self) -> Action {
        Action::Delete { kind: "Deployment".to_owned(), name: self.name.clone() }
    }
}

fn patch_pool(name: &str, patch: Value) -> Action {
    Action::Patch { kind: "NodePool".to_owned(), name: name.to_owned(), patch }
}

fn budget(nodes: &str) -> Value {
    json!({"spec": {"disruption": {"budgets": [{"nodes": nodes}]}}})
}

/// Nothing but budgets keeps its nodes, and nothing keeps it from launching.
fn willing(pool: &str, nodes: &str) -> Action {
    patch_pool(
        pool,
        json!({"spec": {
            "limits": null,
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s",
                "budgets": [{"nodes": nodes}], "consolidationUtilizationThreshold": null,
                "consolidationPriceImprovementFactor": null, "consolidationSavingsThreshold": null,
                "consolidationGracePeriod": null,
            },
        }}),
    )
}

fn drifts(random: &mut Random, pool: &str) -> Action {
    let version = format!("v{}", random.below(1_000_000));
    patch_pool(pool, json!({"spec": {"template": {"metadata": {"labels": {"version": version}}}}}))
}

/// The lease goes to the other while the leader launches, drains or replaces. It has to notice before its next write.
fn handover(random: &mut Random) -> Moment {
    let rush = Rush::new(random, HAVEN, true);
    let mut all = vec![(0, rush.comes())];
    // Batches close within ten seconds; what follows from them takes some more.
    let busy = 1_000 + random.below(25 * SECOND);
    let end = if random.chance(0.8) {
        Action::Suspend
    } else {
        Action::Kill { replica: usize::from(random.chance(0.5)), down: random.below(60) }
    };
    all.push((busy, end));
    // The same while nodes go.
    let over = 5 * MINUTE + random.below(20 * MINUTE);
    let which = random.next_u64();
    all.push((over, rush.goes()));
    all.push((over + random.below(SECOND), Action::DeleteOne { of: Crowd::Claims, which }));
    all.push((over + random.below(10 * SECOND), Action::Suspend));
    all
}

/// Instances are launched, and the operator hears of errors only.
fn lost_launches(random: &mut Random) -> Moment {
    let apart = random.chance(0.5);
    let rush = Rush::new(random, HAVEN, apart);
    let rate = *choose(random, &[0.5, 1.0]);
    let lost = CloudRule { rate, fault: CloudKind::LaunchAnswerLost };
    vec![
        (0, Action::Cloud(vec![lost])),
        (1, rush.comes()),
        (20 * SECOND + random.below(3 * MINUTE), Action::Cloud(Vec::new())),
        (5 * MINUTE + random.below(30 * MINUTE), rush.goes()),
    ]
}

/// The API server does what the replicas ask for, and they hear nothing of it.
fn lost_writes(random: &mut Random) -> Moment {
    let rush = Rush::new(random, HAVEN, true);
    let resource = *choose(random, &["nodeclaims", "nodeclaims", "nodes", "pods"]);
    let after = 1 + random.below(6 * SECOND);
    let until = 20 * SECOND + random.below(2 * MINUTE);
    let over = 5 * MINUTE + random.below(20 * MINUTE);
    let mut all = vec![(1, rush.comes()), (over, rush.goes())];
    for (replica, from) in [(0, 0), (1, 0), (0, over), (1, over)] {
        let lost = ApiRule {
            rate: 0.7,
            resource: resource.to_owned(),
            writes: true,
            fault: ApiFault::TimeoutAfter(after),
        };
        all.push((from, Action::Api { replica, rules: vec![lost] }));
        all.push((from + until, Action::Api { replica, rules: Vec::new() }));
    }
    all
}

/// All nodes of a pool drift at once, and few may go at a time. Some are deleted by users meanwhile.
fn wave(random: &mut Random) -> Moment {
    let pool = *choose(random, &POOLS);
    let rush = Rush::new(random, pool, true);
    let least = *choose(random, &["1", "1", "2", "10%"]);
    let begin = 3 * MINUTE + random.below(3 * MINUTE);
    let mut all = vec![(0, willing(pool, least)), (1, rush.comes()), (begin, drifts(random, pool))];
    // A limit of nodes that leaves no room for a replacement.
    if random.chance(0.4) {
        let limit = json!({"spec": {"limits": {"nodes": "1"}}});
        all.push((begin - SECOND, patch_pool(pool, limit)));
        let raised = json!({"spec": {"limits": {"nodes": null}}});
        all.push((begin + 10 * MINUTE, patch_pool(pool, raised)));
    }
    for _ in 0..random.below(3) {
        let which = random.next_u64();
        let later = begin + random.below(3 * MINUTE);
        all.push((later, Action::DeleteOne { of: Crowd::Claims, which }));
    }
    all.push((begin + 20 * MINUTE + random.below(20 * MINUTE), rush.goes()));
    all
}

/// A budget allows a command, and nothing any more when it is looked at a second time, 15 s later.
fn second_look(random: &mut Random) -> Moment {
    let pool = *choose(random, &POOLS);
    let apart = random.chance(0.7);
    let rush = Rush::new(random, pool, apart);
    let begin = 4 * MINUTE;
    let mut all =
        vec![(0, willing(pool, "0")), (1, rush.comes()), (begin, rush.shrinks_to(random.below(3)))];
    for turn in 0..8 {
        let open = begin + 20 * SECOND + turn * 40 * SECOND + random.below(5 * SECOND);
        all.push((open, patch_pool(pool, budget("100%"))));
        all.push((open + 8 * SECOND, patch_pool(pool, budget("0"))));
    }
    all.push((begin + 9 * MINUTE, patch_pool(pool, budget("100%"))));
    all.push((begin + 10 * MINUTE, rush.goes()));
    all
}

/// What is to replace a node does not come, or is not what was asked for.
fn failed_replacement(random: &mut Random) -> Moment {
    let pool = if random.chance(0.5) { HAVEN } else { *choose(random, &POOLS) };
    let mut rush = Rush::new(random, pool, false);
    rush.replicas += 4;
    let begin = 3 * MINUTE + random.below(2 * MINUTE);
    let over = begin + 15 * MINUTE + random.below(40 * MINUTE);
    let mut all = vec![(1, rush.comes()), (begin, rush.shrinks_to(1 + random.below(3)))];
    if pool != HAVEN {
        all.push((0, willing(pool, "100%")));
        if random.chance(0.4) {
            all.push((begin + MINUTE, drifts(random, pool)));
        }
    }
    let fault = *choose(
        random,
        &[
            CloudKind::InsufficientCapacity,
            CloudKind::NeverRegisters,
            CloudKind::NeverReady,
            CloudKind::LaunchDear,
            CloudKind::LaunchDear,
            CloudKind::LaunchRefused,
        ],
    );
    all.push((begin, Action::Cloud(vec![CloudRule { rate: 1.0, fault }])));
    all.push((over, Action::Cloud(Vec::new())));
    all.push((over + random.below(5 * MINUTE), rush.goes()));
    all
}

/// A volume does not come off its node for a while.
fn stuck_volume(random: &mut Random) -> Moment {
    let which = random.next_u64();
    let stuck = |stuck: Value| {
        let patch = json!({"metadata": {"annotations": {NEVER_DETACHES: stuck}}});
        Action::PatchOne { of: Crowd::Volumes, which, status: false, patch }
    };
    let until = MINUTE + random.below(20 * MINUTE);
    vec![
        (0, stuck(json!("true"))),
        (SECOND, Action::DeleteOne { of: Crowd::Claims, which: random.next_u64() }),
        (2 * SECOND, Action::Drain { which: random.next_u64() }),
        (3 * SECOND, Action::DeleteOne { of: Crowd::Nodes, which: random.next_u64() }),
        (until, stuck(Value::Null)),
    ]
}

/// An operator may not read what it could read before.
fn missing_right(random: &mut Random) -> Moment {
    let resources =
        ["nodes", "nodeclaims", "nodepools", "pods", "poddisruptionbudgets", "daemonsets"];
    let resource = (*choose(random, &resources)).to_owned();
    let missing = ApiRule { rate: 1.0, resource, writes: false, fault: ApiFault::Forbidden };
    let replica = usize::from(random.chance(0.5));
    let mut all = vec![
        (0, Action::Api { replica, rules: vec![missing] }),
        (MINUTE + random.below(20 * MINUTE), Action::Api { replica, rules: Vec::new() }),
    ];
    // One that begins without it.
    if random.chance(0.5) {
        all.push((SECOND, Action::Kill { replica, down: 1 }));
    }
    all
}

/// The cloud is away when operators begin.
fn late_cloud(random: &mut Random) -> Moment {
    let away = CloudRule { rate: 1.0, fault: CloudKind::StartRefused };
    vec![
        (0, Action::Cloud(vec![away])),
        (1, Action::Kill { replica: 0, down: random.below(30) }),
        (2, Action::Kill { replica: 1, down: random.below(30) }),
        (MINUTE + random.below(10 * MINUTE), Action::Cloud(Vec::new())),
    ]
}
