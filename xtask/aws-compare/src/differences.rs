//! The list of differences that are known, each with its reason.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::diff::Difference;

const LIST: &str = include_str!("../differences.yaml");

#[derive(Debug)]
pub(crate) struct Differences(pub(crate) Vec<Listed>);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    /// The case, with `*` for any text; all where it is not given.
    #[serde(default = "any")]
    case: String,
    /// The path, with `*` for any text.
    pub(crate) path: String,
    pub(crate) because: String,
}

fn any() -> String {
    "*".to_owned()
}

impl Differences {
    pub(crate) fn read() -> Result<Self> {
        serde_saphyr::from_str(LIST).map(Self).context("differences.yaml cannot be read")
    }

    /// The place in the list, if it is there.
    pub(crate) fn find(&self, case: &str, difference: &Difference) -> Option<usize> {
        self.0.iter().position(|listed| {
            matches(&listed.case, case) && matches(&listed.path, &difference.path)
        })
    }
}

/// Whether a text is what a pattern with `*` stands for.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(tail) = text.strip_prefix(head) else { return false };
    let starts = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
    starts.into_iter().any(|at| matches(rest, &tail[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_why_and_so_does_the_documentation() {
        let documentation = include_str!("../../../docs/aws.md").replace('\n', " ");
        for listed in Differences::read().unwrap().0 {
            assert!(listed.because.ends_with('.'), "{}", listed.path);
            assert!(documentation.contains(&listed.because), "docs/aws.md: {}", listed.because);
        }
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expect) in [
            ("*", "", true),
            ("fleets * ClientToken", "fleets 0 ClientToken", true),
            ("fleets * ClientToken", "fleets 0 ClientTokens", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXc", false),
            ("exact", "exact", true),
        ] {
            assert_eq!(matches(pattern, text), expect, "{pattern} {text}");
        }
    }
}
