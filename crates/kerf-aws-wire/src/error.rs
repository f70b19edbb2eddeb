//! What can be wrong with what was read, and what AWS says when it refuses.

use std::fmt;

/// A message that is not what its shape says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", Path(path))]
pub struct DecodeError {
    /// The members on the way to it, the outermost last.
    path: Vec<&'static str>,
    problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("expected {expected}, found {found:?}")]
    Unexpected { expected: &'static str, found: String },
    #[error("not XML: {0}")]
    Xml(String),
    #[error("not JSON: {0}")]
    Json(String),
    #[error("not a form: {0:?}")]
    Form(String),
    #[error("the path {0:?} is not of this call")]
    Path(String),
}

impl DecodeError {
    pub(crate) fn new(problem: Problem) -> Self {
        Self { path: Vec::new(), problem }
    }

    pub(crate) fn unexpected(expected: &'static str, found: impl fmt::Debug) -> Self {
        let mut found = format!("{found:?}");
        // An answer can be megabytes; what is wrong is seen at its beginning.
        found.truncate(found.char_indices().nth(120).map_or(found.len(), |(at, _)| at));
        Self::new(Problem::Unexpected { expected, found })
    }

    pub(crate) fn inside(mut self, member: &'static str) -> Self {
        self.path.push(member);
        self
    }

    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

struct Path<'a>(&'a [&'static str]);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the message");
        }
        for (index, member) in self.0.iter().rev().enumerate() {
            write!(f, "{}{member}", if index == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

/// A refusal as a service words it. All parts but the code are for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorResponse {
    /// None where what answered was no AWS service: a proxy's page, say.
    pub code: Option<String>,
    /// The code of the older query protocol, which SQS gives beside the one of JSON.
    pub query_code: Option<String>,
    pub message: String,
    pub request_id: Option<String>,
}
