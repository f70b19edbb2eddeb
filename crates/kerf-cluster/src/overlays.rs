//! Overlays, applied to what the provider has.
//!
//! Nothing is kept: whoever needs instance types gets them from [`Cluster::overlaid`], so that all decisions see the same numbers and
//! an overlay counts from the moment at which the index knows of it.

use std::{collections::BTreeMap, fmt};

use kerf_api::{
    InvalidNodeOverlay, NodeOverlay, NodeOverlayProblem, labels::LabelRules,
    node_overlay::validate_node_overlay,
};
use kerf_model::{
    KnownLabels, Labels, Resources,
    overlay::{Adjusted, Clash, Effect, Offered, Overlay, PriceChange, adjust},
};
use kube_core::ResourceExt;

use crate::{Cluster, snapshot::KnownTypes, view};

/// Instance types as decisions see them, and what became of the overlays.
#[derive(Clone, Debug, Default)]
pub struct Overlaid {
    /// By pool.
    pub types: BTreeMap<String, KnownTypes>,
    /// By name, why overlays are applied nowhere.
    pub left_out: BTreeMap<String, LeftOut>,
    /// By pool, and by the name of the overlay.
    pub effects: BTreeMap<String, BTreeMap<String, Effect>>,
}

/// Why an overlay is applied nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    Invalid(InvalidNodeOverlay),
    /// A part of it cannot be read.
    Unreadable(String),
    Conflict(Clash),
}

impl LeftOut {
    /// The reason of the condition, as Karpenter has it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) | Self::Unreadable(_) => "RuntimeValidation",
            Self::Conflict(_) => "Conflict",
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::Unreadable(problem) => f.write_str(problem),
            Self::Conflict(clash) => clash.fmt(f),
        }
    }
}

impl Cluster {
    /// From now on overlays count, and the index is listed only with them.
    pub fn apply_overlays(&mut self) {
        self.overlaying = true;
    }

    /// Whether overlays count.
    pub fn applies_overlays(&self) -> bool {
        self.overlaying
    }

    /// Whether instance types may differ from the provider's.
    pub fn has_overlays(&self) -> bool {
        self.overlaying && self.overlays.values().next().is_some()
    }

    /// What the provider has, as the overlays change it. An overlay that contradicts another in any pool is left out everywhere, so
    /// all pools have to be among these.
    pub fn overlaid(&self, types: BTreeMap<String, KnownTypes>, rules: &LabelRules) -> Overlaid {
        if !self.has_overlays() {
            return Overlaid { types, ..Overlaid::default() };
        }
        let known = view::known_labels(rules);
        let (mut overlays, mut left_out) = (Vec::new(), BTreeMap::new());
        for (key, object) in self.overlays.iter() {
            let read = match self.overlays.unreadable(key) {
                Some(unreadable) => Err(LeftOut::Unreadable(unreadable.to_string())),
                None => read(object, rules, &known),
            };
            match read {
                Ok(overlay) => overlays.push(overlay),
                Err(why) => drop(left_out.insert(key.name.clone(), why)),
            }
        }
        let none = Labels::new();
        let offered = types.iter().filter_map(|(pool, types)| {
            let template = &self.pools.named(pool)?.spec.template.metadata;
            let labels = template.labels.as_ref().unwrap_or(&none);
            Some(Offered { pool, labels, types: types.as_ref().ok()? })
        });
        let offered: Vec<_> = offered.collect();
        let Adjusted { types: adjusted, clashes, effects } = adjust(&overlays, &offered, &known);
        left_out.extend(clashes.into_iter().map(|(name, clash)| (name, LeftOut::Conflict(clash))));
        let mut types = types;
        types.extend(adjusted.into_iter().map(|(pool, types)| (pool, Ok(types))));
        Overlaid { types, left_out, effects }
    }

    pub(crate) fn overlays_listed(&self) -> bool {
        !self.overlaying || self.overlays.listed()
    }
}

/// The overlay as decisions see it, if it is valid by itself.
fn read(object: &NodeOverlay, rules: &LabelRules, known: &KnownLabels) -> Result<Overlay, LeftOut> {
    let spec = &object.spec;
    validate_node_overlay(spec, rules).map_err(LeftOut::Invalid)?;
    let invalid = |problem| LeftOut::Invalid(InvalidNodeOverlay(vec![problem]));
    let of_price = |problem: String| invalid(NodeOverlayProblem::Price(problem));
    let to = spec.price.as_ref().map(|text| {
        let price = text.parse().map(PriceChange::To);
        price.map_err(|_| of_price(format!("{text:?} is not a price")))
    });
    let by = spec.price_adjustment.as_ref();
    let by =
        by.map(|text| text.parse::<PriceChange>().map_err(|error| of_price(error.to_string())));
    let capacity = Resources::from_api(&spec.capacity);
    Ok(Overlay {
        name: object.name_any(),
        weight: spec.weight.unwrap_or_default(),
        requirements: known.requirements(&spec.requirements),
        price: to.or(by).transpose()?,
        capacity: capacity
            .map_err(|error| invalid(NodeOverlayProblem::Amount(error.to_string())))?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kerf_api::NodePool;
    use kerf_model::{
        InstanceType, Offering, Overhead, Requirement, Requirements,
        labels::{CAPACITY_TYPE, ZONE},
    };
    use serde_json::{Value, json};

    use super::*;

    fn types() -> BTreeMap<String, KnownTypes> {
        let requirements = Requirements::new([
            Requirement::is_in(CAPACITY_TYPE, ["spot"]),
            Requirement::is_in(ZONE, ["a"]),
        ]);
        let price = "1".parse().unwrap();
        let offering = Offering {
            requirements: requirements.clone(),
            price,
            available: true,
            ..Offering::default()
        };
        let one = InstanceType::new(
            "m",
            requirements,
            vec![offering],
            Resources::default(),
            Overhead::default(),
        );
        let types = vec![Arc::new(one)];
        [
            ("p".to_owned(), Ok(types.clone())),
            ("q".to_owned(), Ok(types)),
            ("unknown".to_owned(), Err("why".to_owned())),
        ]
        .into()
    }

    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        for (name, team) in [("p", "x"), ("q", "y")] {
            let class = json!({"group": "cloud.example", "kind": "ExampleNodeClass", "name": "d"});
            let pool: NodePool = serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"template": {
                    "metadata": {"labels": {"team": team}},
                    "spec": {"nodeClassRef": class, "requirements": []},
                }},
            }))
            .unwrap();
            cluster.apply(pool);
        }
        cluster
    }

    fn overlay(name: &str, version: u32, spec: &Value) -> NodeOverlay {
        let mut all = json!({"requirements": []});
        for (field, value) in spec.as_object().unwrap() {
            all[field] = value.clone();
        }
        let metadata = json!({"name": name, "resourceVersion": version.to_string()});
        serde_json::from_value(json!({"metadata": metadata, "spec": all})).unwrap()
    }

    fn prices(cluster: &Cluster) -> Vec<String> {
        let overlaid = cluster.overlaid(types(), &LabelRules::default());
        assert_eq!(overlaid.types["unknown"].as_ref().unwrap_err(), "why");
        let known =
            overlaid.types.iter().filter_map(|(pool, types)| Some((pool, types.as_ref().ok()?)));
        let shown =
            known.map(|(pool, types)| format!("{pool} {}", types[0].offerings()[0].price.exact()));
        shown.collect()
    }

    #[test]
    fn overlays_count_while_they_are_there_and_the_gate_is_on() {
        let mut cluster = cluster();
        let about = json!([{"key": "team", "operator": "In", "values": ["x"]}]);
        let cheaper = overlay("o", 1, &json!({"priceAdjustment": "-30%", "requirements": about}));
        cluster.apply(cheaper.clone());
        assert_eq!(prices(&cluster), ["p 1", "q 1"], "the gate is off");
        cluster.apply_overlays();
        assert_eq!(prices(&cluster), ["p 0.7", "q 1"]);
        cluster.apply(overlay("o", 2, &json!({"price": "2"})));
        assert_eq!(prices(&cluster), ["p 2", "q 2"]);
        cluster.delete(&overlay("o", 3, &json!({})));
        assert_eq!(prices(&cluster), ["p 1", "q 1"], "nothing remains of it");
    }

    #[test]
    fn overlays_that_are_left_out_say_why() {
        let mut cluster = cluster();
        cluster.apply_overlays();
        for (name, spec) in [
            ("valid", json!({"price": "3", "weight": 5})),
            ("clashing", json!({"price": "3", "weight": 5})),
            ("cpu", json!({"capacity": {"cpu": "1"}})),
            ("amount", json!({"capacity": {"a": "much"}})),
            ("price", json!({"price": "99999999999999999999999999"})),
            ("change", json!({"priceAdjustment": "less"})),
            ("both", json!({"price": "1", "priceAdjustment": "+1"})),
        ] {
            cluster.apply(overlay(name, 1, &spec));
        }
        assert_eq!(prices(&cluster), ["p 3", "q 3"]);
        let left_out = cluster.overlaid(types(), &LabelRules::default()).left_out;
        for (name, reason, text) in [
            ("clashing", "Conflict", "conflict with another overlay: valid has the same weight"),
            ("cpu", "RuntimeValidation", "invalid capacity: cpu in resource, restricted"),
            ("amount", "RuntimeValidation", "invalid capacity: "),
            ("price", "RuntimeValidation", "invalid price: \"99999"),
            ("change", "RuntimeValidation", "invalid price: \"less\" is not a change of a price"),
            ("both", "RuntimeValidation", "cannot set both 'price' and 'priceAdjustment'"),
        ] {
            let why = &left_out[name];
            assert_eq!(why.reason(), reason, "{name}");
            assert!(why.to_string().starts_with(text), "{name}: {why}");
        }
        assert_eq!(left_out.len(), 6);
    }

    #[test]
    fn the_index_waits_for_overlays_only_if_they_count() {
        let mut cluster = Cluster::default();
        assert!(cluster.overlays_listed());
        cluster.apply_overlays();
        assert!(!cluster.overlays_listed());
        cluster.begin_list::<NodeOverlay>(0);
        cluster.end_list::<NodeOverlay>();
        assert!(cluster.overlays_listed());
    }
}
