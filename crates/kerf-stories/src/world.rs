//! A cluster with an operator in it, on one of the two stages.

use std::{fmt::Debug, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    autoscaling::v1::Scale,
    core::v1::{Namespace, ServiceAccount},
};
use kerf_api::decode;
use kerf_control_plane::{ControlPlane, Profile, patient};
use kerf_controllers::{Settings, operator::Timing};
use kerf_model::{InstanceType, Price};
use kerf_provider_kwok as kwok;
use kerf_runtime::Clock;
use kerf_simulation::{Connect, OperatorHandle, Terms, repriced};
use kerf_testbed::{CloudFaults, EventLog, Faults, Testbed, actors};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
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

    /// Creates an object; the one that is returned may have another name.
    pub async fn create<K: Kind>(&self, object: K) -> K {
        let value = serde_json::to_value(&object).and_then(|mut value| {
            self.of.translate(&mut value);
            if let Some(scope) = &self.scope {
                scope.rename(&mut value);
            }
            serde_json::from_value(value)
        });
        let value: DynamicObject =
            value.unwrap_or_else(|error| panic!("writing {object:?}: {error}"));
        let created = self.api::<K>(value.namespace()).create(&PostParams::default(), &value).await;
        self.typed(&created.unwrap_or_else(|error| panic!("creating {object:?}: {error}")))
    }

    /// The story's objects of a kind.
    pub async fn list<K: Kind>(&self) -> Vec<K> {
        let api: Api<DynamicObject> = Api::all_with(self.client(), &self.resource::<K>());
        let all = ListParams::default();
        let listed = persistently(|| api.list(&all)).await;
        let listed = listed.unwrap_or_else(|error| panic!("listing: {error}")).items;
        let own = |object: &&DynamicObject| self.scope.as_ref().is_none_or(|it| it.holds(object));
        listed.iter().filter(own).map(|object| self.typed(object)).collect()
    }

    /// The only object of its kind.
    pub async fn only<K: Kind>(&self) -> Result<K, String> {
        let mut all = self.list::<K>().await;
        match (all.pop(), all.len()) {
            (Some(only), 0) => Ok(only),
            (last, others) => {
                Err(format!("{} instead of one", others + usize::from(last.is_some())))
            }
        }
    }

    /// The object as it is now; nothing if it is gone.
    pub async fn get<K: Kind>(&self, object: &K) -> Option<K> {
        let (api, name) = (self.api_of(object), object.name_any());
        let found = persistently(|| api.get_opt(&name)).await;
        let found = found.unwrap_or_else(|error| panic!("reading {name}: {error}"));
        found.as_ref().map(|object| self.typed(object))
    }

    pub async fn delete<K: Kind>(&self, object: &K) {
        let deleted =
            self.api_of(object).delete(&object.name_any(), &DeleteParams::default()).await;
        deleted.unwrap_or_else(|error| panic!("deleting {}: {error}", object.name_any()));
    }

    /// Deletes an object that others may have deleted already.
    pub async fn delete_if_there<K: Kind>(&self, object: &K) {
        let name = object.name_any();
        match self.api_of(object).delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted.unwrap_or_else(|error| panic!("deleting {name}: {error}"))),
        }
    }

    /// Changes an object by a merge patch.
    pub async fn patch<K: Kind>(&self, object: &K, mut patch: Value) -> K {
        self.of.translate(&mut patch);
        let api = self.api_of(object);
        let name = object.name_any();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = persistently(|| api.patch(&name, &params, &patch)).await;
        self.typed(&patched.unwrap_or_else(|error| panic!("patching {name}: {error}")))
    }

    pub async fn patch_status<K: Kind>(&self, object: &K, mut patch: Value) -> K {
        self.of.translate(&mut patch);
        let api = self.api_of(object);
        let name = object.name_any();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = persistently(|| api.patch_status(&name, &params, &patch)).await;
        self.typed(
            &patched.unwrap_or_else(|error| panic!("patching the status of {name}: {error}")),
        )
    }

    /// Writes something that no type of ours can hold, as a kubelet or a user may: lists are merged where Kubernetes does so.
    pub async fn spoil<K: Kind>(&self, object: &K, subresource: Option<&str>, mut patch: Value) {
        self.of.translate(&mut patch);
        let (api, name) = (self.api_of(object), object.name_any());
        let core = K::group(&()).is_empty();
        let patch = if core { Patch::Strategic(patch) } else { Patch::Merge(patch) };
        let params = PatchParams::default();
        let patched = match subresource {
            Some(subresource) => api.patch_subresource(subresource, &name, &params, &patch).await,
            None => api.patch(&name, &params, &patch).await,
        };
        patched.unwrap_or_else(|error| panic!("patching {name}: {error}"));
    }

    /// Scales an object as `kubectl scale` does; where there is one, with kubectl itself.
    pub async fn scale<K: Kind>(&self, object: &K, replicas: i32) {
        let name = object.name_any();
        let cluster = match &self.stage {
            Stage::Testbed { .. } => {
                let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                let scaled =
                    self.api_of(object).patch_scale(&name, &PatchParams::default(), &patch).await;
                scaled.unwrap_or_else(|error| panic!("scaling {name}: {error}"));
                return;
            }
            Stage::Real(cluster) => cluster,
            Stage::Shared(shared) => &shared.cluster,
        };
        let (plural, replicas) = (K::plural(&()), format!("--replicas={replicas}"));
        let scaled = cluster.kubectl(&["scale", &plural, &name, &replicas]).await;
        let scaled = scaled.unwrap_or_else(|error| panic!("kubectl: {error}"));
        assert!(scaled.status.success(), "{}", String::from_utf8_lossy(&scaled.stderr));
    }

    pub async fn scale_of<K: Kind>(&self, object: &K) -> Scale {
        let scale = self.api_of(object).get_scale(&object.name_any()).await;
        scale.unwrap_or_else(|error| panic!("reading the scale of {}: {error}", object.name_any()))
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

    /// What can be read of the object: a story may have spoilt it.
    fn typed<K: Kind>(&self, object: &DynamicObject) -> K {
        let value = serde_json::to_value(object);
        let mut value = value.unwrap_or_else(|error| panic!("reading {object:?}: {error}"));
        self.of.translate_back(&mut value);
        let read = decode::decode(&K::kind(&()), value).object();
        read.unwrap_or_else(|| panic!("reading {object:?}"))
    }

    /// The object as the API server has it, in the words of its cloud: hashes are made of those.
    pub fn served<K: Kind>(&self, object: &K) -> K {
        let value = serde_json::to_value(object).and_then(|mut value| {
            self.of.translate(&mut value);
            serde_json::from_value(value)
        });
        value.unwrap_or_else(|error| panic!("writing {object:?}: {error}"))
    }

    /// KWOK's NodeClass stands for that of any cloud.
    fn resource<K: Kind>(&self) -> ApiResource {
        if K::kind(&()) != kwok::KIND {
            return ApiResource::erase::<K>(&());
        }
        let class = self.of.node_class();
        let gvk = GroupVersionKind::gvk(&class.group, &class.version, &class.kind);
        ApiResource::from_gvk_with_plural(&gvk, &class.plural)
    }

    /// Whether a kind has namespaces is known to its type; here it follows from the object, so that one helper serves all.
    fn api_of<K: Kind>(&self, object: &K) -> Api<DynamicObject> {
        self.api::<K>(object.namespace())
    }

    fn api<K: Kind>(&self, namespace: Option<String>) -> Api<DynamicObject> {
        let resource = self.resource::<K>();
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client(), &namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        }
    }
}

/// Asks again what a server under load did not answer. Only for what may be asked twice.
async fn persistently<T, F>(mut ask: impl FnMut() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    let mut tries = 1;
    loop {
        match ask().await {
            Err(error) if is_passing(&error) && tries < 5 => {
                tokio::time::sleep(Duration::from_millis(200 * tries)).await;
                tries += 1;
            }
            answer => return answer,
        }
    }
}

fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 429 | 500 | 503 | 504),
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
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
