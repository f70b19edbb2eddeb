//! From the index to what disruption is decided from. The operator, `kerf plan` and `kerf explain` all come through here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kerf_api::{
    NodeClaim, ObjectExt, Setback,
    annotations::DO_NOT_DISRUPT,
    conditions::{CONSOLIDATABLE, Conditioned, DRIFTED, INITIALIZED, INSTANCE_TERMINATING, READY},
    labels::LabelRules,
};
use kerf_model::{
    Pool,
    churn::ChurnControls,
    estate::{Cost, Estate, Obstacle, Rules, Standing, StaticPool, Tenant},
};
use kube_core::ResourceExt;

use crate::{
    Cluster,
    do_not_disrupt::Protection,
    node_counts,
    pdb::{BlockedByPdb, PdbLimits},
    pods,
    snapshot::{self, Pools, Taken},
    state_node::StateNode,
    validation::InvalidPod,
    view::Unreadable,
};

pub(crate) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// An estate, and the pods that could not be part of it.
#[derive(Debug)]
pub struct TakenEstate {
    pub estate: Estate,
    pub left_out: Vec<InvalidPod>,
}

impl Cluster {
    /// The cluster as it stands towards disruption.
    ///
    /// `pools` are all that are ours, with no instance types where those are unknown; `in_queue` has the provider ids of
    /// machines that a running command is about.
    pub fn estate(
        &self,
        pools: &[Arc<Pool>],
        label_rules: &LabelRules,
        defaults: ChurnControls,
        in_queue: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<TakenEstate, Unreadable> {
        let mut by_use = Pools::default();
        for pool in pools {
            if let Some(object) = self.pools.named(&pool.name) {
                by_use.add(Arc::clone(pool), snapshot::idle(object));
            }
        }
        let Taken { mut snapshot, left_out } = self.snapshot(by_use, label_rules, now)?;
        let rules: BTreeMap<_, _> = pools
            .iter()
            .filter_map(|pool| Some((pool.name.clone(), self.rules(pool, defaults)?)))
            .collect();
        let budgets = self.pdb_limits();
        let standings: Vec<_> = self
            .state_nodes()
            .map(|machine| self.standing(machine, &budgets, in_queue, now))
            .collect();
        for (node, standing) in snapshot.nodes.iter_mut().zip(&standings) {
            let Some(rules) = node.pool.as_ref().and_then(|pool| rules.get(pool)) else { continue };
            if rules.is_settling(standing, now) {
                Arc::make_mut(node).settling = true;
            }
        }
        let fixed = pools.iter().filter_map(|pool| self.static_pool(&pool.name));
        let static_pools = fixed.collect();
        let estate = Estate { snapshot, standings, pools: rules, static_pools, now };
        Ok(TakenEstate { estate, left_out })
    }

    fn static_pool(&self, name: &str) -> Option<(String, StaticPool)> {
        let pool = self.pools.named(name)?;
        let fixed = StaticPool {
            replicas: pool.replicas()?,
            limit: node_counts::node_limit(pool),
            count: self.node_count(name),
            launches: !pool.is_deleting() && pool.is_true(READY),
        };
        Some((name.to_owned(), fixed))
    }

    fn rules(&self, pool: &Arc<Pool>, defaults: ChurnControls) -> Option<Rules> {
        let object = self.pools.named(&pool.name)?;
        let spec = &object.spec;
        Some(Rules {
            replicas: spec.replicas,
            node_limit: node_counts::node_limit(object),
            pool: Arc::clone(pool),
            policy: spec.disruption.consolidation_policy,
            consolidate_after: spec.disruption.consolidate_after.clone(),
            budgets: spec.disruption.budgets.clone(),
            controls: defaults.resolve(&spec.disruption),
        })
    }

    /// How a machine stands towards being disrupted, when no command is about it.
    pub fn standing_of(&self, machine: StateNode<'_>, now: Timestamp) -> Standing {
        self.standing(machine, &self.pdb_limits(), &BTreeSet::new(), now)
    }

    fn standing(
        &self,
        machine: StateNode<'_>,
        budgets: &PdbLimits,
        in_queue: &BTreeSet<String>,
        now: Timestamp,
    ) -> Standing {
        let name = machine.name();
        // The same pods in the same order as in the snapshot.
        let on_node = machine.node.into_iter().flat_map(|_| self.pods_on(&name));
        let tenants = on_node.filter(|pod| !pods::is_terminal(pod));
        let of_machine = Standing {
            provider_id: machine.provider_id().to_owned(),
            in_queue: in_queue.contains(machine.provider_id()),
            nominated_until: machine.nominated_until,
            do_not_disrupt: machine.annotation(DO_NOT_DISRUPT) == Some("true"),
            ready: machine.is_ready(),
            unreadable: self.unreadable_part(machine).map(ToString::to_string),
            tenants: tenants.map(|pod| tenant(pod, budgets, now)).collect(),
            ..Standing::default()
        };
        match machine.claim {
            None => of_machine,
            Some(claim) => with_claim(of_machine, claim),
        }
    }
}

fn with_claim(standing: Standing, claim: &NodeClaim) -> Standing {
    let since = |kind: &str| {
        let condition = claim.condition(kind).filter(|_| claim.is_true(kind));
        condition.map(|condition| condition.last_transition_time.0)
    };
    Standing {
        instance_terminating: claim.is_true(INSTANCE_TERMINATING),
        consolidatable: claim.is_true(CONSOLIDATABLE),
        drifted_since: since(DRIFTED),
        created: claim.metadata.creation_timestamp.as_ref().map(|time| time.0),
        expire_after: claim.spec.expire_after.as_duration(),
        termination_grace_period: claim
            .spec
            .termination_grace_period
            .as_ref()
            .map(kerf_api::GoDuration::as_duration),
        initialized_at: since(INITIALIZED),
        last_pod_event: claim.last_pod_event(),
        setback: Setback::read(claim),
        ..standing
    }
}

fn tenant(pod: &Pod, budgets: &PdbLimits, now: Timestamp) -> Tenant {
    let protection = Protection::of(pod, now);
    let protected = pods::is_active(pod) && protection.is_active();
    let budget = || match budgets.blocks(pod, now)? {
        BlockedByPdb::By(key) => Some(Obstacle::Budget(key.to_string())),
        BlockedByPdb::BySeveral(keys) => {
            Some(Obstacle::SeveralBudgets(keys.iter().map(ToString::to_string).collect()))
        }
    };
    Tenant {
        reschedulable: pods::is_reschedulable(pod),
        counted: !pods::is_owned_by_daemon_set(pod) && !pods::is_terminal(pod),
        eviction_cost: eviction_cost(pod),
        obstacle: if protected { Some(Obstacle::DoNotDisrupt) } else { budget() },
        protected_until: match protection {
            Protection::Until(end) => Some(end),
            _ => None,
        },
        blocked_for_good: budgets.is_blocked_for_good(pod, now),
    }
}

/// One, and more or less by what the pod's annotation and its priority say.
pub fn eviction_cost(pod: &Pod) -> Cost {
    let annotation = pod.annotations().get(DELETION_COST);
    let written: Option<f64> = annotation.and_then(|text| text.parse().ok());
    #[expect(
        clippy::cast_possible_truncation,
        reason = "float casts saturate, and what follows is cut to ten"
    )]
    let deletion = written.filter(|cost| cost.is_finite()).map_or(0, |cost| cost.round() as i64);
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).map_or(0, i64::from);
    let cost = Cost::ONE.0.saturating_add(deletion).saturating_add(priority * 4);
    Cost(cost.clamp(-Cost::MOST.0, Cost::MOST.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(changes: &Value) -> Pod {
        serde_json::from_value(changes.clone()).unwrap()
    }

    #[test]
    fn eviction_costs_follow_priority_and_deletion_cost() {
        let one = Cost::ONE.0;
        let check = |priority: Option<i32>, deletion_cost: Option<&str>, expect: i64| {
            let annotations = deletion_cost.map(|cost| json!({DELETION_COST: cost}));
            let pod = pod(&json!({
                "metadata": {"annotations": annotations},
                "spec": {"priority": priority, "containers": []},
            }));
            assert_eq!(eviction_cost(&pod), Cost(expect), "{priority:?} {deletion_cost:?}");
        };
        check(None, None, one);
        check(Some(0), None, one);
        check(Some(1 << 25), None, 2 * one);
        check(Some(-(1 << 25)), None, 0);
        check(Some(1), None, one + 4);
        check(Some(2_000_000_000), None, 10 * one);
        check(Some(i32::MIN), None, -10 * one);
        check(None, Some("134217728"), 2 * one);
        check(None, Some("-134217728"), 0);
        check(None, Some("2147483647"), 10 * one);
        check(None, Some("-1"), one - 1);
        check(None, Some("soon"), one);
        check(None, Some("NaN"), one);
        check(None, Some("inf"), one);
        check(Some(1 << 25), Some("-134217728"), one);
    }

    #[test]
    fn pods_hold_their_node_by_annotation_and_by_budget() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let owner = |api_version: &str, kind: &str| json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o"}]);
        let (daemon, mirror) = (owner("apps/v1", "DaemonSet"), owner("v1", "Node"));
        let deleted = json!("2026-01-01T00:59:00Z");
        let tolerates = json!([{"key": "karpenter.sh/disrupted", "operator": "Exists"}]);
        let plain = || json!({"metadata": {}, "spec": {}, "status": {"phase": "Running"}});
        let with = |path: [&str; 2], value: &Value| {
            let mut pod = plain();
            pod[path[0]][path[1]] = value.clone();
            pod
        };
        // What the annotation does to it, and what a budget that allows nothing does.
        for (what, pod, annotated, budgeted) in [
            ("plain", plain(), true, true),
            ("daemon", with(["metadata", "ownerReferences"], &daemon), true, true),
            ("mirror", with(["metadata", "ownerReferences"], &mirror), true, false),
            ("terminating", with(["metadata", "deletionTimestamp"], &deleted), false, false),
            ("over", with(["status", "phase"], &json!("Succeeded")), false, false),
            ("failed", with(["status", "phase"], &json!("Failed")), false, false),
            ("tolerating", with(["spec", "tolerations"], &tolerates), true, false),
        ] {
            let mut cluster = Cluster::default();
            cluster.apply::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(
                serde_json::from_value(json!({
                    "metadata": {"name": "b", "namespace": "ns"},
                    "spec": {"maxUnavailable": 0, "selector": {}},
                    "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
                }))
                .unwrap(),
            );
            let stands = |annotations: &Value| {
                let mut pod_json = pod.clone();
                pod_json["metadata"]["name"] = json!("p");
                pod_json["metadata"]["namespace"] = json!("ns");
                pod_json["metadata"]["annotations"] = annotations.clone();
                pod_json["spec"]["containers"] = json!([]);
                tenant(&self::pod(&pod_json), &cluster.pdb_limits(), now).obstacle
            };
            let by_budget = budgeted.then(|| Obstacle::Budget("ns/b".to_owned()));
            assert_eq!(stands(&json!({})), by_budget, "{what} with a budget");
            let by_annotation = if annotated { Some(Obstacle::DoNotDisrupt) } else { by_budget };
            let annotation = json!({DO_NOT_DISRUPT: "true"});
            assert_eq!(stands(&annotation), by_annotation, "{what} with the annotation");
        }
    }

    #[test]
    fn an_estate_says_how_nodes_and_pods_stand() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let condition = |kind: &str, at: &str| {
            json!({"type": kind, "status": "True", "reason": kind, "message": "",
                   "lastTransitionTime": format!("2026-01-01T{at}Z")})
        };
        let mut cluster = Cluster::default();
        cluster.apply::<kerf_api::NodePool>(
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
                "spec": {
                    "limits": {"nodes": "3500m"},
                    "disruption": {"consolidateAfter": "30m", "consolidationSavingsThreshold": 0.5},
                    "template": {"spec": {
                        "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                    }},
                },
                "status": {"conditions": [condition("Ready", "00:00:00")]},
            }))
            .unwrap(),
        );
        cluster.apply::<NodeClaim>(
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z",
                             "labels": {"karpenter.sh/nodepool": "p"}},
                "spec": {"requirements": [], "terminationGracePeriod": "1h", "expireAfter": "720h",
                         "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": {"providerID": "i-1", "lastPodEventTime": "2026-01-01T00:40:00Z", "conditions":
                    [condition("Initialized", "00:05:00"), condition("Drifted", "00:06:00")]},
            }))
            .unwrap(),
        );
        cluster.apply::<k8s_openapi::api::core::v1::Node>(
            serde_json::from_value(json!({
                "metadata": {"name": "n", "annotations": {DO_NOT_DISRUPT: "true"}, "labels": {
                    "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true",
                    "karpenter.sh/initialized": "true"}},
                "spec": {"providerID": "i-1"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap(),
        );
        for (name, phase, annotations) in [
            ("a", "Running", json!({})),
            ("b", "Running", json!({DO_NOT_DISRUPT: "true"})),
            ("c", "Succeeded", json!({})),
            ("d", "Running", json!({DO_NOT_DISRUPT: "2h"})),
        ] {
            cluster.apply(pod(&json!({
                "metadata": {"name": name, "namespace": "ns", "annotations": annotations},
                "spec": {"nodeName": "n", "containers": []},
                "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z"},
            })));
        }
        cluster.nominate("c", [crate::Key::namespaced("d", "p")], now);
        let pool = Arc::new(Pool {
            limits: [("nodes", "3500m".parse().unwrap())].into_iter().collect(),
            name: "p".to_owned(),
            ..Pool::default()
        });
        let in_queue = ["i-1".to_owned()].into();
        let defaults = ChurnControls::default();
        let taken = cluster.estate(&[pool], &LabelRules::default(), defaults, &in_queue, now);
        let estate = taken.unwrap().estate;

        let rules = &estate.pools["p"];
        assert_eq!(rules.node_limit, Some(3));
        assert_eq!(rules.controls.savings_threshold, "0.5".parse().unwrap());
        assert!(estate.snapshot.pools.is_empty(), "nothing to launch without instance types");

        let [standing] = &estate.standings[..] else { panic!("{:?}", estate.standings) };
        let node = &estate.snapshot.nodes[0];
        assert!(node.settling, "a pod came or went twenty minutes ago");
        assert!(standing.in_queue && standing.do_not_disrupt && standing.ready);
        assert!(!standing.consolidatable && !standing.instance_terminating);
        assert_eq!(standing.nominated_until, Some(now));
        assert_eq!(standing.drifted_since, "2026-01-01T00:06:00Z".parse().ok());
        assert_eq!(standing.quiet_since(), "2026-01-01T00:40:00Z".parse().ok());
        assert_eq!(standing.termination_grace_period, Some(std::time::Duration::from_hours(1)));
        assert_eq!(standing.expire_after, Some(std::time::Duration::from_hours(720)));
        assert_eq!(node.pods.len(), 3, "pods that are over are not there");
        let tenants = standing.tenants.iter().map(|it| (it.obstacle.clone(), it.protected_until));
        let protected = Some(Obstacle::DoNotDisrupt);
        assert_eq!(
            tenants.collect::<Vec<_>>(),
            [
                (None, None),
                (protected.clone(), None),
                (protected, "2026-01-01T02:00:00Z".parse().ok())
            ]
        );
    }

    #[test]
    fn nodes_settle_whether_or_not_their_pool_can_launch() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let settles = |metadata: &Value, ready: &str, replicas: Option<u32>| {
            let mut cluster = Cluster::default();
            let mut pool = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
                "spec": {
                    "replicas": replicas,
                    "disruption": {"consolidateAfter": "0s", "consolidationGracePeriod": "30m"},
                    "template": {"spec": {
                        "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                    }},
                },
                "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "", "message": "",
                                           "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            });
            for (key, value) in metadata.as_object().into_iter().flatten() {
                pool["metadata"][key] = value.clone();
            }
            cluster.apply::<kerf_api::NodePool>(serde_json::from_value(pool).unwrap());
            cluster.apply::<NodeClaim>(
                serde_json::from_value(json!({
                    "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                    "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "p"}},
                    "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                    "status": {"providerID": "i-1", "lastPodEventTime": "2026-01-01T00:40:00Z", "conditions": [
                        {"type": "Initialized", "status": "True", "reason": "", "message": "",
                         "lastTransitionTime": "2026-01-01T00:05:00Z"},
                    ]},
                }))
                .unwrap(),
            );
            cluster.apply::<k8s_openapi::api::core::v1::Node>(
                serde_json::from_value(json!({
                    "metadata": {"name": "n", "labels": {
                        "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true",
                        "karpenter.sh/initialized": "true"}},
                    "spec": {"providerID": "i-1"},
                }))
                .unwrap(),
            );
            let pool = Arc::new(Pool { name: "p".to_owned(), ..Pool::default() });
            let (rules, none) = (LabelRules::default(), BTreeSet::new());
            let taken = cluster.estate(&[pool], &rules, ChurnControls::default(), &none, now);
            taken.unwrap().estate.snapshot.nodes[0].settling
        };
        assert!(settles(&json!({}), "True", None));
        assert!(settles(&json!({}), "False", None));
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:50:00Z"});
        assert!(settles(&deleted, "True", None));
        assert!(!settles(&json!({}), "True", Some(1)), "static nodes always take pods");
    }
}
