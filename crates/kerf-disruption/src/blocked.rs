//! Why a node is left alone. Each reason carries its numbers; events, metrics, logs and `kerf explain` are made from it.

use jiff::Timestamp;
use kerf_api::DisruptionReason;
use kerf_model::{Price, churn::Fraction, estate::Cost};

/// Why a node is not disrupted.
#[derive(Clone, Debug, PartialEq)]
pub enum Blocked {
    // Of the node, whatever the method.
    InQueue,
    NotManaged,
    NoNode,
    NotInitialized,
    Leaving,
    Nominated { until: Timestamp },
    NodeDoNotDisrupt,
    NoPoolLabel,
    PoolNotFound { pool: String },
    Pod { pod: String, block: PodBlock },
    // Of the pool.
    StaticPool,
    ConsolidationDisabled { pool: String },
    PolicyWhenEmpty { pool: String },
    Budget { pool: String, reason: DisruptionReason },
    // Of the node, for consolidation.
    InstanceTypeNotFound { name: String },
    NoCapacityType,
    NoZone,
    NotConsolidatable,
    GracePeriod { until: Timestamp },
    Utilization { have: Fraction, threshold: Fraction },
    // Of the simulation.
    NoFeasibleSchedule { pods: Vec<String> },
    UninitializedDestination { pod: String, node: String },
    MultipleReplacements { needed: usize },
    // Of the price.
    NotCheaper { price: Price, cheapest: Option<Price> },
    PriceFactor { price: Price, factor: Fraction, cheapest: Price },
    SavingsThreshold { savings: Price, required: Price, cost: Cost },
    UnknownPrice,
    MinValues { detail: String },
    SpotToSpotDisabled,
    SpotFlexibility { have: usize, need: usize },
    SameType,
    Score { score: f64, threshold: f64 },
    // Of what happened since.
    ValidationChurn,
    ValidationBudget,
    ValidationSchedule,
    PromisedSavingsLost { price: Price, at_most: Price },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodBlock {
    DoNotDisrupt,
    Budget(String),
    SeveralBudgets(Vec<String>),
}

impl Blocked {
    /// The name in `karpenter_consolidation_blocked_total{reason}`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::InQueue | Self::Leaving => "already_disrupted",
            Self::NotManaged | Self::NoNode | Self::NotInitialized | Self::NoPoolLabel => {
                "not_ready"
            }
            Self::Nominated { .. } => "nominated",
            Self::NodeDoNotDisrupt | Self::Pod { block: PodBlock::DoNotDisrupt, .. } => {
                "do_not_disrupt"
            }
            Self::Pod { .. } => "pdb",
            Self::PoolNotFound { .. } => "pool_not_found",
            Self::StaticPool => "static_pool",
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
            Self::Utilization { .. } => "utilization",
            Self::NoFeasibleSchedule { .. } | Self::UninitializedDestination { .. } => {
                "no_feasible_schedule"
            }
            Self::MultipleReplacements { .. } => "multiple_replacements",
            Self::NotCheaper { .. } | Self::SameType => "same_or_more_expensive_replacement",
            Self::PriceFactor { .. } => "price_factor",
            Self::SavingsThreshold { .. } => "savings_threshold",
            Self::MinValues { .. } => "min_values",
            Self::SpotToSpotDisabled | Self::SpotFlexibility { .. } => "spot_flexibility",
            Self::Score { .. } => "score",
            Self::ValidationChurn | Self::ValidationSchedule => "validation_churn",
            Self::ValidationBudget => "validation_budget",
            Self::PromisedSavingsLost { .. } => "promised_savings_lost",
        }
    }
}
