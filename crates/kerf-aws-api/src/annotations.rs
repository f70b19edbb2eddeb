//! The annotations of AWS.

/// On an EC2NodeClass its hash, on a NodeClaim that of the class it was launched with. Where they differ the claim has
/// drifted.
pub const NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
/// How the hash was computed. Hashes of different versions cannot be compared.
pub const NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
/// `true` on a NodeClaim whose instance has got the tags that are written after the launch.
pub const INSTANCE_TAGGED: &str = "karpenter.k8s.aws/tagged";
/// `true` on such a claim too. Releases before the tag with the cluster's name existed wrote only the other one.
pub const CLUSTER_NAME_TAGGED: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";
/// The instance profile that a NodeClaim's instance was launched with. It is not removed while a claim names it.
pub const INSTANCE_PROFILE: &str = "karpenter.k8s.aws/instance-profile-name";
