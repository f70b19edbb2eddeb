use super::*;
use jiff::{SignedDuration, ToSpan};
use proptest::{prelude::*, sample::select};

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

#[test]
fn finds_the_last_hit() {
    for (schedule, now, hit) in [
        ("0 9 * * *", "2026-03-04T09:00:00Z", Some("2026-03-04T09:00:00Z")),
        ("0 9 * * *", "2026-03-04T09:00:59Z", Some("2026-03-04T09:00:00Z")),
        ("0 9 * * *", "2026-03-04T08:59:59Z", Some("2026-03-03T09:00:00Z")),
        ("@daily", "2026-03-04T12:00:00Z", Some("2026-03-04T00:00:00Z")),
        ("@midnight", "2026-03-04T12:00:00Z", Some("2026-03-04T00:00:00Z")),
        ("@hourly", "2026-03-04T12:30:00Z", Some("2026-03-04T12:00:00Z")),
        ("@weekly", "2026-03-04T12:30:00Z", Some("2026-03-01T00:00:00Z")),
        ("@monthly", "2026-03-04T12:30:00Z", Some("2026-03-01T00:00:00Z")),
        ("@yearly", "2026-03-04T12:30:00Z", Some("2026-01-01T00:00:00Z")),
        ("@annually", "2026-03-04T12:30:00Z", Some("2026-01-01T00:00:00Z")),
        ("0 0 * * mon-fri", "2026-03-01T12:00:00Z", Some("2026-02-27T00:00:00Z")),
        ("0 0 * * MON,Wed", "2026-03-05T12:00:00Z", Some("2026-03-04T00:00:00Z")),
        ("0 0 1 jan *", "2026-03-04T12:00:00Z", Some("2026-01-01T00:00:00Z")),
        ("*/20 * * * *", "2026-03-04T12:59:00Z", Some("2026-03-04T12:40:00Z")),
        ("5/20 * * * *", "2026-03-04T12:59:00Z", Some("2026-03-04T12:45:00Z")),
        ("0-30/15 * * * *", "2026-03-04T12:59:00Z", Some("2026-03-04T12:30:00Z")),
        ("0 0 29 2 *", "2026-03-04T12:00:00Z", None),
        // Either day will do when both are given, ...
        ("0 0 13 * fri", "2026-03-07T00:00:00Z", Some("2026-03-06T00:00:00Z")),
        ("0 0 3 * fri", "2026-03-04T00:00:00Z", Some("2026-03-03T00:00:00Z")),
        ("0 0 */2 * fri", "2026-03-06T00:00:00Z", Some("2026-03-06T00:00:00Z")),
        ("0 0 */2 * sun", "2026-03-04T00:00:00Z", Some("2026-03-03T00:00:00Z")),
        // ... but not when one is left open.
        ("0 0 * * fri", "2026-03-05T00:00:00Z", Some("2026-02-27T00:00:00Z")),
        ("0 0 13 * ?", "2026-03-12T00:00:00Z", Some("2026-02-13T00:00:00Z")),
    ] {
        let parsed: Schedule = schedule.parse().unwrap();
        let hour = SignedDuration::from_hours(1);
        let after = at(now) - hour * (24 * 366);
        assert_eq!(parsed.last_hit(after, at(now)), hit.map(at), "{schedule} at {now}");
    }
}

#[test]
fn finds_the_next_hit() {
    for (schedule, after, hit) in [
        ("0 9 * * *", "2026-03-04T08:59:59Z", Some("2026-03-04T09:00:00Z")),
        ("0 9 * * *", "2026-03-04T09:00:00Z", Some("2026-03-05T09:00:00Z")),
        ("*/20 * * * *", "2026-03-04T12:40:00Z", Some("2026-03-04T13:00:00Z")),
        ("59 23 * * *", "2026-12-31T23:59:30Z", Some("2027-01-01T23:59:00Z")),
        ("0 0 1 jan *", "2026-03-04T12:00:00Z", Some("2027-01-01T00:00:00Z")),
        ("0 0 29 2 *", "2026-03-04T12:00:00Z", Some("2028-02-29T00:00:00Z")),
        ("0 0 31 2 *", "2026-03-04T12:00:00Z", None),
    ] {
        let parsed: Schedule = schedule.parse().unwrap();
        assert_eq!(parsed.next(at(after)), hit.map(at), "{schedule} after {after}");
    }
}

#[test]
fn says_what_is_wrong() {
    let number = |text: &str, least, most| CronError::Number { text: text.into(), least, most };
    for (schedule, error) in [
        ("", CronError::Fields(0)),
        ("* * * *", CronError::Fields(4)),
        ("* * * * * *", CronError::Fields(6)),
        ("@fortnightly", CronError::UnknownName("@fortnightly".into())),
        ("60 * * * *", number("60", 0, 59)),
        ("* 24 * * *", number("24", 0, 23)),
        ("* * 0 * *", number("0", 1, 31)),
        ("* * * 13 *", number("13", 1, 12)),
        ("* * * * 7", number("7", 0, 6)),
        ("* * * * noday", number("noday", 0, 6)),
        ("+1 * * * *", number("+1", 0, 59)),
        ("1,- * * * *", number("", 0, 59)),
        ("*/0 * * * *", number("0", 1, u32::MAX)),
        ("30-10 * * * *", CronError::Backwards("30-10".into())),
        ("1-2-3 * * * *", CronError::TooManyParts("1-2-3".into())),
        ("*/2/3 * * * *", CronError::TooManyParts("*/2/3".into())),
    ] {
        assert_eq!(schedule.parse::<Schedule>(), Err(error), "{schedule:?}");
    }
}

/// The same rules, told minute by minute and field by field.
fn hits(schedule: &str, minute: Timestamp) -> bool {
    let time = minute.to_zoned(TimeZone::UTC);
    let fields: Vec<_> = schedule.split_whitespace().collect();
    let suits = |field: &str, value: i8, least: i8| {
        field.split(',').any(|part| {
            let (range, step) = part.split_once('/').unwrap_or((part, ""));
            let every: i8 = step.parse().unwrap_or(1);
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
                None if range == "*" => (least, i8::MAX),
                None if step.is_empty() => (range.parse().unwrap(), range.parse().unwrap()),
                None => (range.parse().unwrap(), i8::MAX),
            };
            value >= first && value <= last && (value - first) % every == 0
        })
    };
    let of_month = suits(fields[2], time.day(), 1);
    let of_week = suits(fields[4], time.weekday().to_sunday_zero_offset(), 0);
    let day = if fields[2] == "*" || fields[4] == "*" {
        of_month && of_week
    } else {
        of_month || of_week
    };
    suits(fields[0], time.minute(), 0)
        && suits(fields[1], time.hour(), 0)
        && suits(fields[3], time.month(), 1)
        && day
}

proptest! {
    #[test]
    fn agrees_with_a_walk_over_all_minutes(
        minutes in select(vec!["*", "0", "30", "*/7", "10/13", "5-50/5", "0,15,59"]),
        hours in select(vec!["*", "0", "9", "*/5", "22-23", "3/6", "0,12"]),
        days in select(vec!["*", "1", "31", "*/2", "10-20", "28,29,30"]),
        months in select(vec!["*", "2", "1-6", "*/3", "12"]),
        weekdays in select(vec!["*", "0", "1-5", "*/2", "6", "2,4"]),
        start in 0i64..(400 * 24 * 60 * 60),
        duration in 1i64..(4 * 24 * 60),
    ) {
        let text = format!("{minutes} {hours} {days} {months} {weekdays}");
        let schedule: Schedule = text.parse().unwrap();
        let now = at("2027-12-20T00:00:00Z") + start.seconds();
        let checkpoint = now - SignedDuration::from_mins(duration);
        let mut minute = Timestamp::from_second(now.as_second().div_euclid(60) * 60).unwrap();
        let mut expected = None;
        while minute > checkpoint {
            if hits(&text, minute) {
                expected = Some(minute);
                break;
            }
            minute -= SignedDuration::from_mins(1);
        }
        prop_assert_eq!(schedule.last_hit(checkpoint, now), expected, "{} at {}", text, now);

        let mut minute = Timestamp::from_second(checkpoint.as_second().div_euclid(60) * 60).unwrap();
        let mut expected = None;
        while expected.is_none() && minute < now {
            minute += SignedDuration::from_mins(1);
            expected = Some(minute).filter(|minute| *minute <= now && hits(&text, *minute));
        }
        let next = schedule.next_hit(checkpoint, now);
        prop_assert_eq!(next, expected, "{} from {} to {}", text, checkpoint, now);
    }
}

proptest! {
    #[test]
    fn no_text_breaks_the_parser(text in "[-0-9*?/,@a-z ]{0,20}|([-0-9*/,]{1,4} ){4}[-0-9*/,a-z]{1,4}|.{0,16}") {
        if let Ok(schedule) = text.parse::<Schedule>() {
            let now = Timestamp::from_second(1_800_000_000).unwrap();
            let after = now - SignedDuration::from_hours(24 * 366);
            if let Some(hit) = schedule.last_hit(after, now) {
                prop_assert!(after < hit && hit <= now && hit.as_second() % 60 == 0);
            }
        }
    }

    /// Ranges and steps are short for lists, and mean the same.
    #[test]
    fn a_schedule_survives_being_written_out(
        minute in 0u32..60, hour in 0u32..24, day in 1u32..32, weekday in 0u32..7, step in 1u32..70,
    ) {
        let short = format!("{minute}/{step} {hour}-23/{step} {day}-31 */{} {weekday}-6", step + 1);
        let list = |first: u32, last: u32, step: u32| {
            let numbers = (first..=last).step_by(step as usize).map(|number| number.to_string());
            numbers.collect::<Vec<_>>().join(",")
        };
        let long = [
            list(minute, 59, step), list(hour, 23, step), list(day, 31, 1), list(1, 12, step + 1),
            list(weekday, 6, 1),
        ];
        prop_assert_eq!(short.parse::<Schedule>(), long.join(" ").parse::<Schedule>());
    }
}
