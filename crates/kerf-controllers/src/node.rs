//! Controllers of Nodes: termination and repair.

pub(crate) mod repair;
pub(crate) mod termination;
