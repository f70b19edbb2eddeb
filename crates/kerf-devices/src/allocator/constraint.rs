//! What the devices of a claim have to have in common, or not, while they are chosen.

use std::collections::BTreeSet;

use crate::claim::{Constraint, RequestName, Rule};
use crate::device::{Kind, Scalar};

/// A constraint and the devices that it was asked about. Attributes are sets of values; a single value is a set of one.
#[derive(Debug)]
pub(super) struct Checked<'a> {
    constraint: &'a Constraint,
    /// For `matchAttribute`, what the devices so far have in common, after each of them. For `distinctAttribute`, the values of each.
    chosen: Vec<BTreeSet<Scalar>>,
}

impl<'a> Checked<'a> {
    pub(super) fn new(constraint: &'a Constraint) -> Self {
        Self { constraint, chosen: Vec::new() }
    }

    pub(super) fn rule(&self) -> &'a Rule {
        &self.constraint.rule
    }

    /// Notes a device, unless it does not go with the others. A device without the attribute goes with none.
    pub(super) fn add(&mut self, request: &RequestName, kind: &Kind) -> bool {
        if !self.constraint.concerns(request) {
            return true;
        }
        let (Rule::MatchAttribute(name) | Rule::DistinctAttribute(name)) = &self.constraint.rule;
        let Some(attribute) = kind.attribute(name) else { return false };
        let values = attribute.values();
        let values = match &self.constraint.rule {
            Rule::MatchAttribute(_) => match self.chosen.last() {
                Some(common) => common.intersection(&values).cloned().collect(),
                None => values,
            },
            Rule::DistinctAttribute(_) => {
                if self.chosen.iter().any(|other| !other.is_disjoint(&values)) {
                    return false;
                }
                values
            }
        };
        if values.is_empty() {
            return false;
        }
        self.chosen.push(values);
        true
    }

    /// Forgets the device that was noted last.
    pub(super) fn remove(&mut self, request: &RequestName) {
        if self.constraint.concerns(request) {
            self.chosen.pop();
        }
    }
}
