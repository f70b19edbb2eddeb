//! Objects that any user, or any node, can write.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::super::api::{CLAIMS, NODES, PODS, POOLS};
use super::super::kills::PATIENCE;
use super::{REQUIREMENTS, Siege, resting_pool};

/// A pod that no machine can hold.
pub(super) async fn a_huge_pod(siege: &mut Siege, case: &str, cpu: &str) -> Result<()> {
    let pod = pod("huge", &json!({}), cpu);
    siege.stage.api.create(PODS, &pod).await?;
    siege.holds(case).await?;
    siege.stage.api.delete(&format!("{PODS}/huge?gracePeriodSeconds=0")).await
}

pub(super) async fn a_huge_limit(siege: &mut Siege, case: &str) -> Result<()> {
    let mut pool = siege.stage.api.get(&format!("{POOLS}/default")).await?;
    pool["metadata"] = json!({"name": "huge"});
    pool["spec"]["limits"] = json!({"cpu": "10000000000000000000"});
    siege.stage.api.create(POOLS, &pool).await?;
    siege.holds(case).await?;
    // Canaries may be on its nodes: it stays, with a limit like any other.
    let limits = json!({"spec": {"limits": {"cpu": "1000"}}});
    siege.stage.api.patch(&format!("{POOLS}/huge"), &limits).await.map(drop)
}

/// What a pod asks for, in hundreds of ways that cannot be had.
pub(super) async fn many_terms(siege: &mut Siege, case: &str) -> Result<()> {
    const TERMS: usize = 400;
    const REQUIRED: usize = 20;
    const PREFERRED: usize = 60;
    let expression = |term: usize| {
        json!({"matchExpressions": [
            {"key": "example.com/rack", "operator": "In", "values": [format!("rack-{term}")]},
        ]})
    };
    let required: Vec<_> = (0..TERMS).map(expression).collect();
    let required = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": required}}});
    let preferred: Vec<_> = (0..TERMS)
        .map(|term| json!({"weight": 1 + term % 100, "preference": expression(term)}))
        .collect();
    // A zone that does not exist keeps them pending, whatever preference is dropped.
    let preferred = json!({"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
            "matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["nowhere"]}],
        }]},
    }});
    let kinds = [("required", REQUIRED, required), ("preferred", PREFERRED, preferred)];
    for (kind, count, affinity) in &kinds {
        for one in 0..*count {
            let pod = pod(&format!("{kind}-{one}"), &json!({"affinity": affinity}), "1");
            siege.stage.api.create(PODS, &pod).await?;
        }
    }
    siege.holds(case).await?;
    let memory = siege.replica.peak_memory().unwrap_or_default();
    siege.report.at_most(format!("{case}: most memory after a restart"), memory, "MB", 1024.0);
    for (kind, count, _) in &kinds {
        for one in 0..*count {
            let path = format!("{PODS}/{kind}-{one}?gracePeriodSeconds=0");
            siege.stage.api.delete(&path).await?;
        }
    }
    Ok(())
}

/// Times that the API server accepts and a library may not hold.
pub(super) async fn impossible_times(siege: &mut Siege, case: &str) -> Result<()> {
    let api = siege.stage.api.clone();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "timeless"}});
    let nowhere = json!({"nodeSelector": {"example.com/rack": "none"}});
    let mut pool = api.get(&format!("{POOLS}/default")).await?;
    pool["metadata"] = json!({"name": "timeless"});
    let claim = foreign_claim("timeless");
    for (path, object) in
        [(NODES, node), (PODS, pod("timeless", &nowhere, "1")), (POOLS, pool), (CLAIMS, claim)]
    {
        api.create(path, &object).await?;
    }
    let mut accepted = Vec::new();
    for time in ["9999-12-31T23:59:59Z", "2026-01-01T00:00:00+99:99"] {
        let condition = json!({
            "type": "Odd", "status": "True", "reason": "Odd", "message": "",
            "lastTransitionTime": time, "observedGeneration": 1,
        });
        let odd = json!({"status": {"conditions": [condition]}});
        let event = json!({"status": {"lastPodEventTime": time}});
        for (path, patch) in
            [(PODS, &odd), (NODES, &odd), (POOLS, &odd), (CLAIMS, &odd), (CLAIMS, &event)]
        {
            if api.patch(&format!("{path}/timeless/status"), patch).await.is_ok() {
                accepted.push(format!("{time} in {path}"));
            }
        }
    }
    siege.report.figure(format!("{case}: accepted by the API server"), accepted.len() as f64, "");
    siege.holds(case).await?;
    for path in [PODS, NODES, POOLS, CLAIMS] {
        api.delete(&format!("{path}/timeless?gracePeriodSeconds=0")).await?;
    }
    Ok(())
}

/// The definition of the NodeClasses is deleted, and comes back.
pub(super) async fn a_definition_goes(siege: &mut Siege, case: &str) -> Result<()> {
    const LOOK: Duration = Duration::from_mins(1);
    let before = siege.nodes().await?;
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/\
               kwoknodeclasses.karpenter.kwok.sh";
    siege.stage.api.delete(crd).await?;
    let begin = Instant::now();
    let mut unready = None;
    while begin.elapsed() < LOOK {
        let probe = siege.replica.probe("/readyz", Duration::from_secs(2)).await?;
        if unready.is_none() && probe != Some(200) {
            unready = Some(begin.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let unready = unready.map_or(LOOK.as_secs_f64() + 1.0, |after| after.as_secs_f64());
    siege.report.at_most(format!("{case}: not ready after"), unready, "s", LOOK.as_secs_f64());
    siege.lost(case, &before).await?;
    siege.stage.install_crds().await?;
    siege.stage.apply(&resting_pool(&REQUIREMENTS)).await?;
    if siege.replica.ended()?.is_some() {
        siege.replica.restart(&siege.stage)?;
    }
    let begin = Instant::now();
    let ready = siege.replica.is_ready(PATIENCE).await?;
    let took = if ready { begin.elapsed() } else { PATIENCE * 2 };
    let what = format!("{case}: ready when it is back after");
    siege.report.at_most(what, took.as_secs_f64(), "s", PATIENCE.as_secs_f64());
    siege.holds(case).await
}

pub(super) fn pod(name: &str, changes: &Value, cpu: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "main",
            "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]},
    });
    if let (Some(spec), Some(changes)) = (pod["spec"].as_object_mut(), changes.as_object()) {
        spec.extend(changes.clone());
    }
    pod
}

/// A claim that another operator looks after.
pub(super) fn foreign_claim(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
        },
    })
}
