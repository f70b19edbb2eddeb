//! The time at which a cluster is judged, and how it is known.

use jiff::Timestamp;
use kerf_runtime::Clock;
use serde::Serialize;

/// Budgets, grace periods and expiry depend on it. A file is judged at the time when it was taken: a day later every grace
/// period in it would be over.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Moment {
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) judged_at: Timestamp,
    #[serde(skip)]
    origin: Origin,
}

#[derive(Clone, Copy, Debug)]
enum Origin {
    /// The user said it.
    Given,
    /// The last time that stands in the files.
    Files,
    /// The files say nothing of time.
    ClockForFiles,
    /// The cluster is there now.
    Clock,
}

impl Moment {
    pub(crate) fn of(given: Option<Timestamp>, newest: Option<Timestamp>, is_live: bool) -> Self {
        match (given, newest) {
            (Some(judged_at), _) => Self { judged_at, origin: Origin::Given },
            (None, Some(judged_at)) => Self { judged_at, origin: Origin::Files },
            (None, None) => {
                let origin = if is_live { Origin::Clock } else { Origin::ClockForFiles };
                Self { judged_at: Clock::system().now(), origin }
            }
        }
    }

    /// The time of a snapshot that was taken just now.
    pub(crate) fn live(judged_at: Timestamp) -> Self {
        Self { judged_at, origin: Origin::Clock }
    }

    /// How it is told; not at all where nobody would expect anything else.
    pub(crate) fn shown(&self) -> Option<String> {
        let at = self.judged_at;
        match self.origin {
            Origin::Given => Some(format!("judged as of {at}")),
            Origin::Files => {
                Some(format!("judged as of {at}, the last time in the files; --now sets another"))
            }
            Origin::ClockForFiles => Some(
                "judged as of now, because the files contain no time; --now sets another"
                    .to_owned(),
            ),
            Origin::Clock => None,
        }
    }
}
