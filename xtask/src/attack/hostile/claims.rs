//! Claims that are not what they seem.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::api::{self, CLAIMS, NODES, text};
use super::Siege;
use super::objects::foreign_claim;

/// A claim made by hand says that it is somebody else's instance, and is deleted.
pub(super) async fn a_stolen_instance(siege: &mut Siege, case: &str) -> Result<()> {
    let before = siege.nodes().await?;
    let api = siege.stage.api.clone();
    let claims = api.list(CLAIMS).await?;
    let victim = claims.first().context("there is a claim")?;
    let status = json!({"status": {
        "providerID": victim["status"]["providerID"],
        "nodeName": victim["status"]["nodeName"],
        "conditions": victim["status"]["conditions"],
    }});
    let mut thief = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "thief", "labels": victim["metadata"]["labels"]},
        "spec": victim["spec"],
    });
    // The operator must not launch it first.
    thief["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
    api.create(CLAIMS, &thief).await?;
    api.patch(&format!("{CLAIMS}/thief/status"), &status).await?;
    siege.canary(&format!("{case}, while it is there")).await?;
    api.delete(&format!("{CLAIMS}/thief")).await?;
    // A termination takes some seconds; a wrong one would have begun.
    tokio::time::sleep(Duration::from_secs(20)).await;
    siege.lost(case, &before).await?;
    let left = api.find(&format!("{CLAIMS}/{}", api::name(victim))).await?;
    let lost: Vec<&str> = match &left {
        Some(claim) if !api::is_deleting(claim) => vec![],
        _ => vec![api::name(victim)],
    };
    siege.report.never(format!("{case}: claims that were lost"), &lost);
    siege.holds(case).await
}

/// Another operator's node is marked for disruption; that is none of our business.
pub(super) async fn a_foreign_claim(siege: &mut Siege, case: &str) -> Result<()> {
    const TAINT: &str = "karpenter.sh/disrupted";
    let api = siege.stage.api.clone();
    let id = "aws:///zone/i-0123456789";
    api.create(
        NODES,
        &json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "foreign", "labels": {
                "karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true",
                "karpenter.sh/initialized": "true", "node.kubernetes.io/instance-type": "m5.large",
            }},
            "spec": {"providerID": id, "taints": [{"key": TAINT, "effect": "NoSchedule"}]},
        }),
    )
    .await?;
    api.create(CLAIMS, &foreign_claim("foreign")).await?;
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": kind, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        })
    };
    let kinds = ["Launched", "Registered", "Initialized", "Ready", "DisruptionReason"];
    let status = json!({"status": {
        "providerID": id, "nodeName": "foreign", "conditions": kinds.map(condition),
    }});
    let path = format!("{CLAIMS}/foreign");
    let written = api.patch(&format!("{path}/status"), &status).await?;
    siege.canary(&format!("{case}, while it is there")).await?;
    // Marks that nobody vouches for are looked at every ten seconds.
    tokio::time::sleep(Duration::from_secs(40)).await;
    let claim = api.get(&path).await?;
    let changed = claim["metadata"]["resourceVersion"] != written["metadata"]["resourceVersion"];
    let node = api.get(&format!("{NODES}/foreign")).await?;
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let marked = taints.into_iter().flatten().any(|taint| taint["key"] == TAINT);
    let mut wrong = Vec::new();
    if changed {
        wrong.push(format!("the claim was changed: {}", claim["status"]));
    }
    if !marked {
        wrong.push("its node is no longer marked".to_owned());
    }
    siege.report.never(format!("{case}: touched"), &wrong);
    let writes: Vec<_> = siege
        .stage
        .audit()?
        .into_iter()
        .filter(|entry| {
            entry.user == siege.replica.user
                && entry.is_write()
                && entry.name.starts_with("foreign")
        })
        .collect();
    siege.report.never(format!("{case}: writes and events about it"), &writes);
    siege.holds(case).await?;
    let events = api.list("/api/v1/namespaces/default/events").await?;
    let about = events.iter().filter(|event| text(event, "/involvedObject/name") == "foreign");
    let ours: Vec<_> = about
        .filter(|event| text(event, "/source/component") == "karpenter")
        .map(|event| format!("{}: {}", text(event, "/reason"), text(event, "/message")))
        .collect();
    siege.report.never(format!("{case}: events on it"), &ours);
    api.delete(&path).await?;
    api.delete(&format!("{NODES}/foreign")).await
}
