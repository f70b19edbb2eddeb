//! Where the fields of a file stand.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

/// A document of a YAML or JSON text, with nothing of it but the lines on which its fields stand.
#[derive(Debug)]
pub struct Lines {
    line: u64,
    below: Below,
}

#[derive(Debug)]
enum Below {
    /// By name, with the line of the name.
    Fields(Vec<(String, u64, Lines)>),
    Items(Vec<Lines>),
    Nothing,
}

impl Lines {
    /// The line on which the document begins.
    pub fn first(&self) -> u64 {
        self.line
    }

    /// The line of a field such as `spec.disruption.budgets[0].nodes`, or of what would hold it where it is missing.
    /// Nothing where not even the first step is there.
    pub fn of(&self, field: &str) -> Option<u64> {
        let (rest, line, below) = self.step(field)?;
        Some(below.of(rest).unwrap_or(line))
    }

    fn step<'f>(&self, field: &'f str) -> Option<(&'f str, u64, &Self)> {
        match &self.below {
            Below::Fields(fields) => {
                // Names may have dots in them, as those of labels do: the longest that fits is meant.
                let fits = fields.iter().filter_map(|(name, line, below)| {
                    let rest = field.strip_prefix(name.as_str())?;
                    let ends = rest.is_empty() || rest.starts_with(['.', '[']);
                    ends.then_some((name.len(), (rest.trim_start_matches('.'), *line, below)))
                });
                fits.max_by_key(|(length, _)| *length).map(|(_, found)| found)
            }
            Below::Items(items) => {
                let (index, rest) = field.strip_prefix('[')?.split_once(']')?;
                let item = items.get(index.parse::<usize>().ok()?)?;
                Some((rest.trim_start_matches('.'), item.line, item))
            }
            Below::Nothing => None,
        }
    }
}

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = Spanned::<Below>::deserialize(deserializer)?;
        Ok(Self { line: found.referenced.line(), below: found.value })
    }
}

impl<'de> Deserialize<'de> for Below {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Shape)
    }
}

struct Shape;

impl<'de> Visitor<'de> for Shape {
    type Value = Below;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Below, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            fields.push((name.value, name.referenced.line(), map.next_value()?));
        }
        Ok(Below::Fields(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Below, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Below::Items(items))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Below, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Below::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Below, E> {
        Ok(Below::Nothing)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Below, E> {
        Ok(Below::Nothing)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Below, E> {
        Ok(Below::Nothing)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Below, E> {
        Ok(Below::Nothing)
    }

    fn visit_str<E>(self, _: &str) -> Result<Below, E> {
        Ok(Below::Nothing)
    }

    fn visit_unit<E>(self) -> Result<Below, E> {
        Ok(Below::Nothing)
    }

    fn visit_none<E>(self) -> Result<Below, E> {
        Ok(Below::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_line() {
        let yaml = "# a pool\nspec:\n  weight: 1\n  budgets:\n    - nodes: \"1\"\n    - {nodes: 2,\n       reasons: [a]}\n  labels:\n    a.b/c: x\n    a: y\n";
        let json = "\n{\"spec\": {\n\"weight\": 1,\n\"budgets\": [{\n\"nodes\": 1}, {\"nodes\":\n2,\n\"reasons\": [null]}],\n\"labels\":\n{\"a.b/c\": \"x\",\n\"a\": true}}}";
        let documents = |text: &str| -> Vec<Lines> { serde_saphyr::from_multiple(text).unwrap() };
        for (text, field, expected) in [
            (yaml, "spec", Some(2)),
            (yaml, "spec.weight", Some(3)),
            (yaml, "spec.budgets[0].nodes", Some(5)),
            (yaml, "spec.budgets[1].reasons[0]", Some(7)),
            (yaml, "spec.labels.a.b/c", Some(9)),
            (yaml, "spec.labels.a", Some(10)),
            // What is missing is missing in what would hold it.
            (yaml, "spec.budgets[1].schedule", Some(6)),
            (yaml, "spec.template.spec", Some(2)),
            (yaml, "status", None),
            (json, "spec.weight", Some(3)),
            (json, "spec.budgets[0].nodes", Some(5)),
            (json, "spec.labels.a", Some(10)),
        ] {
            let [lines] = &documents(text)[..] else { panic!("one document") };
            assert_eq!(lines.of(field), expected, "{field}");
        }
        // Lines count from the start of the file, not of the document.
        let two = documents(&format!("a: 1\n---\n{yaml}"));
        assert_eq!(two[1].of("spec.weight"), Some(5));
    }
}
