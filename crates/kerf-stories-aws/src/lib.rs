//! The stories of the operator on a stand-in for AWS, and those that only AWS has.
//!
//! | file | holds |
//! |---|---|
//! | `stage` | an account of AWS as the cloud of a story: the operator's provider, the kubelets of its instances |
//! | `machines` | what the account sells: the machines that stories know by name |
//! | `mortality` | operators that die between two calls to AWS |
//! | `day` | a day in which everything goes wrong that can |
//! | `words` | what a story says in KWOK's words, in those of AWS |
//!
//! It is a crate of its own so that `kerf-stories`, and with it the tests of everything else, needs none of AWS's crates.

pub mod day;
mod machines;
mod mortality;
mod stage;
mod words;

pub use mortality::EndsAt;
pub use stage::AwsStage;
