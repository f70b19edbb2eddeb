//! The tags by which instances and what belongs to them are found again in an account.

/// Its value is the cluster's name.
pub const EKS_CLUSTER_NAME: &str = "eks:eks-cluster-name";
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
/// Its value is the name of the NodeClaim.
pub const NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
/// Its value is the UID of the NodeClaim. Karpenter does not write it, so that its instances are known by their ids alone.
pub const NODE_CLAIM_UID: &str = "karpenter.sh/nodeclaim-uid";
/// Its value is the name of the EC2NodeClass.
pub const NODE_CLASS: &str = crate::labels::NODE_CLASS;
/// What EC2's console shows as the name.
pub const NAME: &str = "Name";
const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
/// The value of the tag [`cluster`].
pub const OWNED: &str = "owned";

/// The tag that marks what belongs to a cluster.
pub fn cluster(cluster_name: &str) -> String {
    format!("{CLUSTER_PREFIX}{cluster_name}")
}

/// Whether Kerf writes the tag itself, so that a class may not have it.
pub fn is_restricted(key: &str) -> bool {
    let names_a_cluster = key.strip_prefix(CLUSTER_PREFIX).is_some_and(is_cluster_name);
    names_a_cluster || [NODE_POOL, NODE_CLAIM, NODE_CLASS, EKS_CLUSTER_NAME].contains(&key)
}

/// As EKS lets clusters be called.
fn is_cluster_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && characters.all(|other| other.is_ascii_alphanumeric() || "-_".contains(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_may_not_have_the_tags_that_ownership_rests_on() {
        for (key, restricted) in [
            ("karpenter.sh/nodepool", true),
            ("karpenter.sh/nodeclaim", true),
            ("karpenter.k8s.aws/ec2nodeclass", true),
            ("eks:eks-cluster-name", true),
            ("kubernetes.io/cluster/demo", true),
            ("kubernetes.io/cluster/1-a_b", true),
            ("kubernetes.io/cluster/", false),
            ("kubernetes.io/cluster/-demo", false),
            ("kubernetes.io/cluster/a.b", false),
            ("kubernetes.io/cluster", false),
            ("karpenter.sh/nodepools", false),
            ("Name", false),
            ("team", false),
        ] {
            assert_eq!(is_restricted(key), restricted, "{key}");
        }
        assert!(is_restricted(&cluster("demo")));
    }
}
