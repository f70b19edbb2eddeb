//! EC2NodeClasses with the operator, on the testbed and the stand-in for AWS, in virtual time.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

mod life;
mod refusals;
mod stage;
mod static_capacity;
mod upkeep;
