//! Nodes that are rebooted: when, what holds it back, and when they are replaced instead.

use std::time::Duration;

use kerf_disruption::{Command, Decision, Method, Settings, explain::Explainer};
use kerf_model::{
    Price,
    disruption::Obstacle,
    reboot::{LastReboot, RebootHistory},
    repair::{RepairAction, RepairPolicy},
};

use crate::drift::drifted;
use crate::places::{Place, ago, budget, first_pass, place, pool, told, why};
use crate::repair::{POLICY, among, broken, broken_by, busy, default_pool, snapshot};

const REBOOT: RepairPolicy = RepairPolicy {
    termination_grace_period: Some(Duration::from_mins(1)),
    action: RepairAction::Reboot,
    ..POLICY
};

fn rebooted(place: Place, last: LastReboot, asked: &[u64]) -> Place {
    let asked = asked.iter().map(|minutes| ago(*minutes)).collect();
    place.set(|node| node.disruption.reboots = RebootHistory { last, asked })
}

/// What is done about one node whose policy asks for a reboot, or what repair says against it.
fn decision(place: Place) -> Result<Decision, String> {
    let pass = first_pass(&snapshot(default_pool(), among(9, [place])));
    let refused = || {
        let mut refused = pass.refused.iter();
        let refused = refused.find(|it| it.node == "a" && it.method == Some(Method::Repair));
        refused.map(|it| it.why.to_string()).unwrap_or_default()
    };
    pass.commands.first().map(Command::decision).ok_or_else(refused)
}

#[test]
fn a_node_is_rebooted_where_its_policy_asks_for_it() {
    let node = || broken_by(busy("a"), 10, REBOOT, 0);
    let pass = first_pass(&snapshot(default_pool(), among(9, [node()])));
    let [command] = &pass.commands[..] else { panic!("{:?}", why(&pass, "a")) };
    assert_eq!((told(command), command.decision()), ("Repair a".to_owned(), Decision::Reboot));
    let remedy = command.remedy.as_ref().unwrap();
    assert_eq!((remedy.drain, remedy.instead), (Some(Duration::from_mins(1)), None));
    assert_eq!((command.savings, command.replacements.len()), (Some(Price::ZERO), 0));
    // Nothing else has to have room for its pods, and an empty one is not removed.
    let big = broken_by(place("a", 16).runs("p", "15"), 10, REBOOT, 0);
    let mut small = pool("default");
    small.instance_types.truncate(4);
    let found = first_pass(&snapshot(vec![small], among(9, [big])));
    assert_eq!(
        found.commands.iter().map(Command::decision).collect::<Vec<_>>(),
        [Decision::Reboot]
    );
    assert_eq!(decision(broken_by(place("a", 2), 10, REBOOT, 0)), Ok(Decision::Reboot));
    // Replacing wins over it.
    assert_eq!(decision(broken(node(), 10)), Ok(Decision::Replace));
}

#[test]
fn what_holds_a_repair_back_holds_a_reboot_back() {
    let node = || broken_by(busy("a"), 10, REBOOT, 0);
    let vetoed = node().set(|node| node.disruption.do_not_repair = true);
    let forbidden = "repair is blocked through the \"karpenter.sh/do-not-repair\" annotation";
    assert_eq!(decision(vetoed), Err(forbidden.to_owned()));
    let unbounded = RepairPolicy { termination_grace_period: None, ..REBOOT };
    let held = broken_by(busy("a").obstacle(&Obstacle::DoNotDisrupt), 10, unbounded.clone(), 0);
    let why = decision(held.clone()).unwrap_err();
    assert!(why.starts_with("repair requires a termination grace period"), "{why}");
    let bounded = held.set(|node| {
        node.disruption.termination_grace_period = Some(Duration::from_mins(5));
    });
    assert_eq!(decision(bounded), Ok(Decision::Reboot));
    // The breaker.
    let others = [broken(busy("b"), 1), broken(busy("c"), 1)];
    let places = among(7, [node()].into_iter().chain(others));
    let pass = first_pass(&snapshot(default_pool(), places));
    assert!(pass.commands.is_empty());
    assert_eq!(pass.refused.iter().filter(|it| it.why.name() == "too_many_unhealthy").count(), 1);
}

/// Where no bound is, the claim's own is written down: no deletion will do it.
#[test]
fn the_drain_before_a_reboot_has_the_bound_of_its_claim_where_the_policy_has_none() {
    let check = |of_policy: Option<u64>, of_claim: Option<u64>, expected: Option<u64>| {
        let minutes = |minutes: Option<u64>| minutes.map(Duration::from_mins);
        let policy = RepairPolicy { termination_grace_period: minutes(of_policy), ..REBOOT };
        let node = broken_by(busy("a"), 10, policy, 0)
            .set(|node| node.disruption.termination_grace_period = minutes(of_claim));
        let pass = first_pass(&snapshot(default_pool(), among(9, [node])));
        let remedy = pass.commands[0].remedy.as_ref().unwrap();
        assert_eq!(remedy.drain, minutes(expected), "{of_policy:?} {of_claim:?}");
    };
    check(None, None, None);
    check(None, Some(5), Some(5));
    check(Some(3), Some(5), Some(3));
    check(Some(5), Some(3), Some(3));
    check(Some(0), Some(3), Some(0));
}

#[test]
fn reboots_that_do_not_help_or_fail_make_way_for_a_replacement() {
    let node = || broken_by(busy("a"), 60, REBOOT, 0);
    let over = |minutes| LastReboot::Succeeded { at: ago(minutes) };
    let failed = |minutes| LastReboot::Failed { at: ago(minutes) };
    assert_eq!(decision(rebooted(node(), over(10), &[11])), Ok(Decision::Reboot));
    assert_eq!(decision(rebooted(node(), over(10), &[700, 11])), Ok(Decision::Replace));
    assert_eq!(decision(rebooted(node(), over(10), &[1500, 11])), Ok(Decision::Reboot));
    assert_eq!(decision(rebooted(node(), failed(0), &[1])), Ok(Decision::Replace));
    assert_eq!(decision(rebooted(node(), failed(1500), &[])), Ok(Decision::Reboot));
    // After one that succeeded, the node has to show again that it is broken.
    let tolerated = decision(rebooted(node(), over(9), &[10])).unwrap_err();
    let until = "condition Ready=False is tolerated until 2026-03-04T12:01:00Z, and the node is repaired then";
    assert_eq!(tolerated, until);
    let pass =
        first_pass(&snapshot(default_pool(), among(9, [rebooted(node(), failed(3), &[20])])));
    let instead = pass.commands[0].remedy.as_ref().unwrap().instead.unwrap().to_string();
    assert_eq!(instead, format!("its last reboot failed at {}", ago(3)));
}

/// A node that did not come back is not initialised. It is one that its pool has lost.
#[test]
fn a_replacement_after_a_reboot_that_failed_needs_a_budget() {
    let lost = rebooted(broken(busy("a"), 10), LastReboot::Failed { at: ago(1) }, &[30])
        .set(|node| node.initialized = false);
    assert_eq!(decision(lost.clone()), Ok(Decision::Replace));
    let mut shut = pool("default");
    shut.disruption.budgets = vec![budget("0")];
    let pass = first_pass(&snapshot(vec![shut], among(9, [lost])));
    let no_budget = "no allowed disruptions for disruption reason Unhealthy due to blocking budget \
                     (NodePool=default, nodes=10, allowed=0, disrupting=0)";
    assert!(why(&pass, "a").contains(&no_budget.to_owned()), "{:?}", why(&pass, "a"));
}

#[test]
fn a_node_that_is_rebooted_is_left_alone_and_uses_up_budgets() {
    let rebooting = |place: Place| {
        rebooted(place, LastReboot::UnderWay, &[]).set(|node| node.initialized = false)
    };
    let all =
        vec![drifted(rebooting(broken_by(busy("a"), 10, REBOOT, 0)), 60), drifted(busy("b"), 5)];
    let check = |nodes: &str, expected: &[&str]| {
        let mut paced = pool("default");
        paced.disruption.budgets = vec![budget(nodes)];
        let snapshot = snapshot(vec![paced], among(8, all.clone()));
        let pass = first_pass(&snapshot);
        let decided: Vec<_> = pass.commands.iter().map(told).collect();
        assert_eq!(decided, expected, "{nodes}");
        assert!(why(&pass, "a").iter().all(|why| why == "node is rebooting"), "{nodes}");
        for (reason, allowances) in &pass.allowances {
            let allowance = allowances["default"];
            assert_eq!((allowance.nodes, allowance.disrupting), (10, 1), "{reason:?}");
        }
    };
    check("1", &[]);
    check("2", &["Drift b -> fake-it-1"]);
}

/// They are independent of each other: nothing is planned for their pods.
#[test]
fn several_nodes_are_rebooted_at_once_within_the_budgets() {
    let busy = |name: &str| place(name, 2).runs(&format!("of-{name}"), "1800m");
    let decided = |nodes: &str, others: Vec<Place>| {
        let mut paced = pool("default");
        paced.disruption.budgets = vec![budget(nodes)];
        let both = ["a", "b"].map(|name| broken_by(busy(name), 20, REBOOT, 0));
        let snapshot = snapshot(vec![paced], among(14, both.into_iter().chain(others)));
        first_pass(&snapshot).commands.iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(decided("1", vec![]), ["Repair a"]);
    assert_eq!(decided("2", vec![]), ["Repair a", "Repair b"]);
    // A replacement is planned in a world in which nothing else changes.
    assert_eq!(decided("3", vec![broken(busy("c"), 15)]), ["Repair a", "Repair b"]);
    assert_eq!(decided("3", vec![broken(busy("c"), 25)]), ["Repair c -> fake-it-1"]);
}

#[test]
fn an_explanation_says_what_a_reboot_would_do() {
    let explained = |place: Place| {
        let snapshot = snapshot(default_pool(), among(9, [place]));
        let settings = Settings::default();
        let found = Explainer::new(&snapshot, &settings).node("a").unwrap();
        let repair = found.methods.iter().find(|one| one.method == Method::Repair).unwrap();
        (found.verdict.map(|it| it.decision()), repair.simulation.is_some())
    };
    let node = || broken_by(busy("a"), 60, REBOOT, 0);
    assert_eq!(explained(node()), (Ok(Decision::Reboot), false));
    let over = LastReboot::Succeeded { at: ago(20) };
    assert_eq!(explained(rebooted(node(), over, &[50, 21])), (Ok(Decision::Replace), true));
}
