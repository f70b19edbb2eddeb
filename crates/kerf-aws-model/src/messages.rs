//! What the interruption queue says: envelopes of `EventBridge` read, written, and what each of them calls for.
//!
//! They are written too, because the fake of AWS puts them on its queue.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One message of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// When AWS wrote it, for the latency of the queue.
    pub time: Option<Timestamp>,
    pub notice: Notice,
}

/// What a message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The spot instance ends in two minutes.
    SpotInterruption {
        instance: String,
    },
    /// The spot instance is likelier than others to be interrupted.
    RebalanceRecommendation {
        instance: String,
    },
    InstanceStopped {
        instance: String,
        state: Stopped,
    },
    InstanceTerminated {
        instance: String,
        state: Terminated,
    },
    /// AWS Health announces maintenance of these instances.
    ScheduledChange {
        instances: Vec<String>,
    },
    /// The owner of an interruptible capacity reservation wants it back.
    CapacityReservationInterruption {
        instance: String,
    },
    /// Anything else that a rule may put on the queue.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    Stopping,
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminated {
    ShuttingDown,
    Terminated,
}

/// Why a message says nothing. It is deleted all the same: it would say nothing the next time.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the message is not an EventBridge event: {0}")]
    Envelope(#[source] serde_json::Error),
    #[error("the message \"{detail_type}\" has an unexpected detail: {error}")]
    Detail { detail_type: String, error: serde_json::Error },
}

const EC2: &str = "aws.ec2";
const HEALTH: &str = "aws.health";
const VERSION: &str = "0";
const SPOT_INTERRUPTION: &str = "EC2 Spot Instance Interruption Warning";
const REBALANCE_RECOMMENDATION: &str = "EC2 Instance Rebalance Recommendation";
const STATE_CHANGE: &str = "EC2 Instance State-change Notification";
const HEALTH_EVENT: &str = "AWS Health Event";
const CAPACITY_RESERVATION_INTERRUPTION: &str =
    "EC2 Capacity Reservation Instance Interruption Warning";

/// The only events of AWS Health that are about maintenance of instances.
const HEALTH_SERVICE: &str = "EC2";
const HEALTH_CATEGORY: &str = "scheduledChange";

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    version: String,
    #[serde(default)]
    source: String,
    #[serde(rename = "detail-type", default)]
    detail_type: String,
    // A time that cannot be read costs one observation of a metric, and no more.
    #[serde(default)]
    time: Option<String>,
    #[serde(default)]
    detail: Value,
}

#[derive(Deserialize)]
struct InstanceDetail {
    #[serde(rename = "instance-id")]
    instance: String,
}

#[derive(Deserialize)]
struct StateDetail {
    #[serde(rename = "instance-id")]
    instance: String,
    state: String,
}

#[derive(Deserialize)]
struct HealthDetail {
    #[serde(default)]
    service: String,
    #[serde(rename = "eventTypeCategory", default)]
    category: String,
    #[serde(rename = "affectedEntities", default)]
    affected: Vec<AffectedEntity>,
}

#[derive(Deserialize, Serialize)]
struct AffectedEntity {
    #[serde(rename = "entityValue")]
    value: String,
}

impl Message {
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        if text.is_empty() {
            return Ok(Self { time: None, notice: Notice::Other });
        }
        let envelope: Envelope = serde_json::from_str(text).map_err(Unreadable::Envelope)?;
        let time = envelope.time.as_deref().and_then(|time| time.parse().ok());
        let notice = Notice::read(
            &envelope.version,
            &envelope.source,
            &envelope.detail_type,
            envelope.detail,
        )
        .map_err(|error| Unreadable::Detail { detail_type: envelope.detail_type, error })?;
        Ok(Self { time, notice })
    }

    /// The message as `EventBridge` would write it; `None` where there is nothing to say.
    pub fn write(&self, account: &str, region: &str, id: &str) -> Option<String> {
        let (source, detail_type, detail) = self.notice.write()?;
        let resources: Vec<_> = self
            .notice
            .instances()
            .iter()
            .map(|instance| format!("arn:aws:ec2:{region}:{account}:instance/{instance}"))
            .collect();
        let envelope = json!({
            "version": VERSION,
            "id": id,
            "detail-type": detail_type,
            "source": source,
            "account": account,
            "time": self.time.map(|time| time.to_string()),
            "region": region,
            "resources": resources,
            "detail": detail,
        });
        Some(envelope.to_string())
    }
}

impl Notice {
    fn read(
        version: &str,
        source: &str,
        detail_type: &str,
        detail: Value,
    ) -> Result<Self, serde_json::Error> {
        let instance =
            |detail| serde_json::from_value(detail).map(|InstanceDetail { instance }| instance);
        Ok(match (version, source, detail_type) {
            (VERSION, EC2, SPOT_INTERRUPTION) => {
                Self::SpotInterruption { instance: instance(detail)? }
            }
            (VERSION, EC2, REBALANCE_RECOMMENDATION) => {
                Self::RebalanceRecommendation { instance: instance(detail)? }
            }
            (VERSION, EC2, CAPACITY_RESERVATION_INTERRUPTION) => {
                Self::CapacityReservationInterruption { instance: instance(detail)? }
            }
            (VERSION, EC2, STATE_CHANGE) => {
                let StateDetail { instance, state } = serde_json::from_value(detail)?;
                match state.to_ascii_lowercase().as_str() {
                    "stopping" => Self::InstanceStopped { instance, state: Stopped::Stopping },
                    "stopped" => Self::InstanceStopped { instance, state: Stopped::Stopped },
                    "shutting-down" => {
                        Self::InstanceTerminated { instance, state: Terminated::ShuttingDown }
                    }
                    "terminated" => {
                        Self::InstanceTerminated { instance, state: Terminated::Terminated }
                    }
                    _ => Self::Other,
                }
            }
            (VERSION, HEALTH, HEALTH_EVENT) => {
                let detail: HealthDetail = serde_json::from_value(detail)?;
                if detail.service == HEALTH_SERVICE && detail.category == HEALTH_CATEGORY {
                    let instances =
                        detail.affected.into_iter().map(|entity| entity.value).collect();
                    Self::ScheduledChange { instances }
                } else {
                    Self::Other
                }
            }
            _ => Self::Other,
        })
    }

    fn write(&self) -> Option<(&'static str, &'static str, Value)> {
        let state_change = |instance: &str, state: &str| {
            (EC2, STATE_CHANGE, json!({"instance-id": instance, "state": state}))
        };
        Some(match self {
            Self::SpotInterruption { instance } => (
                EC2,
                SPOT_INTERRUPTION,
                json!({"instance-id": instance, "instance-action": "terminate"}),
            ),
            Self::RebalanceRecommendation { instance } => {
                (EC2, REBALANCE_RECOMMENDATION, json!({"instance-id": instance}))
            }
            Self::InstanceStopped { instance, state } => state_change(
                instance,
                match state {
                    Stopped::Stopping => "stopping",
                    Stopped::Stopped => "stopped",
                },
            ),
            Self::InstanceTerminated { instance, state } => state_change(
                instance,
                match state {
                    Terminated::ShuttingDown => "shutting-down",
                    Terminated::Terminated => "terminated",
                },
            ),
            Self::ScheduledChange { instances } => {
                let affected: Vec<_> =
                    instances.iter().map(|value| AffectedEntity { value: value.clone() }).collect();
                (
                    HEALTH,
                    HEALTH_EVENT,
                    json!({
                        "service": HEALTH_SERVICE,
                        "eventTypeCategory": HEALTH_CATEGORY,
                        "affectedEntities": affected,
                    }),
                )
            }
            Self::CapacityReservationInterruption { instance } => (
                EC2,
                CAPACITY_RESERVATION_INTERRUPTION,
                json!({"instance-id": instance, "instance-action": "terminate"}),
            ),
            Self::Other => return None,
        })
    }

    /// The instances that it is about.
    pub fn instances(&self) -> &[String] {
        match self {
            Self::SpotInterruption { instance }
            | Self::RebalanceRecommendation { instance }
            | Self::InstanceStopped { instance, .. }
            | Self::InstanceTerminated { instance, .. }
            | Self::CapacityReservationInterruption { instance } => std::slice::from_ref(instance),
            Self::ScheduledChange { instances } => instances,
            Self::Other => &[],
        }
    }

    /// Its name in metrics: the kind of message that was received, and the cause of a disruption.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SpotInterruption { .. } => "spot_interrupted",
            Self::RebalanceRecommendation { .. } => "rebalance_recommendation",
            Self::InstanceStopped { .. } => "instance_stopped",
            Self::InstanceTerminated { .. } => "instance_terminated",
            Self::ScheduledChange { .. } => "scheduled_change",
            Self::CapacityReservationInterruption { .. } => "capacity_reservation_interrupted",
            Self::Other => "no_op",
        }
    }

    /// Whether it is news of a claim: that the instance of one that is being deleted ends is none.
    pub fn is_news_of(&self, deleting: bool) -> bool {
        let is_end = matches!(self, Self::InstanceStopped { .. } | Self::InstanceTerminated { .. });
        !(deleting && is_end)
    }

    /// What is done about each of its instances; `None`: nothing.
    pub fn response(&self) -> Option<Response> {
        let warning = |reason, message| Event { reason, message, warning: true };
        let drain = |event| Some(Response { disrupt: true, event, mark: None });
        match self {
            Self::SpotInterruption { .. } => Some(Response {
                disrupt: true,
                event: warning(
                    "SpotInterrupted",
                    "EC2 interrupts the spot instance in two minutes",
                ),
                mark: Some(Mark::SpotOffering),
            }),
            Self::CapacityReservationInterruption { .. } => Some(Response {
                disrupt: true,
                event: warning(
                    "CapacityReservationInstanceInterrupted",
                    "The owner of the capacity reservation reclaims the instance",
                ),
                mark: Some(Mark::Reservation),
            }),
            Self::RebalanceRecommendation { .. } => Some(Response {
                disrupt: false,
                event: Event {
                    reason: "SpotRebalanceRecommendation",
                    message: "EC2 recommends to replace the spot instance, whose risk of interruption is elevated",
                    warning: false,
                },
                mark: None,
            }),
            Self::InstanceStopped { .. } => {
                drain(warning("InstanceStopping", "The instance is stopping"))
            }
            Self::InstanceTerminated { .. } => {
                drain(warning("InstanceTerminating", "The instance is terminating"))
            }
            Self::ScheduledChange { .. } => drain(warning(
                "InstanceUnhealthy",
                "AWS Health announces a scheduled change of the instance",
            )),
            Self::Other => None,
        }
    }
}

/// What is done about an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its NodeClaim is deleted, unless that has begun.
    pub disrupt: bool,
    /// For the NodeClaim and its Node.
    pub event: Event,
    /// What is not to be launched for a while.
    pub mark: Option<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub reason: &'static str,
    pub message: &'static str,
    pub warning: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The instance's type in its zone as spot.
    SpotOffering,
    /// The instance's reservation: nothing is left of it.
    Reservation,
}

#[cfg(test)]
mod tests;
