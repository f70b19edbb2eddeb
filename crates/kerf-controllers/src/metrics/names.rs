//! The names that dashboards and alerts look for, apart from those of disruption.

use std::time::Duration;

use kerf_api::NodeClaim;
use kerf_runtime::Metrics;
use kerf_scheduler::Plan;

use super::{Cause, ControllerMetrics, state};

const REGISTERED: [&str; 23] = [
    "karpenter_nodeclaims_created_total",
    "karpenter_nodeclaims_terminated_total",
    "karpenter_nodeclaims_disrupted_total",
    "karpenter_nodeclaims_unhealthy_disrupted_total",
    "karpenter_nodeclaims_instance_termination_duration_seconds",
    "karpenter_nodeclaims_termination_duration_seconds",
    "karpenter_nodes_created_total",
    "karpenter_nodes_terminated_total",
    "karpenter_nodes_drained_total",
    "karpenter_nodes_termination_duration_seconds",
    "karpenter_nodes_lifetime_duration_seconds",
    "karpenter_pods_disruption_initiated_total",
    "karpenter_pods_eviction_requests_total",
    "karpenter_pods_drained_total",
    "karpenter_pods_scheduling_decision_duration_seconds",
    "karpenter_pods_startup_duration_seconds",
    "karpenter_pods_bound_duration_seconds",
    "karpenter_pods_provisioning_bound_duration_seconds",
    "karpenter_pods_provisioning_startup_duration_seconds",
    "karpenter_scheduler_scheduling_duration_seconds",
    "karpenter_scheduler_queue_depth",
    "karpenter_scheduler_ignored_pods_count",
    "karpenter_scheduler_unschedulable_pods_count",
];

#[test]
fn every_metric_has_the_name_that_dashboards_know() {
    let metrics = Metrics::default();
    let counted = ControllerMetrics::register(&metrics);
    // A family is only told of once it has counted something.
    let (claim, second) = (NodeClaim::default(), Some(Duration::from_secs(1)));
    counted.claim_created("provisioned", "p", false);
    counted.claim_terminated(&claim, second);
    counted.claim_disrupted(Cause::Expired, &claim, 1);
    counted.unhealthy_disrupted("Ready", &claim, None);
    counted.instance_gone(&claim, second);
    counted.node_registered(&claim);
    counted.node_drained(&claim);
    counted.node_terminated(&claim, second, second);
    counted.eviction_answered(200);
    counted.pod_drained("Expired");
    counted.scheduling.begins(0, jiff::Timestamp::UNIX_EPOCH);
    counted.scheduling.planned(&Plan::default(), Duration::ZERO);
    let text = metrics.text();
    for name in REGISTERED {
        let line = format!("# TYPE {name} ");
        assert!(text.lines().any(|one| one.starts_with(&line)), "{name} is not in\n{text}");
    }
    let declared = state::names();
    for gauge in [
        "karpenter_nodes_allocatable",
        "karpenter_nodes_total_pod_requests",
        "karpenter_nodes_total_pod_limits",
        "karpenter_nodes_total_daemon_requests",
        "karpenter_nodes_total_daemon_limits",
        "karpenter_nodes_system_overhead",
        "karpenter_nodes_current_lifetime_seconds",
        "karpenter_cluster_utilization_percent",
        "karpenter_nodepools_limit",
        "karpenter_nodepools_usage",
        "karpenter_nodepools_cost_total",
        "karpenter_cluster_state_node_count",
        "karpenter_cluster_state_synced",
        "karpenter_cluster_state_unsynced_time_seconds",
        "karpenter_cluster_state_unreadable_objects",
        "karpenter_pods_state",
        "karpenter_pods_unbound_time_seconds",
        "karpenter_pods_unstarted_time_seconds",
    ] {
        assert!(declared.contains(&gauge), "{gauge}");
    }
    for kind in ["nodeclaim", "nodepool", "node"] {
        for rest in [
            "status_condition_count",
            "status_condition_current_status_seconds",
            "termination_current_time_seconds",
        ] {
            let gauge = format!("operator_{kind}_{rest}");
            assert!(declared.contains(&gauge.as_str()), "{gauge}");
        }
    }
}
