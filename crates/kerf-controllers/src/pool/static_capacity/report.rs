//! The condition of a static pool that says whether it has its nodes.

use kerf_api::{
    NodePool,
    conditions::{Conditioned, REPLICAS_SATISFIED},
};
use kerf_cluster::node_counts::node_limit;
use kerf_model::NodeCount;
use kube::ResourceExt;

use crate::context::Context;

/// Writes the condition and the metrics of a static pool whose nodes have been counted.
pub(crate) fn report(context: &Context, pool: &mut NodePool) {
    let name = pool.name_any();
    let Some(replicas) = pool.replicas() else { return };
    let count = context.index.read().node_count(&name);
    let nodes = pool.status.as_ref().map_or(0, |status| status.nodes);
    context.metrics.static_pool(&name, replicas, nodes);
    let limit = node_limit(pool);
    let gate = context.settings.gates.static_capacity;
    let launched = u64::try_from(nodes).unwrap_or(0);
    let replicas =
        if gate { Replicas::of(replicas, limit, launched, count) } else { Replicas::GateOff };
    let mut conditions = pool.condition_set(context.now());
    let message = replicas.to_string();
    if replicas == Replicas::Satisfied {
        conditions.set_true(REPLICAS_SATISFIED);
    } else {
        conditions.set_false(REPLICAS_SATISFIED, replicas.reason(), &message);
    }
}

/// Whether a static pool has the nodes that it keeps, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Replicas {
    #[error("")]
    Satisfied,
    #[error("feature gate StaticCapacity is off: the pool is left as it is")]
    GateOff,
    #[error("limits.nodes allows {limit} nodes and {replicas} are wanted")]
    LimitReached { replicas: u64, limit: u64 },
    #[error("{nodes} of {replicas} nodes are launched")]
    ScalingUp { replicas: u64, nodes: u64 },
    #[error("{active} nodes are active and {replicas} are wanted")]
    ScalingDown { replicas: u64, active: u64 },
}

impl Replicas {
    fn of(replicas: u64, limit: Option<u64>, launched: u64, count: NodeCount) -> Self {
        let active = count.active;
        match limit {
            _ if active > replicas => Self::ScalingDown { replicas, active },
            Some(limit) if limit < replicas => Self::LimitReached { replicas, limit },
            _ if launched < replicas => Self::ScalingUp { replicas, nodes: launched },
            _ => Self::Satisfied,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Satisfied => REPLICAS_SATISFIED,
            Self::GateOff => "FeatureGateDisabled",
            Self::LimitReached { .. } => "NodeLimitReached",
            Self::ScalingUp { .. } => "ScalingUp",
            Self::ScalingDown { .. } => "ScalingDown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_says_whether_it_has_its_nodes() {
        let cases = [
            (3, None, 3, 3, Replicas::Satisfied),
            (0, None, 0, 0, Replicas::Satisfied),
            (3, Some(3), 3, 3, Replicas::Satisfied),
            (3, None, 1, 3, Replicas::ScalingUp { replicas: 3, nodes: 1 }),
            (3, None, 3, 4, Replicas::ScalingDown { replicas: 3, active: 4 }),
            (3, Some(2), 2, 2, Replicas::LimitReached { replicas: 3, limit: 2 }),
            (3, Some(2), 0, 0, Replicas::LimitReached { replicas: 3, limit: 2 }),
        ];
        for (replicas, limit, launched, active, expected) in cases {
            let count = NodeCount { active, ..NodeCount::default() };
            assert_eq!(Replicas::of(replicas, limit, launched, count), expected);
        }
    }
}
