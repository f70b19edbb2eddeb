//! Amounts as Kubernetes writes them, in thousandths. Amounts that no machine has saturate.

/// `None`: this is no quantity.
pub(super) fn milli(text: &str) -> Option<i128> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')));
    let (number, suffix) = text.split_at(digits.unwrap_or(text.len()));
    let (factor, divisor): (i128, i128) = match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: u32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            (10_i128.saturating_pow(power), 1)
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let negative = whole.starts_with('-');
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Nine digits are more than a thousandth of the smallest suffix ever needs.
    let padded: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let fraction: i128 = padded.parse().ok()?;
    let nano = whole.saturating_mul(1_000_000_000);
    let nano = if negative { nano - fraction } else { nano.saturating_add(fraction) };
    Some(nano.saturating_mul(factor) / divisor / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::milli;

    #[test]
    fn reads_amounts() {
        for (text, expected) in [
            ("2", Some(2_000)),
            ("1930m", Some(1_930)),
            ("1.5", Some(1_500)),
            ("0.1", Some(100)),
            ("2Gi", Some((2_i128 << 30) * 1_000)),
            ("1k", Some(1_000_000)),
            ("1e3", Some(1_000_000)),
            ("500u", Some(0)),
            ("-1", Some(-1_000)),
            ("many", None),
            ("1Xi", None),
        ] {
            assert_eq!(milli(text), expected, "{text}");
        }
    }
}
