//! A scenario: what a cluster is made of and what happens to it, as written in a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use jiff::Timestamp;
use kerf_admission::Definitions;
use kerf_api::GoDuration;
use kerf_manifests::{Lines, SyntaxProblem};
use kerf_model::Quantity;
use kerf_testbed::actors::ClientPace;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    cloud::Cloud,
    initial::InitialCluster,
    load::Load,
    objects,
    play::PlayError,
    policy::{AS_IS, Policy},
    stock::Stock,
};

mod record;
mod snapshot;
#[cfg(test)]
mod tests;
mod workload;

pub use record::{Moment, Recorded};

pub(crate) use workload::{PodTemplate, Workload, default_namespace, wave};

/// The kinds that a simulated cluster has.
static SHIPPED: LazyLock<Definitions> = LazyLock::new(|| Definitions::of(&Cloud::default().crds()));

/// The file as a whole. Times of day are UTC, and all times of events count from the start.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scenario {
    /// The file's name where it is not given.
    #[serde(default)]
    pub name: String,
    /// What the scenario is about, for reports.
    #[serde(default)]
    pub description: String,
    pub length: GoDuration,
    /// All chance comes from it.
    #[serde(default)]
    pub seed: u64,
    #[serde(default = "new_year")]
    pub start: Timestamp,
    #[serde(default)]
    pub timing: Timing,
    /// Settings of the operator under every policy, by the names of its flags.
    #[serde(default)]
    pub operator: BTreeMap<String, Value>,
    /// A file as `--instance-types` takes it, relative to the scenario.
    #[serde(default)]
    pub instance_types_file: Option<PathBuf>,
    /// Instance types written out. Without these and without a file there are the ones of the cloud.
    #[serde(default)]
    pub instance_types: Vec<InstanceTypeEntry>,
    #[serde(default)]
    pub prices: Vec<PriceMovement>,
    pub pools: Vec<PoolEntry>,
    /// They count under policies with the feature gate `NodeOverlay`, in decisions and in costs.
    #[serde(default)]
    pub overlays: Vec<OverlayEntry>,
    /// They count under policies with the feature gate `CapacityBuffer`.
    #[serde(default)]
    pub buffers: Vec<BufferEntry>,
    pub workloads: Vec<Workload>,
    /// Policies besides the built-in ones.
    #[serde(default)]
    pub policies: Vec<Policy>,
    /// Where machines come from.
    #[serde(skip)]
    pub cloud: Cloud,
    /// What becomes of the numbers of pods.
    #[serde(skip)]
    pub load: Load,
    /// How fast the controllers of workloads create pods. `None`: all at once.
    #[serde(skip)]
    pub pace: Option<ClientPace>,
    /// What is there from the start. Snapshots bring it; files cannot.
    #[serde(skip)]
    pub initial: InitialCluster,
    /// What happens to that cluster, where it was recorded.
    #[serde(skip)]
    pub record: Vec<Moment>,
}

/// How long things take in the cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Timing {
    /// From the launch of an instance until its node is ready.
    pub node_ready: GoDuration,
    /// From binding until a pod runs: image pull and start.
    pub pod_start: GoDuration,
    /// From running until a pod is ready.
    pub pod_ready: GoDuration,
    /// From eviction until a pod is gone.
    pub pod_terminate: GoDuration,
}

/// An instance type in a few words.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct InstanceTypeEntry {
    pub name: String,
    /// A quantity: `4`, `500m`.
    pub cpu: Scalar,
    pub memory: Scalar,
    #[serde(default = "most_pods")]
    pub pods: u32,
    #[serde(default = "amd64")]
    pub arch: String,
    /// Per hour, on demand.
    pub price: f64,
    /// Per hour, on spot; without it the type cannot be had there.
    #[serde(default)]
    pub spot_price: Option<f64>,
    #[serde(default = "zones")]
    pub zones: Vec<String>,
}

/// How prices of offerings change. Of several movements that concern an offering all apply.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PriceMovement {
    /// Names of instance types, or their beginnings with a `*` behind; none means all.
    #[serde(default)]
    pub types: Vec<String>,
    #[serde(default)]
    pub zones: Vec<String>,
    #[serde(default)]
    pub capacity_type: Option<String>,
    #[serde(default)]
    pub steps: Vec<PriceStep>,
    #[serde(default)]
    pub wander: Option<Wander>,
}

/// From a time on, prices are this many times what they were at the start.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceStep {
    pub at: GoDuration,
    pub factor: f64,
}

/// Each offering goes its own way, never further than `percent` from where it started.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wander {
    pub percent: f64,
    pub every: GoDuration,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolEntry {
    pub name: String,
    /// A NodePool's spec. A missing `nodeClassRef` means one of the cloud, and missing requirements Linux on amd64.
    #[serde(default)]
    pub spec: Map<String, Value>,
    /// Edits of the spec, such as those that make nodes drift.
    #[serde(default)]
    pub changes: Vec<PoolChange>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlayEntry {
    pub name: String,
    /// A NodeOverlay's spec.
    pub spec: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferEntry {
    pub name: String,
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// What its pods look like, where the spec names neither a PodTemplate nor a workload.
    #[serde(default)]
    pub pod: Option<PodTemplate>,
    /// A CapacityBuffer's spec.
    pub spec: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolChange {
    pub at: GoDuration,
    /// What to tell about it.
    #[serde(default)]
    pub note: String,
    /// Merged into the spec.
    pub spec: Map<String, Value>,
}

/// A text or a number, where people write either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar(pub String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) => Ok(Self(number.to_string())),
            other => Err(serde::de::Error::custom(format!("{other} is neither text nor a number"))),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error(
        "{path} is empty; write a scenario (docs/simulate.md has the format), or take a snapshot of a cluster with kerf snapshot"
    )]
    Empty { path: String },
    /// The path has the line behind it.
    #[error("{path}: it is not YAML: {problem}")]
    Syntax { path: String, problem: SyntaxProblem },
    #[error(
        "{path}: it is a Kubernetes object ({kind}), not a scenario; write a scenario (docs/simulate.md has the format), \
         take a snapshot of a cluster with kerf snapshot, or give manifests to kerf plan"
    )]
    Manifest { path: String, kind: String },
    /// Here and below: the path has the line behind it, where the field stands on one.
    #[error("{path}, at {field}: {problem}; see docs/simulate.md for the format")]
    Shape { path: String, field: String, problem: String },
    #[error("{path}, at {field}: {problem}")]
    Wrong { path: String, field: String, problem: String },
}

impl Scenario {
    /// What `kerf demo` plays.
    pub fn demo() -> Result<Self, ScenarioError> {
        Self::from_yaml(include_str!("demo.yaml"), "the demo")
    }

    pub fn from_file(path: &Path) -> Result<Self, ScenarioError> {
        let shown = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: shown.clone(), source })?;
        let mut scenario = Self::from_yaml(&text, &shown)?;
        if scenario.name.is_empty() {
            scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        }
        let directory = path.parent().unwrap_or(Path::new(""));
        scenario.instance_types_file =
            scenario.instance_types_file.map(|file| directory.join(file));
        Ok(scenario)
    }

    /// A scenario, or a snapshot of a cluster. `path` is how errors call the text.
    pub fn from_yaml(text: &str, path: &str) -> Result<Self, ScenarioError> {
        let mut value = any_yaml(text, path)?;
        if value.is_null() {
            return Err(ScenarioError::Empty { path: path.to_owned() });
        }
        if let Some(kind) = manifest_kind(&value) {
            return Err(ScenarioError::Manifest { path: placed(text, path, "kind"), kind });
        }
        let newest = kerf_manifests::newest(&value).unwrap_or_else(new_year);
        let read = match snapshot::items(&mut value) {
            Some(items) => snapshot::scenario(items, newest),
            None => shaped(value, text, path)
                .map(|scenario: Self| scenario.check().map(|()| scenario))?,
        };
        read.map_err(|Wrong { field, problem }| ScenarioError::Wrong {
            path: placed(text, path, &field),
            field,
            problem,
        })
    }

    /// The policies of the file, and `as-is` where its pools say how they are to be consolidated.
    pub fn own_policies(&self) -> Vec<Policy> {
        let as_is = self.pools.iter().any(|pool| Policy::is_said_by(&pool.spec));
        let as_is = Policy::built_in().into_iter().filter(|policy| as_is && policy.name == AS_IS);
        self.policies.iter().cloned().chain(as_is).collect()
    }

    /// The workloads whose pods a load may change, as `namespace/name`.
    pub(crate) fn scaling_workloads(&self) -> BTreeSet<String> {
        let of_sets = self.initial.sets.iter().filter(|set| set.scales);
        let of_sets = of_sets.map(|set| set.workload.clone());
        let written = self.workloads.iter().filter(|workload| workload.scales());
        written.map(Workload::full_name).chain(of_sets).collect()
    }

    /// Whether nothing happens but what the operator does.
    pub(crate) fn is_constant(&self) -> bool {
        self.workloads.iter().all(Workload::is_constant)
            && self.prices.is_empty()
            && self.pools.iter().all(|pool| pool.changes.is_empty())
            && self.record.is_empty()
    }

    /// What a reader of a report on it should know, in sentences. Fails if it could not be played.
    pub(crate) fn notes(&self) -> Result<Vec<String>, PlayError> {
        self.load.check(self)?;
        let mut notes = Stock::of(self)?.notes;
        notes.extend(self.load.note(self));
        Ok(notes)
    }

    /// The instance types of its nodes as a file for `--instance-types`, ready to edit; nothing where there are no nodes.
    pub fn instance_types_sample(&self) -> Result<Option<String>, PlayError> {
        Ok(Stock::of(self)?.sample(self))
    }

    /// Group and kind of the NodeClasses that its pools refer to, in their order.
    pub fn node_class_kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pool_templates().filter_map(|template| {
            let reference = &template["spec"]["nodeClassRef"];
            Some((reference["group"].as_str()?, reference["kind"].as_str()?))
        })
    }

    fn check(&self) -> Result<(), Wrong> {
        if self.length.as_duration().is_zero() {
            return Err(Wrong::new("length", "the length is zero; write for instance 24h"));
        }
        if self.pools.is_empty() {
            return Err(Wrong::new("pools", "there is no pool; write at least one"));
        }
        if self.instance_types_file.is_some() && !self.instance_types.is_empty() {
            let problem = "both a file and a list of instance types are given; remove one of them";
            return Err(Wrong::new("instanceTypes", problem));
        }
        unique("pools", self.pools.iter().map(|pool| &pool.name))?;
        unique("overlays", self.overlays.iter().map(|overlay| &overlay.name))?;
        unique("buffers", self.buffers.iter().map(|buffer| &buffer.name))?;
        unique("workloads", self.workloads.iter().map(|workload| &workload.name))?;
        unique("instanceTypes", self.instance_types.iter().map(|entry| &entry.name))?;
        unique("policies", self.policies.iter().map(|policy| &policy.name))?;
        for (index, entry) in self.instance_types.iter().enumerate() {
            entry.check().map_err(|wrong| wrong.within(&format!("instanceTypes[{index}]")))?;
        }
        for (index, workload) in self.workloads.iter().enumerate() {
            workload.check().map_err(|wrong| wrong.within(&format!("workloads[{index}]")))?;
        }
        for (index, pool) in self.pools.iter().enumerate() {
            pool.check().map_err(|wrong| wrong.within(&format!("pools[{index}]")))?;
        }
        for (index, overlay) in self.overlays.iter().enumerate() {
            overlay.check().map_err(|wrong| wrong.within(&format!("overlays[{index}]")))?;
        }
        for (index, buffer) in self.buffers.iter().enumerate() {
            buffer.check().map_err(|wrong| wrong.within(&format!("buffers[{index}]")))?;
        }
        for (index, movement) in self.prices.iter().enumerate() {
            movement.check().map_err(|wrong| wrong.within(&format!("prices[{index}]")))?;
        }
        Ok(())
    }
}

/// Reads YAML whose errors name the field.
pub(crate) fn read_yaml<T: DeserializeOwned>(text: &str, path: &str) -> Result<T, ScenarioError> {
    shaped(any_yaml(text, path)?, text, path)
}

/// JSON is read as such: of a large snapshot a YAML parser would take many times as long.
fn any_yaml(text: &str, path: &str) -> Result<Value, ScenarioError> {
    if text.starts_with('{')
        && let Ok(value) = serde_json::from_str(text)
    {
        return Ok(value);
    }
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let problem = SyntaxProblem::from(error);
        let first: Option<Value> = serde_saphyr::from_multiple(text).ok().and_then(first);
        match first.as_ref().and_then(manifest_kind) {
            Some(kind) => ScenarioError::Manifest { path: format!("{path}:1"), kind },
            None => ScenarioError::Syntax { path: problem.place(path), problem },
        }
    })
}

fn first(documents: Vec<Value>) -> Option<Value> {
    documents.into_iter().find(|document| !document.is_null())
}

/// What kind of object it is, if it is one and not a list of them.
fn manifest_kind(value: &Value) -> Option<String> {
    value.get("apiVersion")?.as_str()?;
    let kind = value.get("kind")?.as_str()?;
    (kind != "List").then(|| kind.to_owned())
}

fn shaped<T: DeserializeOwned>(value: Value, text: &str, path: &str) -> Result<T, ScenarioError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let field = match error.path().to_string() {
            top if top == "." => "the top level".to_owned(),
            field => field,
        };
        let problem = error.into_inner().to_string();
        ScenarioError::Shape { path: placed(text, path, &field), field, problem }
    })
}

/// The path, with the line behind it on which the field stands.
fn placed(text: &str, path: &str, field: &str) -> String {
    let line = serde_saphyr::from_str::<Lines>(text).ok().and_then(|lines| lines.of(field));
    line.map_or_else(|| path.to_owned(), |line| format!("{path}:{line}"))
}

/// A simulation keeps every object in memory, and these are more than one would wait for.
const MOST_NODES: i64 = 5_000;

impl PoolEntry {
    /// As an API server would judge it, and after each of its changes.
    fn check(&self) -> Result<(), Wrong> {
        let mut spec = Value::Object(self.spec.clone());
        check_pool(&self.name, &spec).map_err(|wrong| wrong.within("spec"))?;
        for (index, change) in self.changes.iter().enumerate() {
            objects::merge(&mut spec, &Value::Object(change.spec.clone()));
            check_pool(&self.name, &spec)
                .map_err(|wrong| wrong.within(&format!("changes[{index}].spec")))?;
        }
        Ok(())
    }
}

fn check_pool(name: &str, spec: &Value) -> Result<(), Wrong> {
    let spec = spec.as_object().cloned().unwrap_or_default();
    let entry = PoolEntry { name: name.to_owned(), spec, changes: Vec::new() };
    let pool = objects::node_pool(&entry, &Policy::default(), &Cloud::default());
    if pool["spec"]["replicas"].as_i64().is_some_and(|replicas| replicas > MOST_NODES) {
        return Err(Wrong::new("replicas", format!("a simulation has at most {MOST_NODES} nodes")));
    }
    match SHIPPED.faults(&pool).first() {
        Some(fault) => {
            let field = fault.field();
            Err(Wrong::new(field.strip_prefix("spec.").unwrap_or(field), fault.to_string()))
        }
        None => Ok(()),
    }
}

impl OverlayEntry {
    /// As an API server would judge it.
    fn check(&self) -> Result<(), Wrong> {
        match SHIPPED.faults(&objects::node_overlay(self)).first() {
            Some(fault) => Err(Wrong::new(fault.field(), fault.to_string())),
            None => Ok(()),
        }
    }
}

impl BufferEntry {
    /// As an API server would judge it.
    fn check(&self) -> Result<(), Wrong> {
        let refers = |field: &str| self.spec.contains_key(field);
        if self.pod.is_some() && (refers("podTemplateRef") || refers("scalableRef")) {
            let problem = "write only one of pod, spec.podTemplateRef and spec.scalableRef";
            return Err(Wrong::new("pod", problem));
        }
        if let Some(pod) = &self.pod {
            pod.check()?;
        }
        match SHIPPED.faults(&objects::capacity_buffer(self)).first() {
            Some(fault) => Err(Wrong::new(fault.field(), fault.to_string())),
            None => Ok(()),
        }
    }
}

impl InstanceTypeEntry {
    fn check(&self) -> Result<(), Wrong> {
        for (field, price) in [("price", Some(self.price)), ("spotPrice", self.spot_price)] {
            if price.is_some_and(|price| !(price > 0.0 && price < 1e6)) {
                let problem = "write dollars per hour above 0, such as 0.0864";
                return Err(Wrong::new(field, problem));
            }
        }
        for (field, Scalar(amount)) in [("cpu", &self.cpu), ("memory", &self.memory)] {
            let amount = amount.parse::<Quantity>();
            let amount = amount.map_err(|error| Wrong::new(field, error.to_string()))?;
            if amount <= Quantity::ZERO {
                return Err(Wrong::new(field, "write an amount above 0"));
            }
        }
        if self.zones.is_empty() {
            let problem = "the list of zones is empty; name a zone, or leave the field out";
            return Err(Wrong::new("zones", problem));
        }
        Ok(())
    }
}

impl PriceMovement {
    fn check(&self) -> Result<(), Wrong> {
        for step in &self.steps {
            if !(step.factor > 0.0 && step.factor <= 1000.0) {
                return Err(Wrong::new("steps", "a factor lies above 0, up to 1000"));
            }
        }
        if !self.steps.is_sorted_by_key(|step| step.at.as_duration()) {
            return Err(Wrong::new("steps", "they are not in chronological order"));
        }
        if let Some(wander) = &self.wander {
            if !(wander.percent > 0.0 && wander.percent < 100.0) {
                return Err(Wrong::new("wander.percent", "write a number between 0 and 100"));
            }
            if wander.every.as_duration().as_secs() < 10 {
                return Err(Wrong::new("wander.every", "prices move every 10s at most"));
            }
        }
        Ok(())
    }
}

impl Default for Timing {
    /// What a cloud with warm images takes.
    fn default() -> Self {
        Self {
            node_ready: seconds(40),
            pod_start: seconds(4),
            pod_ready: seconds(0),
            pod_terminate: seconds(4),
        }
    }
}

/// Something wrong, at a field.
#[derive(Debug)]
pub(crate) struct Wrong {
    field: String,
    problem: String,
}

impl Wrong {
    pub(crate) fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }

    fn within(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), ..self }
    }
}

fn unique<'a>(field: &str, names: impl Iterator<Item = &'a String>) -> Result<(), Wrong> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() {
            return Err(Wrong::new(field, "one of them has no name"));
        }
        if !seen.insert(name) {
            return Err(Wrong::new(field, format!("the name {name} is listed twice")));
        }
    }
    Ok(())
}

fn seconds(count: u32) -> GoDuration {
    format!("{count}s").parse().unwrap_or_else(|_| unreachable!("{count}s is a duration"))
}

/// Where the testbed's clock starts too.
fn new_year() -> Timestamp {
    Timestamp::constant(1_767_225_600, 0)
}

fn most_pods() -> u32 {
    110
}

fn amd64() -> String {
    "amd64".to_owned()
}

fn zones() -> Vec<String> {
    ["test-zone-a", "test-zone-b", "test-zone-c"].map(str::to_owned).to_vec()
}
