//! The metrics that dashboards and alerts look for: their names, types and labels, as data, against what an operator shows
//! after an ordinary life.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::apps::v1::Deployment;
use kerf_testbed::CloudFault;
use kube::ResourceExt;
use serde_json::json;

use super::{all_run, counted, no_node, one_ready_node, with_pool};
use crate::{
    World, build,
    series::{Objects, sizes},
};

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

const DISRUPTED: &str = "capacity_type consolidation_policy nodepool reason termination_mode";
const POD: &str = "name namespace";
const UNBOUND: &str = "dynamic_resources name namespace";
const NODE: &str = "arch capacity_type instance_cpu instance_family instance_memory instance_size instance_type managed node_name nodepool os phase region windows_build zone";
const DECISION: &str = "consolidation_type decision reason";

/// Name, type, labels. Karpenter has summaries where it says `startup_duration` and `nodes_termination_duration`: their
/// sums and counts have the same names in a histogram.
const KARPENTER: [(&str, &str, &str); 56] = [
    ("karpenter_nodeclaims_created_total", COUNTER, "min_values_relaxed nodepool reason"),
    ("karpenter_nodeclaims_terminated_total", COUNTER, "capacity_type nodepool zone"),
    ("karpenter_nodeclaims_disrupted_total", COUNTER, DISRUPTED),
    ("karpenter_pods_disruption_initiated_total", COUNTER, DISRUPTED),
    ("karpenter_nodes_created_total", COUNTER, "nodepool zone"),
    ("karpenter_nodes_terminated_total", COUNTER, "nodepool zone"),
    ("karpenter_nodes_drained_total", COUNTER, "nodepool"),
    ("karpenter_nodes_termination_duration_seconds", HISTOGRAM, "nodepool"),
    ("karpenter_nodes_lifetime_duration_seconds", HISTOGRAM, "nodepool"),
    ("karpenter_nodeclaims_instance_termination_duration_seconds", HISTOGRAM, "nodepool"),
    ("karpenter_nodeclaims_termination_duration_seconds", HISTOGRAM, "nodepool"),
    ("karpenter_pods_eviction_requests_total", COUNTER, "code"),
    ("karpenter_pods_drained_total", COUNTER, "reason"),
    ("karpenter_pods_scheduling_decision_duration_seconds", HISTOGRAM, ""),
    (
        "karpenter_pods_state",
        GAUGE,
        "arch capacity_type instance_type managed name namespace node nodepool owner phase ready scheduled zone",
    ),
    ("karpenter_pods_startup_duration_seconds", HISTOGRAM, ""),
    ("karpenter_pods_unstarted_time_seconds", GAUGE, POD),
    ("karpenter_pods_bound_duration_seconds", HISTOGRAM, "dynamic_resources"),
    ("karpenter_pods_unbound_time_seconds", GAUGE, UNBOUND),
    ("karpenter_pods_provisioning_bound_duration_seconds", HISTOGRAM, "dynamic_resources"),
    ("karpenter_pods_provisioning_unbound_time_seconds", GAUGE, UNBOUND),
    ("karpenter_pods_provisioning_startup_duration_seconds", HISTOGRAM, ""),
    ("karpenter_pods_provisioning_unstarted_time_seconds", GAUGE, POD),
    ("karpenter_pods_provisioning_scheduling_undecided_time_seconds", GAUGE, POD),
    ("karpenter_nodes_allocatable", GAUGE, "+resource_type"),
    ("karpenter_nodes_total_pod_requests", GAUGE, "+resource_type"),
    ("karpenter_nodes_total_pod_limits", GAUGE, "+resource_type"),
    ("karpenter_nodes_total_daemon_requests", GAUGE, "+resource_type"),
    ("karpenter_nodes_total_daemon_limits", GAUGE, "+resource_type"),
    ("karpenter_nodes_system_overhead", GAUGE, "+resource_type"),
    ("karpenter_nodes_current_lifetime_seconds", GAUGE, "+"),
    ("karpenter_cluster_utilization_percent", GAUGE, "resource_type"),
    ("karpenter_nodepools_limit", GAUGE, "nodepool resource_type"),
    ("karpenter_nodepools_usage", GAUGE, "nodepool resource_type"),
    ("karpenter_nodepools_cost_total", GAUGE, "nodepool"),
    ("karpenter_nodepools_allowed_disruptions", GAUGE, "nodepool reason"),
    ("karpenter_nodepools_nodes_consuming_budgets", GAUGE, "nodepool reason"),
    ("karpenter_scheduler_scheduling_duration_seconds", HISTOGRAM, "controller"),
    ("karpenter_scheduler_queue_depth", GAUGE, "controller scheduling_id"),
    ("karpenter_scheduler_unfinished_work_seconds", GAUGE, "controller scheduling_id"),
    ("karpenter_scheduler_ignored_pods_count", GAUGE, ""),
    ("karpenter_scheduler_unschedulable_pods_count", GAUGE, "controller"),
    ("karpenter_scheduler_pending_pods_by_effective_zone_count", GAUGE, "controller zone"),
    ("karpenter_cluster_state_node_count", GAUGE, ""),
    ("karpenter_cluster_state_synced", GAUGE, ""),
    ("karpenter_cluster_state_unsynced_time_seconds", GAUGE, ""),
    (
        "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
        HISTOGRAM,
        "consolidation_type reason",
    ),
    ("karpenter_voluntary_disruption_decisions_total", COUNTER, DECISION),
    (
        "karpenter_voluntary_disruption_decisions_by_nodepool_total",
        COUNTER,
        "consolidation_type decision nodepool reason",
    ),
    ("karpenter_voluntary_disruption_eligible_nodes", GAUGE, "reason"),
    ("karpenter_voluntary_disruption_consolidation_timeouts_total", COUNTER, "consolidation_type"),
    ("karpenter_voluntary_disruption_failed_validations_total", COUNTER, "consolidation_type"),
    ("karpenter_consolidation_blocked_total", COUNTER, "nodepool reason"),
    ("karpenter_cloudprovider_duration_seconds", HISTOGRAM, "controller method provider"),
    ("karpenter_cloudprovider_errors_total", COUNTER, "controller error method nodepool provider"),
    (
        "karpenter_cloudprovider_instance_type_offering_price_estimate",
        GAUGE,
        "capacity_type instance_type zone",
    ),
];

/// What the operator shows beside them: counters of what did not happen in the story are not shown, and
/// `karpenter_build_info`, `client_go_*` and `leader_election_*` belong to the process.
const RUNTIME: [(&str, &str, &str); 15] = [
    ("controller_runtime_reconcile_total", COUNTER, "controller result"),
    ("controller_runtime_reconcile_errors_total", COUNTER, "controller"),
    ("controller_runtime_terminal_reconcile_errors_total", COUNTER, "controller"),
    ("controller_runtime_reconcile_panics_total", COUNTER, "controller"),
    ("controller_runtime_reconcile_timeouts_total", COUNTER, "controller"),
    ("controller_runtime_reconcile_time_seconds", HISTOGRAM, "controller"),
    ("controller_runtime_max_concurrent_reconciles", GAUGE, "controller"),
    ("controller_runtime_active_workers", GAUGE, "controller"),
    ("workqueue_depth", GAUGE, "controller name"),
    ("workqueue_adds_total", COUNTER, "controller name"),
    ("workqueue_queue_duration_seconds", HISTOGRAM, "controller name"),
    ("workqueue_work_duration_seconds", HISTOGRAM, "controller name"),
    ("workqueue_unfinished_work_seconds", GAUGE, "controller name"),
    ("workqueue_longest_running_processor_seconds", GAUGE, "controller name"),
    ("workqueue_retries_total", COUNTER, "controller name"),
];

/// The metrics of one kind of object with conditions, with the labels that its own series carry.
fn of_conditions(prefix: &str, own: &str, named: bool) -> Vec<(String, &'static str, String)> {
    let name = if named { "name namespace " } else { "" };
    let row = |rest: &str, kind, labels: String| (format!("{prefix}_{rest}"), kind, labels);
    vec![
        row("status_condition_transition_seconds", HISTOGRAM, format!("status type {own}")),
        row("status_condition_transitions_total", COUNTER, format!("reason status type {own}")),
        row("status_condition_count", GAUGE, format!("{name}reason status type {own}")),
        row(
            "status_condition_current_status_seconds",
            GAUGE,
            format!("{name}reason status type {own}"),
        ),
        row("termination_current_time_seconds", GAUGE, format!("{name}{own}")),
        row("termination_duration_seconds", HISTOGRAM, own.to_owned()),
    ]
}

fn catalogue() -> Vec<(String, &'static str, BTreeSet<String>)> {
    let class = "karpenter_kwok_sh_kwoknodeclass karpenter_sh_nodepool";
    let fixed = KARPENTER.iter().chain(&RUNTIME);
    let fixed = fixed.map(|(name, kind, labels)| ((*name).to_owned(), *kind, (*labels).to_owned()));
    let pools = of_conditions("operator_nodepool", "", true);
    // No pool goes in the story.
    let pools =
        pools.into_iter().filter(|(name, _, _)| !name.ends_with("termination_duration_seconds"));
    let all = fixed
        .chain(of_conditions("operator_nodeclaim", class, true))
        .chain(pools)
        .chain(of_conditions("operator_node", &format!("{class} karpenter_sh_initialized"), true))
        .chain(of_conditions("operator", "group kind", true));
    all.map(|(name, kind, labels)| {
        let labels = labels.replace('+', &format!("{NODE} "));
        (name, kind, labels.split_whitespace().map(str::to_owned).collect())
    })
    .collect()
}

pub async fn every_metric_has_its_name_its_type_and_its_labels(world: World) {
    let mut shown = Shown::default();
    let changes = json!({"limits": {"cpu": "1000"}, "disruption": {"consolidateAfter": "0s"}});
    with_pool(&world, &changes).await;
    world.cloud().on_next(1, CloudFault::InsufficientCapacity);
    let limited = json!({"containers": [{"name": "main", "image": "main", "resources": {
        "requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "1"},
    }}]});
    world.create(build::daemon_set("agent", &limited)).await;
    let app = world.create::<Deployment>(build::deployment("a", 1, &limited)).await;
    // While the pod waits there is something to say about pods that wait.
    world
        .until("the pod runs", async |world: &World| {
            shown.look(&world.metrics());
            all_run(world, 2).await
        })
        .await;
    // A node is drained by hand, and another goes because nothing is left on it.
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.delete(&claim).await;
    world
        .until("another node is ready", async |world: &World| {
            shown.look(&world.metrics());
            let (other, _) = one_ready_node(world).await?;
            if other.metadata.uid == claim.metadata.uid { Err("the first".into()) } else { Ok(()) }
        })
        .await;
    world.pass(Duration::from_mins(1)).await;
    world.patch(&app, json!({"spec": {"replicas": 0}})).await;
    world
        .until("nothing is left", async |world: &World| {
            shown.look(&world.metrics());
            no_node(world).await
        })
        .await;
    shown.look(&world.metrics());
    let missing: Vec<_> = catalogue()
        .into_iter()
        .filter(|(name, kind, labels)| {
            let as_it_should = |shown: &(String, BTreeSet<String>)| {
                shown.0 == *kind && (shown.1 == *labels || shown.1.is_empty())
            };
            !shown.0.get(name).is_some_and(as_it_should)
        })
        .map(|(name, kind, labels)| {
            let shown = shown.0.get(&name);
            format!("{name} ({kind}, {labels:?}), shown as {shown:?}")
        })
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let documented = documented();
    let wrong: Vec<_> = shown
        .0
        .iter()
        .filter(|(name, (kind, labels))| {
            let as_shown = |row: &(&str, BTreeSet<String>)| {
                row.0 == kind && (labels.is_empty() || row.1.is_subset(labels))
            };
            !documented.get(name.as_str()).is_some_and(as_shown)
        })
        .collect();
    assert!(wrong.is_empty(), "docs/metrics.md says something else of {wrong:#?}");
    let unknown: Vec<_> = asked_for().into_iter().filter(|name| !shown.has(name)).collect();
    assert!(unknown.is_empty(), "the chart asks for metrics that do not exist: {unknown:?}");
}

/// The rows of docs/metrics.md: type and labels by name. Labels that come with a provider are not among them.
fn documented() -> BTreeMap<&'static str, (&'static str, BTreeSet<String>)> {
    let page = include_str!("../../../../docs/metrics.md");
    let row = |line: &'static str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, name, kind @ (COUNTER | GAUGE | HISTOGRAM), labels, _, _] = cells[..] else {
            return None;
        };
        let labels = labels.split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        Some((name.trim_matches('`'), (kind, labels)))
    };
    page.lines().filter_map(row).collect()
}

/// Belong to the process, or count what does not happen in the story.
const ELSEWHERE: [&str; 2] =
    ["leader_election_master_status", "karpenter_cluster_state_unreadable_objects"];

/// The metrics that the alerts and the dashboard of the chart are made of.
fn asked_for() -> BTreeSet<String> {
    const CHART: [&str; 2] = [
        include_str!("../../../../charts/kerf/files/alerts.yaml"),
        include_str!("../../../../charts/kerf/files/dashboard.json"),
    ];
    const FAMILIES: [&str; 6] = [
        "karpenter_",
        "operator_",
        "controller_runtime_",
        "workqueue_",
        "leader_election_",
        "client_go_",
    ];
    let words =
        CHART.iter().flat_map(|text| text.split(|c: char| !(c.is_alphanumeric() || c == '_')));
    let metrics = words.filter(|word| FAMILIES.iter().any(|family| word.starts_with(family)));
    metrics.map(str::to_owned).collect()
}

pub async fn calls_of_the_cloud_that_fail_are_counted_by_pool(world: World) {
    let pool = with_pool(&world, &json!({})).await;
    world.cloud().on_next(1, CloudFault::InsufficientCapacity);
    world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let of_pool = format!("nodepool=\"{}\"", pool.name_any());
    let labels = ["method=\"Create\"", "error=\"InsufficientCapacityError\"", &of_pool];
    assert_eq!(counted(&world, "karpenter_cloudprovider_errors_total", &labels), 1);
}

pub async fn no_gauge_of_pods_or_nodes_has_more_series_than_karpenters(world: World) {
    with_pool(&world, &json!({})).await;
    let limited = json!({"containers": [{"name": "main", "image": "main", "resources": {
        "requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "1"},
    }}]});
    world.create(build::daemon_set("agent", &limited)).await;
    let mut apart = limited.clone();
    apart["affinity"] = json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}},
        }],
    }});
    world.create(build::deployment("a", 3, &apart)).await;
    world.until("the pods run", async |world: &World| all_run(world, 6).await).await;
    // One that waits, and for which no place is found.
    let nowhere = json!({"nodeSelector": {"kubernetes.io/arch": "none"}});
    world.create(build::pod("waits", &nowhere)).await;
    world.pass(Duration::from_secs(30)).await;
    let objects = Objects {
        nodes: world.list().await,
        claims: world.list().await,
        pools: world.list().await,
        pods: world.list().await,
    };
    assert_eq!((objects.nodes.len(), objects.pods.len()), (3, 7));
    let shown = sizes(&world.metrics());
    let of = |name: &str| shown.get(name).map_or(0, |size| size.series);
    let at_most = objects.at_most();
    let more: Vec<_> = at_most.iter().filter(|(name, most)| of(name) > **most).collect();
    assert!(more.is_empty(), "more than {more:?} in {shown:#?}");
    // Nor are they fewer because nothing is shown.
    for (name, series) in [
        ("karpenter_pods_state", 7),
        ("karpenter_pods_unbound_time_seconds", 1),
        ("karpenter_nodes_current_lifetime_seconds", 3),
    ] {
        assert_eq!(of(name), series, "{name}");
    }
    let grows = |name: &&String| {
        name.starts_with("karpenter_nodes_") && !at_most.contains_key(name.as_str())
    };
    // A family of nodes that is not in the table counts what happened, by pool and zone.
    for name in shown.keys().filter(grows) {
        assert!(name.ends_with("_total") || name.ends_with("_duration_seconds"), "{name}");
    }
}

/// By name: the type and the labels of each metric that has been shown.
#[derive(Debug, Default)]
struct Shown(BTreeMap<String, (String, BTreeSet<String>)>);

impl Shown {
    fn look(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
            {
                kind.clone_into(&mut self.0.entry(name.to_owned()).or_default().0);
            } else if !line.starts_with('#') {
                self.sample(line);
            }
        }
    }

    /// Whether it is the name of a metric, or of a part of a histogram.
    fn has(&self, name: &str) -> bool {
        let parts = ["_bucket", "_sum", "_count"];
        let family = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        ELSEWHERE.contains(&name) || self.0.contains_key(name) || self.0.contains_key(family)
    }

    fn sample(&mut self, line: &str) {
        let sample = line.rsplit_once(' ').map_or(line, |(sample, _)| sample);
        let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
        let names = ["", "_bucket", "_sum", "_count"];
        let family = names.iter().find_map(|suffix| {
            let family = name.strip_suffix(suffix)?;
            self.0.contains_key(family).then(|| family.to_owned())
        });
        let Some((_, known)) = family.and_then(|family| self.0.get_mut(&family)) else { return };
        let labels = labels.trim_end_matches('}').split("\",");
        let keys = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        known.extend(keys.filter(|key| key != "le"));
    }
}
