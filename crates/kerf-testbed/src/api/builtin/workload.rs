//! Workloads: defaults and the rules between selector and template.

use super::super::meta;
use super::super::resources::Resource;
use super::super::selector::Labels;
use super::{default, pod};
use kerf_admission::Cause;
use serde_json::{Value, json};

pub(super) fn prepare_create(resource: &Resource, value: &mut Value) {
    if resource.is("batch", "jobs") {
        label_job(value);
    }
    if resource.is("apps", "daemonsets") {
        let metadata = meta::map_mut(value).entry("metadata").or_insert(Value::Null);
        meta::object_mut(metadata, "annotations")
            .insert("deprecated.daemonset.template.generation".into(), "1".into());
    }
    fill_defaults(resource, value);
    // Go prints the counters of a status even when nobody has counted yet.
    let status = match resource.plural.as_str() {
        "replicasets" | "replicationcontrollers" => json!({ "replicas": 0 }),
        "statefulsets" => json!({ "replicas": 0, "availableReplicas": 0 }),
        "daemonsets" => json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
        }),
        "controllerrevisions" => return,
        _ => json!({}),
    };
    meta::map_mut(value).insert("status".into(), status);
}

pub(super) fn fill_defaults(resource: &Resource, value: &mut Value) {
    let Some(spec) = value.get_mut("spec") else { return };
    match resource.plural.as_str() {
        "deployments" => {
            default(spec, "replicas", 1);
            default(spec, "revisionHistoryLimit", 10);
            default(spec, "progressDeadlineSeconds", 600);
            default(spec, "strategy", json!({}));
            let strategy = &mut spec["strategy"];
            default(strategy, "type", "RollingUpdate");
            if strategy["type"] == "RollingUpdate" {
                default(strategy, "rollingUpdate", json!({}));
                default(&mut strategy["rollingUpdate"], "maxSurge", "25%");
                default(&mut strategy["rollingUpdate"], "maxUnavailable", "25%");
            }
        }
        "replicasets" | "replicationcontrollers" => default(spec, "replicas", 1),
        "statefulsets" => {
            default(spec, "replicas", 1);
            default(spec, "revisionHistoryLimit", 10);
            default(spec, "podManagementPolicy", "OrderedReady");
            default(
                spec,
                "updateStrategy",
                json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }),
            );
            default(
                spec,
                "persistentVolumeClaimRetentionPolicy",
                json!({ "whenDeleted": "Retain", "whenScaled": "Retain" }),
            );
        }
        "daemonsets" => {
            default(spec, "revisionHistoryLimit", 10);
            let rolling = json!({ "maxUnavailable": 1, "maxSurge": 0 });
            default(
                spec,
                "updateStrategy",
                json!({ "type": "RollingUpdate", "rollingUpdate": rolling }),
            );
        }
        "jobs" => fill_job_defaults(spec),
        "cronjobs" => {
            default(spec, "concurrencyPolicy", "Allow");
            default(spec, "suspend", false);
            default(spec, "successfulJobsHistoryLimit", 3);
            default(spec, "failedJobsHistoryLimit", 1);
            if let Some(template) = spec.get_mut("jobTemplate").and_then(|t| t.get_mut("spec")) {
                fill_template(template);
            }
        }
        _ => {}
    }
    fill_template(spec);
}

fn fill_job_defaults(spec: &mut Value) {
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        default(spec, "completions", 1);
    }
    default(spec, "parallelism", 1);
    default(spec, "backoffLimit", 6);
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    default(spec, "manualSelector", false);
    let policy = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    default(spec, "podReplacementPolicy", policy);
}

fn fill_template(spec: &mut Value) {
    if let Some(pod_spec) = spec.get_mut("template").and_then(|template| template.get_mut("spec")) {
        pod::fill_spec_defaults(pod_spec);
    }
}

/// A job selects its pods by its own uid, so that no two jobs ever share one.
fn label_job(job: &mut Value) {
    if meta::at(job, &["spec", "manualSelector"]) == &Value::Bool(true) {
        return;
    }
    let (uid, name) = (meta::uid(job).to_owned(), meta::name(job).to_owned());
    let labels = json!({
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
        "controller-uid": uid, "job-name": name,
    });
    let Some(spec) = job.get_mut("spec") else { return };
    default(
        spec,
        "selector",
        json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } }),
    );
    let template = meta::object_mut(spec, "template");
    let metadata = template.entry("metadata").or_insert_with(|| json!({}));
    let into = meta::object_mut(metadata, "labels");
    for (key, value) in labels.as_object().into_iter().flatten() {
        into.insert(key.clone(), value.clone());
    }
    // A job without labels takes those of its pods.
    if meta::field(job, "labels").is_null() {
        let labels = meta::at(job, &["spec", "template", "metadata", "labels"]).clone();
        meta::set(job, "labels", labels);
    }
}

pub(super) fn validate(
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
    causes: &mut Vec<Cause>,
) {
    let spec = &new["spec"];
    let selects = matches!(
        resource.plural.as_str(),
        "deployments" | "replicasets" | "statefulsets" | "daemonsets" | "jobs"
    );
    if !selects {
        if resource.is("batch", "cronjobs") && meta::text(spec, &["schedule"]).is_empty() {
            causes.push(Cause::required("spec.schedule", ""));
        }
        return;
    }
    if let Some(replicas) = spec["replicas"].as_i64().filter(|replicas| *replicas < 0) {
        causes.push(Cause::invalid(
            "spec.replicas",
            &replicas.into(),
            "must be greater than or equal to 0",
        ));
    }
    if spec["selector"].is_null() {
        causes.push(Cause::required("spec.selector", ""));
    } else if !Labels::from_object(&spec["selector"]).matches(&spec["template"]) {
        let labels = &spec["template"]["metadata"]["labels"];
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    if old.is_none() {
        pod::validate_spec(&spec["template"]["spec"], "spec.template.spec", causes);
    }
    if let Some(old) = old
        && old["spec"]["selector"] != spec["selector"]
    {
        causes.push(Cause::invalid("spec.selector", &spec["selector"], "field is immutable"));
    }
    let policy = meta::text(spec, &["template", "spec", "restartPolicy"]);
    let never_ends = resource.group == "apps";
    if never_ends && policy != "Always" {
        let path = "spec.template.spec.restartPolicy";
        causes.push(Cause::unsupported(path, &policy.into(), &["Always".into()]));
    }
    if resource.is("batch", "jobs") && !matches!(policy, "OnFailure" | "Never") {
        let supported = ["OnFailure".into(), "Never".into()];
        causes.push(Cause::unsupported(
            "spec.template.spec.restartPolicy",
            &policy.into(),
            &supported,
        ));
    }
}
