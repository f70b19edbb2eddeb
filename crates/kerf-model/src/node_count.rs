//! How many nodes a pool has.

/// The nodes of a pool, each in one of these states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCount {
    /// Here to stay, whether launched yet or not.
    pub active: u64,
    /// Chosen to be replaced, and waiting for the replacement.
    pub replacing: u64,
    /// On their way out.
    pub leaving: u64,
    /// About to be created.
    pub reserved: u64,
}

impl NodeCount {
    pub fn total(self) -> u64 {
        self.active + self.replacing + self.leaving + self.reserved
    }

    /// How many more may be created under this limit.
    pub fn headroom(self, limit: Option<u64>) -> u64 {
        limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.total()))
    }
}
