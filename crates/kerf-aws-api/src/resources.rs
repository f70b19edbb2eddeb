//! The resources of instances that Kubernetes itself has no name for.

pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
pub const AMD_GPU: &str = "amd.com/gpu";
pub const NEURON: &str = "aws.amazon.com/neuron";
pub const NEURON_CORE: &str = "aws.amazon.com/neuroncore";
pub const GAUDI: &str = "habana.ai/gaudi";
pub const EFA: &str = "vpc.amazonaws.com/efa";
/// Network interfaces that pods can have of their own.
pub const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
/// Addresses for pods on Windows.
pub const PRIVATE_IPV4_ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// Those that Karpenter counts among the well-known ones on AWS. The two GPU makers' are not among them.
pub(crate) const WELL_KNOWN: [&str; 5] = [POD_ENI, NEURON, NEURON_CORE, GAUDI, EFA];
