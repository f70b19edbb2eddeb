//! Where a pod may go: selectors, affinity, taints.

use super::*;

/// Taints, selectors, ports, gates.
pub(super) fn rows() -> Vec<Row> {
    let tolerating = json!({ "tolerations": [{ "key": "team", "operator": "Exists" }] });
    let by_name = json!({ "key": "metadata.name", "operator": "In", "values": ["b"] });
    let by_name = json!({ "nodeSelectorTerms": [{ "matchFields": [by_name] }] });
    let by_name = json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": by_name } } });
    let preferring = json!({ "affinity": { "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "preference": { "matchExpressions": [{ "key": ZONE, "operator": "In", "values": ["y"] }] },
        }],
    } } });
    let untolerated = "0/1 nodes are available: 1 node(s) had untolerated taint(s)";
    let not_selected =
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector";
    vec![
        row(
            "a_taint_keeps_pods_away",
            [("a", tainted("NoSchedule"))],
            [
                ("web", plain(), Waits("Unschedulable", untolerated)),
                ("blue", tolerating.clone(), On("a")),
            ],
        ),
        row(
            "a_taint_that_expels_keeps_away_too",
            [("a", tainted("NoExecute"))],
            [("web", plain(), Waits("Unschedulable", untolerated)), ("blue", tolerating, On("a"))],
        ),
        row(
            "a_soft_taint_is_avoided",
            [("a", tainted("PreferNoSchedule")), ("b", plain())],
            [("web", plain(), On("b"))],
        ),
        row(
            "a_soft_taint_is_no_obstacle",
            [("a", tainted("PreferNoSchedule"))],
            [("web", plain(), On("a"))],
        ),
        row(
            "a_label_that_no_node_has",
            [("a", plain())],
            [("web", selecting(json!({ "disk": "fast" })), Waits("Unschedulable", not_selected))],
        ),
        row(
            "a_label_that_one_node_has",
            [("a", plain()), ("b", labelled(json!({ "disk": "fast" })))],
            [("web", selecting(json!({ "disk": "fast" })), On("b"))],
        ),
        row(
            "affinity_by_number",
            [("a", labelled(json!({ "size": "8" }))), ("b", labelled(json!({ "size": "16" })))],
            [
                (
                    "large",
                    node_affinity(json!({ "key": "size", "operator": "Gt", "values": ["8"] })),
                    On("b"),
                ),
                (
                    "small",
                    node_affinity(json!({ "key": "size", "operator": "Lt", "values": ["16"] })),
                    On("a"),
                ),
            ],
        ),
        row(
            "affinity_by_absence",
            [("a", labelled(json!({ "size": "8" }))), ("b", plain())],
            [
                (
                    "none",
                    node_affinity(json!({ "key": "size", "operator": "DoesNotExist" })),
                    On("b"),
                ),
                (
                    "not",
                    node_affinity(json!({ "key": "size", "operator": "NotIn", "values": ["8"] })),
                    On("b"),
                ),
            ],
        ),
        row("affinity_by_name", [("a", plain()), ("b", plain())], [("web", by_name, On("b"))]),
        row(
            "a_preferred_zone",
            [("a", zone("x")), ("b", zone("y"))],
            [("web", preferring, On("b"))],
        ),
        row(
            "a_cordoned_node",
            [("a", json!({ "spec": { "unschedulable": true } }))],
            [(
                "web",
                plain(),
                Waits("Unschedulable", "0/1 nodes are available: 1 node(s) were unschedulable"),
            )],
        ),
        row(
            "a_port_that_is_taken",
            [("a", plain())],
            [
                ("one", port("TCP", 80), On("a")),
                ("other", port("UDP", 80), On("a")),
                (
                    "two",
                    port("TCP", 80),
                    Waits(
                        "Unschedulable",
                        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports",
                    ),
                ),
            ],
        ),
        row(
            "each_node_has_its_own_reason",
            [
                ("a", tainted("NoSchedule")),
                ("b", json!({ "spec": { "unschedulable": true } })),
                ("c", json!({ "status": { "allocatable": { "cpu": "1" } } })),
                ("d", json!({ "status": { "allocatable": { "cpu": "1" } } })),
            ],
            [(
                "web",
                requests(json!({ "cpu": "2" })),
                Waits(
                    "Unschedulable",
                    "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu",
                ),
            )],
        ),
        row(
            "a_pod_behind_a_gate",
            [("a", plain())],
            [(
                "web",
                json!({ "schedulingGates": [{ "name": "example.com/later" }] }),
                Waits("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
            )],
        ),
        row(
            "a_pod_of_another_scheduler",
            [("a", plain())],
            [("web", json!({ "schedulerName": "mine" }), Ignored)],
        ),
    ]
}
