//! `minValues`: how many distinct values of a key the instance types of a claim must leave.

use kerf_model::{Requirement, TooFewValues};

use super::{Engine, Evaluation, Witness};
use crate::algebra::{Key, SetId};
use crate::bits::Bits;
use crate::refusal::FilterCause;

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
        let short = self.short_of_values(template, set, &self.scratch.rows);
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

    /// Keys for which these rows have fewer values than `minValues` asks for, with what they have.
    pub(in crate::engine) fn short_of_values(
        &self,
        template: usize,
        set: SetId,
        rows: &Bits,
    ) -> Vec<(Key, u32)> {
        let wanted =
            self.algebra.entries(set).iter().filter_map(|(key, rule)| {
                Some((*key, self.algebra.requirement(*rule).min_values()?))
            });
        wanted
            .filter_map(|(key, least)| {
                let left = self.templates[template].distinct_values(rows, key, &self.algebra);
                (left < least).then_some((key, left))
            })
            .collect()
    }

    pub(super) fn too_few(&self, short: &[(Key, u32)]) -> TooFewValues {
        let named = |(key, left): &(Key, u32)| (self.algebra.key_name(*key).to_owned(), *left);
        TooFewValues(short.iter().map(named).collect())
    }
}
