//! Controllers of Pods: the last pod event of a node, and events about `do-not-disrupt`.

pub(crate) mod do_not_disrupt;
pub(crate) mod last_event;
