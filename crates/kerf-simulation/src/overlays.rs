//! The NodeOverlays of a scenario: what they make of prices, for the accounts as for the operator.

use std::collections::BTreeMap;

use kerf_api::{NodeOverlay, NodePool, labels::LabelRules};
use kerf_cluster::Cluster;
use kerf_model::Price;
use kerf_provider::InstanceTypes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    market::{Place, place},
    objects,
    policy::Policy,
    scenario::Scenario,
};

/// The pools and overlays of a scenario as they are at its start.
#[derive(Debug)]
pub(crate) struct Overlays(Cluster);

impl Overlays {
    /// Nothing if there are none.
    pub(crate) fn of(scenario: &Scenario) -> Option<Self> {
        if scenario.overlays.is_empty() {
            return None;
        }
        let mut cluster = Cluster::default();
        cluster.apply_overlays();
        for entry in &scenario.all_pools() {
            let pool = objects::node_pool(entry, &Policy::default(), &scenario.cloud);
            add::<NodePool>(&mut cluster, pool);
        }
        for entry in &scenario.overlays {
            add::<NodeOverlay>(&mut cluster, objects::node_overlay(entry));
        }
        Some(Self(cluster))
    }

    /// By pool, the prices that the overlays decide.
    pub(crate) fn prices(
        &self,
        offers: &BTreeMap<String, InstanceTypes>,
        rules: &LabelRules,
    ) -> BTreeMap<(String, Place), Price> {
        let offers = offers.iter().map(|(pool, types)| (pool.clone(), Ok(types.to_vec())));
        let mut prices = BTreeMap::new();
        for (pool, types) in self.0.overlaid(offers.collect(), rules).types {
            for one in types.iter().flatten().filter(|one| one.is_price_overlaid()) {
                for offering in one.offerings().iter().filter(|it| it.base_price.is_some()) {
                    let of_pool = place(one, offering).map(|place| (pool.clone(), place));
                    prices.extend(of_pool.map(|key| (key, offering.price)));
                }
            }
        }
        prices
    }
}

/// What cannot be read is refused when the scenario is read.
fn add<K: kerf_cluster::Kind + DeserializeOwned>(cluster: &mut Cluster, object: Value) {
    if let Ok(object) = serde_json::from_value::<K>(object) {
        cluster.apply(object);
    }
}
