//! Values of expressions. Strings and maps of the device are borrowed from it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use semver::Version;

use super::Failure;
use super::evaluate::Meter;
use crate::amount::Amount;
use crate::device::{Attribute, Kind};

#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Quantity(Amount),
    Version(Rc<Version>),
    Optional(Option<Rc<Value<'a>>>),
    List(Rc<Vec<Value<'a>>>),
    Map(Rc<Vec<(Value<'a>, Value<'a>)>>),
    /// The variable `device`.
    Device(&'a Kind),
    /// `device.attributes`: looking up a domain that no attribute has gives an empty map.
    Attributes(&'a Kind),
    /// The attributes of a domain.
    AttributesOf(Option<&'a BTreeMap<Arc<str>, Attribute>>),
    /// `device.capacity`, in which unknown domains are empty too.
    Capacities(&'a Kind),
    CapacitiesOf(&'a Kind, Text<'a>),
}

/// A text that costs nothing to copy.
#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Made(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Made(text) => text,
        }
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Made(text.into())
    }
}

impl<'a> Value<'a> {
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an int",
            Self::Uint(_) => "a uint",
            Self::Double(_) => "a double",
            Self::String(_) => "a string",
            Self::Quantity(_) => "a quantity",
            Self::Version(_) => "a version",
            Self::Optional(_) => "an optional",
            Self::List(_) => "a list",
            Self::Device(_) => "a device",
            _ => "a map",
        }
    }

    /// What a map, or an object, has under a key.
    pub(super) fn field(&self, key: &str) -> Result<Value<'a>, Failure> {
        self.lookup(key)?.ok_or_else(|| Failure::NoSuchKey { key: key.to_owned() })
    }

    fn lookup(&self, key: &str) -> Result<Option<Value<'a>>, Failure> {
        Ok(match self {
            Self::Device(kind) => match key {
                "driver" => Some(Value::String(Text::Borrowed(&kind.driver))),
                "allowMultipleAllocations" => Some(Value::Bool(kind.allows_multiple)),
                "attributes" => Some(Value::Attributes(kind)),
                "capacity" => Some(Value::Capacities(kind)),
                _ => None,
            },
            Self::Attributes(kind) => Some(Value::AttributesOf(kind.attributes.get(key))),
            Self::Capacities(kind) => Some(Value::CapacitiesOf(kind, key.to_owned().into())),
            Self::AttributesOf(domain) => {
                domain.and_then(|domain| domain.get(key)).map(attribute).transpose()?
            }
            Self::CapacitiesOf(kind, domain) => capacities(kind)
                .find(|(of, name, _)| *of == &**domain && *name == key)
                .map(|(_, _, amount)| Value::Quantity(amount)),
            Self::Map(entries) => entries
                .iter()
                .find(|(of, _)| matches!(of, Value::String(of) if **of == *key))
                .map(|(_, value)| value.clone()),
            _ => return Err(no_overload("a field", [self])),
        })
    }

    /// Whether a key is there. That a domain can be looked up does not make it be there.
    pub(super) fn has(&self, key: &str) -> Result<bool, Failure> {
        Ok(match self {
            Self::Attributes(kind) => kind.attributes.contains_key(key),
            Self::Capacities(kind) => capacities(kind).any(|(domain, _, _)| domain == key),
            _ => self.lookup(key)?.is_some(),
        })
    }

    pub(super) fn index(&self, key: &Value<'a>, meter: &mut Meter) -> Result<Value<'a>, Failure> {
        match (self, key) {
            (Self::List(items), _) => {
                let place = key.as_i128().and_then(|place| usize::try_from(place).ok());
                let item = place.and_then(|place| items.get(place));
                item.cloned().ok_or(Failure::OutOfRange { operation: "an index" })
            }
            (Self::Map(entries), _) => {
                for (of, value) in entries.iter() {
                    if of.equals(key, meter)? {
                        return Ok(value.clone());
                    }
                }
                Err(Failure::NoSuchKey { key: key.type_name().to_owned() })
            }
            (_, Self::String(key)) => self.field(key),
            _ => Err(no_overload("an index", [self, key])),
        }
    }

    pub(super) fn contains(&self, item: &Value<'a>, meter: &mut Meter) -> Result<bool, Failure> {
        match (self, item) {
            (Self::List(items), _) => item.is_among(items.iter(), meter),
            (Self::Map(entries), _) => item.is_among(entries.iter().map(|(key, _)| key), meter),
            (Self::Device(_), _) => Err(no_overload("in", [item, self])),
            (_, Self::String(key)) => self.has(key),
            _ => Err(no_overload("in", [item, self])),
        }
    }

    pub(super) fn is_among<'v>(
        &self,
        items: impl IntoIterator<Item = &'v Value<'a>>,
        meter: &mut Meter,
    ) -> Result<bool, Failure>
    where
        'a: 'v,
    {
        for item in items {
            if item.equals(self, meter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How many items a list has, or a map keys.
    pub(super) fn count(&self) -> Result<usize, Failure> {
        match self {
            Self::List(items) => Ok(items.len()),
            Self::Map(entries) => Ok(entries.len()),
            _ => Ok(self.items()?.len()),
        }
    }

    /// What `all`, `exists` and their like go through: the items of a list, the keys of a map.
    pub(super) fn items(&self) -> Result<Vec<Value<'a>>, Failure> {
        let key = |key: &'a str| Value::String(Text::Borrowed(key));
        Ok(match self {
            Self::List(items) => items.to_vec(),
            Self::Map(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
            Self::Attributes(kind) => kind.attributes.keys().map(|domain| key(domain)).collect(),
            Self::AttributesOf(domain) => {
                domain.iter().flat_map(|domain| domain.keys()).map(|name| key(name)).collect()
            }
            Self::Capacities(kind) => {
                let mut domains: Vec<_> = capacities(kind).map(|(domain, _, _)| domain).collect();
                domains.sort_unstable();
                domains.dedup();
                domains.into_iter().map(key).collect()
            }
            Self::CapacitiesOf(kind, of) => capacities(kind)
                .filter(|(domain, _, _)| *domain == &**of)
                .map(|(_, name, _)| key(name))
                .collect(),
            _ => return Err(no_overload("iteration", [self])),
        })
    }

    /// Equality between any two values; numbers compare by value, other types are never equal.
    pub(super) fn equals(&self, other: &Value<'a>, meter: &mut Meter) -> Result<bool, Failure> {
        meter.spend(1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::String(left), Self::String(right)) => {
                meter.spend_on_text(left.len().min(right.len()))?;
                **left == **right
            }
            (Self::Quantity(left), Self::Quantity(right)) => left == right,
            (Self::Version(left), Self::Version(right)) => {
                left.cmp_precedence(right) == Ordering::Equal
            }
            (Self::Optional(left), Self::Optional(right)) => match (left, right) {
                (Some(left), Some(right)) => left.equals(right, meter)?,
                (left, right) => left.is_none() && right.is_none(),
            },
            (Self::List(left), Self::List(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (left, right) in left.iter().zip(right.iter()) {
                    if !left.equals(right, meter)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Device(left), Self::Device(right)) => left == right,
            _ if self.is_map() && other.is_map() => self.equals_map(other, meter)?,
            _ => self.number_order(other) == Some(Ordering::Equal),
        })
    }

    fn is_map(&self) -> bool {
        self.type_name() == "a map"
    }

    fn equals_map(&self, other: &Value<'a>, meter: &mut Meter) -> Result<bool, Failure> {
        if self.count()? != other.count()? {
            return Ok(false);
        }
        for key in self.items()? {
            if !other.contains(&key, meter)? {
                return Ok(false);
            }
            let (left, right) = (self.index(&key, meter)?, other.index(&key, meter)?);
            if !left.equals(&right, meter)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The order of two values for `<` and its like.
    pub(super) fn order(&self, other: &Value<'a>) -> Result<Ordering, Failure> {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => Ok(left.cmp(right)),
            (Self::String(left), Self::String(right)) => Ok((**left).cmp(&**right)),
            _ => self.number_order(other).ok_or_else(|| no_overload("an order", [self, other])),
        }
    }

    fn number_order(&self, other: &Value<'a>) -> Option<Ordering> {
        match (self, other) {
            (Self::Double(left), Self::Double(right)) => left.partial_cmp(right),
            (Self::Double(left), _) => left.partial_cmp(&(other.as_i128()? as f64)),
            (_, Self::Double(right)) => (self.as_i128()? as f64).partial_cmp(right),
            _ => Some(self.as_i128()?.cmp(&other.as_i128()?)),
        }
    }

    fn as_i128(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(i128::from(*value)),
            Self::Uint(value) => Some(i128::from(*value)),
            _ => None,
        }
    }
}

pub(super) fn no_overload<'v, 'a: 'v>(
    operation: &'static str,
    operands: impl IntoIterator<Item = &'v Value<'a>>,
) -> Failure {
    let names: Vec<_> = operands.into_iter().map(Value::type_name).collect();
    Failure::NoOverload { operation, operands: names.join(" and ") }
}

pub(super) fn parse_version(text: &str) -> Result<Rc<Version>, Failure> {
    let not_a_version = |_| Failure::NotA { what: "a semantic version", text: text.to_owned() };
    Version::parse(text).map(Rc::new).map_err(not_a_version)
}

fn attribute(attribute: &Attribute) -> Result<Value<'_>, Failure> {
    Ok(match attribute {
        Attribute::Bool(value) => Value::Bool(*value),
        Attribute::Int(value) => Value::Int(*value),
        Attribute::String(value) => Value::String(Text::Borrowed(value)),
        Attribute::Version(value) => Value::Version(parse_version(value)?),
        Attribute::Bools(values) => list(values.iter().copied().map(Value::Bool)),
        Attribute::Ints(values) => list(values.iter().copied().map(Value::Int)),
        Attribute::Strings(values) => {
            list(values.iter().map(|one| Value::String(Text::Borrowed(one))))
        }
        Attribute::Versions(values) => {
            let versions = values.iter().map(|one| parse_version(one).map(Value::Version));
            Value::List(Rc::new(versions.collect::<Result<_, _>>()?))
        }
    })
}

pub(super) fn list<'a>(items: impl IntoIterator<Item = Value<'a>>) -> Value<'a> {
    Value::List(Rc::new(items.into_iter().collect()))
}

/// The capacities of a device with their domains and bare names.
fn capacities(kind: &Kind) -> impl Iterator<Item = (&str, &str, Amount)> {
    kind.capacity.iter().map(|(name, capacity)| {
        let (domain, name) = name.split_once('/').unwrap_or((&kind.driver, name));
        (domain, name, capacity.value)
    })
}
