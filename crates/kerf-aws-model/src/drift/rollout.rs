//! How fast a new image reaches the nodes that run.
//!
//! `@latest` makes every node drift on the day of a release. New nodes get the new image at once; those that run drift because of
//! it when it has been published for a while (the soak), and then a share of them in each hour (the pace). When a node's turn
//! comes follows from its UID and the image: nothing has to be remembered but since when the class has had the image.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{GoDuration, duration::ParseDurationError};
use kerf_aws_api::{Ami, annotations};

use crate::digest::digest;

/// The settings of a class. Without annotations there is neither soak nor pace, as with Karpenter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    pub soak: Duration,
    pub pace: Option<Pace>,
}

/// The percentage of nodes that drift in an hour: 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace(u8);

/// Why a node does not drift yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The image is too young.
    Soaking { until: Timestamp },
    /// When the image was published is not known yet.
    UnknownAge,
    /// Other nodes come first.
    Paced { until: Timestamp },
    /// Nodes do not register, perhaps because of the image.
    RegistrationFailing,
}

/// How old an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageAge {
    pub published: Option<Timestamp>,
    /// Since when the class has had it.
    pub first_seen: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadRolloutError {
    #[error("the annotation {key}: {0}", key = annotations::AMI_SOAK)]
    Soak(#[from] ParseDurationError),
    #[error(
        "the annotation {key}: {0:?} is not a share of nodes; write it like 10%, from 1% to 100%",
        key = annotations::AMI_DRIFT_PACE
    )]
    Pace(String),
}

impl Rollout {
    pub fn read(all: Option<&BTreeMap<String, String>>) -> Result<Self, ReadRolloutError> {
        let get = |key: &str| all.and_then(|all| all.get(key));
        let soak = get(annotations::AMI_SOAK).map(|text| text.parse::<GoDuration>()).transpose()?;
        let pace = get(annotations::AMI_DRIFT_PACE).map(|text| text.parse()).transpose()?;
        Ok(Self { soak: soak.map_or(Duration::ZERO, |soak| soak.as_duration()), pace })
    }

    /// Whether it is the turn of the claim to drift because of the image.
    pub fn check(
        self,
        claim_uid: &str,
        image: &str,
        age: ImageAge,
        registration_healthy: bool,
        now: Timestamp,
    ) -> Result<(), Held> {
        if self == Self::default() {
            return Ok(());
        }
        let soaked = match age.published {
            _ if self.soak.is_zero() => age.first_seen,
            None => return Err(Held::UnknownAge),
            Some(published) => later(published, self.soak).max(age.first_seen),
        };
        if now < soaked {
            return Err(Held::Soaking { until: soaked });
        }
        if !registration_healthy {
            return Err(Held::RegistrationFailing);
        }
        let turn = self.pace.map_or(soaked, |pace| later(soaked, pace.wait(claim_uid, image)));
        if now < turn { Err(Held::Paced { until: turn }) } else { Ok(()) }
    }
}

/// At 1 % an hour the whole rollout takes so long. With 32 bits of a number it fits into 64.
const MILLIS_PER_100_HOURS: u64 = 100 * 3600 * 1000;

/// A time that is too far away to be written is the last one.
fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

impl Pace {
    /// The claims of a class are spread evenly over the time that the whole rollout takes.
    fn wait(self, claim_uid: &str, image: &str) -> Duration {
        // Of the number the higher bits, which are mixed better.
        let share = digest([claim_uid, image].map(str::as_bytes)) >> 32;
        Duration::from_millis((MILLIS_PER_100_HOURS / u64::from(self.0) * share) >> 32)
    }
}

impl FromStr for Pace {
    type Err = ReadRolloutError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let percent = number.filter(|percent| (1..=100).contains(percent));
        percent.map(Self).ok_or_else(|| ReadRolloutError::Pace(text.to_owned()))
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Soaking { until } => write!(f, "the AMI soaks until {until}"),
            Self::UnknownAge => f.write_str("it is not known yet when the AMI was published"),
            Self::Paced { until } => write!(f, "it is the turn of the node at {until}"),
            Self::RegistrationFailing => f.write_str("nodes of the pool do not register"),
        }
    }
}

/// Since when a class has had each of its images. It stands in an annotation of the class, so that a restart does not begin
/// anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstSeen(BTreeMap<String, Timestamp>);

impl FirstSeen {
    /// What cannot be read counts as never written: images are then new.
    pub fn read(all: Option<&BTreeMap<String, String>>) -> Self {
        let text = all.and_then(|all| all.get(annotations::AMI_FIRST_SEEN));
        Self(text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    /// With the images that the class has now, and without those that it has no more.
    pub fn with(&self, amis: &[Ami], now: Timestamp) -> Self {
        let since = |ami: &Ami| (ami.id.clone(), self.get(&ami.id).unwrap_or(now));
        Self(amis.iter().map(since).collect())
    }

    pub fn get(&self, image: &str) -> Option<Timestamp> {
        self.0.get(image).copied()
    }

    /// The value of the annotation.
    pub fn write(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn at(seconds: i64) -> Timestamp {
        let start: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        start + SignedDuration::from_secs(seconds)
    }

    fn read(soak: Option<&str>, pace: Option<&str>) -> Result<Rollout, ReadRolloutError> {
        let entry =
            |key: &str, value: Option<&str>| value.map(|value| (key.to_owned(), value.to_owned()));
        let soak = entry(annotations::AMI_SOAK, soak);
        Rollout::read(Some(
            &soak.into_iter().chain(entry(annotations::AMI_DRIFT_PACE, pace)).collect(),
        ))
    }

    #[test]
    fn settings_come_from_annotations() {
        assert_eq!(Rollout::read(None), Ok(Rollout::default()));
        let expected = Rollout { soak: Duration::from_hours(72), pace: Some(Pace(10)) };
        assert_eq!(read(Some("72h"), Some("10%")), Ok(expected));
        for pace in ["10", "0%", "101%", "-1%", "a%", "1.5%", ""] {
            let error = read(None, Some(pace)).unwrap_err().to_string();
            assert!(error.starts_with("the annotation aws.kerf.sh/ami-drift-pace: "), "{error}");
        }
        let error = read(Some("3 days"), None).unwrap_err().to_string();
        assert!(error.starts_with("the annotation aws.kerf.sh/ami-soak: \"3 days\""), "{error}");
    }

    #[test]
    fn an_image_soaks_from_its_publication_on() {
        let soak = read(Some("48h"), None).unwrap();
        let check = |published: Option<i64>, first_seen: i64, healthy: bool, now: i64| {
            let age = ImageAge { published: published.map(at), first_seen: at(first_seen) };
            soak.check("uid", "ami-1", age, healthy, at(now))
        };
        assert_eq!(check(Some(0), 0, true, 2 * DAY - 1), Err(Held::Soaking { until: at(2 * DAY) }));
        assert_eq!(check(Some(0), 0, true, 2 * DAY), Ok(()));
        // An old image that the class takes only now.
        assert_eq!(check(Some(0), 9 * DAY, true, 9 * DAY), Ok(()));
        assert_eq!(check(None, 0, true, 9 * DAY), Err(Held::UnknownAge));
        assert_eq!(check(Some(0), 0, false, 9 * DAY), Err(Held::RegistrationFailing));
        let age = ImageAge { published: None, first_seen: at(0) };
        assert_eq!(Rollout::default().check("uid", "ami-1", age, false, at(0)), Ok(()));
    }

    #[test]
    fn a_share_of_the_nodes_drifts_in_each_hour() {
        let paced = read(None, Some("10%")).unwrap();
        let age = ImageAge { published: None, first_seen: at(0) };
        let drifted = |image: &str, hours: i64| {
            let has_turn = |node: &u32| {
                paced.check(&format!("{node}-uid"), image, age, true, at(hours * 3600)).is_ok()
            };
            (0..1000).filter(has_turn).count()
        };
        let by_hour: Vec<_> = (0..=10).map(|hours| drifted("ami-1", hours)).collect();
        for (hour, count) in by_hour.iter().enumerate() {
            assert!(count.abs_diff(hour * 100) <= 40, "{by_hour:?}");
        }
        assert_eq!((by_hour[0], by_hour[10]), (0, 1000));
        let first = |image: &str| {
            (0..1000).find(|node| {
                paced.check(&format!("{node}-uid"), image, age, true, at(3600)).is_ok()
            })
        };
        assert_ne!(first("ami-1"), first("ami-2"), "with each image others come first");
    }

    #[test]
    fn a_restart_does_not_begin_anew() {
        let ami = |id: &str| Ami { id: id.to_owned(), ..Ami::default() };
        let first = FirstSeen::default().with(&[ami("ami-1")], at(0));
        let then = first.with(&[ami("ami-1"), ami("ami-2")], at(60));
        let annotation = [(annotations::AMI_FIRST_SEEN.to_owned(), then.write())].into();
        let read = FirstSeen::read(Some(&annotation));
        assert_eq!(read, then);
        assert_eq!((read.get("ami-1"), read.get("ami-2")), (Some(at(0)), Some(at(60))));
        assert_eq!(read.with(&[ami("ami-2")], at(90)).get("ami-1"), None);
        let broken = [(annotations::AMI_FIRST_SEEN.to_owned(), "{".to_owned())].into();
        assert_eq!(FirstSeen::read(Some(&broken)), FirstSeen::default());
    }
}
