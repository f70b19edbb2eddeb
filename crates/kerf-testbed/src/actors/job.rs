//! `Job`s: pods until enough of them have succeeded.

use super::Controller;
use super::desk::{Deletion, Desk, JOBS, PODS, Refusal};
use super::pods::{self, Children};
use super::queue::Queue;
use crate::api::{Object, Seen, meta};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

#[derive(Debug, Default)]
pub(super) struct Jobs {
    pods: Children,
    /// By the job's uid, the pods that have ended: they count even when they are gone.
    ended: BTreeMap<String, Ended>,
}

#[derive(Debug, Default)]
struct Ended {
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
    indexes: BTreeSet<i64>,
}

impl Controller for Jobs {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[("batch", "jobs"), ("", "pods")]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        if seen.is("batch", "jobs") {
            if seen.gone {
                self.ended.remove(meta::uid(&seen.object.value));
            }
            queue.add(seen.key.clone());
            return;
        }
        let pod = &seen.object.value;
        if let Some(("Job", _, job)) = pods::controller(pod) {
            self.note_end(job, pod, seen.gone);
        }
        let owners = self.pods.see(seen).into_iter();
        owners.filter(|(kind, _)| kind == JOBS.name).for_each(|(_, key)| queue.add(key));
    }

    fn reconcile(&mut self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let Some(job) = desk.get(JOBS, key) else { return Ok(()) };
        if meta::is_deleting(&job.value) {
            return Ok(());
        }
        if is_finished(&job.value) {
            return expire(&job, key, queue, desk);
        }
        let ended = self.ended.entry(meta::uid(&job.value).to_owned()).or_default();
        let mut active = self.pods.of(&job.value);
        active.retain(|pod| pods::is_active(&pod.value));
        let verdict = judge(&job.value, ended);
        let mut failure = None;
        if verdict.is_some() || job.value["spec"]["suspend"] == true {
            for pod in active.drain(..) {
                desk.delete(PODS, &pod.value, Deletion::Background)?;
            }
        } else {
            failure = fill(key, &job.value, ended, &mut active, desk).err();
        }
        desk.change_status(JOBS, &job, |status| {
            report(status, &job.value, ended, &active, verdict.as_ref(), desk);
        })?;
        failure.map_or(Ok(()), Err)
    }
}

impl Jobs {
    fn note_end(&mut self, job: &str, pod: &Value, gone: bool) {
        let phase = pods::phase(pod);
        // A pod that is taken away before its end has failed.
        let failed = phase == "Failed" || (gone && phase != "Succeeded");
        if phase != "Succeeded" && !failed {
            return;
        }
        let ended = self.ended.entry(job.to_owned()).or_default();
        let uid = meta::uid(pod).to_owned();
        if failed {
            ended.failed.insert(uid);
        } else {
            ended.succeeded.insert(uid);
            ended.indexes.extend(index(pod));
        }
    }
}

enum Verdict {
    Complete,
    Failed,
}

fn judge(job: &Value, ended: &Ended) -> Option<Verdict> {
    let limit = job["spec"]["backoffLimit"].as_u64().unwrap_or(6);
    if ended.failed.len() as u64 > limit {
        return Some(Verdict::Failed);
    }
    let succeeded = i64::try_from(ended.succeeded.len()).unwrap_or(i64::MAX);
    // Without a number of completions, the first success ends it.
    let wanted = job["spec"]["completions"].as_i64().unwrap_or(1);
    (succeeded >= wanted).then_some(Verdict::Complete)
}

fn fill(
    key: &str,
    job: &Value,
    ended: &Ended,
    active: &mut Vec<Arc<Object>>,
    desk: &Desk,
) -> Result<(), Refusal> {
    let spec = &job["spec"];
    let parallelism = spec["parallelism"].as_i64().unwrap_or(1);
    let left = match spec["completions"].as_i64() {
        Some(completions) => {
            let succeeded = i64::try_from(ended.succeeded.len()).unwrap_or(i64::MAX);
            (completions - succeeded).min(parallelism)
        }
        None => parallelism,
    };
    let left = usize::try_from(left).unwrap_or(0);
    for pod in active.drain(left.min(active.len())..) {
        desk.delete(PODS, &pod.value, Deletion::Background)?;
    }
    let indexed = spec["completionMode"] == "Indexed";
    let mut taken: BTreeSet<i64> = active.iter().filter_map(|pod| index(&pod.value)).collect();
    for _ in active.len()..left {
        let mut pod = pods::from_template(JOBS, job, &spec["template"]);
        if indexed {
            let most = i64::try_from(taken.len() + ended.indexes.len()).unwrap_or(i64::MAX);
            let free = (0..=most).find(|at| !taken.contains(at) && !ended.indexes.contains(at));
            let at = free.unwrap_or_default();
            taken.insert(at);
            let metadata = meta::map_mut(&mut pod).entry("metadata").or_insert(Value::Null);
            for map in ["annotations", "labels"] {
                meta::object_mut(metadata, map).insert(INDEX.into(), at.to_string().into());
            }
            meta::set(&mut pod, "generateName", format!("{}-{at}-", meta::name(job)));
        } else {
            meta::set(&mut pod, "generateName", pods::generate_name(job));
        }
        desk.create_pods(key, [pod])?;
    }
    Ok(())
}

fn report(
    status: &mut Value,
    job: &Value,
    ended: &Ended,
    active: &[Arc<Object>],
    verdict: Option<&Verdict>,
    desk: &Desk,
) {
    let now = desk.timestamp();
    let ready = active.iter().filter(|pod| pods::is_ready(&pod.value)).count();
    report_suspension(status, job["spec"]["suspend"] == true, &now);
    let map = meta::map_mut(status);
    if job["spec"]["suspend"] == true {
        map.remove("startTime");
    } else {
        map.entry("startTime").or_insert_with(|| now.clone().into());
    }
    if job["spec"]["completionMode"] == "Indexed" && !ended.indexes.is_empty() {
        map.insert("completedIndexes".into(), ranges(&ended.indexes).into());
    }
    map.insert("ready".into(), ready.into());
    map.entry("terminating").or_insert_with(|| 0.into());
    map.entry("uncountedTerminatedPods").or_insert_with(|| json!({}));
    for (name, count) in [
        ("active", active.len()),
        ("succeeded", ended.succeeded.len()),
        ("failed", ended.failed.len()),
    ] {
        if count > 0 {
            map.insert(name.into(), count.into());
        } else {
            map.remove(name);
        }
    }
    let (kinds, reason, message) = match verdict {
        None => return,
        Some(Verdict::Complete) => {
            map.insert("completionTime".into(), now.clone().into());
            (
                ["SuccessCriteriaMet", "Complete"],
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            )
        }
        Some(Verdict::Failed) => (
            ["FailureTarget", "Failed"],
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        ),
    };
    for kind in kinds {
        let condition = json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": now,
        });
        pods::set_condition(status, condition, &now);
    }
}

fn report_suspension(status: &mut Value, suspended: bool, now: &str) {
    let was = status["conditions"].as_array().into_iter().flatten();
    let was = was.into_iter().any(|known| known["type"] == "Suspended");
    let condition = if suspended {
        json!({ "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended" })
    } else if was {
        json!({ "type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed" })
    } else {
        return;
    };
    pods::set_condition(status, condition, now);
}

/// `0-2,4`: consecutive numbers as ranges.
fn ranges(numbers: &BTreeSet<i64>) -> String {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let texts = runs.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// When a job ended, and how.
pub(super) fn is_finished(job: &Value) -> bool {
    ["Complete", "Failed"].iter().any(|kind| has_condition(job, kind))
}

pub(super) fn has_condition(job: &Value, kind: &str) -> bool {
    pods::condition(job, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Deletes a job whose time after its end is over.
fn expire(job: &Object, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
    let Some(seconds) = job.value["spec"]["ttlSecondsAfterFinished"].as_i64() else {
        return Ok(());
    };
    let ended = ["Complete", "Failed"].iter().find_map(|kind| pods::condition(&job.value, kind));
    let ended = ended.and_then(|c| meta::parse_time(&c["lastTransitionTime"]));
    let due: Timestamp = ended.unwrap_or(desk.now()) + SignedDuration::from_secs(seconds);
    if due > desk.now() {
        queue.add_at(due, key);
        return Ok(());
    }
    desk.delete(JOBS, &job.value, Deletion::Foreground)
}

fn index(pod: &Value) -> Option<i64> {
    meta::text(pod, &["metadata", "annotations", INDEX]).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_indexes_are_written_as_ranges() {
        for (numbers, text) in [
            (vec![], ""),
            (vec![3], "3"),
            (vec![0, 1], "0,1"),
            (vec![0, 1, 2, 4, 6, 7, 8], "0-2,4,6-8"),
        ] {
            assert_eq!(ranges(&numbers.into_iter().collect()), text);
        }
    }
}
