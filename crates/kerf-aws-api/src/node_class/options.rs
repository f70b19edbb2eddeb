//! Settings of an instance that are on or off.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who can reach the instance metadata service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataOptions {
    /// Whether the service can be reached at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "enabled"))]
    pub http_endpoint: Option<Switch>,

    /// Whether it can be reached by IPv6.
    #[serde(rename = "httpProtocolIPv6", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "disabled"))]
    pub http_protocol_ipv6: Option<Switch>,

    /// How many hops its answers can go. With 1 they do not reach pods that have a network of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64), extend("default" = 1))]
    pub http_put_response_hop_limit: Option<i64>,

    /// Whether requests need a token, which is version 2 of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "required"))]
    pub http_tokens: Option<HttpTokens>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    Enabled,
    Disabled,
}

impl Switch {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HttpTokens {
    Required,
    Optional,
}

impl HttpTokens {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
        }
    }
}

/// Settings of the processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuOptions {
    /// Whether virtual machines can run on the instance. If enabled, only instance types that can do it are launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<Switch>,
}

/// What is done with the disks that an instance has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstanceStorePolicy {
    // One array of all of them, on which the node's ephemeral storage is.
    #[serde(rename = "RAID0")]
    Raid0,
}

impl InstanceStorePolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raid0 => "RAID0",
        }
    }
}
