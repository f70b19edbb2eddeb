//! What an autoscaler did on a live cluster, recorded, and what Kerf would have done in its place.
//!
//! A shadow cannot move pods, so it does not guess beside the cluster. It keeps a record ([`record`]): the cluster as it was, and
//! then each change of its pods, nodes and pools. The report has two sides ([`report`]). One is the accounts of what happened, by
//! the ledger of `kerf simulate`. The other plays the recorded cluster and its load again, with the real operator in it, under each
//! policy. One of the policies is Karpenter's: how far its replay is from what happened says how far to trust the others.

mod accounts;
mod demand;
mod entry;
mod journal;
mod policies;
mod record;
mod replay;
mod report;
mod slim;
mod state;
mod watch;

pub use entry::{Entry, Header, What};
pub use journal::{Journal, JournalError, Limits, Trace};
pub use policies::{CALIBRATION, by_name, policies};
pub use record::{RecordError, Recorder, record};
pub use report::{Calibration, Report, ReportError, Terms, Trust, report};
pub use watch::NodeClassFields;
