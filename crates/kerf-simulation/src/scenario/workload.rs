//! Workloads: pods of one kind, and how many of them there are when.

use std::{collections::BTreeMap, f64::consts::TAU, time::Duration};

use kerf_api::GoDuration;
use kerf_manifests::MOST_PODS;
use kerf_model::{Quantity, cron::Schedule};
use kerf_testbed::Random;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Scalar, Wrong, new_year};

/// A Deployment, a `CronJob` or a DaemonSet, with its disruption budget.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Workload {
    pub name: String,
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// How many pods there are, from the start until a step says otherwise.
    #[serde(default)]
    pub replicas: Option<u32>,
    #[serde(default)]
    pub steps: Vec<ReplicaStep>,
    /// A number of pods that follows the day.
    #[serde(default)]
    pub daily: Option<Daily>,
    /// Pods that come by a schedule and end by themselves.
    #[serde(default)]
    pub cron: Option<Cron>,
    /// One pod on each node.
    #[serde(default)]
    pub daemon: bool,
    #[serde(default)]
    pub pod: PodTemplate,
    /// A PodDisruptionBudget's spec without its selector, e.g. `{maxUnavailable: 1}`.
    #[serde(default)]
    pub budget: Option<Map<String, Value>>,
}

/// What the pods of a workload look like.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PodTemplate {
    #[serde(default)]
    pub cpu: Option<Scalar>,
    #[serde(default)]
    pub memory: Option<Scalar>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// The annotation `karpenter.sh/do-not-disrupt`.
    #[serde(default)]
    pub do_not_disrupt: bool,
    /// Merged into the pods' spec: selectors, spread constraints, priorities.
    #[serde(default)]
    pub spec: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaStep {
    pub at: GoDuration,
    pub replicas: u32,
    /// In how long the number gets there, evenly; at once without it.
    #[serde(default)]
    pub over: Option<GoDuration>,
}

/// A cosine between `low` and `high`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Daily {
    pub low: u32,
    pub high: u32,
    /// The time of day with the most pods.
    #[serde(default = "early_afternoon")]
    pub peak: GoDuration,
    /// How often the number is adjusted.
    #[serde(default = "ten_minutes")]
    pub every: GoDuration,
    /// By how many percent the number is off the curve, up or down, by chance.
    #[serde(default)]
    pub noise: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Cron {
    /// Five fields, in UTC.
    pub schedule: String,
    /// Pods that run side by side each time.
    #[serde(default = "one")]
    pub pods: u32,
    pub runs_for: GoDuration,
}

/// A ramp takes a step this often at most: workloads are scaled by autoscalers that look once in 15 seconds.
const RAMP_TICK: Duration = Duration::from_secs(15);
const DAY: f64 = 86_400.0;

impl Workload {
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the number of its pods is somebody's to choose.
    pub(crate) fn scales(&self) -> bool {
        self.replicas.is_some() || self.daily.is_some()
    }

    /// Whether it is the same at all times.
    pub(crate) fn is_constant(&self) -> bool {
        self.daily.is_none() && self.cron.is_none() && self.steps.is_empty()
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let kinds =
            [self.replicas.is_some(), self.daily.is_some(), self.cron.is_some(), self.daemon];
        match kinds.iter().filter(|given| **given).count() {
            0 => {
                let problem =
                    "the number of pods is missing; write replicas, daily, cron or daemon: true";
                return Err(Wrong::new("replicas", problem));
            }
            1 => {}
            _ => {
                let problem = "write only one of replicas, daily, cron and daemon";
                return Err(Wrong::new("replicas", problem));
            }
        }
        if !self.steps.is_empty() && self.replicas.is_none() {
            return Err(Wrong::new("steps", "they change replicas, and replicas is missing"));
        }
        if self.steps.is_sorted_by_key(|step| step.at.as_duration()) {
            self.check_details()
        } else {
            Err(Wrong::new("steps", "they are not in chronological order"))
        }
    }

    fn check_details(&self) -> Result<(), Wrong> {
        let steps = self.steps.iter().map(|step| ("steps", Some(step.replicas)));
        let once = [
            ("replicas", self.replicas),
            ("daily.high", self.daily.as_ref().map(|daily| daily.high)),
            ("cron.pods", self.cron.as_ref().map(|cron| cron.pods)),
        ];
        for (field, pods) in once.into_iter().chain(steps) {
            if pods.is_some_and(|pods| pods as usize > MOST_PODS) {
                let problem = format!("a simulation has at most {MOST_PODS} pods");
                return Err(Wrong::new(field, problem));
            }
        }
        if let Some(daily) = &self.daily {
            if daily.low > daily.high {
                return Err(Wrong::new("daily", "low is above high"));
            }
            if daily.every.as_duration() < RAMP_TICK {
                return Err(Wrong::new("daily.every", "numbers are adjusted every 15s at most"));
            }
        }
        if let Some(cron) = &self.cron {
            cron.check()?;
        }
        self.pod.check()
    }

    /// What to tell of what happens to it at this time. Curves and the single steps of a ramp are not worth it.
    pub(crate) fn announcement(&self, at: Duration) -> Option<String> {
        let Self { name, replicas, steps, .. } = self;
        let Some(step) = steps.iter().rposition(|step| step.at.as_duration() == at) else {
            let first = replicas.filter(|_| at.is_zero())?;
            return Some(format!("{name} starts with {first} replicas"));
        };
        let before = match step.checked_sub(1) {
            Some(last) => steps[last].replicas,
            None => replicas.unwrap_or_default(),
        };
        let ReplicaStep { replicas: after, over, .. } = &steps[step];
        let over = over.as_ref().map(|over| format!(" within {over}")).unwrap_or_default();
        Some(format!("{name} goes from {before} to {after} replicas{over}"))
    }

    /// How many replicas there are at the start, and what changes until `end`; nothing for those that have no replicas.
    /// `midnight` is how long before the start the day began.
    pub(crate) fn replicas_over(
        &self,
        end: Duration,
        midnight: Duration,
        random: &mut Random,
    ) -> Vec<(Duration, u32)> {
        let mut changes: Vec<(Duration, u32)> = match (&self.replicas, &self.daily) {
            (Some(replicas), _) => ramps(*replicas, &self.steps),
            (None, Some(daily)) => {
                let every = daily.every.as_duration();
                let ticks = (0..).map(|tick: u32| every * tick).take_while(|at| *at < end);
                ticks.map(|at| (at, daily.at(midnight + at, random))).collect()
            }
            (None, None) => Vec::new(),
        };
        changes.retain(|(at, _)| *at < end);
        changes.dedup_by_key(|(_, replicas)| *replicas);
        changes
    }
}

impl PodTemplate {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        for (field, amount) in [("pod.cpu", &self.cpu), ("pod.memory", &self.memory)] {
            if let Some(Scalar(text)) = amount
                && let Err(error) = text.parse::<Quantity>()
            {
                return Err(Wrong::new(field, error.to_string()));
            }
        }
        Ok(())
    }
}

impl Cron {
    fn check(&self) -> Result<(), Wrong> {
        let Self { schedule: text, pods, .. } = self;
        let wrong = |problem: String| Err(Wrong::new("cron.schedule", problem));
        if text.split_whitespace().count() != 5 {
            return wrong("write five fields, such as \"*/10 * * * *\"".to_owned());
        }
        let schedule: Schedule = match text.parse() {
            Ok(schedule) => schedule,
            Err(error) => return wrong(format!("{text:?} is no schedule: {error}")),
        };
        if schedule.next(new_year()).is_none() {
            return wrong(format!("{text:?} never occurs; write a day that exists"));
        }
        if *pods == 0 {
            return Err(Wrong::new("cron.pods", "a job has at least one pod"));
        }
        Ok(())
    }
}

/// A cosine over the day, between `low` twelve hours from its peak and `high` at it.
pub(crate) fn wave(low: f64, high: f64, time_of_day: Duration, peak: Duration) -> f64 {
    let phase = (time_of_day.as_secs_f64() - peak.as_secs_f64()) / DAY * TAU;
    low + (high - low) * (1.0 + phase.cos()) / 2.0
}

impl Daily {
    fn at(&self, time_of_day: Duration, random: &mut Random) -> u32 {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        let curve = wave(low, high, time_of_day, self.peak.as_duration());
        // A draw from -1 to 1 in thousandths, so that the arithmetic of chance is whole.
        let draw = random.below(2001) as f64 / 1000.0 - 1.0;
        let noisy = curve * (1.0 + draw * f64::from(self.noise) / 100.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is a number of pods: small, and not negative by max"
        )]
        let replicas = noisy.round().max(0.0) as u32;
        replicas
    }
}

fn ramps(start: u32, steps: &[ReplicaStep]) -> Vec<(Duration, u32)> {
    let mut changes = vec![(Duration::ZERO, start)];
    let mut from = start;
    for step in steps {
        let (at, to) = (step.at.as_duration(), step.replicas);
        let over = step.over.as_ref().map(GoDuration::as_duration).unwrap_or_default();
        let ticks =
            (over.as_secs() / RAMP_TICK.as_secs()).clamp(1, u64::from(from.abs_diff(to)).max(1));
        let pace = u32::try_from(ticks).map_or(over, |ticks| over / ticks);
        for tick in 1..=ticks {
            let (travelled, all) =
                (i64::from(to) - i64::from(from), i64::try_from(ticks).unwrap_or(1));
            let tick = i64::try_from(tick).unwrap_or(all);
            let replicas = i64::from(from) + travelled * tick / all;
            let at = at + pace * u32::try_from(tick - 1).unwrap_or_default();
            changes.push((at, u32::try_from(replicas).unwrap_or_default()));
        }
        from = to;
    }
    changes
}

pub(crate) fn default_namespace() -> String {
    "default".to_owned()
}

fn early_afternoon() -> GoDuration {
    "14h".parse().unwrap_or_else(|_| unreachable!("14h is a duration"))
}

fn ten_minutes() -> GoDuration {
    "10m".parse().unwrap_or_else(|_| unreachable!("10m is a duration"))
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(yaml: &str) -> Workload {
        serde_saphyr::from_str(&format!("name: w\n{yaml}")).unwrap()
    }

    fn changes(yaml: &str, hours: u64) -> Vec<(u64, u32)> {
        let end = Duration::from_hours(hours);
        let all = workload(yaml).replicas_over(end, Duration::ZERO, &mut Random::seeded(1));
        all.into_iter().map(|(at, replicas)| (at.as_secs(), replicas)).collect()
    }

    #[test]
    fn steps_are_taken_at_once_or_evenly() {
        assert_eq!(changes("replicas: 3\n", 1), [(0, 3)]);
        assert_eq!(changes("replicas: 3\nsteps: [{at: 10m, replicas: 5}]", 1), [(0, 3), (600, 5)]);
        assert_eq!(
            changes("replicas: 4\nsteps: [{at: 10m, replicas: 1, over: 1m}]", 1),
            [(0, 4), (600, 3), (620, 2), (640, 1)]
        );
        assert_eq!(
            changes("replicas: 3\nsteps: [{at: 2h, replicas: 5}]", 1),
            [(0, 3)],
            "what lies behind the end does not happen"
        );
    }

    #[test]
    fn steps_are_announced_once() {
        let workload = workload("replicas: 4\nsteps: [{at: 10m, replicas: 1, over: 1m}]");
        let told = |seconds| workload.announcement(Duration::from_secs(seconds));
        assert_eq!(told(0).as_deref(), Some("w starts with 4 replicas"));
        assert_eq!(told(600).as_deref(), Some("w goes from 4 to 1 replicas within 1m"));
        assert_eq!(told(620), None);
    }

    #[test]
    fn days_have_their_peak_where_it_is_written() {
        let day = changes("daily: {low: 10, high: 30, peak: 12h, every: 1h}", 24);
        let at = |hour: u64| day.iter().rev().find(|(at, _)| *at <= hour * 3600).unwrap().1;
        assert_eq!((at(0), at(6), at(12), at(18)), (10, 20, 30, 20));
    }

    #[test]
    fn noise_stays_within_its_bounds_and_comes_from_the_seed() {
        let noisy = "daily: {low: 100, high: 100, noise: 10, every: 10m}";
        let one = changes(noisy, 24);
        assert!(one.len() > 20, "{one:?}");
        assert!(one.iter().all(|(_, replicas)| (90..=110).contains(replicas)), "{one:?}");
        assert_eq!(one, changes(noisy, 24));
    }
}
