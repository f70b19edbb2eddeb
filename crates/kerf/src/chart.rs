//! What the charts say about Kerf is what Kerf says: the definitions, a value for every flag, the rights.
//!
//! After a change, `cargo xtask generate` writes them anew (by setting `KERF_WRITE_GENERATED`).
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

mod settings;

use std::{collections::BTreeMap, fs, path::Path};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_api::{CapacityBuffer, crd::crd_files};
use kerf_controllers::rbac::{BUFFERS, DEFAULT_SPREAD, ELECTION, LEASE, OPERATOR, OWNERS};
use kerf_provider::{
    Provider,
    rbac::{Rule, Scope},
};
use kube::Resource;
use serde_json::{Value, json};

use crate::{cli, providers};

const GENERATED: &str = "# Written by `cargo xtask generate`.\n";

#[test]
fn the_charts_are_generated_from_what_kerf_is() {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts");
    let write = std::env::var_os("KERF_WRITE_GENERATED").is_some();
    let mut stale = Vec::new();
    for (path, wanted) in generated(&charts) {
        let file = charts.join(&path);
        if write {
            fs::write(&file, &wanted).unwrap();
        }
        if fs::read_to_string(&file).is_ok_and(|found| found == wanted) {
            continue;
        }
        stale.push(path);
    }
    assert!(stale.is_empty(), "stale in charts: {stale:?}; run cargo xtask generate");
    // No definition stays that is no longer generated.
    let shipped = fs::read_dir(charts.join("kerf-crds/templates")).unwrap();
    let shipped = shipped.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
        Path::new(&name).extension().is_some_and(|extension| extension == "yaml")
    });
    assert_eq!(shipped.count(), definitions().len(), "delete what is no longer generated");
}

#[test]
fn the_charts_have_the_version_of_the_binary() {
    for chart in ["kerf", "kerf-crds"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts").join(chart);
        let text = fs::read_to_string(file.join("Chart.yaml")).unwrap();
        let chart: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            (&chart["version"], &chart["appVersion"]),
            (&cli::VERSION.into(), &cli::VERSION.into())
        );
    }
}

/// The lease that the table of rights names is the one of the flag, which the template puts in its place.
#[test]
fn the_lease_of_the_rights_is_the_one_of_the_flag() {
    assert_eq!(settings::of_flag("leader-election-name").1.default, LEASE);
}

/// Every generated file, by its path below `charts`.
fn generated(charts: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for file in crd_files(definitions()).unwrap() {
        files.insert(format!("kerf-crds/templates/{}", file.name), template(&file.yaml));
    }
    files.insert("kerf/files/rules.yaml".into(), yaml(&rules()));
    files.insert("kerf/files/flags.yaml".into(), yaml(&settings::flags()));
    for (path, fill) in [
        ("kerf/values.yaml", settings::fill_values as fn(&str) -> String),
        ("kerf/values.schema.json", settings::fill_schema),
    ] {
        let found = fs::read_to_string(charts.join(path)).unwrap();
        files.insert(path.into(), fill(&found));
    }
    files
}

/// Those of the chart. CapacityBuffer is not among them: other autoscalers install the same one, and Helm takes over nothing that
/// it has not installed.
fn definitions() -> Vec<CustomResourceDefinition> {
    let mut all = providers::crds();
    all.retain(|crd| crd.spec.group != CapacityBuffer::group(&()));
    all
}

fn yaml(value: &Value) -> String {
    format!("{GENERATED}{}", serde_saphyr::to_string(value).unwrap())
}

/// A definition as a template, so that `helm upgrade` upgrades it. `helm uninstall` leaves it: with a definition go all its
/// objects, and with the NodeClaims their machines.
fn template(crd: &str) -> String {
    let group = crd.lines().find_map(|line| line.strip_prefix("  group: ")).unwrap();
    let of = |provider: &&dyn Provider| provider.node_classes()[0].group == group;
    let provider = providers::all().into_iter().find(of);
    let crd = crd.replace("{{", "{{ \"{{\" }}").replacen(
        "metadata:\n",
        "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n",
        1,
    );
    match provider {
        Some(provider) => {
            let name = provider.name();
            format!(
                "{GENERATED}{{{{- if has \"{name}\" .Values.providers }}}}\n{crd}{{{{- end }}}}\n"
            )
        }
        None => format!("{GENERATED}{crd}"),
    }
}

fn rules() -> Value {
    let as_in_role = |rules: Vec<&Rule>| -> Value {
        rules.into_iter().map(|rule| json!(rule.policy_rule())).collect()
    };
    let of_provider = |provider: &dyn Provider| {
        let in_scope = |scope: Scope| {
            as_in_role(provider.rules().iter().filter(|rule| rule.scope == scope).collect())
        };
        let mut namespaces = BTreeMap::new();
        for rule in provider.rules() {
            if let Scope::Namespace(name) = rule.scope {
                namespaces.insert(name, in_scope(rule.scope));
            }
        }
        json!({"cluster": in_scope(Scope::Cluster), "namespaces": namespaces})
    };
    let of_providers: BTreeMap<_, _> =
        providers::all().map(|provider| (provider.name(), of_provider(provider))).into();
    json!({
        "operator": as_in_role(OPERATOR.iter().collect()),
        "buffers": as_in_role(BUFFERS.iter().collect()),
        "owners": as_in_role(OWNERS.iter().collect()),
        "defaultSpread": as_in_role(DEFAULT_SPREAD.iter().collect()),
        "election": as_in_role(ELECTION.iter().collect()),
        "providers": of_providers,
    })
}
