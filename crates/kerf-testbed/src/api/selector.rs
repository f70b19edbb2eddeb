//! Label and field selectors, and the label selectors inside of objects.

use super::meta;
use serde_json::{Map, Value};
use thiserror::Error;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum SelectorError {
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    #[error("field label not supported: {0}")]
    UnknownField(String),
    #[error("invalid selector: '{0}'; can't understand '{1}'")]
    Field(String, String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// A label selector: all requirements hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    all: Vec<Requirement>,
    /// A selector that is absent from an object selects nothing, unlike an empty one.
    nothing: bool,
}

impl Labels {
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let all = split_terms(text).into_iter().map(parse_requirement).collect::<Result<_, _>>()?;
        Ok(Self { all, nothing: false })
    }

    /// From a `LabelSelector` object; null selects nothing, `{}` everything.
    pub(crate) fn from_object(selector: &Value) -> Self {
        if selector.is_null() {
            return Self { all: Vec::new(), nothing: true };
        }
        let mut all = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            all.push(Requirement { key: key.clone(), operator: Operator::In, values });
        }
        for term in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match meta::text(term, &["operator"]) {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                _ => Operator::DoesNotExist,
            };
            let values = term["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            all.push(Requirement { key: meta::text(term, &["key"]).to_owned(), operator, values });
        }
        Self { all, nothing: false }
    }

    pub(crate) fn is_everything(&self) -> bool {
        !self.nothing && self.all.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.matches_labels(meta::field(object, "labels").as_object())
    }

    pub(crate) fn matches_labels(&self, labels: Option<&Map<String, Value>>) -> bool {
        let get = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        !self.nothing && self.all.iter().all(|requirement| requirement.holds(get(&requirement.key)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|v| v == value);
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = self.values.first().and_then(|v| number(v));
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => value.and_then(number).zip(bound).is_some_and(|(v, b)| v > b),
            Operator::LessThan => value.and_then(number).zip(bound).is_some_and(|(v, b)| v < b),
        }
    }
}

/// Commas part terms, except between parentheses.
fn split_terms(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|term| !term.is_empty())
    .collect()
}

fn parse_requirement(term: &str) -> Result<Requirement, SelectorError> {
    let bad = || SelectorError::Requirement(format!("found '{term}'"));
    let one = |key: &str, operator, value: &str| Requirement {
        key: key.trim().to_owned(),
        operator,
        values: vec![value.trim().to_owned()],
    };
    let requirement = if let Some((key, value)) = term.split_once("!=") {
        one(key, Operator::NotIn, value)
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        one(key, Operator::In, value)
    } else if let Some((key, value)) = term.split_once('>') {
        one(key, Operator::GreaterThan, value)
    } else if let Some((key, value)) = term.split_once('<') {
        one(key, Operator::LessThan, value)
    } else if let Some((head, values)) = term.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(bad)?;
        let (key, operator) = match head.split_whitespace().collect::<Vec<_>>().as_slice() {
            [key, "in"] => (*key, Operator::In),
            [key, "notin"] => (*key, Operator::NotIn),
            _ => return Err(bad()),
        };
        let values = values.split(',').map(|v| v.trim().to_owned()).collect();
        Requirement { key: key.to_owned(), operator, values }
    } else if let Some(key) = term.strip_prefix('!') {
        Requirement {
            key: key.trim().to_owned(),
            operator: Operator::DoesNotExist,
            values: Vec::new(),
        }
    } else {
        Requirement { key: term.to_owned(), operator: Operator::Exists, values: Vec::new() }
    };
    let sound = !requirement.key.is_empty() && !requirement.key.contains(char::is_whitespace);
    if sound { Ok(requirement) } else { Err(bad()) }
}

/// A field selector: each named field equals, or does not equal, a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(Vec<String>, bool, String)>);

impl Fields {
    /// `supported` lists what the resource can be selected by besides its name and namespace.
    pub(crate) fn parse(text: &str, supported: &[String]) -> Result<Self, SelectorError> {
        let mut all = Vec::new();
        for term in text.split(',').filter(|term| !term.is_empty()) {
            let (key, equal, value) = if let Some((key, value)) = term.split_once("!=") {
                (key, false, value)
            } else if let Some((key, value)) =
                term.split_once("==").or_else(|| term.split_once('='))
            {
                (key, true, value)
            } else {
                return Err(SelectorError::Field(text.to_owned(), term.to_owned()));
            };
            if !matches!(key, "metadata.name" | "metadata.namespace")
                && !supported.iter().any(|s| s == key)
            {
                return Err(SelectorError::UnknownField(key.to_owned()));
            }
            all.push((key.split('.').map(str::to_owned).collect(), equal, value.to_owned()));
        }
        Ok(Self(all))
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, equal, value)| {
            let found = path.iter().fold(object, |v, key| v.get(key).unwrap_or(meta::NOTHING));
            let same = match found {
                Value::Null => matches!(value.as_str(), "" | "false"),
                Value::String(text) => text == value,
                other => &other.to_string() == value,
            };
            same == *equal
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_selectors_match() {
        let object =
            json!({ "metadata": { "labels": { "app": "web", "tier": "front", "n": "5" } } });
        for (selector, expect) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app=db", false),
            ("app!=db", true),
            ("missing!=x", true),
            ("app in (web, db)", true),
            ("app in (db),tier", false),
            ("app notin (db,cache)", true),
            ("missing notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!missing", true),
            ("n>4", true),
            ("n<5", false),
            ("app=", false),
        ] {
            assert_eq!(Labels::parse(selector).unwrap().matches(&object), expect, "{selector}");
        }
    }

    #[test]
    fn refuses_malformed_label_selectors() {
        for selector in ["a in", "a b", "=x", "a in (b"] {
            assert!(Labels::parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn an_absent_selector_selects_nothing_an_empty_one_everything() {
        let object = json!({ "metadata": { "labels": { "app": "web" } } });
        assert!(!Labels::from_object(&Value::Null).matches(&object));
        assert!(Labels::from_object(&json!({})).matches(&object));
        let expressions = json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["db"] }] });
        assert!(Labels::from_object(&expressions).matches(&object));
    }

    #[test]
    fn field_selectors_match() {
        let object = json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "n1" } });
        let supported = ["spec.nodeName".to_owned(), "spec.unschedulable".to_owned()];
        for (selector, expect) in [
            ("metadata.name=a", true),
            ("metadata.name!=a", false),
            ("spec.nodeName=n1,metadata.name=a", true),
            ("spec.nodeName=", false),
            ("spec.unschedulable=false", true),
        ] {
            assert_eq!(
                Fields::parse(selector, &supported).unwrap().matches(&object),
                expect,
                "{selector}"
            );
        }
        let unknown = Fields::parse("spec.image=a", &supported).unwrap_err();
        assert_eq!(unknown, SelectorError::UnknownField("spec.image".into()));
    }
}
