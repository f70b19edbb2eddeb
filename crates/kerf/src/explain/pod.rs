//! One pod as a value: why it is pending, where it would go, or whether it holds its node.

use std::collections::BTreeMap;

use kerf_cluster::{Key, pods, snapshot::Taken};
use kerf_disruption::{Blocked, explain::Explainer};
use kerf_model::Snapshot;
use kerf_scheduler::Options;
use serde::Serialize;

use super::{
    shown,
    verdict::{Outcome, Refusal, Verdict},
};
use crate::{
    output::Answer,
    plan::{Claim, Moment, Objects, PlanError, Refused},
};

pub(super) mod text;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) verdict: Verdict,
    pub(crate) pod: String,
    #[serde(flatten)]
    moment: Moment,
    /// Where it runs, or would.
    node: Option<String>,
    /// What becomes of the node that it runs on.
    node_verdict: Option<Verdict>,
    /// The node that would be launched for it.
    new_node: Option<Claim>,
    /// Missing where the pod cannot be read.
    requests: Option<BTreeMap<String, String>>,
    /// What each pool has against it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pools: Vec<Refused>,
}

/// What is asked about, and what is known.
pub(crate) struct Question<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) taken: &'a Taken,
    pub(crate) explainer: &'a Explainer<'a>,
    pub(crate) scheduling: &'a Options,
}

impl Answer for Report {
    const KIND: &'static str = "PodExplanation";
}

impl Report {
    pub(crate) fn new(question: &Question<'_>, key: &Key) -> Result<Self, PlanError> {
        let Question { objects, taken, .. } = question;
        let cluster = &objects.seen.loaded.cluster;
        let pod = cluster.pods().get(key).ok_or_else(|| no_such_pod(objects, key))?;
        let snapshot = &taken.snapshot;
        let name = key.to_string();
        let mut report = Self {
            verdict: Verdict::new(Outcome::NotLookedAt, String::new()),
            pod: name.clone(),
            moment: objects.moment,
            node: pods::node_name(pod).map(str::to_owned),
            node_verdict: None,
            new_node: None,
            requests: None,
            pools: Vec::new(),
        };
        report.requests = find(snapshot, &name).map(|pod| {
            pod.requests
                .iter()
                .map(|(name, amount)| (name.to_owned(), amount.to_string()))
                .collect()
        });
        if snapshot.pods.iter().any(|one| one.key() == name) {
            report.place(question);
        } else if let Some(invalid) = taken.left_out.iter().find(|invalid| invalid.pod == *key) {
            let reason = invalid.problems.first().map_or("Invalid", |problem| problem.name());
            let refusal = Refusal { reason, message: invalid.to_string() };
            let sentence = format!("Kerf looks for no place for pod {name}: {}.", refusal.message);
            report.verdict = Verdict::refused(Outcome::NotLookedAt, sentence, refusal);
        } else if pods::is_terminal(pod) {
            let sentence = format!("Pod {name} has ended and needs no place.");
            report.verdict = Verdict::new(Outcome::NotLookedAt, sentence);
        } else if report.node.is_some() {
            report.running(question);
        } else if let Err(why) = pods::check_provisionable(pod) {
            let refusal = Refusal { reason: why.name(), message: why.to_string() };
            let sentence = format!("Kerf looks for no place for pod {name}: {}.", refusal.message);
            report.verdict = Verdict::refused(Outcome::NotLookedAt, sentence, refusal);
        }
        Ok(report)
    }

    /// A pod that needs a place: among all others that do.
    fn place(&mut self, Question { taken, scheduling, .. }: &Question<'_>) {
        let snapshot = &taken.snapshot;
        let plan = kerf_scheduler::schedule_cheaply(snapshot, scheduling);
        let name = &self.pod;
        let subject = match &self.node {
            Some(node) => format!("Pod {name} loses its node {node}, which is being removed, and"),
            None => format!("Pod {name}"),
        };
        let is_it = |pod: &std::sync::Arc<kerf_model::Pod>| pod.key() == *name;
        if let Some(failure) = plan.failures.iter().find(|failure| is_it(&failure.pod)) {
            let refusal = &failure.refusal;
            if let kerf_scheduler::Refusal::Pools(pools) = refusal {
                self.pools = pools.iter().map(Refused::new).collect();
            }
            let because = match &self.pools[..] {
                [] => refusal.to_string(),
                [one] => one.message.clone(),
                pools => format!("none of {} NodePools can launch a node for it", pools.len()),
            };
            let sentence = format!("{subject} has no place: {because}.");
            let refusal = Refusal { reason: refusal.name(), message: refusal.to_string() };
            self.verdict = Verdict::refused(Outcome::NoPlace, sentence, refusal);
        } else if let Some(claim) = plan.claims.iter().find(|claim| claim.pods.iter().any(is_it)) {
            let claim = Claim::new(claim, &snapshot.labels);
            let sentence = format!("{subject} would go to a new node of {}.", claim.offer());
            self.new_node = Some(claim);
            self.verdict = Verdict::new(Outcome::GoesToNewNode, sentence);
        } else if let Some(placement) = plan.placements.iter().find(|it| it.pods.iter().any(is_it))
        {
            let node = placement.node.name.clone();
            let sentence = if placement.node.exists {
                format!("{subject} would go to node {node}.")
            } else {
                format!("{subject} would go to NodeClaim {node}, whose node is on its way.")
            };
            self.node = Some(node);
            self.verdict = Verdict::new(Outcome::GoesToNode, sentence);
        }
    }

    fn running(&mut self, Question { taken, explainer, .. }: &Question<'_>) {
        let (snapshot, name) = (&taken.snapshot, &self.pod);
        let node = self.node.clone().unwrap_or_default();
        let line = explainer.node_line(&node);
        self.node_verdict = line.map(|line| Verdict::of_node(&line.node, line.verdict.as_ref()));
        let runs = format!("Pod {name} runs on node {node}");
        let Some(pod) = find(snapshot, name) else {
            self.verdict = Verdict::new(Outcome::Runs, format!("{runs}, which is not known."));
            return;
        };
        self.verdict = match snapshot.obstacle(pod) {
            Some(obstacle) => {
                let refusal = Refusal::new(&Blocked::Pod { pod: name.clone(), obstacle });
                let sentence = format!("{runs} and holds it: {}.", refusal.message);
                Verdict::refused(Outcome::HoldsItsNode, sentence, refusal)
            }
            None if pod.disruption.reschedulable => {
                Verdict::new(Outcome::Runs, format!("{runs} and may be evicted."))
            }
            None => Verdict::new(Outcome::Runs, format!("{runs} and goes with it.")),
        };
    }
}

fn find<'s>(snapshot: &'s Snapshot, name: &str) -> Option<&'s kerf_model::Pod> {
    let bound = snapshot.nodes.iter().flat_map(|node| &node.pods);
    snapshot.pods.iter().chain(bound).find(|pod| pod.key() == name).map(|pod| &**pod)
}

fn no_such_pod(objects: &Objects, key: &Key) -> PlanError {
    let pods = objects.seen.loaded.cluster.pods();
    let named: Vec<_> = pods
        .iter()
        .filter(|(other, _)| other.name == key.name)
        .map(|(other, _)| other.namespace.as_str())
        .collect();
    let hint = if named.is_empty() {
        let there = pods.iter().filter(|(other, _)| other.namespace == key.namespace);
        let there: Vec<_> = there.map(|(other, _)| other.name.as_str()).collect();
        format!("there are: {}", shown(&there))
    } else {
        format!("namespaces with a pod of this name: {}; choose one with -n", shown(&named))
    };
    PlanError::NoPod { name: key.name.clone(), namespace: key.namespace.clone(), hint }
}
