//! Whether the generated types are those of the list. Whether they are those of AWS's models, `cargo xtask generate --check` says, which
//! needs Python; this needs nothing.

use std::fs;
use std::path::Path;

/// The words of a line of the list, with those of the indented lines after it.
fn entries(list: &str) -> Vec<Vec<&str>> {
    let mut entries: Vec<Vec<&str>> = Vec::new();
    for line in list.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        match entries.last_mut() {
            Some(entry) if line.starts_with(' ') => entry.extend(line.split_whitespace()),
            _ => entries.push(line.split_whitespace().collect()),
        }
    }
    entries
}

#[test]
fn the_types_are_those_of_the_list() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(home.join(path)).expect("it is in the repository");
    let list = read("shapes.txt");
    let mut code = String::new();
    let (mut listed, mut written) = (0, 0);
    for entry in entries(&list) {
        match entry.as_slice() {
            ["service", name] => {
                code = read(&format!("src/generated/{}.rs", name.replace('-', "_")));
                written += code.matches("\nshape!(").count();
            }
            ["operation", names @ ..] => {
                for name in names {
                    let request = format!(": {name}Request -> {name}Response,");
                    assert!(code.contains(&request), "{name} is not in the generated code");
                }
            }
            [shape, members @ ..] => {
                listed += 1;
                let (_, rest) = code
                    .split_once(&format!("shape!({shape} {{"))
                    .unwrap_or_else(|| panic!("{shape} is not in the generated code"));
                let (block, _) = rest.split_once("});").expect("a shape has an end");
                assert_eq!(block.matches(" = ").count(), members.len(), "members of {shape}");
            }
            [] => {}
        }
    }
    assert_eq!(written, listed, "shapes that are in the code and not in the list, or twice");
}
