//! Choosing among instance types: by price, and by how many alternatives stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::instance_type::InstanceType;
use crate::labels::KnownLabels;
use crate::requirements::Requirements;

/// At most this many instance types are written into a claim.
pub const MAX_INSTANCE_TYPES: usize = 600;

/// What to do when fewer alternatives are left than `minValues` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MinValuesPolicy {
    #[default]
    Strict,
    BestEffort,
}

/// The keys for which fewer values are left than asked for, with what is left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "minValues requirement is not met for label(s) {}",
    .0.iter().map(|(key, count)| format!("{key} ({count} left)")).collect::<Vec<_>>().join(", ")
)]
pub struct TooFewValues(pub BTreeMap<String, u32>);

/// Sorts by the lowest price under these requirements, then by name. What cannot be bought goes last.
pub fn order_by_price(
    types: &mut [Arc<InstanceType>],
    requirements: &Requirements,
    labels: &KnownLabels,
) {
    types.sort_by_cached_key(|instance_type| {
        (instance_type.cheapest_price(requirements, labels), instance_type.name().to_owned())
    });
}

/// How many types, taken from the front, give every key its `minValues`: zero when nothing asks for any.
///
/// A value counts only where its requirement admits it. A type that is sold in three zones is one alternative for a claim that
/// has to be in one of them.
pub fn satisfies_min_values(
    types: &[Arc<InstanceType>],
    requirements: &Requirements,
) -> Result<usize, TooFewValues> {
    let wanted: Vec<_> = requirements
        .iter()
        .filter_map(|requirement| Some((requirement, requirement.min_values()?)))
        .collect();
    if wanted.is_empty() {
        return Ok(0);
    }
    let mut found: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); wanted.len()];
    let count = |values: &BTreeSet<&str>| u32::try_from(values.len()).unwrap_or(u32::MAX);
    for (walked, instance_type) in types.iter().enumerate() {
        for ((requirement, _), values) in wanted.iter().zip(&mut found) {
            let own = instance_type.requirements().get(requirement.key());
            let listed = own.and_then(|own| own.listed()).into_iter().flatten();
            values.extend(listed.map(String::as_str).filter(|value| requirement.has(value)));
        }
        if wanted.iter().zip(&found).all(|((_, least), values)| count(values) >= *least) {
            return Ok(walked + 1);
        }
    }
    // An empty list names no key that is short: the filter that emptied it has the better reason.
    if types.is_empty() {
        return Ok(0);
    }
    let short = wanted
        .iter()
        .zip(&found)
        .filter(|((_, least), values)| count(values) < *least)
        .map(|((requirement, _), values)| (requirement.key().to_owned(), count(values)))
        .collect();
    Err(TooFewValues(short))
}

/// Keeps the cheapest `max` types, sorted by price. On an error the list is sorted but whole.
pub fn truncate(
    types: &mut Vec<Arc<InstanceType>>,
    requirements: &Requirements,
    labels: &KnownLabels,
    max: usize,
    policy: MinValuesPolicy,
) -> Result<(), TooFewValues> {
    order_by_price(types, requirements, labels);
    let kept = types.len().min(max);
    if policy == MinValuesPolicy::Strict {
        satisfies_min_values(&types[..kept], requirements)?;
    }
    types.truncate(kept);
    Ok(())
}

#[cfg(test)]
mod tests;
