//! A text that is neither YAML nor JSON: the line, and what is wrong in words that a user knows.

use std::fmt;

/// Where a text cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxProblem {
    /// Counted from 1.
    pub line: Option<u64>,
    pub problem: String,
}

impl fmt::Display for SyntaxProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl SyntaxProblem {
    /// The path with the line behind it, as compilers print it.
    pub fn place(&self, path: &str) -> String {
        self.line.map_or_else(|| path.to_owned(), |line| format!("{path}:{line}"))
    }
}

/// Fields that stand at the top of an object once.
const ONCE: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

impl From<serde_saphyr::Error> for SyntaxProblem {
    fn from(error: serde_saphyr::Error) -> Self {
        let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
        let problem = match &error {
            serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. }
                if ONCE.contains(&key.as_str()) =>
            {
                format!("{key} is given twice; if another object begins here, write --- above it")
            }
            serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("the key {key} is given twice")
            }
            serde_saphyr::Error::MultipleDocuments { .. } => {
                "another document begins here (---), and one is expected".to_owned()
            }
            // The place is said by the line.
            _ => {
                let text = error.to_string();
                text.split(" at line ").next().unwrap_or_default().trim_end_matches(',').to_owned()
            }
        };
        Self { line, problem }
    }
}

impl From<serde_json::Error> for SyntaxProblem {
    fn from(error: serde_json::Error) -> Self {
        let line = u64::try_from(error.line()).ok().filter(|line| *line > 0);
        let text = error.to_string();
        let problem = text.split(" at line ").next().unwrap_or_default().to_owned();
        Self { line, problem }
    }
}
