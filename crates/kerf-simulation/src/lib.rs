//! Clusters that live by a scenario, with the real operator in them, and what is measured there.
//!
//! A [`Scenario`] says which pools, workloads and prices there are and how they change. A [`Play`] puts it on stage: the
//! testbed, the operator as it runs in production, a [`Cloud`] of pretended machines, in virtual time. A [`Ledger`] sees every write and
//! measures; a [`Summary`] is what it all comes to, and [`compare`] runs the same scenario under several [`Policy`]s.

mod accounts;
mod cloud;
mod compare;
mod html;
mod initial;
mod ledger;
mod load;
mod market;
mod objects;
mod operator;
mod overlays;
mod play;
mod policy;
mod report;
mod scenario;
mod seen_types;
mod stock;
mod verdict;
mod writing;

pub use accounts::Accounts;
pub use cloud::Cloud;
pub use compare::{Comparison, Recording, compare, run};
pub use html::{Heading, html, html_under};
pub use ledger::{Change, Decision, DecisionKind, Ledger, Node, State, Totals, dollars};
pub use load::{Load, LoadError};
pub use market::{MarketError, repriced};
pub use operator::{Connect, OperatorHandle, Terms};
pub use play::{Play, PlayError};
pub use policy::{BASELINE, DEFAULTS, Policy, PolicyError};
pub use report::{Sample, Summary};
pub use scenario::{Moment, Recorded, Scenario, ScenarioError};
