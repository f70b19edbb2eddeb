//! The parts that NodePools and NodeClaims have in common.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// One condition on the labels of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirement {
    /// Label that the condition is about.
    #[schemars(schema_with = "schema::requirement_key")]
    pub key: String,

    /// How the label's value is compared with `values`.
    pub operator: Operator,

    /// What the label's value is compared with: one or more values for In, any number for NotIn,
    /// none for Exists and DoesNotExist, and exactly one integer that is not negative for Gt, Lt,
    /// Gte and Lte.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::requirement_values")]
    pub values: Vec<String>,

    /// Least number of different values of this label that the instance types of a launch must
    /// cover between them, so that a shortage of one of them does not stop it. Alpha.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::min_values")]
    pub min_values: Option<u32>,
}

/// How a requirement compares a label's value; Gte and Lte are not known to Kubernetes itself.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub enum Operator {
    In,
    NotIn,
    #[default]
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    Gte,
    Lte,
}

impl Operator {
    pub const ALL: [Self; 8] = [
        Self::In,
        Self::NotIn,
        Self::Exists,
        Self::DoesNotExist,
        Self::Gt,
        Self::Lt,
        Self::Gte,
        Self::Lte,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    /// Whether the operator compares with a number.
    pub fn is_bound(self) -> bool {
        matches!(self, Self::Gt | Self::Lt | Self::Gte | Self::Lte)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// As it stands in a pod's node affinity.
impl FromStr for Operator {
    type Err = UnknownOperator;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|operator| operator.as_str() == text);
        named.ok_or_else(|| UnknownOperator(text.to_owned()))
    }
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not an operator: use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte")]
pub struct UnknownOperator(String);

/// The object that holds the provider's own settings for a node.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct NodeClassReference {
    /// API group of the NodeClass, without its version.
    #[schemars(schema_with = "schema::node_class_group")]
    pub group: String,

    /// Kind of the NodeClass.
    #[schemars(schema_with = "schema::node_class_kind")]
    pub kind: String,

    /// Name of the object.
    #[schemars(schema_with = "schema::node_class_name")]
    pub name: String,
}
