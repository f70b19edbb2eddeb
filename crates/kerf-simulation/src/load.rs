//! How the numbers of pods change beyond what a scenario or a snapshot says: by a daily curve, or as recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    time::Duration,
};

use jiff::Timestamp;
use kerf_api::GoDuration;
use kerf_manifests::MOST_PODS;

use crate::scenario::{Scenario, wave};

/// A number of pods from a time after the start on.
type Change = (Duration, u32);

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Load {
    /// As the scenario or the snapshot has it.
    #[default]
    AsWritten,
    /// Each number times a factor that follows the day.
    Daily { low: f64, high: f64 },
    /// The numbers by workload, as `namespace/name`.
    Trace(BTreeMap<String, Vec<Change>>),
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("--load={text} is not understood: write daily:0.4..1.0 or trace:FILE")]
    Kind { text: String },
    #[error(
        "--load={text} is not understood: write two factors such as daily:0.4..1.0, the lower one first, from 0 to 100"
    )]
    Factors { text: String },
    #[error("cannot read the trace {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("{path}:{line}: {problem}")]
    Row { path: String, line: usize, problem: String },
    #[error("{path}: the trace is empty; its first line is {HEADER}")]
    Empty { path: String },
    #[error("the trace names {name}, which does not scale here; there are {known}")]
    Unknown { name: String, known: String },
}

/// The first line of a trace.
const HEADER: &str = "time,workload,replicas";
/// How often a curve is looked at.
const EVERY: Duration = Duration::from_mins(10);
/// The time of day with the most pods, in UTC.
const PEAK: Duration = Duration::from_hours(14);
/// What people can mean.
const HIGHEST: f64 = 100.0;

impl Load {
    /// What stands behind `--load`; a trace is read.
    pub fn read(text: &str) -> Result<Self, LoadError> {
        let kind = || LoadError::Kind { text: text.to_owned() };
        let (kind_name, rest) = text.split_once(':').ok_or_else(kind)?;
        match kind_name {
            "daily" => daily(rest).ok_or_else(|| LoadError::Factors { text: text.to_owned() }),
            "trace" => {
                let read = fs::read_to_string(rest);
                let read = read.map_err(|source| LoadError::Read { path: rest.into(), source })?;
                trace(&read, rest).map(Self::Trace)
            }
            _ => Err(kind()),
        }
    }

    pub(crate) fn is_trace(&self) -> bool {
        matches!(self, Self::Trace(_))
    }

    pub(crate) fn names(&self, workload: &str) -> bool {
        matches!(self, Self::Trace(rows) if rows.contains_key(workload))
    }

    /// What becomes of the numbers of a workload until `end`. `midnight` is how long before the start the day began.
    pub(crate) fn over(
        &self,
        workload: &str,
        written: Vec<Change>,
        end: Duration,
        midnight: Duration,
    ) -> Vec<Change> {
        let mut changes: Vec<Change> = match self {
            Self::AsWritten => return written,
            Self::Trace(rows) => match rows.get(workload) {
                None => return written,
                // Until the trace says something, the workload is as it is written.
                Some(rows) => {
                    let before = rows.first().map_or(Duration::ZERO, |(at, _)| *at);
                    let written = written.into_iter().filter(|(at, _)| *at < before);
                    written.chain(rows.iter().copied()).collect()
                }
            },
            Self::Daily { low, high } => {
                let ticks = (0..).map(|tick: u32| EVERY * tick).take_while(|at| *at < end);
                let times: BTreeSet<_> = ticks.chain(written.iter().map(|(at, _)| *at)).collect();
                let scaled = times.into_iter().map(|at| {
                    let before = written.iter().rev().find(|(from, _)| *from <= at);
                    let replicas = before.map_or(0, |(_, replicas)| *replicas);
                    (at, scaled(replicas, wave(*low, *high, midnight + at, PEAK)))
                });
                scaled.collect()
            }
        };
        changes.retain(|(at, _)| *at < end);
        changes.dedup_by_key(|(_, replicas)| *replicas);
        changes
    }

    /// Refuses a trace of workloads that are not there.
    pub(crate) fn check(&self, scenario: &Scenario) -> Result<(), LoadError> {
        let Self::Trace(rows) = self else { return Ok(()) };
        let known = scenario.scaling_workloads();
        match rows.keys().find(|name| !known.contains(*name)) {
            None => Ok(()),
            Some(name) => {
                let known = known.into_iter().collect::<Vec<_>>().join(", ");
                Err(LoadError::Unknown { name: name.clone(), known })
            }
        }
    }

    /// What a reader of the report should know about it, if there is something.
    pub(crate) fn note(&self, scenario: &Scenario) -> Option<String> {
        match self {
            Self::AsWritten if scenario.is_constant() => Some(
                "the load is constant, so policies differ only in what they make of the cluster as it is at the start; \
                 --load=daily:0.4..1.0 lets it rise and fall with the day"
                    .to_owned(),
            ),
            Self::Trace(rows) => {
                let others = scenario.scaling_workloads().len().saturating_sub(rows.len());
                (others > 0).then(|| format!("the load of {others} workloads is not in the trace and stays constant"))
            }
            _ => None,
        }
    }
}

/// `0.4..1.0`
fn daily(text: &str) -> Option<Load> {
    let (low, high) = text.split_once("..")?;
    let (low, high): (f64, f64) = (low.parse().ok()?, high.parse().ok()?);
    (low >= 0.0 && low <= high && high <= HIGHEST).then_some(Load::Daily { low, high })
}

/// To the nearest whole number, and at least one: nobody scales to nothing at night by accident.
fn scaled(replicas: u32, factor: f64) -> u32 {
    if replicas == 0 {
        return 0;
    }
    let most = MOST_PODS as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it lies between 1 and the most pods of a simulation"
    )]
    let scaled = (f64::from(replicas) * factor).round().clamp(1.0, most) as u32;
    scaled
}

/// Rows in the order of time. The first one is the start.
fn trace(text: &str, path: &str) -> Result<BTreeMap<String, Vec<Change>>, LoadError> {
    let wrong =
        |line: usize, problem: String| LoadError::Row { path: path.to_owned(), line, problem };
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    match lines.next() {
        Some((_, HEADER)) => {}
        Some((line, other)) => {
            return Err(wrong(line, format!("the first line is {other:?}; write {HEADER}")));
        }
        None => return Err(LoadError::Empty { path: path.to_owned() }),
    }
    let (mut first, mut last) = (None, Duration::ZERO);
    let mut rows: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    for (line, row) in lines {
        let cells: Vec<_> = row.split(',').map(str::trim).collect();
        let [time, workload, replicas] = cells[..] else {
            return Err(wrong(line, format!("{row:?} has not three cells: {HEADER}")));
        };
        let time = point(time).ok_or_else(|| {
            let problem =
                "is neither a time such as 2026-01-05T12:00:00Z nor a duration such as 1h30m";
            wrong(line, format!("{time:?} {problem}"))
        })?;
        let at =
            time.checked_sub(*first.get_or_insert(time)).and_then(|it| Duration::try_from(it).ok());
        let at = at.filter(|at| *at >= last).ok_or_else(|| {
            wrong(line, "it lies before the row above it; sort the trace by time".to_owned())
        })?;
        last = at;
        let replicas = replicas.parse().ok().filter(|replicas| *replicas as usize <= MOST_PODS);
        let replicas: u32 = replicas.ok_or_else(|| {
            wrong(line, format!("replicas is not a whole number from 0 to {MOST_PODS}"))
        })?;
        let name = match workload.split_once('/') {
            Some(_) => workload.to_owned(),
            None => format!("default/{workload}"),
        };
        rows.entry(name).or_default().push((at, replicas));
    }
    if rows.is_empty() {
        return Err(LoadError::Empty { path: path.to_owned() });
    }
    Ok(rows)
}

/// A time, or a duration since some time, in either case from a zero of its own.
fn point(text: &str) -> Option<jiff::SignedDuration> {
    let since_start = |text: &str| text.parse::<GoDuration>().ok()?.as_duration().try_into().ok();
    let since_epoch = |text: &str| Some(text.parse::<Timestamp>().ok()?.as_duration());
    since_start(text).or_else(|| since_epoch(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(load: &str, replicas: &[(u64, u32)], hours: u64) -> Vec<(u64, u32)> {
        let written = replicas.iter().map(|(at, count)| (Duration::from_secs(*at), *count));
        let end = Duration::from_hours(hours);
        let load = Load::read(load).unwrap();
        let changes = load.over("default/web", written.collect(), end, Duration::ZERO);
        changes.into_iter().map(|(at, count)| (at.as_secs(), count)).collect()
    }

    /// What there is at the full hours.
    fn hourly(load: &str, replicas: u32) -> Vec<u32> {
        let day = over(load, &[(0, replicas)], 24);
        let at = |hour: u64| day.iter().rev().find(|(at, _)| *at <= hour * 3600).unwrap().1;
        (0..24).map(at).collect()
    }

    #[test]
    fn a_day_is_low_at_night_and_high_in_the_afternoon() {
        assert_eq!(
            hourly("daily:0.4..1.0", 100),
            [
                44, 41, 40, 41, 44, 49, 55, 62, 70, 78, 85, 91, 96, 99, 100, 99, 96, 91, 85, 78,
                70, 62, 55, 49
            ]
        );
        // Rounded to the nearest, and never to nothing.
        assert_eq!(hourly("daily:0.4..1.0", 1), [1; 24]);
        assert_eq!(hourly("daily:0..1", 1), [1; 24]);
        assert_eq!(hourly("daily:0.4..1.0", 0), [0; 24]);
        assert_eq!(hourly("daily:2..2", 5), [10; 24]);
        let two = hourly("daily:0.4..1.0", 2);
        assert_eq!((two[2], two[7], two[8], two[14]), (1, 1, 1, 2), "{two:?}");
    }

    #[test]
    fn a_day_moves_what_the_scenario_does_by_itself() {
        let changes = over("daily:0.5..0.5", &[(0, 10), (1800, 20)], 1);
        assert_eq!(changes, [(0, 5), (1800, 10)]);
    }

    #[test]
    fn a_workload_is_as_written_until_the_trace_says_something() {
        let rows = [(Duration::from_hours(1), 7)].into();
        let load = Load::Trace([("default/web".to_owned(), rows)].into());
        let written = || vec![(Duration::ZERO, 3), (Duration::from_hours(2), 9)];
        let over = |name| load.over(name, written(), Duration::from_hours(3), Duration::ZERO);
        assert_eq!(over("default/web"), [(Duration::ZERO, 3), (Duration::from_hours(1), 7)]);
        assert_eq!(over("default/api"), written());
    }

    fn traced(text: &str) -> Result<BTreeMap<String, Vec<Change>>, String> {
        trace(text, "t.csv").map_err(|error| error.to_string())
    }

    #[test]
    fn a_trace_counts_from_its_first_row() {
        let expected = BTreeMap::from([
            ("default/web".to_owned(), vec![(Duration::ZERO, 3), (Duration::from_mins(90), 5)]),
            ("shop/api".to_owned(), vec![(Duration::from_mins(90), 0)]),
        ]);
        for text in [
            "time,workload,replicas\n0s,web,3\n1h30m,default/web,5\n1h30m,shop/api,0\n",
            "# recorded\ntime,workload,replicas\n\n2026-01-05T12:00:00Z, web, 3\n2026-01-05T13:30:00Z,web,5\n\
             2026-01-05T15:30:00+02:00,shop/api,0\n",
        ] {
            assert_eq!(traced(text).as_ref(), Ok(&expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_load_is_said_with_its_line() {
        for (text, expected) in [
            ("", "t.csv: the trace is empty; its first line is time,workload,replicas"),
            ("time,workload,replicas\n", "t.csv: the trace is empty"),
            ("a,b,c\n", "t.csv:1: the first line is \"a,b,c\"; write time,workload,replicas"),
            ("time,workload,replicas\n0s,web\n", "t.csv:2: \"0s,web\" has not three cells"),
            ("time,workload,replicas\nsoon,web,3\n", "t.csv:2: \"soon\" is neither a time"),
            ("time,workload,replicas\n0s,web,-3\n", "t.csv:2: replicas is not a whole number"),
            (
                "time,workload,replicas\n1h,web,3\n0s,web,3\n",
                "t.csv:3: it lies before the row above",
            ),
        ] {
            let told = traced(text).unwrap_err();
            assert!(told.starts_with(expected), "{text}: {told}");
        }
        for (text, expected) in [
            ("weekly", "--load=weekly is not understood: write daily:0.4..1.0 or trace:FILE"),
            ("weekly:1..2", "--load=weekly:1..2 is not understood: write daily"),
            ("daily:1.0..0.4", "--load=daily:1.0..0.4 is not understood: write two factors"),
            ("daily:0.4", "--load=daily:0.4 is not understood: write two factors"),
            ("daily:NaN..1", "--load=daily:NaN..1 is not understood: write two factors"),
            ("trace:/none.csv", "cannot read the trace /none.csv: No such file"),
        ] {
            let told = Load::read(text).unwrap_err().to_string();
            assert!(told.starts_with(expected), "{text}: {told}");
        }
    }
}
