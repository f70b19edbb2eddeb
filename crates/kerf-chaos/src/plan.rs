//! What happens in a run: a list of timed actions that follows from a seed.
//!
//! A plan is a value. It names objects that it makes itself; of those that the cluster makes (nodes, claims, pods) it says which one
//! by a number, and the player takes the object at that place in the order of names. So an action can be left out and the others
//! still have a meaning.

mod account;
mod features;
mod hostile;
mod moments;
mod picky;
mod pools;
mod users;
mod weather;
mod workloads;

use kerf_testbed::Random;
pub(crate) use kerf_testbed::actors::NEVER_DETACHES;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use account::AccountFault;
pub use features::Gates;
pub use weather::{ApiFault, ApiRule, CloudKind, CloudRule};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
/// What a cluster needs to come to rest.
pub const CALM: u64 = 125 * MINUTE;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub seed: u64,
    /// Whose machines they are.
    #[serde(default)]
    pub provider: Provider,
    /// Whether watches last 15 s, as in production, or minutes. Connections hang only in the first case.
    pub short_watches: bool,
    #[serde(default)]
    pub gates: Gates,
    pub actions: Vec<Timed>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Provider {
    #[default]
    Kwok,
    Aws,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timed {
    /// Milliseconds since the start.
    pub at: u64,
    pub action: Action,
}

/// A kind of which the cluster has objects that the plan does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Crowd {
    Nodes,
    Claims,
    Pods,
    /// `PersistentVolumes`.
    Volumes,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// A user makes an object.
    Create(Value),
    /// A user changes an object that the plan has made: a merge patch.
    Patch {
        kind: String,
        name: String,
        patch: Value,
    },
    Delete {
        kind: String,
        name: String,
    },
    /// A user changes one of a crowd.
    PatchOne {
        of: Crowd,
        which: u64,
        status: bool,
        patch: Value,
    },
    DeleteOne {
        of: Crowd,
        which: u64,
    },
    /// `kubectl drain`: cordons a node and asks for the eviction of all its pods.
    Drain {
        which: u64,
    },
    /// A field that cannot be read, until all is well again.
    Spoil {
        of: Crowd,
        which: u64,
    },
    /// A claim, made by hand, that says it has the instance of another.
    Pretend {
        which: u64,
    },
    /// From now on these are the faults between a replica and the API server.
    Api {
        replica: usize,
        rules: Vec<ApiRule>,
    },
    /// From now on these are the faults of the cloud.
    Cloud(Vec<CloudRule>),
    /// Something goes wrong in the account of AWS.
    Account(AccountFault),
    /// There is no more of these, until all is well again.
    Exhaust {
        instance_type: Option<String>,
        zone: Option<String>,
        capacity_type: Option<String>,
    },
    Restock,
    /// The cloud has an instance that was launched for a claim of which nobody knows any more.
    Plant {
        which: u64,
    },
    /// The instance of a claim is gone, and its kubelet with it.
    Vanish {
        which: u64,
    },
    /// The cloud would launch something else for this claim today.
    Drift {
        which: u64,
    },
    /// The kubelet of a node falls silent, until all is well again.
    Silence {
        which: u64,
    },
    /// A node says of itself that it has this fault, or that it has it no longer; none has when all is well again.
    Ail {
        which: u64,
        kind: String,
        on: bool,
    },
    /// SIGKILL, and a new process after so many seconds.
    Kill {
        replica: usize,
        down: u64,
    },
    /// SIGTERM, and a new process after so many seconds.
    Stop {
        replica: usize,
        down: u64,
    },
    /// The leader's machine is suspended for longer than the lease lasts, and goes on: the other leads by then.
    Suspend,
    /// Somebody sets the clock of a replica.
    SetClock {
        replica: usize,
        by: i64,
    },
    /// There are no faults, and no user changes anything for so many milliseconds.
    Calm(u64),
}

impl Plan {
    /// The plan of this seed and provider.
    pub fn of(seed: u64, hours: u64, provider: Provider) -> Self {
        let mut random = Random::seeded(seed ^ 0xc4a0_5000);
        let short_watches = random.chance(0.25);
        let mut features = Random::seeded(seed ^ 0xfea7_0000);
        let mut of_moments = Random::seeded(seed ^ 0x3033_0000);
        let gates = Gates::of(&mut features).and_later(&mut of_moments);
        let mut plan = Self { seed, provider, short_watches, gates, actions: Vec::new() };
        let mut workloads = workloads::Workloads::default();
        for object in pools::first(&mut random.fork())
            .into_iter()
            .chain(workloads::first())
            .chain(gates.first())
        {
            plan.add(0, Action::Create(object));
        }
        for _ in 0..3 + random.below(4) {
            for object in workloads.another(&mut random) {
                plan.add(MINUTE, Action::Create(object));
            }
        }
        let (mut now, end) = (5 * MINUTE, hours * HOUR);
        while now < end {
            let storm = (1 + random.below(5)) * HOUR;
            // What is left has to be enough to come to rest.
            let until = (now + storm).min(end.saturating_sub(CALM).max(now + HOUR / 2));
            plan.storm(&mut random, &mut workloads, now, until);
            let of_features = gates.storm(&mut features, now, until);
            for (at, action) in of_features
                .into_iter()
                .chain(picky::storm(&mut features, now, until))
                .chain(moments::storm(&mut of_moments, now, until, short_watches))
            {
                plan.add(at, action);
            }
            plan.add(until, Action::Calm(CALM));
            now = until + CALM + MINUTE;
        }
        plan
    }

    fn storm(
        &mut self,
        random: &mut Random,
        workloads: &mut workloads::Workloads,
        from: u64,
        until: u64,
    ) {
        let mut now = from;
        while now < until {
            for (later, action) in match random.below(20) {
                0..4 => workloads.change(random),
                4..7 => pools::change(random),
                7..11 => users::act(random),
                11 => hostile::act(random),
                12..16 => weather::change(random, self.short_watches),
                16..18 if self.provider == Provider::Aws && random.chance(0.7) => {
                    account::act(random)
                }
                16..18 => weather::cloud(random),
                _ => weather::replicas(random),
            } {
                self.add((now + later).min(until - 1), action);
            }
            // Often the next thing comes while the last is not over.
            let pause = if random.chance(0.5) { 20_000 } else { 15 * MINUTE };
            now += random.below(pause) + 1;
        }
    }

    fn add(&mut self, at: u64, action: Action) {
        let place = self.actions.partition_point(|it| it.at <= at);
        self.actions.insert(place, Timed { at, action });
    }

    /// The plan with these of its actions only.
    pub fn only(&self, places: &[usize]) -> Self {
        let kept = places.iter().filter_map(|place| self.actions.get(*place).cloned());
        Self { actions: kept.collect(), ..self.clone() }
    }
}

impl Action {
    /// In a line.
    pub fn describe(&self) -> String {
        let mut line = match self {
            Self::Create(object) => {
                format!("create {} {}", object["kind"], object["metadata"]["name"])
            }
            Self::Patch { kind, name, patch } => format!("patch {kind} {name} {patch}"),
            other => format!("{other:?}"),
        };
        if line.chars().count() > 200 {
            line = line.chars().take(200).chain("…".chars()).collect();
        }
        line
    }
}

fn choose<'a, T>(random: &mut Random, all: &'a [T]) -> &'a T {
    let place = random.below(all.len() as u64);
    &all[usize::try_from(place).unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_follows_from_its_seed_and_is_in_order() {
        let plan = Plan::of(7, 24, Provider::Kwok);
        assert_eq!(plan, Plan::of(7, 24, Provider::Kwok));
        assert_ne!(plan.actions, Plan::of(8, 24, Provider::Kwok).actions);
        assert!(plan.actions.is_sorted_by_key(|it| it.at));
        assert!(matches!(plan.actions.last().map(|it| &it.action), Some(Action::Calm(_))));
        assert!(plan.actions.len() > 50, "{}", plan.actions.len());
    }

    #[test]
    fn a_plan_can_be_written_down() {
        for provider in [Provider::Kwok, Provider::Aws] {
            let plan = Plan::of(7, 24, provider);
            let written = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&written).unwrap(), plan);
        }
    }

    #[test]
    fn only_an_account_of_aws_has_faults_of_its_own() {
        for (provider, expected) in [(Provider::Kwok, false), (Provider::Aws, true)] {
            let plan = Plan::of(7, 24, provider);
            let is_of_account = |it: &Timed| matches!(it.action, Action::Account(_));
            assert_eq!(plan.actions.iter().any(is_of_account), expected, "{provider:?}");
        }
    }
}
