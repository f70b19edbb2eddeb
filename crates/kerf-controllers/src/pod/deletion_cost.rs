//! Deletion costs of pods (feature gate `PodDeletionCostManagement`).
//!
//! `kerf_disruption::deletion_cost` says which pods are to have which cost. Once a minute, if anything has changed, a round asks for
//! that and leaves the pods whose cost has to change to a queue, which writes them one by one.
//!
//! With the gate off nothing is ranked, and what an operator with the gate on has written is taken back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kerf_api::annotations::{DELETION_COST_MANAGED, POD_DELETION_COST};
use kerf_cluster::{Change, Cluster, Key, Pod, snapshot::Inputs};
use kerf_disruption::deletion_cost::{Wish, rank};
use kerf_runtime::{Outcome, Queue, Workers, compute};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    context::Context,
    controller::Reconciler,
    disruption::Commands,
    error::{Result, Tried, is_not_found},
    metrics::Written,
    provisioning,
};

pub(crate) const CONTROLLER: &str = "pod.deletioncost";
const EVERY: Duration = Duration::from_mins(1);
/// A claim without an instance is about to have one. Until then its node is unknown.
const UNSYNCED: Duration = Duration::from_secs(1);
/// Budgets, grace periods and lifetimes change what is wanted without a change of the cluster.
const LOOK_AGAIN_AFTER: Duration = Duration::from_mins(5);

/// What is to be written, by pod: the latest wish counts.
#[derive(Clone, Default)]
pub(crate) struct Wishes(Arc<Mutex<BTreeMap<Key, Wish>>>);

impl Wishes {
    fn put(&self, wish: &Wish, queue: &Queue<String>) {
        let key = Key::namespaced(&wish.namespace, &wish.name);
        let name = key.to_string();
        let known = self.lock().insert(key, wish.clone());
        // One that could not be written comes back by itself, a little later each time.
        if known.as_ref() != Some(wish) {
            queue.add(name);
        }
    }

    fn of(&self, pod: &Key) -> Option<Wish> {
        self.lock().get(pod).cloned()
    }

    /// Done, unless there is another wish by now.
    fn settle(&self, pod: &Key, wish: &Wish) {
        let mut wishes = self.lock();
        if wishes.get(pod) == Some(wish) {
            wishes.remove(pod);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Wish>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides, round by round.
pub(crate) struct DeletionCosts {
    wishes: Wishes,
    queue: Queue<String>,
    commands: Commands,
}

impl DeletionCosts {
    pub(crate) fn new(wishes: Wishes, queue: Queue<String>, commands: Commands) -> Self {
        Self { wishes, queue, commands }
    }

    pub(crate) async fn run(self, context: Arc<Context>, stop: CancellationToken) {
        if !context.settings.gates.pod_deletion_cost_management {
            context.index.listed().await;
            self.take_back(&context);
            return stop.cancelled().await;
        }
        // The changes of the cluster that the last round knew of, and when it was.
        let mut last: Option<(u64, Timestamp)> = None;
        loop {
            let wait = if provisioning::is_synced(&context) {
                let round = self.round(&context, last);
                match context.metrics.work.pass(CONTROLLER, round).await {
                    Ok(looked) => last = looked,
                    // What is to be written is still to be written in the next round.
                    Err(error) => error!(controller = CONTROLLER, %error, "ranking nodes failed"),
                }
                EVERY
            } else {
                UNSYNCED
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn round(
        &self,
        context: &Context,
        last: Option<(u64, Timestamp)>,
    ) -> Result<Option<(u64, Timestamp)>> {
        let (changes, now) = (context.index.changes(), context.now());
        let is_known = last.is_some_and(|(known, at)| {
            known == changes && context.passed_since(at).is_some_and(|it| it < LOOK_AGAIN_AFTER)
        });
        if is_known {
            return Ok(last);
        }
        let inputs = provisioning::inputs(context, |_| true).await;
        let in_queue = self.commands.candidates();
        let taken = context.index.read().snapshot(Inputs { in_queue, ..inputs })?;
        let ranking = compute(|| rank(&taken.snapshot));
        context.metrics.deletion_costs.waiting(ranking.waiting());
        for wish in ranking.due() {
            self.wishes.put(wish, &self.queue);
        }
        Ok(Some((changes, now)))
    }

    /// Takes away every cost that has the mark.
    fn take_back(&self, context: &Context) {
        let marked: Vec<Wish> = {
            let cluster = context.index.read();
            let pods = cluster.pods().values();
            let marked = pods.filter(|pod| pod.annotations().contains_key(DELETION_COST_MANAGED));
            let nothing = |pod: &Arc<Pod>| Wish {
                namespace: pod.namespace().to_owned(),
                name: pod.name().to_owned(),
                uid: pod.uid().to_owned(),
                cost: None,
            };
            marked.map(nothing).collect()
        };
        if !marked.is_empty() {
            info!(
                controller = CONTROLLER,
                pods = marked.len(),
                "taking back the deletion costs that Kerf has written: the feature gate is off"
            );
        }
        for wish in &marked {
            self.wishes.put(wish, &self.queue);
        }
    }
}

/// Writes, pod by pod.
#[derive(Default)]
pub(crate) struct Writes(Wishes);

impl Writes {
    pub(crate) fn wishes(&self) -> Wishes {
        self.0.clone()
    }
}

impl Reconciler for Writes {
    const WORKERS: Workers = Workers::new("pod.deletioncost.queue", 100)
        .up_to(5000)
        .backoff(Duration::from_millis(100), Duration::from_secs(10))
        .bucket(100, 100);

    /// Only rounds add pods.
    fn concerns(&self, _: &Change, _: &Cluster, _: &Queue<String>) {}

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let (namespace, name) = name.split_once('/').unwrap_or_default();
        let key = Key::namespaced(namespace, name);
        let Some(wish) = self.0.of(&key) else { return Ok(Outcome::Done) };
        let written = write(context, &key, &wish).await;
        let result = written.as_ref().copied().unwrap_or(Some(Written::Error));
        if let Some(result) = result {
            context.metrics.deletion_costs.written(result);
        }
        written?;
        self.0.settle(&key, &wish);
        Ok(Outcome::Done)
    }
}

/// Gives the pod its cost. `None`: another pod has its name by now.
async fn write(context: &Context, key: &Key, wish: &Wish) -> Result<Option<Written>> {
    let Some(pod) = context.index.read().pods().get(key).cloned() else {
        return Ok(Some(Written::NotFound));
    };
    if pod.uid() != wish.uid {
        return Ok(None);
    }
    let annotations = match change(&pod, wish.cost) {
        Ok(annotations) => annotations,
        Err(why) => return Ok(Some(why)),
    };
    // The index does not have all annotations of a pod, so only these two are named.
    let patch = json!({"metadata": {
        "resourceVersion": pod.resource_version(), "annotations": annotations,
    }});
    let api: Api<core::Pod> = Api::namespaced(context.client.clone(), &wish.namespace);
    let sent = api.patch(&wish.name, &PatchParams::default(), &Patch::Merge(patch)).await;
    match sent {
        Ok(pod) => {
            context.index.anticipate(pod);
            Ok(Some(Written::Updated))
        }
        Err(error) if is_not_found(&error) => Ok(Some(Written::NotFound)),
        // It is looked at again in the next round.
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Some(Written::Conflict)),
        Err(error) => Err(error).tried(|| format!("writing the deletion cost of pod {key}")),
    }
}

/// The annotations to write, or why there are none.
fn change(pod: &Pod, cost: Option<i32>) -> Result<Value, Written> {
    let annotations = pod.annotations();
    let (present, mark) =
        (annotations.get(POD_DELETION_COST), annotations.get(DELETION_COST_MANAGED));
    let is_foreign = present.is_some() && present != mark;
    match cost.map(|cost| cost.to_string()) {
        Some(_) if is_foreign => Err(Written::Conflict),
        Some(cost) if present == Some(&cost) => Err(Written::Unchanged),
        Some(cost) => Ok(json!({POD_DELETION_COST: cost, DELETION_COST_MANAGED: cost})),
        None if mark.is_none() => Err(Written::Unchanged),
        None if is_foreign => Ok(json!({DELETION_COST_MANAGED: null})),
        None => Ok(json!({POD_DELETION_COST: null, DELETION_COST_MANAGED: null})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::ResourceExt;

    #[test]
    fn only_what_kerf_has_written_is_overwritten_or_taken_away() {
        let pod = |present: Option<&str>, mark: Option<&str>| -> Pod {
            let mut pod = core::Pod::default();
            for (key, value) in [(POD_DELETION_COST, present), (DELETION_COST_MANAGED, mark)] {
                if let Some(value) = value {
                    pod.annotations_mut().insert(key.to_owned(), value.to_owned());
                }
            }
            pod.into()
        };
        let both = |cost: Value| Ok(json!({POD_DELETION_COST: cost, DELETION_COST_MANAGED: cost}));
        for (present, mark, cost, expected) in [
            (None, None, Some(-5), both("-5".into())),
            (Some("-7"), Some("-7"), Some(-5), both("-5".into())),
            (Some("-5"), Some("-5"), Some(-5), Err(Written::Unchanged)),
            (None, Some("-7"), Some(-5), both("-5".into())),
            (Some("-7"), None, Some(-5), Err(Written::Conflict)),
            (Some("100"), Some("-7"), Some(-5), Err(Written::Conflict)),
            (None, None, None, Err(Written::Unchanged)),
            (Some("-7"), None, None, Err(Written::Unchanged)),
            (Some("-7"), Some("-7"), None, both(Value::Null)),
            (None, Some("-7"), None, both(Value::Null)),
            (Some("100"), Some("-7"), None, Ok(json!({DELETION_COST_MANAGED: null}))),
        ] {
            let got = change(&pod(present, mark), cost);
            assert_eq!(got, expected, "{present:?} {mark:?} {cost:?}");
        }
    }

    #[test]
    fn the_latest_wish_for_a_pod_counts() {
        let (wishes, queue) = (Wishes::default(), Queue::new());
        let wish = |cost: i32| Wish {
            namespace: "d".into(),
            name: "p".into(),
            uid: "u".into(),
            cost: Some(cost),
        };
        let key = Key::namespaced("d", "p");
        wishes.put(&wish(-1), &queue);
        wishes.put(&wish(-2), &queue);
        assert_eq!(wishes.of(&key), Some(wish(-2)));
        // A write of the first, which ends late, leaves the second to be written.
        wishes.settle(&key, &wish(-1));
        assert_eq!(wishes.of(&key), Some(wish(-2)));
        wishes.settle(&key, &wish(-2));
        assert_eq!(wishes.of(&key), None);
    }
}
