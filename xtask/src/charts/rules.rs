//! `cargo xtask rules`: the alerts of the chart, and rules as teams have them for Karpenter, by Prometheus' own promtool.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::succeed;
use crate::aws::Outcome;
use crate::cargo::workspace;
use crate::page::program;

const OF_THE_CHART: &str = "charts/kerf/files/alerts.yaml";
const LEASE: &str = "karpenter-leader-election";

/// The rule files, by the names that tests.yaml has.
pub(super) const ALERTS: &str = "alerts.yaml";
pub(super) const KARPENTER: &str = "karpenter.yaml";

/// Where Prometheus and promtool are to be had. They are looked for and not built: their module has 400 others behind it.
pub(super) const MISSING: &str =
    "Prometheus and its promtool are not in PATH; Debian has both in the package prometheus";

pub(crate) fn run() -> Result<Outcome> {
    let Some(promtool) = program("promtool") else {
        return Ok(Outcome::Skipped { reason: MISSING.to_owned() });
    };
    let directory = tempfile::tempdir()?;
    write(directory.path())?;
    fs::write(directory.path().join("tests.yaml"), include_str!("rules/tests.yaml"))?;
    for arguments in [&["check", "rules", ALERTS, KARPENTER][..], &["test", "rules", "tests.yaml"]]
    {
        let mut promtool = Command::new(&promtool);
        print!("{}", succeed(promtool.args(arguments).current_dir(directory.path()))?);
    }
    Ok(Outcome::Done)
}

/// Writes the rule files into this directory.
pub(super) fn write(directory: &Path) -> Result<()> {
    let alerts = rule_file(&fs::read_to_string(workspace().join(OF_THE_CHART))?);
    fs::write(directory.join(ALERTS), alerts)?;
    fs::write(directory.join(KARPENTER), include_str!("rules/karpenter.yaml"))?;
    Ok(())
}

/// The alerts as the template of the chart puts them into a `PrometheusRule`.
fn rule_file(alerts: &str) -> String {
    let rules: Vec<_> = alerts.lines().map(|line| format!("      {line}")).collect();
    let rules = rules.join("\n").replace("<lease>", LEASE);
    format!("groups:\n  - name: kerf\n    rules:\n{rules}\n")
}

#[cfg(test)]
mod tests {
    /// An alert that the tests do not know could never fire.
    #[test]
    fn every_alert_fires_in_a_test() {
        let alerts = include_str!("../../../charts/kerf/files/alerts.yaml");
        let tests = include_str!("rules/tests.yaml");
        let names: Vec<_> =
            alerts.lines().filter_map(|line| line.strip_prefix("- alert: ")).collect();
        assert!(names.len() >= 10, "{names:?}");
        for name in names {
            assert!(tests.contains(&format!("alertname=\"{name}\"}}', value: 1")), "{name}");
        }
    }
}
