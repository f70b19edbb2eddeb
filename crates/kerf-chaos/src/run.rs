//! Plays a plan.

#[cfg(feature = "aws")]
mod account;
#[cfg(not(feature = "aws"))]
mod no_account;
mod player;

#[cfg(feature = "aws")]
use account::{Account, begin};
use kerf_stories::clouds::{Cloud, Kwok};
use kerf_testbed::{Entry, Testbed};
#[cfg(not(feature = "aws"))]
use no_account::{Account, begin};
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Once};

use crate::checker::{Invariant, Violation};
use crate::coverage::Coverage;
use crate::plan::{Plan, Provider};
use player::Player;

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub violations: Vec<Violation>,
    /// Of all writes: equal for two runs exactly when they were the same run.
    pub digest: u64,
    pub writes: usize,
    /// Nodes that came, and nodes that were disrupted.
    pub launched: usize,
    pub disrupted: u64,
    /// What users asked for and were refused, with the first refusals.
    pub refused: Vec<String>,
    pub coverage: Coverage,
    /// The last of what happened before the first violation, to be read.
    pub log: Vec<String>,
    /// The cluster after the first violation, to be read.
    pub cluster: Vec<String>,
}

impl Outcome {
    pub fn has_failed(&self) -> bool {
        !self.violations.is_empty()
    }
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Panics of tasks end in their handles, where nobody may look. All that happens runs on this thread.
fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
            if std::env::var_os("RUST_BACKTRACE").is_some() {
                before(info);
            }
        }));
    });
    PANICS.with_borrow_mut(Vec::clear);
}

/// Plays the plan in virtual time. A plan that is played again gives the same outcome.
pub fn run(plan: &Plan) -> Outcome {
    record_panics();
    let played = panic::catch_unwind(AssertUnwindSafe(|| {
        Testbed::in_virtual_time(async {
            let (of, account): (Arc<dyn Cloud>, Option<Account>) = match plan.provider {
                Provider::Kwok => (Arc::new(Kwok), None),
                Provider::Aws => begin(plan.seed),
            };
            Player::begin(plan, of, account).play(plan).await
        })
    }));
    let mut outcome = match played {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => {
            let what = format!("no runtime: {error}");
            let violation = Violation { at: 0, invariant: Invariant::NoPanic, what };
            Outcome { violations: vec![violation], ..Outcome::default() }
        }
        Err(_) => Outcome::default(),
    };
    for what in PANICS.take() {
        outcome.violations.push(Violation { at: 0, invariant: Invariant::NoPanic, what });
    }
    outcome
}

/// FNV-1a over what each write was.
fn digest(entries: &[Entry]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for entry in entries {
        for byte in entry.to_string().bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}
