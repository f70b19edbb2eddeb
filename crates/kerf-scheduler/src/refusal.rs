//! Why a pod cannot be placed. Values, not text: a caller that wants text prints them.

use std::fmt;

use kerf_model::pod::TooManyConstraints;
use kerf_model::resources::CPU;
use kerf_model::snapshot::Idle;
use kerf_model::volume::VolumeError;
use kerf_model::{
    Incompatible, Quantity, Requirement, Requirements, Resources, Taint, TooFewValues,
};

/// Why a pod goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "it asks for devices through resource claims, which are not supported: remove the claims or schedule it on nodes of your own"
    )]
    ClaimsDevices,
    #[error(
        "it asks for {amount} of {resource}, and no node can have more than {most}: correct the request"
    )]
    AbsurdRequest { resource: String, amount: Quantity, most: Quantity },
    #[error("no instance type and no node has {resource}, and it asks for {amount}")]
    UnknownResource { resource: String, amount: Quantity },
    #[error(transparent)]
    TooManyConstraints(#[from] TooManyConstraints),
    #[error(transparent)]
    Volumes(#[from] VolumeError),
    #[error("there is no NodePool to launch a node from")]
    NoPools,
    #[error(
        "every NodePool is static ({}) and keeps its replicas whatever pods need: add one without replicas",
        pools.join(", ")
    )]
    OnlyStaticPools { pools: Vec<String> },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Pools(Vec<PoolRefusal>),
    /// Not a failure: reservations are promised to other pods of this run, so it waits for the next.
    #[error(
        "reserved capacity that it could use may become free in this run: it waits for the next one"
    )]
    WaitsForReservation,
    /// A probe does not ask after pods that had no place before.
    #[error("it still finds no place")]
    NotAsked,
    #[error("it would go to {node}, which is not initialised and may never be")]
    UninitializedNode { node: String },
    #[error("pool {pool}: the claim made for it has too few instance types left: {source}")]
    TooFewInstanceTypes { pool: String, source: TooFewValues },
}

impl Refusal {
    /// How it is called in output that programs read.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ClaimsDevices => "ClaimsDevices",
            Self::AbsurdRequest { .. } => "AbsurdRequest",
            Self::UnknownResource { .. } => "UnknownResource",
            Self::TooManyConstraints(_) => "TooManyConstraints",
            Self::Volumes(_) => "Volumes",
            Self::NoPools => "NoPools",
            Self::OnlyStaticPools { .. } => "OnlyStaticPools",
            Self::Pools(_) => "Pools",
            Self::WaitsForReservation => "WaitsForReservation",
            Self::NotAsked => "NotAsked",
            Self::UninitializedNode { .. } => "UninitializedNode",
            Self::TooFewInstanceTypes { .. } => "TooFewInstanceTypes",
        }
    }

    /// The first pool that would launch a node for the pod but for its limits.
    pub fn limit(&self) -> Option<&PoolRefusal> {
        let Self::Pools(pools) = self else { return None };
        pools.iter().find(|one| matches!(one.reason, Reason::NodeLimit(_) | Reason::Limits(_)))
    }

    /// Whether the pod merely waits, so that no event is needed.
    pub fn is_deferral(&self) -> bool {
        matches!(self, Self::WaitsForReservation)
    }
}

/// Why a pool will not launch a node for a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool {pool}: {reason}")]
pub struct PoolRefusal {
    pub pool: String,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("its limit of nodes is reached ({0})")]
    NodeLimit(Usage),
    #[error(
        "every instance type that suits the pod exceeds its limits ({})",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Limits(Vec<LimitReached>),
    /// It launches nothing, whatever the pod.
    #[error(transparent)]
    Idle(Idle),
    #[error("did not tolerate taint {0}")]
    Taint(Taint),
    #[error("incompatible requirements, {0}")]
    Requirements(Incompatible),
    #[error("incompatible volume requirements, {0}")]
    Volumes(Incompatible),
    #[error(transparent)]
    Topology(TopologyRefusal),
    #[error(transparent)]
    InstanceTypes(Box<FilterRefusal>),
    #[error(
        "its reserved capacity is full or taken by other pods of this run, and it has no other offering"
    )]
    Reserved,
}

impl Reason {
    /// How it is called in output that programs read.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NodeLimit(_) => "NodeLimit",
            Self::Limits(_) => "Limits",
            Self::Idle(idle) => idle.name(),
            Self::Taint(_) => "Taint",
            Self::Requirements(_) => "Requirements",
            Self::Volumes(_) => "Volumes",
            Self::Topology(topology) => match topology.constraint {
                TopologyKind::Spread => "TopologySpread",
                TopologyKind::Affinity => "PodAffinity",
                TopologyKind::AntiAffinity => "PodAntiAffinity",
            },
            Self::InstanceTypes(_) => "InstanceTypes",
            Self::Reserved => "Reserved",
        }
    }

    /// What it was found with, where that is more than the reason says.
    pub fn details(&self) -> Option<String> {
        match self {
            Self::InstanceTypes(refusal) => Some(refusal.details()),
            _ => None,
        }
    }
}

/// A limit that leaves too little for what a pod needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: {usage}, the smallest of them has {needed}")]
pub struct LimitReached {
    pub resource: String,
    pub usage: Usage,
    /// The least that any type has which the pod could use.
    pub needed: Quantity,
}

/// How far a limit is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub limit: Quantity,
    /// By the pool's nodes, and by its claims whose nodes are on their way.
    pub used: Quantity,
    /// By the claims of this plan, each with the most that any of its types has.
    pub planned: Quantity,
}

impl Usage {
    /// Negative where the limit was lowered below what there is.
    pub fn left(&self) -> Quantity {
        self.limit - self.used - self.planned
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}, used {}", self.limit, self.used)?;
        if !self.planned.is_zero() {
            write!(f, ", planned {}", self.planned)?;
        }
        write!(f, ", left {}", self.left())
    }
}

/// No domain of a topology key will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyRefusal {
    pub constraint: TopologyKind,
    pub key: String,
    /// Pods that count, by domain; at most [`TopologyRefusal::SHOWN`] of them.
    pub counts: Vec<(String, u32)>,
    pub pod_domains: Option<Requirement>,
    pub node_domains: Option<Requirement>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopologyKind {
    Spread,
    Affinity,
    AntiAffinity,
}

impl TopologyRefusal {
    pub const SHOWN: usize = 25;
}

impl std::error::Error for TopologyRefusal {}

impl fmt::Display for TopologyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.constraint {
            TopologyKind::Spread => "topology spread",
            TopologyKind::Affinity => "pod affinity",
            TopologyKind::AntiAffinity => "pod anti-affinity",
        };
        write!(f, "unsatisfiable {kind} over {}", self.key)?;
        if !self.counts.is_empty() {
            let counts: Vec<_> =
                self.counts.iter().map(|(domain, count)| format!("{domain}: {count}")).collect();
            write!(f, ", pods by domain {{{}}}", counts.join(", "))?;
        }
        if let Some(domains) = &self.pod_domains {
            write!(f, ", the pod allows {domains}")?;
        }
        if let Some(domains) = &self.node_domains {
            write!(f, ", the node allows {domains}")?;
        }
        Ok(())
    }
}

/// No instance type passes all checks at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRefusal {
    pub requirements: Requirements,
    pub requests: Resources,
    /// The least and the most that daemons take on a node of this pool.
    pub daemons: (Resources, Resources),
    pub cause: FilterCause,
}

/// What keeps every instance type from being the one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterCause {
    MinValues(TooFewValues),
    /// Types are allowed, and each has too little of these.
    TooLarge {
        shortages: Vec<Shortage>,
        /// A request so large that a unit was probably mistyped.
        cpu_is_absurd: bool,
    },
    /// Allowed types have enough of each resource, and none has enough of all.
    NotTogether,
    /// No allowed type can attach so many volumes of a driver.
    VolumeLimit {
        driver: String,
        volumes: usize,
        most: u32,
    },
    /// Each allowed type can attach too few volumes, of one driver or another.
    VolumeLimits,
    /// Daemons of the allowed types take a host port that the pod asks for.
    HostPorts,
    /// Daemons of the allowed types take more than these have.
    Daemons,
    /// No type meets the requirements. Named is one that no type meets, if there is such a one.
    NoRequirements(Option<Requirement>),
    /// Types meet the requirements, and none can be bought so. Named is one that no offering meets, if there is such a one.
    NoOffering(Option<Requirement>),
    /// Some types meet the requirements and others have an offering that does.
    NotAllAtOnce,
}

/// A resource of which no allowed instance type has enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub resource: String,
    pub requested: Quantity,
    pub most: Most,
}

/// The most that instance types have of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Most {
    /// No type of the pool has any.
    NoType,
    /// Only types have any that the requirements exclude.
    NoAllowedType,
    /// Of its capacity, some is kept for the system and for daemons.
    Type { name: String, capacity: Quantity, for_pods: Quantity },
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resource, asked) = (&self.resource, amount_of(&self.resource, self.requested));
        match &self.most {
            Most::NoType => {
                write!(f, "no instance type has {resource}, and it asks for {}", self.requested)
            }
            Most::NoAllowedType => {
                write!(
                    f,
                    "no allowed instance type has {resource}, and it asks for {}",
                    self.requested
                )
            }
            Most::Type { name, capacity, for_pods } => {
                write!(f, "it asks for {asked}, and the largest allowed type ")?;
                if self.requested > *capacity {
                    write!(f, "has {capacity} ({name})")
                } else {
                    write!(f, "leaves {for_pods} to pods ({name})")
                }
            }
        }
    }
}

/// `64 CPU`, `8Gi of memory`, `2 of nvidia.com/gpu`.
fn amount_of(resource: &str, amount: Quantity) -> String {
    if resource == CPU { format!("{amount} CPU") } else { format!("{amount} of {resource}") }
}

impl FilterCause {
    /// A million cores: `m` for thousandths was written as `M` for millions.
    pub(crate) const ABSURD_CPU: Quantity = Quantity::from_units(1_000_000);
}

impl std::error::Error for FilterRefusal {}

/// The cause alone; [`FilterRefusal::details`] has what it was found with.
impl fmt::Display for FilterRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FilterCause as Cause;
        match &self.cause {
            Cause::MinValues(source) => source.fmt(f),
            Cause::TooLarge { shortages, cpu_is_absurd } => {
                let shortages: Vec<_> = shortages.iter().map(ToString::to_string).collect();
                f.write_str(&shortages.join("; "))?;
                if *cpu_is_absurd {
                    f.write_str(" (the cpu request is very high: m is a thousandth, M a million)")?;
                }
                Ok(())
            }
            Cause::NotTogether => {
                write!(
                    f,
                    "no allowed instance type has all of what it asks for at once: {}",
                    self.requests
                )
            }
            Cause::VolumeLimit { driver, volumes, most } => {
                let plural = if *volumes == 1 { "" } else { "s" };
                write!(
                    f,
                    "it mounts {volumes} volume{plural} of {driver}, and no allowed instance type can attach \
                     more than {most}"
                )
            }
            Cause::VolumeLimits => {
                f.write_str("no allowed instance type can attach all of its volumes")
            }
            Cause::HostPorts => f.write_str(
                "daemons of every allowed instance type use a host port that it asks for",
            ),
            Cause::Daemons => f.write_str("its daemons leave no room on any allowed instance type"),
            Cause::NoRequirements(None) => f.write_str("no instance type meets all requirements"),
            Cause::NoRequirements(Some(one)) => {
                write!(f, "no instance type meets all requirements: none has {one}")
            }
            Cause::NoOffering(None) => f.write_str("no instance type has a required offering"),
            Cause::NoOffering(Some(one)) => {
                write!(f, "no instance type has a required offering: none is offered with {one}")
            }
            Cause::NotAllAtOnce => f.write_str(
                "no instance type that meets the scheduling requirements has a required offering",
            ),
        }
    }
}

impl FilterRefusal {
    /// The requirements and amounts that types were held against: long, and rarely needed.
    pub fn details(&self) -> String {
        let mut text = format!("requirements={}, resources={}", self.requirements, self.requests);
        match &self.daemons {
            (least, most) if least == most && least.is_empty() => {}
            (least, most) if least == most => text = format!("{text}, daemons={least}"),
            (least, most) => text = format!("{text}, daemons from {least} to {most}"),
        }
        text
    }
}
