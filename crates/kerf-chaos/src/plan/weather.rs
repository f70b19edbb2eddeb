//! What goes wrong between operators, API server and cloud, and with the processes themselves.

use kerf_testbed::{CloudFault, Fault, Matching, Random, Verb, WatchCut};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::{Action, MINUTE, choose};

/// One fault between a replica and the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiRule {
    pub rate: f64,
    /// Empty: all.
    pub resource: String,
    pub writes: bool,
    pub fault: ApiFault,
}

/// Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApiFault {
    Conflict,
    Forbidden,
    TooManyRequests,
    InternalError,
    TimeoutBefore(u64),
    TimeoutAfter(u64),
    Delay(u64),
    WatchEnds(u64),
    WatchExpires(u64),
    WatchHangs(u64),
    WatchDelay(u64),
}

impl ApiRule {
    pub(crate) fn matching(&self) -> Matching {
        let matching = if self.writes { Matching::writes() } else { Matching::any() };
        let matching = match self.fault {
            ApiFault::WatchEnds(_)
            | ApiFault::WatchExpires(_)
            | ApiFault::WatchHangs(_)
            | ApiFault::WatchDelay(_) => matching.verb(Verb::Watch),
            _ => matching,
        };
        if self.resource.is_empty() { matching } else { matching.resource(&self.resource) }
    }

    pub(crate) fn fault(&self) -> Fault {
        let millis = Duration::from_millis;
        match self.fault {
            ApiFault::Conflict => Fault::Conflict,
            ApiFault::Forbidden => Fault::Forbidden,
            ApiFault::TooManyRequests => Fault::TooManyRequests(1),
            ApiFault::InternalError => Fault::InternalError,
            ApiFault::TimeoutBefore(after) => Fault::TimeoutBefore(millis(after)),
            ApiFault::TimeoutAfter(after) => Fault::TimeoutAfter(millis(after)),
            ApiFault::Delay(delay) => Fault::Delay(millis(delay)),
            ApiFault::WatchEnds(after) => Fault::Watch(WatchCut::After(millis(after))),
            ApiFault::WatchExpires(after) => Fault::Watch(WatchCut::Expired(millis(after))),
            ApiFault::WatchHangs(after) => Fault::Watch(WatchCut::Hung(millis(after))),
            ApiFault::WatchDelay(delay) => Fault::WatchDelay(millis(delay)),
        }
    }
}

/// One fault of the cloud. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudRule {
    pub rate: f64,
    pub fault: CloudKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CloudKind {
    InsufficientCapacity,
    LaunchRefused,
    Throttled(u64),
    Unauthorized,
    LaunchDear,
    LaunchSlow(u64),
    LaunchAnswerLost,
    NeverRegisters,
    NeverReady,
    TerminationRefused,
    TerminationSlow(u64),
    ReadRefused,
    CatalogueRefused,
    StartRefused,
}

impl CloudRule {
    pub(crate) fn fault(&self) -> CloudFault {
        let millis = Duration::from_millis;
        match self.fault {
            CloudKind::InsufficientCapacity => CloudFault::InsufficientCapacity,
            CloudKind::LaunchRefused => CloudFault::LaunchRefused,
            CloudKind::Throttled(pause) => CloudFault::Throttled(millis(pause)),
            CloudKind::Unauthorized => CloudFault::Unauthorized,
            CloudKind::LaunchDear => CloudFault::LaunchDear,
            CloudKind::LaunchSlow(delay) => CloudFault::LaunchSlow(millis(delay)),
            CloudKind::LaunchAnswerLost => CloudFault::LaunchAnswerLost,
            CloudKind::NeverRegisters => CloudFault::NeverRegisters,
            CloudKind::NeverReady => CloudFault::NeverReady,
            CloudKind::TerminationRefused => CloudFault::TerminationRefused,
            CloudKind::TerminationSlow(delay) => CloudFault::TerminationSlow(millis(delay)),
            CloudKind::ReadRefused => CloudFault::ReadRefused,
            CloudKind::CatalogueRefused => CloudFault::CatalogueRefused,
            CloudKind::StartRefused => CloudFault::StartRefused,
        }
    }
}

/// The way to the API server gets worse for a replica, and better again.
pub(super) fn change(random: &mut Random, short_watches: bool) -> Vec<(u64, Action)> {
    let replica = usize::try_from(random.below(2)).unwrap_or_default();
    let until = if random.chance(0.3) { 2 * MINUTE } else { 60 * MINUTE };
    let until = 1_000 + random.below(until);
    let mut rules = Vec::new();
    if random.chance(0.2) {
        // Nothing gets through, or no answer comes back.
        let after = 5_000;
        let faults = [ApiFault::TimeoutBefore(after), ApiFault::TimeoutAfter(after)];
        rules.push(rule(1.0, "", false, *choose(random, &faults)));
    } else {
        for _ in 0..=random.below(4) {
            rules.push(fault(random, short_watches));
        }
    }
    let better = Action::Api { replica, rules: Vec::new() };
    vec![(0, Action::Api { replica, rules }), (until, better)]
}

fn rule(rate: f64, resource: &str, writes: bool, fault: ApiFault) -> ApiRule {
    ApiRule { rate, resource: resource.to_owned(), writes, fault }
}

fn fault(random: &mut Random, short_watches: bool) -> ApiRule {
    let resources = ["nodes", "nodeclaims", "nodepools", "pods", "events", "leases", ""];
    let resource = *choose(random, &resources);
    let seconds = |random: &mut Random, most: u64| 1 + random.below(most * 1_000);
    match random.below(10) {
        0 => rule(0.3, resource, true, ApiFault::Conflict),
        // A right that is missing for a while.
        1 if resource != "leases" && !resource.is_empty() => {
            rule(1.0, resource, true, ApiFault::Forbidden)
        }
        1 | 2 => rule(0.2, resource, false, ApiFault::TooManyRequests),
        3 => rule(0.2, resource, false, ApiFault::InternalError),
        4 => rule(0.1, resource, true, ApiFault::TimeoutBefore(seconds(random, 6))),
        5 => rule(0.2, resource, true, ApiFault::TimeoutAfter(seconds(random, 6))),
        6 => rule(0.3, resource, false, ApiFault::Delay(seconds(random, 4))),
        7 => rule(0.5, "", false, ApiFault::WatchDelay(seconds(random, 10))),
        8 if short_watches => rule(0.3, "", false, ApiFault::WatchHangs(seconds(random, 15))),
        8 => rule(0.5, "", false, ApiFault::WatchEnds(seconds(random, 60))),
        _ => rule(0.3, "", false, ApiFault::WatchExpires(seconds(random, 300))),
    }
}

/// The cloud has a bad hour.
pub(super) fn cloud(random: &mut Random) -> Vec<(u64, Action)> {
    let which = random.next_u64();
    let until = 1_000 + random.below(60 * MINUTE);
    match random.below(8) {
        0 => vec![(0, Action::Vanish { which })],
        1 => vec![(0, Action::Drift { which })],
        2 => vec![(0, Action::Silence { which })],
        3 | 4 => {
            let zone = random.chance(0.6).then(|| "test-zone-a".to_owned());
            let capacity_type = random.chance(0.6).then(|| "spot".to_owned());
            let instance_type = random.chance(0.3).then(|| "c-1x-amd64-linux".to_owned());
            // All of everything is another fault.
            let zone = zone.or_else(|| Some("test-zone-b".to_owned()));
            vec![
                (0, Action::Exhaust { instance_type, zone, capacity_type }),
                (until, Action::Restock),
            ]
        }
        _ => {
            let faults = [
                CloudKind::InsufficientCapacity,
                CloudKind::LaunchRefused,
                CloudKind::Throttled(20_000),
                CloudKind::Unauthorized,
                CloudKind::LaunchDear,
                CloudKind::LaunchSlow(1 + random.below(90_000)),
                CloudKind::LaunchAnswerLost,
                CloudKind::NeverRegisters,
                CloudKind::NeverReady,
                CloudKind::TerminationRefused,
                CloudKind::TerminationSlow(1 + random.below(10 * MINUTE)),
                CloudKind::ReadRefused,
                CloudKind::CatalogueRefused,
            ];
            let rate = *choose(random, &[0.1, 0.4, 1.0]);
            let rules =
                (0..=random.below(2)).map(|_| CloudRule { rate, fault: *choose(random, &faults) });
            let rules = rules.collect();
            vec![(0, Action::Cloud(rules)), (until, Action::Cloud(Vec::new()))]
        }
    }
}

/// A process ends, stands still, or has another time.
pub(super) fn replicas(random: &mut Random) -> Vec<(u64, Action)> {
    let replica = usize::try_from(random.below(2)).unwrap_or_default();
    let down = random.below(120);
    let action = match random.below(7) {
        0..3 => Action::Kill { replica, down },
        3 => Action::Stop { replica, down },
        4 | 5 => Action::Suspend,
        _ => {
            let by = i64::try_from(random.below(480)).unwrap_or_default() - 240;
            // Not for ever: who is minutes off for hours is found by other means.
            let back = Action::SetClock { replica, by: -by };
            return vec![(0, Action::SetClock { replica, by }), (random.below(30 * MINUTE), back)];
        }
    };
    vec![(0, action)]
}
