//! Every block of commands in the documentation is run by a test, or says what it needs that a test has not got.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What is shown and not run.
const DATA: [&str; 7] = ["console", "diff", "json", "promql", "rust", "text", "yaml"];
/// Pages whose blocks `sh` are run as they stand, and by what.
const FOLLOWED: [(&str, &str); 1] = [("docs/install.md", "xtask/src/charts/install.rs")];

const HOW_TO_MARK: &str = "\
write after the three backquotes:
  sh                commands of a page that a test follows from top to bottom (see FOLLOWED in xtask/tests/docs.rs)
  sh run-by=FILE    commands that the test in FILE runs; FILE has to name the page
  sh needs-WHAT     commands that no test can run, such as needs-cloud or needs-registry
  console           commands with their output, as they were seen
  yaml, json, …     what is no command";

#[test]
fn every_block_is_run_or_says_what_it_needs() {
    let mut wrong = Vec::new();
    let mut commands = 0;
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for (line, kind) in blocks(&text) {
            commands += usize::from(kind.starts_with("sh"));
            if let Err(why) = check(&page, kind) {
                wrong.push(format!("{page}:{line}: {why}"));
            }
        }
    }
    assert!(commands > 10, "only {commands} blocks of commands: the pages are read wrongly");
    assert!(wrong.is_empty(), "{}\n{HOW_TO_MARK}", wrong.join("\n"));
}

/// Whether a block of this kind may stand in the page.
fn check(page: &str, kind: &str) -> Result<(), String> {
    let followed = FOLLOWED.iter().find(|(followed, _)| *followed == page);
    match kind.split_once(' ') {
        _ if DATA.contains(&kind) => Ok(()),
        Some(("sh", mark)) if mark.strip_prefix("needs-").is_some_and(|what| !what.is_empty()) => {
            Ok(())
        }
        Some(("sh", mark)) => {
            let Some(file) = mark.strip_prefix("run-by=") else {
                return Err(format!("a block is marked {kind:?}"));
            };
            let test = fs::read_to_string(root().join(file))
                .map_err(|_| format!("{file}, which should run a block, does not exist"))?;
            let name = page.rsplit('/').next().unwrap_or(page);
            test.contains(name).then_some(()).ok_or_else(|| format!("{file} does not name {name}"))
        }
        None if kind == "sh" => match followed {
            Some((_, test)) if root().join(test).is_file() => Ok(()),
            _ => Err("nothing runs the commands of a block".to_owned()),
        },
        _ => Err(format!("a block is marked {kind:?}")),
    }
}

/// Line and mark of each fenced block.
fn blocks(text: &str) -> Vec<(usize, &str)> {
    let fences = text
        .lines()
        .enumerate()
        .filter_map(|(line, text)| Some((line + 1, text.trim_start().strip_prefix("```")?)));
    // Every second one ends a block.
    fences.step_by(2).collect()
}

fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(format!("docs/{}", path.file_name().unwrap().to_string_lossy()));
        }
    }
    pages.sort();
    pages
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn marks_are_told_apart() {
    for (page, kind, right) in [
        ("docs/install.md", "sh", true),
        ("docs/plan.md", "sh", false),
        ("docs/plan.md", "sh needs-cloud", true),
        ("docs/plan.md", "sh needs-", false),
        ("docs/plan.md", "bash", false),
        ("docs/plan.md", "", false),
        ("docs/plan.md", "yaml", true),
        ("docs/install.md", "sh run-by=xtask/src/charts/install.rs", true),
        ("docs/plan.md", "sh run-by=xtask/src/charts/install.rs", false),
        ("docs/plan.md", "sh run-by=nowhere.rs", false),
    ] {
        assert_eq!(check(page, kind).is_ok(), right, "{page} {kind}");
    }
    assert_eq!(blocks("a\n```sh\nb\n```\n\n  ```yaml\n  c\n  ```\n"), [(2, "sh"), (6, "yaml")]);
}
