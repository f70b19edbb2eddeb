//! What each pool can launch, at the prices of the start: from a file or a list, from the provider's catalogue, or from the nodes
//! that are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kerf_api::{NodeClass, NodePool, labels, labels::LabelRules};
use kerf_model::{InstanceType, Offering, Price, Requirement, Requirements};
use kerf_provider::{Launchable, UnknownTypes};
use kerf_provider_kwok as kwok;
use serde_json::Value;

use crate::{
    initial::InitialNode,
    ledger::text,
    market::{MarketError, Place, place, written_out},
    objects,
    policy::Policy,
    scenario::{PoolEntry, Scenario},
    seen_types::SeenTypes,
};

/// Pools with the same NodeClass have the same types.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stock {
    pub(crate) shelves: Vec<Vec<Arc<InstanceType>>>,
    pub(crate) of_pool: BTreeMap<String, usize>,
    pub(crate) label_rules: LabelRules,
    /// What is assumed about them, in sentences for the user.
    pub(crate) notes: Vec<String>,
}

impl Stock {
    pub(crate) fn of(scenario: &Scenario) -> Result<Self, MarketError> {
        let seen = SeenTypes::of(&scenario.initial.machines, &node_class_labels(scenario));
        let mut stock = Self {
            label_rules: scenario.cloud.catalogue().label_rules().clone(),
            ..Self::default()
        };
        let given = match &scenario.instance_types_file {
            Some(path) => Some(kwok::from_file(path)?),
            None if scenario.instance_types.is_empty() => None,
            None => Some(
                kwok::from_json(&written_out(&scenario.instance_types))
                    .map_err(MarketError::List)?,
            ),
        };
        let mut unpriced = BTreeSet::new();
        if let Some(types) = given {
            stock.shelves.push(types.into_iter().map(Arc::new).collect());
            let pools = scenario.all_pools().into_iter();
            stock.of_pool = pools.map(|pool| (pool.name, 0)).collect();
        } else {
            stock.fill(scenario, &seen, &mut unpriced)?;
        }
        stock.add_bought(&scenario.initial.machines, &seen, &mut unpriced)?;
        let offered = stock.shelves.iter().flatten().flat_map(|one| one.offerings());
        let keys: BTreeSet<_> =
            offered.flat_map(|offering| offering.requirements.keys()).map(str::to_owned).collect();
        stock.label_rules = stock.label_rules.knowing(keys);
        if !unpriced.is_empty() {
            let names: Vec<_> = unpriced.into_iter().collect();
            stock.notes.push(format!(
                "the price of {} is not known; $0.025 per CPU and $0.001 per GB of memory and hour are assumed, 70% of it on spot",
                names.join(", ")
            ));
        }
        Ok(stock)
    }

    /// From the provider's catalogue; pools that it knows nothing about get the types that nodes show.
    fn fill(
        &mut self,
        scenario: &Scenario,
        seen: &SeenTypes,
        unpriced: &mut BTreeSet<String>,
    ) -> Result<(), MarketError> {
        let mut of_classes: BTreeMap<String, usize> = BTreeMap::new();
        let mut unknown = Vec::new();
        let pools = scenario.all_pools();
        for pool in &pools {
            let class = pool.spec.get("template").map(|it| it["spec"]["nodeClassRef"].to_string());
            let class = class.unwrap_or_default();
            if let Some(index) = of_classes.get(&class) {
                self.of_pool.insert(pool.name.clone(), *index);
                continue;
            }
            match launchable(scenario, pool) {
                Ok(Launchable { types, notes }) => {
                    for note in notes {
                        if !self.notes.contains(&note) {
                            self.notes.push(note);
                        }
                    }
                    of_classes.insert(class, self.shelves.len());
                    self.of_pool.insert(pool.name.clone(), self.shelves.len());
                    self.shelves.push(types);
                }
                Err(because) => unknown.push((&pool.name, because)),
            }
        }
        let Some((pool, because)) = unknown.first() else { return Ok(()) };
        if seen.is_empty() {
            return Err(MarketError::UnknownTypes {
                pool: (*pool).clone(),
                because: because.clone(),
            });
        }
        self.notes.push(format!(
            "the instance types of pool {pool} are not known ({because}); nodes of the types that are there can be launched, and \
             kerf simulate --print-instance-types prints these for --instance-types"
        ));
        let (entries, without_price) = seen.entries(|_| true, |_| None);
        unpriced.extend(without_price);
        let types =
            kwok::from_json(&Value::from(entries).to_string()).map_err(MarketError::Seen)?;
        let index = self.shelves.len();
        self.shelves.push(types.into_iter().map(Arc::new).collect());
        self.of_pool.extend(unknown.into_iter().map(|(pool, _)| (pool.clone(), index)));
        Ok(())
    }

    /// Nodes that are there may be of types that can no longer be launched. They have a price all the same.
    fn add_bought(
        &mut self,
        machines: &[InitialNode],
        seen: &SeenTypes,
        unpriced: &mut BTreeSet<String>,
    ) -> Result<(), MarketError> {
        let claims = machines.iter().filter_map(|machine| machine.claim.as_ref());
        let mut added = BTreeSet::new();
        for claim in claims {
            let pool = claim["metadata"]["labels"][labels::NODE_POOL].as_str().unwrap_or_default();
            let Some(index) = self.of_pool.get(pool) else { continue };
            let (place, known) = (Place::of(claim), &mut self.shelves[*index]);
            let Some(at) = known.iter().position(|one| one.name() == place.instance_type) else {
                let (entries, without_price) =
                    seen.entries(|name| name == place.instance_type, |_| None);
                if entries.is_empty() {
                    continue;
                }
                unpriced.extend(without_price);
                let types = kwok::from_json(&Value::from(entries).to_string())
                    .map_err(MarketError::Seen)?;
                known.extend(types.into_iter().map(Arc::new));
                added.insert(place.instance_type);
                continue;
            };
            if known[at].offering_price(&place.zone, &place.capacity_type).is_none() {
                let price = seen.price(&place);
                known[at] = Arc::new(also_bought(&known[at], &place, price));
            }
        }
        if !added.is_empty() {
            let names: Vec<_> = added.into_iter().collect();
            self.notes.push(format!(
                "{} is not among the instance types; what its nodes show counts",
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// The types of the nodes that are there as an instance types file, at the prices that are used.
    pub(crate) fn sample(&self, scenario: &Scenario) -> Option<String> {
        let seen = SeenTypes::of(&scenario.initial.machines, &node_class_labels(scenario));
        if seen.is_empty() {
            return None;
        }
        let known = |wanted: &Place| {
            let offered = self.shelves.iter().flatten().flat_map(|one| {
                one.offerings().iter().filter_map(move |it| Some((place(one, it)?, it.price)))
            });
            offered.into_iter().find(|(place, _)| place == wanted).map(|(_, price)| price)
        };
        Some(laid_out(&seen.entries(|_| true, known).0))
    }
}

/// As JSON with a line for each offering, so that prices can be edited where they stand.
fn laid_out(entries: &[Value]) -> String {
    let entry = |entry: &Value| {
        let fields = ["name", "architecture", "operatingSystems", "resources", "allocatable"];
        let fields = fields.map(|field| format!("  \"{field}\": {},\n", entry[field]));
        let offerings = entry["offerings"].as_array().into_iter().flatten();
        let offerings: Vec<_> = offerings.map(|offering| format!("    {offering}")).collect();
        format!(" {{\n{}  \"offerings\": [\n{}\n  ]\n }}", fields.concat(), offerings.join(",\n"))
    };
    let entries: Vec<_> = entries.iter().map(entry).collect();
    format!("[\n{}\n]\n", entries.join(",\n"))
}

/// The type with an offering that some node was bought by and that is not for sale any more: at the price that nodes tell, else at
/// that of the same capacity type in another zone, else at any of the type's.
fn also_bought(one: &InstanceType, place: &Place, told: Option<Price>) -> InstanceType {
    let highest = |of_terms: bool| {
        let offerings = one.offerings().iter().filter(|offering| {
            !of_terms || offering.capacity_type() == Some(place.capacity_type.as_str())
        });
        offerings.map(|offering| offering.price).max()
    };
    let price = told.or_else(|| highest(true)).or_else(|| highest(false)).unwrap_or_default();
    let bought = Offering {
        requirements: Requirements::new([
            Requirement::is_in(labels::CAPACITY_TYPE, [&place.capacity_type]),
            Requirement::is_in(labels::ZONE, [&place.zone]),
        ]),
        price,
        available: false,
        ..Offering::default()
    };
    let offerings = one.offerings().iter().cloned().chain([bought]).collect();
    let (requirements, capacity) = (one.requirements().clone(), one.capacity().clone());
    InstanceType::new(one.name(), requirements, offerings, capacity, one.overhead().clone())
}

/// What the catalogue has for a pool, or why it has nothing.
fn launchable(scenario: &Scenario, entry: &PoolEntry) -> Result<Launchable, String> {
    let cloud = &scenario.cloud;
    let written =
        &entry.spec.get("template").map_or(&Value::Null, |it| &it["spec"]["nodeClassRef"]);
    let here = cloud.node_class_ref(written);
    if !written.is_null() && here != **written {
        let kind = text(written, "/kind");
        return Err(format!("{kind} is not a NodeClass of provider {}", cloud.name()));
    }
    let pool = objects::node_pool(entry, &Policy::default(), cloud);
    let pool: NodePool = serde_json::from_value(pool).map_err(|error| error.to_string())?;
    let class = match scenario.initial.node_class(&here) {
        Some(class) => Some(class.clone()),
        // Scenarios have no NodeClasses, and snapshots should have them.
        None if scenario.initial.is_empty() => Some(cloud.node_class(&here, None)),
        None => None,
    };
    let class = class.and_then(|class| {
        let object = serde_json::from_value(class).ok()?;
        Some(NodeClass::from_object(text(&here, "/group"), text(&here, "/kind"), object))
    });
    match cloud.catalogue().instance_types(&pool, class.as_ref()) {
        Ok(launchable) => Ok(launchable),
        Err(UnknownTypes::NodeClass(because)) => Err(because),
        Err(UnknownTypes::OtherProvider) => {
            Err(format!("{} is a NodeClass of another provider", text(&here, "/kind")))
        }
    }
}

/// The labels that name the NodeClasses of these pools.
fn node_class_labels(scenario: &Scenario) -> BTreeSet<String> {
    let references = scenario.pool_templates().map(|template| &template["spec"]["nodeClassRef"]);
    references
        .map(|reference| labels::node_class(text(reference, "/group"), text(reference, "/kind")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen_types::tests::snapshot;

    /// The price at which a node of this type in a zone of its own is kept, and whether such nodes can be launched.
    fn kept_at(instance_type: &str, told: Option<&str>) -> (String, bool) {
        let nodes = [("a", instance_type, "east-z", "spot", told)];
        let mut scenario = Scenario::from_yaml(&snapshot(&nodes).to_string(), "x.json").unwrap();
        let listed = "{name: m5.large, cpu: 2, memory: 8Gi, price: 0.1, spotPrice: 0.04}";
        scenario.instance_types = vec![serde_saphyr::from_str(listed).unwrap()];
        let stock = Stock::of(&scenario).unwrap();
        let types = stock.shelves[stock.of_pool["p"]].iter();
        let mut offerings = types.filter(|one| one.name() == instance_type).flat_map(|one| {
            one.offerings().iter().filter(|offering| offering.zone() == Some("east-z"))
        });
        let offering = offerings.next().unwrap();
        (offering.price.as_f64().to_string(), offering.available)
    }

    #[test]
    fn nodes_that_could_not_be_launched_again_keep_a_price() {
        for (instance_type, told, expected) in [
            ("m5.large", None, ("0.04", false)),
            ("m5.large", Some("0.03"), ("0.03", false)),
            // A type of which nothing but the node is known.
            ("m9.large", Some("0.05"), ("0.05", true)),
            ("m9.large", None, ("0.0820259084", true)),
        ] {
            let expected = (expected.0.to_owned(), expected.1);
            assert_eq!(kept_at(instance_type, told), expected, "{instance_type} {told:?}");
        }
    }

    #[test]
    fn a_printed_sample_is_a_catalogue_with_the_prices_in_use() {
        let nodes =
            [("a", "m5.large", "east-z", "spot", None), ("b", "n2", "east-z", "on-demand", None)];
        let mut scenario = Scenario::from_yaml(&snapshot(&nodes).to_string(), "x.json").unwrap();
        let listed =
            "{name: m5.large, cpu: 2, memory: 8Gi, price: 0.1, spotPrice: 0.04, zones: [east-z]}";
        scenario.instance_types = vec![serde_saphyr::from_str(listed).unwrap()];
        let sample = Stock::of(&scenario).unwrap().sample(&scenario).unwrap();
        let types = kwok::from_json(&sample).unwrap();
        let shown: Vec<_> = types
            .iter()
            .map(|one| (one.name(), one.offerings()[0].price.as_f64().to_string()))
            .collect();
        assert_eq!(shown, [("m5.large", "0.04".to_owned()), ("n2", "0.1171798692".to_owned())]);
    }
}
