//! The version of a release, and when it was made.

use std::env;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;

use crate::cargo::workspace;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) text: String,
    pub(super) commit: String,
    /// In seconds since the epoch: `SOURCE_DATE_EPOCH`, else the time of the commit. So two builds of a commit are equal.
    pub(super) built_at: i64,
}

impl Version {
    pub(super) fn find(given: Option<&str>) -> Result<Self> {
        let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
        let described = git(&["describe", "--tags", "--match", "v[0-9]*", "--dirty"]).ok();
        let text = match given {
            Some(given) => given.trim_start_matches('v').to_owned(),
            None => of_tag(described.as_deref(), env!("CARGO_PKG_VERSION"), &commit),
        };
        let built_at = match env::var("SOURCE_DATE_EPOCH") {
            Ok(seconds) => seconds,
            Err(_) => git(&["log", "-1", "--format=%ct"])?,
        };
        let built_at = built_at
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH is {built_at:?} and not a number"))?;
        Ok(Self { text, commit, built_at })
    }

    pub(super) fn built_at(&self) -> Result<Timestamp> {
        Timestamp::from_second(self.built_at).context("SOURCE_DATE_EPOCH is out of range")
    }

    /// A tag of an image has no `+`.
    pub(super) fn tag(&self) -> String {
        self.text.replace('+', "-")
    }
}

/// `v0.2.0` is 0.2.0; `v0.2.0-5-gabc` comes after it; without a tag it is a version that is being made.
fn of_tag(described: Option<&str>, package: &str, commit: &str) -> String {
    match described.and_then(|tag| tag.strip_prefix('v')) {
        Some(version) => version.to_owned(),
        None => format!("{package}-dev-g{commit}"),
    }
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(workspace()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {said}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_tag() {
        for (described, expected) in [
            (Some("v0.2.0"), "0.2.0"),
            (Some("v0.2.0-5-gabcdef0"), "0.2.0-5-gabcdef0"),
            (Some("v0.2.0-rc.1-dirty"), "0.2.0-rc.1-dirty"),
            (None, "0.1.0-dev-gabc"),
        ] {
            assert_eq!(of_tag(described, "0.1.0", "abc"), expected);
        }
    }
}
