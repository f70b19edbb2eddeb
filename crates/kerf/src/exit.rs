//! Exit codes: the same mistake ends every command with the same code. docs/json.md has them for users.

use std::process::ExitCode;

/// An exit code other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(u8);

/// The surroundings failed: a cluster or a cloud cannot be read, an output cannot be written.
pub(crate) const FAILED: Exit = Exit(1);
/// The command line, or a file that it names, is wrong or cannot be read. Nothing was begun.
pub(crate) const WRONG_INPUT: Exit = Exit(2);
/// Pods have no place, where `--fail-on-unschedulable` asks for it.
pub(crate) const UNSCHEDULABLE: Exit = Exit(3);

impl From<Exit> for ExitCode {
    fn from(Exit(code): Exit) -> Self {
        Self::from(code)
    }
}
