//! What is done about Nodes: drained and ended, and repaired.

pub(crate) mod repair;
pub(crate) mod termination;
