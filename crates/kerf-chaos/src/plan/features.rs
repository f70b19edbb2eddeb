//! What an operator does only with a feature gate: buffers, overlays, repair, and cheaper spot nodes for spot nodes.
//!
//! All of it is drawn from a stream of its own, so that what else happens in a seed stays what it is when this changes.

use kerf_testbed::Random;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Action, MINUTE, choose};

/// The gates of both replicas. A plan that names none has those that are on by default and no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "gates are independent switches")]
pub struct Gates {
    pub node_repair: bool,
    pub spot_to_spot: bool,
    pub node_overlay: bool,
    pub capacity_buffer: bool,
    pub terminate_first_drift: bool,
    pub terminate_first_repair: bool,
    pub pod_deletion_cost: bool,
}

/// What happens because a feature is on: each action, and how long after the first.
type Generator = fn(&mut Random) -> Vec<(u64, Action)>;

/// What a buffer of no workload is for.
const SHAPE: &str = "shape";
const BUFFERS: [&str; 2] = ["b0", "b1"];
const OVERLAYS: [&str; 3] = ["o0", "o1", "o2"];

impl Gates {
    pub(super) fn of(random: &mut Random) -> Self {
        Self {
            node_repair: random.chance(0.4),
            spot_to_spot: random.chance(0.4),
            node_overlay: random.chance(0.4),
            capacity_buffer: random.chance(0.4),
            ..Self::default()
        }
    }

    /// Those that came later, so that the others stay what they were in each seed.
    pub(super) fn and_later(self, random: &mut Random) -> Self {
        Self {
            terminate_first_drift: random.chance(0.25),
            terminate_first_repair: random.chance(0.25),
            pod_deletion_cost: random.chance(0.25),
            ..self
        }
    }

    /// What is there before anything happens.
    pub(super) fn first(self) -> Option<Value> {
        let template = json!({
            "apiVersion": "v1", "kind": "PodTemplate",
            "metadata": {"name": SHAPE, "namespace": "default"},
            "template": {"metadata": {"labels": {"app": SHAPE}}, "spec": {"containers": [{
                "name": "main", "image": "main",
                "resources": {"requests": {"cpu": "900m", "memory": "700Mi"}},
            }]}},
        });
        self.capacity_buffer.then_some(template)
    }

    /// What happens between two calms, each with its time.
    pub(super) fn storm(self, random: &mut Random, from: u64, until: u64) -> Vec<(u64, Action)> {
        let all: [(bool, Generator); 3] =
            [(self.node_repair, ail), (self.node_overlay, overlay), (self.capacity_buffer, buffer)];
        let kinds: Vec<_> = all.iter().filter(|(is_on, _)| *is_on).map(|(_, act)| *act).collect();
        let (mut now, mut all) = (from, Vec::new());
        while now < until && !kinds.is_empty() {
            let actions = choose(random, &kinds)(random);
            all.extend(actions.into_iter().map(|(later, it)| ((now + later).min(until - 1), it)));
            now += 1 + random.below(40 * MINUTE);
        }
        all
    }
}

/// A machine says that it is unwell, and sometimes it recovers before anybody minds.
fn ail(random: &mut Random) -> Vec<(u64, Action)> {
    let which = random.next_u64();
    let kind = *choose(random, &["KWOKUnhealthy", "KWOKUnhealthy", "KWOKRebootRequired"]);
    let ails = |on: bool| Action::Ail { which, kind: kind.to_owned(), on };
    let recovers = random.below(20 * MINUTE);
    if random.chance(0.3) {
        return vec![(0, ails(true)), (recovers, ails(false))];
    }
    vec![(0, ails(true))]
}

/// Prices that only the user knows of, some of them about nothing.
fn overlay(random: &mut Random) -> Vec<(u64, Action)> {
    let name = (*choose(random, &OVERLAYS)).to_owned();
    let is_in = |key: &str, value: &str| json!([{"key": key, "operator": "In", "values": [value]}]);
    let requirements = match random.below(5) {
        0 => is_in("karpenter.sh/capacity-type", choose::<&str>(random, &["spot", "on-demand"])),
        1 => is_in("topology.kubernetes.io/zone", "test-zone-b"),
        2 => is_in("karpenter.sh/nodepool", choose::<&str>(random, &["p0", "haven"])),
        3 => is_in("karpenter.sh/capacity-type", "gold"),
        _ => is_in("karpenter.kwok.sh/instance-family", choose::<&str>(random, &["c", "s", "m"])),
    };
    let mut spec = json!({"requirements": requirements, "weight": 1 + random.below(3)});
    if random.chance(0.2) {
        spec["price"] = json!(choose(random, &["0.01", "3"]));
    } else {
        spec["priceAdjustment"] = json!(choose(random, &["-70%", "-5%", "+40%", "-100%", "+0.2"]));
    }
    let object = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
        "metadata": {"name": name}, "spec": spec,
    });
    // One by that name may be there.
    let delete = || Action::Delete { kind: "NodeOverlay".to_owned(), name: name.clone() };
    let mut actions = vec![(0, delete()), (1, Action::Create(object))];
    if random.chance(0.6) {
        actions.push((random.below(90 * MINUTE), delete()));
    }
    actions
}

/// Room for pods to come, for a shape or for a workload that may not be there.
fn buffer(random: &mut Random) -> Vec<(u64, Action)> {
    let kind = "CapacityBuffer".to_owned();
    let name = (*choose(random, &BUFFERS)).to_owned();
    if random.chance(0.3) {
        let patch = json!({"spec": {"replicas": random.below(9)}});
        return vec![(0, Action::Patch { kind, name, patch })];
    }
    let mut spec = match random.below(3) {
        0 => {
            let workload = format!("w{}", 1 + random.below(8));
            json!({"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": workload}})
        }
        _ => json!({"podTemplateRef": {"name": SHAPE}}),
    };
    match random.below(3) {
        0 => spec["limits"] = json!({"cpu": (1 + random.below(8)).to_string()}),
        1 if spec.get("scalableRef").is_some() => spec["percentage"] = json!(50),
        _ => spec["replicas"] = json!(random.below(7)),
    }
    let object = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    });
    let delete = || Action::Delete { kind: kind.clone(), name: name.clone() };
    let mut actions = vec![(0, delete()), (1, Action::Create(object))];
    if random.chance(0.6) {
        actions.push((random.below(90 * MINUTE), delete()));
    }
    actions
}
