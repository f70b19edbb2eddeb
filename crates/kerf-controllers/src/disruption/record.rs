//! The part of a command that survives the operator.
//!
//! A command that replaces nodes is written onto each of its replacements when they are created. From that an operator
//! that takes over knows which nodes each replacement is for, how many replacements there have to be, and what was
//! promised. A command that is given up is struck from the replacements before anything else is undone: one whose
//! replacements are not all there, each with the record, is void. A command without replacements needs no record; what is
//! left of it after a crash is rolled back, and decided anew.

use std::time::Duration;

use jiff::Timestamp;
use kerf_api::{NodeClaim, annotations};
use kerf_disruption::{Command, Method, Promise};
use kerf_model::Price;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

/// A command, as far as carrying it out depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Names the command; no two commands of a cluster share it.
    pub(crate) command: String,
    pub(crate) method: Method,
    /// The claims that go.
    pub(crate) candidates: Vec<String>,
    /// How many claims come in their place.
    pub(crate) replacements: usize,
    pub(crate) promise: Option<Promise>,
    /// What was wrong with the node, where it is repaired.
    pub(crate) repair: Option<Repair>,
}

/// Why a node is repaired, as far as its end depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Repair {
    pub(crate) condition: String,
    /// How long the drain may take. `None`: as long as the claim says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) drain_seconds: Option<u64>,
}

impl Repair {
    pub(crate) fn drain(&self) -> Option<Duration> {
        self.drain_seconds.map(Duration::from_secs)
    }
}

/// The annotation as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    command: String,
    method: String,
    candidates: Vec<String>,
    replacements: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repair: Option<Repair>,
}

impl Record {
    pub(crate) fn of(command: &Command, now: Timestamp) -> Self {
        let claims = command.candidates.iter().filter_map(|candidate| candidate.node.claim.clone());
        let candidates: Vec<String> = claims.collect();
        let first = candidates.first().map_or("", String::as_str);
        Self {
            // A claim is part of one command at a time.
            command: format!("{first}.{}", now.as_millisecond()),
            method: command.method,
            candidates,
            replacements: command.replacements.len(),
            promise: command.promise,
            repair: command.remedy.as_ref().map(|remedy| Repair {
                condition: remedy.condition.clone(),
                drain_seconds: remedy.drain.map(|drain| drain.as_secs()),
            }),
        }
    }

    /// What stands on a claim; nothing if it replaces none, or if another writer changed the annotation.
    pub(crate) fn read(claim: &NodeClaim) -> Option<Self> {
        let written = claim.annotations().get(annotations::REPLACES)?;
        let written: Written = serde_json::from_str(written).ok()?;
        let at_most = written.at_most.map(|price| price.parse::<Price>()).transpose().ok()?;
        Some(Self {
            command: written.command,
            method: Method::named(&written.method)?,
            candidates: written.candidates,
            replacements: written.replacements,
            promise: at_most.map(|at_most| Promise { at_most }),
            repair: written.repair,
        })
    }

    pub(crate) fn write(&self, claim: &mut NodeClaim) {
        let written = Written {
            command: self.command.clone(),
            method: self.method.name().into(),
            candidates: self.candidates.clone(),
            replacements: self.replacements,
            at_most: self.promise.map(|promise| promise.at_most.exact().to_string()),
            repair: self.repair.clone(),
        };
        // Strings, numbers and lists of them: there is nothing in it that JSON cannot say.
        let written = serde_json::to_string(&written).unwrap_or_default();
        claim.annotations_mut().insert(annotations::REPLACES.into(), written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let repair = |drain_seconds| Some(Repair { condition: "Ready".into(), drain_seconds });
        for method in Method::ALL {
            for (at_most, repair) in
                [(None, None), (Some("0.0416"), repair(None)), (None, repair(Some(45)))]
            {
                let record = Record {
                    command: "a.1".into(),
                    method,
                    candidates: vec!["a".into(), "b".into()],
                    replacements: 2,
                    promise: at_most.map(|price| Promise { at_most: price.parse().unwrap() }),
                    repair: repair.clone(),
                };
                let mut claim = NodeClaim::default();
                assert_eq!(Record::read(&claim), None);
                record.write(&mut claim);
                assert_eq!(Record::read(&claim), Some(record));
            }
        }
    }

    #[test]
    fn what_somebody_else_wrote_is_no_command() {
        for text in [
            "",
            "{}",
            "true",
            r#"{"command":"c","method":"magic","candidates":[],"replacements":0}"#,
        ] {
            let mut claim = NodeClaim::default();
            claim.annotations_mut().insert(annotations::REPLACES.into(), text.into());
            assert_eq!(Record::read(&claim), None, "{text}");
        }
    }
}
