//! `CronJob`s: jobs by the clock. Schedules are read in UTC; `timeZone` is not looked at.

use super::desk::{CRON_JOBS, Deletion, Desk, JOBS, Refusal};
use super::pods::{self, Children};
use super::queue::Queue;
use super::{Controller, job};
use crate::api::{Object, Seen, meta};
use jiff::{SignedDuration, Timestamp};
use kerf_model::cron::Schedule;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct CronJobs {
    jobs: Children,
}

impl Controller for CronJobs {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[("batch", "cronjobs"), ("batch", "jobs")]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        if seen.is("batch", "cronjobs") {
            queue.add(seen.key.clone());
            return;
        }
        let owners = self.jobs.see(seen).into_iter();
        owners.filter(|(kind, _)| kind == CRON_JOBS.name).for_each(|(_, key)| queue.add(key));
    }

    fn reconcile(&mut self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let Some(cron_job) = desk.get(CRON_JOBS, key) else { return Ok(()) };
        let value = &cron_job.value;
        if meta::is_deleting(value) {
            return Ok(());
        }
        let jobs = self.jobs.of(value);
        forget_finished(value, &jobs, desk)?;
        let mut active: Vec<_> = jobs.iter().filter(|j| !job::is_finished(&j.value)).collect();
        let mut started = None;
        // A schedule that cannot be read fires never, until it is changed.
        if value["spec"]["suspend"] != true
            && let Ok(schedule) = meta::text(value, &["spec", "schedule"]).parse()
        {
            if let Some(due) = last_due(value, schedule, desk.now()) {
                started = start(value, due, &mut active, desk)?.map(|job| (due, job));
            }
            if let Some(next) = schedule.next(desk.now()) {
                queue.add_at(next, key);
            }
        }
        desk.change_status(CRON_JOBS, &cron_job, |status| report(status, &jobs, &active, started))
    }
}

/// The last time that the schedule named and no job was started for.
fn last_due(cron_job: &Value, schedule: Schedule, now: Timestamp) -> Option<Timestamp> {
    let last = meta::parse_time(&cron_job["status"]["lastScheduleTime"]);
    let created = meta::parse_time(meta::field(cron_job, "creationTimestamp"));
    let mut since = last.or(created)?;
    if let Some(deadline) = cron_job["spec"]["startingDeadlineSeconds"].as_i64() {
        since = since.max(now - SignedDuration::from_secs(deadline));
    }
    schedule.last_hit(since, now)
}

/// Starts the job of that time, unless one that still runs forbids it.
fn start(
    cron_job: &Value,
    due: Timestamp,
    active: &mut Vec<&Arc<Object>>,
    desk: &Desk,
) -> Result<Option<Value>, Refusal> {
    match meta::text(cron_job, &["spec", "concurrencyPolicy"]) {
        "Forbid" if !active.is_empty() => return Ok(None),
        "Replace" => {
            for running in active.drain(..) {
                desk.delete(JOBS, &running.value, Deletion::Background)?;
            }
        }
        _ => {}
    }
    let template = &cron_job["spec"]["jobTemplate"];
    let mut annotations = template["metadata"]["annotations"].clone();
    meta::map_mut(&mut annotations).insert(
        "batch.kubernetes.io/cronjob-scheduled-timestamp".into(),
        meta::seconds(due).into(),
    );
    let job = json!({
        "metadata": {
            "name": format!("{}-{}", meta::name(cron_job), due.as_second() / 60),
            "labels": template["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": [pods::owner_reference(CRON_JOBS, cron_job)],
        },
        "spec": template["spec"],
    });
    match desk.create(JOBS, meta::namespace(cron_job), &job) {
        Ok(job) => Ok(Some(job)),
        // Started before, by one who could not write that down.
        Err(refusal) if refusal.code == 409 => Ok(Some(job)),
        Err(refusal) => Err(refusal),
    }
}

fn report(
    status: &mut Value,
    jobs: &[Arc<Object>],
    active: &[&Arc<Object>],
    started: Option<(Timestamp, Value)>,
) {
    let reference = |job: &Value| {
        json!({
            "apiVersion": JOBS.api_version(), "kind": JOBS.name, "name": meta::name(job),
            "namespace": meta::namespace(job), "uid": meta::uid(job),
        })
    };
    let mut running: Vec<_> = active.iter().map(|job| reference(&job.value)).collect();
    let map = meta::map_mut(status);
    if let Some((due, job)) = started {
        running.push(reference(&job));
        map.insert("lastScheduleTime".into(), meta::seconds(due).into());
    }
    if running.is_empty() {
        map.remove("active");
    } else {
        map.insert("active".into(), running.into());
    }
    let ended = jobs.iter().filter_map(|job| job.value["status"]["completionTime"].as_str()).max();
    let known = map.get("lastSuccessfulTime").and_then(Value::as_str);
    // Both are RFC 3339 in UTC with whole seconds, so their order is that of the text.
    if let Some(ended) = ended.filter(|ended| known.is_none_or(|known| *ended > known)) {
        map.insert("lastSuccessfulTime".into(), ended.into());
    }
}

/// Deletes finished jobs beyond the history limits, oldest first.
fn forget_finished(cron_job: &Value, jobs: &[Arc<Object>], desk: &Desk) -> Result<(), Refusal> {
    for (kind, limit) in
        [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")]
    {
        let Some(limit) = cron_job["spec"][limit].as_u64() else { continue };
        let ended = jobs.iter().filter(|j| job::has_condition(&j.value, kind));
        let mut ended: Vec<_> = ended.filter(|j| !meta::is_deleting(&j.value)).collect();
        ended.sort_by_key(|job| {
            let started = meta::text(&job.value, &["status", "startTime"]);
            (started.to_owned(), meta::name(&job.value).to_owned())
        });
        let surplus = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        for job in &ended[..surplus] {
            desk.delete(JOBS, &job.value, Deletion::Background)?;
        }
    }
    Ok(())
}
