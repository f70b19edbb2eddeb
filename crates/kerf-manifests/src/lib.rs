//! An index from objects in files: manifests as one writes them, or dumps of a cluster. It adds what a cluster would have
//! added by itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{
        Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate,
        ReplicationController, Service,
    },
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass},
};
use kerf_api::{
    CapacityBuffer, GROUP, NodeClaim, NodeClass, NodeOverlay, NodePool, labels::LabelRules,
};
use kerf_cluster::{Cluster, Key, Kind};
use kube_core::{DynamicObject, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use workloads::{Workload, Workloads};

mod defaults;
mod dump;
mod fields;
mod lines;
mod offline;
mod syntax;
mod times;
mod workloads;

pub use dump::{
    BufferTarget, dumped, dumped_node_class, dumped_resources, dumped_with_template,
    referenced_node_classes, targets_of_buffers,
};
pub use fields::trim;
pub use lines::Lines;
pub use offline::Offline;
pub use syntax::SyntaxProblem;
pub use times::newest;
pub use workloads::{Expanded, MOST_PODS};

/// Collects objects. A later one takes the place of an earlier one of the same kind and name.
#[derive(Debug, Default)]
pub struct Loader {
    cluster: Cluster,
    workloads: Workloads,
    passed_over: BTreeMap<String, usize>,
    newest: Option<Timestamp>,
    /// Group and kind of the NodeClasses that are taken in.
    node_classes: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct Loaded {
    pub cluster: Cluster,
    /// Workloads that had no pods and got the ones that they ask for.
    pub expanded: Vec<Expanded>,
    /// Kinds that decisions do not depend on, and how many objects of each there were.
    pub passed_over: BTreeMap<String, usize>,
}

/// What is wrong with a document.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("it is not a Kubernetes object: apiVersion and kind are missing")]
    NotAnObject,
    #[error(
        "it is a scenario of kerf simulate, not a Kubernetes object; run kerf simulate with it"
    )]
    Scenario,
    #[error("{kind} of {api_version} is not read; convert it to {wanted}")]
    OtherVersion { kind: String, api_version: String, wanted: &'static str },
    #[error("{kind}: metadata.name is missing")]
    Nameless { kind: String },
    #[error("{kind} {name}: {problem}")]
    Unreadable {
        kind: String,
        name: String,
        field: String,
        /// Names the field.
        problem: String,
    },
    #[error("{kind} {name}: {field}: Invalid value: {value}: must be greater than or equal to 0")]
    Negative { kind: &'static str, name: Key, field: &'static str, value: i32 },
    #[error("item {item}: {source}")]
    Item { item: usize, source: Box<LoadError> },
}

impl LoadError {
    /// The field that it is about, from the root of the document.
    pub fn field(&self) -> String {
        match self {
            Self::Unreadable { field, .. } => field.clone(),
            Self::Negative { field, .. } => (*field).to_owned(),
            Self::Nameless { .. } => "metadata".to_owned(),
            Self::OtherVersion { .. } => "apiVersion".to_owned(),
            Self::NotAnObject | Self::Scenario => String::new(),
            Self::Item { item, source } => format!("items[{}].{}", item - 1, source.field()),
        }
    }
}

impl Loader {
    /// A loader that takes in NodeClasses of these groups and kinds, and passes over those of others.
    pub fn knowing(node_classes: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { node_classes: node_classes.into_iter().collect(), ..Self::default() }
    }

    /// Takes in one object, or a list of them as `kubectl get -o json` prints it.
    pub fn add(&mut self, document: Value) -> Result<(), LoadError> {
        self.newest = self.newest.max(newest(&document));
        self.take_in(document)
    }

    /// The last time that what was added knows of; nothing for manifests, which know of none.
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    fn take_in(&mut self, document: Value) -> Result<(), LoadError> {
        let text = |field: &str| document.get(field).and_then(Value::as_str).map(str::to_owned);
        let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
            let has = |field: &str| document.get(field).is_some_and(|it| !it.is_null());
            let is_scenario = has("pools") && (has("workloads") || has("length"));
            return Err(if is_scenario { LoadError::Scenario } else { LoadError::NotAnObject });
        };
        match (kind.strip_suffix("List"), document.get("items")) {
            (Some(of), Some(Value::Array(_))) => self.add_items(&api_version, of, document),
            _ => self.add_object(&api_version, &kind, document),
        }
    }

    /// Everything that was added, with what a cluster would have added to it.
    pub fn finish(mut self, rules: &LabelRules, now: Timestamp) -> Loaded {
        let expanded = self.workloads.expand(&mut self.cluster);
        let cluster = &mut self.cluster;
        let judged = cluster.pools().values().filter_map(|pool| defaults::pool(pool, rules, now));
        for pool in judged.collect::<Vec<_>>() {
            cluster.apply(pool);
        }
        workloads::add_ephemeral_claims(cluster);
        defaults::storage_classes(cluster);
        defaults::bind_claims(cluster);
        defaults::namespaces(cluster);
        Loaded { cluster: self.cluster, expanded, passed_over: self.passed_over }
    }

    /// The items of a typed list (`PodList`) do not say what they are.
    fn add_items(&mut self, version: &str, of: &str, mut list: Value) -> Result<(), LoadError> {
        let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
            return Ok(());
        };
        for (index, mut item) in items.into_iter().enumerate() {
            if let Some(object) = item.as_object_mut().filter(|_| !of.is_empty()) {
                object.entry("apiVersion").or_insert_with(|| version.into());
                object.entry("kind").or_insert_with(|| of.into());
            }
            let at = |source| LoadError::Item { item: index + 1, source: Box::new(source) };
            self.take_in(item).map_err(at)?;
        }
        Ok(())
    }

    fn add_object(
        &mut self,
        api_version: &str,
        kind: &str,
        mut object: Value,
    ) -> Result<(), LoadError> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        if self
            .node_classes
            .iter()
            .any(|known| (known.0.as_str(), known.1.as_str()) == (group, kind))
        {
            let class = read::<DynamicObject>(kind, object)?;
            self.cluster.apply(NodeClass::from_object(group, kind, class));
            return Ok(());
        }
        if !fields::is_read(api_version, kind) {
            return self.pass_over(api_version, kind);
        }
        fields::trim(&mut object);
        let cluster = &mut self.cluster;
        match kind {
            "NodePool" => load::<NodePool>(cluster, kind, object),
            "NodeClaim" => load::<NodeClaim>(cluster, kind, object),
            "NodeOverlay" => load::<NodeOverlay>(cluster, kind, object),
            "Node" => load::<Node>(cluster, kind, object),
            "Namespace" => load::<Namespace>(cluster, kind, object),
            "PersistentVolume" => load::<PersistentVolume>(cluster, kind, object),
            "StorageClass" => load::<StorageClass>(cluster, kind, object),
            "CSINode" => load::<CSINode>(cluster, kind, object),
            "Pod" => load_pod(cluster, kind, object),
            "DaemonSet" => load_namespaced::<DaemonSet>(cluster, kind, object),
            "PodDisruptionBudget" => load_namespaced::<PodDisruptionBudget>(cluster, kind, object),
            "PersistentVolumeClaim" => {
                load_namespaced::<PersistentVolumeClaim>(cluster, kind, object)
            }
            "Deployment" => self.load_set::<Deployment>(kind, object),
            "ReplicaSet" => self.load_set::<ReplicaSet>(kind, object),
            "StatefulSet" => self.load_set::<StatefulSet>(kind, object),
            "Service" => load_namespaced::<Service>(cluster, kind, object),
            "PodTemplate" => load_namespaced::<PodTemplate>(cluster, kind, object),
            "CapacityBuffer" => load_namespaced::<CapacityBuffer>(cluster, kind, object),
            "ReplicationController" => {
                load_namespaced::<ReplicationController>(cluster, kind, object)
            }
            "Job" => self.load_workload::<Job>(kind, object),
            _ => self.pass_over(api_version, kind),
        }
    }

    fn load_workload<W>(&mut self, kind: &str, object: Value) -> Result<(), LoadError>
    where
        W: DeserializeOwned + ResourceExt + Into<Workload>,
    {
        self.workloads.add(in_a_namespace::<W>(read(kind, object)?).into())
    }

    /// It makes pods, and others refer to it: it tells which pods are of one kind, or a buffer keeps room for more of them.
    fn load_set<W>(&mut self, kind: &str, object: Value) -> Result<(), LoadError>
    where
        W: DeserializeOwned + ResourceExt + Kind + Clone + Into<Workload>,
    {
        let mut set = in_a_namespace::<W>(read(kind, object)?);
        let name = set.name_any();
        // The pods that are made for it name it by this.
        set.meta_mut().uid.get_or_insert(name);
        self.cluster.apply(set.clone());
        self.workloads.add(set.into())
    }

    fn pass_over(&mut self, api_version: &str, kind: &str) -> Result<(), LoadError> {
        let ours = api_version.split_once('/').is_some_and(|(group, _)| group == GROUP);
        if let Some(wanted) = fields::version_read(api_version, kind).filter(|_| ours) {
            let (kind, api_version) = (kind.to_owned(), shortened(api_version));
            return Err(LoadError::OtherVersion { kind, api_version, wanted });
        }
        *self.passed_over.entry(kind.to_owned()).or_default() += 1;
        Ok(())
    }
}

fn load<K: Kind + DeserializeOwned>(
    cluster: &mut Cluster,
    kind: &str,
    object: Value,
) -> Result<(), LoadError> {
    cluster.apply::<K>(read(kind, object)?);
    Ok(())
}

fn load_namespaced<K: Kind + DeserializeOwned + ResourceExt>(
    cluster: &mut Cluster,
    kind: &str,
    object: Value,
) -> Result<(), LoadError> {
    cluster.apply(in_a_namespace::<K>(read(kind, object)?));
    Ok(())
}

fn load_pod(cluster: &mut Cluster, kind: &str, object: Value) -> Result<(), LoadError> {
    let mut pod: Pod = in_a_namespace(read(kind, object)?);
    defaults::pod(&mut pod);
    cluster.apply(pod);
    Ok(())
}

fn read<K: DeserializeOwned>(kind: &str, object: Value) -> Result<K, LoadError> {
    let metadata = |field: &str| {
        let text = object.pointer(field).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let Some(name) = metadata("/metadata/name") else {
        return Err(LoadError::Nameless { kind: kind.to_owned() });
    };
    let name = match metadata("/metadata/namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    };
    let unreadable = |field: String, problem: &str| LoadError::Unreadable {
        kind: kind.to_owned(),
        name: shortened(&name),
        field,
        problem: shortened(problem),
    };
    if name.len() > LONGEST_NAME {
        let problem = format!("metadata.name: no object has a name of {} bytes", name.len());
        return Err(unreadable("metadata.name".to_owned(), &problem));
    }
    serde_path_to_error::deserialize(object)
        .map_err(|error| unreadable(error.path().to_string(), &error.to_string()))
}

/// What the API server takes, with the namespace before it.
const LONGEST_NAME: usize = 63 + 1 + 253;

/// As much of what a file says as a sentence has room for: errors quote values, and those may be of any length.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 400;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn in_a_namespace<K: ResourceExt>(mut object: K) -> K {
    let namespace = &mut object.meta_mut().namespace;
    if namespace.as_ref().is_none_or(String::is_empty) {
        *namespace = Some("default".to_owned());
    }
    object
}

#[cfg(test)]
mod tests;
