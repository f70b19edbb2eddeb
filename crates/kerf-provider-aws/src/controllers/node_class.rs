//! What becomes of an EC2NodeClass: what it selects in the account stands in its status, and what was made for it goes with it.
//!
//! | file | holds |
//! |---|---|
//! | `hash` | the hash by which claims find out that they are out of date, and the finalizer |
//! | `status` | the conditions and what they rest on |
//! | `lookup`, `images`, `profile` | what a class selects, and the instance profile of its role |
//! | `validation` | a launch that is tried out |
//! | `termination` | the end of a class |

mod hash;
mod images;
mod lookup;
mod profile;
mod status;
mod termination;
mod validation;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use kerf_api::{NodeClass, NodeClassReference};
use kerf_aws_api::{Ec2NodeClass, GROUP, KIND};
use kerf_cluster::{Change, Cluster};
use kerf_provider::{BoxError, ControllerContext, Reconciler, Registry};
use kerf_runtime::{Outcome, Queue, Workers};

use self::{images::Parameters, lookup::Memory};
use crate::cloud::AwsCloud;

pub(crate) use profile::delete as delete_profile;

pub(super) fn register(cloud: &Arc<AwsCloud>, registry: &mut Registry) {
    registry.add(NodeClasses::new(Arc::clone(cloud)));
}

/// Looks after all EC2NodeClasses.
struct NodeClasses {
    cloud: Arc<AwsCloud>,
    /// What was looked up, by the name of the class.
    memory: Mutex<BTreeMap<String, Arc<Memory>>>,
    parameters: Parameters,
}

impl NodeClasses {
    fn new(cloud: Arc<AwsCloud>) -> Self {
        Self { cloud, memory: Mutex::default(), parameters: Parameters::default() }
    }

    /// What was looked up for the class as it is now; nothing after an edit.
    fn memory(&self, class: &Ec2NodeClass) -> Arc<Memory> {
        let name = class.metadata.name.clone().unwrap_or_default();
        let mut all = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = all.entry(name).or_default();
        if !memory.is_of(class) {
            *memory = Arc::new(Memory::of(class));
        }
        Arc::clone(memory)
    }

    fn forget(&self, name: &str) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.cloud.offers().forget(name);
    }
}

#[async_trait]
impl Reconciler for NodeClasses {
    fn workers(&self) -> Workers {
        // An instance profile that was just made is known to EC2 after some seconds.
        Workers::new("nodeclass", 10).backoff(Duration::from_secs(1), Duration::from_mins(1))
    }

    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        match change {
            Change::NodeClass(delta) => queue.add(delta.key.name.clone()),
            // The class may have waited for its last claim.
            Change::NodeClaim(delta) if delta.after.is_none() => {
                if let Some(claim) = &delta.before
                    && is_ours(&claim.spec.node_class_ref)
                {
                    queue.add(claim.spec.node_class_ref.name.clone());
                }
            }
            _ => {}
        }
    }

    async fn reconcile(
        &self,
        context: &dyn ControllerContext,
        name: &str,
    ) -> Result<Outcome, BoxError> {
        let Some(class) = find(context, name) else {
            self.forget(name);
            return Ok(Outcome::Done);
        };
        if class.deleting {
            return self.terminate(context, &class).await;
        }
        let read = match Ec2NodeClass::read(&class) {
            Ok(read) => read,
            Err(unreadable) => return status::refuse(context, &class, &unreadable).await,
        };
        self.mark(context, &class, &read).await?;
        // As it is with what was just written.
        let Some(class) = find(context, name) else { return Ok(Outcome::Done) };
        match Ec2NodeClass::read(&class) {
            Ok(read) if !class.deleting => self.renew(context, &class, read).await,
            _ => Ok(Outcome::After(Duration::ZERO)),
        }
    }
}

fn find(context: &dyn ControllerContext, name: &str) -> Option<Arc<NodeClass>> {
    let (group, kind) = (GROUP.to_owned(), KIND.to_owned());
    let reference = NodeClassReference { group, kind, name: name.to_owned() };
    context.cluster().node_class(&reference).cloned()
}

pub(crate) fn is_ours(reference: &NodeClassReference) -> bool {
    reference.group == GROUP && reference.kind == KIND
}
