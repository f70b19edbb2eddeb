//! The built binary as its users meet it.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "simulate")]
mod demo;
#[cfg(feature = "simulate")]
mod documentation;
#[cfg(feature = "simulate")]
mod exits;
mod explain;
mod kerf;
mod plan;
mod process;
#[cfg(feature = "simulate")]
mod simulate;
mod snapshot;
mod top;
