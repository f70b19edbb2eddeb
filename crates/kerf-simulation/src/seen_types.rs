//! Instance types as the nodes of a cluster show them, in the form of an instance types file (docs/simulate.md).

use std::collections::{BTreeMap, BTreeSet};

use kerf_api::labels;
use kerf_model::{Price, Resources};
use kerf_provider_kwok::price_by_size;
use serde_json::{Value, json};

use crate::{initial::InitialNode, market::Place};

/// Where nodes tell what they cost per hour. Terminal dashboards read it too.
const PRICE: &str = "eks-node-viewer/instance-price";

/// What the nodes of pools show.
#[derive(Debug, Default)]
pub(crate) struct SeenTypes {
    types: BTreeMap<String, Seen>,
    /// Where there are nodes. Each type is offered in all of these: few types are a matter of the zone.
    zones: BTreeSet<String>,
}

#[derive(Debug)]
struct Seen {
    node: Value,
    /// The labels of the provider's own that all nodes of the type have in common.
    labels: BTreeMap<String, String>,
    /// Prices by capacity type, where a node tells one; the highest, because zones differ.
    prices: BTreeMap<String, Option<Price>>,
}

impl SeenTypes {
    /// `node_class_labels` name the NodeClass of a node and say nothing of its type.
    pub(crate) fn of(machines: &[InitialNode], node_class_labels: &BTreeSet<String>) -> Self {
        let mut seen = Self::default();
        for InitialNode { node, claim, .. } in machines {
            let Some(place) = claim.as_ref().map(Place::of) else { continue };
            if [&place.instance_type, &place.zone, &place.capacity_type]
                .iter()
                .any(|it| it.is_empty())
                || capacity(node).is_none()
            {
                continue;
            }
            let labels = provider_labels(node, node_class_labels);
            seen.zones.insert(place.zone);
            let of_type = seen.types.entry(place.instance_type).or_insert_with(|| Seen {
                node: node.clone(),
                labels: labels.clone(),
                prices: BTreeMap::new(),
            });
            of_type.labels.retain(|key, value| labels.get(key) == Some(value));
            let price = of_type.prices.entry(place.capacity_type).or_default();
            *price = (*price).max(told_price(node));
        }
        seen
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// What a node of this type costs on these terms, if one tells it.
    pub(crate) fn price(&self, place: &Place) -> Option<Price> {
        *self.types.get(&place.instance_type)?.prices.get(&place.capacity_type)?
    }

    /// An instance types file with these types, at the prices that `known` knows, else at those that nodes tell, else at prices by
    /// their size. Beside it: the types whose price is not known.
    pub(crate) fn entries(
        &self,
        wanted: impl Fn(&str) -> bool,
        known: impl Fn(&Place) -> Option<Price>,
    ) -> (Vec<Value>, BTreeSet<String>) {
        let mut unpriced = BTreeSet::new();
        let types = self.types.iter().filter(|(name, _)| wanted(name)).map(|(name, seen)| {
            let mut offerings = Vec::new();
            for zone in &self.zones {
                for (capacity_type, told) in &seen.prices {
                    let place = Place {
                        instance_type: name.clone(),
                        zone: zone.clone(),
                        capacity_type: capacity_type.clone(),
                    };
                    let price = known(&place).or(*told).unwrap_or_else(|| {
                        unpriced.insert(name.clone());
                        seen.price_by_size(capacity_type)
                    });
                    offerings.push(seen.offering(&place, price));
                }
            }
            seen.entry(name, &offerings)
        });
        (types.collect(), unpriced)
    }
}

impl Seen {
    fn price_by_size(&self, capacity_type: &str) -> Price {
        let (on_demand, spot) = price_by_size(&capacity(&self.node).unwrap_or_default());
        if capacity_type == labels::CAPACITY_TYPE_SPOT { spot } else { on_demand }
    }

    fn offering(&self, place: &Place, price: Price) -> Value {
        let is_in =
            |(key, value): (&str, &str)| json!({"key": key, "operator": "In", "values": [value]});
        let terms =
            [(labels::CAPACITY_TYPE, &*place.capacity_type), (labels::ZONE, place.zone.as_str())];
        let others = self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let requirements: Vec<_> = terms.into_iter().chain(others).map(is_in).collect();
        json!({"Price": price.as_f64(), "Available": true, "Requirements": requirements})
    }

    fn entry(&self, name: &str, offerings: &[Value]) -> Value {
        let label = |key: &str| self.node["metadata"]["labels"][key].as_str();
        json!({
            "name": name,
            "architecture": label(labels::ARCH).unwrap_or(labels::ARCH_AMD64),
            "operatingSystems": [label(labels::OS).unwrap_or("linux")],
            "resources": self.node["status"]["capacity"],
            "allocatable": self.node["status"]["allocatable"],
            "offerings": offerings,
        })
    }
}

/// With CPU and memory; nothing where a node does not tell both.
fn capacity(node: &Value) -> Option<Resources> {
    let told = serde_json::from_value(node["status"]["capacity"].clone()).ok()?;
    let capacity = Resources::from_api(&told).ok()?;
    let has = |resource: &str| capacity.get(resource).is_some();
    (has(kerf_model::resources::CPU) && has(kerf_model::resources::MEMORY)).then_some(capacity)
}

fn told_price(node: &Value) -> Option<Price> {
    let told: f64 = node["metadata"]["labels"][PRICE].as_str()?.parse().ok()?;
    (told.is_finite() && told > 0.0).then(|| Price::from_f64(told))
}

/// Providers of Karpenter describe instance types by labels of domains that begin as Karpenter's own. Pools and pods select by
/// them.
fn provider_labels(node: &Value, others: &BTreeSet<String>) -> BTreeMap<String, String> {
    let all = node["metadata"]["labels"].as_object().into_iter().flatten();
    let of_provider = all.filter(|(key, _)| {
        let domain = labels::domain(key);
        domain.starts_with("karpenter.") && domain != kerf_api::GROUP && !others.contains(*key)
    });
    of_provider.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{ledger::text, scenario::Scenario};

    /// A snapshot with a node of each of these: name, instance type, zone, capacity type, price.
    pub(crate) fn snapshot(nodes: &[(&str, &str, &str, &str, Option<&str>)]) -> Value {
        let class =
            json!({"group": "karpenter.cloud.example", "kind": "ExampleNodeClass", "name": "a"});
        let mut items = vec![json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}},
        })];
        for (name, instance_type, zone, capacity_type, price) in nodes {
            let mut labels = json!({
                labels::NODE_POOL: "p", labels::INSTANCE_TYPE: instance_type, labels::ZONE: zone,
                labels::CAPACITY_TYPE: capacity_type, labels::ARCH: "arm64", labels::OS: "linux",
                "karpenter.cloud.example/family": "n2", "karpenter.cloud.example/rack": name,
                "karpenter.cloud.example/examplenodeclass": "a", "team": "blue",
            });
            if let Some(price) = price {
                labels[PRICE] = (*price).into();
            }
            items.push(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": name, "labels": labels},
                "spec": {"nodeClassRef": class}, "status": {"nodeName": name},
            }));
            items.push(json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {},
                "status": {
                    "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"},
                    "allocatable": {"cpu": "3920m", "memory": "14Gi", "pods": "58"},
                },
            }));
        }
        json!({"kind": "List", "items": items})
    }

    fn seen(nodes: &[(&str, &str, &str, &str, Option<&str>)]) -> SeenTypes {
        let scenario = Scenario::from_yaml(&snapshot(nodes).to_string(), "x.json").unwrap();
        let class_labels = ["karpenter.cloud.example/examplenodeclass".to_owned()].into();
        SeenTypes::of(&scenario.initial.machines, &class_labels)
    }

    #[test]
    fn a_type_is_what_its_nodes_show_in_all_zones_that_nodes_are_in() {
        let seen = seen(&[
            ("a", "n2-4", "east-a", "on-demand", Some("0.2")),
            ("b", "n2-4", "east-b", "on-demand", Some("0.21")),
            ("c", "n2-8", "east-b", "spot", None),
        ]);
        let (entries, unpriced) = seen.entries(|_| true, |_| None);
        assert_eq!(unpriced, BTreeSet::from(["n2-8".to_owned()]));
        let shown: Vec<_> = entries
            .iter()
            .flat_map(|entry| {
                let offerings = entry["offerings"].as_array().unwrap().iter();
                offerings.map(|offering| {
                    let values = offering["Requirements"].as_array().unwrap().iter();
                    let values = values.map(|one| one["values"][0].as_str().unwrap());
                    let values = values.collect::<Vec<_>>().join(" ");
                    format!("{} {} {values}", text(entry, "/name"), offering["Price"])
                })
            })
            .collect();
        assert_eq!(
            shown,
            [
                "n2-4 0.21 on-demand east-a n2",
                "n2-4 0.21 on-demand east-b n2",
                // 70% of 4 times 0.025 and 17.18 times 0.001.
                "n2-8 0.0820259084 spot east-a n2 c",
                "n2-8 0.0820259084 spot east-b n2 c",
            ]
        );
        assert_eq!(entries[0]["architecture"], "arm64");
        assert_eq!(entries[0]["allocatable"]["cpu"], "3920m");
        let read = kerf_provider_kwok::from_json(&Value::from(entries).to_string()).unwrap();
        assert_eq!(read[0].allocatable().to_string(), "cpu 3920m, memory 14Gi, pods 58");
    }

    #[test]
    fn prices_that_are_known_elsewhere_count_first() {
        let seen = seen(&[("a", "n2-4", "east-a", "spot", Some("0.2"))]);
        let known = |place: &Place| (place.zone == "east-a").then(|| Price::from_f64(0.07));
        let (entries, unpriced) = seen.entries(|_| true, known);
        assert_eq!((entries[0]["offerings"][0]["Price"].as_f64(), unpriced.len()), (Some(0.07), 0));
    }
}
