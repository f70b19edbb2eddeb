use super::*;
use kerf_api::conditions::Status;

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_second(minutes * 60).unwrap()
}

/// A match since that minute, whose policy tolerates so many minutes.
fn matched(condition: &str, rank: u32, since: i64, tolerated: u64) -> RepairMatch {
    let toleration = Duration::from_mins(tolerated);
    RepairMatch {
        policy: Arc::new(RepairPolicy::new("Ready", Status::False, toleration)),
        is_fallback: false,
        condition: condition.to_owned(),
        status: "True".to_owned(),
        reason: "Broken".to_owned(),
        rank,
        since: at(since),
    }
}

fn with(one: RepairMatch, change: impl FnOnce(&mut RepairPolicy)) -> RepairMatch {
    let mut policy = RepairPolicy::clone(&one.policy);
    change(&mut policy);
    RepairMatch { policy: Arc::new(policy), ..one }
}

fn reboots(one: RepairMatch) -> RepairMatch {
    with(one, |policy| policy.action = RepairAction::Reboot)
}

fn drained(one: RepairMatch, minutes: u64) -> RepairMatch {
    with(one, |policy| policy.termination_grace_period = Some(Duration::from_mins(minutes)))
}

#[test]
fn nothing_is_due_within_the_toleration() {
    let node = |matches: &[RepairMatch]| {
        let mut node = Node::default();
        node.disruption.repair = matches.to_vec();
        node
    };
    let tolerated = |until: i64| {
        let (condition, status) = ("A".to_owned(), "True".to_owned());
        Err(Blocked::Tolerated { condition, status, until: at(until) })
    };
    let one = matched("A", 0, 0, 10);
    assert_eq!(due(&node(&[]), at(99)), Err(Blocked::Healthy));
    assert_eq!(due(&node(std::slice::from_ref(&one)), at(9)), tolerated(10));
    assert!(due(&node(std::slice::from_ref(&one)), at(10)).is_ok());
    // The first of them is told.
    let later = matched("B", 0, 5, 10);
    assert_eq!(due(&node(&[later, one]), at(9)), tolerated(10));
}

#[test]
fn the_most_disruptive_action_wins_and_then_the_priority_the_age_and_the_name() {
    let check = |matches: &[RepairMatch], expected: (RepairAction, &str)| {
        let mut matches = matches.to_vec();
        for _ in 0..2 {
            let found = resolve(&matches, at(60), None).unwrap();
            assert_eq!((found.action, found.condition.as_str()), expected, "{matches:?}");
            matches.reverse();
        }
    };
    let (replace, reboot) = (RepairAction::Replace, RepairAction::Reboot);
    let plain = |condition, rank, since| matched(condition, rank, since, 10);
    check(&[plain("A", 0, 0)], (replace, "A"));
    check(&[reboots(plain("A", 9, 0)), plain("B", 0, 40)], (replace, "B"));
    check(&[reboots(plain("A", 9, 0)), plain("B", 0, 51)], (reboot, "A"));
    check(&[plain("A", 0, 0), plain("B", 1, 40)], (replace, "B"));
    check(&[plain("A", 1, 20), plain("B", 1, 10)], (replace, "B"));
    check(&[plain("B", 1, 10), plain("A", 1, 10)], (replace, "A"));
}

#[test]
fn the_shortest_drain_of_all_that_is_due_counts() {
    let check = |matches: &[RepairMatch], minutes: Option<u64>| {
        let found = resolve(matches, at(60), None).unwrap();
        assert_eq!(found.drain, minutes.map(Duration::from_mins), "{matches:?}");
    };
    let plain = |since| matched("A", 0, since, 10);
    check(&[plain(0)], None);
    check(&[drained(plain(0), 5), plain(0)], Some(5));
    check(&[drained(plain(0), 5), drained(plain(0), 3)], Some(3));
    check(&[drained(plain(0), 0), plain(0)], Some(0));
    // Also of what asks for less, and never of what is tolerated.
    check(&[plain(0), drained(reboots(plain(0)), 2)], Some(2));
    check(&[plain(0), drained(plain(51), 2)], None);
}

/// A node one rank lower overtakes one that became due just now after half an hour.
#[test]
fn waiting_counts_as_much_as_priority() {
    let urgency = |matches: &[RepairMatch]| resolve(matches, at(100), None).unwrap().urgency;
    let waited = |rank, minutes: i64| matched("A", rank, 100 - minutes, 0);
    assert_eq!(urgency(&[waited(0, 7)]), SignedDuration::from_mins(7));
    assert_eq!(urgency(&[waited(1, 0)]), urgency(&[waited(0, 30)]));
    assert!(urgency(&[waited(0, 31)]) > urgency(&[waited(1, 0)]));
    assert!(urgency(&[waited(2, 0)]) > urgency(&[waited(1, 29)]));
    // The best of several, also of one that asks for less than is done.
    let both = [waited(0, 5), reboots(waited(3, 1))];
    assert_eq!(urgency(&both), SignedDuration::from_mins(91));
}

#[test]
fn a_toleration_begins_anew_after_a_reboot() {
    let one = [matched("A", 0, 0, 10)];
    assert!(resolve(&one, at(30), Some(at(25))).is_none());
    assert_eq!(resolve(&one, at(35), Some(at(25))).unwrap().since, at(35));
    assert_eq!(resolve(&[matched("A", 0, 30, 10)], at(60), Some(at(25))).unwrap().since, at(40));
}
