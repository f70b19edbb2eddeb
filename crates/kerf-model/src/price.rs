//! Money, exact.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

/// An hourly price (or saving) in fixed point.
///
/// The unit is 10^-10 of a dollar: fine enough for prices that are computed per byte, and an `i64` of
/// it still holds 900 million dollars per hour. Sums and differences are exact, so a saving of `1.00 - 0.90`
/// reaches a threshold of `0.10`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(i64);

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a price: write dollars per hour such as 0.0416")]
pub struct PriceError {
    text: String,
}

const SCALE: i64 = 10_000_000_000;
const DECIMALS: usize = 10;

impl Price {
    pub const ZERO: Self = Self(0);
    /// Stands for "cannot be bought"; sorts after every real price.
    pub const MAX: Self = Self(i64::MAX);

    /// From a float at the edge (a catalogue file, a provider's answer); rounds to the nearest unit.
    /// Not a number becomes [`Price::MAX`], so that it is never chosen.
    pub fn from_f64(dollars: f64) -> Self {
        if dollars.is_nan() {
            return Self::MAX;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "float casts saturate, which is what is wanted"
        )]
        Self((dollars * SCALE as f64).round() as i64)
    }

    /// For metrics and display only.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }

    pub const fn from_ten_billionths(units: i64) -> Self {
        Self(units)
    }

    pub const fn ten_billionths(self) -> i64 {
        self.0
    }

    /// This price times `numerator / denominator`, rounded down. For shares and factors that are
    /// themselves exact (percentages, hours).
    pub fn times(self, numerator: i64, denominator: i64) -> Self {
        let exact = i128::from(self.0) * i128::from(numerator);
        let scaled = exact.div_euclid(i128::from(denominator));
        Self(i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl FromStr for Price {
    type Err = PriceError;

    /// Reads a decimal exactly; digits past the tenth are cut off.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || -> Option<i64> {
            let (sign, digits) = match text.as_bytes().first()? {
                b'-' => (-1, &text[1..]),
                b'+' => (1, &text[1..]),
                _ => (1, text),
            };
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
            let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
            if (whole.is_empty() && fraction.is_empty()) || !plain(whole) || !plain(fraction) {
                return None;
            }
            let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
            let kept = &fraction[..fraction.len().min(DECIMALS)];
            let fraction: i64 = format!("{kept:0<DECIMALS$}").parse().ok()?;
            whole.checked_mul(SCALE)?.checked_add(fraction).map(|units| sign * units)
        };
        parse().map(Self).ok_or_else(|| PriceError { text: text.to_owned() })
    }
}

impl fmt::Display for Price {
    /// Dollars without trailing zeros: `0.0416`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, fraction) = (
            self.0.unsigned_abs() / SCALE.unsigned_abs(),
            self.0.unsigned_abs() % SCALE.unsigned_abs(),
        );
        if fraction == 0 {
            return write!(f, "{sign}{whole}");
        }
        let fraction = format!("{fraction:0DECIMALS$}");
        write!(f, "{sign}{whole}.{}", fraction.trim_end_matches('0'))
    }
}

impl Add for Price {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Price {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Price {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Price {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Neg for Price {
    type Output = Self;

    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl Sum for Price {
    fn sum<I: Iterator<Item = Self>>(prices: I) -> Self {
        prices.fold(Self::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(text: &str) -> Price {
        text.parse().unwrap()
    }

    #[test]
    fn differences_are_exact_where_floats_are_not() {
        assert!(price("1.00") - price("0.90") >= price("0.10"));
        assert_eq!(price("0.1").times(10, 1), price("1"));
        assert_eq!(price("1.00") - price("0.90"), price("0.01").times(10, 1));
    }

    #[test]
    fn reads_and_prints_decimals() {
        for (text, printed) in [
            ("0", "0"),
            ("1", "1"),
            ("0.0416", "0.0416"),
            (".5", "0.5"),
            ("2.", "2"),
            ("-0.25", "-0.25"),
            ("+3.10", "3.1"),
            ("0.3147483648", "0.3147483648"),
            ("0.00000000019", "0.0000000001"),
        ] {
            assert_eq!(price(text).to_string(), printed, "{text}");
        }
        for text in ["", ".", "-", "a", "1e3", "1.2.3", "1,5", "--1", "99999999999999999999"] {
            assert!(text.parse::<Price>().is_err(), "{text}");
        }
    }

    #[test]
    fn floats_enter_rounded() {
        assert_eq!(Price::from_f64(0.1 + 0.2), price("0.3"));
        assert_eq!(Price::from_f64(0.314_748_364_8), price("0.3147483648"));
        assert_eq!(Price::from_f64(f64::MAX), Price::MAX);
        assert_eq!(Price::from_f64(f64::NAN), Price::MAX);
    }

    #[test]
    fn factors_round_down_and_saturate() {
        assert_eq!(price("1").times(1, 3), price("0.3333333333"));
        assert_eq!(price("-1").times(1, 3), price("-0.3333333334"));
        assert_eq!(Price::MAX.times(3, 1), Price::MAX);
        assert_eq!(Price::MAX + price("1"), Price::MAX);
    }
}
