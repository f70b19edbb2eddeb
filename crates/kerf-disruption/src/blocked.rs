//! Why a node is left alone. Each reason carries its numbers; events, metrics, logs and `kerf explain` are made from it.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use kerf_api::{
    DisruptionReason, Setback,
    annotations::{DO_NOT_DISRUPT, DO_NOT_REPAIR},
};
use kerf_model::{
    Price,
    churn::Fraction,
    disruption::{Cost, Obstacle},
    labels::{CAPACITY_TYPE, NODE_POOL, ZONE},
};

use kerf_scheduler::Refusal;

use crate::{
    budgets::Allowance, setback::PoolRest, static_capacity::Held, terminate_first::NotNow,
};

/// Why a node is not disrupted.
#[derive(Clone, Debug, PartialEq)]
pub enum Blocked {
    // Of the node, whatever the method.
    InQueue,
    NotManaged,
    NoNode,
    Rebooting,
    NotRegistered,
    NotInitialized,
    Leaving,
    Nominated {
        until: Timestamp,
    },
    NodeDoNotDisrupt,
    /// It, its claim or one of its pods.
    Unreadable {
        what: String,
    },
    NoPoolLabel,
    PoolNotFound {
        pool: String,
    },
    /// The pool is there, but not what it can launch.
    UnknownInstanceTypes {
        pool: String,
    },
    Pod {
        pod: String,
        obstacle: Obstacle,
    },
    // Of the pool.
    StaticPool,
    /// Its pool is not one that keeps a number of nodes.
    NotStatic,
    /// Its static pool cannot replace it now.
    Static(Held),
    /// It would have to go before its replacement comes, and not now.
    NotNow(NotNow),
    ConsolidationDisabled {
        pool: String,
    },
    PolicyWhenEmpty {
        pool: String,
    },
    Budget {
        pool: String,
        reason: DisruptionReason,
        allowance: Allowance,
    },
    // Of the node, for one method.
    NotEmpty {
        pods: usize,
    },
    /// It has no pods that would have to move, and room that a buffer keeps.
    BufferPods {
        node: String,
    },
    NotDrifted,
    /// Removing it is a matter of Emptiness and its budget.
    Empty,
    InstanceTypeNotFound {
        name: String,
    },
    NoCapacityType,
    NoZone,
    NotConsolidatable,
    GracePeriod {
        until: Timestamp,
    },
    /// Its pods would fit, but on a node that takes none from consolidation yet.
    DestinationGracePeriod {
        node: String,
        until: Timestamp,
    },
    Utilization {
        have: Fraction,
        threshold: Fraction,
    },
    // Of a node that is unhealthy, or may be.
    Healthy,
    /// A condition that a policy is about, but not yet.
    Tolerated {
        condition: String,
        status: String,
        until: Timestamp,
    },
    DoNotRepair,
    /// A NodeClaim of no pool: nothing says what a replacement would have to be, or how many may go at a time.
    RepairWithoutPool,
    /// A pod may not be evicted, and nothing bounds how long the drain waits for it.
    UnboundedDrain {
        pod: String,
        obstacle: Obstacle,
    },
    TooManyUnhealthy(TooManyUnhealthy),
    // Of the simulation.
    NoFeasibleSchedule {
        pods: Vec<Homeless>,
    },
    /// A pass counts no further than it has to.
    MultipleReplacements {
        at_least: usize,
    },
    // Of the price.
    NotCheaper {
        price: Price,
        /// `None`: unknown, or not computed because it was already clear that it is not less.
        cheapest: Option<Price>,
    },
    PriceFactor {
        /// The pool with the strictest factor.
        pool: String,
        price: Price,
        factor: Fraction,
        cheapest: Price,
    },
    SavingsThreshold {
        pool: String,
        savings: Price,
        required: Price,
        cost: Cost,
    },
    UnknownPrice,
    MinValues {
        detail: String,
    },
    SpotToSpotDisabled,
    SpotFlexibility {
        have: usize,
        need: usize,
        removed: Removed,
    },
    SameType,
    Score {
        pool: String,
        score: f64,
        threshold: f64,
    },
    // Of what happened since, or before.
    /// What was to come would exceed a limit of its pool.
    Limit {
        detail: String,
    },
    /// Replacing it failed, and another replacement has to wait.
    Setback(Setback),
    /// Replacing nodes of its pool failed again and again.
    PoolRests(PoolRest),
    ValidationChurn,
    ValidationBudget,
    ValidationSchedule,
    PromisedSavingsLost {
        price: Price,
        at_most: Price,
    },
}

/// More nodes of a pool are unhealthy than are repaired: something else than the nodes is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooManyUnhealthy {
    pub pool: String,
    pub unhealthy: usize,
    pub nodes: usize,
    pub percent: u8,
    /// How many of the unhealthy ones are in each zone.
    pub zones: BTreeMap<String, usize>,
}

impl fmt::Display for TooManyUnhealthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, unhealthy, nodes, percent, zones } = self;
        write!(
            f,
            "more than {percent}% of nodes in nodepool \"{pool}\" are unhealthy (unhealthy={unhealthy}, nodes={nodes}"
        )?;
        for (place, (zone, nodes)) in zones.iter().enumerate() {
            f.write_str(if place == 0 { "; " } else { ", " })?;
            write!(f, "{zone}={nodes}")?;
        }
        f.write_str(")")
    }
}

/// How many cheaper instance types the churn controls left out of a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub by_price_factor: usize,
    pub by_savings_threshold: usize,
}

impl fmt::Display for Removed {
    /// Goes on after a sentence; nothing where no control had a say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (factor, savings) = (self.by_price_factor, self.by_savings_threshold);
        match (factor, savings) {
            (0, 0) => Ok(()),
            (_, 0) => write!(f, "; the price improvement factor removed {factor}"),
            (0, _) => write!(f, "; the savings threshold removed {savings}"),
            _ => write!(
                f,
                "; the price improvement factor removed {factor} and the savings threshold {savings}"
            ),
        }
    }
}

/// A pod that would have no place, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Homeless {
    pub pod: String,
    pub refusal: Refusal,
}

impl Blocked {
    /// The name in `karpenter_consolidation_blocked_total{reason}`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::InQueue | Self::Leaving => "already_disrupted",
            Self::Rebooting => "rebooting",
            Self::NotManaged
            | Self::NoNode
            | Self::NotRegistered
            | Self::NotInitialized
            | Self::NoPoolLabel => "not_ready",
            Self::Nominated { .. } => "nominated",
            Self::Unreadable { .. } => "unreadable",
            Self::NodeDoNotDisrupt | Self::Pod { obstacle: Obstacle::DoNotDisrupt, .. } => {
                "do_not_disrupt"
            }
            Self::Pod { .. } => "pdb",
            Self::PoolNotFound { .. } => "pool_not_found",
            Self::UnknownInstanceTypes { .. } => "unknown_instance_types",
            Self::StaticPool => "static_pool",
            Self::NotStatic => "not_static",
            Self::Static(held) => held.name(),
            Self::NotNow(why) => why.name(),
            Self::ConsolidationDisabled { .. } | Self::PolicyWhenEmpty { .. } => {
                "consolidation_disabled"
            }
            Self::Budget { .. } => "budget",
            Self::InstanceTypeNotFound { .. }
            | Self::NoCapacityType
            | Self::NoZone
            | Self::UnknownPrice => "unknown_price",
            Self::NotConsolidatable => "not_consolidatable",
            Self::GracePeriod { .. } => "grace_period",
            Self::DestinationGracePeriod { .. } => "destination_grace_period",
            Self::Utilization { .. } => "utilization",
            Self::NotEmpty { .. } => "not_empty",
            Self::BufferPods { .. } => "buffer_pods",
            Self::NotDrifted => "not_drifted",
            Self::Empty => "empty",
            Self::Healthy => "healthy",
            Self::Tolerated { .. } => "tolerated",
            Self::DoNotRepair => "do_not_repair",
            Self::RepairWithoutPool => "repair_without_pool",
            Self::UnboundedDrain { .. } => "unbounded_drain",
            Self::TooManyUnhealthy(_) => "too_many_unhealthy",
            Self::NoFeasibleSchedule { .. } => "no_feasible_schedule",
            Self::MultipleReplacements { .. } => "multiple_replacements",
            Self::NotCheaper { .. } | Self::SameType => "same_or_more_expensive_replacement",
            Self::PriceFactor { .. } => "price_factor",
            Self::SavingsThreshold { .. } => "savings_threshold",
            Self::MinValues { .. } => "min_values",
            Self::SpotToSpotDisabled | Self::SpotFlexibility { .. } => "spot_flexibility",
            Self::Score { .. } => "score",
            Self::Limit { .. } => "limit",
            Self::Setback(_) => "setback",
            Self::PoolRests(_) => "pool_rests",
            Self::ValidationChurn | Self::ValidationSchedule => "validation_churn",
            Self::ValidationBudget => "validation_budget",
            Self::PromisedSavingsLost { .. } => "promised_savings_lost",
        }
    }
}

/// How many homeless pods a sentence names.
const SHOWN: usize = 5;

impl fmt::Display for Blocked {
    /// Where Karpenter has a message for it, that message, so that alerts and searches keep working.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InQueue => f.write_str("candidate is already being disrupted"),
            Self::NotManaged => f.write_str("node isn't managed by karpenter"),
            Self::NoNode => f.write_str("nodeclaim does not have an associated node"),
            Self::Rebooting => f.write_str("node is rebooting"),
            Self::NotRegistered => f.write_str("node isn't initialized nor registered"),
            Self::NotInitialized => f.write_str("node isn't initialized"),
            Self::Leaving => f.write_str("node is deleting or marked for deletion"),
            Self::Nominated { until } => {
                write!(f, "node is nominated for a pending pod (until={until})")
            }
            Self::NodeDoNotDisrupt => {
                write!(f, "disruption is blocked through the \"{DO_NOT_DISRUPT}\" annotation")
            }
            Self::Unreadable { what } => f.write_str(what),
            Self::NoPoolLabel => write!(f, "node doesn't have required label (label={NODE_POOL})"),
            Self::PoolNotFound { pool } => write!(f, "NodePool not found (NodePool={pool})"),
            Self::UnknownInstanceTypes { pool } => {
                write!(f, "the instance types of its NodePool are unknown (NodePool={pool})")
            }
            Self::Pod { pod, obstacle } => match obstacle {
                Obstacle::DoNotDisrupt => {
                    write!(f, "pod has \"{DO_NOT_DISRUPT}\" annotation (Pod={pod})")
                }
                Obstacle::Budget(budget) => write!(
                    f,
                    "pdb prevents pod evictions (PodDisruptionBudget=[{budget}], Pod={pod})"
                ),
                Obstacle::SeveralBudgets(budgets) => write!(
                    f,
                    "eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}], Pod={pod})",
                    budgets.join(" ")
                ),
            },
            Self::Static(held) => held.fmt(f),
            Self::NotNow(why) => why.fmt(f),
            Self::PoolRests(rest) => rest.fmt(f),
            Self::StaticPool => f.write_str("its NodePool is static and keeps its nodes"),
            Self::NotStatic => f.write_str("its NodePool is not static"),
            Self::ConsolidationDisabled { pool } => {
                write!(f, "NodePool \"{pool}\" has consolidation disabled")
            }
            Self::PolicyWhenEmpty { pool } => write!(
                f,
                "NodePool \"{pool}\" has consolidation policy WhenEmpty, but node is not empty"
            ),
            Self::Budget { pool, reason, allowance } => write!(
                f,
                "no allowed disruptions for disruption reason {} due to blocking budget \
                 (NodePool={pool}, nodes={}, allowed={}, disrupting={})",
                reason.as_str(),
                allowance.nodes,
                allowance.allowed,
                allowance.disrupting
            ),
            Self::NotEmpty { pods } => write!(f, "it has {pods} pods that would have to move"),
            Self::BufferPods { node } => write!(f, "Node \"{node}\" has buffer pods"),
            Self::NotDrifted => f.write_str("it is as its NodePool wants it"),
            Self::Empty => f.write_str("it is empty: emptiness removes it, not consolidation"),
            Self::Healthy => f.write_str("no repair policy is about its conditions"),
            Self::Tolerated { condition, status, until } => {
                write!(f, "condition {condition}={status} is tolerated until {until}, and the node is repaired then")
            }
            Self::DoNotRepair => {
                write!(f, "repair is blocked through the \"{DO_NOT_REPAIR}\" annotation")
            }
            Self::RepairWithoutPool => {
                f.write_str("repair requires a NodePool to construct and budget a safe replacement")
            }
            Self::UnboundedDrain { pod, .. } => write!(
                f,
                "repair requires a termination grace period to bypass blocking pods (Pod={pod})"
            ),
            Self::TooManyUnhealthy(many) => many.fmt(f),
            Self::InstanceTypeNotFound { name } => write!(f, "Instance Type \"{name}\" not found"),
            Self::NoCapacityType => write!(f, "Node does not have label \"{CAPACITY_TYPE}\""),
            Self::NoZone => write!(f, "Node does not have label \"{ZONE}\""),
            Self::NotConsolidatable => {
                f.write_str("its NodeClaim is not Consolidatable: consolidateAfter has not passed since a pod came or went")
            }
            Self::GracePeriod { until } => {
                write!(f, "a pod came or went, and the grace period lasts until {until}")
            }
            Self::DestinationGracePeriod { node, until } => write!(
                f,
                "its pods would go to node {node}, where a pod came or went; the grace period of that node lasts until {until}"
            ),
            Self::Utilization { have, threshold } => {
                write!(f, "utilization {have} is above the threshold {threshold}")
            }
            Self::NoFeasibleSchedule { pods } => {
                f.write_str("Not all pods would schedule")?;
                for one in pods.iter().take(SHOWN) {
                    write!(f, ", {} => {}", one.pod, one.refusal)?;
                }
                match pods.len().saturating_sub(SHOWN) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::MultipleReplacements { at_least } => {
                write!(f, "Can't remove without creating {at_least} candidates or more")
            }
            Self::NotCheaper { price, cheapest } => {
                f.write_str("Can't replace with a cheaper node")?;
                match *cheapest {
                    Some(cheapest) => {
                        let (own, other) = (price.beside(cheapest), cheapest.beside(*price));
                        write!(f, " (price={own}, cheapest={other})")
                    }
                    None => write!(f, " (price={price})"),
                }
            }
            Self::PriceFactor { price, factor, cheapest, .. } => write!(
                f,
                "the cheapest replacement costs {cheapest}, which is not less than {factor} of {price}"
            ),
            Self::SavingsThreshold { savings, required, cost, .. } => write!(
                f,
                "it would save {}, and {} is required for a disruption cost of {:.2}",
                savings.beside(*required),
                required.beside(*savings),
                cost.as_f64()
            ),
            Self::UnknownPrice => f.write_str("its price is unknown"),
            Self::MinValues { detail } => write!(f, "Filtering by price: {detail}"),
            Self::SpotToSpotDisabled => f.write_str(
                "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
            ),
            Self::SpotFlexibility { have, need, removed } => write!(
                f,
                "SpotToSpotConsolidation requires {need} cheaper instance type options than the current \
                 candidate to consolidate, got {have}{removed}"
            ),
            Self::SameType => f.write_str(
                "the replacement would be of a type that is being removed, at the same or a higher price",
            ),
            Self::Score { score, threshold, .. } => {
                write!(f, "score {score:.2} is below the threshold {threshold:.2}")
            }
            Self::Limit { detail } => write!(f, "its replacement cannot be created: {detail}"),
            Self::Setback(Setback { failures, until, message, .. }) => {
                let times = if *failures == 1 { "once".to_owned() } else { format!("{failures} times") };
                write!(f, "replacing it failed {times}, and is not tried again before {} ({message})", until.0)
            }
            Self::ValidationChurn => f.write_str("a node is no longer a candidate"),
            Self::ValidationBudget => {
                f.write_str("a node has been nominated, or budgets no longer allow it")
            }
            Self::ValidationSchedule => f.write_str("its pods would no longer go where they were planned to go"),
            Self::PromisedSavingsLost { price, at_most } => write!(
                f,
                "the replacement costs {} and may cost at most {}",
                price.beside(*at_most),
                at_most.beside(*price)
            ),
        }
    }
}
