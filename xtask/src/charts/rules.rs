//! `cargo xtask rules`: the alerts of the chart, and rules as teams have them for Karpenter, by Prometheus' own promtool.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::Result;

use super::succeed;
use crate::aws::Outcome;
use crate::cargo::workspace;

const ALERTS: &str = "charts/kerf/files/alerts.yaml";
const LEASE: &str = "karpenter-leader-election";

/// promtool is looked for and not built: its module has 400 others behind it.
pub(crate) fn run() -> Result<Outcome> {
    let mut version = Command::new("promtool");
    if !version
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|it| it.success())
    {
        let reason = "promtool is not in PATH; Debian has it in the package prometheus".to_owned();
        return Ok(Outcome::Skipped { reason });
    }
    let directory = tempfile::tempdir()?;
    let alerts = rule_file(&fs::read_to_string(workspace().join(ALERTS))?);
    fs::write(directory.path().join("alerts.yaml"), alerts)?;
    for (name, text) in [
        ("karpenter.yaml", include_str!("rules/karpenter.yaml")),
        ("tests.yaml", include_str!("rules/tests.yaml")),
    ] {
        fs::write(directory.path().join(name), text)?;
    }
    for arguments in
        [&["check", "rules", "alerts.yaml", "karpenter.yaml"][..], &["test", "rules", "tests.yaml"]]
    {
        let mut promtool = Command::new("promtool");
        print!("{}", succeed(promtool.args(arguments).current_dir(directory.path()))?);
    }
    Ok(Outcome::Done)
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
