//! A window into a running operator: what it knows of the cluster, what it did, and what it refused. Looking changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use jiff::Timestamp;
use kerf_cluster::{snapshot::Inputs, validation::InvalidPod};
use kerf_disruption::{Method, Refused};
use kerf_model::Snapshot;
use kerf_runtime::{
    events::{Recorder, Severity},
    journal::{Journal, Subject},
};
use kerf_scheduler::Plan;

use crate::{context::Context, disruption::Commands, provisioning};

/// Can be looked through from any thread, before the operator runs and after. Cloning shares it.
///
/// The default is a window behind which nothing is kept, for operators that nobody watches.
#[derive(Clone, Debug, Default)]
pub struct Window(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_watched: bool,
    context: OnceLock<Weak<Context>>,
    commands: OnceLock<Commands>,
    journal: Journal,
    refusals: Mutex<Refusals>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("journal", &self.journal).finish_non_exhaustive()
    }
}

/// The cluster as the operator sees it.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub snapshot: Snapshot,
    /// Whether this operator acts, or waits for its turn.
    pub leads: bool,
    pub refusals: Refusals,
}

/// What stands against what would otherwise be done, as the loops that lead found it last.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    /// By node, what was said last.
    pub nodes: BTreeMap<String, NodeRefusal>,
    /// Pods without a place in the last plan, as `namespace/name`.
    pub pods: Vec<PodRefusal>,
    changes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRefusal {
    pub at: Timestamp,
    /// `None`: it is no candidate for any method.
    pub method: Option<Method>,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRefusal {
    pub pod: String,
    pub reason: &'static str,
    pub message: String,
}

/// Why there is nothing to see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NothingToSee {
    #[error("the operator is starting")]
    Starting,
    #[error("the operator reads the cluster for the first time")]
    NotListed,
    #[error("the cluster cannot be read: {0}")]
    Unreadable(String),
}

/// What a look rests on: as long as it is the same, only time makes a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    index: u64,
    journal: u64,
    refusals: u64,
    leads: bool,
}

impl Window {
    /// A window through which someone looks.
    pub fn watched() -> Self {
        Self(Arc::new(Shared { is_watched: true, ..Shared::default() }))
    }

    /// What the operator did and said.
    pub fn journal(&self) -> &Journal {
        &self.0.journal
    }

    /// The operator's time, once it runs.
    pub fn now(&self) -> Option<Timestamp> {
        self.context().map(|context| context.now())
    }

    pub fn mark(&self) -> Mark {
        let context = self.context();
        Mark {
            index: context.as_ref().map_or(0, |context| context.index.changes()),
            journal: self.0.journal.writes(),
            refusals: self.refusals().changes,
            leads: context.is_some_and(|context| context.index.leads()),
        }
    }

    pub async fn look(&self) -> Result<Look, NothingToSee> {
        let context = self.context().ok_or(NothingToSee::Starting)?;
        if !context.index.read().listed() {
            return Err(NothingToSee::NotListed);
        }
        let pools = provisioning::pools_with_classes(&context, |_| true);
        let inputs =
            crate::snapshot_inputs(&*context.provider, &context.settings, &pools, context.now())
                .await;
        let in_queue = self.0.commands.get().map(Commands::candidates).unwrap_or_default();
        let taken = context.index.read().snapshot(Inputs { in_queue, ..inputs });
        let taken = taken.map_err(|why| NothingToSee::Unreadable(why.to_string()))?;
        let refusals = self.refusals().clone();
        Ok(Look { snapshot: taken.snapshot, leads: context.index.leads(), refusals })
    }

    /// The recorder, which writes into the journal if that is read.
    pub(crate) fn attach(&self, recorder: Recorder) -> Recorder {
        if self.0.is_watched { recorder.with_journal(self.0.journal.clone()) } else { recorder }
    }

    /// Keeps what no event says.
    pub(crate) fn write(&self, now: Timestamp, reason: &str, about: Subject, message: &str) {
        if self.0.is_watched {
            self.0.journal.write(now, Severity::Normal, reason, about, message);
        }
    }

    pub(crate) fn open(&self, context: &Arc<Context>) {
        // A window is for one operator.
        let _ = self.0.context.set(Arc::downgrade(context));
    }

    pub(crate) fn follow(&self, commands: Commands) {
        let _ = self.0.commands.set(commands);
    }

    /// Takes in what a pass said of nodes. A pass does not look at every node again, so what was said before holds until
    /// something else is said or the node is gone.
    pub(crate) fn refused(&self, snapshot: &Snapshot, refused: &[Refused]) {
        if !self.0.is_watched {
            return;
        }
        let mut refusals = self.refusals();
        let here: BTreeSet<&str> = snapshot.nodes.iter().map(|node| node.name.as_str()).collect();
        refusals.nodes.retain(|name, _| here.contains(name.as_str()));
        for Refused { node, method, why, .. } in refused {
            let (reason, message) = (why.name(), why.to_string());
            let refusal = NodeRefusal { at: snapshot.now, method: *method, reason, message };
            refusals.nodes.insert(node.clone(), refusal);
        }
        refusals.changes += 1;
    }

    /// Nodes that go are refused nothing.
    pub(crate) fn goes<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) {
        let mut refusals = self.refusals();
        for node in nodes {
            refusals.nodes.remove(node);
        }
        refusals.changes += 1;
    }

    /// Takes in what a plan has no place for.
    pub(crate) fn unplaced(&self, plan: Option<&Plan>, left_out: &[InvalidPod]) {
        if !self.0.is_watched {
            return;
        }
        let failures = plan.iter().flat_map(|plan| &plan.failures).map(|failure| PodRefusal {
            pod: failure.pod.key(),
            reason: failure.refusal.name(),
            message: failure.refusal.to_string(),
        });
        let invalid = left_out.iter().filter(|one| !one.wants_no_pool()).map(|one| PodRefusal {
            pod: one.pod.to_string(),
            reason: one.problems.first().map_or("Invalid", |problem| problem.name()),
            message: one.to_string(),
        });
        let pods: Vec<_> = failures.chain(invalid).collect();
        let mut refusals = self.refusals();
        if refusals.pods != pods {
            refusals.pods = pods;
            refusals.changes += 1;
        }
    }

    fn context(&self) -> Option<Arc<Context>> {
        self.0.context.get()?.upgrade()
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_disruption::Blocked;
    use kerf_model::Node;

    fn snapshot(nodes: &[&str]) -> Snapshot {
        let node = |name: &&str| Arc::new(Node { name: (*name).into(), ..Node::default() });
        Snapshot { nodes: nodes.iter().map(node).collect(), ..Snapshot::default() }
    }

    fn refused(node: &str, method: Option<Method>, why: Blocked) -> Refused {
        Refused { node: node.into(), claim: None, pool: None, method, why }
    }

    #[test]
    fn the_last_word_about_a_node_holds_until_it_goes() {
        let window = Window::watched();
        let told = |window: &Window| -> Vec<(String, &'static str)> {
            let refusals = window.refusals();
            refusals.nodes.iter().map(|(node, why)| (node.clone(), why.reason)).collect()
        };
        let single = Some(Method::SingleNode);
        window.refused(
            &snapshot(&["a", "b"]),
            &[
                refused("a", None, Blocked::NoNode),
                refused("b", single, Blocked::NotConsolidatable),
                refused("b", single, Blocked::UnknownPrice),
            ],
        );
        let both = [("a".to_owned(), "not_ready"), ("b".to_owned(), "unknown_price")];
        assert_eq!(told(&window), both);
        window.refused(&snapshot(&["a", "b"]), &[]);
        assert_eq!(told(&window), both, "it was not looked at again");
        window.refused(&snapshot(&["b"]), &[]);
        assert_eq!(told(&window), both[1..], "a is gone");
        let mark = window.mark();
        window.goes(["b"]);
        assert_eq!(told(&window), []);
        assert_ne!(window.mark(), mark);
    }
}
