//! The allocator from slices and claims to allocations, and selectors.

mod allocation;
mod builders;
mod cel_agreement;
mod oracle;
mod reading;
mod selectors;
