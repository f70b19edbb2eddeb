//! One device: what requests can see of it, what using it takes away from others, and who may use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::amount::Amount;
use crate::reach::Reach;

/// A device as its driver publishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub name: Arc<str>,
    pub kind: Arc<Kind>,
    /// What an allocation of it takes from counters that it shares with other devices of its pool.
    pub consumes: Vec<CounterUse>,
    pub taints: Vec<Taint>,
    /// Only where the slice leaves it to its devices to say which nodes they can be reached from.
    pub reach: Option<Reach>,
    pub binds_to_node: bool,
    /// kube-scheduler tries pools with such devices after all others.
    pub has_binding_conditions: bool,
}

/// Which device, in the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// What selectors, constraints and requests for capacity can see of a device. Many devices have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub driver: Arc<str>,
    /// Whether several requests may have it at once, each with a part of its capacity.
    pub allows_multiple: bool,
    /// By domain, then by name. Names without a domain are in the domain of the driver.
    pub attributes: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Attribute>>,
    /// By the name that the driver wrote, with or without its domain: requests are compared with that.
    pub capacity: BTreeMap<Arc<str>, Capacity>,
}

impl Kind {
    pub fn attribute(&self, name: &AttributeName) -> Option<&Attribute> {
        self.attributes.get(&name.domain)?.get(&name.id)
    }
}

/// The name of an attribute with its domain, as constraints have it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttributeName {
    pub domain: Arc<str>,
    pub id: Arc<str>,
}

impl fmt::Display for AttributeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.domain, self.id)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attribute {
    Bool(bool),
    Int(i64),
    String(Arc<str>),
    Version(Arc<str>),
    Bools(Vec<bool>),
    Ints(Vec<i64>),
    Strings(Vec<Arc<str>>),
    Versions(Vec<Arc<str>>),
}

/// One value of an attribute. Values of two types are never equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scalar {
    Bool(bool),
    Int(i64),
    String(Arc<str>),
    Version(Arc<str>),
}

impl Attribute {
    /// Constraints compare attributes as sets. A single value is a set of one.
    pub fn values(&self) -> BTreeSet<Scalar> {
        match self {
            Self::Bool(one) => BTreeSet::from([Scalar::Bool(*one)]),
            Self::Int(one) => BTreeSet::from([Scalar::Int(*one)]),
            Self::String(one) => BTreeSet::from([Scalar::String(one.clone())]),
            Self::Version(one) => BTreeSet::from([Scalar::Version(one.clone())]),
            Self::Bools(all) => all.iter().copied().map(Scalar::Bool).collect(),
            Self::Ints(all) => all.iter().copied().map(Scalar::Int).collect(),
            Self::Strings(all) => all.iter().cloned().map(Scalar::String).collect(),
            Self::Versions(all) => all.iter().cloned().map(Scalar::Version).collect(),
        }
    }
}

/// How much of something a device has, and in which portions it is given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capacity {
    pub value: Amount,
    pub policy: Option<Policy>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Policy {
    /// What a request gets that does not name this capacity.
    pub default: Option<Amount>,
    pub portions: Portions,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Portions {
    Any,
    /// In ascending order.
    Values(Vec<Amount>),
    Range {
        min: Amount,
        max: Option<Amount>,
        step: Option<Amount>,
    },
}

/// What a device takes from one counter of its pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterUse {
    pub counter: CounterName,
    pub amount: Amount,
}

/// A counter of a pool: its set, and its name in the set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterName {
    pub set: Arc<str>,
    pub counter: Arc<str>,
}

impl fmt::Display for CounterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.set, self.counter)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    pub key: Arc<str>,
    pub value: Arc<str>,
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// `None`, and every effect that is not known: both are to be ignored.
    Ignored,
    NoSchedule,
    NoExecute,
}

/// A taint that a request puts up with. What it leaves unset, it does not look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    pub key: Option<Arc<str>>,
    /// Unset with the operator `Exists`.
    pub value: Option<Arc<str>>,
    pub effect: Option<Effect>,
}

impl Toleration {
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
    }
}

impl Device {
    /// The first taint that keeps a request with these tolerations away.
    pub fn repels(&self, tolerations: &[Toleration]) -> Option<&Taint> {
        self.taints.iter().find(|taint| {
            taint.effect != Effect::Ignored && !tolerations.iter().any(|one| one.tolerates(taint))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerates_what_it_names_and_nothing_else() {
        let taint = |effect| Taint { key: "gone".into(), value: "bad".into(), effect };
        let toleration = |key: Option<&str>, value: Option<&str>, effect| Toleration {
            key: key.map(Into::into),
            value: value.map(Into::into),
            effect,
        };
        let cases = [
            (toleration(None, None, None), true),
            (toleration(Some("gone"), None, None), true),
            (toleration(Some("gone"), Some("bad"), None), true),
            (toleration(Some("gone"), Some("bad"), Some(Effect::NoExecute)), true),
            (toleration(Some("gone"), Some("bad"), Some(Effect::NoSchedule)), false),
            (toleration(Some("gone"), Some("good"), None), false),
            (toleration(Some("other"), None, None), false),
        ];
        for (toleration, expect) in cases {
            assert_eq!(toleration.tolerates(&taint(Effect::NoExecute)), expect, "{toleration:?}");
        }
    }

    #[test]
    fn compares_attributes_as_sets() {
        let one = Attribute::Ints(vec![2, 1, 2]).values();
        assert_eq!(one, BTreeSet::from([Scalar::Int(1), Scalar::Int(2)]));
        let version = Attribute::Version("1.0.0".into()).values();
        assert!(version.is_disjoint(&Attribute::String("1.0.0".into()).values()));
    }
}
