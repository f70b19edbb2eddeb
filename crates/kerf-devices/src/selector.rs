//! Device selectors: CEL expressions that say of one device whether it will do.
//!
//! The language is what Kubernetes documents for selectors: the variable `device`, CEL's operators and macros, `cel.bind`, optional
//! values, and functions for quantities, versions, strings, lists and sets. An expression that uses anything else is refused by name
//! before any device is looked at. What parses can be evaluated without a panic: names are resolved, and the tree is at most
//! [`DEPTH_LIMIT`] deep. Every step costs something, and an evaluation that reaches [`COST_LIMIT`] fails.
//!
//! Looking up an attribute that a device does not have fails, and a failure is not the answer "no": Kubernetes ends the allocation
//! then. Looking up an unknown domain gives an empty map.
//!
//! The crate `cel`, which kube-cel is made of, is the second opinion in the tests and not the evaluator. Neither has `cel.bind` nor empty
//! maps for unknown domains, there is no bound on what an evaluation costs, and both can end the process: 13 nested parentheses are more
//! than the parser can do with a stack of 2 MiB, unoptimised.

use std::sync::Arc;

use crate::device::Kind;

mod evaluate;
mod functions;
mod parse;
mod tokens;
mod value;

/// The longest expression, in bytes: Kubernetes' limit.
pub const LENGTH_LIMIT: usize = 10 * 1024;
/// The most that one evaluation may cost: Kubernetes' number. The units are close to its own, not the same.
pub const COST_LIMIT: u64 = 1_000_000;
/// How deep expressions may be nested. Kubernetes' parser allows 250 levels; selectors that people write have five.
pub const DEPTH_LIMIT: usize = 64;

/// A compiled selector.
#[derive(Clone, Debug)]
pub struct Selector {
    source: Arc<str>,
    root: parse::Node,
}

/// Why an expression cannot be used as a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("it has {length} bytes, and {LENGTH_LIMIT} are allowed")]
    TooLong { length: usize },
    #[error("it is nested more than {DEPTH_LIMIT} levels deep")]
    TooDeep,
    #[error("it does not parse: {message}")]
    Syntax { message: String },
    #[error("there is no variable {name}, only device")]
    UnknownName { name: String },
    #[error("there is no function {name}")]
    UnknownFunction { name: String },
    #[error("{name} is called with {arguments} arguments, counting what it is called on")]
    WrongArguments { name: String, arguments: usize },
    #[error("{what} are not supported")]
    Unsupported { what: &'static str },
}

/// Why a selector has no answer for a device. Kubernetes ends the allocation then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("there is no {key}")]
    NoSuchKey { key: String },
    #[error("{operation} cannot be applied to {operands}")]
    NoOverload { operation: &'static str, operands: String },
    #[error("{text:?} is not {what}")]
    NotA { what: &'static str, text: String },
    #[error("{operation} is out of range")]
    OutOfRange { operation: &'static str },
    #[error("it would cost more than {COST_LIMIT} steps")]
    TooExpensive,
    #[error("it is {found}, and has to be true or false")]
    NotBoolean { found: &'static str },
}

impl Selector {
    pub fn compile(source: &str) -> Result<Self, Invalid> {
        Ok(Self { source: source.into(), root: parse::parse(source)? })
    }

    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// Whether a device of this kind will do.
    pub fn matches(&self, kind: &Kind) -> Result<bool, Failure> {
        match evaluate::evaluate(&self.root, kind)? {
            value::Value::Bool(answer) => Ok(answer),
            other => Err(Failure::NotBoolean { found: other.type_name() }),
        }
    }
}
