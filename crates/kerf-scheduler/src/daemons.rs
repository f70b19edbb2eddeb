//! The overhead of DaemonSets on every node.

use std::sync::Arc;

use kerf_model::labels::Labels;
use kerf_model::pod::HostPort;
use kerf_model::taint::{Toleration, first_hard_untolerated};
use kerf_model::{Pod, Requirements, Snapshot, Taint};

use crate::algebra::{Algebra, PodRequirements, SetId};
use crate::lanes::{LaneTable, Lanes};

/// A daemon as it would run on some node.
#[derive(Debug)]
pub(crate) struct Daemon {
    tolerations: Vec<Toleration>,
    /// Any of these will do. Judged one by one and never changed, so that the answer for one node
    /// does not depend on which was asked about before.
    terms: Vec<(Requirements, PodRequirements)>,
    pub(crate) requests: Lanes,
    pub(crate) ports: Vec<HostPort>,
}

/// Those that can run somewhere: one that asks for devices or for what no machine has takes no room.
pub(crate) fn daemons(
    snapshot: &Snapshot,
    lanes: &LaneTable,
    algebra: &mut Algebra,
) -> Vec<Daemon> {
    let usable = |pod: &&Arc<Pod>| !pod.claims_devices && lanes.check(&pod.requests).is_ok();
    snapshot.daemons.iter().filter(usable).map(|pod| Daemon::new(pod, lanes, algebra)).collect()
}

impl Daemon {
    fn new(pod: &Pod, lanes: &LaneTable, algebra: &mut Algebra) -> Self {
        let constraints = &pod.constraints;
        let selector = &constraints.node_selector;
        let terms: Vec<_> = if constraints.required_terms.is_empty() {
            vec![selector.clone()]
        } else {
            constraints.required_terms.iter().map(|term| selector.merged(term)).collect()
        };
        Self {
            tolerations: constraints.tolerations.clone(),
            terms: terms
                .into_iter()
                .map(|term| {
                    let requirements = algebra.pod_requirements(&term);
                    (term, requirements)
                })
                .collect(),
            requests: lanes.request(&pod.requests),
            ports: constraints.host_ports.clone(),
        }
    }

    /// Whether it will run on a new node of this template and type. Start-up taints are gone by then.
    pub(crate) fn runs_on_new(
        &self,
        taints: &[Taint],
        template: SetId,
        instance_type: SetId,
        algebra: &mut Algebra,
    ) -> bool {
        self.tolerates(taints)
            && self.terms.iter().any(|(_, requirements)| {
                algebra.merge_pod(template, requirements).is_some()
                    && algebra.intersects(instance_type, requirements.set)
            })
    }

    pub(crate) fn runs_on_node(&self, taints: &[Taint], labels: &Labels) -> bool {
        self.tolerates(taints) && self.terms.iter().any(|(term, _)| term.are_met_by(labels))
    }

    /// Taints that only ask to be avoided do not stop a daemon.
    fn tolerates(&self, taints: &[Taint]) -> bool {
        first_hard_untolerated(taints, &self.tolerations).is_none()
    }
}
