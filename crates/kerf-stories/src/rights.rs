//! The rights of operators on a real control plane: those that the chart grants, and no others.

use std::{collections::BTreeSet, time::Duration};

use kerf_api::NodePool;
use kerf_control_plane::ControlPlane;
use kerf_controllers::rbac::{BUFFERS, DEFAULT_SPREAD, ELECTION, OPERATOR, OWNERS};
use kerf_provider::{
    Provider,
    rbac::{Grant, Rule},
};
use kerf_provider_kwok::Kwok;
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};

/// Whose members have these rights. A `ServiceAccount` would need a token; a group makes any number of users alike.
pub const OPERATORS: &str = "kerf-operators";
/// The user that the operator of a story is.
pub const USER: &str = "kerf";
/// Where an operator outside of a cluster keeps its lease.
const NAMESPACE: &str = "default";

/// All that an operator with the KWOK provider may do in the whole cluster.
pub fn cluster_rules() -> impl Iterator<Item = &'static Rule> {
    OPERATOR.iter().chain(&DEFAULT_SPREAD).chain(&BUFFERS).chain(&OWNERS).chain(Kwok.rules())
}

/// The roles, bound to [`OPERATORS`], for `kubectl apply`.
pub fn manifests() -> String {
    const API: &str = "rbac.authorization.k8s.io";
    let item = |kind: &str, namespace: Option<&str>, rest: Value| {
        let mut item = json!({
            "apiVersion": format!("{API}/v1"), "kind": kind,
            "metadata": {"name": OPERATORS, "namespace": namespace},
        });
        for (key, field) in rest.as_object().into_iter().flatten() {
            item[key] = field.clone();
        }
        item
    };
    let rules = |rules: Vec<&Rule>| json!({"rules": rules.into_iter().map(Rule::policy_rule).collect::<Vec<_>>()});
    let reference = |kind| json!({"apiGroup": API, "kind": kind, "name": OPERATORS});
    let bound = |role| json!({"roleRef": reference(role), "subjects": [reference("Group")]});
    let items = [
        item("ClusterRole", None, rules(cluster_rules().collect())),
        item("ClusterRoleBinding", None, bound("ClusterRole")),
        item("Role", Some(NAMESPACE), rules(ELECTION.iter().collect())),
        item("RoleBinding", Some(NAMESPACE), bound("Role")),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// A client with the rights of an operator.
pub(crate) fn client(cluster: &ControlPlane) -> Client {
    cluster.client_of(USER, OPERATORS).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until the API server knows of the roles: it reads them as others do, a moment after they were written.
pub(crate) async fn granted(cluster: &ControlPlane) {
    let pools: Api<NodePool> = Api::all(client(cluster));
    loop {
        match pools.list(&ListParams::default().limit(1)).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("listing NodePools: {error}"),
        }
    }
}

/// What an audit log says of one user: the rights it used, and the requests that were refused for lack of one.
#[derive(Debug, Default)]
pub struct Used {
    pub grants: BTreeSet<Grant>,
    pub denied: BTreeSet<String>,
}

impl Used {
    /// Reads an audit log (`audit.k8s.io/v1`, one event a line). What has no resource (discovery, published schemas) is open to
    /// every authenticated user.
    pub fn by(user: &str, log: &str) -> Self {
        let mut requests = Self::default();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for line in lines.filter(|line| line["user"]["username"] == user) {
            if line["annotations"]["authorization.k8s.io/decision"] == "forbid" {
                requests.denied.insert(format!("{} {}", line["verb"], line["requestURI"]));
                continue;
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let reference = &line["objectRef"];
            let resource = match (text(&reference["resource"]), text(&reference["subresource"])) {
                (resource, _) if resource.is_empty() => continue,
                (resource, subresource) if subresource.is_empty() => resource,
                (resource, subresource) => format!("{resource}/{subresource}"),
            };
            let (group, verb) = (text(&reference["apiGroup"]), text(&line["verb"]));
            requests.grants.insert(Grant { group, resource, verb });
        }
        requests
    }
}

impl Used {
    /// What does not fit between rights that were used and rules that grant them, in sentences.
    pub fn misfits<'a>(&self, rules: impl Iterator<Item = &'a Rule>) -> Vec<String> {
        let (mut granted, mut rarely) = (BTreeSet::new(), BTreeSet::new());
        for rule in rules {
            granted.extend(rule.grants());
            rarely.extend(rule.grants().filter(|_| rule.rarely.is_some()));
        }
        let refused = self.denied.iter().map(|request| format!("refused: {request}"));
        let more = self.grants.difference(&granted);
        let more = more.map(|grant| format!("used, and granted by another role: {grant}"));
        let unused = granted.difference(&self.grants).filter(|grant| !rarely.contains(grant));
        let unused = unused.map(|grant| format!("granted, and never used: {grant}"));
        refused.chain(more).chain(unused).collect()
    }

    /// What two audit logs say.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.grants.extend(other.grants);
        self.denied.extend(other.denied);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_log_tells_which_rights_were_used_and_which_were_missing() {
        let line = |user: &str, verb: &str, reference: Value, decision: &str| {
            json!({"user": {"username": user}, "verb": verb, "objectRef": reference, "requestURI": "/u",
                   "annotations": {"authorization.k8s.io/decision": decision}})
        };
        let eviction = json!({"resource": "pods", "subresource": "eviction"});
        let claims = json!({"resource": "nodeclaims", "apiGroup": "karpenter.sh"});
        let log = [
            line("kerf", "create", eviction, "allow"),
            line("kerf", "list", claims.clone(), "allow"),
            line("kerf", "get", Value::Null, "allow"),
            line("kerf", "delete", claims.clone(), "forbid"),
            line("admin", "create", claims, "allow"),
        ];
        let used = Used::by("kerf", &log.map(|line| line.to_string()).join("\n"));
        let grant = |group: &str, resource: &str, verb: &str| Grant {
            group: group.into(),
            resource: resource.into(),
            verb: verb.into(),
        };
        let expected =
            [grant("", "pods/eviction", "create"), grant("karpenter.sh", "nodeclaims", "list")];
        assert_eq!(used.grants, BTreeSet::from(expected));
        assert_eq!(used.denied, BTreeSet::from(["\"delete\" \"/u\"".to_owned()]));
    }

    #[test]
    fn a_right_too_many_and_a_right_too_few_are_named() {
        const RULES: [Rule; 2] = [
            Rule::new("", &["pods"], &["list", "watch"]),
            Rule::new("", &["nodes"], &["get"]).rarely("a write was refused"),
        ];
        let used = |verbs: &[&str], denied: &[&str]| Used {
            grants: verbs
                .iter()
                .map(|&verb| Grant {
                    group: String::new(),
                    resource: "pods".into(),
                    verb: verb.into(),
                })
                .collect(),
            denied: denied.iter().map(|&request| request.to_owned()).collect(),
        };
        let cases: [(Used, &[&str]); 4] = [
            (used(&["list", "watch"], &[]), &[]),
            (used(&["list"], &[]), &["granted, and never used: watch pods"]),
            (
                used(&["list", "watch", "delete"], &[]),
                &["used, and granted by another role: delete pods"],
            ),
            (used(&["list", "watch"], &["create /api"]), &["refused: create /api"]),
        ];
        for (used, expected) in cases {
            assert_eq!(used.misfits(RULES.iter()), expected);
        }
    }
}
