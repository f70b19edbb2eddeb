//! The controls that keep churn low: an operator has defaults, and a NodePool may override each of them.

use std::{fmt, str::FromStr, time::Duration};

use crate::price::Price;
use kerf_api::{ConsolidationPolicy, Disruption, DurationOrNever, MAX_SAVINGS_THRESHOLD};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChurnControls {
    /// Nodes that are used more than this are not consolidated; 1 is off.
    pub utilization_threshold: Fraction,
    /// A replacement has to cost less than this share of what it replaces; 1 asks for no more than
    /// strictly cheaper.
    pub price_improvement_factor: Fraction,
    pub savings_threshold: SavingsThreshold,
    pub grace_period: GracePeriod,
}

impl Default for ChurnControls {
    fn default() -> Self {
        Self {
            utilization_threshold: Fraction(750_000_000),
            price_improvement_factor: Fraction::ONE,
            savings_threshold: SavingsThreshold(Price::from_ten_billionths(100_000_000)),
            grace_period: GracePeriod::Off,
        }
    }
}

impl ChurnControls {
    /// What holds for a pool: its own values over the operator's, which are `self`.
    ///
    /// A value that no API server would have let in counts as not set. A savings threshold above the largest counts as the
    /// largest: CRDs of earlier versions let it in, and it means that hardly any move is worth it.
    pub fn resolve(self, pool: &Disruption) -> Self {
        fn own<T>(written: Option<f64>, read: fn(f64) -> Result<T, OutOfRange>) -> Option<T> {
            read(written?).ok()
        }
        // Balanced weighs savings against disruption by itself; it takes a second scale only on request.
        let savings_threshold = match pool.consolidation_policy {
            ConsolidationPolicy::Balanced => SavingsThreshold::OFF,
            ConsolidationPolicy::WhenEmpty | ConsolidationPolicy::WhenEmptyOrUnderutilized => {
                self.savings_threshold
            }
        };
        Self {
            utilization_threshold: own(
                pool.consolidation_utilization_threshold,
                Fraction::from_f64,
            )
            .unwrap_or(self.utilization_threshold),
            price_improvement_factor: own(
                pool.consolidation_price_improvement_factor,
                Fraction::from_f64,
            )
            .unwrap_or(self.price_improvement_factor),
            savings_threshold: own(
                pool.consolidation_savings_threshold
                    .map(|dollars| dollars.min(SavingsThreshold::MOST)),
                SavingsThreshold::from_f64,
            )
            .unwrap_or(savings_threshold),
            grace_period: pool
                .consolidation_grace_period
                .as_ref()
                .map_or(self.grace_period, GracePeriod::from),
        }
    }
}

/// A number from 0 to 1, exact to nine decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction(u32);

/// A number outside of what its control allows, or not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Fraction {
    pub const ZERO: Self = Self(0);
    pub const ONE: Self = Self(Self::WHOLE);
    const WHOLE: u32 = 1_000_000_000;

    pub fn from_f64(number: f64) -> Result<Self, OutOfRange> {
        if !(0.0..=1.0).contains(&number) {
            return Err(OutOfRange);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "in range by the check above"
        )]
        Ok(Self((number * f64::from(Self::WHOLE)).round() as u32))
    }

    /// A quotient for people to read: four digits, rounded up, so that what is above a threshold also looks so, and at
    /// most 1.
    pub fn of_quotient(numerator: i128, denominator: i128) -> Self {
        const STEPS: u32 = 10_000;
        let steps = match numerator.checked_mul(i128::from(STEPS)) {
            _ if denominator <= 0 || numerator <= 0 => 0,
            Some(scaled) => (scaled - 1).div_euclid(denominator) + 1,
            None => i128::from(STEPS),
        };
        let steps = u32::try_from(steps).unwrap_or(STEPS).min(STEPS);
        Self(steps * (Self::WHOLE / STEPS))
    }

    /// In parts of a thousand million.
    pub const fn billionths(self) -> u32 {
        self.0
    }
}

impl FromStr for Fraction {
    type Err = OutOfRange;

    fn from_str(text: &str) -> Result<Self, OutOfRange> {
        text.parse().map_err(|_| OutOfRange).and_then(Self::from_f64)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f64::from(self.0) / f64::from(Self::WHOLE)).fmt(f)
    }
}

/// What a consolidation has to save per hour for each unit of disruption that it costs; 0 is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SavingsThreshold(Price);

impl SavingsThreshold {
    pub const OFF: Self = Self(Price::ZERO);
    /// In dollars.
    pub const MOST: f64 = MAX_SAVINGS_THRESHOLD as f64;

    pub fn from_f64(dollars: f64) -> Result<Self, OutOfRange> {
        if (0.0..=Self::MOST).contains(&dollars) {
            Ok(Self(Price::from_f64(dollars)))
        } else {
            Err(OutOfRange)
        }
    }

    pub const fn per_unit(self) -> Price {
        self.0
    }
}

impl FromStr for SavingsThreshold {
    type Err = OutOfRange;

    fn from_str(text: &str) -> Result<Self, OutOfRange> {
        text.parse().map_err(|_| OutOfRange).and_then(Self::from_f64)
    }
}

impl fmt::Display for SavingsThreshold {
    /// As it is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.exact().fmt(f)
    }
}

/// For how long after a pod event a node is left out of consolidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GracePeriod {
    Off,
    For(Duration),
}

impl From<&DurationOrNever> for GracePeriod {
    /// `Never` switches the control off, as does no time at all.
    fn from(written: &DurationOrNever) -> Self {
        match written.as_duration() {
            None | Some(Duration::ZERO) => Self::Off,
            Some(length) => Self::For(length),
        }
    }
}

impl FromStr for GracePeriod {
    type Err = OutOfRange;

    /// The empty text is what an unset variable of a chart looks like.
    fn from_str(text: &str) -> Result<Self, OutOfRange> {
        if text.is_empty() {
            return Ok(Self::Off);
        }
        let written: DurationOrNever = text.parse().map_err(|_| OutOfRange)?;
        Ok(Self::from(&written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact_and_in_range() {
        for (text, billionths) in [
            ("0", Ok(0)),
            ("0.0", Ok(0)),
            ("-0", Ok(0)),
            ("0.75", Ok(750_000_000)),
            (".5", Ok(500_000_000)),
            ("1", Ok(1_000_000_000)),
            ("1.0", Ok(1_000_000_000)),
            ("1e-3", Ok(1_000_000)),
            ("0.1234567891", Ok(123_456_789)),
            ("1.0000001", Err(OutOfRange)),
            ("-0.1", Err(OutOfRange)),
            ("NaN", Err(OutOfRange)),
            ("inf", Err(OutOfRange)),
            ("75%", Err(OutOfRange)),
            ("", Err(OutOfRange)),
        ] {
            assert_eq!(text.parse().map(Fraction::billionths), billionths, "{text:?}");
        }
    }

    #[test]
    fn savings_thresholds_have_bounds() {
        for (text, price) in [
            ("0", Ok("0")),
            ("0.01", Ok("0.01")),
            ("12.5", Ok("12.5")),
            ("100000", Ok("100000")),
            ("100000.01", Err(OutOfRange)),
            ("-0.01", Err(OutOfRange)),
            ("NaN", Err(OutOfRange)),
            ("inf", Err(OutOfRange)),
            ("1e300", Err(OutOfRange)),
            ("$1", Err(OutOfRange)),
        ] {
            let parsed = text.parse().map(|threshold: SavingsThreshold| threshold.to_string());
            assert_eq!(parsed, price.map(str::to_owned), "{text:?}");
        }
    }

    #[test]
    fn grace_periods_are_off_when_they_say_never_or_nothing() {
        for (text, period) in [
            ("", Ok(GracePeriod::Off)),
            ("Never", Ok(GracePeriod::Off)),
            ("0s", Ok(GracePeriod::Off)),
            ("30m", Ok(GracePeriod::For(Duration::from_mins(30)))),
            ("1h30m", Ok(GracePeriod::For(Duration::from_mins(90)))),
            ("-5m", Err(OutOfRange)),
            ("never", Err(OutOfRange)),
            ("5", Err(OutOfRange)),
        ] {
            assert_eq!(text.parse(), period, "{text:?}");
        }
    }

    #[test]
    fn pools_override_what_the_operator_says() {
        let operator = ChurnControls {
            utilization_threshold: "0.6".parse().unwrap(),
            price_improvement_factor: "0.9".parse().unwrap(),
            savings_threshold: "0.02".parse().unwrap(),
            grace_period: "30m".parse().unwrap(),
        };
        let silent = Disruption::default();
        assert_eq!(operator.resolve(&silent), operator);

        let outspoken = Disruption {
            consolidation_utilization_threshold: Some(1.0),
            consolidation_price_improvement_factor: Some(0.0),
            consolidation_savings_threshold: Some(0.0),
            consolidation_grace_period: Some(DurationOrNever::Never),
            ..Disruption::default()
        };
        let expect = ChurnControls {
            utilization_threshold: Fraction::ONE,
            price_improvement_factor: Fraction::ZERO,
            savings_threshold: SavingsThreshold::OFF,
            grace_period: GracePeriod::Off,
        };
        assert_eq!(operator.resolve(&outspoken), expect);

        let impossible = Disruption {
            consolidation_utilization_threshold: Some(1.5),
            consolidation_price_improvement_factor: Some(f64::NAN),
            consolidation_savings_threshold: Some(-1.0),
            ..Disruption::default()
        };
        assert_eq!(operator.resolve(&impossible), operator);
    }

    /// The CRD had no upper bound once.
    #[test]
    fn a_threshold_that_an_api_server_let_in_is_not_replaced_by_the_default() {
        for (written, threshold) in [
            (1e-10, "0.0000000001"),
            (0.5, "0.5"),
            (1e5, "100000"),
            (1e9, "100000"),
            (1e300, "100000"),
        ] {
            let pool = Disruption {
                consolidation_savings_threshold: Some(written),
                ..Disruption::default()
            };
            let resolved = ChurnControls::default().resolve(&pool).savings_threshold;
            assert_eq!(resolved.to_string(), threshold, "{written}");
        }
    }

    #[test]
    fn balanced_pools_ask_for_savings_only_when_they_say_so() {
        let resolve = |policy, threshold| {
            let pool = Disruption {
                consolidation_policy: policy,
                consolidation_savings_threshold: threshold,
                ..Disruption::default()
            };
            ChurnControls::default().resolve(&pool).savings_threshold.to_string()
        };
        assert_eq!(resolve(ConsolidationPolicy::WhenEmptyOrUnderutilized, None), "0.01");
        assert_eq!(resolve(ConsolidationPolicy::Balanced, None), "0");
        assert_eq!(resolve(ConsolidationPolicy::Balanced, Some(0.02)), "0.02");
        assert_eq!(resolve(ConsolidationPolicy::WhenEmptyOrUnderutilized, Some(0.0)), "0");
    }

    #[test]
    fn quotients_are_rounded_up_and_end_at_one() {
        for (numerator, denominator, text) in [
            (3, 4, "0.75"),
            (1, 3, "0.3334"),
            (750_001, 1_000_000, "0.7501"),
            (0, 5, "0"),
            (5, 0, "0"),
            (7, 5, "1"),
            (i128::MAX, 1, "1"),
        ] {
            assert_eq!(Fraction::of_quotient(numerator, denominator).to_string(), text);
        }
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let churn = ChurnControls::default();
        assert_eq!(churn.utilization_threshold, "0.75".parse().unwrap());
        assert_eq!(churn.price_improvement_factor, "1".parse().unwrap());
        assert_eq!(churn.savings_threshold, "0.01".parse().unwrap());
        assert_eq!(churn.grace_period, GracePeriod::Off);
    }
}
