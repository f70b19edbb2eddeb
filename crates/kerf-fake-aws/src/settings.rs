//! What the account looks like, and how fast its cloud is.

use std::time::Duration;

/// An account with a cluster in it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of ids, spot prices and faults.
    pub seed: u64,
    pub region: String,
    pub account: String,
    pub cluster: String,
    pub kubernetes_version: String,
    /// Where the kubelets of the cluster find its API server.
    pub endpoint: String,
    /// Certificates in PEM, in base64.
    pub ca_bundle: String,
    pub service_cidr: String,
    /// A queue for messages of interruptions; none where empty.
    pub queue: String,
    /// Roles that instance profiles can have.
    pub roles: Vec<String>,
    /// How many zones of the region have a subnet; all where it has fewer.
    pub zones: usize,
    pub subnet_addresses: u32,
    pub delays: Delays,
    pub quotas: Quotas,
    /// How long spot instances live on average before EC2 takes them; for ever where it is not set.
    pub spot_life: Option<Duration>,
    /// Whether too many calls of EC2 are refused.
    pub throttle: bool,
}

/// How long things take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    /// The answer of a call that reads.
    pub read: Duration,
    /// The answer of a call that changes something.
    pub write: Duration,
    /// The answer of `CreateFleet`.
    pub fleet: Duration,
    /// Until no other answer knows less of an instance than that of its launch.
    pub instance_visible: Duration,
    /// From launch to running.
    pub instance_starts: Duration,
    /// From shutting down to terminated.
    pub instance_ends: Duration,
    /// How long a terminated instance is still described.
    pub instance_remembered: Duration,
    /// Until EC2 knows of an instance profile.
    pub profile_visible: Duration,
    /// From the warning until a spot instance is taken.
    pub spot_warning: Duration,
    /// What a caller waits for an answer that does not come.
    pub no_answer: Duration,
}

/// What an account may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas {
    pub launch_templates: usize,
    pub instance_profiles: usize,
    /// vCPUs on demand of standard families (A, C, D, H, I, M, R, T, Z); other groups of families have as many each.
    pub on_demand_vcpus: u32,
    /// vCPUs of spot instances, likewise.
    pub spot_vcpus: u32,
}

impl Default for Settings {
    /// A cluster `test` in us-west-2 in a cloud as slow as the real one.
    fn default() -> Self {
        Self {
            seed: 0,
            region: "us-west-2".to_owned(),
            account: "123456789012".to_owned(),
            cluster: "test".to_owned(),
            kubernetes_version: "1.34".to_owned(),
            endpoint: "https://cluster.example.com".to_owned(),
            ca_bundle: "Y2VydGlmaWNhdGU=".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
            queue: "test".to_owned(),
            roles: vec!["KarpenterNodeRole-test".to_owned()],
            zones: 3,
            subnet_addresses: 8187,
            delays: Delays::default(),
            quotas: Quotas::default(),
            spot_life: None,
            throttle: true,
        }
    }
}

impl Settings {
    /// The default account in a cloud that takes no time and refuses no call for being one too many.
    pub fn instant() -> Self {
        Self { delays: Delays::none(), throttle: false, ..Self::default() }
    }
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            read: Duration::from_millis(50),
            write: Duration::from_millis(200),
            fleet: Duration::from_secs(2),
            instance_visible: Duration::from_secs(2),
            instance_starts: Duration::from_secs(10),
            instance_ends: Duration::from_secs(40),
            instance_remembered: Duration::from_hours(1),
            profile_visible: Duration::from_secs(10),
            spot_warning: Duration::from_mins(2),
            no_answer: Duration::from_mins(1),
        }
    }
}

impl Delays {
    /// Nothing takes time but what an end is about: spot warnings, and the memory of what was terminated.
    pub fn none() -> Self {
        Self {
            read: Duration::ZERO,
            write: Duration::ZERO,
            fleet: Duration::ZERO,
            instance_visible: Duration::ZERO,
            instance_starts: Duration::ZERO,
            instance_ends: Duration::ZERO,
            profile_visible: Duration::ZERO,
            no_answer: Duration::ZERO,
            ..Self::default()
        }
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            launch_templates: 5000,
            instance_profiles: 1000,
            on_demand_vcpus: 100_000,
            spot_vcpus: 100_000,
        }
    }
}
