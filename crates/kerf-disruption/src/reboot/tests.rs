use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Decided on at zero. The node runs its first boot and is ready.
const REBOOT: Reboot<'static> = Reboot {
    requested: Timestamp::UNIX_EPOCH,
    bound: Some("1m0s"),
    boot_before: None,
    asked: None,
    accepted: None,
    node: Some(MACHINE),
    called_off: None,
};
const MACHINE: Machine<'static> = Machine { boot_id: "first", ready: true, pods: 0 };

fn with_pods(pods: usize) -> Machine<'static> {
    Machine { pods, ..MACHINE }
}

fn check(reboot: &Reboot<'_>, second: i64, expected: &Step) {
    assert_eq!(next(reboot, at(second)), *expected, "after {second} s: {reboot:?}");
}

fn drain(second: i64) -> Step {
    Step::Drain { until: at(second) }
}

const WAIT: Step = Step::Wait { rebooted: false };

#[test]
fn pods_have_as_long_as_the_bound_says_and_are_never_forced() {
    let reboot = Reboot { node: Some(with_pods(2)), ..REBOOT };
    check(&reboot, 0, &drain(60));
    check(&reboot, 59, &drain(60));
    check(&reboot, 60, &Step::Note);
    // The end of the last pod ends the drain.
    check(&REBOOT, 20, &Step::Note);
    // kube-scheduler may have one more pod in its hands.
    check(&REBOOT, 4, &drain(60));
    check(&REBOOT, 5, &Step::Note);
    let short = Reboot { bound: Some("1s"), node: Some(with_pods(2)), ..REBOOT };
    check(&short, 4, &drain(5));
    check(&short, 5, &Step::Note);
    check(&Reboot { bound: Some("0s"), node: Some(with_pods(2)), ..REBOOT }, 0, &Step::Note);
}

#[test]
fn a_drain_that_nobody_bounds_is_given_up() {
    let reboot = Reboot { bound: None, node: Some(with_pods(1)), ..REBOOT };
    check(&reboot, 1799, &drain(1800));
    check(&reboot, 1800, &Step::Failed(Failure::Drain));
    check(&Reboot { bound: None, ..REBOOT }, 1800, &Step::Note);
}

#[test]
fn a_bound_that_is_none_is_an_invalid_request() {
    let failure = |bound: &str| {
        let reboot = Reboot { bound: Some(bound), node: Some(with_pods(1)), ..REBOOT };
        match next(&reboot, at(1)) {
            Step::Failed(failure) => (failure.result(), failure.to_string()),
            step => panic!("{step:?}"),
        }
    };
    let (result, text) = failure("soon");
    assert_eq!(result, RebootResult::InvalidRequest);
    let begin = "invalid reboot request: parsing reboot termination grace period \"soon\": ";
    assert!(text.starts_with(begin), "{text}");
    let negative =
        "invalid reboot request: reboot termination grace period must be non-negative, got \"-5s\"";
    assert_eq!(failure("-5s"), (RebootResult::InvalidRequest, negative.to_owned()));
    // It is read while it matters.
    check(&Reboot { boot_before: Some("first"), bound: Some("soon"), ..REBOOT }, 1, &Step::Ask);
}

#[test]
fn a_reboot_is_called_off_until_the_cloud_is_asked() {
    for why in [CalledOff::Vetoed, CalledOff::SwitchedOff] {
        let reboot = Reboot { called_off: Some(why), node: Some(with_pods(1)), ..REBOOT };
        check(&reboot, 1, &Step::CalledOff(why));
        check(&Reboot { node: None, ..reboot.clone() }, 1, &Step::CalledOff(why));
        check(&Reboot { boot_before: Some("first"), ..reboot.clone() }, 1, &Step::Ask);
        check(&Reboot { boot_before: Some("first"), accepted: Some(at(2)), ..reboot }, 3, &WAIT);
    }
}

#[test]
fn a_cloud_is_asked_for_five_minutes() {
    let asks = Reboot { boot_before: Some("first"), asked: Some(at(60)), ..REBOOT };
    check(&asks, 60, &Step::Ask);
    check(&asks, 360, &Step::Ask);
    check(&asks, 361, &Step::Failed(Failure::NotIssued));
    // Pods that came back meanwhile do not matter.
    check(&Reboot { node: Some(with_pods(3)), ..asks.clone() }, 100, &Step::Ask);
    // Its answer was lost.
    let rebooted = Some(Machine { boot_id: "second", ..MACHINE });
    check(&Reboot { node: rebooted, ..asks.clone() }, 100, &Step::Accepted);
    check(&Reboot { node: rebooted, ..asks.clone() }, 999, &Step::Accepted);
    // A boot ID that is not told is one as well.
    let nameless = Some(Machine { boot_id: "", ..MACHINE });
    check(&Reboot { boot_before: Some(""), node: nameless, ..asks.clone() }, 100, &Step::Ask);
    check(&Reboot { node: None, ..asks.clone() }, 360, &WAIT);
    check(&Reboot { node: None, ..asks }, 361, &Step::Failed(Failure::NotIssued));
    check(&Reboot { node: None, ..REBOOT }, 300, &WAIT);
    check(&Reboot { node: None, ..REBOOT }, 301, &Step::Failed(Failure::NotIssued));
}

#[test]
fn a_node_is_back_when_it_is_another_boot_and_ready() {
    let accepted = Some(at(100));
    let waits = Reboot { boot_before: Some("first"), accepted, ..REBOOT };
    let (ready, late) = (true, 100 + 20 * 60);
    let machine = |boot_id, ready| Some(Machine { boot_id, ready, pods: 0 });
    // It may be ready for a while before it goes down.
    check(&Reboot { node: machine("first", ready), ..waits.clone() }, 101, &WAIT);
    check(&Reboot { node: machine("first", false), ..waits.clone() }, 150, &WAIT);
    let seen = Step::Wait { rebooted: true };
    check(&Reboot { node: machine("second", false), ..waits.clone() }, 150, &seen);
    check(&Reboot { node: machine("second", ready), ..waits.clone() }, 200, &Step::Succeeded);
    check(&Reboot { node: machine("second", ready), ..waits.clone() }, late + 1, &Step::Succeeded);
    check(&Reboot { node: machine("second", false), ..waits.clone() }, late, &seen);
    let not_back = Step::Failed(Failure::NotRecovered);
    for node in [machine("first", ready), machine("second", false), None] {
        check(&Reboot { node, ..waits.clone() }, late + 1, &not_back);
    }
    // Somebody has taken the note of the boot before away.
    let blind = Reboot { boot_before: None, ..waits };
    check(&Reboot { node: machine("second", ready), ..blind.clone() }, late, &WAIT);
    check(&Reboot { node: machine("second", ready), ..blind }, late + 1, &not_back);
}

#[test]
fn a_node_is_replaced_when_reboots_are_of_no_use() {
    let hour = 60 * 60;
    let now = 100 * hour;
    let check = |last: LastReboot, asked: &[i64], expected: Option<Escalation>| {
        let asked = asked.iter().map(|hours| at(now - hours * hour)).collect();
        let history = RebootHistory { last, asked };
        assert_eq!(escalation(&history, at(now)), expected, "{history:?}");
    };
    let succeeded = LastReboot::Succeeded { at: at(now - 60) };
    check(LastReboot::None, &[], None);
    check(succeeded, &[1], None);
    check(succeeded, &[24, 1], Some(Escalation::Often { reboots: 2 }));
    check(succeeded, &[25, 1], None);
    check(succeeded, &[40, 30], None);
    // One that was called off counts for nothing, those before it count.
    check(LastReboot::None, &[2, 1], Some(Escalation::Often { reboots: 2 }));
    let failed = |hours: i64| LastReboot::Failed { at: at(now - hours * hour) };
    let escalated = |hours: i64| Some(Escalation::Failed { at: at(now - hours * hour) });
    check(failed(0), &[1], escalated(0));
    check(failed(24), &[], escalated(24));
    check(failed(25), &[25], None);
}

#[test]
fn every_failure_has_a_result_and_words() {
    let rejected = Failure::Rejected("no such instance".to_owned());
    for (failure, result, text) in [
        (Failure::NotImplemented, "provider_error", "reboot not implemented by the cloud provider"),
        (rejected, "provider_error", "reboot rejected by the cloud provider: no such instance"),
        (Failure::NotIssued, "provider_error", "reboot was not issued within the issuance timeout"),
        (
            Failure::NotRecovered,
            "recovery_timeout",
            "node did not recover within the observation window",
        ),
        (
            Failure::Drain,
            "drain_timeout",
            "pods were still on the node after 30 minutes, and nothing bounds the drain",
        ),
    ] {
        assert_eq!((failure.result().as_str(), failure.to_string().as_str()), (result, text));
    }
}
