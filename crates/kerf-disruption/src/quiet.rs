//! How long a look that found nothing stays true, so that a cluster in which nothing changes costs nothing.

use jiff::Timestamp;
use kerf_model::estate::{Estate, Standing};

use crate::{budgets, memory::STALE_AFTER, pass::Pass};

/// Until when another look is of no use while nothing changes: the first moment at which time alone may change what is
/// found. `None`: the look found something, or did not get to the end.
pub fn quiet_until(estate: &Estate, pass: &Pass) -> Option<Timestamp> {
    if !pass.commands.is_empty() || !pass.complete {
        return None;
    }
    let now = estate.now;
    let stale = now.checked_add(STALE_AFTER).unwrap_or(Timestamp::MAX);
    let budgets = estate.pools.values().flat_map(|rules| &rules.budgets);
    let turns = budgets.filter_map(|budget| budgets::turns(budget, now, stale));
    let rules = |pool: &Option<String>| estate.pools.get(pool.as_ref()?);
    let rests = estate.nodes().filter_map(|(node, it)| rules(&node.pool)?.grace_until(it));
    let safe = estate.standings.iter().flat_map(safe_until);
    turns.chain(rests).chain(safe).filter(|time| *time > now).chain([stale]).min()
}

/// When pods that were planned onto the node have come, when the protection of those on it ends, and when it is tried again
/// after a failure.
fn safe_until(standing: &Standing) -> impl Iterator<Item = Timestamp> {
    let protected = standing.tenants.iter().filter_map(|pod| pod.protected_until);
    let tried_again = standing.setback.as_ref().map(|setback| setback.until.0);
    protected.chain(standing.nominated_until).chain(tried_again)
}
