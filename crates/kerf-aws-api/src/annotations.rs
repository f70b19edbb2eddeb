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

// Kerf's own, on EC2NodeClasses. The class is Karpenter's, so that it has no fields for them.

/// For how long an AMI has to be published before nodes drift because of it, such as `72h`.
pub const AMI_SOAK: &str = "aws.kerf.sh/ami-soak";
/// The share of its nodes that drift because of a new AMI in an hour, such as `10%`.
pub const AMI_DRIFT_PACE: &str = "aws.kerf.sh/ami-drift-pace";
/// Since when the class has had its AMIs (JSON). Kerf writes it.
pub const AMI_FIRST_SEEN: &str = "aws.kerf.sh/ami-first-seen";
/// How much memory nodes of the class have, by instance type and for the images that it has now (JSON). Kerf writes it.
pub const DISCOVERED_MEMORY: &str = "aws.kerf.sh/discovered-memory";
