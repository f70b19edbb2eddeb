//! The conditions of NodeClaims, NodePools, Nodes and CapacityBuffers, and the time since the deletion of those that are being deleted.

use std::sync::Arc;

use jiff::Timestamp;
use kerf_provider::NodeClassKind;
use kube::ResourceExt;

use super::{Series, seconds, with};
use crate::{
    context::Context,
    transitions::{Labels, Observed, of_any},
};

#[derive(Clone, Copy, Debug)]
pub(super) struct ConditionGauge {
    of: Of,
    tells: Tells,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Claims,
    Pools,
    Nodes,
    Buffers,
    /// Claims and pools together, under names that are older.
    Any,
}

#[derive(Clone, Copy, Debug)]
enum Tells {
    Count,
    CurrentStatus,
    Termination,
}

impl ConditionGauge {
    pub(super) fn named(name: &str) -> Option<Self> {
        let name = name.strip_prefix("operator_")?;
        let kinds = [
            ("nodeclaim_", Of::Claims),
            ("nodepool_", Of::Pools),
            ("node_", Of::Nodes),
            ("capacitybuffer_", Of::Buffers),
        ];
        let of_kind = kinds.into_iter().find_map(|(kind, of)| Some((of, name.strip_prefix(kind)?)));
        let (of, name) = of_kind.unwrap_or((Of::Any, name));
        let tells = match name {
            "status_condition_count" => Tells::Count,
            "status_condition_current_status_seconds" => Tells::CurrentStatus,
            "termination_current_time_seconds" => Tells::Termination,
            _ => return None,
        };
        Some(Self { of, tells })
    }
}

/// The objects say it all themselves: the index is read only to find them.
pub(super) fn series<'a>(
    context: &'a Context,
    gauge: ConditionGauge,
    now: Timestamp,
) -> Box<dyn Iterator<Item = (Labels, f64)> + 'a> {
    let ConditionGauge { of, tells } = gauge;
    let claims = || context.index.read().claims().values().cloned().collect();
    let pools = || context.index.read().pools().values().cloned().collect();
    let nodes = || context.index.read().nodes().values().cloned().collect();
    let buffers = || context.index.read().buffers().values().cloned().collect();
    match of {
        Of::Claims => Box::new(of_kind(context, claims(), tells, now)),
        Of::Pools => Box::new(of_kind(context, pools(), tells, now)),
        Of::Nodes => Box::new(of_kind(context, nodes(), tells, now)),
        Of::Buffers => Box::new(of_kind(context, buffers(), tells, now)),
        Of::Any => {
            let claims = of_objects(claims(), |_| of_any::<kerf_api::NodeClaim>(), tells, now);
            let pools = of_objects(pools(), |_| of_any::<kerf_api::NodePool>(), tells, now);
            Box::new(claims.chain(pools))
        }
    }
}

fn of_kind<K: Observed>(
    context: &Context,
    objects: Vec<Arc<K>>,
    tells: Tells,
    now: Timestamp,
) -> impl Iterator<Item = (Labels, f64)> + use<K> {
    let classes = &context.provider.facts().node_classes;
    let class_labels: Vec<String> = classes.iter().map(NodeClassKind::label).collect();
    of_objects(objects, move |object| K::labels_of(object, &class_labels), tells, now)
}

fn of_objects<K: Observed, F: Fn(&K) -> Labels>(
    objects: Vec<Arc<K>>,
    more: F,
    tells: Tells,
    now: Timestamp,
) -> impl Iterator<Item = (Labels, f64)> + use<K, F> {
    objects.into_iter().flat_map(move |object| of_object(&*object, more(&object), tells, now))
}

fn of_object<K: Observed>(object: &K, more: Labels, tells: Tells, now: Timestamp) -> Series {
    let mut own = with(&[], "namespace", &object.namespace().unwrap_or_default());
    own.push(("name".into(), object.name_any()));
    own.extend(more);
    let value = |since: Option<Timestamp>| match tells {
        Tells::Count => 1.0,
        Tells::CurrentStatus | Tells::Termination => since.map_or(0.0, |it| seconds(it, now)),
    };
    if let Tells::Termination = tells {
        let deleted = object.meta().deletion_timestamp.as_ref();
        return deleted.map(|deleted| (own, value(Some(deleted.0)))).into_iter().collect();
    }
    let said = K::said(object);
    let series = said.iter().map(|one| {
        let mut labels = own.clone();
        for (key, value) in [("type", one.kind), ("status", one.status), ("reason", one.reason)] {
            labels.push((key.to_owned(), value.to_owned()));
        }
        (labels, value(one.since))
    });
    series.collect()
}
