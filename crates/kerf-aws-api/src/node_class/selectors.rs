//! How a class finds what it uses in the account.
//!
//! Each list of terms selects what one of its terms selects. Within a term all that is given must hold.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::ami_family::Alias;
use crate::schema;

/// What the tags of a thing must be; the value `*` stands for any value.
pub type TagSelector = BTreeMap<String, String>;

/// Selects subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SubnetSelectorTerm {
    /// Tags that the subnet must have. The value * stands for any value.
    #[serde(skip_serializing_if = "TagSelector::is_empty")]
    #[schemars(extend("maxProperties" = 20))]
    pub tags: TagSelector,

    /// Id of the subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "subnet-[0-9a-z]+"))]
    pub id: Option<String>,
}

/// Selects security groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SecurityGroupSelectorTerm {
    /// Tags that the security group must have. The value * stands for any value.
    #[serde(skip_serializing_if = "TagSelector::is_empty")]
    #[schemars(extend("maxProperties" = 20))]
    pub tags: TagSelector,

    /// Id of the security group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "sg-[0-9a-z]+"))]
    pub id: Option<String>,

    /// Name of the security group, which is not the value of its tag Name.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Selects capacity reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReservationSelectorTerm {
    /// Tags that the reservation must have. The value * stands for any value.
    #[serde(skip_serializing_if = "TagSelector::is_empty")]
    #[schemars(extend("maxProperties" = 20))]
    pub tags: TagSelector,

    /// Id of the reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^cr-[0-9a-z]+$"))]
    pub id: Option<String>,

    /// Account that owns the reservation.
    #[serde(rename = "ownerID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::ACCOUNT_ID))]
    pub owner_id: Option<String>,

    /// Which launches the reservation takes: open ones take all that suit, targeted ones those that name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_match_criteria: Option<InstanceMatchCriteria>,
}

/// Which launches a capacity reservation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceMatchCriteria {
    Open,
    Targeted,
}

impl InstanceMatchCriteria {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Targeted => "targeted",
        }
    }
}

/// Names a placement group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlacementGroupSelector {
    /// Name of the placement group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub name: Option<String>,

    /// Id of the placement group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^pg-[0-9a-z]+$"))]
    pub id: Option<String>,
}

/// Selects images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AmiSelectorTerm {
    /// An image that AWS makes for EKS, as family@version. Families are al2, al2023, bottlerocket, windows2019, windows2022
    /// and windows2025. The version is that of a release, such as al2023@v20240625 or bottlerocket@v1.10.0, or latest; for
    /// Windows it can only be latest. With latest, nodes are replaced whenever AWS publishes a new image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 30))]
    pub alias: Option<Alias>,

    /// Tags that the image must have. The value * stands for any value.
    #[serde(skip_serializing_if = "TagSelector::is_empty")]
    #[schemars(extend("maxProperties" = 20))]
    pub tags: TagSelector,

    /// Id of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "ami-[0-9a-z]+"))]
    pub id: Option<String>,

    /// Name of the image, which is not the value of its tag Name.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Owner of the image: the id of an account, self, amazon or aws-marketplace.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,

    /// Name or ARN of the SSM parameter that holds the id of the image.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
}

/// The CRD lets these be empty, which selects as much as leaving them out.
fn text<'de, D: Deserializer<'de>>(text: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(text)?;
    Ok(text.filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_empty_text_selects_as_much_as_none() {
        let term: AmiSelectorTerm =
            serde_json::from_value(json!({"name": "", "owner": "self", "ssmParameter": ""}))
                .unwrap();
        assert_eq!(term, AmiSelectorTerm { owner: Some("self".to_owned()), ..Default::default() });
    }
}
