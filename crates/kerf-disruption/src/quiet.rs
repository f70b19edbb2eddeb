//! How long a look that found nothing stays true, so that a cluster in which nothing changes costs nothing.

use jiff::Timestamp;
use kerf_model::{Node, Snapshot};

use crate::{budgets, memory::STALE_AFTER, pass::Pass, repair};

/// Until when another look is of no use while nothing changes: the first moment at which time alone may change what is
/// found. `None`: the look found something, or did not get to the end.
pub fn quiet_until(snapshot: &Snapshot, pass: &Pass) -> Option<Timestamp> {
    if !pass.commands.is_empty() || !pass.complete {
        return None;
    }
    let now = snapshot.now;
    let stale = now.checked_add(STALE_AFTER).unwrap_or(Timestamp::MAX);
    let budgets = snapshot.pools.values().flat_map(|pool| &pool.disruption.budgets);
    let turns = budgets.filter_map(|budget| budgets::turns(budget, now, stale));
    let nodes = || snapshot.nodes.iter();
    let rests = nodes().filter_map(|node| snapshot.grace_until(node));
    let safe = nodes().flat_map(|node| safe_until(snapshot, node));
    let woken = pass.drift_rests.values().filter_map(|rest| rest.until);
    turns.chain(rests).chain(safe).chain(woken).filter(|time| *time > now).chain([stale]).min()
}

/// When pods that were planned onto the node have come, when the protection of those on it ends, when it is tried again after
/// a failure, and when a broken one is tolerated no longer.
fn safe_until(snapshot: &Snapshot, node: &Node) -> impl Iterator<Item = Timestamp> {
    let protected = node.pods.iter().filter_map(|pod| pod.disruption.do_not_disrupt.end());
    let tried_again = node.disruption.setback.as_ref().map(|setback| setback.until.0);
    let due = node.disruption.repair.iter().map(|one| one.eligible_at(repair::not_before(node)));
    protected.chain(due).chain(snapshot.nominated_until(node)).chain(tried_again)
}
