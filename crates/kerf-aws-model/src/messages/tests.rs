use super::*;

fn id(text: &str) -> String {
    text.to_owned()
}

fn every_notice() -> Vec<Notice> {
    vec![
        Notice::SpotInterruption { instance: id("i-1") },
        Notice::RebalanceRecommendation { instance: id("i-1") },
        Notice::InstanceStopped { instance: id("i-1"), state: Stopped::Stopping },
        Notice::InstanceStopped { instance: id("i-1"), state: Stopped::Stopped },
        Notice::InstanceTerminated { instance: id("i-1"), state: Terminated::ShuttingDown },
        Notice::InstanceTerminated { instance: id("i-1"), state: Terminated::Terminated },
        Notice::ScheduledChange { instances: vec![id("i-1"), id("i-2")] },
        Notice::CapacityReservationInterruption { instance: id("i-1") },
    ]
}

#[test]
fn what_is_written_is_read() {
    let time = Some("2026-11-16T12:00:00Z".parse().unwrap());
    for notice in every_notice() {
        let message = Message { time, notice };
        let text = message.write("123456789012", "us-west-2", "7bf73129").unwrap();
        assert_eq!(Message::read(&text).unwrap(), message, "{text}");
    }
    let nothing = Message { time, notice: Notice::Other };
    assert_eq!(nothing.write("123456789012", "us-west-2", "7bf73129"), None);
}

#[test]
fn messages_are_recognised_by_version_source_and_detail_type() {
    let spot = |version: &str, source: &str, detail_type: &str| {
        let text = json!({
            "version": version, "source": source, "detail-type": detail_type,
            "detail": {"instance-id": "i-1", "instance-action": "stop"},
        });
        Message::read(&text.to_string()).unwrap().notice.kind()
    };
    let name = "EC2 Spot Instance Interruption Warning";
    assert_eq!(spot("0", "aws.ec2", name), "spot_interrupted");
    assert_eq!(spot("1", "aws.ec2", name), "no_op");
    assert_eq!(spot("0", "aws.ecs", name), "no_op");
    assert_eq!(spot("0", "aws.ec2", "EC2 Fleet Instance Change"), "no_op");
}

#[test]
fn only_states_on_the_way_out_and_maintenance_of_ec2_count() {
    let state = |state: &str| {
        json!({"version": "0", "source": "aws.ec2", "detail-type": STATE_CHANGE,
               "detail": {"instance-id": "i-1", "state": state}})
    };
    let health = |service: &str, category: &str| {
        json!({"version": "0", "source": "aws.health", "detail-type": HEALTH_EVENT,
               "detail": {"service": service, "eventTypeCategory": category,
                          "affectedEntities": [{"entityValue": "i-1"}]}})
    };
    for (text, kind) in [
        (state("pending"), "no_op"),
        (state("running"), "no_op"),
        (state("stopping"), "instance_stopped"),
        (state("Stopped"), "instance_stopped"),
        (state("shutting-down"), "instance_terminated"),
        (state("terminated"), "instance_terminated"),
        (health("EC2", "scheduledChange"), "scheduled_change"),
        (health("EBS", "scheduledChange"), "no_op"),
        (health("EC2", "issue"), "no_op"),
    ] {
        assert_eq!(Message::read(&text.to_string()).unwrap().notice.kind(), kind, "{text}");
    }
    assert_eq!(Message::read("").unwrap().notice, Notice::Other);
    assert_eq!(Message::read("{}").unwrap().notice, Notice::Other);
}

#[test]
fn what_cannot_be_read_says_why() {
    let no_instance =
        json!({"version": "0", "source": "aws.ec2", "detail-type": SPOT_INTERRUPTION});
    for (text, expected) in [
        ("not JSON".to_owned(), "the message is not an EventBridge event: "),
        ("3".to_owned(), "the message is not an EventBridge event: "),
        (
            no_instance.to_string(),
            "the message \"EC2 Spot Instance Interruption Warning\" has an unexpected detail: ",
        ),
    ] {
        let error = Message::read(&text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn each_notice_has_its_response() {
    let said: Vec<_> = every_notice()
        .iter()
        .map(|notice| {
            let response = notice.response().unwrap();
            (notice.kind(), response.disrupt, response.event.reason, response.mark)
        })
        .collect();
    let stopped = ("instance_stopped", true, "InstanceStopping", None);
    let terminated = ("instance_terminated", true, "InstanceTerminating", None);
    assert_eq!(
        said,
        [
            ("spot_interrupted", true, "SpotInterrupted", Some(Mark::SpotOffering)),
            ("rebalance_recommendation", false, "SpotRebalanceRecommendation", None),
            stopped,
            stopped,
            terminated,
            terminated,
            ("scheduled_change", true, "InstanceUnhealthy", None),
            (
                "capacity_reservation_interrupted",
                true,
                "CapacityReservationInstanceInterrupted",
                Some(Mark::Reservation)
            ),
        ]
    );
    assert_eq!(Notice::Other.response(), None);
}

#[test]
fn the_end_of_an_instance_that_is_given_up_is_no_news() {
    for notice in every_notice() {
        let is_end = ["instance_stopped", "instance_terminated"].contains(&notice.kind());
        let got = [false, true].map(|deleting| notice.is_news_of(deleting));
        assert_eq!(got, [true, !is_end], "{notice:?}");
    }
}
