//! Controllers of Pods: the last pod event of a node, events about `do-not-disrupt`, and deletion costs.

pub(crate) mod deletion_cost;
pub(crate) mod do_not_disrupt;
pub(crate) mod last_event;
