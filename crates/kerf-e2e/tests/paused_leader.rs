//! Leaders that are stopped for longer than their lease lasts, and go on. The audit log of the API server is the witness.

use std::{env, fs, time::Duration};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kerf_api::{NodePool, labels};
use kerf_control_plane::{ControlPlane, Profile};
use kerf_e2e::{eventually, install, operator::Operator, start};
use kerf_provider_kwok::KwokNodeClass;
use kerf_stories::build;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde::Deserialize;
use serde_json::json;

const LEASE: &str = "karpenter-leader-election";

/// How many leaders are paused, one after the other; as many as this variable says.
const PAUSES: &str = "KERF_PAUSES";
const PAUSES_BY_DEFAULT: u32 = 3;

/// Pods that want a node each, before and during a pause.
const PODS: u32 = 20;

#[tokio::test]
async fn a_leader_that_was_paused_writes_nothing_after_another_took_over() {
    let pauses = env::var(PAUSES).ok().map(|text| text.parse().expect("a number of pauses"));
    let cluster = start(Profile::WithoutTaintEviction.audited()).await;
    install(&cluster, &kerf_api::crds_yaml(kerf_provider_kwok::crds()).unwrap()).await;
    let everything = PostParams::default();
    let classes: Api<KwokNodeClass> = Api::all(cluster.client());
    classes.create(&everything, &build::node_class("default", &json!({}))).await.unwrap();
    let pools: Api<NodePool> = Api::all(cluster.client());
    pools.create(&everything, &build::pool("default", &json!({}))).await.unwrap();

    let mut replicas = 1..;
    let mut next =
        || Operator::start_as(&cluster, &format!("replica-{}", replicas.next().unwrap()));
    let mut leader = next();
    leader.message("starting controllers");
    for pause in 0..pauses.unwrap_or(PAUSES_BY_DEFAULT) {
        let standby = next();
        standby.message("caches are synced");
        ask_for_nodes(&cluster, &format!("before-{pause}")).await;
        // At another moment each time: while claims are created, instances launched, nodes registered.
        tokio::time::sleep(Duration::from_millis(1000 + u64::from(pause) * 730 % 3000)).await;
        leader.signal("STOP");
        standby.leading();
        ask_for_nodes(&cluster, &format!("during-{pause}")).await;
        leader.signal("CONT");
        let end = leader.line(|line| line["level"] == "ERROR" && is_end(&line["message"]));
        println!("pause {pause}: {}", end["message"]);
        assert_eq!(leader.exit_code(), Some(1));
        leader = standby;
        let pods: Api<Pod> = Api::default_namespaced(cluster.client());
        eventually("every pod has a node", async || {
            let pods = pods.list(&ListParams::default()).await.unwrap().items;
            let waits = |pod: &Pod| pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
            let waiting = pods.iter().filter(|pod| waits(pod)).count();
            if waiting == 0 { Ok(()) } else { Err(format!("{waiting} of {} wait", pods.len())) }
        })
        .await;
        pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    }
    leader.signal("TERM");
    assert_eq!(leader.exit_code(), Some(0));

    let log = fs::read_to_string(cluster.audit_log().unwrap()).unwrap();
    let late = writes_after_a_takeover(&log);
    assert!(late.is_empty(), "{} writes of leaders that no longer led:\n{late:#?}", late.len());
}

fn is_end(message: &serde_json::Value) -> bool {
    let message = message.as_str().unwrap_or_default();
    message.starts_with("lost the lease") || message.starts_with("stepping down")
}

async fn ask_for_nodes(cluster: &ControlPlane, name: &str) {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    // Room for one pod of one CPU beside what the machine keeps for itself.
    let small = json!({"nodeSelector": {labels::INSTANCE_TYPE: "c-2x-amd64-linux"}});
    let create = |place: u32| {
        let (pods, pod) = (pods.clone(), build::pod(&format!("{name}-{place}"), &small));
        async move { pods.create(&PostParams::default(), &pod).await.expect("the pod is created") }
    };
    stream::iter(0..PODS).map(create).buffer_unordered(10).collect::<Vec<_>>().await;
}

/// One request as the API server noted it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Noted {
    user: User,
    verb: String,
    object_ref: Option<Object>,
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
}

#[derive(Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Debug, Deserialize)]
struct Object {
    resource: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

/// What replicas wrote, or tried to, after the request of another one arrived that took the lease from them.
fn writes_after_a_takeover(audit_log: &str) -> Vec<Noted> {
    let mut noted: Vec<Noted> = audit_log
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of the audit log is JSON"))
        .collect();
    noted.sort_by_key(|one| one.request_received_timestamp);
    let (mut holder, mut writes, mut late) = (String::new(), 0, Vec::new());
    let (mut all_writes, mut conflicts) = (0, 0);
    for one in noted.into_iter().filter(|one| one.user.username.starts_with("replica-")) {
        let Some(object) = one.object_ref.as_ref().filter(|_| one.writes()) else { continue };
        if object.resource == "leases" {
            if object.name == LEASE && one.code() < 300 && one.user.username != holder {
                println!("{} leads; {writes} writes before", one.user.username);
                (holder, writes) = (one.user.username.clone(), 0);
            }
        } else if one.user.username == holder {
            writes += 1;
            all_writes += 1;
            conflicts += u32::from(object.resource == "nodeclaims" && one.code() == 409);
        } else {
            late.push(one);
        }
    }
    println!("{all_writes} writes of leaders, {conflicts} of them conflicts on claims");
    assert!(all_writes > 0, "no leader wrote anything");
    late
}

impl Noted {
    fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(500, |status| status.code)
    }

    fn writes(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }
}
