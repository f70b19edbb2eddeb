//! Requirements on several keys, and when a node side can serve an incoming side.

use std::fmt;

use crate::labels::{HOSTNAME, KnownLabels, Labels};
use crate::requirement::Requirement;

/// At most one requirement per key, sorted by key; a missing key allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirements(Vec<Requirement>);

/// Which keys may be asked for although the node side does not define them.
#[derive(Clone, Copy, Debug)]
pub enum Undefined<'a> {
    /// None: the node exists, and what it does not carry it does not have.
    Refused,
    /// The well-known ones: a node that is yet to be launched will carry them.
    WellKnown(&'a KnownLabels),
}

/// Why two sets of requirements do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    #[error(
        "label \"{key}\" does not have known values{}",
        hint.as_ref().map(|key| format!(" (typo of \"{key}\"?)")).unwrap_or_default()
    )]
    UndefinedLabel { key: String, hint: Option<String> },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Conflicts(Vec<Conflict>),
}

/// Two requirements on one key that allow nothing in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {}, {incoming} not in {existing}", existing.key())]
pub struct Conflict {
    pub incoming: Requirement,
    pub existing: Requirement,
}

impl Requirements {
    pub fn new(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        let mut all = Self::default();
        all.extend(requirements);
        all.0.shrink_to_fit();
        all
    }

    /// One `In` per label.
    pub fn from_labels(labels: &Labels) -> Self {
        Self::new(labels.iter().map(|(key, value)| Requirement::is_in(key, [value])))
    }

    /// Narrows the key by this requirement.
    pub fn add(&mut self, requirement: Requirement) {
        match self.position(requirement.key()) {
            Ok(at) => self.0[at] = requirement.intersection(&self.0[at]),
            Err(at) => self.0.insert(at, requirement),
        }
    }

    /// Puts this requirement in the place of whatever its key had.
    pub fn replace(&mut self, requirement: Requirement) {
        match self.position(requirement.key()) {
            Ok(at) => self.0[at] = requirement,
            Err(at) => self.0.insert(at, requirement),
        }
    }

    pub fn extend(&mut self, requirements: impl IntoIterator<Item = Requirement>) {
        for requirement in requirements {
            self.add(requirement);
        }
    }

    pub fn merged(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.extend(other.iter().cloned());
        both
    }

    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.position(key).ok().map(|at| self.0.remove(at))
    }

    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.position(key).ok().map(|at| &self.0[at])
    }

    fn position(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|requirement| requirement.key().cmp(key))
    }

    pub fn has(&self, key: &str) -> bool {
        self.position(key).is_ok()
    }

    /// Sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> + Clone {
        self.0.iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Requirement::key)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has_min_values(&self) -> bool {
        self.iter().any(|requirement| requirement.min_values().is_some())
    }

    /// Whether the keys that both sides name have something in common.
    pub fn intersects(&self, incoming: &Self) -> Result<(), Incompatible> {
        let conflicts = self.conflicts(incoming);
        if conflicts.is_empty() { Ok(()) } else { Err(Incompatible::Conflicts(conflicts)) }
    }

    /// Whether a node with these requirements can serve the incoming ones.
    ///
    /// Not symmetric: an incoming key that the node side lacks is refused, unless it may be undefined
    /// or the incoming requirement is met by a missing label.
    pub fn compatible(
        &self,
        incoming: &Self,
        undefined: Undefined<'_>,
    ) -> Result<(), Incompatible> {
        let undefined_key = incoming.iter().find(|requirement| {
            !undefined.allows(requirement.key())
                && !self.has(requirement.key())
                && !requirement.allows_absence()
        });
        if let Some(requirement) = undefined_key {
            return Err(Incompatible::UndefinedLabel {
                key: requirement.key().to_owned(),
                hint: self.hint(requirement.key(), undefined),
            });
        }
        if let Some(impossible) = incoming.iter().find(|requirement| requirement.is_impossible()) {
            let existing = self.get(impossible.key()).cloned();
            return Err(Incompatible::Conflicts(vec![Conflict {
                incoming: impossible.clone(),
                existing: existing.unwrap_or_else(|| Requirement::exists(impossible.key())),
            }]));
        }
        self.intersects(incoming)
    }

    /// Whether a node with exactly these labels meets everything: the strict comparison, without building
    /// requirements from the labels.
    pub fn are_met_by(&self, labels: &Labels) -> bool {
        self.iter().all(|requirement| match labels.get(requirement.key()) {
            Some(value) => requirement.has(value),
            None => requirement.allows_absence(),
        })
    }

    fn conflicts(&self, incoming: &Self) -> Vec<Conflict> {
        // Walk the smaller side: incoming sets are short, node sets are not always.
        let (small, large) =
            if self.len() < incoming.len() { (self, incoming) } else { (incoming, self) };
        small
            .keys()
            .filter(|key| large.has(key))
            .filter_map(|key| Some((self.get(key)?, incoming.get(key)?)))
            .filter(|(existing, incoming)| {
                let meet = existing.intersects(incoming)
                    || (existing.allows_absence() && incoming.allows_absence());
                !meet
            })
            .map(|(existing, incoming)| Conflict {
                incoming: incoming.clone(),
                existing: existing.clone(),
            })
            .collect()
    }

    /// A key that was probably meant: one that contains the unknown key, or ends with its last part.
    fn hint(&self, key: &str, undefined: Undefined<'_>) -> Option<String> {
        let suffix = key.split_once('/').map_or(key, |(_, suffix)| suffix);
        let meant = |candidate: &&str| candidate.contains(key) || candidate.ends_with(suffix);
        let well_known = match undefined {
            Undefined::WellKnown(labels) => {
                labels.well_known.iter().map(String::as_str).find(meant)
            }
            Undefined::Refused => None,
        };
        well_known.or_else(|| self.keys().find(meant)).map(str::to_owned)
    }
}

impl Undefined<'_> {
    fn allows(self, key: &str) -> bool {
        match self {
            Undefined::Refused => false,
            Undefined::WellKnown(labels) => labels.is_well_known(key),
        }
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        Self::new(requirements)
    }
}

impl fmt::Display for Requirements {
    /// Leaves out the hostname: in a plan it is a placeholder that would only confuse.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.iter().filter(|requirement| requirement.key() != HOSTNAME);
        for (position, requirement) in shown.enumerate() {
            write!(f, "{}{requirement}", if position == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
