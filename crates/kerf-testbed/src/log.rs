//! What happened, write by write: two runs are the same run exactly when their logs are equal.

use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;

/// All writes to the API server since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventLog {
    entries: Vec<Entry>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub time: Timestamp,
    pub revision: u64,
    pub what: Write,
    pub resource: Arc<str>,
    /// `namespace/name`, or `name`.
    pub key: Arc<str>,
    /// Of the object's JSON: logs differ also where only contents differ.
    pub digest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Created,
    Changed,
    Removed,
}

impl EventLog {
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }
}

impl fmt::Display for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            Write::Created => "+",
            Write::Changed => "~",
            Write::Removed => "-",
        };
        write!(
            f,
            "{} {:>6} {what} {} {} {:016x}",
            self.time, self.revision, self.resource, self.key, self.digest
        )
    }
}

/// FNV-1a: small, and the same everywhere.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
