//! Cron schedules of five fields, in UTC, read as Karpenter and the `CronJob` controller read them.
//!
//! Not a crate: the day rule (which `*` counts as one), steps after a single number and the names differ between
//! implementations, and a budget that is open an hour too early is a promise broken.

use jiff::{SignedDuration, Timestamp, civil, tz::TimeZone};

/// How far the `CronJob` controller looks ahead: a schedule that does not hit within it never does.
const HORIZON: SignedDuration = SignedDuration::from_hours(5 * 366 * 24);

/// When something begins. Sets of small numbers, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// A day has to suit both lists when one of them was left open, otherwise either.
    both_days: bool,
}

/// What is wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error("a schedule has five fields (or a name like @daily), this one has {0}")]
    Fields(usize),
    #[error("{0} is not a name for a schedule")]
    UnknownName(String),
    #[error("{text:?} is not a number from {least} to {most}")]
    Number { text: String, least: u32, most: u32 },
    #[error("the range {0:?} ends before it begins")]
    Backwards(String),
    #[error("{0:?} has more than one - or /")]
    TooManyParts(String),
}

struct Field {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MONTHS: &[&str] =
    &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { least: 0, most: 59, names: &[] },
    Field { least: 0, most: 23, names: &[] },
    Field { least: 1, most: 31, names: &[] },
    Field { least: 1, most: 12, names: MONTHS },
    Field { least: 0, most: 6, names: WEEKDAYS },
];

impl Schedule {
    /// The last moment at or before `now` and after `after` at which the schedule hits.
    pub fn last_hit(self, after: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let utc = |time: Timestamp| time.to_zoned(TimeZone::UTC).datetime();
        let (first, last) = (utc(after), utc(now));
        let mut day = last.date();
        let mut latest = (last.hour(), last.minute());
        while day >= first.date() {
            if self.suits(day)
                && let Some((hour, minute)) = self.last_time(latest)
            {
                let hit = day.at(hour, minute, 0, 0).to_zoned(TimeZone::UTC).ok()?.timestamp();
                return (hit > after).then_some(hit);
            }
            day = day.yesterday().ok()?;
            latest = (23, 59);
        }
        None
    }

    /// The first moment after `after` at which the schedule hits, if it ever does.
    pub fn next(self, after: Timestamp) -> Option<Timestamp> {
        self.next_hit(after, after.checked_add(HORIZON).ok()?)
    }

    /// The first moment after `after` and not later than `last` at which the schedule hits.
    pub fn next_hit(self, after: Timestamp, last: Timestamp) -> Option<Timestamp> {
        let utc = |time: Timestamp| time.to_zoned(TimeZone::UTC).datetime();
        let (after, end) = (utc(after), utc(last).date());
        let mut day = after.date();
        let mut earlier = Some((after.hour(), after.minute()));
        while day <= end {
            if self.suits(day)
                && let Some((hour, minute)) = self.next_time(earlier)
            {
                let hit = day.at(hour, minute, 0, 0).to_zoned(TimeZone::UTC).ok()?.timestamp();
                return (hit <= last).then_some(hit);
            }
            day = day.tomorrow().ok()?;
            earlier = None;
        }
        None
    }

    fn suits(self, day: civil::Date) -> bool {
        let of_month = has(self.days, day.day());
        let of_week = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        has(self.months, day.month())
            && if self.both_days { of_month && of_week } else { of_month || of_week }
    }

    fn last_time(self, (latest_hour, latest_minute): (i8, i8)) -> Option<(i8, i8)> {
        (0..=latest_hour).rev().filter(|hour| has(self.hours, *hour)).find_map(|hour| {
            let most = if hour == latest_hour { latest_minute } else { 59 };
            (0..=most).rev().find(|minute| has(self.minutes, *minute)).map(|minute| (hour, minute))
        })
    }

    /// The first time of a day, or the first one behind `earlier`.
    fn next_time(self, earlier: Option<(i8, i8)>) -> Option<(i8, i8)> {
        let hours = earlier.map_or(0, |(hour, _)| hour)..=23;
        hours.filter(|hour| has(self.hours, *hour)).find_map(|hour| {
            let least = earlier.filter(|it| it.0 == hour).map_or(0, |(_, minute)| minute + 1);
            (least..=59).find(|minute| has(self.minutes, *minute)).map(|minute| (hour, minute))
        })
    }
}

fn has(set: u64, number: i8) -> bool {
    set >> number & 1 == 1
}

impl std::str::FromStr for Schedule {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            name if name.starts_with('@') => return Err(CronError::UnknownName(name.to_owned())),
            fields => fields,
        };
        let fields: Vec<_> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(CronError::Fields(fields.len()));
        };
        let [of_minutes, of_hours, of_days, of_months, of_weekdays] = &FIELDS;
        let (days, every_day) = of_days.read(days)?;
        let (weekdays, every_weekday) = of_weekdays.read(weekdays)?;
        Ok(Self {
            minutes: of_minutes.read(minutes)?.0,
            hours: of_hours.read(hours)?.0,
            days,
            months: of_months.read(months)?.0,
            weekdays,
            both_days: every_day || every_weekday,
        })
    }
}

impl Field {
    /// The numbers, and whether the field was left open. `*/2` is not left open.
    fn read(&self, text: &str) -> Result<(u64, bool), CronError> {
        let (mut set, mut open) = (0, false);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (range, step) = match part.split_once('/') {
                None => (part, None),
                Some((_, step)) if step.contains('/') => {
                    return Err(CronError::TooManyParts(part.to_owned()));
                }
                Some((range, step)) => (range, Some(step_of(step)?)),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" || range == "?" => {
                    open |= step.is_none_or(|step| step == 1);
                    (self.least, self.most)
                }
                // A number with a step goes on to the end.
                None if step.is_some() => (self.number(range)?, self.most),
                None => (self.number(range)?, self.number(range)?),
                Some((_, last)) if last.contains('-') => {
                    return Err(CronError::TooManyParts(part.to_owned()));
                }
                Some((first, last)) => (self.number(first)?, self.number(last)?),
            };
            if first > last {
                return Err(CronError::Backwards(part.to_owned()));
            }
            let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
            set |= (first..=last).step_by(step).fold(0u64, |set, number| set | 1 << number);
        }
        Ok((set, open))
    }

    fn number(&self, text: &str) -> Result<u32, CronError> {
        let (least, most) = (self.least, self.most);
        let named = self.names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let named = named.and_then(|at| u32::try_from(at).ok()).map(|at| at + least);
        let written = || digits(text).filter(|number| (least..=most).contains(number));
        let wrong = || CronError::Number { text: text.to_owned(), least, most };
        named.or_else(written).ok_or_else(wrong)
    }
}

fn step_of(text: &str) -> Result<u32, CronError> {
    let wrong = || CronError::Number { text: text.to_owned(), least: 1, most: u32::MAX };
    digits(text).filter(|step| *step > 0).ok_or_else(wrong)
}

/// `parse` would take a sign as well.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests;
