//! What was called, for assertions.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

/// Requests are kept up to this number; the oldest go first. Counts go on.
const KEPT: usize = 20_000;

#[derive(Debug, Default)]
pub(crate) struct Requests {
    counts: BTreeMap<&'static str, Count>,
    kept: VecDeque<Kept>,
    /// Statements of the policy that alone allowed an action.
    needed_rights: BTreeSet<(String, String)>,
}

/// How often a call was made, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub made: u32,
    /// By code; those without an answer have the code `NoAnswer`.
    pub refused: BTreeMap<String, u32>,
}

#[derive(Clone)]
struct Kept {
    at: Timestamp,
    request: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Requests {
    pub(crate) fn note<O: Clone + Send + Sync + 'static>(
        &mut self,
        operation: &'static str,
        request: &O,
        at: Timestamp,
    ) {
        self.counts.entry(operation).or_default().made += 1;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Kept { at, request: Arc::new(request.clone()) });
    }

    pub(crate) fn refused(&mut self, operation: &'static str, code: &str) {
        let refused = &mut self.counts.entry(operation).or_default().refused;
        *refused.entry(code.to_owned()).or_default() += 1;
    }

    pub(crate) fn needed(&mut self, statement: &str, action: &str) {
        self.needed_rights.insert((statement.to_owned(), action.to_owned()));
    }

    pub(crate) fn needed_rights(&self) -> BTreeSet<(String, String)> {
        self.needed_rights.clone()
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, Count> {
        self.counts.clone()
    }

    /// Those of one kind, the oldest first.
    pub(crate) fn of<O: Clone + 'static>(&self) -> Vec<(Timestamp, O)> {
        let kind = |kept: &Kept| Some((kept.at, kept.request.downcast_ref::<O>()?.clone()));
        self.kept.iter().filter_map(kind).collect()
    }

    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}
