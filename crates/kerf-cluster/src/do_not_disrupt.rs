//! The `karpenter.sh/do-not-disrupt` annotation of a pod: for good, or for a time after its start.

use jiff::{SignedDuration, Timestamp};
use kerf_api::{GoDuration, annotations::DO_NOT_DISRUPT, duration::ParseDurationError};

use crate::Pod;

/// What the annotation asks for at a given time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    None,
    /// `true`, or a duration on a pod that has not started: safe until the annotation goes.
    Always,
    Until(Timestamp),
    /// A duration that has run out.
    Elapsed,
    /// Neither `true` nor a positive duration: it protects nothing, and the owner should get an event.
    Invalid(Invalid),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("failed to parse {value:?} as a duration: {source}")]
    NotADuration { value: String, source: ParseDurationError },
    #[error("duration {0:?} must be positive")]
    NotPositive(String),
}

impl Protection {
    pub fn of(pod: &Pod, now: Timestamp) -> Self {
        let Some(value) = pod.annotations().get(DO_NOT_DISRUPT) else { return Self::None };
        if value == "true" {
            return Self::Always;
        }
        let length = match parse(value) {
            Ok(length) => length,
            Err(invalid) => return Self::Invalid(invalid),
        };
        let Some(started) = pod.started() else { return Self::Always };
        let until = started.checked_add(length).unwrap_or(Timestamp::MAX);
        if now < until { Self::Until(until) } else { Self::Elapsed }
    }

    pub fn is_active(&self) -> bool {
        matches!(self, Self::Always | Self::Until(_))
    }
}

fn parse(value: &str) -> Result<SignedDuration, Invalid> {
    // Kerf's durations are never negative; here a negative one deserves its own answer.
    if value.starts_with('-') && value[1..].parse::<GoDuration>().is_ok() {
        return Err(Invalid::NotPositive(value.to_owned()));
    }
    let duration: GoDuration = value
        .parse()
        .map_err(|source| Invalid::NotADuration { value: value.to_owned(), source })?;
    if duration.as_duration().is_zero() {
        return Err(Invalid::NotPositive(value.to_owned()));
    }
    Ok(SignedDuration::try_from(duration.as_duration()).unwrap_or(SignedDuration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1 as core;
    use serde_json::json;

    #[test]
    fn reads_every_form_of_the_annotation() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let started = "2026-01-01T00:00:00Z";
        let until = |time: &str| Protection::Until(time.parse().unwrap());
        let not_a_duration = |v: &str| {
            let source = v.parse::<GoDuration>().unwrap_err();
            Protection::Invalid(Invalid::NotADuration { value: v.to_owned(), source })
        };
        let not_positive = |v: &str| Protection::Invalid(Invalid::NotPositive(v.into()));
        let cases = [
            (None, Some(started), Protection::None),
            (Some("true"), Some(started), Protection::Always),
            (Some("true"), None, Protection::Always),
            (Some("2h"), Some(started), until("2026-01-01T02:00:00Z")),
            (Some("1h0m1s"), Some(started), until("2026-01-01T01:00:01Z")),
            (Some("1h"), Some(started), Protection::Elapsed),
            (Some("30m"), Some(started), Protection::Elapsed),
            (Some("30m"), None, Protection::Always),
            (Some("false"), Some(started), not_a_duration("false")),
            (Some(""), Some(started), not_a_duration("")),
            (Some("1day"), Some(started), not_a_duration("1day")),
            (Some("0s"), Some(started), not_positive("0s")),
            (Some("-5m"), Some(started), not_positive("-5m")),
        ];
        for (annotation, start_time, expected) in cases {
            let annotations = annotation.map(|value| json!({DO_NOT_DISRUPT: value}));
            let pod: core::Pod = serde_json::from_value(json!({
                "metadata": {"annotations": annotations}, "status": {"startTime": start_time}
            }))
            .unwrap();
            assert_eq!(
                Protection::of(&pod.into(), now),
                expected,
                "{annotation:?} started {start_time:?}"
            );
        }
    }
}
