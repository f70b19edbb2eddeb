//! How many nodes of a pool may be disrupted at a time.

#[cfg(test)]
mod model;

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{Budget, DisruptionReason};
use kerf_model::{
    Node, Pool, Snapshot,
    cron::{CronError, Schedule},
};

use crate::repair::came_up;

/// How far the budgets of a pool let disruption go, for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Initialised nodes of the pool and those that are rebooted, of which percentages are taken.
    pub nodes: u32,
    /// Of those, the ones that are being deleted or rebooted, and the ones that are not ready unless it is about repair.
    pub disrupting: u32,
    /// What the strictest budget that is active allows at a time, [`Allowance::UNLIMITED`] without one.
    pub allowed: u32,
}

/// What is wrong with a budget. It allows nothing then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("reading the schedule {schedule:?} of a budget: {source}")]
    Schedule { schedule: String, source: CronError },
    #[error("a budget has a schedule or a duration, and needs both")]
    HalfAWindow,
    #[error("{0:?} is neither a number of nodes nor a percentage")]
    Nodes(String),
}

impl Allowance {
    /// As Karpenter's metric shows it.
    pub const UNLIMITED: u32 = i32::MAX.cast_unsigned();

    /// How many more may go.
    pub fn left(&self) -> u32 {
        self.allowed.saturating_sub(self.disrupting)
    }
}

/// The allowance of every pool for this reason.
pub fn allowances(snapshot: &Snapshot, reason: DisruptionReason) -> BTreeMap<String, Allowance> {
    let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for node in &snapshot.nodes {
        let Some(pool) = node.pool.as_deref().filter(|_| node.claim.is_some()) else { continue };
        if came_up(node) && !node.disruption.instance_terminating {
            let (nodes, disrupting) = counts.entry(pool).or_default();
            *nodes += 1;
            let rebooting = node.disruption.reboots.is_under_way();
            *disrupting += u32::from(node.deleting || rebooting || is_broken(node, reason));
        }
    }
    let allowance = |(name, pool): (&String, &Arc<Pool>)| {
        let (nodes, disrupting) = counts.get(name.as_str()).copied().unwrap_or_default();
        // A budget that cannot be read might have been the one that forbids.
        let allowed = allowed(&pool.disruption.budgets, reason, nodes, snapshot.now).unwrap_or(0);
        (name.clone(), Allowance { nodes, disrupting, allowed })
    };
    snapshot.pools.iter().map(allowance).collect()
}

/// A node that is not ready is out of service already. To repair it takes nothing from a budget: a wave of broken nodes would
/// use up what repairs them.
fn is_broken(node: &Node, reason: DisruptionReason) -> bool {
    !node.disruption.ready && reason != DisruptionReason::Unhealthy
}

/// What is wrong with the first budget of each pool that cannot be read.
pub(crate) fn unreadable(snapshot: &Snapshot) -> BTreeMap<String, BudgetError> {
    let wrong = |(name, pool): (&String, &Arc<Pool>)| {
        let mut budgets = pool.disruption.budgets.iter();
        let error = budgets.find_map(|budget| value(budget, 0, snapshot.now).err())?;
        Some((name.clone(), error))
    };
    snapshot.pools.iter().filter_map(wrong).collect()
}

/// What the budgets allow for this reason among so many nodes.
pub fn allowed(
    budgets: &[Budget],
    reason: DisruptionReason,
    nodes: u32,
    now: Timestamp,
) -> Result<u32, BudgetError> {
    let mut least = Allowance::UNLIMITED;
    for budget in budgets {
        let value = value(budget, nodes, now)?;
        if budget.reasons.as_ref().is_none_or(|reasons| reasons.contains(&reason)) {
            least = least.min(value);
        }
    }
    Ok(least)
}

fn value(budget: &Budget, nodes: u32, now: Timestamp) -> Result<u32, BudgetError> {
    if !is_active(budget, now)? {
        return Ok(Allowance::UNLIMITED);
    }
    let wrong = || BudgetError::Nodes(budget.nodes.clone());
    let value = match budget.nodes.strip_suffix('%') {
        Some(percent) => {
            let percent: u64 = percent.parse().map_err(|_| wrong())?;
            (percent.saturating_mul(nodes.into())).div_ceil(100)
        }
        None => budget.nodes.parse().map_err(|_| wrong())?,
    };
    Ok(u32::try_from(value).map_or(Allowance::UNLIMITED, |value| value.min(Allowance::UNLIMITED)))
}

/// A budget holds from a hit of its schedule on and is over when its duration has passed.
pub fn is_active(budget: &Budget, now: Timestamp) -> Result<bool, BudgetError> {
    let Some((schedule, duration)) = window(budget)? else { return Ok(true) };
    let since = now.checked_sub(duration).unwrap_or(Timestamp::MIN);
    Ok(schedule.last_hit(since, now).is_some())
}

/// When time alone next changes what the budget allows, if that is soon.
pub(crate) fn turns(budget: &Budget, now: Timestamp, soon: Timestamp) -> Option<Timestamp> {
    // One that cannot be read forbids until it is changed.
    let (schedule, duration) = window(budget).ok()??;
    let since = now.checked_sub(duration).unwrap_or(Timestamp::MIN);
    match schedule.last_hit(since, now) {
        Some(hit) => hit.checked_add(duration).ok().filter(|end| *end <= soon),
        None => schedule.next_hit(now, soon),
    }
}

/// When the budget holds; `None` for always.
fn window(budget: &Budget) -> Result<Option<(Schedule, SignedDuration)>, BudgetError> {
    let (schedule, duration) = match (&budget.schedule, &budget.duration) {
        (None, None) => return Ok(None),
        (Some(schedule), Some(duration)) => (schedule, duration.as_duration()),
        _ => return Err(BudgetError::HalfAWindow),
    };
    let parsed = schedule
        .parse()
        .map_err(|source| BudgetError::Schedule { schedule: schedule.clone(), source })?;
    Ok(Some((parsed, SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use DisruptionReason::{Drifted, Empty, Underutilized, Unhealthy};

    const NOW: &str = "2026-03-04T12:00:00Z";

    fn budget(nodes: &str) -> Budget {
        Budget { nodes: nodes.to_owned(), schedule: None, duration: None, reasons: None }
    }

    fn window(nodes: &str, schedule: &str, duration: &str) -> Budget {
        let duration = Some(duration.parse().unwrap());
        Budget { schedule: Some(schedule.to_owned()), duration, ..budget(nodes) }
    }

    fn only(reasons: &[DisruptionReason], budget: Budget) -> Budget {
        Budget { reasons: Some(reasons.to_vec()), ..budget }
    }

    fn check(budgets: &[Budget], nodes: u32, expect: [Option<u32>; 3]) {
        let got = [Underutilized, Empty, Drifted]
            .map(|reason| allowed(budgets, reason, nodes, NOW.parse().unwrap()).ok());
        assert_eq!(got, expect, "{budgets:?} of {nodes}");
    }

    #[test]
    fn the_strictest_active_budget_counts() {
        let unlimited = Some(Allowance::UNLIMITED);
        let all = |value: u32| [Some(value); 3];
        check(&[], 10, [unlimited; 3]);
        check(&[budget("3")], 10, all(3));
        check(&[budget("3"), budget("2")], 10, all(2));
        check(&[budget("0")], 10, all(0));
        // Percentages are rounded up.
        check(&[budget("10%")], 0, all(0));
        check(&[budget("10%")], 1, all(1));
        check(&[budget("10%")], 12, all(2));
        check(&[budget("0%")], 12, all(0));
        check(&[budget("100%")], 12, all(12));
        check(&[budget("99%")], u32::MAX, [unlimited; 3]);
        // Reasons.
        check(&[only(&[Empty], budget("1"))], 10, [unlimited, Some(1), unlimited]);
        check(
            &[budget("5"), only(&[Empty, Drifted], budget("1"))],
            10,
            [Some(5), Some(1), Some(1)],
        );
        check(&[only(&[], budget("1"))], 10, [unlimited; 3]);
        check(&[only(&[Unhealthy], budget("1"))], 10, [unlimited; 3]);
    }

    #[test]
    fn repair_has_a_reason_of_its_own() {
        let unhealthy = |budgets: &[Budget]| allowed(budgets, Unhealthy, 10, NOW.parse().unwrap());
        assert_eq!(unhealthy(&[budget("10%")]), Ok(1));
        assert_eq!(unhealthy(&[only(&[Unhealthy], budget("0"))]), Ok(0));
        assert_eq!(unhealthy(&[only(&[Drifted], budget("0"))]), Ok(Allowance::UNLIMITED));
    }

    #[test]
    fn budgets_hold_within_their_window() {
        let unlimited = Some(Allowance::UNLIMITED);
        for (schedule, duration, active) in [
            ("0 12 * * *", "1m", true),
            ("0 11 * * *", "1h1m", true),
            // Over to the second: a hit exactly this long ago no longer counts.
            ("0 11 * * *", "1h", false),
            ("1 12 * * *", "10h", false),
            ("@daily", "12h", false),
            ("@daily", "12h1m", true),
            // Longer than the time between two hits is always.
            ("@daily", "25h", true),
            ("0 0 1 1 *", "8760h", true),
        ] {
            let expect = if active { Some(1) } else { unlimited };
            let budget = window("1", schedule, duration);
            check(std::slice::from_ref(&budget), 10, [expect; 3]);
            check(&[only(&[Empty], budget)], 10, [unlimited, expect, unlimited]);
        }
    }

    #[test]
    fn a_budget_turns_when_its_window_opens_or_closes() {
        let at = |time: &str| -> Timestamp { format!("2026-03-04T{time}Z").parse().unwrap() };
        let check = |budget: &Budget, now: &str, expect: Option<&str>| {
            let (now, soon) = (at(now), at(now) + SignedDuration::from_mins(5));
            assert_eq!(turns(budget, now, soon), expect.map(at), "{budget:?} at {now}");
        };
        let hour = window("0", "0 12 * * *", "1h");
        check(&hour, "11:54:59", None);
        check(&hour, "11:55:00", Some("12:00:00"));
        check(&hour, "11:59:59.5", Some("12:00:00"));
        check(&hour, "12:00:00", None);
        check(&hour, "12:54:59", None);
        check(&hour, "12:58:30", Some("13:00:00"));
        check(&hour, "13:00:00", None);
        // Another hit before the end: looked at again, and then the end is later.
        check(&window("0", "*/2 * * * *", "3m"), "12:02:30", Some("12:05:00"));
        check(&budget("0"), "12:00:00", None);
        check(&window("0", "* * *", "3m"), "12:00:00", None);
    }

    #[test]
    fn a_budget_that_cannot_be_read_forbids_everything() {
        let bad_schedule = window("1", "* * * *", "1h");
        for bad in [
            budget("ten"),
            budget("-1"),
            budget("%"),
            budget(""),
            bad_schedule.clone(),
            Budget { duration: None, ..window("1", "@daily", "1h") },
            Budget { schedule: None, ..window("1", "@daily", "1h") },
            // Even when it is about another reason.
            only(&[], bad_schedule),
        ] {
            check(&[budget("3"), bad], 10, [None; 3]);
        }
    }
}
