//! What the documentation says about flags, gates and metrics is what Kerf says.
//!
//! A page is written by hand around blocks that begin with `<!-- generated: WHAT -->` and end with `<!-- end -->`. After a change,
//! `cargo xtask generate` writes the blocks anew (by setting `KERF_WRITE_GENERATED`).
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

mod metrics;

use std::{collections::BTreeSet, fmt::Write, fs, path::Path};

use kerf_controllers::settings::{GATES, Gate};
use kerf_provider::Flag;

use crate::cli::flags;

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

#[test]
fn the_documentation_is_generated_from_what_kerf_is() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let write = std::env::var_os("KERF_WRITE_GENERATED").is_some();
    let mut stale = Vec::new();
    let mut filled = BTreeSet::new();
    for page in ["configuration.md", "metrics.md"] {
        let found = fs::read_to_string(docs.join(page)).unwrap();
        let wanted = fill(&found, &mut filled);
        if write {
            fs::write(docs.join(page), &wanted).unwrap();
        } else if found != wanted {
            stale.push(page);
        }
    }
    assert!(stale.is_empty(), "stale in docs: {stale:?}; run cargo xtask generate");
    let all: BTreeSet<_> = flags::all()
        .map(|flag| format!("flags {}", flag.heading))
        .chain(metrics::groups().map(|group| format!("metrics {group}")))
        .chain(["gates".to_owned()])
        .collect();
    assert_eq!(filled, all, "blocks of the pages, and what there is to say");
}

/// The page with every block as it should be; `filled` gets their names.
fn fill(page: &str, filled: &mut BTreeSet<String>) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (what, after) = after.split_once(" -->\n").unwrap();
        let (_, after) = after.split_once(END).unwrap();
        let _ = write!(text, "{before}{BEGIN}{what} -->\n{}{END}", block(what));
        assert!(filled.insert(what.to_owned()), "{what} stands twice");
        rest = after;
    }
    text + rest
}

fn block(what: &str) -> String {
    match what.split_once(' ') {
        Some(("flags", heading)) => flags_under(heading),
        Some(("metrics", group)) => metrics::table(group),
        None if what == "gates" => gates(),
        _ => panic!("{what:?} is nothing that is generated"),
    }
}

fn flags_under(heading: &str) -> String {
    let mut text = "| flag | variable | default | meaning |\n|---|---|---|---|\n".to_owned();
    for Flag { name, env, default, help, .. } in flags::all().filter(|it| it.heading == heading) {
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        let help = help.replace('|', "\\|");
        let _ = writeln!(text, "| `--{name}` | `{env}` | {default} | {help}. |");
    }
    text
}

fn gates() -> String {
    let mut text = "| gate | default | stage | on means |\n|---|---|---|---|\n".to_owned();
    for Gate { name, default, stage, help, .. } in GATES {
        let stage = stage.as_str();
        let _ = writeln!(text, "| `{name}` | `{default}` | {stage} | {help}. |");
    }
    text
}
