//! What is shown of a cluster, as plain values.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kerf_model::{Price, Quantity};

/// A cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What is looked at: a context, a file, a policy.
    pub subject: String,
    pub now: Timestamp,
    pub nodes: Vec<NodeRow>,
    /// Pods that are bound to nodes.
    pub pods: usize,
    /// Pods that wait for a place.
    pub pending: usize,
    /// What the reader has to know to trust the rest.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct NodeRow {
    pub name: String,
    /// `None`: no NodePool made it.
    pub pool: Option<String>,
    pub instance_type: Option<String>,
    pub capacity_type: Option<String>,
    pub zone: Option<String>,
    /// `None`: not known.
    pub price: Option<Price>,
    pub cpu: Fill,
    pub memory: Fill,
    pub pods: usize,
    pub created: Option<Timestamp>,
    pub fate: Fate,
}

/// What pods ask for beside what there is for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill {
    pub requested: Quantity,
    pub allocatable: Quantity,
}

/// Why a node stays, or would go, or goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Starting,
    /// It has been decided, by whoever runs this cluster.
    Leaving {
        reason: String,
    },
    /// What Kerf would do with it by itself.
    WouldGo {
        /// `delete` or `replace`.
        decision: &'static str,
        reason: String,
        saves: Option<Price>,
    },
    Stays {
        /// The name in metrics.
        reason: &'static str,
        message: String,
    },
    /// Nobody was asked.
    Unknown,
}

impl Fill {
    /// 0 where there is nothing to fill.
    pub fn share(&self) -> f64 {
        let all = self.allocatable.as_f64();
        if all > 0.0 { self.requested.as_f64() / all } else { 0.0 }
    }

    fn of<'a>(fills: impl Iterator<Item = &'a Self> + Clone) -> Self {
        Self {
            requested: fills.clone().map(|fill| fill.requested).sum(),
            allocatable: fills.map(|fill| fill.allocatable).sum(),
        }
    }
}

impl Fate {
    /// What is said of it in a word, for a filter and for narrow columns.
    pub(crate) fn short(&self) -> String {
        match self {
            Self::Starting => "starting".to_owned(),
            Self::Leaving { reason } => format!("goes: {reason}"),
            Self::WouldGo { reason, .. } => format!("would go: {reason}"),
            Self::Stays { reason, .. } => format!("stays: {reason}"),
            Self::Unknown => String::new(),
        }
    }

    /// Where there is no room for more: of those that stay the reason, of others that they do not.
    pub(crate) fn tiny(&self) -> String {
        match self {
            Self::Leaving { .. } => "goes".to_owned(),
            Self::WouldGo { .. } => "would go".to_owned(),
            Self::Stays { reason, .. } => (*reason).to_owned(),
            Self::Starting | Self::Unknown => self.short(),
        }
    }

    /// The same with all there is to say.
    pub(crate) fn long(&self) -> String {
        match self {
            Self::WouldGo { decision, reason, saves } => {
                let saves = saves.map(|saves| format!(", saves {saves}")).unwrap_or_default();
                format!("would go: {decision} ({reason}){saves}")
            }
            Self::Stays { message, .. } => format!("stays: {message}"),
            _ => self.short(),
        }
    }
}

/// Sums over nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) price: Price,
    /// Nodes whose price is not known.
    pub(crate) unpriced: usize,
    pub(crate) cpu: Fill,
    pub(crate) memory: Fill,
    pub(crate) starting: usize,
    pub(crate) leaving: usize,
    pub(crate) would_go: usize,
    /// What those that would go save. Each by itself: two may count on the same room.
    pub(crate) saves: Price,
}

impl Sums {
    pub(crate) fn of<'a>(nodes: impl Iterator<Item = &'a NodeRow> + Clone) -> Self {
        let fates = |is: fn(&Fate) -> bool| nodes.clone().filter(|node| is(&node.fate)).count();
        Self {
            nodes: nodes.clone().count(),
            pods: nodes.clone().map(|node| node.pods).sum(),
            price: nodes.clone().filter_map(|node| node.price).sum(),
            unpriced: nodes.clone().filter(|node| node.price.is_none()).count(),
            cpu: Fill::of(nodes.clone().map(|node| &node.cpu)),
            memory: Fill::of(nodes.clone().map(|node| &node.memory)),
            starting: fates(|fate| matches!(fate, Fate::Starting)),
            leaving: fates(|fate| matches!(fate, Fate::Leaving { .. })),
            would_go: fates(|fate| matches!(fate, Fate::WouldGo { .. })),
            saves: nodes
                .filter_map(|node| match node.fate {
                    Fate::WouldGo { saves, .. } => saves,
                    _ => None,
                })
                .sum(),
        }
    }
}

impl View {
    pub(crate) fn sums(&self) -> Sums {
        Sums::of(self.nodes.iter())
    }

    /// The places of these nodes, by pool. Those of no pool come last.
    pub(crate) fn by_pool(&self, order: &[usize]) -> Vec<(Option<&str>, Vec<usize>)> {
        let mut pools: BTreeMap<(bool, &str), Vec<usize>> = BTreeMap::new();
        for index in order {
            let pool = self.nodes[*index].pool.as_deref();
            pools.entry((pool.is_none(), pool.unwrap_or_default())).or_default().push(*index);
        }
        let named = |((none, name), nodes)| (if none { None } else { Some(name) }, nodes);
        pools.into_iter().map(named).collect()
    }
}
