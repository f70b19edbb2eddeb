//! The price per hour over time, as the steps at which it changed.

use jiff::Timestamp;
use kerf_model::Price;
use serde::Serialize;

/// A picture is at most a few thousand pixels wide.
const MOST: usize = 600;

/// From `at` on the price was this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub at: Timestamp,
    pub price_per_hour: Price,
}

/// Steps in the order of time. A cluster at rest adds none; where there are too many, the older half keeps every second one.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Vec<Step>);

impl History {
    pub(crate) fn note(&mut self, at: Timestamp, price_per_hour: Price) {
        if self.0.last().is_some_and(|last| last.price_per_hour == price_per_hour) {
            return;
        }
        if self.0.len() >= MOST {
            let older = self.0.len() / 2;
            let mut place = 0;
            self.0.retain(|_| {
                place += 1;
                place > older || place % 2 == 1
            });
        }
        self.0.push(Step { at, price_per_hour });
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(prices: impl IntoIterator<Item = i64>) -> History {
        let mut history = History::default();
        for (second, price) in (0..).zip(prices) {
            let price = format!("{price}").parse().unwrap();
            history.note(Timestamp::from_second(second).unwrap(), price);
        }
        history
    }

    #[test]
    fn a_price_that_stays_is_one_step() {
        let seconds: Vec<_> =
            noted([1, 1, 2, 2, 1]).steps().iter().map(|step| step.at.as_second()).collect();
        assert_eq!(seconds, [0, 2, 4]);
    }

    #[test]
    fn a_long_history_is_bounded_keeps_its_ends_and_its_order() {
        let many = 10 * i64::try_from(MOST).unwrap();
        let history = noted(0..many);
        let steps = history.steps();
        assert!((MOST / 2..=MOST).contains(&steps.len()), "{}", steps.len());
        assert!(steps.is_sorted_by(|a, b| a.at < b.at));
        assert_eq!(steps[0].at.as_second(), 0);
        assert_eq!(steps[steps.len() - 1].at.as_second(), many - 1);
    }
}
