//! Objects from files, directories and standard input.

use std::{
    fmt, fs, io,
    io::Read,
    path::{Path, PathBuf},
};

use kerf_manifests::{Lines, LoadError, Loader, SyntaxProblem};
use serde::de::DeserializeOwned;
use serde_json::Value;

use validation::Findings;

mod validation;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("the directory {path} has no files that end with .yaml, .yml or .json")]
    EmptyDirectory { path: String },
    #[error("{place}: it is neither YAML nor JSON: {problem}")]
    Syntax { place: String, problem: SyntaxProblem },
    #[error("{place}: {source}")]
    Object { place: Place, source: Box<LoadError> },
    /// One line for each.
    #[error("{}", .0.iter().map(|(place, why)| format!("{place}: {why}")).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<(Place, String)>),
    #[error("the API server sent an unexpected answer: {0}")]
    Cluster(LoadError),
}

/// A place in a file, as compilers print it.
#[derive(Debug)]
pub(crate) struct Place {
    path: String,
    /// Counted from 1.
    document: usize,
    line: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.path),
            None => write!(f, "{}, document {}", self.path, self.document),
        }
    }
}

impl InputError {
    pub(super) fn of_cluster(error: LoadError) -> Self {
        Self::Cluster(error)
    }
}

/// Reads all of these in their order; `-` is standard input. What is odd about objects that exist comes back as warnings.
pub(super) fn read(paths: &[PathBuf], loader: &mut Loader) -> Result<Vec<String>, InputError> {
    let mut warnings = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|source| InputError::Read { path: "standard input".into(), source })?;
            warnings.extend(add(&text, "standard input", loader)?);
        } else if path.is_dir() {
            for file in manifests(path)? {
                warnings.extend(add_file(&file, loader)?);
            }
        } else {
            warnings.extend(add_file(path, loader)?);
        }
    }
    Ok(warnings)
}

fn add_file(path: &Path, loader: &mut Loader) -> Result<Vec<String>, InputError> {
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

fn add(text: &str, path: &str, loader: &mut Loader) -> Result<Vec<String>, InputError> {
    let documents = documents(text)
        .map_err(|problem| InputError::Syntax { place: problem.place(path), problem })?;
    let mut found = Findings::default();
    for (index, document) in documents.iter().enumerate() {
        found.look_at(index, document);
    }
    if !found.refused.is_empty() {
        let places = places(text, path, found.refused.iter().map(|it| (it.document, &*it.field)));
        let why = found.refused.iter().map(ToString::to_string);
        return Err(InputError::Invalid(places.into_iter().zip(why).collect()));
    }
    for (index, document) in documents.into_iter().enumerate() {
        if let Err(source) = loader.add(document) {
            let place = places(text, path, [(index, &*source.field())]).remove(0);
            return Err(InputError::Object { place, source: Box::new(source) });
        }
    }
    Ok(found.warnings().collect())
}

/// Where these fields of these documents stand. The text is read a second time for that, as YAML, which JSON is as well.
fn places<'a>(
    text: &str,
    path: &str,
    fields: impl IntoIterator<Item = (usize, &'a str)>,
) -> Vec<Place> {
    let lines: Vec<Lines> = yaml(text).unwrap_or_default();
    let place = |(document, field): (usize, &str)| {
        let lines = lines.get(document);
        let line = lines.map(|lines| lines.of(field).unwrap_or_else(|| lines.first()));
        Place { path: path.to_owned(), document: document + 1, line }
    };
    fields.into_iter().map(place).collect()
}

/// The documents of a text; empty ones do not count. JSON is read as such, because a dump of a large cluster takes a
/// YAML parser many times as long.
fn documents(text: &str) -> Result<Vec<Value>, SyntaxProblem> {
    if !text.trim_start().starts_with('{') {
        return yaml(text);
    }
    let json: Result<Vec<Value>, _> =
        serde_json::Deserializer::from_str(text).into_iter().collect();
    // What begins with a brace may still be YAML; if it is neither, JSON was probably meant.
    json.or_else(|error| yaml(text).map_err(|_| error.into()))
}

fn yaml<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, SyntaxProblem> {
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
    serde_saphyr::from_multiple_with_options(text, options).map_err(SyntaxProblem::from)
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
        let twice = "kind is given twice; if another object begins here, write --- above it";
        for (text, line, expected) in [
            ("{\"a\": 1", 1, "EOF while parsing an object"),
            ("a: 1\n b: 2\n", 2, ""),
            ("kind: A\nspec: {}\n\nkind: B\n", 4, twice),
            ("a: {b: 1,\n b: 2}\n", 2, "the key b is given twice"),
        ] {
            let found = documents(text).unwrap_err();
            assert_eq!(found.line, Some(line), "{text:?}: {found}");
            assert!(found.problem.starts_with(expected), "{found}");
            assert!(!found.problem.contains("line"), "{found}");
        }
    }
}
