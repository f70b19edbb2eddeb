//! What is done about Pods: when they last came or went, and what their owners learn about `do-not-disrupt`.

pub(crate) mod do_not_disrupt;
pub(crate) mod last_event;
