//! The provider on the stand-in for AWS, in virtual time: alone, and with the operator on the testbed.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

mod account;
mod launch;
mod node_class;
mod operator;
mod start;
