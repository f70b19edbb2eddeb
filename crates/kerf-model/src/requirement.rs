//! One requirement on one label key, as a set of allowed values.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::labels::renamed_by_kubernetes;

/// The values that a label may take: a set, or everything but a set, perhaps within integer bounds.
///
/// All eight operators come down to this, so that two requirements on a key can be intersected.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    key: String,
    /// With `complement` the listed values are the excluded ones.
    complement: bool,
    values: BTreeSet<String>,
    gte: Option<i64>,
    lte: Option<i64>,
    /// Whether a node without the label will do. Kept apart from the values: `In [a]` and `In [b]` together
    /// allow nothing at all, which is not the same as asking for the label to be missing.
    absent: bool,
    min_values: Option<u32>,
}

/// How a requirement is written in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    Gte,
    Lte,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not an operator: use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte")]
pub struct UnknownOperator(String);

/// A requirement in API form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
    pub min_values: Option<u32>,
}

impl Requirement {
    /// Normalises the key's name. Bounds that are not integers count as zero: the API server validates
    /// them before they get here.
    pub fn new<V: Into<String>>(
        key: &str,
        operator: Operator,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let mut values = values.into_iter().map(Into::into);
        let mut requirement = Self::exists(key);
        let mut bound = || values.next().and_then(|v: String| parse_integer(&v)).unwrap_or(0);
        match operator {
            Operator::Exists => {}
            Operator::DoesNotExist => {
                requirement.complement = false;
                requirement.absent = true;
            }
            Operator::In => {
                requirement.complement = false;
                requirement.values = values.collect();
            }
            Operator::NotIn => {
                requirement.values = values.collect();
                // Excluding nothing reads as `Exists`; the API refuses to store it.
                requirement.absent = !requirement.values.is_empty();
            }
            Operator::Gte => requirement.gte = Some(bound()),
            Operator::Lte => requirement.lte = Some(bound()),
            Operator::Gt => match bound().checked_add(1) {
                Some(least) => requirement.gte = Some(least),
                None => requirement.complement = false,
            },
            Operator::Lt => match bound().checked_sub(1) {
                Some(greatest) => requirement.lte = Some(greatest),
                None => requirement.complement = false,
            },
        }
        requirement
    }

    pub fn exists(key: &str) -> Self {
        Self {
            key: renamed_by_kubernetes(key).to_owned(),
            complement: true,
            values: BTreeSet::new(),
            gte: None,
            lte: None,
            absent: false,
            min_values: None,
        }
    }

    pub fn is_in<V: Into<String>>(key: &str, values: impl IntoIterator<Item = V>) -> Self {
        Self::new(key, Operator::In, values)
    }

    pub fn does_not_exist(key: &str) -> Self {
        Self::new(key, Operator::DoesNotExist, [""; 0])
    }

    /// Asks for at least this many distinct values among the instance types of a claim.
    /// A requirement that nothing meets cannot be flexible, so it ignores this.
    pub fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        let listed_nothing = self.listed().is_some_and(BTreeSet::is_empty);
        self.min_values = min_values.filter(|_| !listed_nothing);
        self
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    /// Lowers or removes the wish for flexibility, for claims that cannot meet it.
    pub fn set_min_values(&mut self, min_values: Option<u32>) {
        self.min_values = min_values;
    }

    pub fn bounds(&self) -> (Option<i64>, Option<i64>) {
        (self.gte, self.lte)
    }

    /// The operator of the set's shape. Bounded sets report `Exists`, because they are complements; what
    /// nothing can meet reports `In`, of nothing.
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, false) => Operator::NotIn,
            (true, true) => Operator::Exists,
            (false, true) if self.absent => Operator::DoesNotExist,
            (false, _) => Operator::In,
        }
    }

    /// `NotIn` and `DoesNotExist` are met by a node that lacks the label.
    pub fn allows_absence(&self) -> bool {
        self.absent
    }

    /// No node meets this, with the label or without.
    pub fn is_impossible(&self) -> bool {
        !self.complement && self.values.is_empty() && !self.absent
    }

    /// The allowed values, when they can be listed. A complement lists nothing: what it holds are
    /// exclusions, and taking those for values is a mistake worth ruling out by type.
    pub fn listed(&self) -> Option<&BTreeSet<String>> {
        (!self.complement).then_some(&self.values)
    }

    /// The single allowed value, if there is exactly one.
    pub fn only_value(&self) -> Option<&str> {
        let listed = self.listed()?;
        (listed.len() == 1).then(|| listed.first().map(String::as_str)).flatten()
    }

    pub fn has(&self, value: &str) -> bool {
        self.values.contains(value) != self.complement && self.within_bounds(value)
    }

    fn within_bounds(&self, value: &str) -> bool {
        if self.gte.is_none() && self.lte.is_none() {
            return true;
        }
        parse_integer(value).is_some_and(|number| {
            self.gte.is_none_or(|least| number >= least)
                && self.lte.is_none_or(|greatest| number <= greatest)
        })
    }

    /// A value for the label: the first of a list, the smallest allowed number of an open set, none
    /// when nothing is allowed.
    pub fn any(&self) -> Option<String> {
        if !self.complement {
            return self.values.first().cloned();
        }
        // At most `values.len()` numbers are excluded, so one more try always finds a free one.
        let least = match (self.gte, self.lte) {
            (Some(least), _) => least,
            (None, Some(greatest)) if greatest < 0 => {
                greatest.saturating_sub(i64::try_from(self.values.len()).unwrap_or(i64::MAX))
            }
            (None, _) => 0,
        };
        (0..=i64::try_from(self.values.len()).unwrap_or(i64::MAX))
            .filter_map(|offset| least.checked_add(offset))
            .take_while(|number| self.lte.is_none_or(|greatest| *number <= greatest))
            .map(|number| number.to_string())
            .find(|number| !self.values.contains(number))
    }

    /// What both allow. Keeps this requirement's key.
    pub fn intersection(&self, other: &Self) -> Self {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let mut both = Self {
            key: self.key.clone(),
            complement: self.complement && other.complement,
            values: BTreeSet::new(),
            gte,
            lte,
            absent: self.absent && other.absent,
            min_values: self.min_values.max(other.min_values),
        };
        if contradictory(gte, lte) {
            both.complement = false;
            (both.gte, both.lte) = (None, None);
            return both;
        }
        both.values = match (self.complement, other.complement) {
            (true, true) => self.values.union(&other.values).cloned().collect(),
            (true, false) => other.values.difference(&self.values).cloned().collect(),
            (false, true) => self.values.difference(&other.values).cloned().collect(),
            (false, false) => self.values.intersection(&other.values).cloned().collect(),
        };
        let unbounded = Self { values: BTreeSet::new(), ..both.clone() };
        both.values.retain(|value| unbounded.within_bounds(value));
        if !both.complement {
            (both.gte, both.lte) = (None, None);
        }
        both
    }

    /// Whether [`Self::intersection`] allows anything, without building it. Two complements always
    /// meet unless their bounds contradict: the excluded values are taken for fewer than the rest.
    pub fn intersects(&self, other: &Self) -> bool {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if contradictory(gte, lte) {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => true,
            (true, false) => other.values.iter().any(|value| self.has(value) && other.has(value)),
            (false, _) => self.values.iter().any(|value| self.has(value) && other.has(value)),
        }
    }

    /// Back to API form; bounds and exclusions each get an entry, and all carry the flexibility.
    pub fn expressions(&self) -> Vec<Expression> {
        let expression = |operator, values| Expression {
            key: self.key.clone(),
            operator,
            values,
            min_values: self.min_values,
        };
        let bounds = [(Operator::Gte, self.gte), (Operator::Lte, self.lte)];
        let mut expressions: Vec<_> = bounds
            .into_iter()
            .filter_map(|(operator, bound)| Some(expression(operator, vec![bound?.to_string()])))
            .collect();
        // Exclusions alone would also be met by a missing label.
        if self.complement && !self.values.is_empty() && !self.absent && expressions.is_empty() {
            expressions.push(expression(Operator::Exists, Vec::new()));
        }
        if expressions.is_empty() || !self.values.is_empty() {
            expressions.push(expression(self.operator(), self.values.iter().cloned().collect()));
        }
        expressions
    }
}

fn contradictory(gte: Option<i64>, lte: Option<i64>) -> bool {
    matches!((gte, lte), (Some(least), Some(greatest)) if least > greatest)
}

/// An optional sign and digits, nothing else.
fn parse_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        write!(f, "{} {}", self.key, self.operator())?;
        if !self.values.is_empty() || self.is_impossible() {
            f.write_str(" [")?;
            for (position, value) in self.values.iter().take(SHOWN).enumerate() {
                write!(f, "{}{value}", if position == 0 { "" } else { " " })?;
            }
            if self.values.len() > SHOWN {
                write!(f, " and {} others", self.values.len() - SHOWN)?;
            }
            f.write_str("]")?;
        }
        if let Some(least) = self.gte {
            write!(f, " >={least}")?;
        }
        if let Some(greatest) = self.lte {
            write!(f, " <={greatest}")?;
        }
        if let Some(min_values) = self.min_values {
            write!(f, " minValues {min_values}")?;
        }
        Ok(())
    }
}

impl Operator {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Operator {
    type Err = UnknownOperator;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            "Gte" => Self::Gte,
            "Lte" => Self::Lte,
            _ => return Err(UnknownOperator(text.to_owned())),
        })
    }
}

#[cfg(test)]
mod tests;
