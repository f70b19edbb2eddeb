//! A cluster with an operator in it, on one of the two stages.

mod objects;

use std::{fmt::Debug, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kerf_control_plane::{ControlPlane, Profile, patient};
use kerf_controllers::{Settings, operator::Timing};
use kerf_model::{InstanceType, Price};
use kerf_provider_kwok as kwok;
use kerf_runtime::Clock;
use kerf_simulation::{Connect, OperatorHandle, Terms, repriced};
use kerf_testbed::{CloudFaults, EventLog, Faults, Testbed, actors};
use kube::{Client, Resource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Contender,
    build::object,
    clouds::{Cloud, Kwok},
    contender, rights,
    scope::{Scope, SharedCluster},
};

/// Longer than anything takes, in virtual and in real time, on a machine that has much else to do. Some things are said
/// again only after five minutes.
const VIRTUAL_PATIENCE: Duration = Duration::from_hours(2);
const REAL_PATIENCE: Duration = Duration::from_mins(6);

/// Where a story is played.
#[derive(Debug)]
pub enum Stage {
    Testbed {
        testbed: Testbed,
        actors: actors::Running,
    },
    Real(Box<ControlPlane>),
    /// A real cluster that other stories use as well.
    Shared(&'static SharedCluster),
}

#[derive(Debug)]
pub struct World {
    stage: Stage,
    settings: Settings,
    /// What its cloud sells.
    catalogue: Vec<InstanceType>,
    faults: Faults,
    /// Whose machines they are.
    of: Arc<dyn Cloud>,
    cloud: CloudFaults,
    operator: Option<OperatorHandle>,
    scope: Option<Scope>,
    timing: Timing,
}

/// A kind that the helpers below can handle.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + 'static
{
}

impl World {
    /// A fresh cluster in this process. Needs a runtime with a paused clock.
    pub async fn on_testbed(seed: u64, settings: Settings) -> Self {
        let mut world = Self::without_operators(seed, settings);
        world.start_operator().await;
        world
    }

    /// A fresh cluster in this process whose operator has this provider.
    pub async fn with_cloud(of: Arc<dyn Cloud>, seed: u64, settings: Settings) -> Self {
        let mut world = Self::of_cloud(of, seed, settings);
        world.start_operator().await;
        world
    }

    /// A fresh cluster in this process whose operator watches as it does in production.
    pub async fn with_short_watches(seed: u64, settings: Settings) -> Self {
        let mut world = Self::without_operators(seed, settings);
        world.timing = Timing::default();
        world.start_operator().await;
        world
    }

    /// A fresh cluster in this process, without an operator so far.
    pub fn without_operators(seed: u64, settings: Settings) -> Self {
        Self::of_cloud(Arc::new(Kwok), seed, settings)
    }

    /// A fresh cluster in this process with this cloud, without an operator so far.
    pub fn of_cloud(of: Arc<dyn Cloud>, seed: u64, settings: Settings) -> Self {
        let testbed = Testbed::builder().seed(seed).serving(of.crds()).start();
        let testbed = testbed.unwrap_or_else(|error| panic!("{error}"));
        let actors = testbed.start_actors(actors::Actors::default());
        of.begin(&testbed);
        let mut world = Self::on_stage(Stage::Testbed { testbed, actors }, settings);
        world.catalogue = of.instance_types();
        world.of = of;
        world
    }

    /// Starts an operator that competes with others for the lease; on the testbed only.
    pub fn contend(&self, identity: &str, skew: SignedDuration, faults: Faults) -> Contender {
        match &self.stage {
            Stage::Testbed { testbed, .. } => {
                let terms = contender::Terms {
                    settings: self.settings.clone(),
                    catalogue: self.catalogue.clone(),
                    provider: Connect::default(),
                    skew,
                    faults,
                    timing: self.timing,
                };
                Contender::start(testbed, identity, terms)
            }
            Stage::Real(_) | Stage::Shared(_) => panic!("operators compete on the testbed only"),
        }
    }

    /// A fresh cluster in this process whose operator dies where `faults` say so, and is started again.
    pub fn with_mortal_operator(seed: u64, settings: Settings, faults: &Faults) -> Self {
        Self::without_operators(seed, settings).of_a_mortal_operator(faults)
    }

    /// Starts an operator that dies where `faults` say so, and is started again.
    pub fn of_a_mortal_operator(self, faults: &Faults) -> Self {
        let mut world = self;
        world.faults = faults.clone();
        let (mortal, successor) = (world.operator_client(), world.client());
        let terms = world.terms();
        world.operator =
            Some(OperatorHandle::start_mortal(mortal, faults.clone(), successor, &terms));
        world
    }

    /// A fresh cluster with Kerf's CRDs on a real control plane.
    pub async fn on_control_plane(settings: Settings) -> Self {
        let cluster = start_control_plane().await;
        Self::with_operator(Stage::Real(Box::new(cluster)), settings).await
    }

    /// A place of its own in the real cluster that the stories of this process share, with the operator that runs there.
    pub async fn on_shared_control_plane() -> Self {
        let (stage, scope) = (Stage::Shared(SharedCluster::get()), Scope::next());
        let namespace = object(json!({"metadata": {"name": scope.namespace()}}));
        let account = object(json!({
            "metadata": {"name": "default", "namespace": scope.namespace()},
        }));
        let world = Self::on_stage(stage, Settings::default());
        world.create::<Namespace>(namespace).await;
        // Admission refuses every pod until its namespace has this.
        world
            .until("pods are admitted", async |world: &Self| {
                let found = world.get::<ServiceAccount>(&account).await;
                found.ok_or_else(|| "there is no service account".to_owned())
            })
            .await;
        Self { scope: Some(scope), ..world }
    }

    fn on_stage(stage: Stage, settings: Settings) -> Self {
        let seed = match &stage {
            Stage::Testbed { testbed, .. } => testbed.seed(),
            Stage::Real(_) | Stage::Shared(_) => 0,
        };
        let timing = match &stage {
            Stage::Testbed { .. } => Timing::in_process(),
            Stage::Real(_) | Stage::Shared(_) => Timing::default(),
        };
        let (faults, cloud) = (Faults::seeded(seed), CloudFaults::seeded(seed));
        Self {
            stage,
            settings,
            catalogue: Kwok.instance_types(),
            faults,
            of: Arc::new(Kwok),
            cloud,
            operator: None,
            scope: None,
            timing,
        }
    }

    async fn with_operator(stage: Stage, settings: Settings) -> Self {
        let mut world = Self::on_stage(stage, settings);
        world.start_operator().await;
        world
    }

    pub fn catalogue(&self) -> &[InstanceType] {
        &self.catalogue
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    pub fn client(&self) -> Client {
        match &self.stage {
            Stage::Testbed { testbed, .. } => testbed.client(),
            Stage::Real(cluster) => cluster.client(),
            Stage::Shared(shared) => shared.cluster.client(),
        }
    }

    pub fn clock(&self) -> Clock {
        match &self.stage {
            Stage::Testbed { testbed, .. } => testbed.clock().clone(),
            Stage::Real(_) | Stage::Shared(_) => Clock::system(),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// What goes wrong between the operator and the API server; on the testbed only.
    pub fn faults(&self) -> &Faults {
        match &self.stage {
            Stage::Testbed { .. } => &self.faults,
            Stage::Real(_) | Stage::Shared(_) => {
                panic!("nothing can be put between an operator and a real API server")
            }
        }
    }

    /// What goes wrong in the operator's cloud.
    pub fn cloud(&self) -> &CloudFaults {
        &self.cloud
    }

    /// The machine under a node stops: its kubelet falls silent. The cloud goes on to list its instance.
    pub fn kill_node(&self, node: &str) {
        match &self.stage {
            Stage::Testbed { actors, .. } => actors.kill_node(node),
            Stage::Real(_) | Stage::Shared(_) => panic!("nodes die on the testbed only"),
        }
    }

    /// All writes since the start; only the testbed keeps such a log.
    pub fn event_log(&self) -> EventLog {
        match &self.stage {
            Stage::Testbed { testbed, .. } => testbed.event_log(),
            _ => panic!("a real control plane keeps no log of all writes"),
        }
    }

    /// All writes since the start, where they are known.
    pub fn event_log_if_any(&self) -> Option<EventLog> {
        match &self.stage {
            Stage::Testbed { testbed, .. } => Some(testbed.event_log()),
            Stage::Real(_) | Stage::Shared(_) => None,
        }
    }

    /// The operator's metrics in text form.
    pub fn metrics(&self) -> String {
        match (&self.operator, &self.stage) {
            (Some(operator), _) => operator.metrics.text(),
            (None, Stage::Shared(shared)) => shared.metrics.text(),
            (None, _) => String::new(),
        }
    }

    /// Changes what instances cost; only where the operator is the story's own.
    pub fn reprice(&self, price: impl Fn(&str, Price) -> Price) {
        match &self.operator {
            Some(operator) => {
                operator.offer(
                    self.catalogue
                        .iter()
                        .map(|one| repriced(one, |offering| price(one.name(), offering.price))),
                );
            }
            None => panic!("prices are those of an operator, and there is none of this story"),
        }
    }

    /// The cloud no longer has this type of instance; only where the operator is the story's own.
    pub fn withdraw(&self, instance_type: &str) {
        match &self.operator {
            Some(operator) => {
                let left = self.catalogue.iter().filter(|one| one.name() != instance_type);
                operator.offer(left.cloned());
            }
            None => {
                panic!("instance types are those of an operator, and there is none of this story")
            }
        }
    }

    /// Starts the operator again with a catalogue of its own, in the form that `--instance-types-file-path` reads. What
    /// labels there are is known from the catalogue that an operator is started with.
    pub async fn restart_with_catalogue(&mut self, catalogue: &Value) {
        let catalogue = kwok::from_json(&catalogue.to_string());
        self.catalogue = catalogue.unwrap_or_else(|error| panic!("the catalogue: {error}"));
        self.stop_operator().await;
        self.start_operator().await;
    }

    pub async fn start_operator(&mut self) {
        let (client, terms) = (self.operator_client(), self.terms());
        self.operator = Some(OperatorHandle::start(client, terms).await);
    }

    fn operator_client(&self) -> Client {
        match &self.stage {
            Stage::Testbed { testbed, .. } => testbed.client_with(&self.faults),
            Stage::Real(cluster) => rights::client(cluster),
            Stage::Shared(shared) => rights::client(&shared.cluster),
        }
    }

    fn terms(&self) -> Terms {
        Terms {
            clock: self.clock(),
            settings: self.settings.clone(),
            instance_types: self.catalogue.clone(),
            provider: {
                let of = Arc::clone(&self.of);
                Connect::by(move |kwok| of.connect(kwok))
            },
            cloud: self.cloud.clone(),
            timing: self.timing,
            window: kerf_controllers::window::Window::default(),
            seed: 7,
        }
    }

    /// Ends the operator without warning.
    pub fn kill_operator(&mut self) {
        self.operator = None;
    }

    /// Ends the operator as SIGTERM would.
    pub async fn stop_operator(&mut self) {
        if let Some(operator) = self.operator.take() {
            match operator.stop().await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => panic!("the operator failed: {error}"),
                Err(panic) => panic!("the operator panicked: {panic}"),
            }
        }
    }

    /// Waits until `ask` answers `Ok`, and gives its answer. Panics with the last `Err` and a picture of the cluster when
    /// that takes longer than anything does.
    pub async fn until<T>(
        &self,
        what: &str,
        mut ask: impl AsyncFnMut(&Self) -> Result<T, String>,
    ) -> T {
        let (mut answer, mut last) = (None, String::new());
        match &self.stage {
            Stage::Testbed { testbed, .. } => {
                let condition = async || match ask(self).await {
                    Ok(value) => {
                        answer = Some(value);
                        true
                    }
                    Err(error) => {
                        last = error;
                        false
                    }
                };
                if let Err(timed_out) =
                    testbed.advance_until(what, VIRTUAL_PATIENCE, condition).await
                {
                    panic!("{last}\n{timed_out}");
                }
            }
            Stage::Real(_) | Stage::Shared(_) => {
                let end = Instant::now() + patient(REAL_PATIENCE);
                while answer.is_none() {
                    match ask(self).await {
                        Ok(value) => answer = Some(value),
                        Err(error) if Instant::now() > end => {
                            let dump = self.dump().await;
                            panic!("waited in vain until {what}: {error}\nthe cluster:\n{dump}");
                        }
                        Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                    }
                }
            }
        }
        answer.unwrap_or_else(|| panic!("{what} was never answered"))
    }

    /// Lets time pass. Only where it costs nothing: on a real control plane a story waits for events instead.
    pub async fn pass(&self, time: Duration) {
        match &self.stage {
            Stage::Testbed { .. } => tokio::time::sleep(time).await,
            _ => panic!("time does not pass at will on a real control plane"),
        }
    }

    /// Lets time pass where that costs nothing, to see that nothing happens; elsewhere a story is content with less.
    pub async fn pass_if_free(&self, time: Duration) {
        if let Stage::Testbed { .. } = &self.stage {
            self.pass(time).await;
        }
    }

    /// What a real cluster looks like; of a shared one, the lines that name this story.
    async fn dump(&self) -> String {
        let cluster = match &self.stage {
            Stage::Testbed { .. } => return String::new(),
            Stage::Real(cluster) => cluster,
            Stage::Shared(shared) => &shared.cluster,
        };
        let kinds = "nodepools,nodeclaims,nodes,pods,events";
        let seen = match cluster.kubectl(&["get", kinds, "-A", "-o", "wide"]).await {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => return format!("kubectl: {error}"),
        };
        let Some(scope) = &self.scope else { return seen };
        let own = seen.lines().filter(|line| line.contains(scope.namespace()));
        own.collect::<Vec<_>>().join("\n")
    }
}

/// A real cluster with Kerf's CRDs and the roles of its operator. Its audit log says what the operator asked for.
pub(crate) async fn start_control_plane() -> ControlPlane {
    let cluster = ControlPlane::start_with(Profile::WithoutTaintEviction.audited()).await;
    let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
    let crds =
        kerf_api::crds_yaml(kerf_provider_kwok::crds()).unwrap_or_else(|error| panic!("{error}"));
    let limit = format!("--timeout={}s", patient(Duration::from_mins(1)).as_secs());
    let served = ["wait", "--for=condition=Established", "crd", "--all", &limit];
    let apply = ["apply", "-f", "-"];
    let steps =
        [(&apply[..], crds), (&served[..], String::new()), (&apply[..], rights::manifests())];
    for (arguments, input) in steps {
        let done = cluster.kubectl_with_input(arguments, input).await;
        let done = done.unwrap_or_else(|error| panic!("kubectl: {error}"));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    rights::granted(&cluster).await;
    cluster
}
