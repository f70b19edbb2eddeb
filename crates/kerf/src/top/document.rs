//! What `kerf top -o json` prints: one document per refresh.

use jiff::Timestamp;
use kerf_model::Price;
use kerf_view::{Fate, Fill, NodeRow, View};
use serde::Serialize;

use crate::output::{self, Answer};

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document<'v> {
    #[cfg_attr(test, schemars(with = "String"))]
    judged_at: Timestamp,
    /// Which cluster, or which files.
    subject: &'v str,
    totals: Totals,
    nodes: Vec<NodeReport<'v>>,
    notes: &'v [String],
}

impl Answer for Document<'_> {
    const KIND: &'static str = "Top";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct Totals {
    nodes: usize,
    pods: usize,
    pending: usize,
    /// Of the nodes whose price is known.
    #[cfg_attr(test, schemars(with = "String"))]
    price_per_hour: Price,
    nodes_of_unknown_price: usize,
    would_go: usize,
    leaving: usize,
    starting: usize,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct NodeReport<'v> {
    node: &'v str,
    pool: Option<&'v str>,
    instance_type: Option<&'v str>,
    capacity_type: Option<&'v str>,
    zone: Option<&'v str>,
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    price_per_hour: Option<Price>,
    cpu: FillReport,
    memory: FillReport,
    pods: usize,
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    created: Option<Timestamp>,
    /// `starting`, `leaving`, `wouldGo`, `stays` or `unknown`.
    fate: &'static str,
    /// `delete` or `replace`, if it would go.
    decision: Option<&'static str>,
    reason: Option<&'v str>,
    message: Option<&'v str>,
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    savings_per_hour: Option<Price>,
}

/// As Kubernetes writes amounts.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct FillReport {
    requested: String,
    allocatable: String,
}

/// One line, so that a stream of them can be read line by line.
pub(super) fn line(view: &View) -> serde_json::Result<String> {
    let count = |is: fn(&Fate) -> bool| view.nodes.iter().filter(|node| is(&node.fate)).count();
    let prices = view.nodes.iter().map(|node| node.price);
    let document = Document {
        judged_at: view.now,
        subject: &view.subject,
        totals: Totals {
            nodes: view.nodes.len(),
            pods: view.pods,
            pending: view.pending,
            price_per_hour: prices.clone().flatten().sum(),
            nodes_of_unknown_price: prices.filter(Option::is_none).count(),
            would_go: count(|fate| matches!(fate, Fate::WouldGo { .. })),
            leaving: count(|fate| matches!(fate, Fate::Leaving { .. })),
            starting: count(|fate| matches!(fate, Fate::Starting)),
        },
        nodes: view.nodes.iter().map(NodeReport::new).collect(),
        notes: &view.notes,
    };
    output::line(&document)
}

impl<'v> NodeReport<'v> {
    fn new(node: &'v NodeRow) -> Self {
        let (fate, decision, reason, message, savings) = match &node.fate {
            Fate::Starting => ("starting", None, None, None, None),
            Fate::Leaving { reason } => ("leaving", None, Some(reason.as_str()), None, None),
            Fate::WouldGo { decision, reason, saves } => {
                ("wouldGo", Some(*decision), Some(reason.as_str()), None, *saves)
            }
            Fate::Stays { reason, message } => {
                ("stays", None, Some(*reason), Some(message.as_str()), None)
            }
            Fate::Unknown => ("unknown", None, None, None, None),
        };
        Self {
            node: &node.name,
            pool: node.pool.as_deref(),
            instance_type: node.instance_type.as_deref(),
            capacity_type: node.capacity_type.as_deref(),
            zone: node.zone.as_deref(),
            price_per_hour: node.price,
            cpu: FillReport::new(node.cpu),
            memory: FillReport::new(node.memory),
            pods: node.pods,
            created: node.created,
            fate,
            decision,
            reason,
            message,
            savings_per_hour: savings,
        }
    }
}

impl FillReport {
    fn new(fill: Fill) -> Self {
        Self { requested: fill.requested.to_string(), allocatable: fill.allocatable.to_string() }
    }
}
