//! Behaviour of the scheduler, seen from outside.

mod absurd;
mod affinity;
mod buffers;
mod build;
mod checker;
mod daemons;
mod default_spread;
mod flexibility;
mod packing;
mod placing;
mod preferences;
mod probe;
mod properties;
mod random;
mod reasons;
mod requirements;
mod reserved;
mod spread;
mod storage;
