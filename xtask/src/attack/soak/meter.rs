//! What the replicas use, phase by phase and over the run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::phases::Phase;
use super::run::REPLICAS;
use crate::attack::audit::Entry;
use crate::attack::report::Table;

/// The verbs of the API, in the order of the table.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
const TENTHS: usize = 10;

pub(super) struct Meter {
    begin: Instant,
    length: Duration,
    spans: Vec<Span>,
    tenths: [[f64; REPLICAS]; TENTHS],
}

/// A phase from its begin to its end, by the clock of the machine: the API server writes that down as well.
#[derive(Clone, Debug)]
struct Span {
    phase: Phase,
    from: Timestamp,
    to: Timestamp,
    cpu: [f64; REPLICAS],
    peak: [f64; REPLICAS],
}

/// What all phases of a kind used together.
#[derive(Debug, Default)]
struct Sum {
    seconds: f64,
    cpu: f64,
    peak: f64,
    calls: [u64; VERBS.len()],
}

impl Meter {
    pub(super) fn new(length: Duration) -> Self {
        Self { begin: Instant::now(), length, spans: Vec::new(), tenths: Default::default() }
    }

    /// A phase begins; the replicas have computed for so long before it.
    pub(super) fn begin(&mut self, phase: Phase, cpu: [f64; REPLICAS]) {
        if self.spans.is_empty() {
            self.begin = Instant::now();
            self.tenths = Default::default();
        }
        let now = Timestamp::now();
        self.spans.push(Span { phase, from: now, to: now, cpu, peak: [0.0; REPLICAS] });
    }

    pub(super) fn end(&mut self, cpu: [f64; REPLICAS]) {
        if let Some(span) = self.spans.last_mut() {
            span.to = Timestamp::now();
            span.cpu = std::array::from_fn(|index| cpu[index] - span.cpu[index]);
        }
    }

    /// A replica had so much memory, in megabytes, at some moment since the last look.
    pub(super) fn saw(&mut self, replica: usize, peak: f64) {
        if let Some(span) = self.spans.last_mut() {
            span.peak[replica] = span.peak[replica].max(peak);
        }
        let passed = TENTHS as f64 * self.begin.elapsed().as_secs_f64();
        let passed = passed / self.length.as_secs_f64();
        // What comes after the run is part of its last tenth.
        let tenth = (1..TENTHS).take_while(|tenth| passed >= *tenth as f64).count();
        self.tenths[tenth][replica] = self.tenths[tenth][replica].max(peak);
    }

    /// The most memory of the last third of the run, over that of the first. Below 1 when it takes less.
    pub(super) fn growth(&self) -> f64 {
        const THIRD: usize = TENTHS / 3;
        let most =
            |tenths: &[[f64; REPLICAS]]| tenths.iter().flatten().copied().fold(0.0, f64::max);
        most(&self.tenths[TENTHS - THIRD..]) / most(&self.tenths[..THIRD]).max(1.0)
    }

    pub(super) fn tables(&self, users: &[&str], entries: &[Entry]) -> Vec<Table> {
        let mut tables: Vec<_> = users
            .iter()
            .enumerate()
            .map(|(index, user)| {
                let calls: Vec<_> = entries.iter().filter(|entry| entry.user == *user).collect();
                self.of_replica(index, user, &calls)
            })
            .collect();
        tables.push(Table {
            title: "most memory (MB) per tenth of the run".to_owned(),
            columns: vec!["kerf-a", "kerf-b"],
            rows: (1..)
                .zip(&self.tenths)
                .map(|(tenth, peaks): (u32, _)| (tenth.to_string(), peaks.to_vec()))
                .collect(),
        });
        tables
    }

    fn of_replica(&self, index: usize, user: &str, calls: &[&Entry]) -> Table {
        let mut sums = BTreeMap::<Phase, Sum>::new();
        for span in &self.spans {
            let sum = sums.entry(span.phase).or_default();
            sum.seconds += span.to.duration_since(span.from).as_secs_f64();
            sum.cpu += span.cpu[index];
            sum.peak = sum.peak.max(span.peak[index]);
            for call in
                calls.iter().filter(|call| span.from <= call.received && call.received < span.to)
            {
                if let Some(verb) = VERBS.iter().position(|verb| *verb == call.verb) {
                    sum.calls[verb] += 1;
                }
            }
        }
        let mut all = Sum::default();
        for sum in sums.values() {
            all.seconds += sum.seconds;
            all.cpu += sum.cpu;
            all.peak = all.peak.max(sum.peak);
            for (total, calls) in all.calls.iter_mut().zip(sum.calls) {
                *total += calls;
            }
        }
        let rows = sums.into_iter().map(|(phase, sum)| (phase.to_string(), sum.row()));
        Table {
            title: format!("{user}: seconds, CPU seconds, most memory (MB), API calls by verb"),
            columns: ["seconds", "CPU", "MB"].into_iter().chain(VERBS).collect(),
            rows: rows.chain([("in all".to_owned(), all.row())]).collect(),
        }
    }
}

impl Sum {
    fn row(&self) -> Vec<f64> {
        let calls = self.calls.iter().map(|calls| *calls as f64);
        [self.seconds, self.cpu, self.peak].into_iter().chain(calls).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(second: i64, verb: &str) -> Entry {
        let at = Timestamp::from_second(second).unwrap();
        Entry {
            received: at,
            answered: at,
            user: "kerf-a".to_owned(),
            verb: verb.to_owned(),
            resource: "pods".to_owned(),
            name: String::new(),
            code: 200,
            holder: None,
        }
    }

    #[test]
    fn phases_of_a_kind_are_counted_together() {
        let span = |phase, from, to, cpu, peak| Span {
            phase,
            from: Timestamp::from_second(from).unwrap(),
            to: Timestamp::from_second(to).unwrap(),
            cpu: [cpu, 0.0],
            peak: [peak, 0.0],
        };
        let mut meter = Meter::new(Duration::from_mins(1));
        meter.spans = vec![
            span(Phase::Kills, 0, 10, 1.0, 30.0),
            span(Phase::Calm, 10, 20, 0.5, 50.0),
            span(Phase::Kills, 20, 40, 2.0, 20.0),
        ];
        let calls = [call(1, "list"), call(11, "list"), call(20, "patch"), call(45, "list")];
        let tables = meter.tables(&["kerf-a", "kerf-b"], &calls);
        assert_eq!(
            tables[0].rows,
            [
                ("calm".to_owned(), vec![10.0, 0.5, 50.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
                ("kills".to_owned(), vec![30.0, 3.0, 30.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
                ("in all".to_owned(), vec![40.0, 3.5, 50.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
            ]
        );
        assert_eq!(tables[1].rows[0].1[3..], [0.0; 7]);
    }

    #[test]
    fn memory_that_grows_is_seen() {
        let mut meter = Meter::new(Duration::from_mins(1));
        meter.tenths = std::array::from_fn(|tenth| [40.0 + 10.0 * tenth as f64, 30.0]);
        assert_eq!((meter.growth(),), (130.0 / 60.0,));
    }
}
