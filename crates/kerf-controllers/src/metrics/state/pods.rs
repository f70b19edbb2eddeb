//! Gauges that every pod may have.

use std::{iter, sync::Arc};

use jiff::Timestamp;
use kerf_api::labels;
use kerf_cluster::{Cluster, Pod};
use kerf_model::pod::Phase;
use kube::ResourceExt;

use super::{Series, seconds};
use crate::{context::Context, metrics::pods::Waiting, transitions::Labels};

/// How many pods are looked at before the index is left to the watches again, and how many are held as text at a time.
const PODS_AT_A_TIME: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(super) enum PodGauge {
    OfAll(OfPod),
    OfWaiting(OfWaiting),
}

/// Told from the pod itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum OfPod {
    State,
    Unstarted,
    Unbound,
}

/// Told from what planning did for a pod that has not started.
#[derive(Clone, Copy, Debug)]
pub(super) enum OfWaiting {
    Undecided,
    Unstarted,
    Unbound,
}

impl PodGauge {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name.strip_prefix("karpenter_pods_")? {
            "state" => Self::OfAll(OfPod::State),
            "unstarted_time_seconds" => Self::OfAll(OfPod::Unstarted),
            "unbound_time_seconds" => Self::OfAll(OfPod::Unbound),
            "provisioning_scheduling_undecided_time_seconds" => {
                Self::OfWaiting(OfWaiting::Undecided)
            }
            "provisioning_unstarted_time_seconds" => Self::OfWaiting(OfWaiting::Unstarted),
            "provisioning_unbound_time_seconds" => Self::OfWaiting(OfWaiting::Unbound),
            _ => return None,
        })
    }
}

pub(super) fn series<'a>(
    context: &'a Context,
    gauge: PodGauge,
    now: Timestamp,
) -> Box<dyn Iterator<Item = (Labels, f64)> + 'a> {
    match gauge {
        PodGauge::OfAll(gauge) => Box::new(of_all(context, gauge, now)),
        PodGauge::OfWaiting(gauge) => {
            let waiting = of_waiting(context);
            Box::new(waiting.filter_map(move |waiting| gauge.of(&waiting, now)))
        }
    }
}

fn of_all(context: &Context, gauge: OfPod, now: Timestamp) -> impl Iterator<Item = (Labels, f64)> {
    let pods: Vec<Arc<Pod>> = context.index.read().pods().values().cloned().collect();
    let pieces = pods.len().div_ceil(PODS_AT_A_TIME);
    (0..pieces).flat_map(move |piece| {
        let from = piece * PODS_AT_A_TIME;
        let to = pods.len().min(from + PODS_AT_A_TIME);
        let cluster = context.index.read();
        let series = pods[from..to].iter().filter_map(|pod| gauge.of(&cluster, pod, now));
        series.collect::<Series>()
    })
}

fn of_waiting(context: &Context) -> impl Iterator<Item = Waiting> {
    let mut last = None;
    let pieces = iter::from_fn(move || {
        let piece = context.metrics.pods.waiting(last.as_ref(), PODS_AT_A_TIME);
        last = Some(piece.last()?.pod.clone());
        Some(piece)
    });
    pieces.flatten()
}

impl OfPod {
    fn of(self, cluster: &Cluster, pod: &Pod, now: Timestamp) -> Option<(Labels, f64)> {
        let waits = pod.phase() == Some(Phase::Pending);
        let is_bound = pod.node_name().is_some();
        let own = || own(pod.name().to_owned(), pod.namespace().to_owned());
        let age = || pod.created().map_or(0.0, |created| seconds(created, now));
        match self {
            Self::State => Some((state_of(cluster, pod, own()), 1.0)),
            Self::Unstarted => waits.then(|| (own(), age())),
            Self::Unbound => (waits && !is_bound).then(|| {
                let asks_for_devices = crate::metrics::pods::asks_for_devices(pod);
                (with_devices(own(), asks_for_devices), age())
            }),
        }
    }
}

impl OfWaiting {
    fn of(self, waiting: &Waiting, now: Timestamp) -> Option<(Labels, f64)> {
        let since = match self {
            Self::Undecided => waiting.undecided_since,
            Self::Unstarted => waiting.placed_at,
            Self::Unbound => waiting.placed_at.filter(|_| !waiting.bound),
        };
        let pod = &waiting.pod;
        since.map(|since| {
            let own = own(pod.name.clone(), pod.namespace.clone());
            let labels = match self {
                Self::Unbound => with_devices(own, waiting.asks_for_devices),
                Self::Undecided | Self::Unstarted => own,
            };
            (labels, seconds(since, now))
        })
    }
}

fn with_devices(mut own: Labels, asks_for_devices: bool) -> Labels {
    own.push(("dynamic_resources".to_owned(), asks_for_devices.to_string()));
    own
}

fn own(name: String, namespace: String) -> Labels {
    vec![("name".to_owned(), name), ("namespace".to_owned(), namespace)]
}

/// Where a pod is, and what it is doing there.
fn state_of(cluster: &Cluster, pod: &Pod, own: Labels) -> Labels {
    let node_name = pod.node_name().unwrap_or_default();
    let node = cluster.nodes().named(node_name);
    let label = |key: &str| node.and_then(|node| node.labels().get(key)).cloned();
    let phase = pod.phase().map_or("", Phase::as_str);
    let managed = label(labels::NODE_POOL).is_some();
    let mut all = own;
    all.extend(
        [
            ("owner", owner(pod)),
            ("node", node_name.to_owned()),
            ("scheduled", (!node_name.is_empty()).to_string()),
            ("nodepool", label(labels::NODE_POOL).unwrap_or_default()),
            ("zone", label(labels::ZONE).unwrap_or_default()),
            ("arch", label(labels::ARCH).unwrap_or_default()),
            ("capacity_type", label(labels::CAPACITY_TYPE).unwrap_or_default()),
            ("instance_type", label(labels::INSTANCE_TYPE).unwrap_or_default()),
            ("phase", phase.to_owned()),
            (
                "ready",
                pod.ready().map(|ready| ready.status.as_str().to_lowercase()).unwrap_or_default(),
            ),
            ("managed", managed.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    all
}

fn owner(pod: &Pod) -> String {
    let Some(owner) = pod.owners().first() else { return String::new() };
    let namespace = pod.namespace();
    let kind = owner.kind.to_lowercase();
    format!("/apis/{}/namespaces/{namespace}/{kind}s/{}", owner.api_version, owner.name)
}
