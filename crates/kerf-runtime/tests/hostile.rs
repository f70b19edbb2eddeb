//! Names that anybody can give to objects end up in labels of metrics. A scraper reads them all the same.
//!
//! `PROPTEST_CASES` says how many cases are tried; 256 without it.

#[path = "../../kerf-cluster/tests/support/damage.rs"]
mod damage;

use kerf_runtime::Metrics;
use prometheus_client::metrics::{counter::Counter, family::Family};
use proptest::prelude::*;

use damage::{hostile_text, in_time};

/// The value of the only label of a line of the text format, taken back from its escapes; `None` if the line is none.
fn label(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pods_seen_total{pod=\"")?;
    let mut value = String::new();
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => break,
            '\\' => value.push(match letters.next()? {
                'n' => '\n',
                other @ ('\\' | '"') => other,
                _ => return None,
            }),
            '\n' => return None,
            other => value.push(other),
        }
    }
    (letters.as_str() == "} 1").then_some(value)
}

proptest! {
    #[test]
    fn labels_of_any_text_are_one_line_each(names in prop::collection::btree_set(hostile_text(), 0..6)) {
        let metrics = Metrics::default();
        let family = Family::<Vec<(String, String)>, Counter>::default();
        metrics.register(|registrar| registrar.register_with_labels("pods_seen", "Pods", &["pod"], family.clone()));
        for name in &names {
            family.get_or_create(&vec![("pod".to_owned(), name.clone())]).inc();
        }
        let text = in_time(|| metrics.text());
        let lines = text.split('\n').filter(|line| line.starts_with("pods_seen_total"));
        let found: Vec<_> = lines.map(|line| label(line).ok_or(line)).collect();
        let mut read: Vec<_> = found.into_iter().collect::<Result<_, _>>().expect("each line is a series");
        read.sort();
        prop_assert_eq!(read, names.into_iter().collect::<Vec<_>>());
    }
}
