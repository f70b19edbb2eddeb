//! A provider outside of the core that uses every part of the contract. It is there for the stories.
//!
//! Its machines are KWOK's. Its own are the `ExampleNodeClass` with a controller of its status, the labels of its domain, the
//! partition of a machine, which is known only after the machine has started, and interruptions. What a real cloud would say
//! by its API or in a queue, this one says by annotations on Nodes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::{
    api::core::v1::Node,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kerf_api::{NodeClaim, NodeClass, NodeClassReference, NodeExt, NodePool, ObjectExt, labels};
use kerf_cluster::{Change, Cluster};
use kerf_model::{InstanceType, Offering, Requirement, Requirements};
use kerf_provider::{
    BoxError, CloudProvider, ControllerContext, InstanceTypes, Launched, NodeClassKind,
    ProviderError, ProviderFacts, Reconciler, Registration, Registry,
};
use kerf_provider_kwok::{self as kwok, KwokNodeClass, KwokNodeClassSpec, KwokProvider};
use kerf_runtime::{Outcome, Queue, Workers};
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::build::object;

pub const GROUP: &str = "cloud.example";
pub const VERSION: &str = "v1";
pub const KIND: &str = "ExampleNodeClass";
pub const PLURAL: &str = "examplenodeclasses";

/// How the cloud's volume driver calls the zone.
pub const DRIVER_ZONE: &str = "topology.disk.cloud.example/zone";
/// And what it calls the last of the zones.
pub const DRIVER_LAST_ZONE: &str = "last";
pub const LAST_ZONE: &str = "test-zone-d";
/// Names the reservation that an instance was taken from.
pub const RESERVATION: &str = "cloud.example/reservation";
/// The instance type that has a reservation, in one zone, for one instance.
pub const RESERVED_TYPE: &str = "c-4x-amd64-linux";
/// On a claim: its machine is part of a group, and has a partition.
pub const PLACEMENT_GROUP: &str = "cloud.example/placement-group";
/// On a Node by the cloud, once it is known; then a label of claim and Node.
pub const PARTITION: &str = "cloud.example/partition";
/// On a Node by the cloud: it takes the machine away soon.
pub const INTERRUPTED: &str = "cloud.example/interrupted";
/// The cause under which that is counted.
pub const CAUSE: &str = "example_interrupted";

const LISTEN_EVERY: Duration = Duration::from_secs(10);
const ASK_FOR_PARTITION_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct ExampleProvider {
    kwok: Arc<KwokProvider>,
    facts: ProviderFacts,
}

pub fn connect(kwok: Arc<KwokProvider>) -> Arc<dyn CloudProvider> {
    let mut facts = kwok.facts().clone();
    facts.name = "example";
    facts.label_rules = facts
        .label_rules
        .restricting(GROUP)
        .knowing([PLACEMENT_GROUP, PARTITION])
        .knowing_resources(["cloud.example/fpga"])
        .reserving_by(RESERVATION)
        .calling(DRIVER_ZONE, labels::ZONE)
        .calling_value(labels::ZONE, DRIVER_LAST_ZONE, LAST_ZONE);
    facts.node_classes = vec![node_class()];
    Arc::new(ExampleProvider { kwok, facts })
}

pub fn node_class() -> NodeClassKind {
    let text = |text: &str| text.to_owned();
    NodeClassKind {
        group: text(GROUP),
        version: text(VERSION),
        kind: text(KIND),
        plural: text(PLURAL),
    }
}

/// KWOK's, of which one type has a reservation.
pub fn instance_types() -> Vec<InstanceType> {
    let reserved = |one: InstanceType| {
        let mut offerings = one.offerings().to_vec();
        let price = offerings.first().map(|offering| offering.price).unwrap_or_default();
        offerings.push(Offering {
            requirements: Requirements::new([
                Requirement::is_in(labels::CAPACITY_TYPE, [labels::CAPACITY_TYPE_RESERVED]),
                Requirement::is_in(labels::ZONE, ["test-zone-a"]),
                Requirement::is_in(RESERVATION, ["r-1"]),
            ]),
            price,
            available: true,
            reservation_capacity: 1,
            ..Offering::default()
        });
        let mut all = one.requirements().clone();
        all.replace(Requirement::is_in(
            labels::CAPACITY_TYPE,
            [
                labels::CAPACITY_TYPE_ON_DEMAND,
                labels::CAPACITY_TYPE_RESERVED,
                labels::CAPACITY_TYPE_SPOT,
            ],
        ));
        let (capacity, overhead) = (one.capacity().clone(), one.overhead().clone());
        InstanceType::new(one.name(), all, offerings, capacity, overhead)
            .with_volume_limits(one.volume_limits().clone())
    };
    let types = kwok::generated().into_iter();
    types.map(|one| if one.name() == RESERVED_TYPE { reserved(one) } else { one }).collect()
}

/// Its NodeClass. `spec.refuse` is a reason for which the class cannot be used.
pub fn crd() -> CustomResourceDefinition {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    object(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {"kind": KIND, "plural": PLURAL, "singular": "examplenodeclass"},
            "versions": [{
                "name": VERSION, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": open, "status": open},
                }},
            }],
        },
    }))
}

/// The settings of KWOK that the class stands for.
fn of_kwok(class: &NodeClass) -> Result<NodeClass, ProviderError> {
    let unusable = |error: &dyn std::fmt::Display| {
        ProviderError::NodeClassNotReady(format!("{KIND} {}: {error}", class.reference.name))
    };
    let spec = class.object().data.get("spec").cloned().unwrap_or_default();
    let spec: KwokNodeClassSpec = serde_json::from_value(spec).map_err(|error| unusable(&error))?;
    let class = KwokNodeClass::new(&class.reference.name, spec);
    NodeClass::of(&class).map_err(|error| unusable(&error))
}

#[async_trait]
impl CloudProvider for ExampleProvider {
    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
    ) -> Result<Launched, ProviderError> {
        self.kwok.create(claim, &of_kwok(class)?).await
    }

    async fn create_overlaid(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        types: InstanceTypes,
    ) -> Result<Launched, ProviderError> {
        self.kwok.create_overlaid(claim, &of_kwok(class)?, types).await
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), ProviderError> {
        self.kwok.delete(claim).await
    }

    async fn reboot(&self, claim: &NodeClaim, operation: &str) -> Result<(), ProviderError> {
        self.kwok.reboot(claim, operation).await
    }

    async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError> {
        self.kwok.get(provider_id).await
    }

    async fn list(&self) -> Result<Vec<Launched>, ProviderError> {
        self.kwok.list().await
    }

    async fn instance_types(
        &self,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<InstanceTypes, ProviderError> {
        self.kwok.instance_types(pool, class).await
    }

    async fn drifted(
        &self,
        claim: &NodeClaim,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<Option<String>, ProviderError> {
        self.kwok.drifted(claim, pool, class).await
    }

    async fn lead(&self, context: &dyn ControllerContext) -> Result<(), ProviderError> {
        let class_of = |reference: &NodeClassReference| {
            let class = context.cluster().node_class(reference).cloned()?;
            of_kwok(&class).ok().map(Arc::new)
        };
        self.kwok.resume(class_of).await.map(drop)
    }

    /// The machines of a group wait for their partition.
    async fn registering(
        &self,
        claim: &NodeClaim,
        node: &Node,
    ) -> Result<Registration, ProviderError> {
        if !claim.labels().contains_key(PLACEMENT_GROUP) {
            return Ok(Registration::default());
        }
        Ok(match node.annotations().get(PARTITION) {
            Some(partition) => Registration::Go {
                labels: BTreeMap::from([(PARTITION.to_owned(), partition.clone())]),
            },
            None => Registration::Wait {
                because: "its partition is not known yet".to_owned(),
                look_again: ASK_FOR_PARTITION_AGAIN,
            },
        })
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.kwok.changes()
    }

    fn controllers(self: Arc<Self>, registry: &mut Registry) {
        registry.add(Status);
        registry.add_periodic("example.interruption", LISTEN_EVERY, interrupt);
    }
}

/// Says of each class whether it can be used.
struct Status;

#[async_trait]
impl Reconciler for Status {
    fn workers(&self) -> Workers {
        Workers::new("example.nodeclass.status", 10)
    }

    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        if let Change::NodeClass(delta) = change {
            queue.add(delta.key.name.clone());
        }
    }

    async fn reconcile(
        &self,
        context: &dyn ControllerContext,
        name: &str,
    ) -> Result<Outcome, BoxError> {
        let (group, kind, name) = (GROUP.to_owned(), KIND.to_owned(), name.to_owned());
        let reference = NodeClassReference { group, kind, name };
        let Some(class) = context.cluster().node_class(&reference).cloned() else {
            return Ok(Outcome::Done);
        };
        // What somebody wrote by hand carries no generation, and stays.
        let is_judged = class
            .ready
            .as_ref()
            .is_some_and(|ready| ready.observed_generation.is_none_or(|at| at == class.generation));
        if class.deleting || is_judged {
            return Ok(Outcome::Done);
        }
        let refuse = class.object().data.pointer("/spec/refuse").and_then(Value::as_str);
        let ready = json!({
            "type": "Ready",
            "status": if refuse.is_none() { "True" } else { "False" },
            "reason": if refuse.is_none() { "Ready" } else { "Refused" },
            "message": refuse.unwrap_or_default(),
            "observedGeneration": class.generation,
            "lastTransitionTime": context.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        let mut changed = class.object().clone();
        changed.data["status"] = json!({"conditions": [ready]});
        context.write_node_class(&class, changed).await?;
        Ok(Outcome::Done)
    }
}

/// Gives up the machines that the cloud is about to take away.
async fn interrupt(context: Arc<dyn ControllerContext>) -> Result<(), BoxError> {
    let interrupted: Vec<Arc<NodeClaim>> = {
        let cluster = context.cluster();
        let nodes = cluster.nodes().values();
        let nodes = nodes.filter(|node| node.annotations().contains_key(INTERRUPTED));
        let claims = nodes.filter_map(|node| cluster.claim_of(node.provider_id()).ok().cloned());
        claims.filter(|claim| !claim.is_deleting()).collect()
    };
    for claim in interrupted {
        context.disrupt(&claim, CAUSE).await?;
    }
    Ok(())
}
