//! A policy has its colour wherever it stands, in every report.

use std::collections::BTreeMap;

/// Those that come with Kerf. Told apart by most eyes, on white and on black.
const BUILT_IN: [(&str, &str); 10] = [
    ("when-empty", "#7f7f7f"),
    ("parity", "#d62728"),
    ("balanced", "#e6862e"),
    ("utilization-threshold", "#2ca02c"),
    ("price-improvement-factor", "#a3a51f"),
    ("savings-threshold", "#9467bd"),
    ("grace-period", "#17a2b8"),
    ("kerf-defaults", "#1f77b4"),
    ("all-controls", "#d860b0"),
    ("as-is", "#8c564b"),
];

/// For all others.
const MORE: [&str; 8] =
    ["#3b8ea5", "#c4622d", "#5b8c3a", "#8a63d2", "#b8860b", "#c2477f", "#4f7cac", "#7d6b57"];

/// The colours of the policies of one report.
#[derive(Debug)]
pub(super) struct Colours(BTreeMap<String, &'static str>);

impl Colours {
    /// A name of the user's own gets a colour by its letters, and the next free one where another name has it.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        let mut colours: BTreeMap<String, &'static str> = BTreeMap::new();
        for name in names {
            let built_in = BUILT_IN.iter().find(|(known, _)| *known == name);
            let colour = built_in.map_or_else(
                || {
                    let first = name.bytes().fold(7_usize, |sum, byte| {
                        sum.wrapping_mul(31).wrapping_add(usize::from(byte))
                    });
                    let tried = (0..MORE.len()).map(|at| MORE[first.wrapping_add(at) % MORE.len()]);
                    let is_free = |colour: &&str| !colours.values().any(|taken| taken == colour);
                    tried.clone().find(is_free).unwrap_or(MORE[first % MORE.len()])
                },
                |(_, colour)| colour,
            );
            colours.insert(name.to_owned(), colour);
        }
        Self(colours)
    }

    pub(super) fn colour(&self, name: &str) -> &'static str {
        self.0.get(name).copied().unwrap_or(MORE[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_its_colour_whatever_stands_beside_it() {
        let colour = |names: &[&str], of: &str| Colours::of(names.iter().copied()).colour(of);
        for names in
            [&["parity"][..], &["kerf-defaults", "parity"], &["parity", "mine", "balanced"]]
        {
            assert_eq!(colour(names, "parity"), "#d62728", "{names:?}");
        }
        let mine = colour(&["mine"], "mine");
        assert_eq!(colour(&["parity", "mine", "when-empty"], "mine"), mine);
        let many: Vec<_> = (0..8).map(|at| format!("sweep={at}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let colours = Colours::of(many.iter().copied());
        let distinct: std::collections::BTreeSet<_> =
            many.iter().map(|name| colours.colour(name)).collect();
        assert_eq!(distinct.len(), 8);
    }

    #[test]
    fn every_built_in_policy_has_one() {
        for policy in crate::Policy::built_in() {
            assert!(BUILT_IN.iter().any(|(name, _)| *name == policy.name), "{}", policy.name);
        }
    }
}
