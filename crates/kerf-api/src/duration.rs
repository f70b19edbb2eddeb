//! Durations in Go's notation (`1h30m`), remembered as the user wrote them.
//!
//! `kube_core::Duration` is not used: it forgets the text (`720h` comes back as `2592000s`, which
//! the pattern of a budget's `duration` even rejects) and it panics on numbers that the CRD
//! patterns let through.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A span of time, written like `30s`, `1h30m` or `720h`.
///
/// Two values are equal when they last equally long, however they are written.
#[derive(Clone)]
pub struct GoDuration {
    text: Box<str>,
    length: Duration,
}

/// A span of time, or the word `Never`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurationOrNever {
    Never,
    After(GoDuration),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: {problem}; write it like 30s, 1h30m or 720h")]
pub struct ParseDurationError {
    text: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("it is empty")]
    Empty,
    #[error("it is negative")]
    Negative,
    #[error("a number is missing")]
    NoNumber,
    #[error("a unit is missing")]
    NoUnit,
    #[error("a unit is none of h, m, s, ms, us and ns")]
    UnknownUnit,
}

/// Go counts nanoseconds in an i64, so nothing lasts longer than about 292 years.
const LONGEST: u128 = i64::MAX as u128;

impl GoDuration {
    pub fn as_duration(&self) -> Duration {
        self.length
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl DurationOrNever {
    pub fn hours(hours: u32) -> Self {
        let length = Duration::from_hours(hours.into());
        Self::After(GoDuration { text: format!("{hours}h").into(), length })
    }

    /// The span, or `None` for `Never`.
    pub fn as_duration(&self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::After(length) => Some(length.as_duration()),
        }
    }

    pub fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Never => "Never",
            Self::After(length) => length.as_str(),
        }
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match parse(text) {
            Ok(length) => Ok(Self { text: text.into(), length }),
            Err(problem) => Err(ParseDurationError { text: text.into(), problem }),
        }
    }
}

impl FromStr for DurationOrNever {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "Never" { Ok(Self::Never) } else { text.parse().map(Self::After) }
    }
}

/// Numbers too large for Go are cut to the longest span instead of being refused: the CRD patterns
/// admit them, and one such object must not stop the watch that carries all the others.
fn parse(text: &str) -> Result<Duration, Problem> {
    let (negative, mut rest) = match text.as_bytes().first() {
        None => return Err(Problem::Empty),
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(Problem::NoNumber);
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split_while(after, |c| !c.is_ascii_digit() && c != '.');
        rest = after;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(Problem::NoNumber);
        }
        let unit = nanoseconds_in(unit)?;
        let whole = decimal(whole).saturating_mul(unit);
        // More than 18 places are far below a nanosecond for every unit.
        let places = &fraction[..fraction.len().min(18)];
        let part = decimal(places) * unit / 10u128.pow(u32::try_from(places.len()).unwrap_or(0));
        total = total.saturating_add(whole).saturating_add(part).min(LONGEST);
    }
    if negative && total > 0 {
        return Err(Problem::Negative);
    }
    Ok(Duration::from_nanos(u64::try_from(total).unwrap_or(u64::MAX)))
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

/// The value of a run of digits, cut to [`LONGEST`].
fn decimal(digits: &str) -> u128 {
    digits
        .bytes()
        .fold(0, |value: u128, digit| (value * 10 + u128::from(digit - b'0')).min(LONGEST))
}

fn nanoseconds_in(unit: &str) -> Result<u128, Problem> {
    match unit {
        "ns" => Ok(1),
        // both the micro sign and the Greek letter
        "us" | "\u{b5}s" | "\u{3bc}s" => Ok(1_000),
        "ms" => Ok(1_000_000),
        "s" => Ok(1_000_000_000),
        "m" => Ok(60_000_000_000),
        "h" => Ok(3_600_000_000_000),
        "" => Err(Problem::NoUnit),
        _ => Err(Problem::UnknownUnit),
    }
}

impl From<Duration> for GoDuration {
    fn from(length: Duration) -> Self {
        Self { text: written_by_go(length).into(), length }
    }
}

impl From<Duration> for DurationOrNever {
    fn from(length: Duration) -> Self {
        Self::After(length.into())
    }
}

/// The text that Go prints: `1h0m0s`, `1.5s`, `20ms`.
fn written_by_go(length: Duration) -> String {
    let nanoseconds = length.as_nanos();
    let (unit, size) = match nanoseconds {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("\u{b5}s", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let (hours, minutes) = (length.as_secs() / 3600, length.as_secs() / 60 % 60);
    let below_a_minute = nanoseconds % 60_000_000_000;
    let mut text = match (hours, minutes) {
        (0, 0) => String::new(),
        (0, minutes) => format!("{minutes}m"),
        (hours, minutes) => format!("{hours}h{minutes}m"),
    };
    text += &(below_a_minute / size).to_string();
    if !below_a_minute.is_multiple_of(size) {
        let digits = size.ilog10() as usize;
        let fraction = format!("{:0digits$}", below_a_minute % size);
        text.push('.');
        text += fraction.trim_end_matches('0');
    }
    text + unit
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for DurationOrNever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq for GoDuration {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length
    }
}

impl Eq for GoDuration {}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl Serialize for DurationOrNever {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for DurationOrNever {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl JsonSchema for DurationOrNever {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "DurationOrNever".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_durations() {
        let check = |text: &str, seconds: u64, nanoseconds: u32| {
            let parsed: GoDuration = text.parse().unwrap();
            assert_eq!(parsed.as_duration(), Duration::new(seconds, nanoseconds), "{text}");
        };
        check("0", 0, 0);
        check("0s", 0, 0);
        check("-0s", 0, 0);
        check("720h", 2_592_000, 0);
        check("1h30m", 5400, 0);
        check("90m", 5400, 0);
        check("1h0m0s", 3600, 0);
        check("+5s", 5, 0);
        check("1.5h", 5400, 0);
        check(".5s", 0, 500_000_000);
        check("1.s", 1, 0);
        check("1.000000000000000000001s", 1, 0);
        check("100ms", 0, 100_000_000);
        check("1\u{b5}s2us3\u{3bc}s4ns", 0, 6_004);
    }

    #[test]
    fn rejects_what_is_not_a_duration() {
        let check = |text: &str, problem: Problem| {
            assert_eq!(text.parse::<GoDuration>().unwrap_err().problem, problem, "{text}");
        };
        check("", Problem::Empty);
        check("-1s", Problem::Negative);
        check("-", Problem::NoNumber);
        check(".s", Problem::NoNumber);
        check("1.2.3s", Problem::NoNumber);
        check("s", Problem::NoNumber);
        check("5", Problem::NoUnit);
        check("1h5", Problem::NoUnit);
        check("5d", Problem::UnknownUnit);
        check("1h 5m", Problem::UnknownUnit);
        check("Never", Problem::NoNumber);
        check("never", Problem::NoNumber);
    }

    #[test]
    fn says_what_is_wrong_and_what_to_write() {
        assert_eq!(
            "5d".parse::<GoDuration>().unwrap_err().to_string(),
            "\"5d\" is not a duration: a unit is none of h, m, s, ms, us and ns; write it like 30s, 1h30m or 720h"
        );
    }

    #[test]
    fn cuts_what_go_cannot_count_to_its_longest_duration() {
        let longest = Duration::from_nanos(i64::MAX.unsigned_abs());
        for text in ["9999999h", "99999999999999999999999999999999999999999999h", "9e0h"] {
            match text.parse::<GoDuration>() {
                Ok(parsed) => assert_eq!(parsed.as_duration(), longest, "{text}"),
                Err(error) => assert_eq!((text, error.problem), ("9e0h", Problem::UnknownUnit)),
            }
        }
    }

    #[test]
    fn writes_back_what_was_read() {
        for text in ["720h", "60m", "1h0m0s", "Never"] {
            let json = format!("{text:?}");
            let read: DurationOrNever = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), json);
        }
    }

    #[test]
    fn compares_lengths_and_not_texts() {
        let read = |text: &str| text.parse::<DurationOrNever>().unwrap();
        assert_eq!(read("1h"), read("60m"));
        assert_ne!(read("1h"), read("61m"));
        assert_ne!(read("0s"), read("Never"));
    }

    #[test]
    fn writes_computed_durations_as_go_does() {
        let check = |length: Duration, text: &str| {
            let written = GoDuration::from(length);
            assert_eq!(written.as_str(), text);
            assert_eq!(written.as_str().parse::<GoDuration>().unwrap().as_duration(), length);
        };
        check(Duration::ZERO, "0s");
        check(Duration::from_secs(5), "5s");
        check(Duration::from_mins(5), "5m0s");
        check(Duration::from_hours(1), "1h0m0s");
        check(Duration::from_hours(720), "720h0m0s");
        check(Duration::from_millis(1500), "1.5s");
        check(Duration::from_millis(61_050), "1m1.05s");
        check(Duration::from_millis(20), "20ms");
        check(Duration::from_nanos(1_500), "1.5\u{b5}s");
        check(Duration::from_nanos(7), "7ns");
    }
}
