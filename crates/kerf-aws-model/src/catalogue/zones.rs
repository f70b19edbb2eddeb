//! Which zones of a region offer which instance types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::facts::family;

/// The zones of a region, by their letters. The letters are an account's own names for them, so what an account says of
/// itself comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionZones {
    /// The letters of all zones: `abc`.
    zones: String,
    /// The letters of the zones that offer a family, or one type where it differs from its family.
    offered: BTreeMap<String, String>,
}

impl RegionZones {
    /// From the zones that offer each type, as EC2 lists them. `known` are the types that rows of families speak for.
    pub fn new<'a>(
        region: &str,
        offered: &BTreeMap<&'a str, Vec<&'a str>>,
        known: impl Iterator<Item = &'a str>,
    ) -> Self {
        let letter = |zone: &str| zone.strip_prefix(region).unwrap_or(zone).to_owned();
        let letters = |zones: &[&str]| {
            let mut letters: Vec<_> = zones.iter().map(|zone| letter(zone)).collect();
            letters.sort_unstable();
            letters.dedup();
            letters.concat()
        };
        let all: Vec<&str> = offered.values().flatten().copied().collect();
        let mut families: BTreeMap<&str, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
        for name in known {
            let places = offered.get(name).map(|zones| letters(zones)).unwrap_or_default();
            families.entry(family(name)).or_default().entry(places).or_default().push(name);
        }
        let mut rows = BTreeMap::new();
        for (family, groups) in families {
            // Equally large groups: the zones decide, so that the file does not depend on an order.
            let usual = groups
                .iter()
                .max_by_key(|(places, names)| (names.len(), *places))
                .map(|(places, _)| places.clone())
                .unwrap_or_default();
            for (places, names) in &groups {
                for name in names.iter().filter(|_| *places != usual) {
                    rows.insert((*name).to_owned(), places.clone());
                }
            }
            if !usual.is_empty() {
                rows.insert(family.to_owned(), usual);
            }
        }
        Self { zones: letters(&all), offered: rows }
    }

    /// The names of all zones.
    pub fn names(&self, region: &str) -> Vec<String> {
        named(region, &self.zones)
    }

    /// The names of the zones that offer the type.
    pub fn offering(&self, region: &str, instance_type: &str) -> Vec<String> {
        let rows = [instance_type, family(instance_type)];
        let letters = rows.into_iter().find_map(|row| self.offered.get(row));
        letters.map_or_else(Vec::new, |letters| named(region, letters))
    }
}

fn named(region: &str, letters: &str) -> Vec<String> {
    letters.chars().map(|letter| format!("{region}{letter}")).collect()
}
