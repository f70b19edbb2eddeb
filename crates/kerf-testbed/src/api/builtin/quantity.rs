//! Quantities in the one form in which the API server writes them: `1000m` is `1`, `1024Mi` is `1Gi`.

use serde_json::Value;

/// Names of fields that hold quantities by resource name.
const QUANTITIES: [&str; 8] = [
    "requests",
    "limits",
    "capacity",
    "allocatable",
    "overhead",
    "hard",
    "used",
    "allocatedResources",
];

/// Rewrites the quantities of an object. An error names the first that is none.
pub(super) fn canonicalize(value: &mut Value) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::Object(quantities) if QUANTITIES.contains(&key.as_str()) => {
                        for quantity in quantities.values_mut() {
                            let text = quantity
                                .as_str()
                                .map_or_else(|| quantity.to_string(), str::to_owned);
                            *quantity = canonical(&text).ok_or(text)?.into();
                        }
                    }
                    other => canonicalize(other)?,
                }
            }
        }
        Value::Array(items) => items.iter_mut().try_for_each(canonicalize)?,
        _ => {}
    }
    Ok(())
}

const NANO: i128 = 1_000_000_000;
const DECIMAL: [(&str, u32); 10] = [
    ("n", 0),
    ("u", 3),
    ("m", 6),
    ("", 9),
    ("k", 12),
    ("M", 15),
    ("G", 18),
    ("T", 21),
    ("P", 24),
    ("E", 27),
];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Whether `request` is more than `limit`; never where there is no limit.
pub(super) fn exceeds(request: &Value, limit: &Value) -> bool {
    let nanos = |value: &Value| value.as_str().and_then(nanos);
    nanos(request).zip(nanos(limit)).is_some_and(|(request, limit)| request > limit)
}

fn nanos(text: &str) -> Option<i128> {
    let (number, suffix) = split(text);
    if let Some(power) = BINARY.iter().position(|unit| *unit == suffix) {
        return parse(number, 9)?.checked_mul(1_i128 << (10 * (power + 1)));
    }
    if let Some((_, scale)) = DECIMAL.iter().find(|(unit, _)| *unit == suffix) {
        return parse(number, *scale);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    parse(number, u32::try_from(9 + exponent).ok()?)
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    text.split_at(end)
}

fn canonical(text: &str) -> Option<String> {
    let nanos = nanos(text)?;
    let suffix = split(text).1;
    if BINARY.contains(&suffix) {
        return Some(binary(nanos));
    }
    if DECIMAL.iter().any(|(unit, _)| *unit == suffix) {
        return Some(decimal(nanos));
    }
    let exponents =
        (0..10).map(|e| e * 3).rev().find(|e| nanos % 10_i128.pow(*e) == 0).unwrap_or(0);
    let shown = i64::from(exponents) - 9;
    let mantissa = nanos / 10_i128.pow(exponents);
    Some(if shown == 0 { mantissa.to_string() } else { format!("{mantissa}e{shown}") })
}

/// `number` times ten to the `scale`, rounded up: Go never rounds a request down.
fn parse(number: &str, scale: u32) -> Option<i128> {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let places = u32::try_from(fraction.len()).ok()?;
    let all: i128 = format!("{whole}{fraction}").parse().ok()?;
    let value = if places <= scale {
        all.checked_mul(10_i128.checked_pow(scale - places)?)?
    } else {
        let divisor = 10_i128.checked_pow(places - scale)?;
        (all + divisor - 1) / divisor
    };
    Some(sign * value)
}

fn decimal(nanos: i128) -> String {
    if nanos == 0 {
        return "0".into();
    }
    let unit = DECIMAL.iter().rev().find(|(_, scale)| nanos % 10_i128.pow(*scale) == 0);
    unit.map_or_else(String::new, |(unit, scale)| format!("{}{unit}", nanos / 10_i128.pow(*scale)))
}

fn binary(nanos: i128) -> String {
    // Below 1024, or in fractions of a byte, the binary form has nothing to show.
    if nanos % NANO != 0 || (nanos / NANO).abs() < 1024 {
        return decimal(nanos);
    }
    let mut value = nanos / NANO;
    let mut unit = "";
    for next in BINARY {
        if value % 1024 != 0 {
            break;
        }
        value /= 1024;
        unit = next;
    }
    format!("{value}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_form() {
        for (text, expected) in [
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("0.5Gi", "512Mi"),
            ("1000", "1k"),
            ("100", "100"),
            ("0", "0"),
            ("1.5Gi", "1536Mi"),
            ("1024", "1024"),
            ("12e6", "12e6"),
            ("-5", "-5"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "abc", "1X", "1.2.3", "1Kib"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
