//! Network interfaces of instances.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network interface that instances are launched with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// The network card that it is on.
    #[schemars(range(min = 0))]
    pub network_card_index: i32,

    /// Its place on the card.
    #[schemars(range(min = 0))]
    pub device_index: i32,

    /// Whether it carries IP traffic (interface) or only that of the Elastic Fabric Adapter (efa-only).
    pub interface_type: InterfaceType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceType {
    Interface,
    EfaOnly,
}

impl InterfaceType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::EfaOnly => "efa-only",
        }
    }
}

/// After how many seconds idle connections are forgotten. What is left out has EC2's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionTracking {
    /// Established TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 432_000))]
    pub tcp_established_timeout: Option<i32>,

    /// UDP flows with more than one request and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 180))]
    pub udp_stream_timeout: Option<i32>,

    /// UDP flows with traffic in one direction, or with one request and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 60))]
    pub udp_timeout: Option<i32>,
}
