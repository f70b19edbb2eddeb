//! The accounts of what happened, from a record.

use std::collections::BTreeMap;

use kerf_simulation::{Accounts, Change, Recording, Scenario};
use serde_json::{Value, json};

use crate::{
    entry::{ObjectKey, Pod, What, Workload, text},
    journal::{Seen, Trace},
    replay::Story,
    report::ReportError,
};

/// How the row of the cluster itself is called.
pub(crate) const RUNNING: &str = "running autoscaler";

/// What the cluster cost and went through, by the ledger that counts for replays too.
pub(crate) fn accounts(
    trace: &Trace,
    story: &Story,
    scenario: &Scenario,
) -> Result<Recording, ReportError> {
    let mut reader = Reader {
        accounts: Accounts::open(scenario, RUNNING).map_err(kerf_simulation::PlayError::from)?,
        workloads: BTreeMap::new(),
        pods: BTreeMap::new(),
        base: Vec::new(),
        is_open: false,
    };
    trace.each(|seen| reader.see(seen))?;
    reader.open()?;
    // A replay is whole seconds long.
    let end = story.start.saturating_add(scenario.length.as_duration());
    Ok(reader.accounts.close(end.unwrap_or(story.end)))
}

struct Reader {
    accounts: Accounts,
    workloads: BTreeMap<u32, Workload>,
    /// As they were last seen.
    pods: BTreeMap<String, Value>,
    base: Vec<(&'static str, String, Value)>,
    is_open: bool,
}

impl Reader {
    fn see(&mut self, seen: Seen) -> Result<(), ReportError> {
        if !seen.of_base {
            self.open()?;
        }
        let (resource, key, object, is_gone) = match seen.what {
            What::Workload(workload) => {
                self.workloads.insert(workload.id, workload);
                return Ok(());
            }
            What::Pod(pod) => {
                let Some(workload) = self.workloads.get(&pod.of) else { return Ok(()) };
                let object = observed(&pod, workload);
                self.pods.insert(pod.id.clone(), object.clone());
                ("pods", pod.id, object, false)
            }
            What::PodGone(id) => {
                let Some(object) = self.pods.remove(&id) else { return Ok(()) };
                ("pods", id, object, true)
            }
            What::Object(object) if object["kind"] == "NodeClaim" => {
                ("nodeclaims", text(&object, "/metadata/name").to_owned(), object, false)
            }
            What::ObjectGone(ObjectKey { kind, name, .. }) if kind == "NodeClaim" => {
                ("nodeclaims", name, Value::Null, true)
            }
            _ => return Ok(()),
        };
        if seen.of_base {
            self.base.push((resource, key, object));
            return Ok(());
        }
        let change = Change { resource, key: &key, object: &object, is_gone };
        Ok(self.accounts.see(seen.at, change)?)
    }

    /// Once everything is known that was there.
    fn open(&mut self) -> Result<(), ReportError> {
        if std::mem::replace(&mut self.is_open, true) {
            return Ok(());
        }
        let base = std::mem::take(&mut self.base);
        let changes = base.iter().map(|(resource, key, object)| Change {
            resource,
            key,
            object,
            is_gone: false,
        });
        Ok(self.accounts.take_over(changes)?)
    }
}

/// A pod as far as a ledger looks at it.
fn observed(pod: &Pod, workload: &Workload) -> Value {
    let Workload { namespace, kind, name, .. } = workload;
    let owner = format!("{namespace}/{kind}/{name}");
    let mut metadata = json!({
        "uid": pod.id, "ownerReferences": [{"kind": kind, "uid": owner, "controller": true}],
    });
    if pod.leaves {
        metadata["deletionTimestamp"] = "yes".into();
    }
    let mut spec = workload.pod.get("spec").cloned().unwrap_or_else(|| json!({}));
    if !pod.node.is_empty() {
        spec["nodeName"] = pod.node.clone().into();
    }
    let target = pod.evicted.map(|since| {
        json!({"type": "DisruptionTarget", "status": "True", "reason": "", "lastTransitionTime": since})
    });
    json!({
        "metadata": metadata, "spec": spec,
        "status": {"phase": pod.phase.as_str(), "conditions": target.into_iter().collect::<Vec<_>>()},
    })
}
