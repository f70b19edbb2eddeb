//! The accounts of a cluster that is not simulated: the same ledger, fed with what was seen of a real one.

use std::time::Duration;

use jiff::Timestamp;
use kerf_testbed::Random;

use crate::{
    compare::{Recording, SAMPLES},
    ledger::{Change, Ledger},
    market::{Market, MarketError, Place},
    play::PlayError,
    report::{Sample, Summary},
    scenario::Scenario,
};

/// What a cluster that others run cost and went through.
#[derive(Debug)]
pub struct Accounts {
    ledger: Ledger,
    market: Market,
    length: Duration,
    samples: Vec<Sample>,
}

impl Accounts {
    /// Opens them at the scenario's start, for its length, with its instance types and prices.
    pub fn open(scenario: &Scenario, name: &str) -> Result<Self, MarketError> {
        Ok(Self {
            ledger: Ledger::open(scenario.start, name),
            market: Market::open(scenario, Random::seeded(scenario.seed))?,
            length: scenario.length.as_duration(),
            samples: Vec::with_capacity(SAMPLES as usize),
        })
    }

    /// Takes note of what was there when they were opened.
    pub fn take_over<'a>(
        &mut self,
        cluster: impl IntoIterator<Item = Change<'a>>,
    ) -> Result<(), PlayError> {
        let cluster: Vec<_> = cluster.into_iter().collect();
        cluster.iter().try_for_each(|change| self.check(change))?;
        self.ledger.take_over(cluster, &self.market);
        Ok(())
    }

    /// Takes note of a change that was seen at this time.
    pub fn see(&mut self, now: Timestamp, change: Change<'_>) -> Result<(), PlayError> {
        self.check(&change)?;
        self.sample_until(now);
        self.ledger.take_in(now, [change], &self.market);
        Ok(())
    }

    /// Counts until this time, and says what it all comes to.
    pub fn close(mut self, now: Timestamp) -> Recording {
        self.sample_until(now);
        self.ledger.pass(now);
        while self.samples.len() < SAMPLES as usize {
            let time = self.next_sample();
            self.samples.push(Sample::of(&self.ledger, time));
        }
        Recording { summary: Summary::of_ledger(&self.ledger), samples: self.samples }
    }

    fn next_sample(&self) -> Duration {
        let part = u32::try_from(self.samples.len()).unwrap_or(SAMPLES) + 1;
        if part >= SAMPLES { self.length } else { self.length / SAMPLES * part }
    }

    fn sample_until(&mut self, now: Timestamp) {
        let elapsed = now.duration_since(self.ledger.opened());
        let elapsed = Duration::try_from(elapsed).unwrap_or_default();
        while self.samples.len() < SAMPLES as usize && self.next_sample() <= elapsed {
            let time = self.next_sample();
            if let Ok(at) = self.ledger.opened().checked_add(time) {
                self.ledger.pass(at);
            }
            self.samples.push(Sample::of(&self.ledger, time));
        }
    }

    /// A node without a price would count as free, and every comparison with it would be wrong.
    fn check(&self, change: &Change<'_>) -> Result<(), PlayError> {
        let launched = change.object.pointer("/status/providerID").is_some();
        if change.resource != "nodeclaims" || change.is_gone || !launched {
            return Ok(());
        }
        let place = Place::of(change.object);
        if self.market.sells(&place) {
            return Ok(());
        }
        let node = change.object.pointer("/status/nodeName").and_then(|name| name.as_str());
        Err(PlayError::unknown(node.unwrap_or(change.key).to_owned(), place))
    }
}
