//! A record as a scenario: the cluster as it was when the record began, and the load that it had from then on.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kerf_api::{GoDuration, conditions};
use kerf_simulation::{Moment, Recorded, Scenario, ScenarioError};
use serde_json::{Value, json};

use crate::{
    demand::{self, Turn},
    entry::{ObjectKey, Pod, What, Workload, text},
    journal::{JournalError, Seen, Trace},
};

/// What a record says, besides what happened to its nodes.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// How often changes were not seen when they happened, and for how long in all.
    pub(crate) blind: (u32, Duration),
    /// Nodes that came while it was recorded and belong to no NodeClaim.
    pub(crate) foreign_nodes: usize,
    /// Pods that were there or came, those of daemons not counted.
    pub(crate) pods: u64,
    pub(crate) delays: Delays,
    base: Vec<Value>,
    workloads: Vec<Load>,
    objects: Vec<(i64, Recorded)>,
}

/// How long things took on the cluster. A replay takes the medians; where there are too few, its own defaults.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    /// From the launch of an instance until its node was initialised.
    pub(crate) node_ready: Vec<i64>,
    /// From the binding of a pod until it ran.
    pub(crate) pod_start: Vec<i64>,
    /// From the deletion of a pod until it was gone.
    pub(crate) pod_terminate: Vec<i64>,
}

/// Fewer say nothing.
const ENOUGH: usize = 5;

/// Pods that are alike and belong together.
#[derive(Debug)]
struct Load {
    /// Its set in the replay.
    set: String,
    workload: Workload,
    from_start: u32,
    turns: Vec<(i64, Turn)>,
}

/// A pod that is there.
struct Living {
    load: usize,
    /// Whether it counts.
    wanted: bool,
    bound: Option<i64>,
    runs: bool,
    left: Option<i64>,
}

impl Story {
    pub(crate) fn read(trace: &Trace) -> Result<Self, JournalError> {
        let mut reader = Reader {
            story: Self {
                start: trace.start(),
                end: trace.start(),
                blind: (0, Duration::ZERO),
                foreign_nodes: 0,
                pods: 0,
                delays: Delays::default(),
                base: Vec::new(),
                workloads: Vec::new(),
                objects: Vec::new(),
            },
            by_content: BTreeMap::new(),
            by_id: BTreeMap::new(),
            pods: BTreeMap::new(),
            launched: BTreeMap::new(),
            blind_until: 0,
        };
        trace.each(|seen| {
            reader.see(seen);
            Ok::<(), JournalError>(())
        })?;
        Ok(reader.story)
    }

    pub(crate) fn length(&self) -> Duration {
        Duration::try_from(self.end.duration_since(self.start)).unwrap_or_default()
    }

    /// The scenario that plays it again.
    pub(crate) fn scenario(&self, source: &str) -> Result<Scenario, ScenarioError> {
        let mut moments: Vec<Moment> = Vec::new();
        let moment = |at: i64, what| Moment { at: millis(at), what };
        moments.extend(self.objects.iter().map(|(at, what)| moment(*at, what.clone())));
        for load in &self.workloads {
            let Load { set, workload, from_start, turns } = load;
            if !is_replayed(workload) {
                continue;
            }
            let (namespace, name) = (workload.namespace.clone(), set.clone());
            let mut there = *from_start > 0;
            for (at, replicas) in demand::replicas(*from_start, turns) {
                let (namespace, name) = (namespace.clone(), name.clone());
                let what = if there {
                    Recorded::SetScales { namespace, name, replicas }
                } else {
                    let pod = Box::new(workload.pod.clone());
                    Recorded::SetComes { namespace, name, pod, replicas }
                };
                there = true;
                moments.push(moment(at, what));
            }
        }
        // Objects come before the pods that need them, and a replay is the same each time.
        moments.sort_by_key(|moment| moment.at);
        let length = whole_seconds(self.length());
        let mut scenario =
            Scenario::from_record(self.base.clone(), self.start, length, moments, source)?;
        "the record".clone_into(&mut scenario.name);
        let timing = &mut scenario.timing;
        for (field, seen) in [
            (&mut timing.node_ready, &self.delays.node_ready),
            (&mut timing.pod_start, &self.delays.pod_start),
            (&mut timing.pod_terminate, &self.delays.pod_terminate),
        ] {
            if let Some(median) = median(seen).and_then(|ms| format!("{ms}ms").parse().ok()) {
                *field = median;
            }
        }
        Ok(scenario)
    }
}

struct Reader {
    story: Story,
    /// Owner and look, to the place in the list of workloads.
    by_content: BTreeMap<String, usize>,
    by_id: BTreeMap<u32, usize>,
    pods: BTreeMap<String, Living>,
    /// Claims that have an instance and are not initialised.
    launched: BTreeMap<String, Option<i64>>,
    /// The end of the last gap.
    blind_until: i64,
}

impl Reader {
    fn see(&mut self, seen: Seen) {
        let Seen { at: time, what, of_base } = seen;
        self.story.end = self.story.end.max(time);
        let at = time.as_millisecond() - self.story.start.as_millisecond();
        match what {
            What::Workload(workload) => self.meet(workload),
            What::Pod(pod) => self.see_pod(at, &pod, of_base),
            What::PodGone(id) => {
                if let Some(mut living) = self.pods.remove(&id) {
                    self.leave(at, &mut living, false);
                    let took = living.left.map(|left| at - left);
                    self.story.delays.pod_terminate.extend(took);
                }
            }
            What::Object(object) => self.see_object(at, object, of_base),
            What::ObjectGone(key) => {
                self.launched.remove(&key.name);
                self.story.objects.extend(deleted(&key).map(|what| (at, what)));
            }
            What::Blind(time) => self.see_gap(at, time),
            What::Alive | What::BaseBegins | What::BaseEnds => {}
        }
    }

    /// Several kinds are followed, and when the API server is away all of them are out of sight at once.
    fn see_gap(&mut self, at: i64, time: u64) {
        let since = at.saturating_sub_unsigned(time);
        let (gaps, all) = &mut self.story.blind;
        *gaps += u32::from(since >= self.blind_until);
        *all += millis(at - since.max(self.blind_until).min(at));
        self.blind_until = at;
    }

    fn meet(&mut self, workload: Workload) {
        let Workload { namespace, kind, name, pod, .. } = &workload;
        let content = format!("{namespace}/{kind}/{name}/{pod}");
        let (id, next) = (workload.id, self.story.workloads.len());
        let index = *self.by_content.entry(content).or_insert(next);
        if index == next {
            let set = set_name(next, &workload.name);
            let load = Load { set, workload, from_start: 0, turns: Vec::new() };
            self.story.workloads.push(load);
        }
        self.by_id.insert(id, index);
    }

    fn see_pod(&mut self, at: i64, pod: &Pod, of_base: bool) {
        let over = pod.leaves || pod.phase.has_ended();
        if !self.pods.contains_key(&pod.id) {
            let Some(index) = self.by_id.get(&pod.of).copied() else { return };
            let load = &mut self.story.workloads[index];
            let replayed = is_replayed(&load.workload);
            if of_base && !over {
                // Daemons are among the objects, and their pods count on their nodes.
                load.from_start += u32::from(replayed);
                self.story.base.push(item(load, pod));
            } else if !over && replayed {
                load.turns.push((at, Turn::Came));
            }
            self.story.pods += u64::from(replayed);
            let living = Living {
                load: index,
                wanted: !over && replayed,
                bound: None,
                runs: of_base,
                left: None,
            };
            self.pods.insert(pod.id.clone(), living);
        }
        let Some(mut living) = self.pods.remove(&pod.id) else { return };
        if !of_base {
            if living.bound.is_none() && !pod.node.is_empty() {
                living.bound = Some(at);
            }
            if !living.runs && pod.phase == crate::entry::Phase::Running {
                living.runs = true;
                let took = living.bound.map(|bound| at - bound);
                self.story.delays.pod_start.extend(took);
            }
            if pod.leaves && living.left.is_none() {
                living.left = Some(at);
            }
            if over {
                self.leave(at, &mut living, pod.evicted.is_some());
            }
        }
        self.pods.insert(pod.id.clone(), living);
    }

    fn leave(&mut self, at: i64, living: &mut Living, evicted: bool) {
        if std::mem::take(&mut living.wanted) {
            let turns = &mut self.story.workloads[living.load].turns;
            turns.push((at, Turn::Went { evicted }));
        }
    }

    fn see_object(&mut self, at: i64, object: Value, of_base: bool) {
        match text(&object, "/kind") {
            "NodeClaim" => self.see_claim(at, &object, of_base),
            "Node" if !of_base => {
                let labels = object.pointer("/metadata/labels");
                let pool = labels.and_then(|all| all.get(kerf_api::labels::NODE_POOL));
                self.story.foreign_nodes += usize::from(pool.is_none());
            }
            "NodePool" | "DaemonSet" | "PodDisruptionBudget" | "Namespace" => {
                if !of_base {
                    self.story.objects.push((at, Recorded::Applied(object.clone())));
                }
            }
            // A NodeClass, as it was first seen: what a pool can launch stays the same.
            _ => {
                let key = ObjectKey::of(&object);
                if !self.story.base.iter().any(|known| ObjectKey::of(known) == key) {
                    self.story.base.push(object);
                }
                return;
            }
        }
        if of_base {
            self.story.base.push(object);
        }
    }

    fn see_claim(&mut self, at: i64, claim: &Value, of_base: bool) {
        let name = text(claim, "/metadata/name");
        let all = claim.pointer("/status/conditions").and_then(Value::as_array);
        let is_true = |kind: &str| {
            all.into_iter().flatten().any(|one| one["type"] == kind && one["status"] == "True")
        };
        if is_true(conditions::INITIALIZED) {
            if let Some(Some(launched)) = self.launched.insert(name.to_owned(), None) {
                self.story.delays.node_ready.push(at - launched);
            }
        } else if !text(claim, "/status/providerID").is_empty() {
            // Of one that was there already, nobody knows since when.
            self.launched.entry(name.to_owned()).or_insert((!of_base).then_some(at));
        }
    }
}

/// The pods of daemons come with their nodes, and so do static pods.
fn is_replayed(workload: &Workload) -> bool {
    workload.kind != "DaemonSet" && workload.kind != "Node"
}

/// Unlike that of any other set, and short enough for a label.
fn set_name(index: usize, owner: &str) -> String {
    let owner: String = owner.chars().take(48).collect();
    format!("w{index}-{}", owner.trim_end_matches(['-', '.']))
}

/// A pod as a list of kubectl would have it.
fn item(load: &Load, pod: &Pod) -> Value {
    let Load { set, workload, .. } = load;
    let mut item = workload.pod.clone();
    item["apiVersion"] = "v1".into();
    item["kind"] = "Pod".into();
    item["metadata"]["name"] = format!("{set}-{}", pod.id).into();
    item["metadata"]["namespace"] = workload.namespace.clone().into();
    // One kind for all: it is by their names that sets are found again.
    let kind = if is_replayed(workload) { "ReplicaSet" } else { &workload.kind };
    item["metadata"]["ownerReferences"] = json!([{"kind": kind, "name": set, "controller": true}]);
    if !pod.node.is_empty() {
        item["spec"]["nodeName"] = pod.node.clone().into();
    }
    item["status"] = json!({"phase": pod.phase.as_str()});
    if pod.phase == crate::entry::Phase::Running {
        item["status"]["conditions"] = json!([
            {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"},
        ]);
    }
    item
}

fn deleted(key: &ObjectKey) -> Option<Recorded> {
    let api_version = match key.kind.as_str() {
        "NodePool" => "karpenter.sh/v1",
        "DaemonSet" => "apps/v1",
        "PodDisruptionBudget" => "policy/v1",
        // Nodes and claims are the autoscaler's, and a namespace goes when its pods have.
        _ => return None,
    };
    let mut metadata = json!({"name": key.name});
    if !key.namespace.is_empty() {
        metadata["namespace"] = key.namespace.clone().into();
    }
    Some(Recorded::Deleted(
        json!({"apiVersion": api_version, "kind": key.kind, "metadata": metadata}),
    ))
}

pub(crate) fn median(seen: &[i64]) -> Option<i64> {
    if seen.len() < ENOUGH {
        return None;
    }
    let mut seen = seen.to_vec();
    seen.sort_unstable();
    Some(seen[seen.len() / 2].max(0))
}

fn millis(at: i64) -> Duration {
    Duration::from_millis(u64::try_from(at).unwrap_or_default())
}

fn whole_seconds(length: Duration) -> GoDuration {
    let text = format!("{}s", length.as_secs());
    text.parse().unwrap_or_else(|_| unreachable!("{text} is a duration"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::Phase,
        journal::{Journal, Limits},
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn pod(id: &str, node: &str, phase: Phase, leaves: bool, evicted: bool) -> What {
        let evicted = evicted.then(|| at(0));
        What::Pod(Pod { id: id.into(), of: 1, node: node.into(), phase, leaves, evicted })
    }

    /// What a record of these entries says, that begins with one node, one workload and pods a and b of it.
    fn story(entries: &[(i64, What)]) -> Story {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, mut state, _) = Journal::open(dir.path(), Limits::default()).unwrap();
        let workload = |id, name: &str, kind: &str| {
            What::Workload(Workload {
                id,
                namespace: "shop".into(),
                kind: kind.into(),
                name: name.into(),
                pod: json!({"spec": {"containers": [{"name": "c"}]}}),
            })
        };
        for what in [
            What::Object(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {},
            })),
            workload(1, "web", "ReplicaSet"),
            workload(2, "agent", "DaemonSet"),
            pod("a", "", Phase::Pending, false, false),
            pod("b", "", Phase::Pending, false, false),
        ] {
            state.apply(what);
        }
        state.apply(What::Pod(Pod {
            id: "d".into(),
            of: 2,
            node: "n".into(),
            phase: Phase::Running,
            leaves: false,
            evicted: None,
        }));
        journal.rotate(at(0), state.base()).unwrap();
        for (second, what) in entries {
            journal.append(at(*second), what.clone()).unwrap();
        }
        journal.sync().unwrap();
        Story::read(&Trace::open(dir.path()).unwrap()).unwrap()
    }

    /// The moments of its replay, in a few words.
    fn moments(entries: &[(i64, What)]) -> Vec<String> {
        let scenario = story(entries).scenario("test").unwrap();
        let told = scenario.record.iter().map(|Moment { at, what }| {
            let what = match what {
                Recorded::SetComes { namespace, name, replicas, .. } => {
                    format!("{namespace}/{name} comes with {replicas}")
                }
                Recorded::SetScales { namespace, name, replicas } => {
                    format!("{namespace}/{name} has {replicas}")
                }
                Recorded::Applied(object) => format!("{} applied", text(object, "/kind")),
                Recorded::Deleted(object) => format!("{} deleted", text(object, "/kind")),
            };
            format!("{} s: {what}", at.as_secs())
        });
        told.collect()
    }

    #[test]
    fn a_replay_has_the_load_and_none_of_the_evictions() {
        let key = |kind: &str| {
            What::ObjectGone(ObjectKey {
                kind: kind.into(),
                namespace: "shop".into(),
                name: "x".into(),
            })
        };
        for (entries, expected) in [
            (vec![(60, What::Alive)], vec![]),
            (
                vec![
                    (60, pod("a", "n", Phase::Running, true, true)),
                    (61, pod("c", "", Phase::Pending, false, false)),
                    (65, What::PodGone("a".into())),
                    (600, What::Alive),
                ],
                vec![],
            ),
            (
                vec![(60, pod("a", "n", Phase::Running, true, false)), (600, What::Alive)],
                vec!["60 s: shop/w0-web has 1"],
            ),
            (
                vec![
                    (60, pod("a", "n", Phase::Succeeded, false, false)),
                    (70, What::PodGone("a".into())),
                ],
                vec!["60 s: shop/w0-web has 1"],
            ),
            (
                vec![
                    (
                        50,
                        What::Object(
                            json!({"kind": "PodDisruptionBudget", "metadata": {"name": "x"}}),
                        ),
                    ),
                    (60, key("PodDisruptionBudget")),
                    (70, key("Node")),
                ],
                vec!["50 s: PodDisruptionBudget applied", "60 s: PodDisruptionBudget deleted"],
            ),
            (
                vec![
                    (
                        60,
                        What::Workload(Workload {
                            id: 3,
                            namespace: "shop".into(),
                            kind: "Job".into(),
                            name: "night".into(),
                            pod: json!({"spec": {}}),
                        }),
                    ),
                    (
                        60,
                        What::Pod(Pod {
                            id: "j".into(),
                            of: 3,
                            node: String::new(),
                            phase: Phase::Pending,
                            leaves: false,
                            evicted: None,
                        }),
                    ),
                    (90, What::PodGone("j".into())),
                    (200, What::Alive),
                ],
                vec!["60 s: shop/w2-night comes with 1", "90 s: shop/w2-night has 0"],
            ),
        ] {
            assert_eq!(moments(&entries), expected, "{entries:?}");
        }
    }

    #[test]
    fn gaps_that_overlap_are_one() {
        for (entries, expected) in [
            (vec![(60, What::Alive)], (0, 0)),
            (vec![(60, What::Blind(20_000)), (61, What::Blind(21_000))], (1, 21)),
            (vec![(60, What::Blind(20_000)), (100, What::Blind(20_000))], (2, 40)),
        ] {
            let (gaps, time) = story(&entries).blind;
            assert_eq!((gaps, time.as_secs()), expected, "{entries:?}");
        }
    }

    #[test]
    fn delays_are_measured_from_what_was_seen() {
        let turns = |id: &str, from: i64| {
            [
                (from, pod(id, "", Phase::Pending, false, false)),
                (from + 1, pod(id, "n", Phase::Pending, false, false)),
                (from + 4, pod(id, "n", Phase::Running, false, false)),
                (from + 10, pod(id, "n", Phase::Running, true, false)),
                (from + 17, What::PodGone(id.into())),
            ]
        };
        let entries: Vec<_> = ["e", "f", "g", "h", "i"]
            .iter()
            .zip([100, 200, 300, 400, 500])
            .flat_map(|(id, from)| turns(id, from))
            .collect();
        let story = story(&entries);
        assert_eq!(median(&story.delays.pod_start), Some(3000));
        assert_eq!(median(&story.delays.pod_terminate), Some(7000));
        assert_eq!(median(&story.delays.node_ready), None);
        let timing = story.scenario("test").unwrap().timing;
        assert_eq!(timing.pod_start.as_duration().as_secs(), 3);
        assert_eq!(timing.node_ready.as_duration().as_secs(), 40);
    }
}
