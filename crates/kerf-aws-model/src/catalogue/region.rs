//! What a region offers.

use std::sync::Arc;

use super::{Catalogue, Network, TypeFacts};

/// The instance types of a region and where they are. It does not change; another one takes its place.
#[derive(Clone, Debug)]
pub struct Region {
    pub name: String,
    /// The names of all zones.
    pub zones: Vec<String>,
    pub types: Vec<RegionType>,
}

#[derive(Clone, Debug)]
pub struct RegionType {
    pub facts: Arc<TypeFacts>,
    pub network: Network,
    /// The names of the zones that offer it.
    pub zones: Vec<String>,
}

impl Catalogue {
    /// What is known of a region without an account; `None` if nothing is.
    pub fn region(&self, name: &str) -> Option<Region> {
        let zones = self.zones(name)?;
        let types = self.types().filter_map(|facts| {
            let offering = zones.offering(name, &facts.name);
            (!offering.is_empty()).then(|| RegionType {
                facts: Arc::clone(facts),
                network: self.network(&facts.name),
                zones: offering,
            })
        });
        Some(Region { name: name.to_owned(), zones: zones.names(name), types: types.collect() })
    }
}
