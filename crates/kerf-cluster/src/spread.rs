//! Default spread constraints, and the Services and owners of pods that their selectors follow from.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use kerf_model::{
    KnownLabels, Selector,
    default_spread::{ControllerSelector, DefaultConstraint, Workloads},
    pod::PodReader,
};

use crate::Cluster;

impl Cluster {
    /// Spreads pods that bring no constraint of their own. Services and the controllers of pods have to be in the index
    /// for that, so from now on it counts as listed only with them.
    pub fn spread_by_default(&mut self, constraints: Vec<TopologySpreadConstraint>) {
        self.default_spread = constraints;
        self.workloads_changed();
    }

    /// Whether Services and the controllers of pods matter.
    pub fn spreads_by_default(&self) -> bool {
        !self.default_spread.is_empty()
    }

    /// Reads pods as decisions see them.
    pub fn pod_reader<'a>(&self, known: &'a KnownLabels) -> PodReader<'a> {
        let reader = PodReader::new(known);
        if !self.spreads_by_default() {
            return reader;
        }
        let constraints = self.default_spread.iter();
        let constraints = constraints.map(|one| DefaultConstraint::from_api(one, known)).collect();
        reader.spreading(constraints, self.workloads())
    }

    fn workloads(&self) -> Workloads {
        let mut workloads = Workloads::default();
        for (key, service) in self.services.iter() {
            let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone());
            workloads.services.entry(key.namespace.clone()).or_default().push(selector);
        }
        let mut add = |uid: Option<&String>, selector: Option<ControllerSelector>| {
            if let (Some(uid), Some(selector)) = (uid, selector) {
                workloads.controllers.insert(uid.clone(), selector);
            }
        };
        for controller in self.replication_controllers.values() {
            let selector = controller.spec.as_ref().and_then(|spec| spec.selector.clone());
            let selector = selector.map(ControllerSelector::ReplicationController);
            add(controller.metadata.uid.as_ref(), selector);
        }
        for set in self.replica_sets.values() {
            let selector = set.spec.as_ref().map(|spec| Selector::from_api(Some(&spec.selector)));
            add(set.metadata.uid.as_ref(), selector.map(ControllerSelector::Set));
        }
        for set in self.stateful_sets.values() {
            let selector = set.spec.as_ref().map(|spec| Selector::from_api(Some(&spec.selector)));
            add(set.metadata.uid.as_ref(), selector.map(ControllerSelector::Set));
        }
        workloads
    }

    pub(crate) fn workloads_listed(&self) -> bool {
        !self.spreads_by_default()
            || (self.services.listed()
                && self.replication_controllers.listed()
                && self.replica_sets.listed()
                && self.stateful_sets.listed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use kerf_model::{Pod, pod::PodError};
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn add<K: Kind + DeserializeOwned>(cluster: &mut Cluster, object: Value) {
        cluster.apply::<K>(serde_json::from_value(object).unwrap());
    }

    fn cluster() -> Cluster {
        use k8s_openapi::api::{apps::v1 as apps, core::v1 as core};
        let mut cluster = Cluster::default();
        cluster.spread_by_default(vec![TopologySpreadConstraint {
            max_skew: 2,
            topology_key: "failure-domain.beta.kubernetes.io/zone".into(),
            when_unsatisfiable: "DoNotSchedule".into(),
            ..TopologySpreadConstraint::default()
        }]);
        let metadata = |name: &str| json!({"name": name, "namespace": "ns", "uid": name});
        add::<core::Service>(
            &mut cluster,
            json!({"metadata": metadata("svc"), "spec": {"selector": {"app": "web"}}}),
        );
        add::<core::ReplicationController>(
            &mut cluster,
            json!({"metadata": metadata("rc"), "spec": {"selector": {"app": "rc"}}}),
        );
        let spec =
            json!({"selector": {"matchLabels": {"set": "yes"}}, "serviceName": "", "template": {}});
        add::<apps::ReplicaSet>(&mut cluster, json!({"metadata": metadata("rs"), "spec": spec}));
        add::<apps::StatefulSet>(&mut cluster, json!({"metadata": metadata("sts"), "spec": spec}));
        cluster
    }

    fn read(cluster: &Cluster, labels: &Value, owner: &str) -> Result<Pod, PodError> {
        let owner = json!({"apiVersion": "v1", "kind": "K", "name": owner, "uid": owner, "controller": true});
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": labels, "ownerReferences": [owner]},
            "spec": {"containers": []},
        }));
        let known = KnownLabels::default();
        cluster.pod_reader(&known).read(&pod.unwrap())
    }

    #[test]
    fn pods_are_spread_by_what_they_belong_to() {
        let cluster = cluster();
        let check = |labels: Value, owner: &str, expect: Option<Value>| {
            let pod = read(&cluster, &labels, owner).unwrap();
            let expect = expect
                .map(|labels| Selector::from_labels(&serde_json::from_value(labels).unwrap()));
            let spread = pod.constraints.spread.first();
            assert_eq!(spread.map(|spread| spread.selector.clone()), expect);
            assert!(spread.is_none_or(|spread| {
                spread.max_skew == 2 && spread.topology_key == "topology.kubernetes.io/zone"
            }));
        };
        check(json!({}), "nobody", None);
        check(json!({"app": "web"}), "nobody", Some(json!({"app": "web"})));
        check(json!({"app": "other"}), "nobody", None);
        check(json!({"app": "other"}), "rc", Some(json!({"app": "rc"})));
        check(json!({"app": "other"}), "rs", Some(json!({"set": "yes"})));
        check(json!({"app": "web"}), "sts", Some(json!({"app": "web", "set": "yes"})));
    }

    #[test]
    fn pods_are_left_alone_without_defaults() {
        let mut cluster = cluster();
        cluster.spread_by_default(Vec::new());
        let pod = read(&cluster, &json!({"app": "web"}), "rs").unwrap();
        assert!(pod.constraints.spread.is_empty());
    }

    #[test]
    fn workloads_are_waited_for_only_where_they_matter() {
        let mut cluster = Cluster::default();
        assert!(cluster.workloads_listed());
        cluster.spread_by_default(vec![TopologySpreadConstraint::default()]);
        assert!(!cluster.workloads_listed());
    }

    #[test]
    fn constraints_are_shared_all_the_same() {
        let cluster = cluster();
        let known = KnownLabels::default();
        let mut reader = cluster.pod_reader(&known);
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web"}}, "spec": {"containers": []},
        }))
        .unwrap();
        let (a, b) = (reader.read(&pod).unwrap(), reader.read(&pod).unwrap());
        assert!(std::sync::Arc::ptr_eq(&a.constraints, &b.constraints));
    }
}
