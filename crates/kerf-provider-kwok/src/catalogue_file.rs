//! A catalogue from a file (`--instance-types-file-path`).
//!
//! The file is a JSON array of objects `{name, architecture, operatingSystems, resources,
//! allocatable, volumeAttachmentLimits, offerings}`, of which `allocatable` and `volumeAttachmentLimits` (volumes by CSI driver) are ours and
//! may be left out, and an offering is `{Price, Available, ReservationCapacity, Requirements}`. As for Karpenter, upper and lower case of the keys make no difference and keys that are not known are
//! passed over. Unlike there, what is missing or cannot be read is an error that says where, and
//! not a catalogue with fewer types than the file has.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use kerf_api::labels;
use kerf_model::{
    InstanceType, Offering, Operator, Price, Quantity, Requirement, Requirements, Resources,
    resources::{CPU, MEMORY, PODS},
};
use serde_json::{Map, Value};

use super::catalogue::Described;

/// Pods per node if the file does not say.
const DEFAULT_PODS: i64 = 110;

#[derive(Debug, thiserror::Error)]
pub enum CatalogueFileError {
    #[error("cannot read the instance types file {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("cannot use the instance types file {path}: {source}")]
    Use { path: String, source: CatalogueError },
}

/// What is wrong with a catalogue, and where.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    #[error("it is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    #[error("it is not a list; write [{{\"name\": ..., \"offerings\": [...], ...}}, ...]")]
    NotAList,
    #[error("it has no instance types")]
    Empty,
    #[error("instance type {name} is listed twice")]
    Twice { name: String },
    #[error("{place}: {what} is missing")]
    Missing { place: String, what: &'static str },
    #[error("{place}: {key} is not {expected}")]
    Wrong { place: String, key: String, expected: &'static str },
    #[error("{place}: {message}")]
    Unreadable { place: String, message: String },
    #[error(
        "{place}: the old form with capacityType and zone is no longer supported; write \"Requirements\": [{{\"key\": \"karpenter.sh/capacity-type\", \"operator\": \"In\", \"values\": [\"spot\"]}}, {{\"key\": \"topology.kubernetes.io/zone\", \"operator\": \"In\", \"values\": [\"a\"]}}]"
    )]
    OldForm { place: String },
}

pub fn from_file(path: &Path) -> Result<Vec<InstanceType>, CatalogueFileError> {
    let shown = || path.display().to_string();
    let json = fs::read_to_string(path)
        .map_err(|source| CatalogueFileError::Read { path: shown(), source })?;
    from_json(&json).map_err(|source| CatalogueFileError::Use { path: shown(), source })
}

pub fn from_json(json: &str) -> Result<Vec<InstanceType>, CatalogueError> {
    let Value::Array(entries) = serde_json::from_str(json)? else {
        return Err(CatalogueError::NotAList);
    };
    if entries.is_empty() {
        return Err(CatalogueError::Empty);
    }
    let mut names = BTreeSet::new();
    let mut types = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let instance_type =
            described(&Entry::new(format!("instance type {index}"), entry)?)?.instance_type();
        if !names.insert(instance_type.name().to_owned()) {
            return Err(CatalogueError::Twice { name: instance_type.name().to_owned() });
        }
        types.push(instance_type);
    }
    Ok(types)
}

fn described(entry: &Entry<'_>) -> Result<Described, CatalogueError> {
    let name = entry.text("name")?.to_owned();
    let entry = &Entry { place: format!("instance type {name}"), ..*entry };
    let mut capacity = entry.amounts("resources")?;
    for (resource, what) in [(CPU, "the resource cpu"), (MEMORY, "the resource memory")] {
        if capacity.get(resource).is_none() {
            return Err(entry.missing(what));
        }
    }
    if capacity.get(PODS).is_none() {
        capacity.set(PODS, Quantity::from_units(DEFAULT_PODS));
    }
    let allocatable = match entry.get("allocatable") {
        Some(_) => Some(entry.amounts("allocatable")?),
        None => None,
    };
    if allocatable.as_ref().is_some_and(|allocatable| !allocatable.fits_in(&capacity)) {
        return Err(entry.wrong("allocatable", "within resources"));
    }
    let offerings = entry.list("offerings")?.iter().enumerate().map(|(index, value)| {
        offering(&Entry::new(format!("{}, offering {index}", entry.place), value)?)
    });
    let offerings: Vec<Offering> = offerings.collect::<Result<_, _>>()?;
    if offerings.is_empty() {
        return Err(entry.missing("an offering"));
    }
    let arch = entry.text("architecture")?.to_owned();
    let operating_systems = entry.texts("operatingSystems")?;
    let volume_limits = volume_limits(entry)?;
    Ok(Described { name, arch, operating_systems, capacity, allocatable, volume_limits, offerings })
}

fn volume_limits(entry: &Entry<'_>) -> Result<BTreeMap<String, u32>, CatalogueError> {
    const KEY: &str = "volumeAttachmentLimits";
    let wrong = || entry.wrong(KEY, "an object of whole numbers by driver");
    let Some(limits) = entry.get(KEY) else { return Ok(BTreeMap::new()) };
    let limit = |(driver, limit): (&String, &Value)| {
        let limit = limit.as_u64().and_then(|limit| u32::try_from(limit).ok());
        Ok((driver.clone(), limit.ok_or_else(wrong)?))
    };
    limits.as_object().ok_or_else(wrong)?.iter().map(limit).collect()
}

fn offering(entry: &Entry<'_>) -> Result<Offering, CatalogueError> {
    if entry.get("requirements").is_none()
        && (entry.get("zone").is_some() || entry.get("capacityType").is_some())
    {
        return Err(CatalogueError::OldForm { place: entry.place.clone() });
    }
    let requirements = entry.list("requirements")?.iter().enumerate().map(|(index, value)| {
        requirement(&Entry::new(format!("{}, requirement {index}", entry.place), value)?)
    });
    let requirements: Requirements = requirements.collect::<Result<_, _>>()?;
    for (key, what) in [
        (labels::ZONE, "the requirement topology.kubernetes.io/zone In [one value]"),
        (labels::CAPACITY_TYPE, "the requirement karpenter.sh/capacity-type In [one value]"),
    ] {
        if requirements.get(key).and_then(Requirement::only_value).is_none() {
            return Err(entry.missing(what));
        }
    }
    let price = entry.number("price")?;
    // Karpenter sets every offering to available, whatever the file says. Here one that is written
    // to be unavailable is, so that a shortage can be tried out.
    let available = match entry.get("available") {
        None => true,
        Some(value) => value.as_bool().ok_or_else(|| entry.wrong("available", "true or false"))?,
    };
    let reservation_capacity = match entry.get("reservationCapacity") {
        None => 0,
        Some(value) => value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| entry.wrong("reservationCapacity", "a whole number of instances"))?,
    };
    Ok(Offering {
        requirements,
        price: Price::from_f64(price),
        available,
        reservation_capacity,
        ..Offering::default()
    })
}

fn requirement(entry: &Entry<'_>) -> Result<Requirement, CatalogueError> {
    let operator: Operator = entry.text("operator")?.parse().map_err(|error| {
        let message = format!("{error}");
        CatalogueError::Unreadable { place: entry.place.clone(), message }
    })?;
    let values = if entry.get("values").is_some() { entry.texts("values")? } else { Vec::new() };
    Ok(Requirement::new(entry.text("key")?, operator, values))
}

/// A JSON object, and how to find it in the file.
#[derive(Clone, Debug)]
struct Entry<'a> {
    place: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn new(place: String, value: &'a Value) -> Result<Self, CatalogueError> {
        match value {
            Value::Object(fields) => Ok(Self { place, fields }),
            _ => Err(CatalogueError::Wrong { place, key: "it".to_owned(), expected: "an object" }),
        }
    }

    /// Go reads keys without regard to case; files rely on it.
    fn get(&self, key: &str) -> Option<&'a Value> {
        let found = self.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    }

    fn need(&self, key: &'static str) -> Result<&'a Value, CatalogueError> {
        self.get(key).ok_or_else(|| self.missing(key))
    }

    fn text(&self, key: &'static str) -> Result<&'a str, CatalogueError> {
        let text = self.need(key)?.as_str().filter(|text| !text.is_empty());
        text.ok_or_else(|| self.wrong(key, "a text"))
    }

    fn texts(&self, key: &'static str) -> Result<Vec<String>, CatalogueError> {
        let texts = self.list(key)?.iter().map(|value| value.as_str().map(str::to_owned));
        texts.collect::<Option<_>>().ok_or_else(|| self.wrong(key, "a list of texts"))
    }

    fn list(&self, key: &'static str) -> Result<&'a [Value], CatalogueError> {
        let list = self.need(key)?.as_array();
        list.map(Vec::as_slice).ok_or_else(|| self.wrong(key, "a list"))
    }

    fn object(&self, key: &'static str) -> Result<&'a Map<String, Value>, CatalogueError> {
        self.need(key)?.as_object().ok_or_else(|| self.wrong(key, "an object"))
    }

    fn number(&self, key: &'static str) -> Result<f64, CatalogueError> {
        let number = self.need(key)?.as_f64().filter(|number| *number >= 0.0);
        number.ok_or_else(|| self.wrong(key, "a number that is not negative"))
    }

    fn amounts(&self, key: &'static str) -> Result<Resources, CatalogueError> {
        let mut amounts = Resources::new();
        for (resource, amount) in self.object(key)? {
            amounts.set(resource, self.quantity(resource, amount)?);
        }
        Ok(amounts)
    }

    fn quantity(&self, resource: &str, amount: &Value) -> Result<Quantity, CatalogueError> {
        let text = match amount {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(self.wrong(resource, "a quantity")),
        };
        text.parse().map_err(|error| {
            let message = format!("resource {resource}: {error}");
            CatalogueError::Unreadable { place: self.place.clone(), message }
        })
    }

    fn missing(&self, what: &'static str) -> CatalogueError {
        CatalogueError::Missing { place: self.place.clone(), what }
    }

    fn wrong(&self, key: &str, expected: &'static str) -> CatalogueError {
        CatalogueError::Wrong { place: self.place.clone(), key: key.to_owned(), expected }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalogue() -> Value {
        json!([{
            "name": "m5.large",
            "architecture": "amd64",
            "operatingSystems": ["linux", "windows"],
            "resources": { "cpu": "2", "memory": "8Gi" },
            "offerings": [
                {
                    "Price": 0.096,
                    "Available": true,
                    "Requirements": [
                        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                        { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"] },
                    ],
                },
                {
                    "price": 0.0001,
                    "ReservationCapacity": 3,
                    "requirements": [
                        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"] },
                        { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"] },
                        { "key": "example.com/reservation", "operator": "In", "values": ["r1"] },
                    ],
                },
            ],
        }])
    }

    #[test]
    fn reads_instance_types() {
        let types = from_json(&catalogue().to_string()).unwrap();
        let [instance_type] = &types[..] else { panic!("{types:?}") };
        assert_eq!(instance_type.name(), "m5.large");
        assert_eq!(instance_type.capacity().to_string(), "cpu 2, memory 8Gi, pods 110");
        assert_eq!(
            instance_type.requirements().to_string(),
            "karpenter.kwok.sh/instance-cpu In [2], karpenter.kwok.sh/instance-family In [m5], \
             karpenter.kwok.sh/instance-memory In [8Gi], karpenter.kwok.sh/instance-size In [large], \
             karpenter.sh/capacity-type In [on-demand reserved], kubernetes.io/arch In [amd64], \
             kubernetes.io/os In [linux windows], node.kubernetes.io/instance-type In [m5.large], \
             topology.kubernetes.io/zone In [a b]"
        );
        let offerings: Vec<_> = instance_type
            .offerings()
            .iter()
            .map(|one| {
                (
                    one.requirements.to_string(),
                    one.price.exact().to_string(),
                    one.available,
                    one.reservation_capacity,
                )
            })
            .collect();
        assert_eq!(
            offerings,
            [
                (
                    "karpenter.sh/capacity-type In [on-demand], topology.kubernetes.io/zone In [b]".to_owned(),
                    "0.096".to_owned(),
                    true,
                    0
                ),
                (
                    "example.com/reservation In [r1], karpenter.sh/capacity-type In [reserved], topology.kubernetes.io/zone In [a]".to_owned(),
                    "0.0001".to_owned(),
                    true,
                    3
                ),
            ]
        );
    }

    #[test]
    fn volumes_are_limited_by_driver_where_the_file_says_so() {
        let limits = |limits: Value| {
            let mut catalogue = catalogue();
            catalogue[0]["volumeAttachmentLimits"] = limits;
            let types = from_json(&catalogue.to_string());
            types.map(|types| types[0].volume_limits().clone()).map_err(|wrong| wrong.to_string())
        };
        assert_eq!(limits(Value::Null), Ok(BTreeMap::new()));
        let of_drivers = [("ebs.csi.aws.com".to_owned(), 27), ("other".to_owned(), 0)];
        assert_eq!(limits(json!({"ebs.csi.aws.com": 27, "other": 0})), Ok(of_drivers.into()));
        let wrong = "instance type m5.large: volumeAttachmentLimits is not an object of whole numbers by driver";
        for bad in [json!({"other": -1}), json!({"other": "27"}), json!([27])] {
            assert_eq!(limits(bad), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn an_offering_can_be_unavailable() {
        let mut catalogue = catalogue();
        catalogue[0]["offerings"][0]["Available"] = json!(false);
        let types = from_json(&catalogue.to_string()).unwrap();
        assert_eq!(types[0].available_offerings().count(), 1);
    }

    #[test]
    fn what_pods_can_have_is_what_the_file_says() {
        let mut catalogue = catalogue();
        let usual = from_json(&catalogue.to_string()).unwrap();
        assert_eq!(usual[0].allocatable().to_string(), "cpu 1900m, memory 8182Mi, pods 110");
        catalogue[0]["allocatable"] = json!({ "cpu": "1930m", "memory": "7Gi" });
        let types = from_json(&catalogue.to_string()).unwrap();
        assert_eq!(types[0].capacity().to_string(), "cpu 2, memory 8Gi, pods 110");
        assert_eq!(types[0].allocatable().to_string(), "cpu 1930m, memory 7Gi, pods 110");
        catalogue[0]["allocatable"] = json!({ "cpu": "3" });
        let error = from_json(&catalogue.to_string()).unwrap_err().to_string();
        assert_eq!(error, "instance type m5.large: allocatable is not within resources");
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let check = |path: &str, value: Value, expected: &str| {
            let mut catalogue = catalogue();
            let (parent, key) = path.rsplit_once('/').unwrap();
            let parent = catalogue.pointer_mut(parent).unwrap();
            match (value, parent) {
                (Value::Null, Value::Object(fields)) => drop(fields.remove(key)),
                (value, Value::Object(fields)) => drop(fields.insert(key.to_owned(), value)),
                (value, Value::Array(list)) => list[key.parse::<usize>().unwrap()] = value,
                (_, other) => panic!("{other} has no parts"),
            }
            assert_eq!(from_json(&catalogue.to_string()).unwrap_err().to_string(), expected);
        };
        let gone = Value::Null;
        check("/0/name", gone.clone(), "instance type 0: name is missing");
        check("/0/name", json!(5), "instance type 0: name is not a text");
        check("/0/architecture", gone.clone(), "instance type m5.large: architecture is missing");
        check(
            "/0/operatingSystems",
            json!("linux"),
            "instance type m5.large: operatingSystems is not a list",
        );
        check("/0/resources", json!([]), "instance type m5.large: resources is not an object");
        check(
            "/0/resources/memory",
            gone.clone(),
            "instance type m5.large: the resource memory is missing",
        );
        check(
            "/0/resources/memory",
            json!("8 Gi"),
            "instance type m5.large: resource memory: \"8 Gi\" is not a quantity: write a number with an optional suffix such as 500m, 2 or 1.5Gi",
        );
        check("/0/offerings", json!([]), "instance type m5.large: an offering is missing");
        check(
            "/0/offerings/1",
            json!("x"),
            "instance type m5.large, offering 1: it is not an object",
        );
        check(
            "/0/offerings/0/Price",
            gone.clone(),
            "instance type m5.large, offering 0: price is missing",
        );
        check(
            "/0/offerings/0/Price",
            json!(-1),
            "instance type m5.large, offering 0: price is not a number that is not negative",
        );
        check(
            "/0/offerings/0/Available",
            json!("yes"),
            "instance type m5.large, offering 0: available is not true or false",
        );
        check(
            "/0/offerings/1/ReservationCapacity",
            json!(-1),
            "instance type m5.large, offering 1: reservationCapacity is not a whole number of instances",
        );
        check(
            "/0/offerings/0/Requirements/0/operator",
            json!("Is"),
            "instance type m5.large, offering 0, requirement 0: \"Is\" is not an operator: use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte",
        );
        check(
            "/0/offerings/0/Requirements/1/values",
            json!(["a", "b"]),
            "instance type m5.large, offering 0: the requirement topology.kubernetes.io/zone In [one value] is missing",
        );
        check(
            "/0/offerings/0/Requirements/0/values",
            gone,
            "instance type m5.large, offering 0: the requirement karpenter.sh/capacity-type In [one value] is missing",
        );
    }

    #[test]
    fn does_not_pass_over_the_old_form() {
        let old = json!([{
            "name": "m5.large",
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": { "cpu": "2", "memory": "8Gi" },
            "offerings": [{ "price": 1, "capacityType": "spot", "zone": "a" }],
        }]);
        let error = from_json(&old.to_string()).unwrap_err().to_string();
        assert!(
            error.starts_with("instance type m5.large, offering 0: the old form with capacityType and zone is no longer supported; write "),
            "{error}"
        );
    }

    #[test]
    fn refuses_what_is_not_a_catalogue() {
        let check = |json: &str, expected: &str| {
            assert_eq!(from_json(json).unwrap_err().to_string(), expected);
        };
        check("", "it is not JSON: EOF while parsing a value at line 1 column 0");
        check("{}", "it is not a list; write [{\"name\": ..., \"offerings\": [...], ...}, ...]");
        check("[]", "it has no instance types");
        let mut twice = catalogue();
        let first = twice[0].clone();
        twice.as_array_mut().unwrap().push(first);
        check(&twice.to_string(), "instance type m5.large is listed twice");
    }

    #[test]
    fn names_the_file() {
        let error = from_file(Path::new("/does/not/exist.json")).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "cannot read the instance types file /does/not/exist.json: No such file"
            ),
            "{error}"
        );
    }
}
