//! The commands of the pages. Those that need nothing but files are run, and have to print what is shown; every other block says what
//! runs it, or what it needs that a test has not got, and its arguments exist.

use std::{fs, path::Path};

use crate::kerf::{ROOT, kerf};

/// What is shown and not run.
const DATA: [&str; 6] = ["diff", "json", "promql", "rust", "text", "yaml"];
/// Pages whose blocks `sh` are run as they stand, and by what.
const FOLLOWED: [(&str, &str); 1] = [("docs/install.md", "xtask/src/charts/install.rs")];
/// A line that begins with one of these is a command.
const PROGRAMS: [&str; 14] = [
    "$",
    "aws",
    "cargo",
    "curl",
    "docker",
    "export",
    "git",
    "helm",
    "kerf",
    "kubectl",
    "rustup",
    "sha256sum",
    "skopeo",
    "tar",
];

const HOW_TO_MARK: &str = "\
write after the three backquotes, or in a comment above an indented block (<!-- sh needs-cloud -->):
  sh                commands of a page that a test follows from top to bottom (see FOLLOWED)
  sh as-in=PAGE     commands that PAGE has too, and that are run there; they may be shorter
  sh run-by=FILE    commands that the test in FILE runs; FILE has to name the page
  sh needs-WHAT     commands that no test can run, such as needs-cloud or needs-registry
  console           commands with their output. Here they may all be `$ kerf`: they are run, and what they print is compared. Indented
                    blocks of this kind need no mark.
  console run-by=FILE, console needs-WHAT
  yaml, json, …     what is no command";

/// A block of a page.
struct Block {
    page: String,
    line: usize,
    /// What the author says of it: after the backquotes, or in a comment above.
    mark: Option<String>,
    is_fenced: bool,
    lines: Vec<String>,
}

/// A command with what is shown below it.
struct Example {
    arguments: Vec<String>,
    shown: String,
}

#[test]
fn every_block_of_commands_is_run_or_says_what_it_needs() {
    let blocks = blocks();
    let commands = blocks.iter().filter(|block| block.has_commands()).count();
    assert!(commands > 60, "only {commands} blocks of commands: the pages are read wrongly");
    let wrong: Vec<_> = blocks
        .iter()
        .filter_map(|block| {
            Some(format!("{}:{}: {}", block.page, block.line, block.check().err()?))
        })
        .collect();
    assert!(wrong.is_empty(), "{}\n{HOW_TO_MARK}", wrong.join("\n"));
}

/// Every example that needs nothing but files of the repository, run again.
#[test]
fn the_pages_show_what_is_printed() {
    let blocks = blocks();
    let examples: Vec<_> =
        blocks.iter().filter(|block| block.is_compared()).flat_map(Block::examples).collect();
    assert!(examples.len() > 12, "only {} examples", examples.len());
    for Example { arguments, shown } in examples {
        let line = arguments.join(" ");
        if needs_aws(&line) && !cfg!(feature = "aws") {
            continue;
        }
        let (code, printed, errors) =
            kerf(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{line}");
        // A page may leave the end out, after a whole paragraph.
        let (printed, shown) = (printed.trim_end(), shown.trim_end());
        let rest = printed.strip_prefix(shown);
        assert!(
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("\n\n")),
            "{line} is shown with\n{shown}\nand prints\n{printed}"
        );
    }
}

/// `--help` at the end: what comes before it is read first, and a flag that does not exist is an error.
#[test]
fn the_arguments_of_commands_that_are_not_run_exist() {
    let mut tried = 0;
    for block in blocks() {
        for line in block.commands() {
            let Some(arguments) = line.strip_prefix("kerf ") else { continue };
            if needs_aws(&line) && !cfg!(feature = "aws") {
                continue;
            }
            tried += 1;
            let words =
                arguments.split_whitespace().take_while(|it| !["#", "|", ">", "&&"].contains(it));
            let words: Vec<_> = words.chain(["--help"]).collect();
            let (code, _, errors) = kerf(&words);
            assert_eq!(code, Some(0), "{}:{}: {line}: {errors}", block.page, block.line);
        }
    }
    assert!(tried > 15, "only {tried} commands");
}

fn needs_aws(line: &str) -> bool {
    ["--provider=aws", "examples/aws", "kerf aws", "aws "].iter().any(|part| line.contains(part))
}

impl Block {
    fn has_commands(&self) -> bool {
        self.lines.iter().any(|line| is_command(line))
    }

    /// Whether it is a list of examples that are run and compared.
    fn is_compared(&self) -> bool {
        let is_example =
            self.mark.as_deref() == Some("console") || !self.is_fenced && self.mark.is_none();
        is_example && self.lines.first().is_some_and(|line| line.starts_with("$ kerf "))
    }

    fn examples(&self) -> Vec<Example> {
        let mut examples: Vec<Example> = Vec::new();
        for line in &self.lines {
            if let Some(arguments) = line.strip_prefix("$ kerf ") {
                let arguments = arguments.split_whitespace().map(str::to_owned).collect();
                examples.push(Example { arguments, shown: String::new() });
            } else if let Some(example) = examples.last_mut() {
                example.shown += line;
                example.shown.push('\n');
            }
        }
        examples
    }

    /// The lines of commands, each in one piece and without its prompt.
    fn commands(&self) -> Vec<String> {
        let is_shell = self.mark.as_deref().is_some_and(|mark| mark.starts_with("sh"));
        let is_console = self.mark.as_deref().is_some_and(|mark| mark.starts_with("console"));
        let text = self.lines.join("\n").replace("\\\n", " ");
        let lines = text.lines();
        if is_shell {
            lines.map(str::to_owned).collect()
        } else if is_console {
            lines.filter_map(|line| Some(line.strip_prefix("$ ")?.to_owned())).collect()
        } else {
            Vec::new()
        }
    }

    /// Whether it may stand as it does.
    fn check(&self) -> Result<(), String> {
        let Some(mark) = &self.mark else {
            let stands = self.is_compared() || !self.is_fenced && !self.has_commands();
            return stands.then_some(()).ok_or_else(|| "a block has no mark".to_owned());
        };
        let (kind, what) = mark.split_once(' ').unwrap_or((mark, ""));
        match (kind, what) {
            (kind, "") if DATA.contains(&kind) => {
                match self.lines.iter().find(|it| it.starts_with("$ ")) {
                    Some(command) => Err(format!("a command in a block of {kind}: {command}")),
                    None => Ok(()),
                }
            }
            ("sh", "") => FOLLOWED
                .iter()
                .any(|(page, test)| *page == self.page && exists(test))
                .then_some(())
                .ok_or_else(|| "nothing runs the commands of a block".to_owned()),
            ("console", "") => {
                let other =
                    self.lines.iter().find(|it| it.starts_with("$ ") && !it.starts_with("$ kerf "));
                other.map_or(Ok(()), |line| Err(format!("nothing runs {line}")))
            }
            ("sh" | "console", what) => self.check_mark(what),
            _ => Err(format!("a block is marked {mark:?}")),
        }
    }

    fn check_mark(&self, what: &str) -> Result<(), String> {
        if what.strip_prefix("needs-").is_some_and(|what| !what.is_empty()) {
            return Ok(());
        }
        if let Some(page) = what.strip_prefix("as-in=") {
            let other =
                page_blocks(page).into_iter().filter(|one| one.mark.as_deref() == Some("sh"));
            let other: Vec<_> = other.flat_map(|block| block.commands()).collect();
            let missing = self.commands().into_iter().find(|line| {
                !other.iter().any(|one| one.starts_with(line.split("  #").next().unwrap_or(line)))
            });
            return missing.map_or(Ok(()), |line| Err(format!("{page} does not run {line:?}")));
        }
        let Some(file) = what.strip_prefix("run-by=") else {
            return Err(format!("a block is marked {what:?}"));
        };
        let test = fs::read_to_string(Path::new(ROOT).join(file))
            .map_err(|_| format!("{file}, which should run a block, does not exist"))?;
        let name = self.page.rsplit('/').next().unwrap_or(&self.page);
        test.contains(name).then_some(()).ok_or_else(|| format!("{file} does not name {name}"))
    }
}

fn exists(file: &str) -> bool {
    Path::new(ROOT).join(file).is_file()
}

fn is_command(line: &str) -> bool {
    let program = line.split_whitespace().next().unwrap_or_default();
    PROGRAMS.contains(&program)
}

fn blocks() -> Vec<Block> {
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for entry in fs::read_dir(Path::new(ROOT).join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(format!("docs/{}", path.file_name().unwrap().to_string_lossy()));
        }
    }
    pages.sort();
    pages.iter().flat_map(|page| page_blocks(page)).collect()
}

fn page_blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
    read(page, &text)
}

/// Fenced blocks, also in lists, and blocks that are indented by four spaces after an empty line.
fn read(page: &str, text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut blocks, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let line = lines[at];
        let begin = at;
        let new = |mark: Option<String>, is_fenced| Block {
            page: page.to_owned(),
            line: begin + 1,
            mark,
            is_fenced,
            lines: Vec::new(),
        };
        if let Some(mark) = line.trim_start().strip_prefix("```") {
            let indent = line.len() - line.trim_start().len();
            let mut block = new(Some(mark.to_owned()), true);
            at += 1;
            while at < lines.len() && !lines[at].trim_start().starts_with("```") {
                block.lines.push(lines[at].get(indent..).unwrap_or_default().to_owned());
                at += 1;
            }
            blocks.push(block);
        } else if line.starts_with("    ") && (at == 0 || lines[at - 1].is_empty()) {
            let above = lines[..at].iter().rev().find(|line| !line.is_empty());
            let mark = above.and_then(|line| line.strip_prefix("<!-- ")?.strip_suffix(" -->"));
            let mut block = new(mark.map(str::to_owned), false);
            while at < lines.len() && (lines[at].is_empty() || lines[at].starts_with("    ")) {
                block.lines.push(lines[at].strip_prefix("    ").unwrap_or_default().to_owned());
                at += 1;
            }
            at -= 1;
            while block.lines.last().is_some_and(String::is_empty) {
                block.lines.pop();
            }
            blocks.push(block);
        }
        at += 1;
    }
    blocks
}

#[test]
fn blocks_and_marks_are_told_apart() {
    for (page, text, right) in [
        ("docs/install.md", "```sh\nkerf run\n```", true),
        ("docs/plan.md", "```sh\nkerf run\n```", false),
        ("docs/plan.md", "```sh needs-cloud\nkerf run\n```", true),
        ("docs/plan.md", "```sh needs-\nkerf run\n```", false),
        ("docs/plan.md", "```bash\nls\n```", false),
        ("docs/plan.md", "```\nls\n```", false),
        ("docs/plan.md", "```yaml\na: b\n```", true),
        ("docs/plan.md", "```text\n$ kerf run\n```", false),
        ("docs/plan.md", "```console\n$ kerf version\n```", true),
        ("docs/plan.md", "```console\n$ kubectl get nodes\n```", false),
        ("docs/plan.md", "```console needs-cluster\n$ kubectl get nodes\n```", true),
        ("docs/install.md", "```sh run-by=xtask/src/charts/install.rs\na\n```", true),
        ("docs/plan.md", "```sh run-by=xtask/src/charts/install.rs\na\n```", false),
        ("docs/plan.md", "```sh run-by=nowhere.rs\na\n```", false),
        ("docs/plan.md", "```sh as-in=docs/install.md\nhelm uninstall kerf\n```", true),
        ("docs/plan.md", "```sh as-in=docs/install.md\nhelm uninstall all\n```", false),
        ("docs/plan.md", "a\n\n    kubectl get nodes\n", false),
        ("docs/plan.md", "a\n\n    nodes: 3\n", true),
        ("docs/plan.md", "a\n\n    $ kerf version\n    kerf 1\n", true),
        ("docs/plan.md", "a\n\n<!-- sh needs-cluster -->\n\n    kubectl get nodes\n", true),
        ("docs/plan.md", "1. a\n\n   ```sh\n   kubectl get nodes\n   ```\n", false),
    ] {
        let blocks = read(page, text);
        assert_eq!(blocks.len(), 1, "{text}");
        assert_eq!(blocks[0].check().is_ok(), right, "{page} {text} {:?}", blocks[0].check());
    }
}
