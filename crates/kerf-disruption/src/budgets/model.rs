//! A slow model of the same rules, for tests: node by node, minute by minute, and by counting up to a percentage.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp, ToSpan};
use kerf_api::{Budget, DisruptionReason};
use kerf_model::{
    Node, Pool, Snapshot,
    cron::Schedule,
    disruption::{NodeDisruption, PoolDisruption},
    reboot::{LastReboot, RebootHistory},
};
use proptest::{collection::vec, prelude::*, sample::select};

use super::{Allowance, allowances};

const POOL: &str = "default";

/// A node of the pool or of another, with or without a claim, and what may be wrong with it.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, none implies another")]
#[derive(Clone, Debug)]
struct Member {
    ours: bool,
    claimed: bool,
    initialized: bool,
    terminating: bool,
    ready: bool,
    deleting: bool,
    last: LastReboot,
}

impl Member {
    fn counts(&self) -> bool {
        let came_up = self.initialized || self.last != LastReboot::None;
        self.ours && self.claimed && came_up && !self.terminating
    }
}

fn expected(
    members: &[Member],
    budgets: &[Budget],
    reason: DisruptionReason,
    now: Timestamp,
) -> Allowance {
    let mut expected = Allowance { allowed: Allowance::UNLIMITED, ..Allowance::default() };
    for member in members.iter().filter(|member| member.counts()) {
        expected.nodes += 1;
        let out_of_service = !member.ready && reason != DisruptionReason::Unhealthy;
        if member.deleting || out_of_service || member.last == LastReboot::UnderWay {
            expected.disrupting += 1;
        }
    }
    for budget in budgets {
        let about = budget.reasons.as_ref().is_none_or(|reasons| reasons.contains(&reason));
        if about && is_open(budget, now) {
            let allows = match budget.nodes.strip_suffix('%') {
                Some(percent) => {
                    let share = percent.parse::<u32>().unwrap() * expected.nodes;
                    (0..=expected.nodes).find(|nodes| nodes * 100 >= share).unwrap()
                }
                None => budget.nodes.parse().unwrap(),
            };
            expected.allowed = expected.allowed.min(allows);
        }
    }
    expected
}

fn is_open(budget: &Budget, now: Timestamp) -> bool {
    let (Some(schedule), Some(duration)) = (&budget.schedule, &budget.duration) else {
        return true;
    };
    let duration = SignedDuration::try_from(duration.as_duration()).unwrap();
    let mut minute = Timestamp::from_second(now.as_second().div_euclid(60) * 60).unwrap();
    let schedule: Schedule = schedule.parse().unwrap();
    while now.duration_since(minute) < duration {
        let before = minute - SignedDuration::from_mins(1);
        if schedule.last_hit(before, minute).is_some() {
            return true;
        }
        minute = before;
    }
    false
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let often = || prop::bool::weighted(0.8);
    let seldom = || prop::bool::weighted(0.2);
    let at = Timestamp::UNIX_EPOCH;
    let last = prop_oneof![
        4 => Just(LastReboot::None),
        1 => Just(LastReboot::UnderWay),
        1 => Just(LastReboot::Succeeded { at }),
        1 => Just(LastReboot::Failed { at }),
    ];
    let member = (often(), often(), often(), seldom(), often(), seldom(), last).prop_map(
        |(ours, claimed, initialized, terminating, ready, deleting, last)| Member {
            ours,
            claimed,
            initialized,
            terminating,
            ready,
            deleting,
            last,
        },
    );
    vec(member, 0..40)
}

fn budgets() -> impl Strategy<Value = Vec<Budget>> {
    let nodes = prop_oneof![
        (0u32..20).prop_map(|nodes| nodes.to_string()),
        (0u32..=100).prop_map(|percent| format!("{percent}%")),
    ];
    let reasons =
        prop::option::of(prop::sample::subsequence(DisruptionReason::ALL.to_vec(), 0..=4));
    let schedule = (
        select(vec!["*", "0", "30", "*/7", "5-50/5"]),
        select(vec!["*", "9", "*/5", "22-23", "0,12"]),
        select(vec!["*", "1", "*/2", "10-20"]),
        select(vec!["*", "2", "1-6"]),
        select(vec!["*", "0", "1-5", "6"]),
    )
        .prop_map(|(minutes, hours, days, months, weekdays)| {
            format!("{minutes} {hours} {days} {months} {weekdays}")
        });
    let window = prop::option::of((schedule, 1u32..(24 * 60)));
    let budget = (nodes, reasons, window).prop_map(|(nodes, reasons, window)| {
        let (schedule, minutes) = window.unzip();
        let duration = minutes.map(|minutes| format!("{minutes}m").parse().unwrap());
        Budget { nodes, schedule, duration, reasons }
    });
    vec(budget, 0..4)
}

fn snapshot(members: &[Member], budgets: Vec<Budget>, now: Timestamp) -> Snapshot {
    let nodes = members.iter().enumerate().map(|(at, member)| {
        Arc::new(Node {
            name: format!("node-{at}"),
            pool: Some(if member.ours { POOL } else { "other" }.to_owned()),
            claim: member.claimed.then(|| format!("claim-{at}")),
            initialized: member.initialized,
            deleting: member.deleting,
            exists: true,
            disruption: NodeDisruption {
                ready: member.ready,
                instance_terminating: member.terminating,
                reboots: RebootHistory { last: member.last, ..RebootHistory::default() },
                ..NodeDisruption::default()
            },
            ..Node::default()
        })
    });
    let disruption = PoolDisruption { budgets, ..PoolDisruption::default() };
    let pool = Pool { name: POOL.to_owned(), disruption, ..Pool::default() };
    let pools = BTreeMap::from([(POOL.to_owned(), Arc::new(pool))]);
    Snapshot { now, nodes: nodes.collect(), pools, ..Snapshot::default() }
}

proptest! {
    #[test]
    fn allowances_agree_with_a_count(
        members in members(),
        budgets in budgets(),
        second in 0i64..(400 * 24 * 60 * 60),
    ) {
        let now = "2027-12-20T00:00:00Z".parse::<Timestamp>().unwrap() + second.seconds();
        let snapshot = snapshot(&members, budgets.clone(), now);
        for reason in DisruptionReason::ALL {
            let expected = expected(&members, &budgets, reason, now);
            let got = allowances(&snapshot, reason)[POOL];
            prop_assert_eq!(got, expected, "{:?} {:?} at {}", reason, &budgets, now);
            let left = i64::from(expected.allowed) - i64::from(expected.disrupting);
            prop_assert_eq!(i64::from(got.left()), left.max(0));
        }
    }
}
