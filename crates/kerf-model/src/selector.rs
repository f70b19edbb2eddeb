//! Label selectors of pods and namespaces.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::labels::Labels;

/// Which labels are selected.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Selector {
    /// What a missing or unreadable selector selects.
    Nothing,
    /// What meets every one of these; an empty set selects everything.
    All(BTreeSet<LabelTest>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LabelTest {
    In(String, BTreeSet<String>),
    /// Also met by a missing label.
    NotIn(String, BTreeSet<String>),
    Exists(String),
    DoesNotExist(String),
}

impl Selector {
    pub fn everything() -> Self {
        Self::All(BTreeSet::new())
    }

    pub fn from_labels(labels: &Labels) -> Self {
        Self::All(labels.iter().map(|(key, value)| LabelTest::equals(key, value)).collect())
    }

    /// An unreadable selector selects nothing, as in the Kubernetes scheduler.
    pub fn from_api(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else { return Self::Nothing };
        let labels = selector.match_labels.iter().flatten();
        let mut tests: BTreeSet<_> =
            labels.map(|(key, value)| LabelTest::equals(key, value)).collect();
        for expression in selector.match_expressions.iter().flatten() {
            let key = expression.key.clone();
            let values: BTreeSet<_> = expression.values.iter().flatten().cloned().collect();
            tests.insert(match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => LabelTest::In(key, values),
                ("NotIn", false) => LabelTest::NotIn(key, values),
                ("Exists", true) => LabelTest::Exists(key),
                ("DoesNotExist", true) => LabelTest::DoesNotExist(key),
                _ => return Self::Nothing,
            });
        }
        Self::All(tests)
    }

    /// Selects only what the other selects too.
    pub fn and(self, other: impl IntoIterator<Item = LabelTest>) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::All(mut tests) => {
                tests.extend(other);
                Self::All(tests)
            }
        }
    }

    /// How many keys and values it names.
    pub fn size(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::All(tests) => tests.iter().map(LabelTest::size).sum(),
        }
    }

    pub fn selects(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(tests) => tests.iter().all(|test| test.is_met_by(labels)),
        }
    }
}

impl LabelTest {
    pub fn equals(key: &str, value: &str) -> Self {
        Self::In(key.to_owned(), [value.to_owned()].into())
    }

    fn size(&self) -> usize {
        match self {
            Self::In(_, values) | Self::NotIn(_, values) => 1 + values.len(),
            Self::Exists(_) | Self::DoesNotExist(_) => 1,
        }
    }

    fn is_met_by(&self, labels: &Labels) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::labels_of as labels;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    fn selector(equal: &str, expressions: &[(&str, &str, &[&str])]) -> Selector {
        Selector::from_api(Some(&LabelSelector {
            match_labels: Some(labels(equal)),
            match_expressions: Some(
                expressions
                    .iter()
                    .map(|(key, operator, values)| LabelSelectorRequirement {
                        key: (*key).to_owned(),
                        operator: (*operator).to_owned(),
                        values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
                    })
                    .collect(),
            ),
        }))
    }

    #[test]
    fn selects_by_labels_and_expressions() {
        for (selector, selected, others) in [
            (selector("", &[]), vec!["", "a=1"], vec![]),
            (selector("a=1", &[]), vec!["a=1", "a=1,b=2"], vec!["", "a=2"]),
            (selector("", &[("a", "In", &["1", "2"])]), vec!["a=1", "a=2"], vec!["", "a=3"]),
            (selector("", &[("a", "NotIn", &["1"])]), vec!["", "a=2"], vec!["a=1"]),
            (selector("", &[("a", "Exists", &[])]), vec!["a="], vec![""]),
            (selector("", &[("a", "DoesNotExist", &[])]), vec!["", "b=1"], vec!["a=1"]),
            (selector("a=1", &[("b", "Exists", &[])]), vec!["a=1,b=2"], vec!["a=1", "b=2"]),
            (selector("", &[("a", "In", &[])]), vec![], vec!["", "a=1"]),
            (selector("", &[("a", "Near", &["1"])]), vec![], vec!["", "a=1"]),
            (Selector::from_api(None), vec![], vec!["", "a=1"]),
        ] {
            for text in selected {
                assert!(selector.selects(&labels(text)), "{selector:?} selects {text:?}");
            }
            for text in others {
                assert!(!selector.selects(&labels(text)), "{selector:?} does not select {text:?}");
            }
        }
    }

    #[test]
    fn the_way_a_selector_is_written_does_not_matter() {
        assert_eq!(selector("a=1", &[]), selector("", &[("a", "In", &["1"])]));
        let twice = selector("", &[("a", "In", &["1"]), ("a", "In", &["1"])]);
        assert_eq!(selector("a=1", &[]), twice);
    }
}
