//! The types that `cargo xtask generate` writes, one module per service.

pub mod arc_zonal_shift;
pub mod ec2;
pub mod eks;
pub mod iam;
pub mod pricing;
pub mod sqs;
pub mod ssm;

use crate::operation::Call;

/// The calls of all services.
pub(crate) const SERVICES: [&[Call]; 7] = [
    arc_zonal_shift::CALLS,
    ec2::CALLS,
    eks::CALLS,
    iam::CALLS,
    pricing::CALLS,
    sqs::CALLS,
    ssm::CALLS,
];
