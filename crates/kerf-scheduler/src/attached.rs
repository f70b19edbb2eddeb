//! Volumes that a machine has attached, and how many it can.

use std::collections::BTreeMap;

use kerf_model::labels::INSTANCE_TYPE;
use kerf_model::{Node, Snapshot};
use rustc_hash::FxHashMap;

/// Claims attached, by driver; only for drivers with a limit. A claim that several pods mount is attached once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attached(FxHashMap<String, Vec<String>>);

/// How many volumes of each driver a node can attach: as the driver says there, or else its instance type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttachLimits<'s> {
    published: &'s BTreeMap<String, Option<u32>>,
    of_type: Option<&'s BTreeMap<String, u32>>,
}

/// The limits of instance types, by pool and type. Few types have any.
pub(crate) struct TypeLimits<'s>(FxHashMap<(&'s str, &'s str), &'s BTreeMap<String, u32>>);

impl Attached {
    pub(crate) fn add(&mut self, driver: &str, claims: impl IntoIterator<Item = String>) {
        let attached = self.0.entry(driver.to_owned()).or_default();
        for claim in claims {
            if !attached.contains(&claim) {
                attached.push(claim);
            }
        }
    }

    /// How many volumes of the driver there are together with these.
    pub(crate) fn count_with(&self, driver: &str, claims: &[String]) -> usize {
        let attached = self.0.get(driver).map_or(&[][..], Vec::as_slice);
        attached.len() + claims.iter().filter(|claim| !attached.contains(claim)).count()
    }
}

impl AttachLimits<'_> {
    pub(crate) fn are_none(self) -> bool {
        self.published.is_empty() && self.of_type.is_none()
    }

    pub(crate) fn of(self, driver: &str) -> Option<u32> {
        match self.published.get(driver) {
            Some(limit) => *limit,
            None => self.of_type?.get(driver).copied(),
        }
    }
}

impl<'s> TypeLimits<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        let types = snapshot.pools.values().flat_map(|pool| {
            let limited = pool.instance_types.iter().filter(|one| !one.volume_limits().is_empty());
            limited.map(|one| ((pool.name.as_str(), one.name()), one.volume_limits()))
        });
        Self(types.collect())
    }

    pub(crate) fn of_node(&self, node: &'s Node) -> AttachLimits<'s> {
        let of_type = || {
            let (pool, name) = (node.pool.as_deref()?, node.labels.get(INSTANCE_TYPE)?);
            self.0.get(&(pool, name.as_str())).copied()
        };
        AttachLimits {
            published: &node.volume_limits,
            of_type: if self.0.is_empty() { None } else { of_type() },
        }
    }
}
