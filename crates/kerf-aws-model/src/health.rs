//! Status checks and scheduled events of instances, as EC2 reports them.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kerf_aws_wire::ec2::{
    DescribeInstanceStatusRequest, Filter, InstanceStatus, InstanceStatusEvent,
    InstanceStatusSummary,
};

use crate::messages::Event;

/// A check that fails for a shorter time may pass again.
const TOLERATED: Duration = Duration::from_mins(2);

const EVENTS: [&str; 5] = [
    "instance-reboot",
    "system-reboot",
    "system-maintenance",
    "instance-retirement",
    "instance-stop",
];

/// What is wrong with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ailment {
    /// The operating system does not answer.
    InstanceStatus,
    /// The machine beneath it has failed.
    SystemStatus,
    /// AWS will reboot, stop or retire it.
    ScheduledEvent,
}

impl Ailment {
    /// The cause of a disruption, in metrics.
    pub fn cause(self) -> &'static str {
        match self {
            Self::InstanceStatus => "instance_status",
            Self::SystemStatus => "system_status",
            Self::ScheduledEvent => "event_status",
        }
    }

    /// The category of the metric of unhealthy instances.
    pub fn category(self) -> &'static str {
        match self {
            Self::InstanceStatus => "InstanceStatus",
            Self::SystemStatus => "SystemStatus",
            Self::ScheduledEvent => "EventStatus",
        }
    }

    /// For the NodeClaim and its Node.
    pub fn event(self) -> Event {
        let message = match self {
            Self::InstanceStatus => "The instance's status check has failed for two minutes",
            Self::SystemStatus => {
                "The status check of the instance's host has failed for two minutes"
            }
            Self::ScheduledEvent => "AWS will reboot, stop or retire the instance",
        };
        Event { reason: "InstanceUnhealthy", message, warning: true }
    }

    /// Whether the node is beyond draining.
    pub fn ends_patience(self) -> bool {
        self != Self::ScheduledEvent
    }
}

/// One request for each of the three; filters of one request would all have to hold.
pub fn requests() -> [DescribeInstanceStatusRequest; 3] {
    [
        ("instance-status.status", &["impaired"][..]),
        ("system-status.status", &["impaired"]),
        ("event.code", &EVENTS),
    ]
    .map(|(name, values)| DescribeInstanceStatusRequest {
        filters: vec![Filter {
            name: Some(name.to_owned()),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }],
        ..DescribeInstanceStatusRequest::default()
    })
}

/// What ails the instance now.
pub fn ailments(status: &InstanceStatus, now: Timestamp) -> BTreeSet<Ailment> {
    let mut all = BTreeSet::new();
    if has_failed(status.instance_status.as_ref(), now) {
        all.insert(Ailment::InstanceStatus);
    }
    if has_failed(status.system_status.as_ref(), now) {
        all.insert(Ailment::SystemStatus);
    }
    if status.events.iter().any(is_ahead) {
        all.insert(Ailment::ScheduledEvent);
    }
    all
}

fn has_failed(summary: Option<&InstanceStatusSummary>, now: Timestamp) -> bool {
    let details = summary.into_iter().flat_map(|summary| &summary.details);
    let mut failed = details.filter(|detail| detail.status.as_deref() == Some("failed"));
    failed.any(|detail| {
        let lasts = |since| Duration::try_from(now.duration_since(since)).unwrap_or_default();
        detail.impaired_since.is_none_or(|since| lasts(since) >= TOLERATED)
    })
}

/// EC2 lists events for a week after they are over, and says so in their text alone.
fn is_ahead(event: &InstanceStatusEvent) -> bool {
    let description = event.description.as_deref().unwrap_or_default();
    let is_over = ["[Completed]", "[Canceled]"].iter().any(|word| description.starts_with(word));
    !is_over && event.code.as_deref().is_some_and(|code| EVENTS.contains(&code))
}

#[cfg(test)]
mod tests {
    use kerf_aws_wire::ec2::InstanceStatusDetails;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-16T12:00:00Z".parse().unwrap()
    }

    fn check(status: &str, seconds: Option<i64>) -> Option<InstanceStatusSummary> {
        let since = |seconds| now() - jiff::SignedDuration::from_secs(seconds);
        let summary = InstanceStatusSummary {
            status: Some("impaired".to_owned()),
            details: vec![InstanceStatusDetails {
                name: Some("reachability".to_owned()),
                status: Some(status.to_owned()),
                impaired_since: seconds.map(since),
            }],
        };
        summary.into()
    }

    fn event(code: &str, description: &str) -> Vec<InstanceStatusEvent> {
        vec![InstanceStatusEvent {
            code: Some(code.to_owned()),
            description: Some(description.to_owned()),
            ..InstanceStatusEvent::default()
        }]
    }

    #[test]
    fn checks_count_after_two_minutes_and_events_at_once() {
        let of = |instance_status, system_status, events| {
            let status = InstanceStatus {
                instance_status,
                system_status,
                events,
                ..InstanceStatus::default()
            };
            ailments(&status, now()).into_iter().map(Ailment::cause).collect::<Vec<_>>()
        };
        for (instance, system, events, expected) in [
            (None, None, vec![], &[][..]),
            (check("failed", Some(119)), None, vec![], &[]),
            (check("failed", Some(120)), None, vec![], &["instance_status"]),
            (check("failed", None), None, vec![], &["instance_status"]),
            (check("passed", Some(600)), None, vec![], &[]),
            (None, check("failed", Some(600)), vec![], &["system_status"]),
            (None, None, event("instance-retirement", "soon"), &["event_status"]),
            (None, None, event("instance-retirement", "[Completed] done"), &[]),
            (None, None, event("system-reboot", "[Canceled] not needed"), &[]),
            (None, None, event("another", ""), &[]),
            (
                check("failed", Some(600)),
                check("failed", Some(600)),
                event("instance-stop", ""),
                &["instance_status", "system_status", "event_status"],
            ),
        ] {
            assert_eq!(of(instance, system, events), expected);
        }
    }

    #[test]
    fn a_broken_machine_is_not_drained() {
        assert!(Ailment::InstanceStatus.ends_patience() && Ailment::SystemStatus.ends_patience());
        assert!(!Ailment::ScheduledEvent.ends_patience());
    }
}
