//! The record on a NodeClaim of replacements for it that failed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::{DisruptionReason, NodeClaim, annotations::SETBACK};

/// Stands on the claim itself: it survives the operator, users can see it, and it is deleted with the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Setback {
    /// What the claim was to be replaced for.
    pub reason: DisruptionReason,
    /// How often in a row it came to nothing.
    pub failures: u32,
    /// Not before then is another replacement tried.
    pub until: Time,
    /// What became of the last one.
    pub message: String,
}

impl Setback {
    /// What stands on a claim; nothing if nothing failed, or if another writer changed the annotation.
    pub fn read(claim: &NodeClaim) -> Option<Self> {
        serde_json::from_str(claim.annotations().get(SETBACK)?).ok()
    }

    pub fn write(&self, claim: &mut NodeClaim) {
        // Strings and numbers: there is nothing in it that JSON cannot say.
        let written = serde_json::to_string(self).unwrap_or_default();
        claim.annotations_mut().insert(SETBACK.to_owned(), written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let setback = Setback {
            reason: DisruptionReason::Drifted,
            failures: 3,
            until: Time("2026-01-01T00:04:00Z".parse().unwrap()),
            message: "its replacement is gone".to_owned(),
        };
        let mut claim = NodeClaim::default();
        assert_eq!(Setback::read(&claim), None);
        setback.write(&mut claim);
        assert_eq!(Setback::read(&claim), Some(setback));
        for foreign in ["", "soon", r#"{"reason":"Bored","failures":1}"#] {
            claim.annotations_mut().insert(SETBACK.to_owned(), foreign.to_owned());
            assert_eq!(Setback::read(&claim), None, "{foreign}");
        }
    }
}
