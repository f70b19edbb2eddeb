//! The facts about nodes and pods that disruption needs, read from their objects.

use jiff::Timestamp;
use kerf_api::annotations::{
    DELETION_COST_MANAGED, DISRUPTION_COST, DO_NOT_DISRUPT, DO_NOT_REPAIR, POD_DELETION_COST,
};
use kerf_model::disruption::{Cost, DeletionCost, DoNotDisrupt, NodeDisruption, PodDisruption};

use crate::{Cluster, Pod, do_not_disrupt::Protection, pods, state_node::StateNode};

impl Cluster {
    pub(crate) fn node_disruption(&self, machine: StateNode<'_>) -> NodeDisruption {
        let of_claim = machine.claim.map(|claim| NodeDisruption::from(&**claim));
        let rules = self.repair.as_ref();
        NodeDisruption {
            provider_id: machine.provider_id().to_owned(),
            do_not_disrupt: machine.annotation(DO_NOT_DISRUPT) == Some("true"),
            do_not_repair: machine.annotation(DO_NOT_REPAIR) == Some("true"),
            registered: machine.is_registered(),
            repair: rules
                .zip(machine.node)
                .map(|(rules, node)| rules.matches(node))
                .unwrap_or_default(),
            ready: machine.is_ready(),
            unreadable: self.unreadable_part(machine).map(ToString::to_string),
            ..of_claim.unwrap_or_default()
        }
    }
}

/// Which annotations of a pod say what it costs to move it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CostOf {
    /// `disruption-cost`, and where there is none, `pod-deletion-cost`.
    #[default]
    Either,
    /// `disruption-cost` alone: the operator writes deletion costs itself.
    DisruptionCostAlone,
}

pub(crate) fn pod_disruption(pod: &Pod, cost_of: CostOf) -> PodDisruption {
    PodDisruption {
        reschedulable: pods::is_reschedulable(pod),
        counted: !pods::is_owned_by_daemon_set(pod) && !pods::is_terminal(pod),
        eviction_cost: eviction_cost(pod, cost_of),
        active: pods::is_active(pod),
        evictable: pods::is_evictable_but_for_annotation(pod),
        unready: pods::is_unready(pod),
        do_not_disrupt: do_not_disrupt(pod),
        deletion_cost: deletion_cost(pod),
    }
}

/// Whose the deletion cost is. Two annotations are written in one request, so that they differ only if somebody else wrote since.
pub(crate) fn deletion_cost(pod: &Pod) -> DeletionCost {
    let annotations = pod.annotations();
    let Some(written) = annotations.get(POD_DELETION_COST) else { return DeletionCost::None };
    let managed = annotations.get(DELETION_COST_MANAGED).filter(|managed| *managed == written);
    match managed.and_then(|cost| cost.parse().ok()) {
        Some(cost) => DeletionCost::Managed(cost),
        None => DeletionCost::Foreign,
    }
}

fn do_not_disrupt(pod: &Pod) -> DoNotDisrupt {
    // Before its end, whatever the time is.
    match Protection::of(pod, Timestamp::MIN) {
        Protection::Always => DoNotDisrupt::Always,
        Protection::Until(end) => DoNotDisrupt::Until(end),
        Protection::None | Protection::Elapsed | Protection::Invalid(_) => DoNotDisrupt::No,
    }
}

/// One, and more or less by what the pod's annotation and its priority say.
pub(crate) fn eviction_cost(pod: &Pod, cost_of: CostOf) -> Cost {
    let annotations = pod.annotations();
    // What Kerf has written says what it wants of the node, not what the pod costs; also where the gate is off again.
    let of_user = cost_of == CostOf::Either && deletion_cost(pod) == DeletionCost::Foreign;
    let deletion_cost = annotations.get(POD_DELETION_COST).filter(|_| of_user);
    // What cannot be read counts as nothing, and lets no other annotation speak for it.
    let annotation = annotations.get(DISRUPTION_COST).or(deletion_cost);
    let written: Option<i32> = annotation.and_then(|text| text.parse().ok());
    let priority = pod.spec().priority.map_or(0, i64::from);
    let cost = Cost::ONE.0 + written.map_or(0, i64::from) + priority * 4;
    Cost(cost.clamp(-Cost::MOST.0, Cost::MOST.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Inputs;
    use k8s_openapi::api::core::v1 as core;
    use kerf_api::NodeClaim;
    use kerf_model::{disruption::Obstacle, pdb::Evicted};
    use serde_json::{Value, json};

    fn pod(changes: &Value) -> core::Pod {
        serde_json::from_value(changes.clone()).unwrap()
    }

    fn kept(changes: &Value) -> Pod {
        pod(changes).into()
    }

    #[test]
    fn eviction_costs_follow_priority_and_annotations() {
        let one = Cost::ONE.0;
        let check = |priority: Option<i32>, annotations: Value, expect: i64| {
            let pod = kept(&json!({
                "metadata": {"annotations": annotations},
                "spec": {"priority": priority, "containers": []},
            }));
            let got = eviction_cost(&pod, CostOf::Either);
            assert_eq!(got, Cost(expect), "{priority:?} {annotations}");
        };
        let none = || json!({});
        check(None, none(), one);
        check(Some(0), none(), one);
        check(Some(1 << 25), none(), 2 * one);
        check(Some(-(1 << 25)), none(), 0);
        check(Some(1), none(), one + 4);
        check(Some(2_000_000_000), none(), 10 * one);
        check(Some(i32::MIN), none(), -10 * one);
        let cost = |text: &str| json!({POD_DELETION_COST: text});
        check(None, cost("134217728"), 2 * one);
        check(None, cost("-134217728"), 0);
        check(None, cost("2147483647"), 10 * one);
        check(None, cost("-1"), one - 1);
        check(None, cost("+1"), one + 1);
        check(Some(1 << 25), cost("-134217728"), one);
        for not_a_number in ["soon", "NaN", "inf", "", "1.5", "1e3", "0x10", "2147483648"] {
            check(None, cost(not_a_number), one);
        }
        let both = |own: &str| json!({DISRUPTION_COST: own, POD_DELETION_COST: "134217728"});
        check(None, json!({DISRUPTION_COST: "134217728"}), 2 * one);
        check(None, both("-134217728"), 0);
        check(None, both("0"), one);
        check(None, both("soon"), one);
        let managed =
            |cost: &str| json!({POD_DELETION_COST: "134217728", DELETION_COST_MANAGED: cost});
        check(None, managed("134217728"), one);
        check(None, managed("-5"), 2 * one);
    }

    #[test]
    fn with_the_gate_on_only_the_disruption_cost_counts() {
        let one = Cost::ONE.0;
        for (annotations, either, alone) in [
            (json!({}), one, one),
            (json!({POD_DELETION_COST: "134217728"}), 2 * one, one),
            (json!({DISRUPTION_COST: "134217728"}), 2 * one, 2 * one),
            (json!({DISRUPTION_COST: "soon", POD_DELETION_COST: "134217728"}), one, one),
        ] {
            let pod = kept(&json!({"metadata": {"annotations": annotations}}));
            let costs = [CostOf::Either, CostOf::DisruptionCostAlone]
                .map(|cost_of| eviction_cost(&pod, cost_of));
            assert_eq!(costs, [Cost(either), Cost(alone)], "{annotations}");
        }
        let loaded = |manages: bool| {
            let mut cluster = Cluster::default();
            if manages {
                cluster.manage_deletion_costs();
            }
            cluster.apply::<core::Pod>(
                serde_json::from_value(json!({
                    "metadata": {"name": "p", "namespace": "d", "annotations": {POD_DELETION_COST: "134217728"}},
                    "spec": {"nodeName": "n", "containers": []},
                }))
                .unwrap(),
            );
            cluster.apply::<core::Node>(
                serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap(),
            );
            let snapshot = cluster.snapshot(Inputs::at(Timestamp::UNIX_EPOCH)).unwrap().snapshot;
            snapshot.nodes[0].pods[0].disruption.eviction_cost
        };
        assert_eq!((loaded(false), loaded(true)), (Cost(2 * one), Cost(one)));
    }

    #[test]
    fn a_deletion_cost_is_kerfs_while_its_mark_says_the_same() {
        for (annotations, expected) in [
            (json!({}), DeletionCost::None),
            (json!({POD_DELETION_COST: "-7"}), DeletionCost::Foreign),
            (
                json!({POD_DELETION_COST: "-7", DELETION_COST_MANAGED: "-7"}),
                DeletionCost::Managed(-7),
            ),
            // Written by somebody since, or taken away.
            (json!({POD_DELETION_COST: "9", DELETION_COST_MANAGED: "-7"}), DeletionCost::Foreign),
            (json!({DELETION_COST_MANAGED: "-7"}), DeletionCost::None),
            (json!({POD_DELETION_COST: "x", DELETION_COST_MANAGED: "x"}), DeletionCost::Foreign),
        ] {
            let pod = kept(&json!({"metadata": {"annotations": annotations}}));
            assert_eq!(deletion_cost(&pod), expected, "{annotations}");
        }
    }

    #[test]
    fn pods_hold_their_node_by_annotation_and_by_budget() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let owner = |api_version: &str, kind: &str| json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o"}]);
        let (daemon, mirror) = (owner("apps/v1", "DaemonSet"), owner("v1", "Node"));
        let deleted = json!("2026-01-01T00:59:00Z");
        let tolerates = json!([{"key": "karpenter.sh/disrupted", "operator": "Exists"}]);
        let plain = || json!({"metadata": {}, "spec": {}, "status": {"phase": "Running"}});
        let with = |path: [&str; 2], value: &Value| {
            let mut pod = plain();
            pod[path[0]][path[1]] = value.clone();
            pod
        };
        // What the annotation does to it, and what a budget that allows nothing does.
        for (what, pod, annotated, budgeted) in [
            ("plain", plain(), true, true),
            ("daemon", with(["metadata", "ownerReferences"], &daemon), true, true),
            ("mirror", with(["metadata", "ownerReferences"], &mirror), true, false),
            ("terminating", with(["metadata", "deletionTimestamp"], &deleted), false, false),
            ("over", with(["status", "phase"], &json!("Succeeded")), false, false),
            ("failed", with(["status", "phase"], &json!("Failed")), false, false),
            ("tolerating", with(["spec", "tolerations"], &tolerates), true, false),
        ] {
            let mut cluster = Cluster::default();
            cluster.apply::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(
                serde_json::from_value(json!({
                    "metadata": {"name": "b", "namespace": "ns"},
                    "spec": {"maxUnavailable": 0, "selector": {}},
                    "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
                }))
                .unwrap(),
            );
            let stands = |annotations: &Value| {
                let mut pod_json = pod.clone();
                pod_json["metadata"]["name"] = json!("p");
                pod_json["metadata"]["namespace"] = json!("ns");
                pod_json["metadata"]["annotations"] = annotations.clone();
                pod_json["spec"]["containers"] = json!([]);
                let pod = kept(&pod_json);
                let disruption = pod_disruption(&pod, CostOf::default());
                if disruption.is_protected(now) {
                    return Some(Obstacle::DoNotDisrupt);
                }
                let evicted =
                    Evicted { namespace: "ns", labels: pod.labels(), disruption: &disruption };
                cluster.shared_pdbs().blocks(evicted, now)
            };
            let by_budget = budgeted.then(|| Obstacle::Budget("ns/b".to_owned()));
            assert_eq!(stands(&json!({})), by_budget, "{what} with a budget");
            let by_annotation = if annotated { Some(Obstacle::DoNotDisrupt) } else { by_budget };
            let annotation = json!({DO_NOT_DISRUPT: "true"});
            assert_eq!(stands(&annotation), by_annotation, "{what} with the annotation");
        }
    }

    #[test]
    fn a_snapshot_says_what_disruption_depends_on() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let condition = |kind: &str, at: &str| {
            json!({"type": kind, "status": "True", "reason": kind, "message": "",
                   "lastTransitionTime": format!("2026-01-01T{at}Z")})
        };
        let mut cluster = Cluster::default();
        cluster.apply::<kerf_api::NodePool>(
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
                "spec": {
                    "limits": {"nodes": "3500m"},
                    "disruption": {"consolidateAfter": "30m", "consolidationSavingsThreshold": 0.5},
                    "template": {"spec": {
                        "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                    }},
                },
                "status": {"conditions": [condition("Ready", "00:00:00")]},
            }))
            .unwrap(),
        );
        cluster.apply::<NodeClaim>(
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z",
                             "labels": {"karpenter.sh/nodepool": "p"}},
                "spec": {"requirements": [], "terminationGracePeriod": "1h", "expireAfter": "720h",
                         "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": {"providerID": "i-1", "lastPodEventTime": "2026-01-01T00:40:00Z", "conditions":
                    [condition("Initialized", "00:05:00"), condition("Drifted", "00:06:00")]},
            }))
            .unwrap(),
        );
        cluster.apply::<core::Node>(
            serde_json::from_value(json!({
                "metadata": {"name": "n", "annotations": {DO_NOT_DISRUPT: "true"}, "labels": {
                    "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true",
                    "karpenter.sh/initialized": "true"}},
                "spec": {"providerID": "i-1"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap(),
        );
        for (name, phase, annotations) in [
            ("a", "Running", json!({})),
            ("b", "Running", json!({DO_NOT_DISRUPT: "true"})),
            ("c", "Succeeded", json!({})),
            ("d", "Running", json!({DO_NOT_DISRUPT: "2h"})),
        ] {
            cluster.apply(pod(&json!({
                "metadata": {"name": name, "namespace": "ns", "annotations": annotations},
                "spec": {"nodeName": "n", "containers": []},
                "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z"},
            })));
        }
        let soon = "2026-01-01T01:00:20Z".parse().unwrap();
        cluster.nominate("c", [crate::Key::namespaced("d", "p")], soon);
        let inputs = Inputs { in_queue: ["c".to_owned()].into(), ..Inputs::at(now) };
        let snapshot = cluster.snapshot(inputs).unwrap().snapshot;

        let pool = &snapshot.pools["p"];
        assert_eq!(pool.disruption.controls.savings_threshold, "0.5".parse().unwrap());
        assert!(pool.idle.is_some(), "nothing to launch without instance types");

        let [node] = &snapshot.nodes[..] else { panic!("{:?}", snapshot.nodes) };
        assert!(snapshot.is_settling(node), "a pod came or went twenty minutes ago");
        let found = &node.disruption;
        assert!(snapshot.is_in_queue(node) && found.do_not_disrupt && found.ready);
        assert!(!found.consolidatable && !found.instance_terminating);
        assert_eq!(snapshot.nominated_until(node), Some(soon));
        assert_eq!(found.drifted_since, "2026-01-01T00:06:00Z".parse().ok());
        assert_eq!(found.quiet_since(), "2026-01-01T00:40:00Z".parse().ok());
        assert_eq!(found.termination_grace_period, Some(std::time::Duration::from_hours(1)));
        assert_eq!(found.expire_after, Some(std::time::Duration::from_hours(720)));
        assert_eq!(node.pods.len(), 3, "pods that are over are not there");
        let held = |pod: &std::sync::Arc<kerf_model::Pod>| {
            (snapshot.obstacle(pod), pod.disruption.do_not_disrupt.end())
        };
        let protected = Some(Obstacle::DoNotDisrupt);
        assert_eq!(
            node.pods.iter().map(held).collect::<Vec<_>>(),
            [
                (None, None),
                (protected.clone(), None),
                (protected, "2026-01-01T02:00:00Z".parse().ok())
            ]
        );
    }

    #[test]
    fn nodes_settle_whether_or_not_their_pool_can_launch() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let settles = |metadata: &Value, ready: &str, replicas: Option<u32>| {
            let mut cluster = Cluster::default();
            let mut pool = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
                "spec": {
                    "replicas": replicas,
                    "disruption": {"consolidateAfter": "0s", "consolidationGracePeriod": "30m"},
                    "template": {"spec": {
                        "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                    }},
                },
                "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "", "message": "",
                                           "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            });
            for (key, value) in metadata.as_object().into_iter().flatten() {
                pool["metadata"][key] = value.clone();
            }
            cluster.apply::<kerf_api::NodePool>(serde_json::from_value(pool).unwrap());
            cluster.apply::<NodeClaim>(
                serde_json::from_value(json!({
                    "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                    "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "p"}},
                    "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                    "status": {"providerID": "i-1", "lastPodEventTime": "2026-01-01T00:40:00Z", "conditions": [
                        {"type": "Initialized", "status": "True", "reason": "", "message": "",
                         "lastTransitionTime": "2026-01-01T00:05:00Z"},
                    ]},
                }))
                .unwrap(),
            );
            cluster.apply::<core::Node>(
                serde_json::from_value(json!({
                    "metadata": {"name": "n", "labels": {
                        "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true",
                        "karpenter.sh/initialized": "true"}},
                    "spec": {"providerID": "i-1"},
                }))
                .unwrap(),
            );
            let snapshot = cluster.snapshot(Inputs::at(now)).unwrap().snapshot;
            snapshot.is_settling(&snapshot.nodes[0])
        };
        assert!(settles(&json!({}), "True", None));
        assert!(settles(&json!({}), "False", None));
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:50:00Z"});
        assert!(settles(&deleted, "True", None));
        assert!(!settles(&json!({}), "True", Some(1)), "static nodes always take pods");
    }
}
