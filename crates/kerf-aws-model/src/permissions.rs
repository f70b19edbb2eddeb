//! The IAM policy that the operator needs, and no more.
//!
//! It is as narrow as the one that Karpenter publishes: whatever Kerf makes carries the tags of its cluster, and it may change or
//! delete only what carries them.

use kerf_aws_api::tags;
use serde_json::{Map, Value, json};

/// Who runs where: what the policy is narrowed to.
#[derive(Clone, Debug)]
pub struct Installation<'a> {
    /// `aws`, `aws-cn` or `aws-us-gov`.
    pub partition: &'a str,
    pub region: &'a str,
    /// Twelve digits, or `*`.
    pub account: &'a str,
    pub cluster: &'a str,
    /// The queue of interruption messages. Without one the policy has no word of SQS.
    pub queue: Option<&'a str>,
    /// The role of nodes, or a pattern of several: `KarpenterNodeRole-*`.
    pub node_role: &'a str,
    /// Whether zonal shifts are followed (`--enable-zonal-shift`).
    pub zonal_shift: bool,
}

/// What one statement is about.
#[derive(Clone, Copy, Debug)]
enum On {
    /// What a launch uses and does not make.
    UsedByLaunch,
    /// Launch templates of the cluster.
    OwnTemplates,
    /// What a launch makes. It has to be tagged as the cluster's.
    MadeByLaunch,
    /// Tags that are given together with a launch.
    TagsOfLaunch,
    /// Tags that are given later: of three keys, to instances of the cluster.
    TagsOfInstances,
    /// Instances and launch templates of the cluster.
    Deletion,
    /// Lists have no resource. They are read in one region.
    Region,
    ImageParameters,
    Prices,
    Queue,
    NodeRole,
    NewProfiles,
    TagsOfProfiles,
    OwnProfiles,
    AnyProfile,
    Cluster,
    ZonalShifts,
}

/// Statement, what it is about, and the actions.
const STATEMENTS: [(&str, On, &[&str]); 17] = [
    ("LaunchWith", On::UsedByLaunch, &["ec2:RunInstances", "ec2:CreateFleet"]),
    ("LaunchFromOwnTemplates", On::OwnTemplates, &["ec2:RunInstances", "ec2:CreateFleet"]),
    (
        "LaunchTagged",
        On::MadeByLaunch,
        &["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
    ),
    ("TagAtLaunch", On::TagsOfLaunch, &["ec2:CreateTags"]),
    ("TagOwnInstances", On::TagsOfInstances, &["ec2:CreateTags"]),
    ("DeleteOwn", On::Deletion, &["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"]),
    (
        "ReadRegion",
        On::Region,
        &[
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeImages",
            "ec2:DescribeInstances",
            "ec2:DescribeInstanceStatus",
            "ec2:DescribeInstanceTypeOfferings",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeLaunchTemplates",
            "ec2:DescribePlacementGroups",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSpotPriceHistory",
            "ec2:DescribeSubnets",
        ],
    ),
    ("ReadImageParameters", On::ImageParameters, &["ssm:GetParameter"]),
    ("ReadPrices", On::Prices, &["pricing:GetProducts"]),
    (
        "ReadInterruptions",
        On::Queue,
        &["sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage"],
    ),
    ("PassNodeRole", On::NodeRole, &["iam:PassRole"]),
    ("CreateProfiles", On::NewProfiles, &["iam:CreateInstanceProfile"]),
    ("TagOwnProfiles", On::TagsOfProfiles, &["iam:TagInstanceProfile"]),
    (
        "ChangeOwnProfiles",
        On::OwnProfiles,
        &[
            "iam:AddRoleToInstanceProfile",
            "iam:RemoveRoleFromInstanceProfile",
            "iam:DeleteInstanceProfile",
        ],
    ),
    ("ReadProfiles", On::AnyProfile, &["iam:GetInstanceProfile", "iam:ListInstanceProfiles"]),
    ("ReadCluster", On::Cluster, &["eks:DescribeCluster"]),
    ("ReadZonalShifts", On::ZonalShifts, &["arc-zonal-shift:GetManagedResource"]),
];

/// Calls that Karpenter's policy does not allow. Kerf makes them where it may, and does without where it may not.
pub const OPTIONAL: [&str; 2] = ["ec2:GetConsoleOutput", "ec2:DescribeAvailabilityZones"];

impl Installation<'_> {
    /// The document, as IAM takes it.
    pub fn policy(&self) -> Value {
        let statements = STATEMENTS.iter().filter(|(_, on, _)| self.has(*on));
        let statements = statements.map(|(name, on, actions)| {
            let mut statement = Map::new();
            statement.insert("Sid".to_owned(), json!(name));
            statement.insert("Effect".to_owned(), json!("Allow"));
            statement.insert("Action".to_owned(), json!(actions));
            statement.insert("Resource".to_owned(), self.resources(*on));
            if let Some(condition) = self.condition(*on) {
                statement.insert("Condition".to_owned(), condition);
            }
            Value::Object(statement)
        });
        json!({"Version": "2012-10-17", "Statement": statements.collect::<Vec<_>>()})
    }

    fn has(&self, on: On) -> bool {
        match on {
            On::Queue => self.queue.is_some(),
            On::ZonalShifts => self.zonal_shift,
            _ => true,
        }
    }

    fn arn(&self, service: &str, region: &str, account: &str, what: &str) -> String {
        format!("arn:{}:{service}:{region}:{account}:{what}", self.partition)
    }

    /// EC2's own things. Images and snapshots may be another account's.
    fn ec2(&self, kinds: &[&str]) -> Value {
        kinds.iter().map(|kind| self.arn("ec2", self.region, "*", &format!("{kind}/*"))).collect()
    }

    fn resources(&self, on: On) -> Value {
        let Self { region, account, cluster, .. } = *self;
        match on {
            On::UsedByLaunch => {
                let image_or_snapshot = ["image", "snapshot"].map(|kind| {
                    // Public images have no account in their names.
                    self.arn("ec2", region, "", &format!("{kind}/*"))
                });
                let others = self.ec2(&[
                    "image",
                    "snapshot",
                    "security-group",
                    "subnet",
                    "capacity-reservation",
                    "placement-group",
                ]);
                let others = others.as_array().into_iter().flatten().cloned();
                image_or_snapshot.map(Value::from).into_iter().chain(others).collect()
            }
            On::OwnTemplates => self.ec2(&["launch-template"]),
            On::MadeByLaunch | On::TagsOfLaunch => self.ec2(&[
                "fleet",
                "instance",
                "volume",
                "network-interface",
                "launch-template",
                "spot-instances-request",
            ]),
            On::TagsOfInstances => self.ec2(&["instance"]),
            On::Deletion => self.ec2(&["instance", "launch-template"]),
            On::ImageParameters => json!(self.arn("ssm", region, "", "parameter/aws/service/*")),
            On::Queue => json!(self.arn("sqs", region, account, self.queue.unwrap_or("*"))),
            On::NodeRole => {
                json!(self.arn("iam", "", account, &format!("role/{}", self.node_role)))
            }
            On::NewProfiles | On::TagsOfProfiles | On::OwnProfiles | On::AnyProfile => {
                json!(self.arn("iam", "", account, "instance-profile/*"))
            }
            On::Cluster => json!(self.arn("eks", region, account, &format!("cluster/{cluster}"))),
            On::Region | On::Prices | On::ZonalShifts => json!("*"),
        }
    }

    fn condition(&self, on: On) -> Option<Value> {
        let owned = |side: &str| {
            json!({
                format!("aws:{side}/{}", tags::cluster(self.cluster)): tags::OWNED,
                format!("aws:{side}/{}", tags::EKS_CLUSTER_NAME): self.cluster,
            })
        };
        // Profiles have no pool, and the region in its stead: they are the same in all regions.
        let owned_profile = |side: &str| {
            json!({
                format!("aws:{side}/{}", tags::cluster(self.cluster)): tags::OWNED,
                format!("aws:{side}/topology.kubernetes.io/region"): self.region,
            })
        };
        let pool = |side: &str| json!({format!("aws:{side}/{}", tags::NODE_POOL): "*"});
        let class = |side: &str| json!({format!("aws:{side}/{}", tags::NODE_CLASS): "*"});
        Some(match on {
            On::OwnTemplates | On::Deletion => json!({
                "StringEquals": {format!("aws:ResourceTag/{}", tags::cluster(self.cluster)): tags::OWNED},
                "StringLike": pool("ResourceTag"),
            }),
            On::MadeByLaunch => {
                json!({"StringEquals": owned("RequestTag"), "StringLike": pool("RequestTag")})
            }
            On::TagsOfLaunch => {
                let mut equals = owned("RequestTag");
                equals["ec2:CreateAction"] =
                    json!(["RunInstances", "CreateFleet", "CreateLaunchTemplate"]);
                json!({"StringEquals": equals, "StringLike": pool("RequestTag")})
            }
            On::TagsOfInstances => json!({
                "StringEquals": {format!("aws:ResourceTag/{}", tags::cluster(self.cluster)): tags::OWNED},
                "StringLike": pool("ResourceTag"),
                "StringEqualsIfExists": {
                    format!("aws:RequestTag/{}", tags::EKS_CLUSTER_NAME): self.cluster,
                },
                "ForAllValues:StringEquals": {
                    "aws:TagKeys": [tags::EKS_CLUSTER_NAME, tags::NODE_CLAIM, tags::NAME],
                },
            }),
            On::Region => json!({"StringEquals": {"aws:RequestedRegion": self.region}}),
            On::NodeRole => json!({
                "StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]},
            }),
            On::NewProfiles => {
                json!({"StringEquals": owned_profile("RequestTag"), "StringLike": class("RequestTag")})
            }
            On::TagsOfProfiles => {
                let both = [owned_profile("ResourceTag"), owned_profile("RequestTag")];
                let both = both.into_iter().filter_map(|side| side.as_object().cloned()).flatten();
                json!({"StringEquals": both.collect::<Map<_, _>>(), "StringLike": class("RequestTag")})
            }
            On::OwnProfiles => {
                json!({"StringEquals": owned_profile("ResourceTag"), "StringLike": class("ResourceTag")})
            }
            On::UsedByLaunch
            | On::ImageParameters
            | On::Prices
            | On::Queue
            | On::AnyProfile
            | On::Cluster
            | On::ZonalShifts => return None,
        })
    }
}

/// Every action of the policy.
pub fn actions() -> impl Iterator<Item = &'static str> {
    STATEMENTS.iter().flat_map(|(_, _, actions)| actions.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kerf_aws_wire::all_operations;

    use super::*;

    const INSTALLATION: Installation<'_> = Installation {
        partition: "aws",
        region: "eu-west-1",
        account: "123456789012",
        cluster: "demo",
        queue: Some("interruptions"),
        node_role: "KarpenterNodeRole-demo",
        zonal_shift: true,
    };

    /// To pass a role is no call of its own.
    #[test]
    fn the_policy_allows_each_call_that_kerf_knows_and_nothing_else() {
        let calls =
            all_operations().map(|(service, name)| format!("{}:{name}", service.signing_name));
        let calls: BTreeSet<_> = calls.chain(["iam:PassRole".to_owned()]).collect();
        let allowed: BTreeSet<_> = actions().chain(OPTIONAL).map(str::to_owned).collect();
        assert_eq!(allowed, calls);
    }

    #[test]
    fn what_is_not_used_is_not_allowed() {
        let without = Installation { queue: None, zonal_shift: false, ..INSTALLATION };
        let text = without.policy().to_string();
        assert!(!text.contains("sqs:") && !text.contains("arc-zonal-shift"), "{text}");
        let text = INSTALLATION.policy().to_string();
        assert!(text.contains("arn:aws:sqs:eu-west-1:123456789012:interruptions"), "{text}");
    }

    /// No statement that changes something is without a condition, but for what a launch only uses and for the queue.
    #[test]
    fn what_changes_something_is_narrowed() {
        let policy = INSTALLATION.policy();
        let statements = policy["Statement"].as_array().into_iter().flatten();
        let reads = ["Describe", "Get", "List", "ReceiveMessage", "DeleteMessage"];
        let open = statements.filter(|one| one.get("Condition").is_none()).filter(|one| {
            let mut actions = one["Action"].as_array().into_iter().flatten();
            actions.any(|action| {
                let name = action.as_str().and_then(|action| action.split(':').nth(1));
                !reads.iter().any(|read| name.is_some_and(|name| name.starts_with(read)))
            })
        });
        let open: Vec<_> = open.map(|one| &one["Sid"]).collect();
        assert_eq!(open, ["LaunchWith"]);
    }

    /// IAM takes no longer one: without its spaces it may have 6,144 characters.
    #[test]
    fn the_policy_is_short_enough() {
        let length = INSTALLATION.policy().to_string().len();
        assert!(length <= 6_144, "{length}");
    }
}
