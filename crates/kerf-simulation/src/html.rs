//! A comparison as a page: tables and plots in one file that needs nothing else.

use std::fmt::{Display, Write};

use crate::{
    compare::Comparison,
    report::{Sample, Summary},
};

mod plot;

use plot::{Point, Series, lines, scatter};

/// Told apart by most eyes, on white and on black.
const COLOURS: [&str; 10] = [
    "#7f7f7f", "#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#17becf", "#e377c2",
    "#8c564b", "#bcbd22",
];

/// The page.
pub fn html(comparison: &Comparison) -> String {
    let mut page = String::new();
    let title = escaped(&comparison.scenario);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} – kerf simulate</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{}</p>\n\
         <p>{} hours, seed {}. What is saved is measured against <code>when-empty</code>, which evicts nothing to save \
         money.</p>\n",
        escaped(&comparison.description),
        comparison.hours,
        comparison.seed
    );
    table(&mut page, comparison);
    let over_time = |value: fn(&Sample) -> f64| -> Vec<Series> {
        let named = comparison.policies.iter().zip(&comparison.samples).enumerate();
        named
            .map(|(index, (policy, samples))| Series {
                name: policy.name.clone(),
                colour: colour(index),
                points: samples.iter().map(|sample| (sample.hours, value(sample))).collect(),
            })
            .collect()
    };
    legend(&mut page, comparison);
    page.push_str("<h2>Price per hour</h2>\n");
    page.push_str(&lines(&over_time(|sample| sample.price_per_hour), "hours", "dollars per hour"));
    page.push_str("<h2>Spent so far</h2>\n");
    page.push_str(&lines(&over_time(|sample| sample.cost), "hours", "dollars"));
    page.push_str("<h2>Pods evicted so far</h2>\n");
    page.push_str(&lines(&over_time(|sample| sample.evictions as f64), "hours", "pods"));
    page.push_str("<h2>Savings against evictions</h2>\n<p>Up is cheaper, left is calmer.</p>\n");
    let points: Vec<_> = comparison.policies.iter().enumerate().map(point).collect();
    page.push_str(&scatter(&points, "pods evicted", "dollars saved"));
    reasons(&mut page, comparison);
    page.push_str("</body>\n</html>\n");
    page
}

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #8884}\
th:first-child,td:first-child{text-align:left}\
svg{width:100%;height:auto;font:12px system-ui,sans-serif}\
svg text{fill:currentColor}\
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .35em 0 1em}\
.grid{stroke:#8884;stroke-width:1}";

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

fn point((index, policy): (usize, &Summary)) -> Point {
    Point {
        name: policy.name.clone(),
        colour: colour(index),
        x: policy.evictions as f64,
        y: policy.savings.unwrap_or_default(),
    }
}

fn legend(page: &mut String, comparison: &Comparison) {
    page.push_str("<p>");
    for (index, policy) in comparison.policies.iter().enumerate() {
        let (colour, name) = (colour(index), escaped(&policy.name));
        let _ = write!(page, "<span class=\"key\" style=\"background:{colour}\"></span>{name}");
    }
    page.push_str("</p>\n");
}

fn table(page: &mut String, comparison: &Comparison) {
    let header = [
        "policy",
        "cost",
        "saved",
        "saved per eviction",
        "pods evicted",
        "again within 1 h",
        "nodes launched",
        "nodes removed",
        "gone within 30 m",
        "node-hours",
        "CPU requested",
        "pod-hours pending",
    ];
    page.push_str("<table>\n");
    row(page, "th", &header);
    for policy in &comparison.policies {
        let optional = |amount: Option<f64>, decimals: usize| {
            amount.map_or_else(|| "–".to_owned(), |amount| format!("{amount:.decimals$}"))
        };
        let cells = [
            escaped(&policy.name),
            format!("{:.2}", policy.cost),
            optional(policy.savings, 2),
            optional(policy.savings_per_eviction, 4),
            policy.evictions.to_string(),
            policy.restarted_often.to_string(),
            policy.launched.to_string(),
            policy.terminated.to_string(),
            policy.short_lived.to_string(),
            format!("{:.1}", policy.node_hours),
            format!("{:.0}%", policy.cpu_fill * 100.0),
            format!("{:.1}", policy.pending_seconds / 3600.0),
        ];
        row(page, "td", &cells);
    }
    page.push_str("</table>\n");
}

fn reasons(page: &mut String, comparison: &Comparison) {
    for (heading, of) in [
        ("Nodes removed, by reason", (|policy| &policy.removed) as fn(&Summary) -> &_),
        ("Consolidations refused, by reason", |policy| &policy.blocked),
    ] {
        let mut names: Vec<_> = comparison.policies.iter().flat_map(|one| of(one).keys()).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            continue;
        }
        let _ = write!(page, "<h2>{heading}</h2>\n<table>\n");
        let header = std::iter::once("policy".to_owned());
        row(page, "th", &header.chain(names.iter().map(|name| escaped(name))).collect::<Vec<_>>());
        for policy in &comparison.policies {
            let count = |name: &&String| of(policy).get(*name).unwrap_or(&0).to_string();
            let cells = std::iter::once(escaped(&policy.name)).chain(names.iter().map(count));
            row(page, "td", &cells.collect::<Vec<_>>());
        }
        page.push_str("</table>\n");
    }
}

/// `cells` are HTML already.
fn row(page: &mut String, tag: &str, cells: &[impl Display]) {
    page.push_str("<tr>");
    for cell in cells {
        let _ = write!(page, "<{tag}>{cell}</{tag}>");
    }
    page.push_str("</tr>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_nothing_from_elsewhere_and_trusts_no_name() {
        let sample = Sample {
            hours: 1.0,
            nodes: 2,
            price_per_hour: 0.5,
            cost: 0.5,
            evictions: 3,
            pending: 0,
        };
        let summary = Summary { name: "a<b>".into(), evictions: 3, ..Summary::default() };
        let page = html(&Comparison {
            scenario: "<script>".into(),
            description: String::new(),
            hours: 1.0,
            seed: 1,
            policies: vec![summary],
            samples: vec![vec![sample, Sample { hours: 2.0, ..sample }]],
        });
        assert!(page.contains("a&lt;b&gt;") && !page.contains("<script"), "{page}");
        assert!(!page.contains("http") && !page.contains("src="), "{page}");
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
