//! A problem from its file, as Kerf's snapshot.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1 as k8s;
use kerf_model::labels::{CAPACITY_TYPE, KnownLabels, ZONE};
use kerf_model::pod::PodReader;
use kerf_model::snapshot::by_name;
use kerf_model::{
    InstanceType, Node, Offering, Overhead, Pod, Pool, Price, Requirement, Requirements, Resources,
    Snapshot,
};
use serde::Deserialize;

/// The annotation of a virtual pod that names its buffer.
const BUFFER: &str = "karpenter.sh/capacity-buffer-name";

/// Reads one object per line: nodes before their pods.
pub(crate) fn read(file: &str) -> Result<Snapshot> {
    let lines =
        BufReader::new(File::open(file).with_context(|| format!("opening {file}"))?).lines();
    let mut labels = KnownLabels::default();
    // Labels of upstream's benchmark catalogue.
    labels.well_known.extend(["size", "special", "integer"].map(str::to_owned));
    let mut problem = Problem {
        pod_reader: PodReader::new(&labels),
        instance_types: Vec::new(),
        nodes: Vec::new(),
        pods: Vec::new(),
        virtual_pods: Vec::new(),
    };
    for (at, line) in lines.enumerate() {
        problem.add(&line?).with_context(|| format!("{file}, line {}", at + 1))?;
    }
    let pools = by_name([Arc::new(pool(problem.instance_types)?)]);
    let Problem { nodes, pods, virtual_pods, .. } = problem;
    let nodes = nodes.into_iter().map(Arc::new).collect();
    let labels = Arc::new(labels);
    Ok(Snapshot { labels, pools, nodes, pods, virtual_pods, ..Snapshot::default() })
}

struct Problem<'a> {
    pod_reader: PodReader<'a>,
    instance_types: Vec<Arc<InstanceType>>,
    nodes: Vec<Node>,
    pods: Vec<Arc<Pod>>,
    virtual_pods: Vec<Arc<Pod>>,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
struct Machine {
    name: String,
    capacity: Amounts,
    overhead: Amounts,
    labels: BTreeMap<String, Vec<String>>,
    offerings: Vec<Terms>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terms {
    capacity_type: String,
    zone: String,
    price: f64,
}

type Amounts = BTreeMap<String, String>;

impl Problem<'_> {
    fn add(&mut self, line: &str) -> Result<()> {
        match serde_json::from_str::<Kind>(line)?.kind.as_str() {
            "InstanceType" => {
                let machine: Machine = serde_json::from_str(line)?;
                self.instance_types.push(Arc::new(machine.into_instance_type()?));
            }
            "Node" => self.nodes.push(node(serde_json::from_str(line)?)?),
            "Pod" => {
                let pod: k8s::Pod = serde_json::from_str(line)?;
                let buffer = pod.metadata.annotations.as_ref().and_then(|all| all.get(BUFFER));
                let buffer = buffer.map(|name| name.as_str().into());
                let pod = Arc::new(Pod { buffer, ..self.pod_reader.read(&pod)? });
                match &pod.node_name {
                    None if pod.buffer.is_some() => self.virtual_pods.push(pod),
                    None => self.pods.push(pod),
                    Some(name) => {
                        let node = self.nodes.last_mut().filter(|node| node.name == *name);
                        node.context("a pod does not follow its node")?.pods.push(pod);
                    }
                }
            }
            other => bail!("{other:?} is not a kind of object that a problem has"),
        }
        Ok(())
    }
}

fn pool(instance_types: Vec<Arc<InstanceType>>) -> Result<Pool> {
    let limits = amounts([("cpu", "10000000"), ("memory", "10000000Gi")])?;
    Ok(Pool { name: "bench".to_owned(), instance_types, limits, ..Pool::default() })
}

impl Machine {
    fn into_instance_type(self) -> Result<InstanceType> {
        let requirements = self.labels.iter().map(|(key, values)| match values.as_slice() {
            [] => Requirement::does_not_exist(key),
            values => Requirement::is_in(key, values),
        });
        let offerings = self.offerings.iter().map(|terms| Offering {
            requirements: Requirements::new([
                Requirement::is_in(CAPACITY_TYPE, [&terms.capacity_type]),
                Requirement::is_in(ZONE, [&terms.zone]),
            ]),
            price: Price::from_f64(terms.price),
            available: true,
            ..Offering::default()
        });
        let overhead = Overhead { kube_reserved: amounts(&self.overhead)?, ..Overhead::default() };
        Ok(InstanceType::new(
            &self.name,
            Requirements::new(requirements),
            offerings.collect(),
            amounts(&self.capacity)?,
            overhead,
        ))
    }
}

/// A node of the pool, ready for pods.
fn node(node: k8s::Node) -> Result<Node> {
    let name = node.metadata.name.context("a node has no name")?;
    let status = node.status.context("a node has no status")?;
    let resources =
        |list: Option<BTreeMap<_, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>| {
            amounts(list.iter().flatten().map(|(name, amount)| (name, &amount.0)))
        };
    Ok(Node {
        claim: Some(name.clone()),
        pool: Some("bench".to_owned()),
        name,
        labels: node.metadata.labels.unwrap_or_default(),
        capacity: resources(status.capacity)?,
        allocatable: resources(status.allocatable)?,
        initialized: true,
        exists: true,
        ..Node::default()
    })
}

fn amounts(
    list: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
) -> Result<Resources> {
    let mut resources = Resources::new();
    for (name, amount) in list {
        resources.set(name.as_ref(), amount.as_ref().parse()?);
    }
    Ok(resources)
}
