//! What is known of EC2 without asking it: instance types, the zones that offer them, and on-demand prices.
//!
//! It comes as documents. Those that are built in are in `data/`, with their origin in `data/README.md`. A document that was
//! read from an account has the same form and is laid over them.

mod described;
mod document;
mod facts;
mod region;
mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;

use kerf_model::Price;

pub use described::UnusableType;
pub use document::{CatalogueError, Document, RegionPrices};
pub(crate) use facts::family;
pub use facts::{Accelerator, Architecture, Gpu, Network, Neuron, Trait, Traits, TypeFacts};
pub use region::{Region, RegionType};
pub use zones::RegionZones;

/// The documents that are part of the program. A test reads them all.
const BUILT_IN: [&str; 7] = [
    include_str!("../data/types.json"),
    include_str!("../data/network.json"),
    include_str!("../data/zones.json"),
    include_str!("../data/prices/us-east-1.json"),
    include_str!("../data/prices/us-gov-east-1.json"),
    include_str!("../data/prices/us-gov-west-1.json"),
    include_str!("../data/prices/cn-north-1.json"),
];

/// The region whose prices stand in for those of a region that has none of its own.
pub const FALLBACK_REGION: &str = "us-east-1";

/// Instance types by name, zones and prices by region.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    types: BTreeMap<String, Arc<TypeFacts>>,
    network: BTreeMap<String, Network>,
    zones: BTreeMap<String, RegionZones>,
    prices: BTreeMap<String, RegionPrices>,
}

/// On-demand prices, and whose they are.
#[derive(Clone, Copy, Debug)]
pub struct KnownPrices<'a> {
    /// Not the region that was asked for where that has no prices of its own.
    pub region: &'a str,
    pub prices: &'a RegionPrices,
}

impl Catalogue {
    /// The catalogue that is part of the program.
    pub fn built_in() -> Result<Self, CatalogueError> {
        let mut catalogue = Self::default();
        for document in BUILT_IN {
            catalogue.lay_over(Document::read(document)?);
        }
        Ok(catalogue)
    }

    /// Takes in what a document says; it replaces types by name, and zones and prices by region.
    pub fn lay_over(&mut self, document: Document) {
        self.network.extend(document.network);
        self.types
            .extend(document.types.into_iter().map(|facts| (facts.name.clone(), Arc::new(facts))));
        self.zones.extend(document.zones);
        self.prices.extend(document.prices);
    }

    /// Sorted by name.
    pub fn types(&self) -> impl Iterator<Item = &Arc<TypeFacts>> {
        self.types.values()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<TypeFacts>> {
        self.types.get(name)
    }

    /// What EC2's own description of a type leaves out. Unknown types have none of it.
    pub fn network(&self, name: &str) -> Network {
        self.network.get(name).copied().unwrap_or_default()
    }

    pub fn regions(&self) -> impl Iterator<Item = &str> {
        self.zones.keys().map(String::as_str)
    }

    pub fn zones(&self, region: &str) -> Option<&RegionZones> {
        self.zones.get(region)
    }

    /// The prices of the region, else those of [`FALLBACK_REGION`].
    pub fn prices(&self, region: &str) -> Option<KnownPrices<'_>> {
        [region, FALLBACK_REGION].into_iter().find_map(|candidate| {
            let (region, prices) = self.prices.get_key_value(candidate)?;
            Some(KnownPrices { region, prices })
        })
    }
}

impl KnownPrices<'_> {
    pub fn on_demand(&self, instance_type: &str) -> Option<Price> {
        self.prices.on_demand.get(instance_type).copied()
    }
}

/// The built-in catalogue, read once for all tests.
#[cfg(test)]
pub(crate) fn shared() -> &'static Catalogue {
    static SHARED: std::sync::LazyLock<Catalogue> =
        std::sync::LazyLock::new(|| Catalogue::built_in().unwrap());
    &SHARED
}

#[cfg(test)]
mod tests;
