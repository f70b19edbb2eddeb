//! Every metric, from registries that show examples of all families.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::LazyLock,
};

use kerf_provider::Provider;
use kerf_runtime::{Metrics, client::RequestMetrics, election};

use crate::{providers, run};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// By name.
type Families = BTreeMap<String, Metric>;

/// Which metrics a table holds: those whose names begin so, and those of a provider.
const GROUPS: [(&str, &[&str]); 8] = [
    ("nodes", &["karpenter_nodeclaims_", "karpenter_nodes_", "karpenter_nodepools_"]),
    ("pods", &["karpenter_pod_deletion_cost_", "karpenter_pods_", "karpenter_scheduler_"]),
    ("disruption", &["karpenter_voluntary_disruption_", "karpenter_consolidation_"]),
    ("cluster", &["karpenter_cluster_", "karpenter_build_info"]),
    ("cloud", &["karpenter_cloudprovider_"]),
    ("conditions", &["operator_"]),
    ("runtime", &["controller_runtime_", "workqueue_", "leader_election_", "client_go_"]),
    ("process", &["process_"]),
];

pub(super) fn groups() -> impl Iterator<Item = String> {
    let of_providers = providers::all().into_iter().filter(|it| !of_provider(*it).is_empty());
    let of_providers = of_providers.map(|provider| format!("provider {}", provider.name()));
    GROUPS.iter().map(|(group, _)| (*group).to_owned()).chain(of_providers)
}

pub(super) fn table(group: &str) -> String {
    let families = if let Some(name) = group.strip_prefix("provider ") {
        of_provider(providers::named(name).unwrap())
    } else {
        let (_, prefixes) = GROUPS.iter().find(|(name, _)| *name == group).unwrap();
        let is_of_group = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        OWN.iter()
            .filter(|(name, _)| is_of_group(name))
            .map(|(n, m)| (n.clone(), m.clone()))
            .collect()
    };
    let mut text = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, Metric { kind, help, labels }) in families {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let help = help.trim_end_matches('.');
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {help}. |", labels.join(", "));
    }
    text
}

/// The operator's own.
static OWN: LazyLock<Families> = LazyLock::new(|| {
    let metrics = Metrics::with_examples();
    kerf_controllers::register_all_metrics(&metrics);
    RequestMetrics::register(&metrics);
    election::register_metrics(&metrics);
    run::register_build_info(&metrics);
    read(&metrics.text())
});

fn of_provider(provider: &dyn Provider) -> Families {
    let metrics = Metrics::with_examples();
    provider.register_metrics(&metrics);
    let mut families = read(&metrics.text());
    families.retain(|name, _| !OWN.contains_key(name));
    families
}

/// The text format of Prometheus.
fn read(text: &str) -> Families {
    let mut families = Families::new();
    let mut last = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            name.clone_into(&mut last);
            help.clone_into(&mut families.entry(last.clone()).or_default().help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            kind.clone_into(&mut families.entry(name.to_owned()).or_default().kind);
        } else if let Some((_, labels)) = line.split_once('{') {
            let (labels, _) = labels.rsplit_once('}').unwrap();
            let keys =
                labels.split(',').filter_map(|pair| pair.split_once("=\"")).map(|(key, _)| key);
            let family = families.get_mut(&last).unwrap();
            family.labels.extend(keys.filter(|key| *key != "le").map(str::to_owned));
        }
    }
    families
}

#[test]
fn every_metric_of_the_operator_is_in_one_table() {
    for name in OWN.keys() {
        let groups = GROUPS
            .iter()
            .filter(|(_, prefixes)| prefixes.iter().any(|prefix| name.starts_with(prefix)));
        assert_eq!(groups.count(), 1, "{name}");
    }
    // A family that no example was made of would have no labels.
    assert!(OWN["karpenter_nodeclaims_disrupted_total"].labels.contains("consolidation_policy"));
    assert!(OWN["workqueue_depth"].labels.contains("controller"));
    assert!(OWN.len() > 100, "{}", OWN.len());
}
