//! One requirement on one label key, as a set of allowed values.

use std::fmt;

pub use kerf_api::{NodeSelectorRequirement, Operator, UnknownOperator};

/// The values that a label may take: a set, or everything but a set, perhaps within integer bounds.
///
/// All eight operators come down to this, so that two requirements on a key can be intersected.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    key: String,
    /// With `complement` the listed values are the excluded ones.
    complement: bool,
    /// Sorted, without repetition. A list, because nearly all have one to three values and a catalogue has thousands
    /// of requirements.
    values: Vec<String>,
    gte: Option<i64>,
    lte: Option<i64>,
    /// Whether a node without the label will do. Kept apart from the values: `In [a]` and `In [b]` together
    /// allow nothing at all, which is not the same as asking for the label to be missing.
    absent: bool,
    min_values: Option<u32>,
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
                requirement.values = sorted(values);
            }
            Operator::NotIn => {
                requirement.values = sorted(values);
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
            key: kerf_api::labels::normalize(key).to_owned(),
            complement: true,
            values: Vec::new(),
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
        let listed_nothing = self.listed().is_some_and(<[String]>::is_empty);
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
    pub fn listed(&self) -> Option<&[String]> {
        (!self.complement).then_some(self.values.as_slice())
    }

    /// The single allowed value, if there is exactly one.
    pub fn only_value(&self) -> Option<&str> {
        match self.listed()? {
            [only] => Some(only),
            _ => None,
        }
    }

    /// How many values it names, allowed or excluded.
    pub fn size(&self) -> usize {
        self.values.len()
    }

    pub fn has(&self, value: &str) -> bool {
        self.names(value) != self.complement && self.within_bounds(value)
    }

    fn names(&self, value: &str) -> bool {
        self.values.binary_search_by(|own| own.as_str().cmp(value)).is_ok()
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

    /// A value for the label of something with this name: of a list one that the name decides, so that many get a mix;
    /// of an open set the smallest number that is allowed; none when nothing is.
    pub fn value_for(&self, name: &str) -> Option<String> {
        let number = stable_hash(name).checked_rem(self.values.len() as u64).unwrap_or(0);
        match self.listed() {
            Some(listed) => listed.get(usize::try_from(number).unwrap_or(0)).cloned(),
            None => self.smallest_number(),
        }
    }

    fn smallest_number(&self) -> Option<String> {
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
            .find(|number| !self.names(number))
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
            values: Vec::new(),
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
            (true, true) => sorted(self.values.iter().chain(&other.values).cloned()),
            (true, false) => other.values_that(|value| !self.names(value)),
            (false, true) => self.values_that(|value| !other.names(value)),
            (false, false) => self.values_that(|value| other.names(value)),
        };
        let mut values = std::mem::take(&mut both.values);
        values.retain(|value| both.within_bounds(value));
        both.values = values;
        if !both.complement {
            (both.gte, both.lte) = (None, None);
        }
        both
    }

    fn values_that(&self, keep: impl Fn(&str) -> bool) -> Vec<String> {
        self.values.iter().filter(|value| keep(value)).cloned().collect()
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
    pub fn expressions(&self) -> Vec<NodeSelectorRequirement> {
        let expression = |operator, values| NodeSelectorRequirement {
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
            expressions.push(expression(self.operator(), self.values.clone()));
        }
        expressions
    }
}

fn sorted(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.shrink_to_fit();
    values
}

/// FNV-1a, with its better bits folded onto the lowest. Nodes keep their labels, so what it gives must not change with
/// a version of a library.
fn stable_hash(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash ^ (hash >> 32)
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

#[cfg(test)]
mod tests;
