//! How many instances capacity reservations have left.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// Counts by reservation: what EC2 said last, and what was launched and ended since.
#[derive(Clone, Debug, Default)]
pub struct ReservationCounts {
    by_id: BTreeMap<String, Count>,
    version: u64,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    left: u32,
    read: Timestamp,
}

impl ReservationCounts {
    /// None left where EC2 was not asked yet.
    pub fn left(&self, id: &str) -> u32 {
        self.by_id.get(id).map_or(0, |count| count.left)
    }

    /// Changes whenever a count does.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// EC2 said how many are left.
    pub fn read(&mut self, id: &str, left: u32, now: Timestamp) {
        self.change(id, now, |_| left);
    }

    /// An instance was launched into the reservation by a request of that time. A count that was read since knows of it.
    pub fn launched(&mut self, id: &str, requested: Timestamp) {
        if let Some(count) = self.by_id.get(id).filter(|count| count.read <= requested) {
            let read = count.read;
            self.change(id, read, |left| left.saturating_sub(1));
        }
    }

    /// An instance of the reservation is gone.
    pub fn ended(&mut self, id: &str) {
        if let Some(read) = self.by_id.get(id).map(|count| count.read) {
            self.change(id, read, |left| left.saturating_add(1));
        }
    }

    /// EC2 had no capacity in the reservation, or takes it back.
    pub fn exhausted(&mut self, id: &str, now: Timestamp) {
        self.change(id, now, |_| 0);
    }

    fn change(&mut self, id: &str, read: Timestamp, change: impl FnOnce(u32) -> u32) {
        let before = self.by_id.get(id).map(|count| count.left);
        let left = change(before.unwrap_or(0));
        self.by_id.insert(id.to_owned(), Count { left, read });
        self.version += u64::from(before != Some(left));
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn counts_follow_what_is_read_launched_and_ended() {
        let mut counts = ReservationCounts::default();
        assert_eq!(counts.left("cr-1"), 0);
        counts.launched("cr-1", at(0));
        counts.ended("cr-1");
        assert_eq!((counts.left("cr-1"), counts.version()), (0, 0), "not read yet");
        counts.read("cr-1", 2, at(10));
        counts.read("cr-1", 2, at(11));
        assert_eq!((counts.left("cr-1"), counts.version()), (2, 1), "the same is no change");
        counts.launched("cr-1", at(5));
        assert_eq!(counts.left("cr-1"), 2, "the read is newer than the request");
        for left in [1, 0, 0] {
            counts.launched("cr-1", at(12));
            assert_eq!(counts.left("cr-1"), left);
        }
        counts.ended("cr-1");
        assert_eq!(counts.left("cr-1"), 1);
        counts.exhausted("cr-1", at(20));
        assert_eq!(counts.left("cr-1"), 0);
        counts.launched("cr-1", at(19));
        assert_eq!(counts.left("cr-1"), 0);
    }
}
