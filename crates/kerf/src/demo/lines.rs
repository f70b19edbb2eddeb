//! The demo where there is no terminal: a line for each decision, and one for each quarter of an hour.

use std::io::{self, Write};

use kerf_simulation::{Ledger, Play, dollars};

use super::scene;

/// What has been printed so far.
#[derive(Debug, Default)]
pub(super) struct Lines {
    decisions: usize,
    quarters: i64,
}

const QUARTER: i64 = 15 * 60;

impl Lines {
    /// Nothing of what has happened already.
    pub(super) fn after(play: &Play) -> Self {
        let ledger = play.ledger();
        Self { decisions: ledger.decisions().len(), quarters: quarters(ledger) }
    }

    pub(super) fn print(&mut self, play: &Play, to: &mut impl Write) -> io::Result<()> {
        let ledger = play.ledger();
        for decision in &ledger.decisions()[self.decisions..] {
            writeln!(
                to,
                "{}  {} {}",
                decision.at.strftime("%H:%M:%S"),
                scene::kind(decision.kind).sign(),
                decision.text
            )?;
        }
        self.decisions = ledger.decisions().len();
        if quarters(ledger) > self.quarters {
            self.quarters = quarters(ledger);
            writeln!(to, "{}  = {}", ledger.now().strftime("%H:%M:%S"), state(ledger))?;
        }
        Ok(())
    }
}

/// How things stand, in a line.
fn state(ledger: &Ledger) -> String {
    format!(
        "{} nodes, {} pods running, {} pending, {} per hour, ${:.2} spent, {} pods evicted",
        ledger.nodes().len(),
        ledger.running_pods(),
        ledger.pending_pods(),
        dollars(ledger.price_per_hour()),
        ledger.totals().cost(),
        ledger.totals().evictions
    )
}

fn quarters(ledger: &Ledger) -> i64 {
    ledger.now().duration_since(ledger.opened()).as_secs() / QUARTER
}
