//! What is shown of a cluster that lives by a scenario.

use kerf_simulation::{Decision, DecisionKind, Ledger, Node, State};
use kerf_view::{Fate, Fill, Happening, Kind, NodeRow, Side, View};

/// The cluster now. What happened before `known` decisions is not told again.
pub(super) fn side(ledger: &Ledger, name: &str, known: usize) -> Side {
    Side {
        name: name.to_owned(),
        view: view(ledger),
        launched: ledger.totals().launched,
        evictions: ledger.totals().evictions,
        cost: ledger.totals().cost(),
        history: Vec::new(),
        happenings: ledger.decisions()[known..].iter().map(happening).collect(),
    }
}

fn view(ledger: &Ledger) -> View {
    View {
        subject: ledger.policy().to_owned(),
        now: ledger.now(),
        nodes: ledger.nodes().iter().map(|(claim, node)| row(claim, node)).collect(),
        pods: ledger.running_pods(),
        pending: ledger.pending_pods(),
        notes: Vec::new(),
    }
}

fn row(claim: &str, node: &Node) -> NodeRow {
    let fill = |resource: &str| Fill {
        requested: node.requested.amount(resource),
        allocatable: node.allocatable.amount(resource),
    };
    let fate = match (&node.state, &node.reason) {
        (State::Starting, _) => Fate::Starting,
        (_, Some(reason)) => Fate::Leaving { reason: reason.clone() },
        (State::Leaving, None) => Fate::Leaving { reason: "deleted".to_owned() },
        (State::Ready, None) => Fate::Unknown,
    };
    NodeRow {
        name: claim.to_owned(),
        pool: Some(node.pool.clone()),
        instance_type: Some(node.instance_type().to_owned()),
        capacity_type: Some(node.capacity_type().to_owned()),
        zone: Some(node.zone().to_owned()),
        price: Some(node.price),
        cpu: fill("cpu"),
        memory: fill("memory"),
        pods: node.pods,
        created: Some(node.launched),
        fate,
    }
}

fn happening(decision: &Decision) -> Happening {
    Happening { at: decision.at, kind: kind(decision.kind), text: decision.text.clone(), count: 1 }
}

pub(super) fn kind(kind: DecisionKind) -> Kind {
    match kind {
        DecisionKind::Launch => Kind::Launch,
        DecisionKind::Remove => Kind::Remove,
        DecisionKind::Refuse => Kind::Refuse,
        DecisionKind::Change => Kind::Change,
    }
}
