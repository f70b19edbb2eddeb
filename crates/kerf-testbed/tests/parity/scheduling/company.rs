//! Whom a pod wants around it: spread and (anti-)affinity.

use super::*;

/// Affinity, anti-affinity and spread.
pub(super) fn rows() -> Vec<Row> {
    let apart = |app: &str, key: &str| with_pods("podAntiAffinity", app, key);
    let together = |app: &str, key: &str| with_pods("podAffinity", app, key);
    let on = |node: &str| selecting(json!({ HOSTNAME: node }));
    vec![
        row(
            "pods_that_avoid_another",
            [("a", plain())],
            [
                ("web", plain(), On("a")),
                (
                    "shy",
                    apart("web", HOSTNAME),
                    Waits(
                        "Unschedulable",
                        "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules",
                    ),
                ),
            ],
        ),
        row(
            "pods_that_are_avoided",
            [("a", plain())],
            [
                ("shy", apart("web", HOSTNAME), On("a")),
                (
                    "web",
                    plain(),
                    Waits(
                        "Unschedulable",
                        "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules",
                    ),
                ),
            ],
        ),
        row(
            "a_zone_apart",
            [("a", zone("x")), ("b", zone("x")), ("c", zone("y"))],
            [("web", on("a"), On("a")), ("shy", apart("web", ZONE), On("c"))],
        ),
        row(
            "pods_that_want_company_that_is_not_there",
            [("a", zone("x"))],
            [(
                "web",
                together("nobody", ZONE),
                Waits(
                    "Unschedulable",
                    "0/1 nodes are available: 1 node(s) didn't match pod affinity rules",
                ),
            )],
        ),
        row(
            "the_first_of_its_kind_may_begin",
            [("a", zone("x"))],
            [("web", together("web", ZONE), On("a"))],
        ),
        row(
            "company_in_the_same_zone",
            [("a", zone("x")), ("b", zone("y"))],
            [("web", on("a"), On("a")), ("fan", together("web", ZONE), On("a"))],
        ),
        row(
            "a_spread_over_hosts",
            [("a", plain()), ("b", plain())],
            [
                ("one", on("a"), On("a")),
                ("two", spread(HOSTNAME, json!({})), On("b")),
                ("three", on("a"), On("a")),
                ("four", spread(HOSTNAME, json!({})), On("b")),
            ],
        ),
        row(
            "a_spread_that_cannot_be_kept",
            [("a", zone("x")), ("b", merged(zone("y"), tainted("NoSchedule")))],
            [
                ("one", on("a"), On("a")),
                (
                    "two",
                    spread(ZONE, json!({})),
                    Waits(
                        "Unschedulable",
                        "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s)",
                    ),
                ),
            ],
        ),
        row(
            "a_spread_that_minds_taints",
            [("a", zone("x")), ("b", merged(zone("y"), tainted("NoSchedule")))],
            [
                ("one", on("a"), On("a")),
                ("two", spread(ZONE, json!({ "nodeTaintsPolicy": "Honor" })), On("a")),
            ],
        ),
        row(
            "a_spread_over_labels_that_are_missing",
            [("a", plain())],
            [(
                "web",
                spread(ZONE, json!({})),
                Waits(
                    "Unschedulable",
                    "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label)",
                ),
            )],
        ),
        row(
            "a_spread_over_more_domains_than_there_are",
            [("a", zone("x"))],
            [
                ("one", spread(ZONE, json!({ "minDomains": 2 })), On("a")),
                (
                    "two",
                    spread(ZONE, json!({ "minDomains": 2 })),
                    Waits(
                        "Unschedulable",
                        "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints",
                    ),
                ),
            ],
        ),
        row(
            "a_spread_that_is_only_wished_for",
            [("a", zone("x")), ("b", zone("y"))],
            [
                ("one", on("a"), On("a")),
                ("two", spread(ZONE, json!({ "whenUnsatisfiable": "ScheduleAnyway" })), On("b")),
            ],
        ),
    ]
}
