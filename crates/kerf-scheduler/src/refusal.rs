//! Why a pod cannot be placed. Values, not text: a caller that wants text prints them.

use std::fmt;

use kerf_model::pod::TooManyConstraints;
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
    #[error("it asks for {amount} of {resource}, which no node has and no instance type offers")]
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

/// What instance types lacked, over all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterCause {
    MinValues(TooFewValues),
    /// None passes any of the three checks.
    Nothing,
    NoRequirementsNorRoom,
    NoRequirementsNorOffering,
    NoRoomNorOffering,
    NoRequirements,
    /// The hint is given for a request so large that a unit was probably mistyped.
    NoRoom {
        cpu_is_absurd: bool,
    },
    NoOffering,
    /// Some pass two checks, but those fail the third.
    RequirementsAndRoomButNoOffering,
    RoomAndOfferingButNoRequirements,
    RequirementsAndOfferingButNoRoom,
    /// Every check is passed by some, none is passed by all.
    NotAllAtOnce,
}

impl FilterCause {
    /// A million cores: `m` for thousandths was written as `M` for millions.
    pub(crate) const ABSURD_CPU: Quantity = Quantity::from_units(1_000_000);
}

impl std::error::Error for FilterRefusal {}

impl fmt::Display for FilterRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FilterCause as Cause;
        let cause = match &self.cause {
            Cause::MinValues(source) => return self.with_details(f, &source.to_string()),
            Cause::Nothing => {
                "no instance type meets the scheduling requirements, has enough resources or has a required offering"
            }
            Cause::NoRequirementsNorRoom => {
                "no instance type meets the scheduling requirements or has enough resources"
            }
            Cause::NoRequirementsNorOffering => {
                "no instance type meets the scheduling requirements or has a required offering"
            }
            Cause::NoRoomNorOffering => {
                "no instance type has enough resources or a required offering"
            }
            Cause::NoRequirements => "no instance type meets all requirements",
            Cause::NoRoom { cpu_is_absurd: false } => "no instance type has enough resources",
            Cause::NoRoom { cpu_is_absurd: true } => {
                "no instance type has enough resources (the cpu request is very high: m is a thousandth, M a million)"
            }
            Cause::NoOffering => "no instance type has a required offering",
            Cause::RequirementsAndRoomButNoOffering => {
                "no instance type that meets the scheduling requirements and has enough resources has a required offering"
            }
            Cause::RoomAndOfferingButNoRequirements => {
                "no instance type that has enough resources and a required offering meets the scheduling requirements"
            }
            Cause::RequirementsAndOfferingButNoRoom => {
                "no instance type that meets the scheduling requirements and has a required offering has enough resources"
            }
            Cause::NotAllAtOnce => {
                "no instance type meets the requirements, resources and offering at once"
            }
        };
        self.with_details(f, cause)
    }
}

impl FilterRefusal {
    fn with_details(&self, f: &mut fmt::Formatter<'_>, cause: &str) -> fmt::Result {
        write!(f, "{cause}, requirements={}, resources={}", self.requirements, self.requests)?;
        match &self.daemons {
            (least, most) if least == most && least.is_empty() => Ok(()),
            (least, most) if least == most => write!(f, ", daemons={least}"),
            (least, most) => write!(f, ", daemons from {least} to {most}"),
        }
    }
}
