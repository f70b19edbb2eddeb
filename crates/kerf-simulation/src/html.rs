//! A comparison as a page: a verdict, tables and plots in one file that needs nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Display, Write},
};

use crate::{
    compare::Comparison,
    report::{Sample, Summary},
};

mod colour;
mod plot;

use colour::Colours;
use plot::{Axes, Point, Series, multiples, scatter};

/// What a page begins with.
#[derive(Clone, Copy, Debug)]
pub struct Heading<'a> {
    /// The command that made it.
    pub command: &'a str,
    pub verdict: &'a str,
    /// What the figures are of.
    pub subject: &'a str,
}

/// The page of a simulation.
pub fn html(comparison: &Comparison) -> String {
    let verdict = comparison.verdict();
    let subject = "a simulated cluster";
    html_under(Heading { command: "kerf simulate", verdict: &verdict, subject }, comparison)
}

/// The page, with a heading of its own.
pub fn html_under(heading: Heading<'_>, comparison: &Comparison) -> String {
    let Heading { command, verdict, subject } = heading;
    let mut page = String::new();
    let title = escaped(&comparison.scenario);
    let description = match &*comparison.description {
        "" => String::new(),
        text => format!("<p>{}</p>\n", escaped(text)),
    };
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title} – {command}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <p class=\"quiet\">{title}</p>\n<h1>{}</h1>\n{description}<p class=\"quiet\">{} of {subject}, {}. \
         What is saved is measured against <code>when-empty</code>, which evicts nothing to save money.</p>\n",
        escaped(verdict),
        comparison.shown_length(),
        comparison.shown_seeds()
    );
    let colours = Colours::of(comparison.policies.iter().map(|policy| policy.name.as_str()));
    page.push_str("<div class=\"top\">\n");
    outline(&mut page, comparison, &colours);
    if comparison.policies.len() > 1 {
        weighed(&mut page, comparison, &colours);
    }
    page.push_str("</div>\n");
    over_time(&mut page, comparison, &colours);
    details(&mut page, comparison, &colours);
    reasons(&mut page, comparison, &colours);
    page.push_str("</body>\n</html>\n");
    page
}

/// Tables that do not fit are scrolled by themselves, so that the page never is. Of the plots over time one quantity is shown at a
/// time: radio buttons choose it, which needs no script and works with the keyboard. On paper all are shown.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1e21;--quiet:#5f646b;--line:#dcdfe3;--faint:#c9cdd2;--paper:#fff;--lift:#f4f5f7}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e6e9;--quiet:#9aa0a8;--line:#33383f;--faint:#454b53;--paper:#15171a;--lift:#1e2125}}\
*{box-sizing:border-box}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:76rem;margin:1.5rem auto 4rem;\
padding:0 1rem}\
h1{font-size:clamp(1.25rem,1rem + 1.6vw,1.8rem);line-height:1.3;margin:.1rem 0 .7rem;max-width:46rem;text-wrap:balance}\
h2{font-size:1.15rem;margin:2.2rem 0 .2rem}h3{font-size:.87rem;margin:0;font-weight:600}\
p{margin:.3rem 0;max-width:46rem}\
.quiet{color:var(--quiet)}.wide{overflow-x:auto}\
table{border-collapse:collapse;margin:.8rem 0;font-size:.87rem;font-variant-numeric:tabular-nums}\
th,td{padding:.32rem .5rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
th{color:var(--quiet);font-weight:500;vertical-align:bottom}thead th{white-space:normal}\
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--paper);padding-left:0}\
td small{display:block;color:var(--quiet)}td.none{color:var(--faint)}\
.key{display:inline-block;flex:none;width:.75em;height:.75em;border-radius:2px;margin-right:.45em;background:var(--of)}\
.reasons thead th{min-width:4.2em}.reasons thead .key{display:block;margin:0 0 .25em auto}\
summary{cursor:pointer;margin-top:1.6rem;font-size:1.15rem;font-weight:600}\
svg{display:block;width:100%;height:auto;font:11px system-ui,sans-serif}\
svg text{fill:var(--ink)}svg .tick{fill:var(--quiet)}.grid{stroke:var(--line);stroke-width:1}\
.other{fill:none;stroke:var(--faint);stroke-width:1}.run{fill:none;stroke:var(--of);stroke-width:2.2;stroke-linejoin:round}\
.dot{fill:var(--of);stroke:var(--paper);stroke-width:1.5}.lead{stroke:var(--quiet);stroke-width:.7;fill:none}\
.top{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,25rem),1fr));gap:0 3rem;align-items:start}\
.cloud{max-width:32rem}\
.choice{border:0;padding:0;margin:.6rem 0}.choice legend{padding:0;color:var(--quiet);margin-bottom:.3rem}\
.choice>label{display:inline-block;padding:.25rem .7rem;margin:0 .3rem .4rem 0;border:1px solid var(--line);border-radius:1rem;cursor:pointer}\
.choice>input{position:absolute;opacity:0}.choice>input:checked+label{background:var(--lift);border-color:var(--quiet);font-weight:600}\
.choice>input:focus-visible+label{outline:2px solid var(--quiet);outline-offset:2px}\
.panel{display:none}\
#q0:checked~#p0,#q1:checked~#p1,#q2:checked~#p2,#q3:checked~#p3{display:block}\
.all{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));gap:1.1rem 1.4rem;margin-top:.5rem}\
.one h3{display:flex;align-items:baseline}.one h3 span:last-child{margin-left:auto;font-weight:400;color:var(--quiet)}\
@media(max-width:30rem){table{font-size:.8rem}th,td{padding:.3rem .28rem}td:first-child{white-space:normal}}\
@media print{body{max-width:none}.panel{display:block}.choice>label{display:none}}";

/// The figures that decide, in a table that fits a telephone.
fn outline(page: &mut String, comparison: &Comparison, colours: &Colours) {
    let header = ["policy", "cost, $", "saved, $", "pods evicted", "hours pending"];
    page.push_str("<div class=\"wide\"><table>\n<thead>");
    row(page, "th", &header);
    page.push_str("</thead>\n");
    for policy in &comparison.policies {
        let (cost, evictions) = with_spread(policy);
        let cells = [
            named(colours, policy),
            cost,
            optional(policy.savings, 2),
            evictions,
            format!("{:.1}", policy.pending_seconds / 3600.0),
        ];
        row(page, "td", &cells);
    }
    page.push_str("</table></div>\n");
}

fn weighed(page: &mut String, comparison: &Comparison, colours: &Colours) {
    let points: Vec<_> = comparison
        .policies
        .iter()
        .map(|policy| Point {
            name: policy.name.clone(),
            colour: colours.colour(&policy.name),
            x: policy.evictions as f64,
            y: policy.savings.unwrap_or_default(),
        })
        .collect();
    let plot = scatter(&points, &Axes { x: "pods evicted", y: "dollars saved" });
    let _ = writeln!(
        page,
        "<div class=\"cloud\"><h2>Savings against evictions</h2>\n\
         <p class=\"quiet\">Up is cheaper, left is calmer.</p>\n{plot}</div>"
    );
}

/// A quantity over time: its name, what one of it is called, how the last value is written, and its value.
type Quantity = (&'static str, &'static str, fn(f64) -> String, fn(&Sample) -> f64);

const QUANTITIES: [Quantity; 4] = [
    ("Pods evicted so far", "pods", |value| format!("{value:.0}"), |sample| sample.evictions),
    ("Dollars per hour", "$/h", |value| format!("${value:.2}"), |sample| sample.price_per_hour),
    ("Dollars spent so far", "$", |value| format!("${value:.2}"), |sample| sample.cost),
    ("Nodes", "nodes", |value| format!("{value:.0}"), |sample| sample.nodes),
];

/// A plot for each policy, with the others behind it in grey.
fn over_time(page: &mut String, comparison: &Comparison, colours: &Colours) {
    page.push_str(
        "<h2>Over time</h2>\n<p class=\"quiet\">One plot for each policy, on the same axes; the others are grey.</p>\n\
         <fieldset class=\"choice\"><legend>Show</legend>\n",
    );
    for (index, (name, ..)) in QUANTITIES.iter().enumerate() {
        let checked = if index == 0 { " checked" } else { "" };
        let _ = writeln!(
            page,
            "<input type=\"radio\" name=\"quantity\" id=\"q{index}\"{checked}><label for=\"q{index}\">{name}</label>"
        );
    }
    for (index, (name, unit, shown, value)) in QUANTITIES.iter().enumerate() {
        let runs = comparison.policies.iter().zip(&comparison.samples);
        let series: Vec<_> = runs
            .map(|(policy, samples)| Series {
                name: policy.name.clone(),
                colour: colours.colour(&policy.name),
                points: samples.iter().map(|sample| (sample.hours, value(sample))).collect(),
            })
            .collect();
        let _ = writeln!(page, "<div class=\"panel\" id=\"p{index}\"><div class=\"all\">");
        for (one, plot) in series.iter().zip(multiples(
            &format!("q{index}"),
            &series,
            &Axes { x: "hours", y: unit },
        )) {
            let last = one.points.last().map(|(_, y)| shown(*y)).unwrap_or_default();
            let _ = writeln!(
                page,
                "<div class=\"one\"><h3 style=\"--of:{}\"><span class=\"key\"></span><span>{}</span>\
                 <span title=\"{name} at the end\">{last}</span></h3>{plot}</div>",
                one.colour,
                escaped(&one.name)
            );
        }
        page.push_str("</div></div>\n");
    }
    page.push_str("</fieldset>\n");
}

fn named(colours: &Colours, policy: &Summary) -> String {
    let (colour, name) = (colours.colour(&policy.name), escaped(&policy.name));
    format!("<span class=\"key\" style=\"--of:{colour}\"></span>{name}")
}

fn optional(amount: Option<f64>, decimals: usize) -> String {
    amount.map_or_else(|| "–".to_owned(), |amount| format!("{amount:.decimals$}"))
}

/// Cost and evictions, with how far the runs lie apart.
fn with_spread(policy: &Summary) -> (String, String) {
    let (mut cost, mut evictions) = (format!("{:.2}", policy.cost), policy.evictions.to_string());
    if let Some(spread) = policy.spread {
        let ((least, most), (fewest, highest)) = (spread.cost, spread.evictions);
        let _ = write!(cost, "<small>{least:.2}–{most:.2}</small>");
        let _ = write!(evictions, "<small>{fewest}–{highest}</small>");
    }
    (cost, evictions)
}

fn details(page: &mut String, comparison: &Comparison, colours: &Colours) {
    let header = [
        "policy",
        "saved per eviction, $",
        "evicted again within 1 h",
        "nodes launched",
        "nodes removed",
        "gone within 30 min",
        "consolidated within 10 min",
        "node-hours",
        "CPU requested",
    ];
    page.push_str(
        "<details open><summary>All figures</summary>\n<div class=\"wide\"><table>\n<thead>",
    );
    row(page, "th", &header);
    page.push_str("</thead>\n");
    for policy in &comparison.policies {
        let mut cells = vec![named(colours, policy), optional(policy.savings_per_eviction, 4)];
        cells.extend(policy.churn().map(|count| count.to_string()));
        cells.extend([
            format!("{:.1}", policy.node_hours),
            format!("{:.0}%", policy.cpu_fill * 100.0),
        ]);
        row(page, "td", &cells);
    }
    page.push_str("</table></div></details>\n");
}

/// Reasons down, policies across: their names are shorter.
fn reasons(page: &mut String, comparison: &Comparison, colours: &Colours) {
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
        let _ = write!(
            page,
            "<h2>{heading}</h2>\n<div class=\"wide\"><table class=\"reasons\">\n<thead>"
        );
        let header = std::iter::once(String::new())
            .chain(policies.iter().map(|policy| named(colours, policy)));
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
            notes: Vec::new(),
            samples: vec![vec![sample, Sample { hours: 2.0, ..sample }]],
        });
        assert!(page.contains("a&lt;b&gt;") && !page.contains("<script"), "{page}");
        assert!(!page.contains("http") && !page.contains("src="), "{page}");
        assert_eq!(
            page.matches("<svg").count(),
            4,
            "one for each quantity; a policy alone is not weighed"
        );
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
