//! A comparison as a page: tables and plots in one file that needs nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Display, Write},
};

use crate::{
    compare::Comparison,
    report::{Sample, Summary},
};

mod plot;

use plot::{Axes, Point, Series, lines, scatter};

/// Told apart by most eyes, on white and on black.
const COLOURS: [&str; 10] = [
    "#7f7f7f", "#d62728", "#1f77b4", "#2ca02c", "#e6862e", "#9467bd", "#17a2b8", "#d860b0",
    "#8c564b", "#a3a51f",
];

/// The page.
pub fn html(comparison: &Comparison) -> String {
    let mut page = String::new();
    let title = escaped(&comparison.scenario);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title} – kerf simulate</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n<p>{}</p>\n<p class=\"quiet\">{} of a simulated cluster, {}. \
         What is saved is measured against <code>when-empty</code>, which evicts nothing to save money.</p>\n",
        escaped(&comparison.description),
        comparison.shown_length(),
        comparison.shown_seeds()
    );
    table(&mut page, comparison);
    plots(&mut page, comparison);
    reasons(&mut page, comparison);
    page.push_str("</body>\n</html>\n");
    page
}

/// Tables and plots that do not fit are scrolled by themselves, so that the page never is.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1e21;--quiet:#62676e;--line:#dcdfe3;--paper:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e6e9;--quiet:#9aa0a8;--line:#33383f;--paper:#15171a}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:72rem;margin:2rem auto;\
padding:0 1rem}\
h1{font-size:1.6rem;margin:0 0 .5rem}h2{font-size:1.15rem;margin:2.2rem 0 .2rem}p{margin:.3rem 0;max-width:50rem}\
.quiet{color:var(--quiet)}.wide{overflow-x:auto}\
table{border-collapse:collapse;margin:1rem 0;font-size:.87rem;font-variant-numeric:tabular-nums}\
th,td{padding:.3rem .55rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
th{color:var(--quiet);font-weight:500;vertical-align:bottom}thead th{white-space:normal}\
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--paper)}\
td small{display:block;color:var(--quiet)}td.none{color:var(--line)}\
.key{display:inline-block;width:.75em;height:.75em;border-radius:2px;margin-right:.5em}\
thead th{min-width:3.4em}thead .key{display:block;margin:0 0 .25em auto}\
svg{display:block;width:100%;min-width:44rem;height:auto;font:13px system-ui,sans-serif}\
svg text{fill:var(--ink)}svg .tick{fill:var(--quiet)}.grid{stroke:var(--line);stroke-width:1}\
.lead{stroke:var(--quiet);stroke-width:.7;fill:none}.run{fill:none;stroke-width:1.8;stroke-linejoin:round}\
svg:has(.run:hover) .run{opacity:.2}svg .run:hover{opacity:1;stroke-width:3}\
@media print{body{max-width:none}}";

fn plots(page: &mut String, comparison: &Comparison) {
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
    for (heading, text, y, value) in [
        (
            "Evictions over time",
            "Pods that were evicted so far. Steep is churn.",
            "pods",
            (|sample| sample.evictions) as fn(&Sample) -> f64,
        ),
        ("Cost over time", "What the nodes cost at each moment.", "dollars per hour", |sample| {
            sample.price_per_hour
        }),
        ("Spent so far", "", "dollars", |sample| sample.cost),
        ("Nodes over time", "", "nodes", |sample| sample.nodes),
    ] {
        let plot = lines(&over_time(value), &Axes { x: "hours", y });
        figure(page, heading, text, &plot);
    }
    let points: Vec<_> = comparison.policies.iter().enumerate().map(point).collect();
    let plot = scatter(&points, &Axes { x: "pods evicted", y: "dollars saved" });
    figure(page, "Savings against evictions", "Up is cheaper, left is calmer.", &plot);
}

fn figure(page: &mut String, heading: &str, text: &str, plot: &str) {
    let _ = writeln!(page, "<h2>{heading}</h2>");
    if !text.is_empty() {
        let _ = writeln!(page, "<p class=\"quiet\">{text}</p>");
    }
    let _ = writeln!(page, "<div class=\"wide\">{plot}</div>");
}

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

fn named(index: usize, policy: &Summary) -> String {
    let (colour, name) = (colour(index), escaped(&policy.name));
    format!("<span class=\"key\" style=\"background:{colour}\"></span>{name}")
}

fn table(page: &mut String, comparison: &Comparison) {
    let header = [
        "policy",
        "cost, $",
        "saved, $",
        "saved per eviction, $",
        "pods evicted",
        "again within 1 h",
        "nodes launched",
        "nodes removed",
        "gone within 30 min",
        "consolidated within 10 min",
        "node-hours",
        "CPU requested",
        "hours pending",
    ];
    page.push_str("<div class=\"wide\"><table>\n<thead>");
    row(page, "th", &header);
    page.push_str("</thead>\n");
    for (index, policy) in comparison.policies.iter().enumerate() {
        let optional = |amount: Option<f64>, decimals: usize| {
            amount.map_or_else(|| "–".to_owned(), |amount| format!("{amount:.decimals$}"))
        };
        let (mut cost, mut evictions) =
            (format!("{:.2}", policy.cost), policy.evictions.to_string());
        if let Some(spread) = policy.spread {
            let ((least, most), (fewest, highest)) = (spread.cost, spread.evictions);
            let _ = write!(cost, "<small>{least:.2}–{most:.2}</small>");
            let _ = write!(evictions, "<small>{fewest}–{highest}</small>");
        }
        let mut cells = vec![
            named(index, policy),
            cost,
            optional(policy.savings, 2),
            optional(policy.savings_per_eviction, 4),
            evictions,
        ];
        cells.extend(policy.churn().map(|count| count.to_string()));
        cells.extend([
            format!("{:.1}", policy.node_hours),
            format!("{:.0}%", policy.cpu_fill * 100.0),
            format!("{:.1}", policy.pending_seconds / 3600.0),
        ]);
        row(page, "td", &cells);
    }
    page.push_str("</table></div>\n");
}

/// Reasons down, policies across: their names are shorter.
fn reasons(page: &mut String, comparison: &Comparison) {
    let policies = &comparison.policies;
    for (heading, of) in [
        (
            "Nodes removed, by reason",
            (|policy| &policy.removed) as fn(&Summary) -> &BTreeMap<String, u64>,
        ),
        ("Consolidations refused, by reason", |policy| &policy.blocked),
    ] {
        let reasons: BTreeSet<_> = policies.iter().flat_map(|policy| of(policy).keys()).collect();
        if reasons.is_empty() {
            continue;
        }
        let _ = write!(page, "<h2>{heading}</h2>\n<div class=\"wide\"><table>\n<thead>");
        let header = std::iter::once(String::new())
            .chain(policies.iter().enumerate().map(|(index, policy)| named(index, policy)));
        row(page, "th", &header.collect::<Vec<_>>());
        page.push_str("</thead>\n");
        for reason in reasons {
            let _ = write!(page, "<tr><td>{}</td>", escaped(reason));
            for policy in policies {
                let _ = match of(policy).get(reason) {
                    Some(count) if *count > 0 => write!(page, "<td>{count}</td>"),
                    _ => write!(page, "<td class=\"none\">0</td>"),
                };
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table></div>\n");
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
            nodes: 2.0,
            price_per_hour: 0.5,
            cost: 0.5,
            evictions: 3.0,
            pending: 0.0,
        };
        let summary = Summary { name: "a<b>".into(), evictions: 3, ..Summary::default() };
        let page = html(&Comparison {
            scenario: "<script>".into(),
            description: String::new(),
            hours: 1.0,
            seed: 1,
            seeds: 1,
            policies: vec![summary],
            samples: vec![vec![sample, Sample { hours: 2.0, ..sample }]],
        });
        assert!(page.contains("a&lt;b&gt;") && !page.contains("<script"), "{page}");
        assert!(!page.contains("http") && !page.contains("src="), "{page}");
        assert_eq!(page.matches("<svg").count(), 5);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
