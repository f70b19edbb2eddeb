//! How much a pod may ask for.

use std::fmt;

use super::{Constraints, PodTerm};
use crate::requirements::Requirements;

/// Affinity terms and spread constraints of a pod, in all. They are tried in combination, so that the work for a pod
/// grows faster than their number; pods in use have a handful.
pub const MOST_TERMS: usize = 128;
/// Keys, values, namespaces, tolerations and host ports in all of them. A list of every instance type of a large cloud
/// is about a thousand.
pub const MOST_VALUES: usize = 4096;

/// A pod that asks for more than anything would be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has {count} {what}, and at most {most} are allowed: remove some")]
pub struct TooManyConstraints {
    pub what: Counted,
    pub count: usize,
    pub most: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Terms,
    Values,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terms => "affinity terms and topology spread constraints",
            Self::Values => {
                "keys, values, namespaces, tolerations and host ports in its scheduling constraints"
            }
        })
    }
}

impl Constraints {
    pub fn check_size(&self) -> Result<(), TooManyConstraints> {
        let terms = self.required_terms.len()
            + self.preferred_terms.len()
            + self.spread.len()
            + self.pod_terms().count();
        let values = of_requirements(&self.node_selector)
            + self.required_terms.iter().map(of_requirements).sum::<usize>()
            + self.preferred_terms.iter().map(|it| of_requirements(&it.term)).sum::<usize>()
            + self.pod_terms().map(of_pod_term).sum::<usize>()
            + self.spread.iter().map(|it| 1 + it.selector.size()).sum::<usize>()
            + self.tolerations.len()
            + self.host_ports.len();
        for (what, count, most) in
            [(Counted::Terms, terms, MOST_TERMS), (Counted::Values, values, MOST_VALUES)]
        {
            if count > most {
                return Err(TooManyConstraints { what, count, most });
            }
        }
        Ok(())
    }

    fn pod_terms(&self) -> impl Iterator<Item = &PodTerm> {
        [&self.affinity, &self.anti_affinity].into_iter().flat_map(|terms| {
            terms.required.iter().chain(terms.preferred.iter().map(|weighted| &weighted.term))
        })
    }
}

fn of_requirements(requirements: &Requirements) -> usize {
    requirements.iter().map(|requirement| 1 + requirement.size()).sum()
}

fn of_pod_term(term: &PodTerm) -> usize {
    let namespaces = term.namespace_selector.as_ref().map_or(0, crate::Selector::size);
    1 + term.selector.size() + term.namespaces.len() + namespaces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{PodTerms, Weighted};
    use crate::{Requirement, Selector, Toleration};

    fn terms(count: usize) -> Vec<Requirements> {
        vec![Requirements::new([Requirement::is_in("key", ["value"])]); count]
    }

    #[test]
    fn terms_of_all_kinds_count_together_and_so_do_values() {
        let pod_terms = |count| PodTerms {
            required: Vec::new(),
            preferred: (0..count)
                .map(|_| Weighted {
                    weight: 1,
                    term: PodTerm {
                        topology_key: "zone".to_owned(),
                        selector: Selector::everything(),
                        namespaces: vec!["a".to_owned(), "b".to_owned()],
                        namespace_selector: None,
                    },
                })
                .collect(),
        };
        let list = |count: usize| {
            Requirements::new([Requirement::is_in("key", (0..count).map(|at| at.to_string()))])
        };
        let most = MOST_TERMS;
        for (constraints, expected) in [
            (Constraints::default(), None),
            (Constraints { required_terms: terms(most), ..Constraints::default() }, None),
            (
                Constraints { required_terms: terms(most + 1), ..Constraints::default() },
                Some((Counted::Terms, most + 1)),
            ),
            (
                Constraints {
                    required_terms: terms(most - 1),
                    affinity: pod_terms(1),
                    anti_affinity: pod_terms(1),
                    ..Constraints::default()
                },
                Some((Counted::Terms, most + 1)),
            ),
            (Constraints { node_selector: list(MOST_VALUES - 1), ..Constraints::default() }, None),
            (
                Constraints {
                    node_selector: list(MOST_VALUES - 4),
                    affinity: pod_terms(1),
                    tolerations: vec![Toleration::prefer_no_schedule()],
                    ..Constraints::default()
                },
                Some((Counted::Values, MOST_VALUES + 1)),
            ),
        ] {
            let found = constraints.check_size().err().map(|error| (error.what, error.count));
            assert_eq!(found, expected);
        }
    }
}
