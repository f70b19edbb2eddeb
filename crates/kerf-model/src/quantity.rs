//! Kubernetes quantities, held exactly.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

/// A Kubernetes quantity such as `1500m`, `2Gi` or `12e3`.
///
/// Kubernetes bounds quantities by 2^63-1 and rounds away from zero below a billionth, so an `i128`
/// of billionths holds every one of them exactly. Equality, order and hash look at the number alone;
/// the notation is carried along only to print it back in the family it was written in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

/// The suffix family in which a quantity is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notation {
    /// `m`, `k`, `M`, ...
    #[default]
    Decimal,
    /// `Ki`, `Mi`, ...
    Binary,
    /// `e3`, `e6`, ...
    Exponent,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is not a quantity: write a number with an optional suffix such as 500m, 2 or 1.5Gi"
)]
pub struct QuantityError {
    text: String,
}

const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Kubernetes caps instead of failing: larger values become 2^63-1.
const LARGEST: i128 = i64::MAX as i128 * NANOS_PER_UNIT;

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, notation: Notation::Decimal };

    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS_PER_UNIT, notation: Notation::Decimal }
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self { nanos: millis as i128 * 1_000_000, notation: Notation::Decimal }
    }

    /// A number of bytes, printed with binary suffixes.
    pub const fn from_bytes(bytes: i64) -> Self {
        Self { nanos: bytes as i128 * NANOS_PER_UNIT, notation: Notation::Binary }
    }

    pub const fn from_nanos(nanos: i128, notation: Notation) -> Self {
        Self { nanos, notation }
    }

    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    pub const fn notation(self) -> Notation {
        self.notation
    }

    /// Whole units, rounded away from zero as Kubernetes does.
    pub fn units(self) -> i64 {
        saturated(divide_away_from_zero(self.nanos, NANOS_PER_UNIT))
    }

    /// Whole units that fit in it: what a limit of so many things allows.
    pub fn whole_units(self) -> i64 {
        saturated(self.nanos.div_euclid(NANOS_PER_UNIT))
    }

    /// Thousandths, rounded away from zero as Kubernetes does.
    pub fn millis(self) -> i64 {
        saturated(divide_away_from_zero(self.nanos, 1_000_000))
    }

    /// For metrics and shares only; decisions compare quantities.
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANOS_PER_UNIT as f64
    }

    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| QuantityError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (multiplier, notation) = multiplier_of(suffix)?;
    let magnitude = scale(whole, fraction, multiplier).min(LARGEST.unsigned_abs());
    let nanos = i128::try_from(magnitude).ok()?;
    Some(Quantity { nanos: if negative { -nanos } else { nanos }, notation })
}

/// A suffix as a factor on billionths: `Times(n)` multiplies, `Per(n)` divides.
#[derive(Clone, Copy)]
enum Multiplier {
    Times(u128),
    Per(u128),
}

fn multiplier_of(suffix: &str) -> Option<(Multiplier, Notation)> {
    let power_of_ten = |exponent: i32| {
        // Nine more because the result is in billionths; beyond 10^38 everything is capped or nothing.
        let exponent = exponent.saturating_add(9);
        if exponent >= 0 {
            Multiplier::Times(10u128.saturating_pow(exponent.unsigned_abs()))
        } else {
            Multiplier::Per(10u128.saturating_pow(exponent.unsigned_abs()))
        }
    };
    let binary =
        |power: u32| (Multiplier::Times((1u128 << power) * 1_000_000_000), Notation::Binary);
    Some(match suffix {
        "n" => (power_of_ten(-9), Notation::Decimal),
        "u" => (power_of_ten(-6), Notation::Decimal),
        "m" => (power_of_ten(-3), Notation::Decimal),
        "" => (power_of_ten(0), Notation::Decimal),
        "k" => (power_of_ten(3), Notation::Decimal),
        "M" => (power_of_ten(6), Notation::Decimal),
        "G" => (power_of_ten(9), Notation::Decimal),
        "T" => (power_of_ten(12), Notation::Decimal),
        "P" => (power_of_ten(15), Notation::Decimal),
        "E" => (power_of_ten(18), Notation::Decimal),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (power_of_ten(exponent_of(exponent)?), Notation::Exponent)
        }
    })
}

/// A whole number. One that is too large for us makes an amount that is capped, or next to nothing, as any large one does.
fn exponent_of(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let most = if text.starts_with('-') { i32::MIN } else { i32::MAX };
    Some(text.parse().unwrap_or(most))
}

/// `whole.fraction` times the multiplier, rounded up.
fn scale(whole: &str, fraction: &str, multiplier: Multiplier) -> u128 {
    // A fraction longer than this cannot change a billionth except by rounding up, which one digit does.
    const FRACTION_DIGITS: usize = 18;
    let (kept, dropped) = fraction.split_at(fraction.len().min(FRACTION_DIGITS));
    let sticky = dropped.bytes().any(|digit| digit != b'0');
    let mut mantissa: u128 = 0;
    for digit in whole.bytes().chain(kept.bytes()) {
        let Some(next) = mantissa
            .checked_mul(10)
            .and_then(|shifted| shifted.checked_add(u128::from(digit - b'0')))
        else {
            return u128::MAX;
        };
        mantissa = next;
    }
    let mut divisor = 10u128.pow(u32::try_from(kept.len()).unwrap_or(u32::MAX));
    let factor = match multiplier {
        Multiplier::Times(factor) => factor,
        Multiplier::Per(per) => {
            divisor = divisor.saturating_mul(per);
            1
        }
    };
    let (quotient, remainder) = (mantissa / divisor, mantissa % divisor);
    let fractional = match remainder.checked_mul(factor) {
        Some(product) if product % divisor == 0 => product / divisor + u128::from(sticky),
        Some(product) => product.div_ceil(divisor),
        // Only a fraction of a number that is capped anyway gets here.
        None => factor,
    };
    quotient.saturating_mul(factor).saturating_add(fractional)
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that needs none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % NANOS_PER_UNIT == 0;
        let units = self.nanos / NANOS_PER_UNIT;
        if self.notation == Notation::Binary && whole && units.abs() >= 1024 {
            let (mut number, mut power) = (units, 0);
            while number % 1024 == 0 && power < 6 {
                number /= 1024;
                power += 1;
            }
            return write!(f, "{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut number, mut exponent) = (self.nanos, -9);
        while number % 1000 == 0 && exponent < 18 {
            number /= 1000;
            exponent += 3;
        }
        match (self.notation, exponent) {
            (_, 0) => write!(f, "{number}"),
            (Notation::Exponent, _) => write!(f, "{number}e{exponent}"),
            _ => {
                let suffix = match exponent {
                    -9 => "n",
                    -6 => "u",
                    -3 => "m",
                    3 => "k",
                    6 => "M",
                    9 => "G",
                    12 => "T",
                    15 => "P",
                    _ => "E",
                };
                write!(f, "{number}{suffix}")
            }
        }
    }
}

fn divide_away_from_zero(value: i128, divisor: i128) -> i128 {
    let quotient = value / divisor;
    if value % divisor == 0 { quotient } else { quotient + value.signum() }
}

fn saturated(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Add for Quantity {
    type Output = Self;

    /// The sum keeps the notation of the left side unless that is zero.
    fn add(self, other: Self) -> Self {
        let notation = if self.nanos == 0 { other.notation } else { self.notation };
        Self { nanos: self.nanos.saturating_add(other.nanos), notation }
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nanos: self.nanos.saturating_neg(), notation: self.notation }
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::ZERO, Add::add)
    }
}

impl serde::Serialize for Quantity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Quantity {
    /// Accepts strings and plain numbers, as the API server does.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl serde::de::Visitor<'_> for Text {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 500m, 2 or 1.5Gi")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(number))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, nanos: i128, canonical: &str) {
        let quantity: Quantity = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(quantity.nanos(), nanos, "{text}");
        assert_eq!(quantity.to_string(), canonical, "{text}");
        let again: Quantity = canonical.parse().unwrap();
        assert_eq!(again, quantity, "{text} does not survive printing");
    }

    #[test]
    fn parses_every_form_and_prints_the_canonical_one() {
        const UNIT: i128 = NANOS_PER_UNIT;
        check("0", 0, "0");
        check("-0", 0, "0");
        check("1", UNIT, "1");
        check("+1", UNIT, "1");
        check("1.", UNIT, "1");
        check(".5", UNIT / 2, "500m");
        check("0.5", UNIT / 2, "500m");
        check("1.5", UNIT * 3 / 2, "1500m");
        check("1000m", UNIT, "1");
        check("100m", UNIT / 10, "100m");
        check("1u", 1000, "1u");
        check("1n", 1, "1n");
        check("0.1n", 1, "1n");
        check("-0.1n", -1, "-1n");
        check("1.0000000001", UNIT + 1, "1000000001n");
        check("1.00000000000000000000000000001", UNIT + 1, "1000000001n");
        check("1k", 1000 * UNIT, "1k");
        check("1500", 1500 * UNIT, "1500");
        check("10000", 10_000 * UNIT, "10k");
        check("1M", 1_000_000 * UNIT, "1M");
        check("2G", 2_000_000_000 * UNIT, "2G");
        check("3T", 3 * 1_000_000_000_000 * UNIT, "3T");
        check("4P", 4 * 1_000_000_000_000_000 * UNIT, "4P");
        check("5E", 5 * 1_000_000_000_000_000_000 * UNIT, "5E");
        check("1Ki", 1024 * UNIT, "1Ki");
        check("0.5Ki", 512 * UNIT, "512");
        check("1.5Gi", 1536 * 1024 * 1024 * UNIT, "1536Mi");
        check("2048Mi", 2 * (1 << 30) * UNIT, "2Gi");
        check("1Ti", (1i128 << 40) * UNIT, "1Ti");
        check("1Pi", (1i128 << 50) * UNIT, "1Pi");
        check("1Ei", (1i128 << 60) * UNIT, "1Ei");
        check("0.0001Ki", 102_400_000, "102400u");
        check("12e3", 12_000 * UNIT, "12e3");
        check("1e2", 100 * UNIT, "100");
        check("1E2", 100 * UNIT, "100");
        check("1.5e-3", 1_500_000, "1500e-6");
        check("-1500m", -UNIT * 3 / 2, "-1500m");
        check("10000000000000000000000n", 10_000_000_000_000 * UNIT, "10T");
    }

    #[test]
    fn caps_what_kubernetes_caps() {
        check("9223372036854775807", LARGEST, "9223372036854775807");
        check("9223372036854775808", LARGEST, "9223372036854775807");
        check("100E", LARGEST, "9223372036854775807");
        check("1e30", LARGEST, "9223372036854775807");
        let capped: Quantity = "8Ei".parse().unwrap();
        assert_eq!(capped.nanos(), LARGEST);
        let digits: Quantity = "9".repeat(80).parse().unwrap();
        assert_eq!(digits.nanos(), LARGEST);
        check("1e99999999999", LARGEST, "9223372036854775807");
        check("-1e+99999999999999999999999", -LARGEST, "-9223372036854775807");
        for text in ["1e-400", "1e-99999999999"] {
            let vanishing: Quantity = text.parse().unwrap();
            assert_eq!(vanishing.nanos(), 1, "{text}");
        }
        check("0e99999999999", 0, "0");
    }

    #[test]
    fn rejects_what_is_not_a_quantity() {
        for text in [
            "",
            "-",
            "+",
            ".",
            "m",
            "Gi",
            "1x",
            "1 ",
            " 1",
            "1.2.3",
            "1e",
            "1ee3",
            "1mm",
            "1ki",
            "--1",
            "0x1",
            "1e1.5",
            "1e.5",
            "1e+",
            "1e-",
            "1e+-1",
            "1e99999999999.5",
            "١",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn sums_keep_the_notation_of_the_first_value() {
        let sum =
            |a: &str, b: &str| (a.parse::<Quantity>().unwrap() + b.parse().unwrap()).to_string();
        assert_eq!(sum("1Gi", "1024Mi"), "2Gi");
        assert_eq!(sum("0", "1Gi"), "1Gi");
        assert_eq!(sum("1", "500m"), "1500m");
        assert_eq!(sum("1Gi", "-1Gi"), "0");
    }

    #[test]
    fn rounds_away_from_zero_in_whole_numbers() {
        let quantity: Quantity = "1100m".parse().unwrap();
        assert_eq!((quantity.units(), quantity.millis()), (2, 1100));
        assert_eq!(quantity.whole_units(), 1);
        let small: Quantity = "1n".parse().unwrap();
        assert_eq!((small.units(), small.millis()), (1, 1));
        let negative: Quantity = "-1n".parse().unwrap();
        assert_eq!((negative.units(), negative.millis()), (-1, -1));
        let endless: Quantity = "1e30".parse().unwrap();
        assert_eq!((endless.units(), endless.millis()), (i64::MAX, i64::MAX));
        assert_eq!(((-endless).units(), (-endless).millis()), (-i64::MAX, i64::MIN));
    }
}
