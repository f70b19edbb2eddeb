//! The flags of the AWS provider: those of Karpenter's, and two of its own.

use std::time::Duration;

use kerf_api::GoDuration;
use kerf_provider::{BoxError, Flag, FlagValues, InvalidFlag};

const HEADING: &str = "AWS (--provider=aws)";
const TEXT: Flag = Flag { heading: HEADING, ..Flag::TEXT };
const BOOL: Flag = Flag { heading: HEADING, ..Flag::BOOL };
const INTERVAL: Flag = Flag {
    heading: HEADING,
    default: "1m",
    value: "DURATION",
    expected: "a duration of 1m or more, such as 5m or 1h30m",
    ..Flag::NUMBER
};

pub(crate) static CLUSTER_NAME: Flag = Flag {
    name: "cluster-name",
    env: "CLUSTER_NAME",
    value: "NAME",
    help: "Name of the cluster, by which what belongs to it is found in the account. Required",
    expected: "the name of the cluster",
    ..TEXT
};
pub(crate) static CLUSTER_ENDPOINT: Flag = Flag {
    name: "cluster-endpoint",
    env: "CLUSTER_ENDPOINT",
    value: "URL",
    help: "Address of the API server for new nodes; empty to ask EKS",
    expected: "a URL with a host, such as https://api.example.com, or nothing to ask EKS",
    ..TEXT
};
pub(crate) static CLUSTER_CA_BUNDLE: Flag = Flag {
    name: "cluster-ca-bundle",
    env: "CLUSTER_CA_BUNDLE",
    value: "BASE64",
    help: "CA of the API server for new nodes, as PEM in base64; empty for the one that Kerf itself uses",
    ..TEXT
};
pub(crate) static ISOLATED_VPC: Flag = Flag {
    name: "isolated-vpc",
    env: "ISOLATED_VPC",
    help: "Do not call services without a VPC endpoint: prices stay as they are built in, and instance profiles are not cleaned up",
    ..BOOL
};
pub(crate) static EKS_CONTROL_PLANE: Flag = Flag {
    name: "eks-control-plane",
    env: "EKS_CONTROL_PLANE",
    help: "Ask EKS for the version of the cluster, and not the API server",
    ..BOOL
};
pub(crate) static VM_MEMORY_OVERHEAD_PERCENT: Flag = Flag {
    name: "vm-memory-overhead-percent",
    env: "VM_MEMORY_OVERHEAD_PERCENT",
    default: "0.075",
    heading: HEADING,
    help: "Share of an instance's memory that its nodes do not see, for types of which no node has been seen yet; 0.075 is 7.5 %",
    expected: "a number of 0 or more",
    ..Flag::NUMBER
};
pub(crate) static INTERRUPTION_QUEUE: Flag = Flag {
    name: "interruption-queue",
    env: "INTERRUPTION_QUEUE",
    value: "NAME",
    help: "Name of the SQS queue with interruption messages; empty to listen to none",
    ..TEXT
};
pub(crate) static RESERVED_ENIS: Flag = Flag {
    name: "reserved-enis",
    env: "RESERVED_ENIS",
    default: "0",
    heading: HEADING,
    help: "Network interfaces of each instance that give no addresses to pods, as with custom networking",
    expected: "a whole number of 0 or more",
    ..Flag::NUMBER
};
pub(crate) static DISABLE_DRY_RUN: Flag = Flag {
    name: "disable-dry-run",
    env: "DISABLE_DRY_RUN",
    help: "Do not try out launches of an EC2NodeClass before it is used",
    ..BOOL
};
pub(crate) static ENABLE_ZONAL_SHIFT: Flag = Flag {
    name: "enable-zonal-shift",
    env: "ENABLE_ZONAL_SHIFT",
    help: "Launch nothing in zones that Amazon Application Recovery Controller has shifted traffic away from",
    ..BOOL
};
pub(crate) static AMI_REFRESH_INTERVAL: Flag = Flag {
    name: "ami-refresh-interval",
    env: "AMI_REFRESH_INTERVAL",
    help: "How long a list of images holds before EC2 is asked again",
    ..INTERVAL
};
pub(crate) static SUBNET_REFRESH_INTERVAL: Flag = Flag {
    name: "subnet-refresh-interval",
    env: "SUBNET_REFRESH_INTERVAL",
    help: "How long a list of subnets holds before EC2 is asked again",
    ..INTERVAL
};
pub(crate) static AWS_FEATURE_GATES: Flag = Flag {
    name: "aws-feature-gates",
    env: "AWS_FEATURE_GATES",
    default: "NodeClassCEL=false",
    value: "GATES",
    help: "Feature gates of Karpenter's AWS provider. Kerf has none of them",
    expected: "gates such as NodeClassCEL=false, separated by commas; Kerf does not have NodeClassCEL",
    ..TEXT
};
pub(crate) static AWS_REGION: Flag = Flag {
    name: "aws-region",
    env: "AWS_REGION",
    value: "REGION",
    help: "Region of the cluster; empty to find out",
    expected: "the name of a region, such as eu-west-1",
    ..TEXT
};
pub(crate) static AWS_CATALOGUE: Flag = Flag {
    name: "aws-catalogue",
    env: "AWS_CATALOGUE",
    value: "PATH",
    help: "Instance types, zones and prices as a JSON file, laid over the built-in ones; empty for the built-in ones alone",
    ..TEXT
};

pub(crate) static ALL: [&Flag; 15] = [
    &CLUSTER_NAME,
    &CLUSTER_ENDPOINT,
    &CLUSTER_CA_BUNDLE,
    &AWS_REGION,
    &ISOLATED_VPC,
    &EKS_CONTROL_PLANE,
    &VM_MEMORY_OVERHEAD_PERCENT,
    &INTERRUPTION_QUEUE,
    &RESERVED_ENIS,
    &DISABLE_DRY_RUN,
    &ENABLE_ZONAL_SHIFT,
    &AMI_REFRESH_INTERVAL,
    &SUBNET_REFRESH_INTERVAL,
    &AWS_FEATURE_GATES,
    &AWS_CATALOGUE,
];

/// What the flags say.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Empty for commands that need no cluster.
    pub cluster_name: String,
    /// `None`: EKS is asked.
    pub cluster_endpoint: Option<String>,
    /// In base64. `None`: that of the operator's own client.
    pub cluster_ca_bundle: Option<String>,
    /// `None`: AWS's own chain says, or the instance metadata.
    pub region: Option<String>,
    pub isolated_vpc: bool,
    pub eks_control_plane: bool,
    /// A share: 0.075 is 7.5 %.
    pub vm_memory_overhead: f64,
    /// `None`: no messages are listened to.
    pub interruption_queue: Option<String>,
    pub reserved_enis: u32,
    pub dry_run: bool,
    pub zonal_shift: bool,
    pub ami_refresh_interval: Duration,
    pub subnet_refresh_interval: Duration,
    /// The path of a document that is laid over the built-in catalogue.
    pub catalogue: Option<String>,
}

impl Default for Options {
    /// What the flags say that are not set.
    fn default() -> Self {
        Self {
            cluster_name: String::new(),
            cluster_endpoint: None,
            cluster_ca_bundle: None,
            region: None,
            isolated_vpc: false,
            eks_control_plane: false,
            vm_memory_overhead: 0.075,
            interruption_queue: None,
            reserved_enis: 0,
            dry_run: true,
            zonal_shift: false,
            ami_refresh_interval: Duration::from_mins(1),
            subnet_refresh_interval: Duration::from_mins(1),
            catalogue: None,
        }
    }
}

impl Options {
    pub(crate) fn read(flags: &FlagValues) -> Result<Self, InvalidFlag> {
        let text = |flag: &'static Flag| Some(flags.get(flag)).filter(|text| !text.is_empty());
        let optional = |flag: &'static Flag| text(flag).map(str::to_owned);
        let checked = |flag: &'static Flag, is_valid: fn(&str) -> bool| {
            flags.read(flag, |text| (text.is_empty() || is_valid(text)).then_some(()))?;
            Ok(optional(flag))
        };
        let bool = |flag: &'static Flag| flags.read(flag, |text| text.parse().ok());
        flags.read(&AWS_FEATURE_GATES, gates)?;
        Ok(Self {
            cluster_name: flags.get(&CLUSTER_NAME).to_owned(),
            cluster_endpoint: checked(&CLUSTER_ENDPOINT, is_endpoint)?,
            cluster_ca_bundle: optional(&CLUSTER_CA_BUNDLE),
            region: checked(&AWS_REGION, is_region)?,
            isolated_vpc: bool(&ISOLATED_VPC)?,
            eks_control_plane: bool(&EKS_CONTROL_PLANE)?,
            vm_memory_overhead: flags.read(&VM_MEMORY_OVERHEAD_PERCENT, share)?,
            interruption_queue: optional(&INTERRUPTION_QUEUE),
            reserved_enis: flags.read(&RESERVED_ENIS, |text| text.parse().ok())?,
            dry_run: !bool(&DISABLE_DRY_RUN)?,
            zonal_shift: bool(&ENABLE_ZONAL_SHIFT)?,
            ami_refresh_interval: flags.read(&AMI_REFRESH_INTERVAL, interval)?,
            subnet_refresh_interval: flags.read(&SUBNET_REFRESH_INTERVAL, interval)?,
            catalogue: optional(&AWS_CATALOGUE),
        })
    }

    /// For an operator, which needs to know its cluster.
    pub(crate) fn read_for_cluster(flags: &FlagValues) -> Result<Self, BoxError> {
        let options = Self::read(flags)?;
        if options.cluster_name.is_empty() {
            return Err(NoClusterName.into());
        }
        Ok(options)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the name of the cluster is missing; set --cluster-name or CLUSTER_NAME")]
struct NoClusterName;

fn is_endpoint(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let is_scheme = !scheme.is_empty() && scheme.chars().all(|one| one.is_ascii_alphanumeric());
    let is_host = !host.is_empty() && !host.starts_with(':') && !host.contains(char::is_whitespace);
    is_scheme && is_host
}

fn is_region(text: &str) -> bool {
    text.chars().all(|one| one.is_ascii_alphanumeric() || one == '-')
}

fn share(text: &str) -> Option<f64> {
    text.parse().ok().filter(|share: &f64| share.is_finite() && *share >= 0.0)
}

fn interval(text: &str) -> Option<Duration> {
    let length = text.parse::<GoDuration>().ok()?.as_duration();
    (length >= Duration::from_mins(1)).then_some(length)
}

/// Unknown gates are passed over, as Karpenter does.
fn gates(text: &str) -> Option<()> {
    for gate in text.split(',').filter(|gate| !gate.trim().is_empty()) {
        let (name, value) = gate.split_once('=')?;
        let is_on: bool = value.trim().parse().ok()?;
        if is_on && name.trim() == "NodeClassCEL" {
            return None;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &'static str, value: &str) -> Result<Options, String> {
        let flags = FlagValues::new([(name, value.to_owned())]);
        Options::read(&flags).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_set_has_karpenters_default() {
        assert_eq!(Options::read(&FlagValues::default()).unwrap(), Options::default());
    }

    #[test]
    fn every_flag_is_read() {
        let changed = |name, value| read(name, value).unwrap();
        assert_eq!(changed("cluster-name", "demo").cluster_name, "demo");
        let endpoint = "https://user@api.example.com:6443/path";
        assert_eq!(
            changed("cluster-endpoint", endpoint).cluster_endpoint.as_deref(),
            Some(endpoint)
        );
        assert_eq!(
            changed("cluster-ca-bundle", "dGVzdA==").cluster_ca_bundle.as_deref(),
            Some("dGVzdA==")
        );
        assert_eq!(changed("aws-region", "eu-west-1").region.as_deref(), Some("eu-west-1"));
        assert!(changed("isolated-vpc", "true").isolated_vpc);
        assert!(changed("eks-control-plane", "true").eks_control_plane);
        let overhead = changed("vm-memory-overhead-percent", "0").vm_memory_overhead;
        assert!(overhead.abs() < f64::EPSILON);
        assert_eq!(changed("interruption-queue", "q").interruption_queue.as_deref(), Some("q"));
        assert_eq!(changed("reserved-enis", "2").reserved_enis, 2);
        assert!(!changed("disable-dry-run", "true").dry_run);
        assert!(changed("enable-zonal-shift", "true").zonal_shift);
        let interval = Duration::from_secs(90);
        assert_eq!(changed("ami-refresh-interval", "1m30s").ami_refresh_interval, interval);
        assert_eq!(changed("subnet-refresh-interval", "90s").subnet_refresh_interval, interval);
        assert_eq!(changed("aws-catalogue", "c.json").catalogue.as_deref(), Some("c.json"));
        changed("aws-feature-gates", "Other=true,NodeClassCEL=false");
    }

    #[test]
    fn a_bad_value_is_refused_with_a_sentence() {
        for (name, values) in [
            ("cluster-endpoint", &["api.example.com", "https://", "://a", "https:///path"][..]),
            ("aws-region", &["eu west 1", "eu-west-1/"]),
            ("vm-memory-overhead-percent", &["-0.1", "7%", "inf", "NaN", ""]),
            ("reserved-enis", &["-1", "1.5", "one"]),
            ("ami-refresh-interval", &["59s", "60", "-2m"]),
            ("subnet-refresh-interval", &["59s", "0"]),
            ("aws-feature-gates", &["NodeClassCEL=true", "NodeClassCEL", "A=maybe"]),
        ] {
            for value in values {
                let refused = read(name, value).unwrap_err();
                let start = format!("invalid value {value:?} for --{name} or ");
                assert!(
                    refused.starts_with(&start) && refused.contains(": expected "),
                    "{refused}"
                );
            }
        }
        assert_eq!(
            read("reserved-enis", "-1").unwrap_err(),
            "invalid value \"-1\" for --reserved-enis or RESERVED_ENIS: expected a whole number of 0 or more"
        );
        let nameless = Options::read_for_cluster(&FlagValues::default()).unwrap_err();
        assert_eq!(
            nameless.to_string(),
            "the name of the cluster is missing; set --cluster-name or CLUSTER_NAME"
        );
    }
}
