//! The form in which facts about EC2 are written down.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kerf_model::Price;
use serde::Deserialize;
use serde_json::json;

use super::facts::{Network, TypeFacts};
use super::region::{Region, RegionType};
use super::zones::RegionZones;
use crate::prices::currency;

/// Some or all of what a catalogue holds, with its origin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub source: String,
    /// The day, `2026-08-06`.
    pub retrieved: String,
    /// What the places of a row mean. Only [`TypeFacts::COLUMNS`] is read, and it is what is written.
    #[serde(default)]
    pub columns: Vec<String>,
    #[serde(default)]
    pub types: Vec<TypeFacts>,
    #[serde(default)]
    pub network: BTreeMap<String, Network>,
    /// By region.
    #[serde(default)]
    pub zones: BTreeMap<String, RegionZones>,
    /// By region.
    #[serde(default)]
    pub prices: BTreeMap<String, RegionPrices>,
}

/// On-demand prices of a region, for Linux and per hour.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegionPrices {
    /// `USD`, or `CNY` in China.
    pub currency: String,
    #[serde(deserialize_with = "prices")]
    pub on_demand: BTreeMap<String, Price>,
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("its columns are {found:?}; this release reads {:?}", TypeFacts::COLUMNS)]
    OtherColumns { found: Vec<String> },
    #[error("instance type {name} is listed twice")]
    Twice { name: String },
}

impl Document {
    /// What an account says of its region. There is no list of prices in some regions.
    pub fn of_region(
        region: &Region,
        on_demand: Option<BTreeMap<String, Price>>,
        source: String,
        retrieved: String,
    ) -> Self {
        let name = &region.name;
        // A letter behind the name of the region. Local zones have longer names, and no place in this form.
        let has_letter =
            |zone: &&str| zone.strip_prefix(&**name).is_some_and(|rest| rest.len() == 1);
        let zones = |one: &'_ RegionType| -> Vec<_> {
            one.zones.iter().map(String::as_str).filter(has_letter).map(str::to_owned).collect()
        };
        let offered: Vec<_> =
            region.types.iter().map(|one| (one.facts.name.as_str(), zones(one))).collect();
        let by_type = offered
            .iter()
            .map(|(name, zones)| (*name, zones.iter().map(String::as_str).collect()))
            .collect();
        let known = region.types.iter().map(|one| one.facts.name.as_str());
        let zones = RegionZones::new(name, &by_type, known);
        let currency = currency(name).to_owned();
        let prices = on_demand.map(|on_demand| RegionPrices { currency, on_demand });
        let network = region.types.iter().map(|one| (one.facts.name.clone(), one.network));
        Self {
            source,
            retrieved,
            types: region.types.iter().map(|one| (*one.facts).clone()).collect(),
            network: network.collect(),
            zones: BTreeMap::from([(name.clone(), zones)]),
            prices: prices.into_iter().map(|prices| (name.clone(), prices)).collect(),
            ..Self::default()
        }
    }

    pub fn read(json: &str) -> Result<Self, CatalogueError> {
        let document: Self = serde_json::from_str(json)?;
        if !document.types.is_empty() && document.columns != TypeFacts::COLUMNS {
            return Err(CatalogueError::OtherColumns { found: document.columns });
        }
        let twice = document.types.windows(2).find(|pair| pair[0].name == pair[1].name);
        match twice {
            Some(pair) => Err(CatalogueError::Twice { name: pair[0].name.clone() }),
            None => Ok(document),
        }
    }

    /// JSON with a line for each type, region and family, sorted, so that a change can be reviewed.
    pub fn write(&self) -> String {
        let mut types: Vec<_> = self.types.iter().collect();
        types.sort_unstable_by_key(|facts| &facts.name);
        let mut text = String::from("{\n");
        let _ = writeln!(text, "\"source\": {},", json!(self.source));
        let _ = write!(text, "\"retrieved\": {}", json!(self.retrieved));
        if !types.is_empty() {
            let _ = write!(text, ",\n\"columns\": {}", json!(TypeFacts::COLUMNS));
            let rows = types.iter().map(|facts| facts.row().to_string());
            section(&mut text, "types", ['[', ']'], rows);
        }
        let network = self.network.iter().map(|(name, network)| {
            let row = json!([network.bandwidth_mbps, network.branch_interfaces]);
            format!("{}:{row}", json!(name))
        });
        section(&mut text, "network", ['{', '}'], network);
        let zones =
            self.zones.iter().map(|(region, zones)| format!("{}:{}", json!(region), json!(zones)));
        section(&mut text, "zones", ['{', '}'], zones);
        let prices = self.prices.iter().map(|(region, prices)| {
            let rows: Vec<_> = prices
                .on_demand
                .iter()
                .map(|(name, price)| format!("{}:{}", json!(name), price.exact()))
                .collect();
            let currency = json!(prices.currency);
            let rows = rows.join(",\n");
            format!("{}:{{\"currency\":{currency},\"onDemand\":{{\n{rows}\n}}}}", json!(region))
        });
        section(&mut text, "prices", ['{', '}'], prices);
        text.push_str("\n}\n");
        text
    }
}

fn section(
    text: &mut String,
    name: &str,
    [open, close]: [char; 2],
    rows: impl Iterator<Item = String>,
) {
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let _ = write!(text, ",\n{}: {open}\n{}\n{close}", json!(name), rows.join(",\n"));
    }
}

fn prices<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Price>, D::Error> {
    let numbers = BTreeMap::<String, f64>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|(name, number)| (name, Price::from_f64(number))).collect())
}
