//! The labels of the KWOK provider.

pub const DOMAIN: &str = "karpenter.kwok.sh";
pub const NODE_CLASS: &str = "karpenter.kwok.sh/kwoknodeclass";
pub const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
pub const INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";
pub const INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
pub const INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";

/// Those of the domain that requirements may use.
pub(crate) const IN_REQUIREMENTS: [&str; 5] =
    [NODE_CLASS, INSTANCE_CPU, INSTANCE_MEMORY, INSTANCE_FAMILY, INSTANCE_SIZE];
