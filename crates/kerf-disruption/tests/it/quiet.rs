use std::time::Duration;

use kerf_disruption::{Command, Memory, Method, Pass, Settings, pass, quiet_until};
use kerf_model::{Pool, Snapshot, churn::GracePeriod, disruption::DoNotDisrupt};

use crate::places::{Place, ago, budget, first_pass, now, place, pool, snapshot};

/// A pool in which there is nothing to do.
fn at_rest(changes: impl FnOnce(&mut Pool)) -> Pool {
    let mut pool = pool("default");
    pool.disruption.budgets = vec![budget("0")];
    changes(&mut pool);
    pool
}

/// In how many seconds time alone may change what a pass finds.
fn quiet_for(pool: Pool, place: Place) -> Option<i64> {
    let snapshot = snapshot(vec![pool], vec![place]);
    let pass = first_pass(&snapshot);
    quiet_until(&snapshot, &pass).map(|until| until.duration_since(now()).as_secs())
}

#[test]
fn a_look_stays_true_until_time_changes_something() {
    let in_minutes = |minutes: u64| now() + Duration::from_mins(minutes);
    let full = || place("a", 1).runs("p", "1");
    assert_eq!(quiet_for(at_rest(|_| {}), full()), Some(300), "anyway after a while");

    let nominated = |minutes: u64| Place { nominated_until: Some(in_minutes(minutes)), ..full() };
    assert_eq!(quiet_for(at_rest(|_| {}), nominated(2)), Some(120));
    assert_eq!(quiet_for(at_rest(|_| {}), nominated(9)), Some(300));
    assert_eq!(quiet_for(at_rest(|_| {}), nominated(0)), Some(300), "that is over");

    let mut protected = full();
    protected.last_pod().disruption.do_not_disrupt = DoNotDisrupt::Until(in_minutes(3));
    assert_eq!(quiet_for(at_rest(|_| {}), protected), Some(180));

    let busy = full().set(|node| node.disruption.last_pod_event = Some(ago(9)));
    let patient = at_rest(|it| {
        it.disruption.controls.grace_period = GracePeriod::For(Duration::from_mins(10));
    });
    assert_eq!(quiet_for(patient, busy), Some(60));

    let until_one_past = |it: &mut Pool| {
        it.disruption.budgets[0].schedule = Some("1 11 * * *".to_owned());
        it.disruption.budgets[0].duration = "1h".parse().ok();
    };
    assert_eq!(quiet_for(at_rest(until_one_past), full()), Some(60));
}

#[test]
fn a_look_that_found_something_or_was_cut_short_is_followed_by_another() {
    assert_eq!(quiet_for(pool("default"), place("a", 1)), None);

    let rest: Snapshot = snapshot(vec![at_rest(|_| {})], vec![place("a", 1).runs("p", "1")]);
    let Pass { commands, .. } = first_pass(&snapshot(vec![pool("default")], vec![place("a", 1)]));
    let [rejected]: [Command; 1] = commands.try_into().expect("one command");
    assert_eq!(rejected.method, Method::Emptiness);
    let mut memory = Memory::default();
    memory.reject(&rejected);
    let mut look = || {
        let pass = pass(&rest, &Settings::default(), &mut memory);
        quiet_until(&rest, &pass).is_some()
    };
    assert!(!look(), "emptiness has not been asked");
    assert!(look());
}
