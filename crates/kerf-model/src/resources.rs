//! Amounts of named resources.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::quantity::{Quantity, QuantityError};

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
pub const PODS: &str = "pods";
/// Not a Kubernetes resource: counts nodes against a pool's limits.
pub const NODES: &str = "nodes";
pub const HUGEPAGES_PREFIX: &str = "hugepages-";

/// Amounts by resource name, sorted by name; what is missing is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources(Vec<(ResourceName, Quantity)>);

/// The common names cost no allocation.
type ResourceName = Cow<'static, str>;

/// A resource whose amount cannot be read.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("resource {name}: {source}")]
pub struct ResourcesError {
    name: String,
    source: QuantityError,
}

impl Resources {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.position(name).ok().map(|at| self.0[at].1)
    }

    pub fn amount(&self, name: &str) -> Quantity {
        self.get(name).unwrap_or_default()
    }

    pub fn set(&mut self, name: &str, amount: Quantity) {
        match self.position(name) {
            Ok(at) => self.0[at].1 = amount,
            Err(at) => self.0.insert(at, (resource_name(name), amount)),
        }
    }

    pub fn with(mut self, name: &str, amount: Quantity) -> Self {
        self.set(name, amount);
        self
    }

    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(other, _)| other != name);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_ref(), *amount))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sums over the names of both.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.set(name, self.amount(name) + amount);
        }
    }

    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    /// Differences over this side's names only: a resource that this side lacks has no remainder.
    pub fn minus(&self, other: &Self) -> Self {
        self.iter().map(|(name, amount)| (name, amount - other.amount(name))).collect()
    }

    /// The larger amount per name, over the names of both.
    pub fn max(&self, other: &Self) -> Self {
        let mut larger = self.clone();
        for (name, amount) in other.iter() {
            larger.set(name, larger.get(name).map_or(amount, |own| own.max(amount)));
        }
        larger
    }

    /// The smaller amount per name; a name that one side lacks is zero there and falls away.
    pub fn min(&self, other: &Self) -> Self {
        self.iter()
            .filter_map(|(name, amount)| Some((name, amount.min(other.get(name)?))))
            .collect()
    }

    /// This one's amounts, with the other's put in their place where it has any.
    pub fn overridden_by(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        for (name, amount) in other.iter() {
            merged.set(name, amount);
        }
        merged
    }

    /// Whether this request fits in `total`. Nothing fits in a total that is overdrawn anywhere.
    pub fn fits_in(&self, total: &Self) -> bool {
        total.iter().all(|(_, amount)| !amount.is_negative())
            && self.iter().all(|(name, amount)| amount <= total.amount(name))
    }

    /// From the API's map; the first unreadable amount fails.
    pub fn from_api(map: &BTreeMap<String, ApiQuantity>) -> Result<Self, ResourcesError> {
        map.iter()
            .map(|(name, amount)| match amount.0.parse() {
                Ok(amount) => Ok((name.as_str(), amount)),
                Err(source) => Err(ResourcesError { name: name.clone(), source }),
            })
            .collect()
    }

    pub fn to_api(&self) -> BTreeMap<String, ApiQuantity> {
        self.iter()
            .map(|(name, amount)| (name.to_owned(), ApiQuantity(amount.to_string())))
            .collect()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.as_ref().cmp(name))
    }
}

fn resource_name(name: &str) -> ResourceName {
    for common in [CPU, MEMORY, PODS, EPHEMERAL_STORAGE, NODES] {
        if name == common {
            return Cow::Borrowed(common);
        }
    }
    Cow::Owned(name.to_owned())
}

impl<'a> FromIterator<(&'a str, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (&'a str, Quantity)>>(amounts: I) -> Self {
        let mut resources = Self::new();
        for (name, amount) in amounts {
            resources.set(name, amount);
        }
        resources
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, amount)) in self.iter().enumerate() {
            write!(f, "{}{name} {amount}", if position == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl serde::Serialize for Resources {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> serde::Deserialize<'de> for Resources {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = BTreeMap::<String, Quantity>::deserialize(deserializer)?;
        Ok(map.iter().map(|(name, amount)| (name.as_str(), *amount)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(text: &str) -> Resources {
        text.split_terminator(',')
            .map(|entry| entry.split_once('=').unwrap())
            .map(|(name, amount)| (name, amount.parse().unwrap()))
            .collect()
    }

    #[test]
    fn arithmetic_keeps_the_names_it_should() {
        let (a, b) = (resources("cpu=2,memory=1Gi"), resources("cpu=500m,gpu=1"));
        assert_eq!(a.plus(&b), resources("cpu=2500m,memory=1Gi,gpu=1"));
        assert_eq!(a.minus(&b), resources("cpu=1500m,memory=1Gi"));
        assert_eq!(b.minus(&a), resources("cpu=-1500m,gpu=1"));
        assert_eq!(a.max(&b), resources("cpu=2,memory=1Gi,gpu=1"));
        assert_eq!(a.min(&b), resources("cpu=500m"));
        assert_eq!(a.overridden_by(&b), resources("cpu=500m,memory=1Gi,gpu=1"));
        assert_eq!(resources("b=-1").max(&resources("a=1")), resources("a=1,b=-1"));
    }

    #[test]
    fn fits_when_every_amount_does() {
        for (request, total, fits) in [
            ("cpu=1", "cpu=1", true),
            ("cpu=1001m", "cpu=1", false),
            ("gpu=1", "cpu=1", false),
            ("gpu=0", "cpu=1", true),
            ("", "", true),
            ("cpu=1", "cpu=2,memory=-1", false),
            ("", "memory=-1", false),
            ("memory=1Gi", "memory=1024Mi", true),
        ] {
            assert_eq!(resources(request).fits_in(&resources(total)), fits, "{request} in {total}");
        }
    }

    #[test]
    fn names_the_resource_that_cannot_be_read() {
        let map = [("cpu".to_owned(), ApiQuantity("lots".to_owned()))].into();
        let error = Resources::from_api(&map).unwrap_err();
        assert!(error.to_string().starts_with("resource cpu: \"lots\""), "{error}");
    }

    #[test]
    fn survives_json() {
        let original = resources("cpu=1500m,memory=3Gi,example.com/gpu=2");
        let text = serde_json::to_string(&original).unwrap();
        assert_eq!(text, r#"{"cpu":"1500m","example.com/gpu":"2","memory":"3Gi"}"#);
        assert_eq!(serde_json::from_str::<Resources>(&text).unwrap(), original);
        assert_eq!(serde_json::from_str::<Resources>(r#"{"cpu":2}"#).unwrap(), resources("cpu=2"));
    }
}
