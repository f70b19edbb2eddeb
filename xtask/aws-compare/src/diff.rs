//! Where two values differ.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

/// A place where the sides do not agree. What a side does not have is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Difference {
    /// Keys and positions from the top, with a space between: labels have dots and slashes in them.
    pub(crate) path: String,
    pub(crate) upstream: Option<Value>,
    pub(crate) kerf: Option<Value>,
}

/// All differences, and how many single values were compared.
pub(crate) fn diff(path: &str, upstream: &Value, kerf: &Value) -> (Vec<Difference>, usize) {
    let mut found = Comparison::default();
    found.compare(path.to_owned(), Some(upstream), Some(kerf));
    (found.differences, found.values)
}

#[derive(Default)]
struct Comparison {
    differences: Vec<Difference>,
    values: usize,
}

impl Comparison {
    fn compare(&mut self, path: String, upstream: Option<&Value>, kerf: Option<&Value>) {
        let (is_there, other) = (upstream.or(kerf), kerf.or(upstream));
        match (is_there, other) {
            (Some(Value::Object(one)), Some(Value::Object(two)))
                if !one.is_empty() || !two.is_empty() =>
            {
                let keys: BTreeSet<_> = one.keys().chain(two.keys()).collect();
                for key in keys {
                    let of = |side: Option<&'_ Value>| side.and_then(|side| side.get(key)).cloned();
                    self.compare(
                        format!("{path} {key}").trim().to_owned(),
                        of(upstream).as_ref(),
                        of(kerf).as_ref(),
                    );
                }
            }
            (Some(Value::Array(one)), Some(Value::Array(two)))
                if !one.is_empty() || !two.is_empty() =>
            {
                for index in 0..one.len().max(two.len()) {
                    let of =
                        |side: Option<&'_ Value>| side.and_then(|side| side.get(index)).cloned();
                    self.compare(
                        format!("{path} {index}").trim().to_owned(),
                        of(upstream).as_ref(),
                        of(kerf).as_ref(),
                    );
                }
            }
            _ => {
                self.values += 1;
                if upstream != kerf {
                    let difference =
                        Difference { path, upstream: upstream.cloned(), kerf: kerf.cloned() };
                    self.differences.push(difference);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_each_single_value_that_differs() {
        let upstream =
            json!({"a": {"b": 1, "c": [1, 2]}, "d": "x", "gone": {"e": 1, "f": 2}, "empty": {}});
        let kerf = json!({"a": {"b": 1, "c": [1, 3, 4]}, "d": {"x": 1}, "empty": {}});
        let (differences, values) = diff("top", &upstream, &kerf);
        let found: Vec<_> = differences
            .iter()
            .map(|one| (one.path.as_str(), one.upstream.clone(), one.kerf.clone()))
            .collect();
        assert_eq!(
            found,
            [
                ("top a c 1", Some(json!(2)), Some(json!(3))),
                ("top a c 2", None, Some(json!(4))),
                ("top d", Some(json!("x")), Some(json!({"x": 1}))),
                ("top gone e", Some(json!(1)), None),
                ("top gone f", Some(json!(2)), None),
            ]
        );
        assert_eq!(values, 8);
    }
}
