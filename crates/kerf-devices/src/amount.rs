//! Amounts of capacity and of counters, exactly.

use std::fmt;

/// A Kubernetes quantity: a number of billionths. What users can write fits, and sums of it do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

/// Why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity such as 4, 500m or 16Gi")]
pub struct NotAnAmount {
    pub text: String,
}

const UNIT: i128 = 1_000_000_000;

impl Amount {
    pub const ZERO: Self = Self(0);

    pub fn whole(units: i64) -> Self {
        Self(i128::from(units) * UNIT)
    }

    /// Reads a quantity as Kubernetes does. Digits beyond billionths round away from zero.
    pub fn parse(text: &str) -> Result<Self, NotAnAmount> {
        parse(text).map(Self).ok_or_else(|| NotAnAmount { text: text.to_owned() })
    }

    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The smallest `min + n·step` that is not less than this amount. A step of nothing leaves it as it is.
    pub fn stepped(self, min: Self, step: Self) -> Self {
        if step.0 <= 0 || self <= min {
            return self.max(min);
        }
        let beyond = (self.0 - min.0).rem_euclid(step.0);
        if beyond == 0 { self } else { Self(self.0.saturating_add(step.0 - beyond)) }
    }

    /// Its units, if it has no fraction and fits.
    pub fn as_whole(self) -> Option<i64> {
        if self.0 % UNIT != 0 {
            return None;
        }
        i64::try_from(self.0 / UNIT).ok()
    }

    pub fn signum(self) -> i64 {
        match self.0 {
            0 => 0,
            less if less < 0 => -1,
            _ => 1,
        }
    }

    /// For selectors that ask for a floating-point number; nothing else computes with it.
    pub fn approximately(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, size) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let unit = UNIT.unsigned_abs();
        let (units, fraction) = (size / unit, size % unit);
        if fraction != 0 {
            let digits = format!("{fraction:09}");
            return write!(f, "{sign}{units}.{}", digits.trim_end_matches('0'));
        }
        let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let mut short = units;
        let mut suffix = 0;
        // 10^18 is a multiple of 2^18, but nobody means that.
        while units % 1000 != 0 && short % 1024 == 0 && suffix + 1 < binary.len() {
            short /= 1024;
            suffix += 1;
        }
        write!(f, "{sign}{short}{}", binary[suffix])
    }
}

fn parse(text: &str) -> Option<i128> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (units, fraction) = number.split_once('.').unwrap_or((number, ""));
    if units.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let mut digits: i128 = 0;
    for digit in units.bytes().chain(fraction.bytes()) {
        digits = digits.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    let (ten, two) = scale(suffix)?;
    let exponent = ten + 9 - i32::try_from(fraction.len()).ok()?;
    let shifted = digits.checked_mul(1_i128.checked_shl(two)?)?;
    let size = if exponent >= 0 {
        shifted.checked_mul(10_i128.checked_pow(exponent.unsigned_abs())?)?
    } else {
        // A divisor that does not fit is greater than any number of digits that does.
        match 10_i128.checked_pow(exponent.unsigned_abs()) {
            Some(divisor) => shifted / divisor + i128::from(shifted % divisor != 0),
            None => i128::from(shifted != 0),
        }
    };
    Some(if negative { -size } else { size })
}

/// The powers of ten and of two that a suffix stands for.
fn scale(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            ((-40..=40).contains(&exponent).then_some(exponent)?, 0)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubernetes_writes() {
        let cases = [
            ("0", Some("0")),
            ("80Gi", Some("80Gi")),
            ("81920Mi", Some("80Gi")),
            ("1.5Ki", Some("1536")),
            ("500m", Some("0.5")),
            (".5", Some("0.5")),
            ("2.", Some("2")),
            ("-3", Some("-3")),
            ("1e3", Some("1000")),
            ("1E", Some("1000000000000000000")),
            ("0.1n", Some("0.000000001")),
            ("1000000000000", Some("1000000000000")),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("five", None),
            ("1 Gi", None),
            ("1e999", None),
            ("99999999999999999999999999999999999999E", None),
        ];
        for (text, expect) in cases {
            let read = Amount::parse(text).ok().map(|amount| amount.to_string());
            assert_eq!(read.as_deref(), expect, "{text:?}");
        }
    }

    #[test]
    fn steps_up_from_the_least() {
        let cases = [("1", "2"), ("2", "2"), ("3", "6"), ("6", "6"), ("6500m", "10"), ("-5", "2")];
        for (asked, expect) in cases {
            let stepped = Amount::parse(asked).unwrap().stepped(Amount::whole(2), Amount::whole(4));
            assert_eq!(stepped, Amount::parse(expect).unwrap(), "{asked}");
        }
        assert_eq!(Amount::whole(3).stepped(Amount::whole(2), Amount::ZERO), Amount::whole(3));
    }
}
