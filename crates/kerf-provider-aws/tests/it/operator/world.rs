//! A cluster in an account, and the operator in it.

use std::{fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Node, Pod},
};
use kerf_api::{NodeClaim, NodePool};
use kerf_aws_api::{Ec2NodeClass, additions};
use kerf_fake_aws::{FakeAws, KubeletSettings, Kubelets};
use kerf_provider::CloudProvider;
use kerf_provider_aws::Options;
use kerf_testbed::{Faults, Testbed, actors};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::account::{Process, account, provider};

const PATIENCE: Duration = Duration::from_hours(2);

pub(crate) struct World {
    pub(crate) testbed: Testbed,
    pub(crate) aws: FakeAws,
    /// What goes wrong on the operator's way to the API server.
    pub(crate) faults: Faults,
    options: Options,
    operator: Option<Process>,
    _actors: actors::Running,
}

/// Lives through a story in virtual time.
pub(crate) fn play(story: impl Future<Output = ()>) {
    Testbed::in_virtual_time(story).unwrap();
}

/// With a queue of interruptions.
pub(crate) fn options() -> Options {
    Options {
        cluster_name: "test".to_owned(),
        interruption_queue: Some("test".to_owned()),
        ..Options::default()
    }
}

impl World {
    /// A cloud as slow as the real one, and the operator with a class and a pool.
    pub(crate) async fn new(options: Options, requirements: Value) -> Self {
        let mut world = Self::without_operator(options, requirements).await;
        world.start_operator();
        world
    }

    /// A class, and a pool of that class with these requirements.
    pub(crate) async fn without_operator(options: Options, requirements: Value) -> Self {
        let testbed = Testbed::builder().with_crds(additions().node_classes.clone()).start();
        let testbed = testbed.unwrap();
        let actors = testbed.start_actors(actors::Actors::default());
        let aws = account(testbed.clock());
        let kubelets = Kubelets::new(aws.clone(), testbed.client(), KubeletSettings::default());
        tokio::spawn(kubelets.run());
        let world = Self {
            faults: Faults::seeded(testbed.seed()),
            operator: None,
            _actors: actors,
            testbed,
            aws,
            options,
        };
        world.create_class().await;
        world
            .create::<NodePool>(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
                "spec": {
                    "disruption": {"consolidateAfter": "Never"},
                    "template": {"spec": {
                        "nodeClassRef": {
                            "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default",
                        },
                        "requirements": requirements,
                    }},
                },
            }))
            .await;
        world
    }

    /// A process with nothing in its memory. One that runs already is killed.
    pub(crate) fn start_operator(&mut self) {
        let provider = provider(&self.aws, &self.options);
        self.start_with(Arc::new(provider));
    }

    pub(crate) fn start_with(&mut self, provider: Arc<dyn CloudProvider>) {
        self.kill_operator();
        let client = self.testbed.client_with(&self.faults);
        self.operator = Some(Process::start(client, self.testbed.clock(), provider));
    }

    pub(crate) fn kill_operator(&mut self) {
        self.operator = None;
    }

    async fn create_class(&self) {
        let selector = json!([{"tags": {"karpenter.sh/discovery": "test"}}]);
        self.create::<Ec2NodeClass>(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "default"},
            "spec": {
                "role": "KarpenterNodeRole-test",
                "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "subnetSelectorTerms": selector, "securityGroupSelectorTerms": selector,
            },
        }))
        .await;
    }

    /// Merges it into the spec of the class, and waits until the class is ready again.
    pub(crate) async fn change_class(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        let classes = self.api::<Ec2NodeClass>();
        let patched = classes.patch("default", &PatchParams::default(), &patch).await.unwrap();
        let generation = patched.metadata.generation;
        self.until("the class is ready", async |world| {
            let class = world.api::<Ec2NodeClass>().get("default").await.unwrap();
            let conditions = class.status.map(|status| status.conditions).unwrap_or_default();
            conditions.iter().any(|one| {
                one.type_ == "Ready"
                    && one.status == "True"
                    && one.observed_generation == generation
            })
        })
        .await;
    }

    pub(crate) fn api<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.testbed.client())
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().list(&ListParams::default()).await.unwrap().items
    }

    /// Pods that have each a node of its own, because they want the same port.
    pub(crate) async fn pods_apart(&self, replicas: usize) {
        let client = self.testbed.client();
        let deployment: Deployment = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "app", "namespace": "default"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "app"}},
                "template": {
                    "metadata": {"labels": {"app": "app"}},
                    "spec": {"containers": [{
                        "name": "main", "image": "main",
                        "ports": [{"containerPort": 80, "hostPort": 80}],
                        "resources": {"requests": {"cpu": "1", "memory": "512Mi"}},
                    }]},
                },
            },
        }))
        .unwrap();
        let api: Api<Deployment> = Api::namespaced(client, "default");
        api.create(&PostParams::default(), &deployment).await.unwrap();
        self.until("the pods run", async |world| world.running().await.len() == replicas).await;
    }

    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn scale(&self, replicas: usize) {
        let api: Api<Deployment> = Api::namespaced(self.testbed.client(), "default");
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch("app", &PatchParams::default(), &patch).await.unwrap();
        self.until("the pods run", async |world| world.running().await.len() == replicas).await;
    }

    /// The nodes of pods that run and stay.
    pub(crate) async fn running(&self) -> Vec<String> {
        let runs = |pod: &Pod| {
            pod.metadata.deletion_timestamp.is_none()
                && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        let pods = self.list::<Pod>().await.into_iter().filter(runs);
        pods.filter_map(|pod| pod.spec?.node_name).collect()
    }

    pub(crate) async fn claims(&self) -> Vec<NodeClaim> {
        self.list().await
    }

    pub(crate) async fn nodes(&self) -> Vec<Node> {
        self.list().await
    }

    /// The messages of the events with this reason, and the kind of object that they are about.
    pub(crate) async fn events(&self, reason: &str) -> Vec<(String, String)> {
        let events = self.list::<Event>().await;
        let events = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        let said = |event: Event| {
            (event.involved_object.kind.unwrap_or_default(), event.message.unwrap_or_default())
        };
        events.map(said).collect()
    }

    /// Waits until it holds, and gives the time that it took.
    pub(crate) async fn until(
        &self,
        what: &str,
        condition: impl AsyncFn(&Self) -> bool,
    ) -> Duration {
        let start = Instant::now();
        while !condition(self).await {
            assert!(
                start.elapsed() < PATIENCE,
                "waited in vain until {what}:\n{}\ncalls: {:?}",
                self.testbed.dump(),
                self.aws.calls(),
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        start.elapsed()
    }

    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    pub(crate) fn metrics(&self) -> String {
        self.operator.as_ref().map(|process| process.metrics.text()).unwrap_or_default()
    }

    /// The value of a metric, by the beginning of its line.
    pub(crate) fn metric(&self, line: &str) -> Option<String> {
        let text = self.metrics();
        let value = text.lines().find_map(|one| one.strip_prefix(line).map(str::trim));
        value.map(str::to_owned)
    }
}

/// A requirement of a pool.
pub(crate) fn is_in(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "In", "values": values})
}

pub(crate) fn on_demand_m5() -> Value {
    json!([
        is_in("karpenter.k8s.aws/instance-family", &["m5"]),
        is_in("karpenter.sh/capacity-type", &["on-demand"]),
        is_in("kubernetes.io/arch", &["amd64"]),
    ])
}

pub(crate) fn names<K: ResourceExt>(objects: &[K]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}
