//! Money, exact.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

use serde::{Serialize, Serializer};

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
/// How many of them people are shown.
const SHOWN: usize = 4;

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

    /// Every digit there is and no trailing zeros, `0.0416`: for programs, and to be read again.
    pub fn exact(self) -> impl fmt::Display {
        Exact(self)
    }

    /// For people, with as many digits as tell it from another price that it is compared with.
    pub fn beside(self, other: Self) -> impl fmt::Display {
        Beside { price: self, other }
    }

    /// In units of so many decimals, to the nearest.
    fn rounded(self, decimals: usize) -> u64 {
        let unit = scale(DECIMALS - decimals);
        self.0.unsigned_abs().saturating_add(unit / 2) / unit
    }

    fn write_rounded(self, f: &mut fmt::Formatter<'_>, decimals: usize) -> fmt::Result {
        let (units, scale) = (self.rounded(decimals), scale(decimals));
        let sign = if self.0 < 0 && units > 0 { "-" } else { "" };
        write!(f, "{sign}${}.{:0decimals$}/h", units / scale, units % scale)
    }

    /// This price times `numerator / denominator`, rounded down. For shares and factors that are
    /// themselves exact (percentages, hours).
    pub fn times(self, numerator: i64, denominator: i64) -> Self {
        let exact = i128::from(self.0) * i128::from(numerator);
        let scaled = exact.div_euclid(i128::from(denominator));
        Self(i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX }))
    }
}

/// Ten to the power of so many decimals.
fn scale(decimals: usize) -> u64 {
    (0..decimals).fold(1, |scale, _| scale * 10)
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
    /// As people read it: `$0.0416/h`, with more digits where four would say nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let something = |decimals: &usize| self.rounded(*decimals) > 0;
        let decimals = match (SHOWN..=DECIMALS).find(something) {
            None | Some(SHOWN) => SHOWN,
            Some(first) => (first + 1).min(DECIMALS),
        };
        self.write_rounded(f, decimals)
    }
}

/// See [`Price::beside`].
struct Beside {
    price: Price,
    other: Price,
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { price, other } = self;
        let differ = |decimals: &usize| price.rounded(*decimals) != other.rounded(*decimals);
        match (SHOWN..=DECIMALS).find(differ) {
            Some(decimals) if decimals > SHOWN => price.write_rounded(f, decimals),
            _ => price.fmt(f),
        }
    }
}

/// See [`Price::exact`].
struct Exact(Price);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Price(units) = self.0;
        let sign = if units < 0 { "-" } else { "" };
        let (whole, fraction) = (
            units.unsigned_abs() / SCALE.unsigned_abs(),
            units.unsigned_abs() % SCALE.unsigned_abs(),
        );
        if fraction == 0 {
            return write!(f, "{sign}{whole}");
        }
        let fraction = format!("{fraction:0DECIMALS$}");
        write!(f, "{sign}{whole}.{}", fraction.trim_end_matches('0'))
    }
}

impl Serialize for Price {
    /// For programs: [`Price::exact`], as text, because not every reader of JSON keeps all digits of a number.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.exact())
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
            assert_eq!(price(text).exact().to_string(), printed, "{text}");
            let json = serde_json::to_value(price(text)).unwrap();
            assert_eq!(json, serde_json::Value::from(printed), "{text}");
        }
        for text in ["", ".", "-", "a", "1e3", "1.2.3", "1,5", "--1", "99999999999999999999"] {
            assert!(text.parse::<Price>().is_err(), "{text}");
        }
    }

    #[test]
    fn people_see_four_digits_and_never_nothing_for_something() {
        for (text, shown) in [
            ("0", "$0.0000/h"),
            ("0.096", "$0.0960/h"),
            ("0.2171798692", "$0.2172/h"),
            ("12.5", "$12.5000/h"),
            ("1999.99999", "$2000.0000/h"),
            ("-0.25", "-$0.2500/h"),
            ("0.00005", "$0.0001/h"),
            ("0.00004999", "$0.000050/h"),
            ("0.0000123", "$0.000012/h"),
            ("0.0000000001", "$0.0000000001/h"),
            ("-0.0000000012", "-$0.0000000012/h"),
        ] {
            assert_eq!(price(text).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn prices_that_differ_look_different_beside_each_other() {
        for (one, other, shown) in [
            ("0.0380064771", "0.0380064771", "$0.0380/h $0.0380/h"),
            ("0.1", "0.2", "$0.1000/h $0.2000/h"),
            ("0.03800", "0.03801", "$0.03800/h $0.03801/h"),
            ("0.0380064771", "0.0380064772", "$0.0380064771/h $0.0380064772/h"),
            ("0.0000123", "0.0000124", "$0.0000123/h $0.0000124/h"),
            ("0", "0.0000000001", "$0.0000000000/h $0.0000000001/h"),
        ] {
            let (one, other) = (price(one), price(other));
            assert_eq!(format!("{} {}", one.beside(other), other.beside(one)), shown);
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
