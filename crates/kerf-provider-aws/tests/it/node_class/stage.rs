//! An account, a cluster and the operator between them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kerf_api::conditions::{Conditioned, READY};
use kerf_aws_api::{Ec2NodeClass, additions};
use kerf_aws_model::catalogue::Catalogue;
use kerf_fake_aws::FakeAws;
use kerf_provider_aws::Options;
use kerf_testbed::Testbed;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::account::{self, CATALOGUE, Process, REGION};

pub(crate) const CA_BUNDLE: &str = "Y2VydGlmaWNhdGU=";
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(30);

pub(crate) struct Stage {
    pub(crate) testbed: Testbed,
    pub(crate) aws: FakeAws,
    pub(crate) classes: Api<Ec2NodeClass>,
    pub(crate) options: Options,
    catalogue: Arc<Catalogue>,
    operator: Option<Process>,
}

impl Stage {
    /// Without an operator so far.
    pub(crate) fn new() -> Self {
        Self::in_region(REGION, Arc::clone(&CATALOGUE))
    }

    pub(crate) fn in_region(region: &str, catalogue: Arc<Catalogue>) -> Self {
        let crds = kerf_api::crd::crds(&[additions()]);
        let testbed = Testbed::builder().with_crds(crds).start().unwrap();
        let aws = account::account_in(region, &catalogue, testbed.clock());
        let classes = Api::all(testbed.client());
        let options = Options::default();
        Self { testbed, aws, classes, options, catalogue, operator: None }
    }

    pub(crate) fn with_operator() -> Self {
        let mut stage = Self::new();
        stage.start();
        stage
    }

    pub(crate) fn start(&mut self) {
        let provider = account::provider_in(&self.aws, &self.catalogue, &self.options);
        let (client, clock) = (self.testbed.client(), self.testbed.clock());
        self.operator = Some(Process::start(client, clock, Arc::new(provider)));
    }

    /// Between two calls, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.operator = None;
    }

    /// The spec is laid over one that has all it needs; `null` takes a field away.
    pub(crate) async fn create(&self, name: &str, spec: &Value) -> Ec2NodeClass {
        self.create_annotated(name, spec, &json!({})).await
    }

    pub(crate) async fn create_annotated(
        &self,
        name: &str,
        spec: &Value,
        annotations: &Value,
    ) -> Ec2NodeClass {
        let discovery = json!([{"tags": {"karpenter.sh/discovery": "test"}}]);
        let mut whole = json!({
            "role": "KarpenterNodeRole-test", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": discovery, "securityGroupSelectorTerms": discovery,
        });
        for (field, value) in spec.as_object().unwrap() {
            whole[field] = value.clone();
        }
        whole.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let class = serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": name, "annotations": annotations}, "spec": whole,
        }));
        self.classes.create(&PostParams::default(), &class.unwrap()).await.unwrap()
    }

    pub(crate) async fn edit(&self, name: &str, patch: &Value) {
        let patch = Patch::Merge(patch);
        self.classes.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.classes.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn get(&self, name: &str) -> Option<Ec2NodeClass> {
        self.classes.get_opt(name).await.unwrap()
    }

    /// Waits until the class is as it should be.
    pub(crate) async fn until(
        &self,
        what: &str,
        name: &str,
        holds: impl Fn(&Ec2NodeClass) -> bool,
    ) -> Ec2NodeClass {
        let reached = self.testbed.advance_until(what, PATIENCE, async || {
            self.get(name).await.is_some_and(|class| holds(&class))
        });
        if reached.await.is_err() {
            let class = serde_json::to_value(self.get(name).await).unwrap();
            panic!("{what}: {class:#}");
        }
        self.get(name).await.unwrap()
    }

    pub(crate) async fn until_ready(&self, name: &str) -> Ec2NodeClass {
        self.until("the class is ready", name, |class| {
            class.condition(READY).is_some_and(|ready| {
                ready.status == "True" && ready.observed_generation == class.metadata.generation
            })
        })
        .await
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let gone = async || self.get(name).await.is_none();
        self.testbed.advance_until("the class is gone", PATIENCE, gone).await.unwrap();
    }

    /// Messages of events about the class with this reason.
    pub(crate) async fn events(&self, name: &str, reason: &str) -> Vec<String> {
        // They are published in the background.
        sleep(Duration::from_secs(1)).await;
        let events: Api<Event> = Api::all(self.testbed.client());
        let events = events.list(&ListParams::default()).await.unwrap();
        let about = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.involved_object.kind.as_deref() == Some("EC2NodeClass")
                && event.reason.as_deref() == Some(reason)
        };
        events.into_iter().filter(about).filter_map(|event| event.message).collect()
    }
}

pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Reason and message of a condition that is false; the name of the status otherwise.
pub(crate) fn said(class: &Ec2NodeClass, condition: &str) -> (String, String) {
    match class.condition(condition) {
        Some(one) if one.status == "False" => (one.reason.clone(), one.message.clone()),
        Some(one) => (one.status.clone(), one.message.clone()),
        None => ("none".to_owned(), class.name_any()),
    }
}
