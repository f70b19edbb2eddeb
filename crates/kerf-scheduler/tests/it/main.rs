//! Behaviour of the scheduler, seen from outside.

mod affinity;
mod build;
mod daemons;
mod flexibility;
mod placing;
mod preferences;
mod requirements;
mod reserved;
mod spread;
mod storage;
