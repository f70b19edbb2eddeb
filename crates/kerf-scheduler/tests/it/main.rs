//! Behaviour of the scheduler, seen from outside.

mod build;
mod placing;
