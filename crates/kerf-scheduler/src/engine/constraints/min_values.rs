//! `minValues`: how many distinct values of a key the instance types of a claim must leave.

use kerf_model::{Requirement, TooFewValues};

use super::{Engine, Evaluation, Witness};
use crate::algebra::{Algebra, Key, SetId};
use crate::bits::Bits;
use crate::refusal::FilterCause;
use crate::template::Template;

impl Engine<'_> {
    /// The set itself when `minValues` holds; with lowered ones, and `true`, when that is allowed. Looks at the rows in the
    /// scratch buffer.
    pub(super) fn check_min_values<W: Witness>(
        &mut self,
        evaluation: &mut Evaluation<'_, W>,
        set: SetId,
    ) -> Option<(SetId, bool)> {
        if !self.algebra.has_min_values(set) {
            return Some((set, false));
        }
        let template = evaluation.template;
        let rows = &self.scratch.rows;
        let short = short_of_values(&self.templates[template], set, rows, &mut self.algebra);
        if short.is_empty() {
            return Some((set, false));
        }
        if evaluation.may_relax_min_values {
            return Some((self.with_lowered_min_values(set, &short), true));
        }
        let requests = &evaluation.attempt.spec.base.key.requests;
        evaluation.witness.refused(|| {
            let cause = FilterCause::MinValues(self.too_few(&short));
            self.filter_refusal(template, set, requests, cause)
        });
        None
    }

    fn with_lowered_min_values(&mut self, set: SetId, short: &[(Key, u32)]) -> SetId {
        short.iter().fold(set, |set, (key, left)| {
            let rule = self.algebra.get(set, *key);
            let mut requirement = rule.map_or_else(
                || Requirement::exists(self.algebra.key_name(*key)),
                |rule| self.algebra.requirement(rule).clone(),
            );
            requirement.set_min_values(Some(*left));
            self.algebra.replaced(set, &requirement)
        })
    }

    pub(super) fn too_few(&self, short: &[(Key, u32)]) -> TooFewValues {
        let named = |(key, left): &(Key, u32)| (self.algebra.key_name(*key).to_owned(), *left);
        TooFewValues(short.iter().map(named).collect())
    }
}

/// Keys for which these rows of the template have fewer values than `minValues` asks for, with what they have. Values that the
/// set no longer admits are no alternatives.
pub(in crate::engine) fn short_of_values(
    template: &Template,
    set: SetId,
    rows: &Bits,
    algebra: &mut Algebra,
) -> Vec<(Key, u32)> {
    let entries = algebra.entries(set).iter();
    let wanted: Vec<_> = entries
        .filter_map(|(key, rule)| Some((*key, *rule, algebra.requirement(*rule).min_values()?)))
        .collect();
    let left = wanted.into_iter().filter_map(|(key, rule, least)| {
        let left = template.distinct_values(rows, rule, algebra);
        (left < least).then_some((key, left))
    });
    left.collect()
}
