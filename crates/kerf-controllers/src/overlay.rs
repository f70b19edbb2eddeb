//! What NodeOverlays say of themselves: whether they are applied, and if not, which other overlay stands against them.
//!
//! Nothing depends on this having run. Decisions get their instance types from the index, which applies the overlays each time
//! (`kerf-cluster/src/overlays.rs`).

use std::{sync::Arc, time::Duration};

use kerf_api::{
    NodeOverlay,
    conditions::{Conditioned, VALIDATION_SUCCEEDED},
};
use kerf_cluster::{
    Change, Cluster, Delta,
    overlays::{LeftOut, Overlaid},
    snapshot::Inputs,
};
use kerf_runtime::{Lock, Outcome, Queue, Workers};
use kube::{Resource, ResourceExt};

use crate::{context::Context, controller::Reconciler, error::Result, provisioning};

/// All overlays are judged together.
const ALL: &str = "all";
/// Offerings come and go without a change of any object.
const LOOK_AGAIN: Duration = Duration::from_mins(10);
/// The instance types of a pool are unknown, and with them what contradicts what there.
const LOOK_SOON: Duration = Duration::from_mins(1);

pub(crate) struct Overlays;

impl Reconciler for Overlays {
    const WORKERS: Workers = Workers::new("nodeoverlay", 1);

    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        let concerns = match change {
            Change::NodeOverlay(delta) => has_new_spec(delta),
            Change::NodePool(delta) => has_new_spec(delta),
            Change::NodeClass(_) => true,
            _ => false,
        };
        if concerns {
            queue.add(ALL.to_owned());
        }
    }

    async fn reconcile(&self, context: &Context, _: &str) -> Result<Outcome> {
        let overlays: Vec<Arc<NodeOverlay>> = {
            let cluster = context.index.read();
            let all = cluster.overlays().iter();
            let all = all.filter(|(key, _)| cluster.overlays().unreadable(key).is_none());
            all.map(|(_, overlay)| Arc::clone(overlay)).collect()
        };
        if overlays.is_empty() {
            return Ok(Outcome::Done);
        }
        let Inputs { instance_types, label_rules, .. } =
            provisioning::inputs(context, |_| true).await;
        let Overlaid { types, left_out, .. } =
            context.index.read().overlaid(instance_types, &label_rules);
        let mut result = Ok(());
        for overlay in &overlays {
            let verdict = left_out.get(&overlay.name_any());
            // One that cannot be written does not keep the others from their verdict.
            let written = judge(context, overlay, verdict).await;
            result = result.and(written);
        }
        result?;
        let is_partial = types.values().any(Result::is_err);
        Ok(Outcome::After(if is_partial { LOOK_SOON } else { LOOK_AGAIN }))
    }
}

async fn judge(context: &Context, overlay: &NodeOverlay, left_out: Option<&LeftOut>) -> Result<()> {
    let mut changed = overlay.clone();
    let mut conditions = changed.condition_set(context.now());
    match left_out {
        None => conditions.set_true(VALIDATION_SUCCEEDED),
        Some(why) => conditions.set_false(VALIDATION_SUCCEEDED, why.reason(), &why.to_string()),
    };
    let what = || format!("updating the status of NodeOverlay {}", overlay.name_any());
    context.write(overlay, changed, Lock::Optimistic, what).await.map(drop)
}

/// Whether the object came, went, or says something else than before; a change of its status is none.
pub(crate) fn has_new_spec<K: Resource>(delta: &Delta<K>) -> bool {
    let generation = |object: &Option<Arc<K>>| object.as_ref().map(|it| it.meta().generation);
    generation(&delta.before) != generation(&delta.after)
}
