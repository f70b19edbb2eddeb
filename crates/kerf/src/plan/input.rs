//! Objects from files, directories and standard input.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
};

use kerf_cluster::load::{LoadError, Loader};
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("the directory {path} has no files that end with .yaml, .yml or .json")]
    EmptyDirectory { path: String },
    #[error("{path} is neither YAML nor JSON: {problem}")]
    Syntax { path: String, problem: String },
    #[error("{path}, document {document}: {source}")]
    Object { path: String, document: usize, source: LoadError },
    #[error("the cluster sent something unexpected: {0}")]
    Cluster(LoadError),
}

impl InputError {
    pub(super) fn of_cluster(error: LoadError) -> Self {
        Self::Cluster(error)
    }
}

/// Reads all of these in their order; `-` is standard input.
pub(super) fn read(paths: &[PathBuf], loader: &mut Loader) -> Result<(), InputError> {
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|source| InputError::Read { path: "standard input".into(), source })?;
            add(&text, "standard input", loader)?;
        } else if path.is_dir() {
            for file in manifests(path)? {
                add_file(&file, loader)?;
            }
        } else {
            add_file(path, loader)?;
        }
    }
    Ok(())
}

fn add_file(path: &Path, loader: &mut Loader) -> Result<(), InputError> {
    let text = fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
    add(&text, &path.display().to_string(), loader)
}

fn unreadable(path: &Path, source: io::Error) -> InputError {
    InputError::Read { path: path.display().to_string(), source }
}

/// The manifests in a directory, by name. Not those in directories below it: kubectl does the same.
fn manifests(directory: &Path) -> Result<Vec<PathBuf>, InputError> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|source| unreadable(directory, source))?;
    let mut files: Vec<_> = entries
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| {
            let extension = path.extension().and_then(|extension| extension.to_str());
            matches!(extension, Some("yaml" | "yml" | "json")) && !path.is_dir()
        })
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(InputError::EmptyDirectory { path: directory.display().to_string() });
    }
    Ok(files)
}

fn add(text: &str, path: &str, loader: &mut Loader) -> Result<(), InputError> {
    let documents =
        documents(text).map_err(|problem| InputError::Syntax { path: path.to_owned(), problem })?;
    for (index, document) in documents.into_iter().enumerate() {
        let failed =
            |source| InputError::Object { path: path.to_owned(), document: index + 1, source };
        loader.add(document).map_err(failed)?;
    }
    Ok(())
}

/// The documents of a text; empty ones do not count. JSON is read as such, because a dump of a large cluster takes a
/// YAML parser many times as long.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    if !text.trim_start().starts_with('{') {
        return yaml(text);
    }
    let json: Result<Vec<Value>, _> =
        serde_json::Deserializer::from_str(text).into_iter().collect();
    // What begins with a brace may still be YAML; if it is neither, JSON was probably meant.
    json.or_else(|error| yaml(text).map_err(|_| error.to_string()))
}

fn yaml(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! {
        // Not limited in size: it is the user's own file. The limits on depth and aliases stay.
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_documents: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
        },
        // YAML as kubectl reads it.
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_come_as_yaml_or_json_one_or_many() {
        let (a, b) = (json!({"a": 1}), json!({"b": ["x"]}));
        let both = vec![a.clone(), b.clone()];
        for (text, expected) in [
            ("", vec![]),
            ("---\n---\n# nothing\n", vec![]),
            ("a: 1\n", vec![a.clone()]),
            ("---\na: 1\n---\n\n---\nb: [x]\n...\n", both.clone()),
            ("{\"a\": 1}", vec![a.clone()]),
            (" {\"a\": 1}\n{\"b\": [\"x\"]}\n", both.clone()),
            ("{a: 1}\n---\n{b: [x]}\n", both),
        ] {
            assert_eq!(documents(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn syntax_errors_say_where() {
        for (text, place) in [("{\"a\": 1", "line 1 column 7"), ("a: 1\n b: 2\n", "line 2")] {
            let problem = documents(text).unwrap_err();
            assert!(problem.contains(place), "{problem}");
        }
    }
}
