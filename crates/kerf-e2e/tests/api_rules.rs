//! Every constraint of our resources, proved by the API server: one object that it accepts and one
//! that it refuses, with the message that says why.
//!
//! The constraints are read from the CRDs. One without a case here is a failure, so that none is
//! added unproved.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "api_rules/case.rs"]
mod case;
#[path = "api_rules/cases.rs"]
mod cases;
#[path = "api_rules/constraints.rs"]
mod constraints;
#[path = "api_rules/ec2_node_class.rs"]
mod ec2_node_class;
#[path = "api_rules/ec2_node_class_parts.rs"]
mod ec2_node_class_parts;
#[path = "api_rules/node_overlay.rs"]
mod node_overlay;
#[path = "api_rules/submission.rs"]
mod submission;

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_control_plane::ControlPlane;
use kerf_e2e::{eventually, shared_api_server};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use case::{Case, Kind, base, crds};
use cases::cases;
use constraints::{Constraint, constraints};
use submission::{parsed, wrong_answer};

#[test]
fn every_constraint_has_a_case() {
    let proved: BTreeSet<Constraint> = cases().iter().map(Case::constraint).collect();
    let written: BTreeSet<Constraint> =
        Kind::ALL.into_iter().flat_map(|kind| constraints(kind, &crd(kind))).collect();
    let unproved: Vec<_> = written.difference(&proved).collect();
    let unknown: Vec<_> = proved.difference(&written).collect();
    assert!(unproved.is_empty(), "no case for {unproved:#?}");
    assert!(unknown.is_empty(), "no such constraint: {unknown:#?}");
}

#[tokio::test]
async fn every_constraint_is_enforced() {
    let server = Server::ready().await;
    for kind in Kind::ALL {
        server.create(kind, &kind.object("base", &base(kind))).await;
    }
    let mut wrong = Vec::new();
    for case in cases() {
        wrong.extend(wrong_answer(&server.client, &case).await);
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases().len(), wrong.join("\n"));
}

#[tokio::test]
async fn what_is_left_out_gets_its_default() {
    let server = Server::ready().await;
    let node = json!({ "requirements": [], "nodeClassRef": base(Kind::NodeClaim)["spec"]["nodeClassRef"] });
    let pool = |disruption: Value| json!({ "spec": { "template": { "spec": node }, "disruption": disruption } });
    let everything = json!({
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{ "nodes": "10%" }],
    });
    for (name, disruption) in
        [("unset", Value::Null), ("empty", json!({})), ("budget", json!({ "budgets": [{}] }))]
    {
        let mut pool = Kind::NodePool.object(&format!("default-{name}"), &pool(disruption));
        if pool["spec"]["disruption"].is_null() {
            pool["spec"].as_object_mut().unwrap().remove("disruption");
        }
        let created = server.create(Kind::NodePool, &pool).await;
        assert_eq!(created["spec"]["disruption"], everything, "{name}");
        assert_eq!(created["spec"]["template"]["spec"]["expireAfter"], "720h");
    }
    let claim = Kind::NodeClaim.object("default", &json!({ "spec": node }));
    let created = server.create(Kind::NodeClaim, &claim).await;
    assert_eq!(created["spec"]["expireAfter"], "720h");
    let class = Kind::KwokNodeClass.object("default", &json!({}));
    let created = server.create(Kind::KwokNodeClass, &class).await;
    assert_eq!(created.pointer("/status/conditions/0/status"), Some(&json!("True")));
    let all = json!({
        "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required",
    });
    for (name, options) in [("unset", Value::Null), ("empty", json!({}))] {
        let mut class = base(Kind::Ec2NodeClass);
        class["spec"]["metadataOptions"] = options;
        let class = Kind::Ec2NodeClass.object(&format!("default-{name}"), &class);
        let created = server.create(Kind::Ec2NodeClass, &class).await;
        assert_eq!(created["spec"]["metadataOptions"], all, "{name}");
    }
    let without_spec = Kind::Ec2NodeClass.object("without-spec", &json!({}));
    assert_eq!(server.create(Kind::Ec2NodeClass, &without_spec).await.get("spec"), None);
}

#[tokio::test]
async fn kubectl_scales_static_pools_only() {
    let server = Server::ready().await;
    let mut pool = Kind::NodePool.object("scaled-static", &base(Kind::NodePool));
    let spec = pool["spec"].as_object_mut().unwrap();
    spec.remove("weight");
    spec.remove("limits");
    server
        .create(Kind::NodePool, &{
            let mut dynamic = pool.clone();
            dynamic["metadata"]["name"] = json!("scaled-dynamic");
            dynamic
        })
        .await;
    pool["spec"]["replicas"] = json!(1);
    server.create(Kind::NodePool, &pool).await;
    server.kubectl("scale nodepool scaled-static --replicas=3").await.unwrap();
    let replicas = server.kubectl("get nodepool scaled-static -o jsonpath={.spec.replicas}").await;
    assert_eq!(replicas, Ok("3".to_owned()));
    let refused = server.kubectl("scale nodepool scaled-dynamic --replicas=3").await.unwrap_err();
    assert!(refused.contains("Cannot transition NodePool between static"), "{refused}");
}

#[tokio::test]
async fn kubectl_shows_the_columns() {
    let server = Server::ready().await;
    for kind in Kind::ALL {
        let shown = kind.object("shown", &base(kind));
        server.create(kind, &shown).await;
        let status = json!({ "status": shown["status"] });
        let (params, patch) = (PatchParams::default(), Patch::Merge(status));
        server.objects(kind).patch_status("shown", &params, &patch).await.unwrap();
    }
    let labels = json!({ "metadata": { "labels": {
        "node.kubernetes.io/instance-type": "m5.large", "karpenter.sh/capacity-type": "spot",
        "topology.kubernetes.io/zone": "zone-a", "karpenter.sh/nodepool": "default",
    }}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(labels));
    server.objects(Kind::NodeClaim).patch("shown", &params, &patch).await.unwrap();

    let check = async |arguments: &str, header: &[&str], row: &[&str]| {
        let table = server.kubectl(arguments).await.unwrap();
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(lines.next().unwrap(), header, "{arguments}");
        let mut shown = lines.next().unwrap();
        let age = header.iter().position(|column| *column == "AGE").unwrap();
        shown[age] = "age";
        assert_eq!(shown, row, "{arguments}");
    };
    check(
        "get nodepools shown",
        &["NAME", "NODECLASS", "NODES", "READY", "AGE"],
        &["shown", "default", "1", "True", "age"],
    )
    .await;
    check(
        "get nodepools shown -o wide",
        &["NAME", "NODECLASS", "NODES", "READY", "AGE", "WEIGHT", "CPU", "MEMORY"],
        &["shown", "default", "1", "True", "age", "10", "1"],
    )
    .await;
    check(
        "get nodeclaims shown",
        &["NAME", "TYPE", "CAPACITY", "ZONE", "NODE", "READY", "AGE"],
        &["shown", "m5.large", "spot", "zone-a", "a", "True", "age"],
    )
    .await;
    check(
        "get nodeclaims shown -o wide",
        &[
            "NAME",
            "TYPE",
            "CAPACITY",
            "ZONE",
            "NODE",
            "READY",
            "AGE",
            "IMAGEID",
            "ID",
            "NODEPOOL",
            "NODECLASS",
            "DRIFTED",
        ],
        &[
            "shown", "m5.large", "spot", "zone-a", "a", "True", "age", "c", "b", "default",
            "default",
        ],
    )
    .await;
    let wide = ["NAME", "READY", "AGE", "WEIGHT"];
    check("get overlays shown -o wide", &wide, &["shown", "True", "age", "10"]).await;
    check("get kwoknc shown", &["NAME", "AGE"], &["shown", "age"]).await;
    check("get kwokncs shown", &["NAME", "AGE"], &["shown", "age"]).await;
    check("get ec2nc shown", &["NAME", "READY", "AGE"], &["shown", "True", "age"]).await;
    let wide = ["NAME", "READY", "AGE", "ROLE"];
    check("get ec2ncs shown -o wide", &wide, &["shown", "True", "age", "a"]).await;
    let all = server.kubectl("get karpenter -o name").await.unwrap();
    for kind in [
        "nodepool.karpenter.sh",
        "nodeclaim.karpenter.sh",
        "nodeoverlay.karpenter.sh",
        "kwoknodeclass.karpenter.kwok.sh",
        "ec2nodeclass.karpenter.k8s.aws",
    ] {
        assert!(all.lines().any(|line| line == format!("{kind}/shown")), "{all}");
    }
}

#[tokio::test]
async fn kubectl_explains_every_field() {
    let server = Server::ready().await;
    // The API server publishes the schema some time after it has begun to serve the kind.
    let explain = async || server.kubectl("explain nodepool.spec.disruption").await;
    let explained = eventually("explained", explain).await;
    for field in [
        "budgets\t<[]Object>",
        "consolidateAfter\t<string>",
        "consolidationGracePeriod\t<string>",
        "consolidationPolicy\t<string>",
        "consolidationPriceImprovementFactor\t<number>",
        "consolidationSavingsThreshold\t<number>",
        "consolidationUtilizationThreshold\t<number>",
    ] {
        assert!(explained.contains(field), "{field} is not in\n{explained}");
    }
    for (kind, crd) in Kind::ALL.map(|kind| (kind.name(), crd(kind))) {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        constraints::undescribed(&schema["openAPIV3Schema"], kind, &mut |path| {
            panic!("{path} has no description");
        });
    }
}

/// The API server with our CRDs in it.
struct Server {
    cluster: &'static ControlPlane,
    client: Client,
}

impl Server {
    async fn ready() -> Self {
        static INSTALLED: OnceCell<()> = OnceCell::const_new();
        let cluster = shared_api_server().await;
        let server = Self { cluster, client: cluster.client() };
        INSTALLED.get_or_init(async || server.install().await).await;
        server
    }

    async fn install(&self) {
        let installed: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in crds() {
            installed.create(&PostParams::default(), &crd).await.unwrap();
        }
        for kind in Kind::ALL {
            eventually("served", async || self.objects(kind).list(&ListParams::default()).await)
                .await;
        }
    }

    fn objects(&self, kind: Kind) -> Api<DynamicObject> {
        submission::objects(&self.client, kind)
    }

    async fn create(&self, kind: Kind, object: &Value) -> Value {
        let created = self.objects(kind).create(&PostParams::default(), &parsed(object)).await;
        let created = created.unwrap();
        serde_json::to_value(created).unwrap()
    }

    /// The output, or what kubectl complains of.
    async fn kubectl(&self, arguments: &str) -> Result<String, String> {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = self.cluster.kubectl(&arguments).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

fn crd(kind: Kind) -> CustomResourceDefinition {
    crds().into_iter().find(|crd| crd.spec.names.kind == kind.name()).unwrap()
}
