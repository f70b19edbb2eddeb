//! `kerf run` on a cluster that somebody restores from a backup: revisions go back, and with them what there is.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use kerf_api::{
    NodeClaim, NodePool,
    conditions::{Conditioned, REGISTERED},
};
use kerf_control_plane::{ControlPlane, Profile};
use kerf_e2e::{eventually, install, operator::Operator, start};
use kerf_provider_kwok::KwokNodeClass;
use kerf_stories::build;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// As long as the operator may be blind.
const BOUND: Duration = Duration::from_secs(30);
const USER: &str = "kerf";

#[tokio::test]
async fn after_a_restore_the_operator_goes_by_what_was_restored() {
    let mut cluster = start(Profile::ApiOnly.audited()).await;
    install(&cluster, &kerf_api::crds_yaml(kerf_provider_kwok::crds()).unwrap()).await;
    let classes: Api<KwokNodeClass> = Api::all(cluster.client());
    classes
        .create(&PostParams::default(), &build::node_class("default", &json!({})))
        .await
        .unwrap();
    create_pool(&cluster, "default", 3).await;
    let operator = Operator::start_alone(&cluster, USER, None);
    operator.message("starting controllers");
    let at_first =
        eventually("there are three nodes", async || registered(&cluster, 3).await).await;

    let backup = cluster.back_up().await.unwrap();
    // What the backup knows nothing of: two claims of the three are gone, and five others there.
    let claims: Api<NodeClaim> = Api::all(cluster.client());
    for name in at_first.iter().take(2) {
        claims.delete(name, &DeleteParams::default()).await.unwrap();
    }
    scale(&cluster, "default", 6).await;
    let later = eventually("there are six nodes", async || {
        let names = registered(&cluster, 6).await?;
        let kept = names.intersection(&at_first).count();
        if kept == 1 { Ok(names) } else { Err(format!("{kept} of the first three")) }
    })
    .await;
    create_pool(&cluster, "late", 1).await;
    eventually("the late pool has its node", async || registered(&cluster, 7).await).await;

    let lines = fs::read_to_string(cluster.audit_log().unwrap()).unwrap().lines().count();
    cluster.restore(&backup).await.unwrap();
    let begin = Instant::now();
    let restored = eventually("the claims can be read", async || names(&cluster).await).await;
    assert_eq!(restored, at_first);
    // One more than was restored: the operator has to know of all three, and of no other.
    scale(&cluster, "default", 4).await;
    let now = eventually("there are four nodes", async || registered(&cluster, 4).await).await;
    let blind = begin.elapsed();
    assert!(
        now.is_superset(&at_first),
        "{at_first:?} and one more, not {now:?}; before: {later:?}"
    );
    assert!(blind < BOUND, "the operator went by what was restored after {blind:?}");

    // Everything has been listed again by then, and whatever it leads to has begun.
    tokio::time::sleep(BOUND.saturating_sub(begin.elapsed())).await;
    assert_eq!(names(&cluster).await, Ok(now));
    let log = fs::read_to_string(cluster.audit_log().unwrap()).unwrap();
    let deletions: Vec<_> = log.lines().skip(lines).filter(|line| is_deletion(line)).collect();
    assert!(deletions.is_empty(), "deleted after the restore:\n{}", deletions.join("\n"));
    println!("the operator went by what was restored after {blind:?}");
}

async fn create_pool(cluster: &ControlPlane, name: &str, replicas: u32) {
    let pools: Api<NodePool> = Api::all(cluster.client());
    let pool = build::pool(name, &json!({"replicas": replicas}));
    pools.create(&PostParams::default(), &pool).await.expect("the API server takes the pool");
}

async fn scale(cluster: &ControlPlane, pool: &str, replicas: u32) {
    let pools: Api<NodePool> = Api::all(cluster.client());
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let params = PatchParams::default();
    // An API server that has just started refuses some requests.
    eventually("the pool is scaled", async || pools.patch(pool, &params, &patch).await).await;
}

async fn names(cluster: &ControlPlane) -> Result<BTreeSet<String>, String> {
    let claims: Api<NodeClaim> = Api::all(cluster.client());
    let claims = claims.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
    Ok(claims.iter().map(ResourceExt::name_any).collect())
}

/// The names of all claims, if there are this many and each has its node.
async fn registered(cluster: &ControlPlane, count: usize) -> Result<BTreeSet<String>, String> {
    let claims: Api<NodeClaim> = Api::all(cluster.client());
    let claims = claims.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
    let ready = claims.iter().filter(|claim| claim.is_true(REGISTERED)).count();
    if (ready, claims.items.len()) == (count, count) {
        Ok(claims.iter().map(ResourceExt::name_any).collect())
    } else {
        Err(format!("{ready} of {} claims are registered", claims.items.len()))
    }
}

/// Whether the operator deleted a claim or a node, or tried to.
fn is_deletion(line: &str) -> bool {
    let noted: Value = serde_json::from_str(line).expect("a line of the audit log is JSON");
    let resource = noted["objectRef"]["resource"].as_str().unwrap_or_default();
    noted["user"]["username"] == USER
        && noted["verb"] == "delete"
        && ["nodeclaims", "nodes"].contains(&resource)
}
