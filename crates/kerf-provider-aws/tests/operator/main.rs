//! The operator with this provider, on the testbed and on the stand-in for AWS, in virtual time.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

mod instances;
mod interruption;
mod memory;
mod reservations;
mod world;
