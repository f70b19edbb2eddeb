//! What creates pods: how many each ReplicaSet, StatefulSet and Job is to have, and how many it has.
//!
//! Most ReplicaSets are former revisions of a Deployment, and whole objects are large. So of each there is a number here, and the
//! template and all else is left out.

use std::{fmt, marker::PhantomData};

use k8s_openapi::api::{
    apps::v1::{ReplicaSet, StatefulSet},
    batch::v1::Job,
};
use kerf_api::ObjectExt;
use kube_core::ResourceExt;

use crate::{Change, Cluster, Delta, Key, Kind, Objects, Pod, changes::version_of, pods};

/// The kinds whose numbers of pods can be told before the pods are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerKind {
    ReplicaSet,
    StatefulSet,
    Job,
}

/// How many pods are to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Pods(u32),
    /// The next one comes when the last is ready, and not before.
    OneByOne,
    /// What comes depends on more than numbers: a Job waits after a failure.
    Unclear,
}

/// What the controller that creates its pods reads.
pub trait CreatesPods: kube_core::Resource<DynamicType = ()> + Sized + 'static {
    fn wanted(&self) -> Wanted;

    fn owners(cluster: &mut Cluster) -> &mut Objects<Owner<Self>>;
}

/// All that is kept of an owner.
pub struct Owner<W> {
    key: Key,
    version: u64,
    uid: Box<str>,
    wanted: Wanted,
    of: PhantomData<fn() -> W>,
}

impl<W: CreatesPods> Owner<W> {
    pub fn of(object: &W) -> Self {
        Self {
            key: Key::namespaced(object.namespace().unwrap_or_default(), object.name_any()),
            version: version_of(object),
            uid: object.uid().unwrap_or_default().into(),
            wanted: wanted(object),
            of: PhantomData,
        }
    }
}

impl<W> fmt::Debug for Owner<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, wanted, .. } = self;
        f.debug_struct("Owner").field("key", key).field("wanted", wanted).finish_non_exhaustive()
    }
}

/// The owner that a pod names as its controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodOwner {
    pub kind: OwnerKind,
    pub key: Key,
    pub uid: Box<str>,
}

impl PodOwner {
    pub fn of(pod: &Pod) -> Option<Self> {
        let owner = pod.owners().iter().find(|owner| owner.controller == Some(true))?;
        let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("apps/v1", "ReplicaSet") => OwnerKind::ReplicaSet,
            ("apps/v1", "StatefulSet") => OwnerKind::StatefulSet,
            ("batch/v1", "Job") => OwnerKind::Job,
            _ => return None,
        };
        let key = Key::namespaced(pod.namespace(), &owner.name);
        Some(Self { kind, key, uid: owner.uid.as_str().into() })
    }
}

/// The pods of an owner that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodsOf {
    active: u32,
    leaving: u32,
}

/// An owner some of whose pods are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short<'a> {
    pub uid: &'a str,
    pub missing: u32,
    /// Whether none of its pods is there yet.
    pub is_new: bool,
}

/// How far an owner has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many pods are to come, or none.
    Missing(u32),
    /// It is not known here, or has more pods than it is said to want: what is known of it is old.
    Unclear,
}

impl Cluster {
    /// From now on pods are counted by their owners.
    pub fn keep_owners(&mut self) {
        self.keeps_owners = true;
    }

    pub fn keeps_owners(&self) -> bool {
        self.keeps_owners
    }

    /// How far the owner of a pod has come.
    pub fn progress_of(&self, owner: &PodOwner) -> Progress {
        let PodOwner { kind, key, uid } = owner;
        let found = match kind {
            OwnerKind::ReplicaSet => kept(&self.replica_set_owners, key)
                .or_else(|| self.replica_sets.get(key).and_then(|set| read(&**set))),
            OwnerKind::StatefulSet => kept(&self.stateful_set_owners, key)
                .or_else(|| self.stateful_sets.get(key).and_then(|set| read(&**set))),
            OwnerKind::Job => kept(&self.job_owners, key),
        };
        match found {
            Some((found, wanted)) if *found == **uid => self.progress(*kind, uid, wanted),
            _ => Progress::Unclear,
        }
    }

    /// Owners some of whose pods are still to come.
    pub fn short_owners(&self) -> impl Iterator<Item = Short<'_>> {
        let sets = self.replica_sets.values().filter_map(|set| read(&**set));
        let stateful_sets = self.stateful_sets.values().filter_map(|set| read(&**set));
        all(&self.replica_set_owners)
            .chain(sets)
            .map(|owner| (OwnerKind::ReplicaSet, owner))
            .chain(
                all(&self.stateful_set_owners)
                    .chain(stateful_sets)
                    .map(|owner| (OwnerKind::StatefulSet, owner)),
            )
            .chain(all(&self.job_owners).map(|owner| (OwnerKind::Job, owner)))
            .filter_map(|(kind, (uid, wanted))| match self.progress(kind, uid, wanted) {
                Progress::Missing(0) | Progress::Unclear => None,
                Progress::Missing(missing) => {
                    let is_new = !self.pods_by_owner.contains_key(uid);
                    Some(Short { uid, missing, is_new })
                }
            })
    }

    fn progress(&self, kind: OwnerKind, uid: &str, wanted: Wanted) -> Progress {
        let PodsOf { active, leaving } = self.pods_by_owner.get(uid).copied().unwrap_or_default();
        // A StatefulSet makes a pod when the one of the same name is gone.
        let there = if kind == OwnerKind::StatefulSet { active + leaving } else { active };
        match wanted {
            Wanted::Pods(wanted) if active > wanted => Progress::Unclear,
            Wanted::Pods(wanted) => Progress::Missing(wanted.saturating_sub(there)),
            Wanted::OneByOne => Progress::Missing(0),
            Wanted::Unclear => Progress::Unclear,
        }
    }
}

/// One that is going makes no more pods.
fn wanted<W: CreatesPods>(object: &W) -> Wanted {
    if object.is_deleting() { Wanted::Pods(0) } else { object.wanted() }
}

fn kept<'a, W>(owners: &'a Objects<Owner<W>>, key: &Key) -> Option<(&'a str, Wanted)> {
    owners.get(key).map(|owner| (&*owner.uid, owner.wanted))
}

fn all<W>(owners: &Objects<Owner<W>>) -> impl Iterator<Item = (&str, Wanted)> {
    owners.values().map(|owner| (&*owner.uid, owner.wanted))
}

/// Of an object that is kept for other reasons.
fn read<W: CreatesPods>(object: &W) -> Option<(&str, Wanted)> {
    Some((object.meta().uid.as_deref()?, wanted(object)))
}

fn count(number: Option<i32>, default: u32) -> u32 {
    number.map_or(default, |number| u32::try_from(number).unwrap_or_default())
}

impl CreatesPods for ReplicaSet {
    fn wanted(&self) -> Wanted {
        Wanted::Pods(count(self.spec.as_ref().and_then(|spec| spec.replicas), 1))
    }

    fn owners(cluster: &mut Cluster) -> &mut Objects<Owner<Self>> {
        &mut cluster.replica_set_owners
    }
}

impl CreatesPods for StatefulSet {
    fn wanted(&self) -> Wanted {
        let Some(spec) = &self.spec else { return Wanted::Unclear };
        if spec.pod_management_policy.as_deref() == Some("Parallel") {
            Wanted::Pods(count(spec.replicas, 1))
        } else {
            Wanted::OneByOne
        }
    }

    fn owners(cluster: &mut Cluster) -> &mut Objects<Owner<Self>> {
        &mut cluster.stateful_set_owners
    }
}

impl CreatesPods for Job {
    fn wanted(&self) -> Wanted {
        let Some(spec) = &self.spec else { return Wanted::Unclear };
        let status = self.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let is_over = conditions.into_iter().flatten().any(|condition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        });
        if is_over || spec.suspend == Some(true) {
            return Wanted::Pods(0);
        }
        if status.is_some_and(|status| count(status.failed, 0) > 0) {
            return Wanted::Unclear;
        }
        let succeeded = count(status.and_then(|status| status.succeeded), 0);
        let parallelism = count(spec.parallelism, 1);
        match spec.completions {
            Some(completions) => {
                let left = count(Some(completions), 0).saturating_sub(succeeded);
                Wanted::Pods(left.min(parallelism))
            }
            // The first success says that the work is done.
            None if succeeded > 0 => Wanted::Pods(0),
            None => Wanted::Pods(parallelism),
        }
    }

    fn owners(cluster: &mut Cluster) -> &mut Objects<Owner<Self>> {
        &mut cluster.job_owners
    }
}

impl<W: CreatesPods> Kind for Owner<W> {
    type Kept = Self;

    fn key(&self) -> Key {
        self.key.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn objects(cluster: &mut Cluster) -> &mut Objects<Self> {
        W::owners(cluster)
    }

    fn change(_: Delta<Self>) -> Change {
        Change::Owner
    }

    fn keep(self, _: &mut Cluster) -> Self {
        self
    }
}

/// Keeps the numbers of pods in step with a change of one.
pub(crate) fn recount(cluster: &mut Cluster, delta: &Delta<Pod>) {
    if !cluster.keeps_owners {
        return;
    }
    let [before, after] = delta.both().map(|pod| {
        let pod = pod.filter(|pod| !pods::is_terminal(pod))?;
        Some((PodOwner::of(pod)?.uid, pods::is_terminating(pod)))
    });
    if before == after {
        return;
    }
    if let Some((uid, leaving)) = before
        && let Some(count) = cluster.pods_by_owner.get_mut(&uid)
    {
        let number = count.number(leaving);
        *number = number.saturating_sub(1);
        if *count == PodsOf::default() {
            cluster.pods_by_owner.remove(&uid);
        }
    }
    if let Some((uid, leaving)) = after {
        *cluster.pods_by_owner.entry(uid).or_default().number(leaving) += 1;
    }
}

impl PodsOf {
    fn number(&mut self, leaving: bool) -> &mut u32 {
        if leaving { &mut self.leaving } else { &mut self.active }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1 as core;
    use serde_json::{Value, json};

    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        cluster.keep_owners();
        cluster
    }

    fn object(name: &str, spec: &Value, status: &Value) -> Value {
        json!({
            "metadata": {"namespace": "d", "name": name, "uid": name, "resourceVersion": "1"},
            "spec": spec, "status": status,
        })
    }

    fn set(name: &str, replicas: u32) -> Owner<ReplicaSet> {
        let spec = json!({"replicas": replicas, "selector": {}});
        Owner::of(&serde_json::from_value(object(name, &spec, &json!({}))).unwrap())
    }

    fn pod(name: &str, kind: &str, owner: &str, phase: &str, leaving: bool) -> core::Pod {
        let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "d", "name": name, "resourceVersion": "1",
                "deletionTimestamp": leaving.then_some("2026-01-01T00:00:00Z"),
                "ownerReferences": [
                    {"apiVersion": api_version, "kind": kind, "name": owner, "uid": owner, "controller": true},
                ],
            },
            "spec": {"containers": []}, "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn short(cluster: &Cluster) -> Vec<String> {
        let short = cluster.short_owners();
        short
            .map(|Short { uid, missing, is_new }| {
                format!("{uid} {missing}{}", if is_new { " new" } else { "" })
            })
            .collect()
    }

    #[test]
    fn pods_that_are_not_there_yet_are_counted() {
        let mut cluster = cluster();
        for (name, replicas) in [("a", 3), ("b", 2), ("former", 0)] {
            cluster.apply(set(name, replicas));
        }
        assert_eq!(short(&cluster), ["a 3 new", "b 2 new"]);
        cluster.apply(pod("a-1", "ReplicaSet", "a", "Pending", false));
        cluster.apply(pod("a-1", "ReplicaSet", "a", "Running", false));
        cluster.apply(pod("a-2", "ReplicaSet", "a", "Running", true));
        cluster.apply(pod("a-3", "ReplicaSet", "a", "Failed", false));
        cluster.apply(pod("b-1", "ReplicaSet", "b", "Pending", false));
        cluster.apply(pod("b-2", "ReplicaSet", "b", "Pending", false));
        assert_eq!(short(&cluster), ["a 2"]);
        cluster.delete(&pod("b-2", "ReplicaSet", "b", "Pending", false));
        cluster.delete(&pod("a-1", "ReplicaSet", "a", "Running", false));
        cluster.delete(&pod("a-2", "ReplicaSet", "a", "Running", true));
        assert_eq!(short(&cluster), ["a 3 new", "b 1"]);
        cluster.delete(&set("a", 3));
        assert_eq!(short(&cluster), ["b 1"]);
    }

    #[test]
    fn what_is_known_of_an_owner_may_be_old() {
        let mut cluster = cluster();
        let progress = |cluster: &Cluster, uid: &str| {
            let key = Key::namespaced("d", "a");
            let owner = PodOwner { kind: OwnerKind::ReplicaSet, key, uid: uid.into() };
            cluster.progress_of(&owner)
        };
        assert_eq!(progress(&cluster, "a"), Progress::Unclear, "it is not known");
        cluster.apply(set("a", 1));
        assert_eq!(progress(&cluster, "a"), Progress::Missing(1));
        assert_eq!(
            progress(&cluster, "another"),
            Progress::Unclear,
            "it has the name of a former one"
        );
        for name in ["1", "2"] {
            cluster.apply(pod(name, "ReplicaSet", "a", "Pending", false));
        }
        assert_eq!(progress(&cluster, "a"), Progress::Unclear, "it has more than it wants");
    }

    /// Where buffers or default spread constraints need whole objects, these are read.
    #[test]
    fn objects_that_are_kept_for_others_count_as_well() {
        let mut cluster = cluster();
        let spec = json!({"replicas": 2, "selector": {}});
        let set: ReplicaSet = serde_json::from_value(object("a", &spec, &json!({}))).unwrap();
        cluster.apply(set);
        assert_eq!(short(&cluster), ["a 2 new"]);
        let owner = PodOwner::of(&pod("p", "ReplicaSet", "a", "Pending", false).into()).unwrap();
        assert_eq!(cluster.progress_of(&owner), Progress::Missing(2));
    }

    #[test]
    fn without_being_asked_nothing_is_counted() {
        let mut cluster = Cluster::default();
        cluster.apply(pod("p", "ReplicaSet", "a", "Pending", false));
        assert!(cluster.pods_by_owner.is_empty());
    }

    #[test]
    fn a_stateful_set_waits_for_the_pod_of_the_same_name_to_go() {
        for (policy, leaving, expected) in [
            ("Parallel", false, &["a 2"][..]),
            ("Parallel", true, &["a 2"]),
            ("OrderedReady", false, &[]),
        ] {
            let mut cluster = cluster();
            let spec = json!({
                "replicas": 3, "selector": {}, "serviceName": "", "template": {}, "podManagementPolicy": policy,
            });
            let set: StatefulSet = serde_json::from_value(object("a", &spec, &json!({}))).unwrap();
            cluster.apply(Owner::of(&set));
            cluster.apply(pod("a-0", "StatefulSet", "a", "Running", leaving));
            assert_eq!(short(&cluster), expected, "{policy} {leaving}");
        }
    }

    #[test]
    fn a_job_wants_what_is_left_of_it() {
        let done = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
        for (spec, status, expected) in [
            (json!({}), json!({}), Wanted::Pods(1)),
            (json!({"parallelism": 5}), json!({}), Wanted::Pods(5)),
            (json!({"parallelism": 5}), json!({"succeeded": 1}), Wanted::Pods(0)),
            (json!({"parallelism": 5, "completions": 3}), json!({}), Wanted::Pods(3)),
            (json!({"parallelism": 5, "completions": 9}), json!({"succeeded": 2}), Wanted::Pods(5)),
            (json!({"parallelism": 5, "completions": 9}), json!({"succeeded": 7}), Wanted::Pods(2)),
            (json!({"parallelism": 5, "suspend": true}), json!({}), Wanted::Pods(0)),
            (json!({"parallelism": 5}), json!({"failed": 1}), Wanted::Unclear),
            (json!({"parallelism": 5}), done("Complete"), Wanted::Pods(0)),
            (json!({"parallelism": 5}), done("Failed"), Wanted::Pods(0)),
        ] {
            let mut spec = spec;
            spec["template"] = json!({});
            let job: Job = serde_json::from_value(object("a", &spec, &status)).unwrap();
            assert_eq!(job.wanted(), expected, "{spec}");
        }
    }

    #[test]
    fn an_owner_that_goes_makes_no_more_pods() {
        let mut value = object("a", &json!({"replicas": 3, "selector": {}}), &json!({}));
        value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let set: ReplicaSet = serde_json::from_value(value).unwrap();
        assert_eq!(Owner::of(&set).wanted, Wanted::Pods(0));
    }
}
