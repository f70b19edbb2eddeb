//! The table: what was compared, and where the sides differ.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::diff::{Difference, diff};
use crate::differences::Differences;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    rows: Vec<Row>,
    /// Paths of differences that are listed and did not occur.
    not_seen: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    case: String,
    what: &'static str,
    /// How many single values were compared.
    values: usize,
    differences: Vec<Found>,
}

#[derive(Debug, Serialize)]
struct Found {
    #[serde(flatten)]
    difference: Difference,
    /// Why that is so, if it is listed.
    because: Option<String>,
}

/// What is compared of a case: a name, and where it is in the observation.
const WHAT: [(&str, &str); 6] = [
    ("class", "/class"),
    ("instance profile", "/profile"),
    ("claims", "/claims"),
    ("fleet", "/fleets"),
    ("launch templates", "/templates"),
    ("user data", "/userData"),
];

impl Report {
    pub(crate) fn new(
        upstream: &BTreeMap<String, Value>,
        kerf: &BTreeMap<String, Value>,
        listed: &Differences,
        complete: bool,
    ) -> Self {
        let mut rows = Vec::new();
        let mut seen = vec![false; listed.0.len()];
        for (case, of_upstream) in upstream {
            let of_kerf = kerf.get(case).cloned().unwrap_or_default();
            let (of_upstream, of_kerf) = (split(of_upstream.clone()), split(of_kerf));
            for (what, pointer) in WHAT {
                let of = |side: &Value| side.pointer(pointer).cloned().unwrap_or_default();
                let (differences, values) = diff(&pointer[1..], &of(&of_upstream), &of(&of_kerf));
                let found = |difference: Difference| {
                    let at = listed.find(case, &difference);
                    if let Some(at) = at {
                        seen[at] = true;
                    }
                    let because = at.map(|at| listed.0[at].because.clone());
                    Found { difference, because }
                };
                let differences = differences.into_iter().map(found).collect();
                rows.push(Row { case: case.clone(), what, values, differences });
            }
        }
        let unseen = listed.0.iter().zip(seen).filter(|(_, seen)| complete && !seen);
        Self { rows, not_seen: unseen.map(|(listed, _)| listed.path.clone()).collect() }
    }

    /// Differences that are not listed, and listed ones that did not occur.
    pub(crate) fn failures(&self) -> usize {
        let all = self.rows.iter().flat_map(|row| &row.differences);
        all.filter(|found| found.because.is_none()).count() + self.not_seen.len()
    }
}

/// Templates and user data stand apart from the fleets that name them.
fn split(mut seen: Value) -> Value {
    let mut apart = BTreeMap::from([("templates", Vec::new()), ("userData", Vec::new())]);
    for fleet in seen["fleets"].as_array_mut().into_iter().flatten() {
        let (mut of_templates, mut of_user_data) = (Value::default(), Value::default());
        for (name, template) in fleet["templates"].as_object_mut().into_iter().flatten() {
            of_user_data[name] = template["userData"].take();
            of_templates[name]["data"] = template["data"].take();
            of_templates[name]["tags"] = template["tags"].take();
        }
        apart.entry("templates").or_default().push(of_templates);
        apart.entry("userData").or_default().push(of_user_data);
    }
    for (key, value) in apart {
        seen[key] = Value::Array(value);
    }
    seen
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.case.len()).max().unwrap_or_default();
        writeln!(f, "{:width$}  {:16}  {:>6}  VERDICT", "CASE", "WHAT", "VALUES")?;
        for Row { case, what, values, differences } in &self.rows {
            let verdict = match differences.len() {
                0 => "equal".to_owned(),
                count => format!("differs in {count}"),
            };
            writeln!(f, "{case:width$}  {what:16}  {values:>6}  {verdict}")?;
            for Found { difference: Difference { path, upstream, kerf }, because } in differences {
                let because = because.as_deref().unwrap_or("NOT LISTED");
                let (upstream, kerf) = shown(upstream.as_ref(), kerf.as_ref());
                writeln!(f, "    {path}: upstream {upstream}, kerf {kerf}: {because}")?;
            }
        }
        let compared: usize = self.rows.iter().map(|row| row.values).sum();
        let differ: usize = self.rows.iter().map(|row| row.differences.len()).sum();
        writeln!(f, "{compared} values compared, {differ} differ")?;
        for path in &self.not_seen {
            writeln!(f, "listed, and did not occur: {path}")?;
        }
        Ok(())
    }
}

/// Both values, from a little before the place where they begin to differ.
fn shown(upstream: Option<&Value>, kerf: Option<&Value>) -> (String, String) {
    const BEFORE: usize = 20;
    const MOST: usize = 100;
    let text = |value: Option<&Value>| value.map_or("-".to_owned(), Value::to_string);
    let (upstream, kerf) = (text(upstream), text(kerf));
    let same = upstream.chars().zip(kerf.chars()).take_while(|(one, other)| one == other).count();
    let from = same.saturating_sub(BEFORE);
    let cut = |text: &str| {
        let before = if from > 0 { "…" } else { "" };
        let after = if text.chars().count() > from + MOST { "…" } else { "" };
        let part: String = text.chars().skip(from).take(MOST).collect();
        format!("{before}{part}{after}")
    };
    (cut(&upstream), cut(&kerf))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_values_are_shown_where_they_differ() {
        let text = |end: &str| json!(format!("{}{end}", "x".repeat(300)));
        let (upstream, kerf) = shown(Some(&text("a")), Some(&text("b")));
        assert_eq!(upstream, format!("…{}a\"", "x".repeat(20)));
        assert_eq!(kerf, format!("…{}b\"", "x".repeat(20)));
        assert_eq!(shown(Some(&json!("a")), None), ("\"a\"".to_owned(), "-".to_owned()));
    }

    #[test]
    fn what_is_not_listed_fails_and_what_is_listed_has_to_occur() {
        let side = |context: &str, user_data: &str| {
            let template = json!({"data": {"ImageId": "ami-1"}, "userData": [user_data]});
            let fleet = json!({"Context": context, "templates": {"m5.large": template}});
            BTreeMap::from([("case".to_owned(), json!({"class": {}, "fleets": [fleet]}))])
        };
        let listed = |paths: &[&str]| {
            let entry = |path: &&str| json!({"path": path, "because": "It is so."}).to_string();
            let text = format!("[{}]", paths.iter().map(entry).collect::<Vec<_>>().join(","));
            Differences(serde_json::from_str(&text).unwrap())
        };
        let cases: [(&str, &str, &[&str], usize); 5] = [
            ("a", "x", &[], 0),
            ("b", "x", &[], 1),
            ("b", "x", &["fleets 0 Context"], 0),
            ("a", "x", &["fleets 0 Context"], 1),
            ("b", "y", &["*Context", "userData 0 m5.large*"], 0),
        ];
        for (context, user_data, paths, expect) in cases {
            let (upstream, kerf) = (side("a", "x"), side(context, user_data));
            let report = Report::new(&upstream, &kerf, &listed(paths), true);
            assert_eq!(report.failures(), expect, "{context} {user_data} {paths:?}\n{report}");
        }
    }
}
