//! The record on a NodeClaim of reboots of its node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::{NodeClaim, annotations::REBOOTS};

/// Stands on the claim itself: it survives the operator, users can see it, and it is deleted with the claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reboots {
    /// Since when the cloud was asked for each of the last ones, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Time>,
    /// When the cloud accepted the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Time>,
}

impl Reboots {
    /// Whoever counts asks whether there were two within some time.
    const KEPT: usize = 2;

    /// What stands on a claim; nothing if there were none, or if another writer changed the annotation.
    pub fn read(claim: &NodeClaim) -> Self {
        let written = claim.annotations().get(REBOOTS);
        written.and_then(|written| serde_json::from_str(written).ok()).unwrap_or_default()
    }

    pub fn write(&self, claim: &mut NodeClaim) {
        // Times and lists of them: there is nothing in it that JSON cannot say.
        let written = serde_json::to_string(self).unwrap_or_default();
        claim.annotations_mut().insert(REBOOTS.to_owned(), written);
    }

    /// The same with one more, for which the cloud is asked from then on.
    #[must_use]
    pub fn and(self, asked: Time) -> Self {
        let mut all = self.asked;
        all.push(asked);
        let superfluous = all.len().saturating_sub(Self::KEPT);
        Self { asked: all.split_off(superfluous), accepted: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Time {
        Time(format!("2026-01-01T{time}Z").parse().unwrap())
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut claim = NodeClaim::default();
        assert_eq!(Reboots::read(&claim), Reboots::default());
        let reboots = Reboots::default().and(at("00:01:00"));
        for accepted in [None, Some(at("00:01:01"))] {
            let reboots = Reboots { accepted, ..reboots.clone() };
            reboots.write(&mut claim);
            assert_eq!(Reboots::read(&claim), reboots);
        }
        for foreign in ["", "often", r#"{"asked":"soon"}"#] {
            claim.annotations_mut().insert(REBOOTS.to_owned(), foreign.to_owned());
            assert_eq!(Reboots::read(&claim), Reboots::default(), "{foreign}");
        }
    }

    #[test]
    fn the_last_two_are_remembered() {
        let all = ["00:01:00", "00:02:00", "00:03:00"].map(at);
        let reboots = all.iter().cloned().fold(Reboots::default(), Reboots::and);
        assert_eq!(reboots.asked, all[1..]);
    }
}
